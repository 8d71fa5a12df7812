"""Clients and applications in coroutines: nothing blocks the event loop or is lost, no thread stays."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

from streams import (
    ClientClosedError,
    Consumer,
    EmbeddedBroker,
    Producer,
    Record,
    RecordTooLargeError,
    SerializationError,
    State,
    Streams,
    StreamsBuilder,
    Topic,
    TopicPartition,
    UnknownTopicError,
)
from streams.clients import RequestTimeoutError
from streams.core.concurrency.event_loops import LoopCalls
from streams.protocol.messages import Produce
from tests import waiting
from tests.clients.conftest import FaultyCluster

numbers = Topic("numbers", key=str, value=int)
totals = Topic("totals", key=str, value=int)
PARTITION = TopicPartition("numbers", 0)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(auto_create_topics=False) as broker:
        broker.create_topic(numbers, partitions=1)
        yield broker


@pytest.fixture(params=["embedded", "tcp"])
def where(request: pytest.FixtureRequest, broker: EmbeddedBroker) -> Iterator[dict[str, Any]]:
    if request.param == "embedded":
        yield {"broker": broker}
        return
    with broker.serve("127.0.0.1:0") as server:
        yield {"bootstrap_servers": server.address}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    waiting.until(
        lambda: not [t for t in threading.enumerate() if t.name.endswith(("-calls", "-sender", "-heartbeat"))]
    )


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, waiting.WATCHDOG_MS / 1000))


async def until(is_done: Callable[[], object]) -> None:
    while not is_done():
        await asyncio.sleep(0.001)


@asynccontextmanager
async def reading(where: dict[str, Any], group: str = "g", **settings: Any) -> AsyncIterator[Any]:
    async with Consumer(**where, group_id=group, auto_offset_reset="earliest", **settings) as consumer:
        await consumer.subscribe([numbers])
        yield consumer


def fill(broker: EmbeddedBroker, count: int) -> None:
    with Producer(broker) as producer:
        for number in range(count):
            producer.send(numbers, number, key="a")


# --- producer ---------------------------------------------------------------------------------


def test_send_returns_the_place_of_the_record(where: dict[str, Any]):
    async def main() -> None:
        async with Producer(**where) as producer:
            assert await producer.send(numbers, 1, key="a") == ("numbers", 0, 0)
            delivery = await producer.enqueue(numbers, 2, key="a")
            assert (await delivery).offset == 1
            assert (await delivery).offset == 1

    run(main())


def test_records_of_many_tasks_keep_the_order_of_the_calls(broker: EmbeddedBroker, where: dict[str, Any]):
    async def main() -> None:
        async with Producer(**where, buffer_memory_bytes=20_000, max_request_bytes=1_000) as producer:
            await asyncio.gather(*(producer.send(numbers, number, key="a") for number in range(2_000)))

    run(main())

    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION], [numbers])
        found: list[int] = []
        while len(found) < 2_000:
            found += [record.value for record in consumer.poll(100)]
    assert found == list(range(2_000))


def test_delivery_of_a_producer_without_coroutines_can_be_awaited(where: dict[str, Any]):
    async def main() -> None:
        with Producer(**where, background_sender=False) as producer:
            assert (await producer.send(numbers, 1, key="a")).offset == 0

    run(main())


@pytest.mark.case
def test_errors_are_raised_in_the_task_that_awaits(where: dict[str, Any]):
    async def main() -> None:
        async with Producer(**where) as producer:
            with pytest.raises(UnknownTopicError):
                await producer.send("absent", b"")
            with pytest.raises(RecordTooLargeError):
                await producer.send("numbers", b"x" * 2_000_000)
            with pytest.raises(SerializationError):
                await producer.send(numbers, "one")  # type: ignore[arg-type]
            assert (await producer.send(numbers, 1)).offset == 0
        with pytest.raises(ClientClosedError):
            await producer.send(numbers, 1)

    run(main())


def test_broker_that_does_not_answer_stops_no_other_task(broker: EmbeddedBroker):
    """The buffer is full, and no request goes through, until the other task has ticked."""
    is_away = True
    cluster = FaultyCluster(broker, fails=lambda request: is_away and isinstance(request, Produce))

    async def main() -> None:
        nonlocal is_away
        async with Producer(cluster, buffer_memory_bytes=2_000, max_request_bytes=1_000) as producer:
            sends = [asyncio.create_task(producer.send("numbers", b"x" * 900)) for _ in range(10)]
            for _ in range(50):
                await asyncio.sleep(0.001)
            assert not any(task.done() for task in sends)
            is_away = False
            assert sorted([place.offset for place in await asyncio.gather(*sends)]) == list(range(10))

    run(main())


@pytest.mark.slow
def test_full_buffer_fails_the_task_that_waits_for_room(broker: EmbeddedBroker):
    is_away = True
    cluster = FaultyCluster(broker, fails=lambda request: is_away and isinstance(request, Produce))

    async def main() -> None:
        nonlocal is_away
        settings = {"buffer_memory_bytes": 1_000, "max_request_bytes": 900, "max_block_ms": 20}
        async with Producer(cluster, **settings) as producer:
            first = None
            while first is None:
                # A slow machine may have no metadata of the topic within 20 ms.
                with suppress(RequestTimeoutError):
                    first = await producer.enqueue("numbers", b"x" * 800)
            with pytest.raises(RequestTimeoutError, match="no room"):
                await producer.enqueue("numbers", b"x" * 800)
            is_away = False
            assert (await first).offset == 0

    run(main())


def test_cancelled_send_says_that_the_record_may_be_written(broker: EmbeddedBroker):
    is_away = True
    cluster = FaultyCluster(broker, fails=lambda request: is_away and isinstance(request, Produce))

    async def main() -> None:
        nonlocal is_away
        async with Producer(cluster) as producer:
            delivery = await producer.enqueue(numbers, 1)
            buffered = producer._producer._accumulator.used_bytes
            task = asyncio.create_task(producer.send(numbers, 2))
            await until(lambda: producer._producer._accumulator.used_bytes > buffered)
            await until(lambda: producer._calls.is_idle)
            # Two turns of the loop, and it waits for the delivery.
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert caught.value.__notes__ == [
                "the record for numbers-0 was sent: it is, or will be, written unless it fails"
            ]
            is_away = False
            await delivery

    run(main())
    assert broker.end_offset(PARTITION) == 2


def test_one_producer_serves_several_event_loops(where: dict[str, Any]):
    async def send(producer: Any, number: int) -> int:
        return (await producer.send(numbers, number)).offset

    async def main() -> None:
        async with Producer(**where) as producer:
            others = [asyncio.to_thread(asyncio.run, send(producer, number)) for number in range(5)]
            assert sorted(await asyncio.gather(*others, send(producer, 5))) == list(range(6))

    run(main())


def test_transaction_is_committed_with_its_block_or_aborted(broker: EmbeddedBroker, where: dict[str, Any]):
    async def main() -> None:
        async with Producer(**where, transactional_id="t") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send(numbers, 1)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send(numbers, 2)
                    _ = 1 // 0
            task = asyncio.create_task(forever(producer))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                await producer.send(numbers, 4)

    async def forever(producer: Any) -> None:
        async with producer.transaction():
            await producer.send(numbers, 3)
            await asyncio.Event().wait()

    run(main())
    with Consumer(broker, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([PARTITION], [numbers])
        found: list[int] = []
        waiting.until(lambda: 4 in found, lambda: found.extend(record.value for record in consumer.poll(100)))
    assert found == [1, 4]


# --- consumer ---------------------------------------------------------------------------------


def test_records_are_iterated_and_committed_where_the_task_is(broker: EmbeddedBroker, where: dict[str, Any]):
    fill(broker, 10)
    found: list[int] = []

    async def main(until: int) -> None:
        async with reading(where, enable_auto_commit=False) as consumer:
            async for record in consumer:
                found.append(record.value)
                await consumer.commit()
                if record.value == until:
                    break

    run(main(4))
    run(main(9))
    assert found == list(range(10))


def test_cancelled_iteration_loses_no_record(broker: EmbeddedBroker, where: dict[str, Any]):
    found: list[int] = []

    async def main() -> None:
        async with reading(where) as consumer, Producer(**where) as producer:
            for number in range(60):
                await producer.enqueue(numbers, number, key="a")
                try:
                    # The time-out hits before, while and after the record arrives.
                    async with asyncio.timeout(number % 7 / 1000):
                        found.append((await anext(consumer)).value)
                except TimeoutError:
                    pass
            while len(found) < 60:
                found.append((await anext(consumer)).value)

    run(main())
    assert found == list(range(60))


def test_cancelled_poll_loses_no_record(broker: EmbeddedBroker):
    found: list[int] = []

    async def main() -> None:
        async with reading({"broker": broker}) as consumer:
            while len(found) < 100:
                try:
                    async with asyncio.timeout(0.002):
                        found.extend(record.value for record in await consumer.poll(1_000))
                except TimeoutError:
                    pass
                if not found and broker.end_offset(PARTITION) == 0:
                    await asyncio.to_thread(fill, broker, 100)

    run(main())
    assert found == list(range(100))


def test_records_behind_a_cancelled_iteration_are_not_committed(broker: EmbeddedBroker):
    fill(broker, 10)

    async def main() -> None:
        async with reading({"broker": broker}) as consumer:
            assert [(await anext(consumer)).value for _ in range(3)] == [0, 1, 2]
        async with reading({"broker": broker}) as consumer:
            assert (await anext(consumer)).value == 3

    run(main())


def test_commit_does_not_wait_for_a_poll(broker: EmbeddedBroker, where: dict[str, Any]):
    fill(broker, 1)

    async def main() -> None:
        async with reading(where, enable_auto_commit=False) as consumer:
            assert (await anext(consumer)).value == 0
            waits = asyncio.create_task(anext(consumer))
            await asyncio.sleep(0.01)
            for _ in range(20):
                await consumer.commit()
            assert (await consumer.committed([PARTITION]))[PARTITION].offset == 1
            assert await consumer.position(PARTITION) == 1
            assert not waits.done()
            await asyncio.to_thread(fill, broker, 1)
            assert (await waits).value == 0

    run(main())


def test_close_ends_the_iteration_of_another_task(where: dict[str, Any]):
    async def main() -> None:
        async with reading(where) as consumer:
            seen: list[Any] = []

            async def read() -> None:
                seen.extend([record async for record in consumer])

            task = asyncio.create_task(read())
            await asyncio.sleep(0.01)
            await consumer.close()
            await task
            assert seen == []

    run(main())


def test_event_loop_goes_on_while_a_consumer_waits(where: dict[str, Any]):
    async def main() -> None:
        async with reading(where) as consumer:
            waits = asyncio.create_task(anext(consumer))
            for _ in range(50):
                await asyncio.sleep(0)
            assert not waits.done()
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits

    run(main())


# --- application ------------------------------------------------------------------------------


def sums(builder: StreamsBuilder) -> None:
    builder.stream(numbers).group_by_key().reduce(lambda a, b: a + b, name="sums").to_stream().to(totals)


def test_application_runs_within_an_event_loop(broker: EmbeddedBroker):
    broker.create_topic(totals, partitions=1)

    async def main() -> None:
        settings: dict[str, Any] = {"commit_interval_ms": 10}
        async with (
            Streams(sums, application_id="sums", broker=broker, **settings) as streams,
            Producer(broker) as producer,
        ):
            finished = asyncio.create_task(streams.finished())
            # Before it has its tasks its store cannot be asked.
            await until(lambda: streams.state is State.RUNNING)
            for number in (1, 2, 3):
                await producer.send(numbers, number, key="a")
            store = streams.store("sums")
            while (found := await asyncio.to_thread(store.get, "a")) is None or found.value != 6:
                await asyncio.sleep(0.005)
            assert not finished.done()
        await finished
        await streams.finished()

    run(main())


def test_failure_of_an_application_is_raised_where_it_is_awaited(broker: EmbeddedBroker):
    def fail(record: Record[str, int]) -> None:
        raise ValueError("no")

    def failing(builder: StreamsBuilder) -> None:
        builder.stream(numbers).for_each(lambda key, value: fail(value))  # type: ignore[arg-type]

    async def main() -> None:
        with pytest.raises(Exception, match="no") as caught:
            async with (
                Streams(failing, application_id="failing", broker=broker) as streams,
                Producer(broker) as producer,
            ):
                await producer.send(numbers, 1)
                await streams.finished()
        assert not hasattr(caught.value, "__notes__")

    run(main())


def test_application_that_was_not_started_is_not_waited_for(broker: EmbeddedBroker):
    async def main() -> None:
        with pytest.raises(ClientClosedError, match="was not started"):
            await Streams(sums, application_id="sums", broker=broker).finished()

    run(main())


def test_cancelled_start_closes_the_application(broker: EmbeddedBroker):
    broker.create_topic(totals, partitions=1)
    streams = Streams(sums, application_id="sums", broker=broker)

    async def enter() -> None:
        async with streams:
            raise AssertionError("it was cancelled")

    async def main() -> None:
        task = asyncio.create_task(enter())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert streams.instance.is_closed

    run(main())


# --- calls ------------------------------------------------------------------------------------


def test_calls_run_in_order_and_cancelled_ones_are_withdrawn():
    done: list[int] = []
    go = threading.Event()

    async def main() -> None:
        calls = LoopCalls("test-calls")
        first = asyncio.create_task(calls.call(go.wait))
        others = [asyncio.create_task(calls.call(partial(done.append, number))) for number in range(4)]
        sure = asyncio.create_task(calls.call(partial(done.append, 9), is_certain=True))
        await until(lambda: not calls.is_idle)
        await asyncio.sleep(0)
        others[1].cancel()
        sure.cancel()
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(first, *others, sure, return_exceptions=True)
        await calls.call(lambda: None)
        calls.close()

    run(main())
    assert done == [0, 2, 3, 9]


def test_thread_of_a_consumer_is_idle_when_its_call_is_over() -> None:
    """``poll`` returned no records, before its timeout, when the task went on faster than the thread."""

    async def look() -> None:
        calls = LoopCalls("calls")
        for _ in range(1_000):
            await calls.call(int)
            assert calls.is_idle
        calls.close()

    asyncio.run(look())
