"""A crash between any two steps of a commit, and of everything else that a thread asks the broker.

The connections of one run fail for good at their n-th request; the next run, on the same broker
and state directory, works.  Nothing may be missing then, and a maximum must be right.
"""

from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import count

import pytest

from streams import (
    BrokerError,
    EmbeddedBroker,
    StreamsBuilder,
    StreamsConfig,
    SystemClock,
    Topic,
    TopicPartition,
    build_topology,
)
from streams.core.blocks.records import Block
from streams.protocol.group_messages import OffsetCommit
from streams.protocol.messages import Produce, ProduceResponse
from streams.runtime.instance.instance import Instance
from streams.runtime.plan.bounded import BoundedProgress
from streams.runtime.stores.homes import home_of
from streams.runtime.threads.environment import Environment

numbers = Topic("numbers", key=str, value=int)
counts = Topic("counts", key=str, value=int)
highest = Topic("highest", key=str, value=int)
ROWS = 400


def topology(builder: StreamsBuilder) -> None:
    grouped = builder.stream(numbers).group_by_key()
    grouped.count("counts-store").to_stream().to(counts)
    grouped.reduce(max, name="highest-store").to_stream().to(highest)


class FailingCluster:
    """Passes everything to the broker until the n-th produce or commit, if any, which fails, as all after it.

    With ``is_slow``, records are acknowledged only to who waits.
    """

    def __init__(self, broker, failing_request=None, *, is_slow=False):
        self.is_slow = is_slow
        self.broker, self.requests, self.failing = broker, count(1), failing_request
        self.has_failed = False
        #: The topics of each produce request, and the responses to them.
        self.produced = []

    def connect(self, client_id):
        return FailingConnection(self, self.broker.connect(client_id))


class FailingConnection:
    def __init__(self, cluster, connection):
        self._cluster, self._connection = cluster, connection
        self._held = []
        self.traits = connection.traits
        self.outage = None

    def send(self, node_id, request):
        cluster = self._cluster
        if isinstance(request, (Produce, OffsetCommit)) and next(cluster.requests) == cluster.failing:
            cluster.has_failed = True
        if cluster.has_failed:
            raise BrokerError("the process dies here")
        if isinstance(request, Produce):
            cluster.produced.append({partition.topic for partition in request.blocks})
        return self._connection.send(node_id, request)

    def poll(self, timeout_ms):
        if self._cluster.has_failed:
            raise BrokerError("the process is dead")
        arrived = self._held + self._connection.poll(0 if self._held else timeout_ms)
        waits = timeout_ms > 0 or not self._cluster.is_slow
        self._held = [] if waits else [pair for pair in arrived if isinstance(pair[1], ProduceResponse)]
        arrived = [pair for pair in arrived if pair not in self._held]
        self._cluster.produced += ["acknowledged" for _, answer in arrived if isinstance(answer, ProduceResponse)]
        return arrived

    def __getattr__(self, name):
        return getattr(self._connection, name)


def run(broker, cluster, folder, source=topology):
    """Run over all that the topic has; return whether it came to its end."""
    config = StreamsConfig.of(application_id="app", max_poll_records=40, commit_interval_ms=0, default_store="rocksdb")
    instance = Instance(
        build_topology(source, config),
        config,
        Environment(cluster, SystemClock(), home_of(folder, config), creates_topics=True),
        bounds=partial(BoundedProgress, end_offset=broker.end_offset),
    )
    instance.start()
    instance.bounded.end_topic("numbers")
    instance.bounded.done.wait()
    instance.close()
    return instance.failure is None


def table(broker, topic):
    result, updates = {}, 0
    for block in broker.read(TopicPartition(topic.name, 0), 0, 1_000_000):
        updates += len(block)
        keys, values = topic.key_serde.deserialize_all(block.keys), topic.value_serde.deserialize_all(block.values)
        result |= dict(zip(keys, values, strict=True))
    return result, updates


@pytest.mark.case(3)
@pytest.mark.parametrize("failing_request", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 20])
def test_whatever_step_fails_nothing_is_missing(failing_request, tmp_path):
    keys = [f"k{number % 7}" for number in range(ROWS)]
    with EmbeddedBroker(tmp_path / "broker") as broker:
        broker.create_topic("numbers", 1)
        raw_values = numbers.value_serde.serialize_all(range(ROWS))
        broker.append(
            TopicPartition("numbers", 0), Block([key.encode() for key in keys], raw_values, list(range(ROWS)))
        )
        first = run(broker, FailingCluster(broker, failing_request), tmp_path)
    # Its member ends with the broker's process.
    with EmbeddedBroker(tmp_path / "broker") as broker:
        second = run(broker, broker, tmp_path)
        found, updates = table(broker, counts)

        assert not first
        assert second
        assert table(broker, highest)[0] == {f"k{rest}": max(range(rest, ROWS, 7)) for rest in range(7)}
        true_counts = Counter(keys)
        assert all(found[key] >= true for key, true in true_counts.items())
        assert sum(found.values()) - ROWS <= updates - ROWS <= 80


def test_ids_of_a_deduplication_are_sent_when_all_else_is_acknowledged(tmp_path):
    """Otherwise a crash between both would lose the results: the record, processed again, would be a duplicate."""

    def once(builder: StreamsBuilder) -> None:
        passed = builder.stream(numbers).deduplicate(lambda _, number: number, within=timedelta(hours=1), store="ids")
        passed.to(highest)

    with EmbeddedBroker() as broker:
        broker.create_topic("numbers", 1)
        broker.append(TopicPartition("numbers", 0), Block([b"k"], numbers.value_serde.serialize_all([7]), [0]))
        cluster = FailingCluster(broker, is_slow=True)

        assert run(broker, cluster, tmp_path, once)

    assert cluster.produced == [{"highest"}, "acknowledged", {"app-ids-changelog"}, "acknowledged"]
