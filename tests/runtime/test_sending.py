"""Outputs leave while an application runs, by the settings that it was given."""

import pytest

from streams import (
    Consumer,
    EmbeddedBroker,
    Producer,
    Streams,
    StreamsBuilder,
    Topic,
    TopicPartition,
)
from tests import waiting

lines = Topic("lines", key=str, value=str)
sizes = Topic("sizes", key=str, value=int)
OUT = TopicPartition("sizes", 0)


def measuring(builder: StreamsBuilder) -> None:
    builder.stream(lines).map_values(len).to(sizes)


@pytest.fixture
def broker():
    with EmbeddedBroker() as broker:
        broker.create_topic("lines", 1)
        broker.create_topic("sizes", 1)
        yield broker


def test_outputs_do_not_wait_for_the_commit(broker):
    """Nor for a free place among the requests under way: their answers are taken as they come."""
    with (
        Streams(measuring, application_id="sending", broker=broker, commit_interval_ms=600_000),
        Producer(broker) as producer,
        Consumer(broker, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([OUT], [sizes])
        for number in range(1, 30):
            producer.send(lines, "x" * number, key="k").result()
            found = []
            waiting.until(lambda: found, lambda: found.extend(consumer.poll(100)))  # noqa: B023
            assert [record.value for record in found] == [number]


def test_producer_has_the_settings_of_the_application(broker):
    """One that waits long for others to share a batch sends at the commit, or when it closes."""
    settings = {"linger_ms": 3_600_000, "commit_interval_ms": 600_000, "poll_ms": 1}
    with Streams(measuring, application_id="sending", broker=broker, **settings) as streams:
        with Producer(broker) as producer:
            producer.send(lines, "x", key="k").result()
        while not streams.metrics.get("process-total"):
            assert not streams.wait(10)
        assert not streams.wait(50)
        assert broker.end_offset(OUT) == 0
    assert broker.end_offset(OUT) == 1
