"""A live application closes the windows of idle inputs once, also after a restart, and can be reproduced."""

from datetime import timedelta

import pytest

from streams import (
    Consumer,
    EmbeddedBroker,
    EmitStrategy,
    Producer,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topic,
    TopicPartition,
    build_topology,
)
from streams.capsule import Reproduction, capture
from streams.clients import Admin
from tests import waiting

clicks = Topic("clicks", key=str, value=str, partitions=2)
counts = Topic("counts", key=str, value=int, partitions=2)


def topology(builder: StreamsBuilder) -> None:
    """Counts in windows of a second, closed by an idle time, and their sum in windows downstream of a repartition."""
    stream = builder.stream(clicks, idle_close=timedelta(milliseconds=300))
    windows = TimeWindows.of(timedelta(seconds=1))
    closed = stream.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("first")
    regrouped = closed.to_stream().group_by(lambda key, count: f"{key.window.start_ms}", key=str, value=int)
    again = regrouped.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    again.reduce(lambda one, two: one + two, name="second").to_stream().map(lambda key, count: (key.key, count)).to(
        counts
    )


def started(broker, **settings):
    given = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10, **settings}
    return Streams(topology, broker=broker, application_id="shop", **given)


class Committed:
    def __init__(self, broker):
        self.consumer = Consumer(
            broker, client_id="watch", auto_offset_reset="earliest", isolation_level="read_committed",
            fetch_max_wait_ms=50,
        )  # fmt: skip
        self.consumer.assign([TopicPartition("counts", number) for number in range(2)], [counts])
        self.seen = []

    def until(self, holds):
        waiting.until(holds, self.read, lambda: self.seen)

    def read(self):
        self.seen += [(record.key, record.value) for record in self.consumer.poll(50)]


def produce(broker, keys, time_ms):
    with Producer(broker) as producer:
        for key in keys:
            producer.send(clicks, "x", key=key, timestamp_ms=time_ms)


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_the_last_windows_come_once_also_after_a_restart_and_are_reproduced(guarantee):
    settings = {"processing_guarantee": guarantee, "flight_recorder": True}
    with EmbeddedBroker() as broker:
        seen = Committed(broker)
        # All is there before the application looks: one record that comes late would be later than the idle time.
        produce(broker, "abcdefgh", 1_000)
        with started(broker, **settings):
            seen.until(lambda: len(seen.seen) == 1)
        produce(broker, "abcdefgh", 5_000)
        with started(broker, **settings):
            seen.until(lambda: len(seen.seen) >= 2)
        seen.consumer.close()
        with Admin(broker) as admin:
            known = {topic.name: len(topic.leaders) for topic in admin.all_topics()}
        config = StreamsConfig.of(application_id="shop", flight_recorder=True)
        capsule = capture(broker, build_topology(topology, config), config, known)
        found = Reproduction(capsule, build_topology(topology, config), config).compare()

    assert seen.seen == [("1000", 8), ("5000", 8)]
    assert found.is_same, str(found)
    assert any(step.kind == "idled" for span in capsule.spans.values() for frame in span.frames for step in frame.steps)


@pytest.mark.slow
def test_threads_of_an_instance_know_the_unprocessed_input_of_each_other():
    with EmbeddedBroker() as broker, started(broker, num_stream_threads=3) as streams:
        shared = [thread.shared.board for thread in streams.instance.stream_threads]

        assert len(shared) == 3
        assert all(board is shared[0] for board in shared)
