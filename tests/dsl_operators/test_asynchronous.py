"""Operators that call async functions: order, failures, restore, and the same results under all drivers."""

import asyncio
import functools
import gc
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    EmbeddedBroker,
    ExceptionResponse,
    Producer,
    Streams,
    StreamsBuilder,
    TimeWindows,
    Topic,
    TopicPartition,
)
from streams.core.errors import ProcessingError, TopologyError
from streams.testing import TopologyTestDriver
from tests.dsl_operators.slices import agree_in_slices, drawn_orders
from tests.ports import free_ports
from tests.properties.profile import examples
from tests.waiting import until

ORDERS = Topic("orders", key=str, value=int)
ANSWERS = Topic("answers", key=str, value=int)
Order = Literal["key", "partition", "none"]


async def slow(key: str, value: int) -> int:
    """The higher the value, the longer the call."""
    await asyncio.sleep(value / 1000)
    return value


def driver_of(order: Order, concurrency: int = 10) -> TopologyTestDriver:
    """Return a driver in which only the clock ends calls."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(slow, name="ask", concurrency=concurrency, order=order).to(ANSWERS)

    return TopologyTestDriver(topology, awaits_calls=False)


# --- order ------------------------------------------------------------------------------------


def test_calls_of_one_key_run_one_after_another() -> None:
    driver = driver_of("key")
    driver.pipe_all(ORDERS, [("a", 300, 0), ("b", 100, 1), ("a", 100, 2)])

    driver.advance_wall_clock(100)
    assert driver.read(ANSWERS) == [("b", 100)]
    driver.advance_wall_clock(299)
    assert driver.read(ANSWERS) == [("a", 300)]
    driver.advance_wall_clock(1)
    assert driver.read(ANSWERS) == [("a", 100)]


def test_results_without_order_come_as_the_calls_end() -> None:
    driver = driver_of("none")
    driver.pipe_all(ORDERS, [("a", 300, 0), ("b", 100, 1), ("a", 200, 2)])

    driver.advance_wall_clock(300)

    assert driver.read(ANSWERS) == [("b", 100), ("a", 200), ("a", 300)]


def test_no_more_calls_run_at_a_time_than_concurrency_says() -> None:
    driver = driver_of("none", concurrency=2)
    driver.pipe_all(ORDERS, [(str(number), 100, number) for number in range(4)])

    driver.advance_wall_clock(100)
    assert driver.read(ANSWERS) == [("0", 100), ("1", 100)]
    driver.advance_wall_clock(100)
    assert driver.read(ANSWERS) == [("2", 100), ("3", 100)]


def test_driver_waits_for_calls_and_their_sleeps_take_no_time() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(slow).map_values_async(slow).to(ANSWERS)

    driver = TopologyTestDriver(topology, now_ms=5)
    driver.pipe(ORDERS, 30_000, key="a", headers=(("trace", b"1"),), timestamp_ms=7)

    (record,) = driver.read_records(ANSWERS)
    assert (record.value, record.timestamp_ms, record.headers) == (30_000, 7, (("trace", b"1"),))
    assert driver.clock.now_ms() == 5


# --- failures ---------------------------------------------------------------------------------


async def refused(key: str, value: int) -> int:
    if value == 13:
        raise ConnectionError("no answer")
    return value


def refusing(builder: StreamsBuilder) -> None:
    builder.stream(ORDERS).map_values_async(refused, name="ask").to(ANSWERS)


def test_failed_call_fails_the_task_and_names_node_and_record() -> None:
    driver = TopologyTestDriver(refusing)
    driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)

    with pytest.raises(ProcessingError, match=r"node 'ask' at orders-0 offset 1: ConnectionError: no answer") as caught:
        driver.pipe(ORDERS, 13, key="a", timestamp_ms=1)
    assert (caught.value.node, caught.value.offset) == ("ask", 1)


def test_skipped_call_is_counted_and_its_source_record_is_the_dead_letter() -> None:
    driver = TopologyTestDriver(
        refusing, processing_handler="continue", errors_dead_letter_queue_topic_name="dead", partitions=1
    )
    driver.pipe_all(ORDERS, [("a", 1, 0), ("b", 13, 1), ("a", 2, 2)])

    assert driver.read(ANSWERS) == [("a", 1), ("a", 2)]
    (letter,) = driver.read_bytes("dead")
    assert (letter.key, letter.value) == (b"b", (13).to_bytes(8))
    (drop,) = driver.drops()
    assert (drop.node, drop.count) == ("ask", 1)


def test_handler_gets_the_record_of_the_call_and_not_the_last_record() -> None:
    seen = []

    def handler(context: Any, record: Any, error: Exception) -> Literal["continue"]:
        seen.append((context.offset, context.source_raw_value, record.key, record.value, str(error)))
        return "continue"

    def topology(builder: StreamsBuilder) -> None:
        async def fails(value: int) -> int:
            await asyncio.sleep(1)
            return 1 // (value - 1)

        builder.stream(ORDERS).map_values_async(fails).to(ANSWERS)

    driver = TopologyTestDriver(topology, awaits_calls=False, processing_handler=handler)
    driver.pipe_all(ORDERS, [("a", 1, 0), ("b", 5, 1)])
    driver.advance_wall_clock(1_000)

    assert seen == [(0, (1).to_bytes(8), "a", 1, "integer division or modulo by zero")]


def test_call_is_retried_for_the_given_errors_with_growing_pauses() -> None:
    tried: list[float] = []

    async def flaky(value: int) -> int:
        tried.append(asyncio.get_running_loop().time())
        if len(tried) < 4:
            raise ConnectionError
        return value

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(ORDERS)
        stream.map_values_async(flaky, retries=3, backoff=timedelta(seconds=1), retry_on=OSError).to(ANSWERS)

    driver = TopologyTestDriver(topology)
    driver.pipe(ORDERS, 5, key="a", timestamp_ms=0)

    assert driver.read(ANSWERS) == [("a", 5)]
    assert [round(at - tried[0]) for at in tried] == [0, 1, 3, 7]


def test_pause_before_a_retry_is_at_most_one_minute() -> None:
    tried: list[float] = []

    async def fails(value: int) -> int:
        tried.append(asyncio.get_running_loop().time())
        raise ConnectionError

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(fails, retries=1_100).to(ANSWERS)

    driver = TopologyTestDriver(topology, processing_handler="continue")
    driver.pipe(ORDERS, 5, key="a", timestamp_ms=0)

    assert round(tried[1] - tried[0], 3) == 0.1
    assert {round(later - sooner) for sooner, later in pairwise(tried[10:])} == {60}


def test_call_that_takes_too_long_fails_and_each_retry_has_its_own_time() -> None:
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(ORDERS)
        stream.map_values_async(slow, name="ask", timeout=timedelta(milliseconds=50), retries=1).to(ANSWERS)

    driver = TopologyTestDriver(topology, processing_handler="continue")
    driver.pipe_all(ORDERS, [("a", 49, 0), ("b", 51, 1)])

    assert driver.read(ANSWERS) == [("a", 49)]
    assert [(drop.reason, drop.count) for drop in driver.drops()] == [("failed, TimeoutError", 1)]


@pytest.mark.parametrize("error", [asyncio.CancelledError("mine"), GeneratorExit("mine"), SystemExit("mine")])
def test_exception_that_no_handler_may_skip_fails_the_task_and_names_the_node_once(error: BaseException) -> None:
    async def fails(value: int) -> int:
        raise error

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(fails, name="ask").to(ANSWERS)

    driver = TopologyTestDriver(topology, processing_handler="continue")
    with pytest.raises(
        ProcessingError, match=rf"^task 0_0, node 'ask' at orders-0 offset 0: {type(error).__name__}: mine$"
    ):
        driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)


@pytest.mark.parametrize("awaits_calls", [True, False])
def test_exit_of_a_task_that_a_call_starts_fails_the_call(awaits_calls: bool) -> None:
    async def ends() -> None:
        raise SystemExit(3)

    async def starts(value: int) -> int:
        await asyncio.create_task(ends())
        return value

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(starts, name="ask").to(ANSWERS)

    driver = TopologyTestDriver(topology, awaits_calls=awaits_calls)
    with pytest.raises(ProcessingError, match="node 'ask' at orders-0 offset 0: SystemExit: 3"):
        driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)


def test_interruption_of_a_call_interrupts_the_driver_and_the_other_calls_are_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended = []

    async def interrupted(value: int) -> int:
        if value:
            raise KeyboardInterrupt
        try:
            await asyncio.sleep(5)
        finally:
            await asyncio.sleep(1)
            ended.append(value)
        return value

    def topology(builder: StreamsBuilder) -> None:
        both = builder.stream(ORDERS).flat_map_values(lambda value: [0, value])
        both.map_values_async(interrupted, order="none").to(ANSWERS)

    driver = TopologyTestDriver(topology)
    with pytest.raises(KeyboardInterrupt):
        driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)
    driver.close()

    assert ended == [0]
    # It was raised, and is not logged as an exception that nobody has seen.
    del driver
    gc.collect()
    assert caplog.messages == []


def test_cancellation_that_a_function_leaves_behind_does_not_reach_the_next_call() -> None:
    async def cancelled(value: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        if value == 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(10)
        elif value == 1:
            task.cancel()
        else:
            await asyncio.sleep(0)
        return value

    def topology(builder: StreamsBuilder) -> None:
        values = builder.stream(ORDERS).flat_map_values(lambda count: list(range(count)))
        values.map_values_async(cancelled, concurrency=1, timeout=timedelta(seconds=1), order="none").to(ANSWERS)

    driver = TopologyTestDriver(topology, awaits_calls=False)
    driver.pipe(ORDERS, 3, key="a", timestamp_ms=0)
    driver.advance_wall_clock(10_000)

    assert driver.read(ANSWERS) == [("a", 0), ("a", 1), ("a", 2)]


def test_failure_downstream_of_a_call_is_that_of_its_record() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(slow).map_values(lambda value: 1 // value, name="divide").to(ANSWERS)

    with pytest.raises(ProcessingError, match="node 'divide' at orders-0 offset 0: ZeroDivisionError"):
        TopologyTestDriver(topology).pipe(ORDERS, 0, key="a", timestamp_ms=0)


def test_wait_for_what_never_happens_is_an_error() -> None:
    async def never(value: int) -> int:
        await asyncio.Event().wait()
        return value

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(never, name="ask", timeout=None).to(ANSWERS)

    with pytest.raises(ProcessingError, match=r"node 'ask' at orders-0 offset 0: .* waits for something that never"):
        TopologyTestDriver(topology).pipe(ORDERS, 0, key="a", timestamp_ms=0)


# --- declaration ------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    return value


def generator(value: Any) -> Any:
    yield value


async def async_generator(value: Any) -> Any:
    yield value


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (plain, {}, r"'plain' .* is not async; use map_values, or give an async def"),
        (generator, {}, "is a generator; use map_values"),
        (async_generator, {}, "is an async generator; give an async def that returns its results as a list"),
        (slow, {"concurrency": 0}, "concurrency must be an int of at least 1, not 0"),
        (slow, {"order": "time"}, "order must be one of 'key', 'partition', 'none', not 'time'"),
        (slow, {"timeout": 5}, "timeout must be a timedelta above 0, not 5"),
        (slow, {"retries": -1}, "retries must be an int of at least 0"),
        (slow, {"retry_on": "x"}, "retry_on must be an exception type"),
        (
            slow,
            {"retry": 3},
            "unknown option 'retry'; there are backoff, concurrency, order, retries, retry_on, timeout",
        ),
    ],
)
def test_wrong_arguments_are_refused_when_the_topology_is_declared(function: Any, options: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        StreamsBuilder().stream(ORDERS).map_values_async(function, **options)


@pytest.mark.parametrize(
    ("method", "returned", "message"),
    [
        ("map_async", None, r"'.*answer' \(.*\) of map_async returned None where a pair \(key, value\) is needed"),
        ("map_async", ("a", 1, 2), r"of map_async returned \('a', 1, 2\) where a pair"),
        ("flat_map_async", None, r"of flat_map_async returned None where a list of pairs"),
        ("flat_map_async", [("a", 1), 5], "of flat_map_async returned 5 where a pair"),
    ],
)
def test_result_that_is_no_pair_fails_its_record(method: str, returned: Any, message: str) -> None:
    """With a handler that continues nothing of the record is forwarded, and it is counted."""

    async def answer(key: Any, value: Any) -> Any:
        return returned

    def topology(builder: StreamsBuilder) -> None:
        getattr(builder.stream(ORDERS), method)(answer).to(ANSWERS)

    with TopologyTestDriver(topology) as driver, pytest.raises(ProcessingError, match=message):
        driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)
    with TopologyTestDriver(topology, processing_handler="continue") as driver:
        driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)
        assert (driver.read(ANSWERS), [drop.count for drop in driver.drops()]) == ([], [1])


def test_lambda_may_call_an_async_function_and_must_return_something_to_await() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(lambda key, value: slow(key, value)).to(ANSWERS)

    def wrong(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(lambda value: value).to(ANSWERS)  # type: ignore[arg-type,return-value]

    driver = TopologyTestDriver(topology)
    driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)
    assert driver.read(ANSWERS) == [("a", 1)]
    with pytest.raises(ProcessingError, match="must return something to await, not 1"):
        TopologyTestDriver(wrong).pipe(ORDERS, 1, key="a", timestamp_ms=0)


def logged(function: Callable[[int], Awaitable[int]]) -> Callable[[int], Awaitable[int]]:
    """A decorator whose wrapper is a plain function."""

    @functools.wraps(function)
    def wrapper(value: int) -> Awaitable[int]:
        return function(value)

    return wrapper


def test_wrapper_of_an_async_function_is_async_too() -> None:
    @logged
    async def doubled(value: int) -> int:
        return 2 * value

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(doubled).to(ANSWERS)

    driver = TopologyTestDriver(topology)
    driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)
    assert driver.read(ANSWERS) == [("a", 2)]


# --- state ------------------------------------------------------------------------------------


def test_records_in_flight_at_a_commit_are_in_the_store_until_their_results_are_forwarded() -> None:
    driver = driver_of("key")
    driver.pipe_all(ORDERS, [("a", 300, 0), ("b", 100, 1)])
    assert len(list(driver.store("ask-calls").all())) == 2

    driver.advance_wall_clock(100)
    assert len(list(driver.store("ask-calls").all())) == 1
    driver.advance_wall_clock(200)
    assert not list(driver.store("ask-calls").all())


def test_record_in_flight_that_cannot_be_stored_is_named() -> None:
    def wrong(value: int) -> int:
        return "x"  # type: ignore[return-value]

    async def waits(value: int) -> int:
        await asyncio.sleep(1)
        return value

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values(wrong).map_values_async(waits, name="ask").to(ANSWERS)

    driver = TopologyTestDriver(topology, awaits_calls=False)
    with pytest.raises(ProcessingError, match=r"^node 'ask' at orders-0 offset 0: .* cannot be stored: serde 'long'"):
        driver.pipe(ORDERS, 5, key="a", timestamp_ms=0)


@pytest.mark.case
@pytest.mark.parametrize("order", ["key", "partition", "none"])
def test_call_in_flight_at_the_end_is_repeated_after_a_restart(order: Order) -> None:
    """State upstream is not counted twice, and each record has one result."""
    gate, called = threading.Event(), Counter[int]()

    async def blocked(value: int) -> int:
        called[value] += 1
        while not gate.is_set():
            await asyncio.sleep(0.001)
        return value

    def topology(builder: StreamsBuilder) -> None:
        counted = builder.stream(ORDERS).group_by_key().count("counts").to_stream()
        counted.map_values_async(blocked, order=order).to(ANSWERS)

    with EmbeddedBroker() as broker:
        broker.create_topic("orders", 2)
        broker.create_topic("answers", 2)
        with Producer(broker) as producer:
            for number in range(6):
                producer.send(ORDERS, number, key="abc"[number % 3])
        settings: dict[str, Any] = {"processing_guarantee": "exactly_once_v2", "async_close_timeout_ms": 1}
        with Streams(topology, application_id="app", broker=broker, **settings):
            until(lambda: called.total() >= (3 if order == "key" else 6))
        gate.set()
        with Streams(topology, application_id="app", broker=broker, **settings):
            until(lambda: len(committed(broker)) == 6)

        assert sorted(committed(broker)) == [(key, number) for key in (b"a", b"b", b"c") for number in (1, 2)]
    assert called.total() > 6


def committed(broker: EmbeddedBroker) -> list[tuple[bytes | None, int]]:
    """Return keys and values of the answers, as a reader of committed records sees them."""
    rows, ends = [], {number: broker.end_offset(TopicPartition("answers", number)) for number in range(2)}
    for number, end in ends.items():
        position = 0
        while position < end and (
            blocks := broker.read(TopicPartition("answers", number), position, committed_only=True)
        ):
            for block in blocks:
                rows += [
                    (key, int.from_bytes(value or b"")) for key, value in zip(block.keys, block.values, strict=True)
                ]
                position = block.offsets[-1] + 1
    return rows


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, SystemExit])
def test_call_that_ends_its_event_loop_fails_the_thread_that_waits_for_it(error: type[BaseException]) -> None:
    called = Counter[int]()

    async def ends() -> None:
        raise error

    async def interrupted(value: int) -> int:
        called[value] += 1
        if called[value] == 1:
            await (asyncio.create_task(ends()) if error is SystemExit else ends())
        return value

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(interrupted).to(ANSWERS)

    with EmbeddedBroker() as broker:
        broker.create_topic("orders", 1)
        broker.create_topic("answers", 2)
        with Producer(broker) as producer:
            producer.send(ORDERS, 7, key="a")
        with Streams(
            topology, application_id="app", broker=broker, on_exception=lambda _: ExceptionResponse.REPLACE_THREAD
        ):
            until(lambda: len(committed(broker)) == 1)

    assert called[7] == 2


def test_closing_waits_for_calls_in_flight() -> None:
    started = threading.Event()

    async def slow_one(value: int) -> int:
        started.set()
        await asyncio.sleep(0.2)
        return value

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(slow_one).to(ANSWERS)

    with EmbeddedBroker() as broker:
        broker.create_topic("orders", 1)
        broker.create_topic("answers", 2)
        with Producer(broker) as producer:
            producer.send(ORDERS, 7, key="a")
        with Streams(topology, application_id="app", broker=broker, async_close_timeout_ms=300_000):
            until(started.is_set)

        assert [value for _, value in committed(broker)] == [7]


# --- a service --------------------------------------------------------------------------------


class Service:
    """A server that doubles numbers, late, and that breaks some connections; every other time it starts anew."""

    def __init__(self) -> None:
        self.asked = Counter[int]()
        (self.port,) = free_ports(1)
        self._rng = Random(1)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = int(await reader.readline())
        self.asked[number] += 1
        await asyncio.sleep(self._rng.random() / 50)
        if self._rng.random() < 0.8:
            writer.write(b"%d\n" % (2 * number))
            await writer.drain()
        writer.close()

    async def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            async with await asyncio.start_server(self.answer, "127.0.0.1", self.port):
                await asyncio.sleep(0.2)


def test_service_that_fails_and_restarts_gives_each_record_one_result() -> None:
    """The application is closed with calls in flight and started again meanwhile."""
    service, stopping = Service(), threading.Event()
    server = threading.Thread(target=lambda: asyncio.run(service.run(stopping)))
    server.start()

    async def ask(value: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        try:
            writer.write(b"%d\n" % value)
            return int(await reader.readline())
        finally:
            writer.close()

    def topology(builder: StreamsBuilder) -> None:
        answers = builder.stream(ORDERS).map_values_async(
            ask, concurrency=20, retries=1_000, backoff=timedelta(milliseconds=1), retry_on=(OSError, ValueError)
        )
        answers.to(ANSWERS)

    settings: dict[str, Any] = {"processing_guarantee": "exactly_once_v2", "async_close_timeout_ms": 1}
    try:
        with EmbeddedBroker() as broker:
            broker.create_topic("orders", 2)
            broker.create_topic("answers", 2)
            with Producer(broker) as producer:
                for number in range(400):
                    producer.send(ORDERS, number, key=f"k{number % 50}")
            for enough in (50, 150, 400):
                with Streams(topology, application_id="app", broker=broker, **settings):
                    until(lambda enough=enough: len(committed(broker)) >= enough)  # type: ignore[misc]

            assert sorted(committed(broker)) == sorted((b"k%d" % (number % 50), 2 * number) for number in range(400))
    finally:
        stopping.set()
        server.join()
    assert service.asked.total() > 400


# --- drivers ----------------------------------------------------------------------------------


def pipeline(builder: StreamsBuilder) -> None:
    """Results meet other records of their task: in a window, and in a join with the input."""

    async def flat(key: str, value: int) -> list[tuple[str, int]]:
        await asyncio.sleep(0)
        return [(f"{key}{number}", value) for number in range(value % 3)]

    async def some(key: str, value: int) -> int:
        await asyncio.sleep(value % 3 / 10_000)
        return value * 2

    orders = builder.stream(ORDERS)
    doubled = orders.map_values_async(some, concurrency=4)
    totals = orders.group_by_key().reduce(lambda total, value: (total * 31 + value) % 997)
    doubled.join(totals, lambda value, total: value * 1_000 + total).to(Topic("joined", key=str, value=int))
    windows = doubled.group_by_key().windowed_by(TimeWindows.of(timedelta(milliseconds=10)))
    windows.count().to_stream().map(lambda key, count: (key.key, count)).to(Topic("windows", key=str, value=int))
    doubled.flat_map_async(flat, concurrency=3).group_by_key().count().to_stream().to(ANSWERS)


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 8), st.integers(0, 40)), max_size=30)


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 3])
def test_bounded_run_and_replay_in_slices_agree_record_for_record(partitions: int) -> None:
    agree_in_slices(pipeline, drawn_orders(partitions), partitions)


@examples(30)
@given(ROWS, st.sampled_from([1, 3]), st.sampled_from(["key", "partition", "none"]), st.integers(1, 5))
def test_each_record_has_one_result_and_keys_keep_their_order(
    rows: list[tuple[str, int, int]], partitions: int, order: Order, concurrency: int
) -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).map_values_async(slow, order=order, concurrency=concurrency).to(ANSWERS)

    driver = TopologyTestDriver(topology, partitions=partitions, awaits_calls=False)
    driver.pipe_all(ORDERS, rows)
    for _ in rows:
        driver.advance_wall_clock(10)
    got = driver.read(ANSWERS)

    assert Counter(got) == Counter((key, value) for key, value, _ in rows)
    if order != "none":
        for key in "abc":
            assert [value for k, value in got if k == key] == [value for k, value, _ in rows if k == key]
