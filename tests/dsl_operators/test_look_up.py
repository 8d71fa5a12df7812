"""Look-ups: the cache and its times, single flight, order, failures, restore, and the same results in all drivers."""

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    EmbeddedBroker,
    Producer,
    Streams,
    StreamsBuilder,
    TimeWindows,
    Topic,
    TopicPartition,
    build_topology,
)
from streams.core.errors import ProcessingError, TopologyError
from streams.testing import TopologyTestDriver
from streams.topology.describe import describe
from tests.dsl_operators.slices import agree_in_slices, drawn_orders
from tests.properties.profile import examples
from tests.waiting import until

ORDERS = Topic("orders", key=str, value=int)
FOUND = Topic("found", key=str, value=str)
SECOND = timedelta(seconds=1)


class Directory:
    """Answers with the time of the call and the number of calls for the key; keys with "no" are not found."""

    def __init__(self, delay_ms: int = 100) -> None:
        self.asked = Counter[str]()
        self.delay_ms = delay_ms
        self.error: Exception | None = None

    async def ask(self, key: str) -> str | None:
        self.asked[key] += 1
        await asyncio.sleep(self.delay_ms / 1000)
        if self.error is not None:
            raise self.error
        return None if "no" in key else f"{key}{self.asked[key]}"


def joined(value: int, answer: str | None) -> str:
    return f"{value}:{answer}"


def driver_of(directory: Directory, *, is_stepped: bool = True, **options: Any) -> TopologyTestDriver:
    """Return a driver in which only the clock ends calls, unless it is not stepped."""
    settings = {name: options.pop(name) for name in ("processing_handler", "partitions") if name in options}

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(directory.ask, **{"name": "ask", **options}).map_pairs(joined).to(FOUND)

    return TopologyTestDriver(topology, awaits_calls=not is_stepped, **settings)


def counts_of(driver: TopologyTestDriver) -> dict[str, int]:
    """Return the totals of the metrics of look-ups that are not 0."""
    names = ("hit", "stale-hit", "negative-hit", "miss", "refresh", "error")
    found = {name: driver.metric(f"look-up-{name}") for name in names}
    return {name: value for name, value in found.items() if value}


# --- the cache --------------------------------------------------------------------------------


def test_answer_is_fresh_for_its_ttl_from_the_start_of_the_call() -> None:
    directory = Directory()
    driver = driver_of(directory, ttl=SECOND)
    driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)
    driver.advance_wall_clock(999)
    driver.pipe(ORDERS, 2, key="a", timestamp_ms=1)
    assert driver.read(FOUND) == [("a", "1:a1"), ("a", "2:a1")]

    driver.advance_wall_clock(1)
    driver.pipe(ORDERS, 3, key="a", timestamp_ms=2)
    assert driver.read(FOUND) == []
    driver.advance_wall_clock(100)
    assert driver.read(FOUND) == [("a", "3:a2")]
    assert counts_of(driver) == {"hit": 1, "miss": 2}


def test_old_answer_is_used_while_it_is_refreshed_in_the_background() -> None:
    directory = Directory()
    driver = driver_of(directory, ttl=SECOND, stale=SECOND)
    driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)
    driver.advance_wall_clock(1_500)
    driver.pipe_all(ORDERS, [("a", 2, 1), ("a", 3, 2)])
    assert driver.read(FOUND) == [("a", "1:a1"), ("a", "2:a1"), ("a", "3:a1")]

    driver.advance_wall_clock(100)
    driver.pipe(ORDERS, 4, key="a", timestamp_ms=3)
    assert driver.read(FOUND) == [("a", "4:a2")]
    assert directory.asked == {"a": 2}
    assert counts_of(driver) == {"hit": 1, "stale-hit": 2, "miss": 1, "refresh": 1}

    driver.advance_wall_clock(1_900)
    driver.pipe(ORDERS, 5, key="a", timestamp_ms=4)
    assert driver.read(FOUND) == []


def test_failed_refresh_keeps_the_old_answer_and_waits_before_the_next(caplog: pytest.LogCaptureFixture) -> None:
    directory = Directory()
    driver = driver_of(directory, ttl=SECOND, stale=10 * SECOND, backoff=SECOND)
    driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)
    driver.advance_wall_clock(1_500)
    directory.error = ConnectionError("gone")
    for number in range(3):
        driver.pipe(ORDERS, number, key="a", timestamp_ms=number)
        driver.advance_wall_clock(400)
    assert directory.asked["a"] == 2
    assert counts_of(driver) == {"stale-hit": 3, "miss": 1, "refresh": 1, "error": 1}
    assert "node 'ask': the refresh of 'a' failed: ConnectionError('gone')" in caplog.text

    directory.error = None
    driver.advance_wall_clock(200)
    driver.pipe(ORDERS, 7, key="a", timestamp_ms=9)
    driver.advance_wall_clock(100)
    driver.pipe(ORDERS, 8, key="a", timestamp_ms=9)
    assert driver.read(FOUND)[-2:] == [("a", "7:a1"), ("a", "8:a3")]


