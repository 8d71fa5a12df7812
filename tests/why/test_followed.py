"""Following a key in a running application: its tasks run a traced program for a while."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streams import (
    EmbeddedBroker,
    Processor,
    Producer,
    Record,
    Streams,
    StreamsBuilder,
    StreamsError,
    Topic,
    timestamped_key_value_store,
)
from streams.why import Story
from tests.waiting import until

orders = Topic("orders", key=str, value=int)
counts = Topic("counts", key=str, value=int)
numbered = Topic("numbered", key=str, value=int)


class Numbered(Processor[str, int, str, int]):
    """Counts in an attribute, which a restart would lose."""

    count = 0

    def process(self, record: Record[str, int]) -> None:
        self.count += 1
        self.context.forward(record.key, self.count)


def topology(builder: StreamsBuilder) -> None:
    stream = builder.stream(orders)
    stream.filter(lambda _, amount: amount > 10, name="large").group_by_key().count("by-user").to_stream().to(counts)
    stream.process(Numbered, name="numbered").to(numbered)


class Shop:
    """A running application and its producer."""

    def __init__(self, broker: EmbeddedBroker, streams: Streams) -> None:
        self.broker = broker
        self.streams = streams
        self.producer = Producer(broker)

    def send(self, key: str, *amounts: int) -> None:
        for amount in amounts:
            self.producer.send(orders, amount, key=key)
        self.producer.flush()

    def processed(self) -> int:
        return int(self.streams.metrics.get("process-total"))

    def programs(self) -> list[str]:
        """Return the source of each task's program."""
        return [code for found in self.streams.instance.ask(_sources) for code in found]

    def follow(self, act: Callable[[], None], *arguments: Any, tasks: int = 1, **named: Any) -> Story:
        """Follow a key, and act once so many tasks are traced."""
        found: list[Story] = []
        asking = threading.Thread(target=lambda: found.append(self.streams.why(*arguments, **named)))
        asking.start()
        until(lambda: sum("forwarding" in code for code in self.programs()) == tasks)
        act()
        asking.join()
        return found[0]


def test_key_is_followed_through_a_repartition_topic_by_several_threads() -> None:
    amounts = Topic("amounts", key=str, value=int)

    def by_amount(builder: StreamsBuilder) -> None:
        builder.stream(orders).group_by(lambda _, amount: f"level {amount}").count("levels").to_stream().to(amounts)

    with EmbeddedBroker() as broker:
        for topic in (orders, amounts):
            broker.create_topic(topic.name, 3)
        settings: dict[str, Any] = {"num_stream_threads": 3, "poll_ms": 5}
        with Streams(by_amount, application_id="levels", broker=broker, **settings) as streams:
            shop = Shop(broker, streams)
            # The first thread may have had all of them.
            until(lambda: streams.instance.ask(lambda thread: len(thread.tasks) * thread.is_ready) == [2, 2, 2])
            # Each order is two records of the key, of which the limit counts the first.
            story = shop.follow(lambda: shop.send("ann", 7, 7), "level 7", amounts, seconds=60, limit=2, tasks=6)

    assert "levels: 2 records of key 'level 7'" in story.text
    assert "offset 1: 'ann': 7 at" in story.text
    assert "limit" not in story.reasons
    assert "dropped" not in story.reasons


@pytest.fixture(params=[0])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """The shop is open; the parameter is the size of the record cache."""
    with EmbeddedBroker() as broker:
        for topic in (orders, counts, numbered):
            broker.create_topic(topic.name, 1)
        settings: dict[str, Any] = {"commit_interval_ms": 3_600_000, "poll_ms": 5, "default_store": "in_memory"}
        settings["cache_max_bytes"] = request.param
        with Streams(topology, application_id="shop", broker=broker, **settings) as streams:
            # A task that opens while a key is followed is one that moved here.
            until(lambda: any(streams.instance.ask(_initialized)))
            yield Shop(broker, streams)


