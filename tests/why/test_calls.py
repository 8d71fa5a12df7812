"""``why`` names the call or the batch of a result, and what a record without a result waits for."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streams import EmbeddedBroker, Streams, StreamsBuilder, Topic
from streams.replay import why
from streams.testing import TopologyTestDriver
from streams.why import REASONS, End, Story
from tests.waiting import until
from tests.why.test_followed import Shop

orders = Topic("orders", key=str, value=int)
out = Topic("out", key=str, value=str)
letters = Topic("letters", key=bytes, value=bytes)

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def end_of(story: Story, reason: str) -> End:
    assert not story.outputs, story.text
    assert set(story.reasons) <= set(REASONS)
    (end,) = [end for end in story.ends if end.reason == reason] or [None]
    assert end is not None, story.text
    assert end.record is not None
    return end


def driver_of(topology: Callable[[StreamsBuilder], None], **settings: Any) -> TopologyTestDriver:
    return TopologyTestDriver(topology, awaits_calls=False, now_ms=1_000, **settings)


async def text_of(amount: int) -> str:
    await asyncio.sleep(amount / 1000)
    return str(amount)


def called(**options: Any) -> Callable[[StreamsBuilder], None]:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).map_values_async(text_of, name="asked", **options).to(out)

    return topology


def test_result_of_a_call_names_its_record_and_how_long_it_took() -> None:
    driver = driver_of(called())
    driver.pipe(orders, 40, key="ann", timestamp_ms=0)
    driver.pipe(orders, 10, key="bob", timestamp_ms=1)
    driver.advance_wall_clock(50)

    (output,) = driver.why("ann", out).outputs
    (made,) = output.causes

    assert made.text == "asked: the result of a call, which took 40 ms and 1 attempt"
    assert [(cause.topic, cause.offset) for cause in made.causes] == [("orders", 0)]


def test_result_under_another_key_names_the_record_that_was_called_for() -> None:
    async def owner(account: str, amount: int) -> tuple[str, str]:
        await asyncio.sleep(amount / 1000)
        return account[:1], str(amount)

    driver = driver_of(lambda builder: builder.stream(orders).map_async(owner, name="owned").to(out))
    for key, amount in (("ann", 40), ("bob", 10), ("art", 20)):
        driver.pipe(orders, amount, key=key, timestamp_ms=0)
    driver.advance_wall_clock(50)

    (output,) = driver.why("a", out).outputs
    assert (output.causes[0].causes[0].key, output.causes[0].causes[0].offset) == ("ann", 0)


def test_call_in_flight_says_since_when_and_which_attempt_it_is() -> None:
    async def failing_once(amount: int) -> str:
        await asyncio.sleep(0.01)
        if amount == 1:
            raise OSError("not yet")
        return ""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).map_values_async(failing_once, retries=2, backoff=SECOND).to(out)

    driver = driver_of(topology)
    driver.pipe(orders, 1, key="ann", timestamp_ms=0)
    driver.advance_wall_clock(5)
    assert end_of(driver.why("ann"), "call in flight").numbers == {"since_ms": 1000, "in_flight_ms": 5, "attempts": 1}

    driver.advance_wall_clock(1_010)
    end = end_of(driver.why("ann"), "call in flight")
    assert end.numbers == {"since_ms": 1000, "in_flight_ms": 1015, "attempts": 2}
    assert "since 1970-01-01T00:00:01Z, for 1,015 ms, attempt 2 of 3" in end.text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "its call starts when that of an earlier record of its key has ended, orders-0 offset 0"),
        ({"order": "partition"}, "its result waits for that of an earlier record of its partition, orders-0 offset 0"),
        ({"order": "none", "concurrency": 1}, "at most 1 calls run at a time (concurrency)"),
    ],
)
def test_record_behind_another_one_names_it(options: dict[str, Any], text: str) -> None:
    driver = driver_of(called(**options))
    driver.pipe(orders, 100, key="ann", timestamp_ms=0)
    driver.pipe(orders, 1, key="ann", timestamp_ms=1)
    driver.advance_wall_clock(10)

    end = end_of(driver.why("ann", out), "waiting for call")
    assert text in end.text
    assert end.record is not None
    assert end.record.offset == 1


@pytest.mark.parametrize(
    ("settings", "reason"), [({}, "dropped"), ({"errors_dead_letter_queue_topic_name": "letters"}, "dead letter")]
)
def test_record_whose_call_failed_names_the_error_and_the_attempts(settings: dict[str, str], reason: str) -> None:
    async def failing(_: int) -> str:
        raise OSError("no answer")

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).map_values_async(failing, retries=1, name="asked").to(out)

    driver = driver_of(topology, processing_handler="continue", **settings)
    driver.pipe(orders, 1, key="ann", timestamp_ms=0)
    driver.pipe(orders, 2, key="bob", timestamp_ms=0)
    driver.advance_wall_clock(1_000)

    end = end_of(driver.why("ann", out), reason)
    assert "no answer" in end.text
    assert "its call took 100 ms and 2 attempts" in end.text
    assert end.node == "asked"


def test_answer_of_a_look_up_says_whether_it_was_cached() -> None:
    async def city(_: str) -> str:
        await asyncio.sleep(0.03)
        return "Oslo"

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).look_up(city, name="city").map_values(str).to(out)

    driver = driver_of(topology)
    driver.pipe(orders, 1, key="ann", timestamp_ms=0)
    driver.advance_wall_clock(10)
    end = end_of(driver.why("ann", out), "call in flight")
    assert end.numbers["in_flight_ms"] == 10
    driver.advance_wall_clock(30)
    (asked,) = driver.why("ann", out).outputs
    driver.pipe(orders, 2, key="ann", timestamp_ms=2)
    (cached,) = driver.why("ann", out).outputs

    assert asked.causes[0].text == "city: a record, and the answer of its look-up, which took 30 ms and 1 attempt"
    assert cached.causes[0].text == "city: a record, and the cached answer of its look-up"
    assert [found.causes[0].causes[0].offset for found in (asked, cached)] == [0, 1]


def as_texts(amounts: list[int]) -> list[str]:
    return [str(100 // amount) for amount in amounts]


def batched(builder: StreamsBuilder) -> None:
    builder.stream(orders).map_values_batches(as_texts, max_records=3, max_wait=HOUR, name="texts").to(out)


@pytest.fixture
def history(tmp_path: Path) -> dict[Topic[Any, Any], str]:
    file = tmp_path / "orders.records.jsonl"
    rows = [("ann", 1), ("bob", 0), ("cid", 2)]
    lines = [{"key": key, "value": amount, "timestamp": at} for at, (key, amount) in enumerate(rows)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return {orders: str(file)}


def test_record_in_a_batch_says_what_the_batch_waits_for() -> None:
    settings: dict[str, Any] = {"poll_ms": 5, "commit_interval_ms": 3_600_000}
    with EmbeddedBroker() as broker:
        for topic in (orders, out):
            broker.create_topic(topic.name, 1)
        with Streams(batched, application_id="texts", broker=broker, **settings) as streams:
            shop = Shop(broker, streams)
            until(lambda: len(streams.tasks()) == 1)
            end = end_of(shop.follow(lambda: shop.send("ann", 1), "ann", out, seconds=60, limit=1), "in batch")
            assert streams.metrics.get("records-held", node="texts") == 1

    assert "in a batch of 1 record, which ends with 3 records, 3,600,000 ms (1 h) after its first record" in end.text
    assert end.numbers == {"records": 1, "max_records": 3}


def test_result_of_a_batch_names_its_record_and_the_size_of_the_batch(history: dict[Topic[Any, Any], str]) -> None:
    for number, (key, size) in enumerate([("ann", "1 record"), ("bob", ""), ("cid", "1 record")]):
        story = why(batched, history, key, out, processing_handler="continue")
        if size:
            (output,) = story.outputs
            assert output.causes[0].text == f"texts: a result of a batch of {size}"
            assert [cause.offset for cause in output.causes[0].causes] == [number]
        else:
            end = end_of(story, "dropped")
            assert "ZeroDivisionError" in end.text
            assert end.record is not None
            assert end.record.offset == 1


def largest(records: list[tuple[str, int]]) -> list[tuple[str, str]]:
    return [("largest", str(max(amount for _, amount in records)))]


@pytest.mark.slow
def test_result_of_a_whole_batch_names_all_its_records(history: dict[Topic[Any, Any], str]) -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).flat_map_batches(largest, name="largest").to(out)

    (output,) = why(topology, history, "largest", out).outputs
    assert output.causes[0].text == "largest: a result of a batch of 3 records"
    assert [cause.key for cause in output.causes[0].causes] == ["ann", "bob", "cid"]
    assert not why(topology, history, "ann", out).outputs


@pytest.mark.slow
def test_results_that_a_replay_forwards_together_have_their_own_records(history: dict[Topic[Any, Any], str]) -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).map_values_async(text_of, concurrency=2).look_up(cached, name="cached").map_values(
            str
        ).to(out)

    for number, key in enumerate(("ann", "bob", "cid")):
        (output,) = why(topology, history, key, out, wall_clock="skip").outputs
        looked_up = output.causes[0]
        assert "the answer of its look-up" in looked_up.text
        assert [cause.offset for cause in looked_up.causes[0].causes] == [number]


async def cached(_: str) -> str:
    return ""