@pytest.mark.parametrize(
    ("negative", "calls"), [(timedelta(0), 3), (SECOND * 0.3, 3), (SECOND / 2, 2), (SECOND, 1), (None, 1)]
)
def test_that_nothing_was_found_is_remembered_for_a_time_of_its_own(negative: timedelta | None, calls: int) -> None:
    directory = Directory()
    driver = driver_of(directory, ttl=10 * SECOND, stale=SECOND, negative=negative)
    for number in range(3):
        driver.pipe(ORDERS, number, key="none", timestamp_ms=number)
        driver.advance_wall_clock(300)

    assert driver.read(FOUND) == [("none", "0:None"), ("none", "1:None"), ("none", "2:None")]
    assert directory.asked == {"none": calls}
    assert counts_of(driver) == {name: n for name, n in (("miss", calls), ("negative-hit", 3 - calls)) if n}


def test_cache_keeps_the_answers_that_were_used_last() -> None:
    directory = Directory(delay_ms=0)
    driver = driver_of(directory, is_stepped=False, cache=2)
    for key in "abaca":
        driver.pipe(ORDERS, 0, key=key, timestamp_ms=0)
    assert directory.asked == {"a": 1, "b": 1, "c": 1}

    driver.pipe(ORDERS, 0, key="b", timestamp_ms=0)
    assert directory.asked == {"a": 1, "b": 2, "c": 1}
    assert driver.store("ask-answers").approximate_num_entries() == 2


def test_answer_without_ttl_is_used_for_ever() -> None:
    directory = Directory(delay_ms=0)
    driver = driver_of(directory, is_stepped=False, ttl=None)
    for key in ("a", "none", "a", "none"):
        driver.pipe(ORDERS, 0, key=key, timestamp_ms=0)
        driver.advance_wall_clock(10**10)

    assert directory.asked == {"a": 1, "none": 1}


# --- keys, flights and order ------------------------------------------------------------------


def test_one_call_per_key_serves_all_records_that_wait() -> None:
    directory = Directory()
    driver = driver_of(directory, by=lambda key, value: "even" if value % 2 == 0 else None)
    driver.pipe_all(ORDERS, [("a", 0, 0), ("b", 2, 1), ("c", 4, 2), ("d", 5, 3)])
    assert driver.read(FOUND) == [("d", "5:None")]

    driver.advance_wall_clock(100)
    assert driver.read(FOUND) == [("a", "0:even1"), ("b", "2:even1"), ("c", "4:even1")]
    assert directory.asked == {"even": 1}


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("key", [("b", "20:y1"), ("b", "40:y1")]),
        ("partition", []),
        ("none", [("b", "20:y1"), ("a", "30:y1"), ("b", "40:y1")]),
    ],
)
def test_results_keep_their_order_when_a_later_answer_is_known(
    order: Literal["key", "partition", "none"], first: list[tuple[str, str]]
) -> None:
    """Key a waits for x; the answer for y is cached."""
    directory = Directory()
    driver = driver_of(directory, by=lambda key, value: "x" if value == 10 else "y", order=order, partitions=1)
    driver.pipe(ORDERS, 0, key="z", timestamp_ms=0)
    driver.advance_wall_clock(100)
    driver.read(FOUND)
    driver.pipe_all(ORDERS, [("a", 10, 0), ("b", 20, 1), ("a", 30, 2), ("b", 40, 3)])

    assert driver.read(FOUND) == first
    driver.advance_wall_clock(100)
    rest = driver.read(FOUND)
    assert Counter(first + rest) == {
        ("a", "10:x1"): 1, ("b", "20:y1"): 1, ("a", "30:y1"): 1, ("b", "40:y1"): 1,
    }  # fmt: skip
    if order != "none":
        assert [row for row in rest if row[0] == "a"] == [("a", "10:x1"), ("a", "30:y1")]


def test_calls_of_different_keys_run_at_a_time_up_to_concurrency() -> None:
    driver = driver_of(Directory(), concurrency=2)
    driver.pipe_all(ORDERS, [(key, 0, 0) for key in "abcd"])
    driver.advance_wall_clock(100)
    assert driver.read(FOUND) == [("a", "0:a1"), ("b", "0:b1")]
    driver.advance_wall_clock(100)
    assert driver.read(FOUND) == [("c", "0:c1"), ("d", "0:d1")]


