"""Metrics of calls and batches: counted when the task takes what has finished, by node."""

import asyncio
from datetime import timedelta
from typing import Any

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic
from streams.core.metrics import Amounts, Stat, Stopwatch
from streams.state import MeasuredStore
from streams.testing import TopologyTestDriver
from tests.waiting import until

orders = Topic("orders", key=str, value=int)
out = Topic("out", key=str, value=str)


async def answer(amount: int) -> str:
    """Take as many milliseconds as the amount; 0 fails."""
    await asyncio.sleep(amount / 1000)
    return str(1 // min(amount, 1))


def driver_of(**options: Any) -> TopologyTestDriver:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).map_values_async(answer, name="asked", **options).to(out)

    return TopologyTestDriver(topology, awaits_calls=False, processing_handler="continue")


def test_calls_in_flight_and_their_latency_are_measured_by_node() -> None:
    driver = driver_of(concurrency=2, order="none")
    driver.pipe_all(orders, [("a", 10, 0), ("b", 30, 1), ("c", 30, 2)])
    driver.advance_wall_clock(1)
    assert [driver.metrics.get(name, node="asked") for name in ("calls-in-flight", "records-held")] == [2, 3]

    driver.advance_wall_clock(50)
    names = ("calls-in-flight", "records-held", "call-total", "call-failed-total", "call-latency-max")
    assert [driver.metrics.get(name, node="asked") for name in names] == [0, 0, 3, 0, 30]
    assert round(driver.metrics.get("call-latency-avg", node="asked")) == 23
    # Percentiles are exact to 1/16.
    assert 28 <= driver.metrics.get("call-latency-p50", node="asked") <= 32


def test_retries_time_outs_and_failures_are_counted() -> None:
    driver = driver_of(retries=2, backoff=timedelta(milliseconds=1), timeout=timedelta(milliseconds=50))
    driver.pipe_all(orders, [("a", 0, 0), ("b", 100, 1), ("c", 1, 2)])
    driver.advance_wall_clock(1_000)

    names = ("call-total", "call-retry-total", "call-timeout-total", "call-failed-total")
    assert [driver.metrics.get(name, node="asked") for name in names] == [3, 4, 3, 2]


def test_calls_of_a_look_up_are_counted_once_for_all_records_that_wait() -> None:
    async def city(_: str) -> str:
        await asyncio.sleep(0.02)
        return "Oslo"

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).look_up(city, name="city").map_values(str).to(out)

    driver = TopologyTestDriver(topology, awaits_calls=False)
    driver.pipe_all(orders, [("a", 1, 0), ("a", 2, 1)])
    driver.advance_wall_clock(1)
    assert [driver.metrics.get(name) for name in ("calls-in-flight", "records-held")] == [1, 2]
    driver.advance_wall_clock(20)
    driver.pipe(orders, 3, key="a", timestamp_ms=2)

    names = ("call-total", "call-latency-max", "look-up-miss-total", "look-up-hit-total")
    assert [driver.metrics.get(name, node="city") for name in names] == [1, 20, 2, 1]


def test_batches_and_their_halves_are_counted_with_their_sizes() -> None:
    def inverse(amounts: list[int]) -> list[str]:
        return [str(100 // amount) for amount in amounts]

    def topology(builder: StreamsBuilder) -> None:
        limits = {"max_records": 4, "max_wait": timedelta(hours=1)}
        builder.stream(orders).map_values_batches(inverse, name="inverse", **limits).to(out)

    settings: dict[str, Any] = {"commit_interval_ms": 3_600_000, "poll_ms": 5, "processing_handler": "continue"}
    with EmbeddedBroker() as broker:
        for topic in (orders, out):
            broker.create_topic(topic.name, 1)
        with Producer(broker) as producer, Streams(topology, application_id="app", broker=broker, **settings) as app:
            for key, amount in (("a", 1), ("b", 0), ("c", 4), ("d", 5)):
                producer.send(orders, amount, key=key)
            producer.flush()
            until(lambda: app.metrics.get("batch-total", node="inverse") == 5)
            names = ("batch-failed-total", "batch-records-max", "batch-records-avg")
            assert [app.metrics.get(name, node="inverse") for name in names] == [3, 4, 2]
            assert app.metrics.get("batch-latency-max", node="inverse") > 0


def test_calls_of_a_store_are_all_counted_but_only_some_are_timed() -> None:
    class Clock:
        reads = 0

        def __call__(self) -> int:
            self.reads += 1
            return 500 * self.reads

    class View:
        def get(self, key: str) -> str:
            return key

    clock, amounts = Clock(), Amounts.since(0, has_percentiles=False)
    store = MeasuredStore(View(), lambda _: Stopwatch(amounts, clock))
    get = store.get

    assert [get(str(number)) for number in range(33)] == [str(number) for number in range(33)]
    assert clock.reads == 2 * 3
    assert [amounts.read(stat, 3_000) for stat in (Stat.TOTAL, Stat.RATE, Stat.AVG, Stat.MAX)] == [33, 11, 500, 500]
    amounts.roll(3_000)
    amounts.roll(4_000)
    assert amounts.read(Stat.RATE, 5_000) == 0


def test_amounts_at_once_are_the_same_as_one_by_one() -> None:
    together, singly = (Amounts.since(0, has_percentiles=True) for _ in range(2))
    amounts = [3, 5_000, 17, 90_000_000, 17]
    together.record_each(amounts)
    for amount in amounts:
        singly.record(amount)

    assert [together.read(stat, 1) for stat in Stat if stat is not Stat.RATIO] == [
        singly.read(stat, 1) for stat in Stat if stat is not Stat.RATIO
    ]