def test_key_is_followed_until_the_limit_and_the_processors_keep_what_they_know(shop: Shop) -> None:
    shop.send("ann", 1, 2, 3)
    until(lambda: shop.processed() == 3)

    story = shop.follow(lambda: shop.send("ann", 4), "ann", numbered, seconds=60, limit=1)
    assert story.outputs[0].value == 4
    assert "orders-0 offset 3: 'ann': 4 at" in story.text

    shop.send("ann", 5)
    until(lambda: shop.processed() == 5)
    story = shop.follow(lambda: shop.send("ann", 6), "ann", numbered, seconds=60, limit=1)
    assert story.outputs[0].value == 6


@pytest.mark.parametrize("shop", [10_000], indirect=True)
def test_update_is_in_the_record_cache_until_the_commit(shop: Shop) -> None:
    story = shop.follow(lambda: shop.send("ann", 20), "ann", counts, seconds=60, limit=1)

    assert story.reasons == ("in record cache",)
    assert "until the next commit" in story.text


def test_usual_program_runs_again_afterwards(shop: Shop) -> None:
    shop.send("ann", 20)
    until(lambda: shop.processed() == 1)
    before = shop.programs()

    shop.follow(lambda: shop.send("ann", 20), "ann", counts, seconds=60, limit=1)

    assert shop.programs() == before
    assert all("forwarding" not in code for code in before)
    assert shop.streams.metrics.on_drop is None


class Remembering(Processor[str, int, str, int]):
    """Has a declared store, and keeps nothing but the highest amount."""

    highest = timestamped_key_value_store(str, int, "highest")

    def process(self, record: Record[str, int]) -> None:
        found = self.highest.get(record.key)
        if found is None or found.value < record.value:
            self.highest.put(record.key, (record.value, record.timestamp_ms))
            self.context.forward(record.key, record.value)


def test_store_calls_of_a_running_processor_are_part_of_the_story(shop: Shop) -> None:
    def remembering(builder: StreamsBuilder) -> None:
        builder.stream(orders).process(Remembering, name="remembering").to(numbered)

    settings: dict[str, Any] = {"poll_ms": 5, "default_store": "in_memory"}
    with Streams(remembering, application_id="other", broker=shop.broker, **settings) as streams:
        other = Shop(shop.broker, streams)
        other.send("ann", 20)
        until(lambda: other.processed() == 1)
        lower = other.follow(lambda: other.send("ann", 7), "ann", seconds=60, limit=1)
        higher = other.follow(lambda: other.send("ann", 30), "ann", seconds=60, limit=1)
        other.send("ann", 10)
        until(lambda: other.processed() == 4)
        (tasks,) = streams.instance.ask(lambda thread: list(thread.tasks.values()))
        (processor,) = (value for value in tasks[0].shared.values() if isinstance(value, Remembering))
        assert processor.highest is tasks[0].stores["highest"].view

    assert lower.reasons == ("forwarded nothing",)
    assert "it called highest.get('ann') gave ValueAndTimestamp(value=20" in lower.text
    assert higher.outputs[0].value == 30
    assert "highest.put('ann', (30, " in higher.text


def test_only_one_question_at_a_time_traces_the_tasks(shop: Shop) -> None:
    with shop.streams.instance.tracing, pytest.raises(StreamsError, match="being traced for another question"):
        shop.streams.why("ann", seconds=0.01)
    assert shop.streams.why("ann", seconds=0.01).reasons == ("no such key",)
    for limits in ({"seconds": 0}, {"seconds": -1}, {"limit": 0}):
        with pytest.raises(StreamsError, match="would see nothing: both must be above 0"):
            shop.streams.why("ann", **limits)


def _initialized(thread: Any) -> bool:
    return any(task.is_initialized for task in thread.tasks.values())


def _sources(thread: Any) -> list[str]:
    return [task.program.source_code for task in thread.tasks.values()]


def test_second_question_at_the_same_time_is_refused(shop: Shop) -> None:
    errors: list[Exception] = []

    def act() -> None:
        try:
            shop.streams.why("bob")
        except StreamsError as error:
            errors.append(error)
        shop.send("ann", 1, 2)

    shop.send("ann", 1)
    until(lambda: shop.processed() == 1)
    shop.follow(act, "ann", seconds=60, limit=1)
    assert "being traced for another question" in str(errors[0])