def test_result_without_joiner_is_the_pair_with_time_and_headers_of_its_record() -> None:
    pairs = Topic("pairs", key=str, value=tuple[int, str | None])

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(Directory().ask).to(pairs)

    driver = TopologyTestDriver(topology)
    driver.pipe(ORDERS, 5, key="a", headers=(("trace", b"1"),), timestamp_ms=7)

    (record,) = driver.read_records(pairs)
    assert (record.value, record.timestamp_ms, record.headers) == ((5, "a1"), 7, (("trace", b"1"),))


# --- plain functions --------------------------------------------------------------------------


def test_plain_function_is_called_by_the_test_driver_itself() -> None:
    threads = set()

    def ask(key: str) -> str:
        threads.add(threading.current_thread())
        return key.upper()

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(ask).map_pairs(joined).to(FOUND)

    driver = TopologyTestDriver(topology)
    driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)
    assert driver.read(FOUND) == [("a", "1:A")]
    assert threads == {threading.current_thread()}


def test_lambda_may_return_the_answer_or_something_to_await() -> None:
    directory = Directory()

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(ORDERS)
        stream.look_up(lambda key: directory.ask(key)).map_pairs(joined).to(FOUND)
        stream.look_up(lambda key: key * 2).map_pairs(joined).to(FOUND)

    driver = TopologyTestDriver(topology)
    driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)
    assert sorted(driver.read(FOUND)) == [("a", "1:a1"), ("a", "1:aa")]


def test_plain_functions_run_at_a_time_in_threads_and_may_fail_in_them() -> None:
    """Live, all calls wait for each other: one thread would never end."""
    together, names = threading.Barrier(4), set()

    def ask(key: str) -> str:
        names.add(threading.current_thread().name)
        together.wait()
        if key == "d":
            raise StopIteration
        return key.upper()

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(ask, concurrency=4).map_pairs(joined).to(FOUND)

    with served("abcd") as broker:
        with Streams(topology, application_id="app", broker=broker, processing_handler="continue") as app:
            until(lambda: len(found_in(broker)) == 3)
            until(lambda: app.metrics.get("dropped-records") == 1)
        assert sorted(found_in(broker)) == [("a", "0:A"), ("b", "0:B"), ("c", "0:C")]
    assert len(names) == 4
    assert threading.current_thread().name not in names


def test_plain_function_that_never_returns_does_not_keep_the_application() -> None:
    started, never = threading.Event(), threading.Event()

    def ask(key: str) -> str:
        started.set()
        never.wait()
        return key

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(ask).map_pairs(joined).to(FOUND)

    with served("a") as broker:
        with Streams(topology, application_id="app", broker=broker, async_close_timeout_ms=1):
            until(started.is_set)
        assert found_in(broker) == []
    never.set()


# --- failures ---------------------------------------------------------------------------------


def test_failed_call_fails_the_task_and_names_node_and_record() -> None:
    directory = Directory()
    driver = driver_of(directory, is_stepped=False)
    directory.error = ConnectionError("no answer")

    with pytest.raises(ProcessingError, match=r"node 'ask' at orders-0 offset 0: ConnectionError: no answer"):
        driver.pipe(ORDERS, 13, key="a", timestamp_ms=1)


def test_skipped_failure_drops_all_records_that_waited_and_is_not_remembered() -> None:
    directory = Directory()
    driver = driver_of(directory, processing_handler="continue", partitions=1)
    directory.error = ConnectionError("no answer")
    driver.pipe_all(ORDERS, [("a", 1, 0), ("a", 2, 1)])
    driver.advance_wall_clock(100)
    directory.error = None
    driver.pipe(ORDERS, 3, key="a", timestamp_ms=2)
    driver.advance_wall_clock(100)

    assert driver.read(FOUND) == [("a", "3:a2")]
    assert [(drop.node, drop.reason, drop.count) for drop in driver.drops()] == [("ask", "failed, ConnectionError", 2)]
    assert counts_of(driver) == {"miss": 3, "error": 1}


def test_call_is_retried_as_those_of_async_operators() -> None:
    tried = []

    async def flaky(key: str) -> str:
        tried.append(key)
        if len(tried) < 3:
            raise ConnectionError
        return key

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(flaky, retries=2, retry_on=OSError).map_pairs(joined).to(FOUND)

    driver = TopologyTestDriver(topology)
    driver.pipe(ORDERS, 5, key="a", timestamp_ms=0)
    assert driver.read(FOUND) == [("a", "5:a")]


