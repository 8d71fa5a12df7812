"""Where an application begins in inputs without a committed offset: the settings, and what each source declares."""

import re
from datetime import timedelta

import pytest

from streams import (
    Admin,
    Consumer,
    EmbeddedBroker,
    Producer,
    Streams,
    StreamsBuilder,
    Topic,
    TopicPartition,
    TopologyError,
)
from streams.clients.errors import NoOffsetError
from streams.core.clock import SystemClock
from tests.waiting import until

orders = Topic("orders", key=str, value=int)
prices = Topic("prices", key=str, value=int)
out = Topic("out", key=str, value=int)
FAST = {"application_id": "app", "commit_interval_ms": 20, "poll_ms": 10}
P0 = TopicPartition("orders", 0)


@pytest.fixture
def broker():
    with EmbeddedBroker(auto_create_topics=False) as made:
        for topic in (orders, prices, out):
            made.create_topic(topic, 1)
        yield made


def send(broker, topic, *rows):
    with Producer(broker) as producer:
        for key, value, *time_ms in rows:
            producer.send(topic, value, key=key, **({"timestamp_ms": time_ms[0]} if time_ms else {}))


def results(broker, topology, *later, **settings):
    """Run an application, write ``later`` once its tasks are there, and return its results until "last"."""
    with Streams(topology, broker=broker, **FAST, **settings) as streams, Consumer(broker) as reader:
        reader.assign([TopicPartition("out", 0)], [out])
        reader.seek_to_beginning([TopicPartition("out", 0)])
        until(lambda: streams.state.name == "RUNNING" or streams.failure)
        for topic, *rows in later:
            send(broker, topic, *rows)
        found = []
        until(lambda: "last" in dict(found) or streams.failure, lambda: found.extend(polled(reader)))
        return found


def polled(reader):
    return [(record.key, record.value) for record in reader.poll(20)]


@pytest.mark.parametrize(
    ("setting", "own", "reads_old"),
    [
        ("earliest", "latest", False),
        ("latest", "earliest", True),
        ("earliest", None, True),
        ("latest", None, False),
        ("none", "latest", False),
        ("latest", timedelta(hours=2), True),
        ("earliest", timedelta(minutes=30), False),
        ("earliest", timedelta(0), False),
        ("by_duration:PT2H", None, True),
        ("by_duration:PT30M", None, False),
    ],
)
@pytest.mark.parametrize("topics", [[orders], [re.compile("ord.*")]], ids=["topic", "pattern"])
def test_the_reset_policy_of_a_source_goes_before_that_of_the_settings(broker, topics, setting, own, reads_old):
    """The old record is one hour old."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(*topics, key=str, value=int, offset_reset=own).to(out)

    send(broker, orders, ("old", 1, SystemClock().now_ms() - 3_600_000))
    found = results(broker, topology, (orders, ("new", 2), ("last", 3)), auto_offset_reset=setting)

    assert found == [("old", 1)] * reads_old + [("new", 2), ("last", 3)]


@pytest.mark.parametrize("optimization", ["none", "all"])
def test_each_source_has_its_own_policy(broker, optimization):
    """Also a table whose changelog is its topic: rows that it did not read are not restored."""

    def topology(builder: StreamsBuilder) -> None:
        table = builder.table(prices, offset_reset="latest")
        builder.stream(orders).left_join(table, lambda count, price: count * (price or 0)).to(out)

    send(broker, prices, ("tea", 5), ("last", 6))
    send(broker, orders, ("tea", 2))
    found = results(
        broker, topology, (prices, ("last", 7)), (orders, ("tea", 2), ("last", 2)), topology_optimization=optimization
    )

    assert found[:2] == [("tea", 0), ("tea", 0)]
    assert found[2] in (("last", 14), ("last", 0))


def test_a_source_without_policy_fails_where_no_offset_is_committed(broker):
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders, offset_reset="none").to(out)

    with pytest.raises(NoOffsetError, match="orders-0: application 'app' has no committed offset"):
        results(broker, topology)


@pytest.mark.parametrize(("own", "expected"), [("latest", ["last"]), ("earliest", ["kept", "last"])])
def test_the_policy_of_a_source_also_decides_where_committed_offsets_are_deleted(broker, own, expected):
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders, offset_reset=own).filter(lambda key, value: value > 1).to(out)

    with Streams(topology, broker=broker, **FAST) as streams, Admin(broker) as admin:
        until(lambda: streams.state.name == "RUNNING")
        send(broker, orders, ("first", 1))
        until(lambda: admin.committed_offsets("app").get(P0) not in (None, 0))
    send(broker, orders, ("gone", 2), ("kept", 3))
    with Admin(broker) as admin:
        admin.delete_records({P0: 2})
    with Streams(topology, broker=broker, **FAST) as streams, Consumer(broker) as reader, Producer(broker) as producer:
        reader.assign([TopicPartition("out", 0)], [out])
        reader.seek_to_beginning([TopicPartition("out", 0)])
        found = []

        def turn():
            # The position is at the end only when the application has asked for it.
            producer.send(orders, 4, key="last")
            found.extend(polled(reader))

        until(lambda: "last" in dict(found) or streams.failure, turn)

    assert list(dict.fromkeys(key for key, _ in found)) == expected


@pytest.mark.parametrize("wrong", ["first", 5, timedelta(seconds=-1), "by_duration:1h", True])
def test_a_policy_that_does_not_exist_is_refused(wrong):
    for read in (StreamsBuilder().stream, StreamsBuilder().table):
        with pytest.raises(TopologyError, match="of orders: offset_reset must be 'earliest', 'latest', 'none', or a"):
            read(orders, offset_reset=wrong)
