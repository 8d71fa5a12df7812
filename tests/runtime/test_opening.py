"""The requests with which a thread opens its tasks: their number does not grow with that of the tasks."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic
from streams.protocol.request import Request
from tests.clients.conftest import FaultyCluster
from tests.waiting import until

numbers = Topic("numbers", key=str, value=int)
counts = Topic("counts", key=str, value=int)


def topology(builder: StreamsBuilder) -> None:
    builder.stream(numbers).group_by(lambda key, value: value, key=int).count().to_stream().map(
        lambda key, count: (str(key), count)
    ).to(counts)


def kinds(requests: Iterable[Request]) -> Counter[str]:
    """Count the requests of each kind that look up positions and settings."""
    asked = Counter(type(request).__name__ for request in requests)
    return Counter({name: asked[name] for name in ("ListOffsets", "OffsetFetch", "Metadata", "DescribeConfigs")})


def opened(cluster: FaultyCluster, **settings: Any) -> Counter[str]:
    """Open all tasks of the application, and return the requests that this took."""
    before = len(cluster.sent)
    with Streams(topology, application_id="app", broker=cluster, poll_ms=5, **settings) as streams:
        until(lambda: streams.state.name == "RUNNING")
    return kinds(cluster.sent[before:])


def requests_of(partitions: int, guarantee: str) -> list[Counter[str]]:
    """Return the requests of a first start, and of a second one with committed offsets."""
    with EmbeddedBroker(auto_create_topics=False) as broker:
        for topic in (numbers, counts):
            broker.create_topic(topic.name, partitions)
        cluster = FaultyCluster(broker)
        first = opened(cluster, processing_guarantee=guarantee)
        with Producer(broker) as producer:
            for number in range(4 * partitions):
                producer.send(numbers, number, key=str(number), partition=number % partitions)
        with Streams(topology, application_id="app", broker=broker, processing_guarantee=guarantee) as streams:
            # Each record is processed by two tasks.  Closing commits.
            until(lambda: streams.metrics.get("process-total") == 8 * partitions)
        return [first, opened(cluster, processing_guarantee=guarantee)]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_requests_do_not_grow_with_the_tasks(guarantee):
    for asked in requests_of(24, guarantee):
        assert asked["ListOffsets"] + asked["OffsetFetch"] < 24, "less than one request for two tasks"