def test_answer_that_cannot_be_cached_is_the_failure_of_the_record() -> None:
    def ask(key: str) -> Any:
        return object()

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(ask, name="ask").map_pairs(joined).to(FOUND)

    with pytest.raises(
        ProcessingError, match=r"node 'ask' at orders-0 offset 0: .*the answer for 'a' cannot be cached"
    ):
        TopologyTestDriver(topology).pipe(ORDERS, 5, key="a", timestamp_ms=0)


# --- declaration ------------------------------------------------------------------------------


def generator(key: Any) -> Any:
    yield key


async def no_key() -> int:
    return 1


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (generator, {}, "is a generator"),
        (no_key, {}, r"give a function of \(key\)"),
        (5, {}, r"needs a function of \(key\), got 5"),
        (str, {"by": str.upper}, r"give a function of \(key, value\)"),
        (str, {"cache": 0}, "cache must be an int of at least 1, not 0"),
        (str, {"ttl": timedelta(0)}, "ttl must be at least 1 ms; for a call per record there is map_values_async"),
        (str, {"ttl": 5}, "ttl= of look_up must be a timedelta, not 5"),
        (str, {"stale": -SECOND}, "stale= of look_up must not be negative"),
        (str, {"stale": SECOND, "ttl": None}, "with ttl=None no answer becomes stale"),
        (str, {"asked": str}, "asked= is the type of by=, which is not given"),
        (str, {"concurrency": 0}, "look_up: concurrency must be an int of at least 1"),
        (str, {"limit": 3}, "unknown option 'limit'; there are answer, asked, backoff, cache"),
    ],
)
def test_wrong_arguments_are_refused_when_the_topology_is_declared(function: Any, options: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        StreamsBuilder().stream(ORDERS).look_up(function, **options)


def test_stream_without_keys_needs_by() -> None:
    lines = Topic("lines", value=str)
    with pytest.raises(TopologyError, match="which has no keys: give by="):
        StreamsBuilder().stream(lines).look_up(lambda key: 1)


def test_look_up_and_its_stores_are_described() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(Directory().ask, name="ask").map_pairs(joined).to(FOUND)

    assert "Processor: ask (stores: [ask-answers, ask-calls])" in describe(build_topology(topology)).to_text()


# --- state ------------------------------------------------------------------------------------


def served(keys: str) -> EmbeddedBroker:
    """Return a broker with an order of each key."""
    broker = EmbeddedBroker()
    broker.create_topic("orders", 2)
    broker.create_topic("found", 2)
    with Producer(broker) as producer:
        for key in keys:
            producer.send(ORDERS, 0, key=key)
    return broker


def found_in(broker: EmbeddedBroker) -> list[tuple[str, str]]:
    """Return the results as a reader of committed records sees them."""
    rows = []
    for partition in (TopicPartition("found", number) for number in range(2)):
        end, position = broker.end_offset(partition), 0
        while position < end and (blocks := broker.read(partition, position, committed_only=True)):
            for block in blocks:
                rows += [((key or b"").decode(), (value or b"").decode()) for _, key, value, _, _ in block.rows()]
                position = block.offsets[-1] + 1
    return rows


@pytest.mark.case
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_answers_survive_a_restart_and_records_that_waited_are_looked_up_again(guarantee: str) -> None:
    gate, asked = threading.Event(), Counter[str]()

    async def ask(key: str) -> str:
        asked[key] += 1
        while key > "b" and not gate.is_set():
            await asyncio.sleep(0.001)
        return key.upper()

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(ask).map_pairs(joined).to(FOUND)

    settings: dict[str, Any] = {"processing_guarantee": guarantee, "async_close_timeout_ms": 1}
    with served("abcd") as broker:
        with Streams(topology, application_id="app", broker=broker, **settings):
            until(lambda: asked.total() == 4)
            until(lambda: len(found_in(broker)) == 2)
        gate.set()
        with Producer(broker) as producer:
            for key in "abcd":
                producer.send(ORDERS, 1, key=key)
        with Streams(topology, application_id="app", broker=broker, **settings):
            until(lambda: len(found_in(broker)) == 8)
        assert sorted(found_in(broker)) == [(key, f"{n}:{key.upper()}") for key in "abcd" for n in (0, 1)]
    assert asked == {"a": 1, "b": 1, "c": 2, "d": 2}


# --- drivers ----------------------------------------------------------------------------------


def pipeline(builder: StreamsBuilder) -> None:
    """Results meet other records of their task, in a window and in a join with the input; keys change downstream."""

    async def rate(product: int) -> int | None:
        await asyncio.sleep(product % 3 / 10_000)
        return None if product == 4 else product * 100

    def region(customer: str) -> str:
        return customer.upper()

    orders = builder.stream(ORDERS)
    # Without ttl, since history has no wall clock.
    pairs = orders.look_up(rate, by=lambda _, value: value % 5, cache=3, ttl=None, concurrency=4)
    rated = pairs.map_pairs(lambda value, answer: value + (answer or 0))
    totals = orders.group_by_key().reduce(lambda total, value: (total * 31 + value) % 997)
    rated.join(totals, lambda value, total: value * 1_000 + total).to(Topic("joined", key=str, value=int))
    windows = rated.group_by_key().windowed_by(TimeWindows.of(timedelta(milliseconds=10)))
    windows.count().to_stream().map(lambda key, count: (key.key, count)).to(Topic("windows", key=str, value=int))
    regions = rated.look_up(region, ttl=None, concurrency=3).map_pairs(lambda value, answer: f"{answer}{value}")
    regions.group_by(lambda key, value: value[0]).count().to_stream().to(Topic("regions", key=str, value=int))


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 8), st.integers(0, 40)), max_size=30)


