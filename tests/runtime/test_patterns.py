"""Two patterns that match one topic are an error as soon as the topic exists, on every driver (KAFKA-3443)."""

import re

import pytest

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic, TopologyError
from streams.bounded import run_bounded
from streams.core.blocks.records import Block, TopicPartition
from streams.replay import replay
from streams.testing import TopologyTestDriver, simulate
from tests.waiting import WATCHDOG_MS, until

only_a, both, only_b, left, right = (Topic(name, key=str, value=int) for name in ("A1", "AB", "XB", "left", "right"))
FAST = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10, "metadata_max_age_ms": 20}
#: What the error names.
OVERLAP = r"topic 'AB' is matched by 'A\.\*' of source 'a' and '\.B' of source 'b'"


def topology(builder: StreamsBuilder) -> None:
    builder.stream(re.compile("A.*"), key=str, value=int, name="a").to(left)
    builder.stream(re.compile(".B"), key=str, value=int, name="b").to(right)


def test_the_test_driver_refuses_the_topic():
    """Other topics of the patterns are read; also when the topic is only read by the test."""
    with TopologyTestDriver(topology) as driver:
        driver.pipe(only_a, 1, key="k", timestamp_ms=1)
        driver.pipe(only_b, 2, key="k", timestamp_ms=1)
        with pytest.raises(TopologyError, match=OVERLAP):
            driver.pipe(both, 3, key="k", timestamp_ms=1)

        assert driver.read(left) == [("k", 1)]
        assert driver.read(right) == [("k", 2)]


def test_a_bounded_run_ends_with_the_error():
    def read(count, skip):
        yield [(0, Block([b"k"], [both.value_serde.serialize(1)], [0], None, range(1)))]

    with pytest.raises(TopologyError, match=OVERLAP):
        run_bounded(topology, {"AB": read}, application_id="app")


def test_a_replay_ends_with_the_error(tmp_path):
    file = tmp_path / "rows.records.jsonl"
    file.write_text('{"key": "k", "value": 1, "timestamp": 1}\n')

    with pytest.raises(TopologyError, match=OVERLAP):
        replay(topology, {both: str(file)}, executor="local", processes=1, application_id="app")


def test_a_simulation_ends_with_the_error():
    with pytest.raises(TopologyError, match=OVERLAP):
        simulate(topology, {both: [("k", 1, 1)]}, seeds=[1])


def test_a_live_application_does_not_start():
    with EmbeddedBroker() as broker:
        for topic in (only_a, both, only_b):
            broker.create_topic(topic.name, 1)
        with pytest.raises(TopologyError, match=OVERLAP), Streams(topology, application_id="app", broker=broker):
            pass


def test_a_live_application_ends_when_the_topic_comes():
    """Until then it reads the topics that one of the patterns matches."""
    with EmbeddedBroker() as broker:
        for topic in (only_a, left, right):
            broker.create_topic(topic.name, 1)
        streams = Streams(topology, application_id="app", broker=broker, **FAST)
        with pytest.raises(TopologyError, match=OVERLAP), streams, Producer(broker) as producer:
            producer.send(only_a, 1, key="k", timestamp_ms=1)
            producer.flush()
            until(lambda: broker.end_offset(TopicPartition("left", 0)) == 1)
            broker.create_topic(both.name, 1)
            streams.wait(WATCHDOG_MS)