@pytest.mark.case
@pytest.mark.parametrize("partitions", [1, 3])
def test_bounded_run_and_replay_in_slices_agree_record_for_record(partitions: int) -> None:
    agree_in_slices(pipeline, drawn_orders(partitions), partitions)


@examples(30)
@given(
    ROWS,
    st.sampled_from([1, 3]),
    st.sampled_from(["key", "partition", "none"]),
    st.integers(1, 5),
    st.integers(1, 4),
    st.lists(st.integers(0, 30), min_size=1, max_size=8),
)
def test_each_record_has_one_result_and_keys_keep_their_order(
    rows: list[tuple[str, int, int]],
    partitions: int,
    order: Literal["key", "partition", "none"],
    concurrency: int,
    cache: int,
    pauses: list[int],
) -> None:
    """However answers age, are evicted and refreshed."""

    async def slow(number: int) -> int | None:
        await asyncio.sleep(number / 100)
        return number * 10 if number else None

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(ORDERS).look_up(
            slow,
            by=lambda _, value: value % 4,
            ttl=timedelta(milliseconds=20),
            stale=timedelta(milliseconds=20),
            negative=timedelta(milliseconds=10),
            order=order,
            concurrency=concurrency,
            cache=cache,
        )
        stream.map_pairs(joined_number).to(FOUND)

    driver = TopologyTestDriver(topology, partitions=partitions, awaits_calls=False)
    for number, (key, value, time) in enumerate(rows):
        driver.pipe(ORDERS, value, key=key, timestamp_ms=time)
        driver.advance_wall_clock(pauses[number % len(pauses)])
    for _ in rows:
        driver.advance_wall_clock(100)
    got, wanted = driver.read(FOUND), [(key, joined_number(value, value % 4 * 10 or None)) for key, value, _ in rows]

    assert Counter(got) == Counter(wanted)
    if order != "none":
        for key in "abc":
            assert [value for k, value in got if k == key] == [value for k, value in wanted if k == key]
    seen = counts_of(driver)
    assert sum(seen.get(name, 0) for name in ("hit", "stale-hit", "negative-hit", "miss")) == len(rows)


def joined_number(value: int, answer: int | None) -> str:
    return f"{value}:{answer}"


def test_records_that_wait_for_one_call_do_not_share_a_changeable_answer() -> None:
    async def ask(key: str) -> list[int]:
        await asyncio.sleep(0.1)
        return [1]

    def changed(value: int, answer: list[int] | None) -> str:
        assert answer is not None
        answer.append(value)
        return str(answer)

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(ORDERS).look_up(ask).map_pairs(changed).to(FOUND)

    with TopologyTestDriver(topology, awaits_calls=False) as driver:
        driver.pipe_all(ORDERS, [("a", number, number) for number in range(3)])
        driver.advance_wall_clock(100)
        assert driver.read(FOUND) == [("a", "[1, 0]"), ("a", "[1, 1]"), ("a", "[1, 2]")]


def test_why_says_that_a_record_waited_for_its_answer() -> None:
    with driver_of(Directory(), is_stepped=False) as driver:
        driver.pipe(ORDERS, 1, key="a", timestamp_ms=0)
        assert "ask: a record, and the answer of its look-up, which took" in driver.why("a", FOUND).text
