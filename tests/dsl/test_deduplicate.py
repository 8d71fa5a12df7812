"""``deduplicate`` in the DSL: its arguments, its repartition topic and its store."""

from datetime import timedelta

import pytest

from streams import ProcessingError, StreamsBuilder, Topic, TopologyError
from streams.testing import TopologyTestDriver
from streams.topology.describe import describe

SECOND = timedelta(seconds=1)
orders = Topic("orders", key=str, value=int)
lines = Topic("lines", value=str)
once = Topic("once", key=str, value=int)
once_lines = Topic("once-lines", value=str)


def driver_of(topology, **options):
    return TopologyTestDriver(topology, **options)


def test_ids_of_any_type_that_a_serde_can_write():
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).deduplicate(by=lambda key, value: (key, value % 3), within=SECOND).to(once)

    with driver_of(topology) as driver:
        for value in (1, 4, 2, 5, 3):
            driver.pipe(orders, value, key="a", timestamp_ms=0)

        assert driver.read(once) == [("a", 1), ("a", 2), ("a", 3)]


def test_declared_type_of_the_id_decides_its_bytes_in_the_changelog():
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).deduplicate(lambda _, value: value, name="once", within=SECOND, id=int).to(once)

    with driver_of(topology, application_id="app") as driver:
        driver.pipe(orders, 7, key="a", timestamp_ms=5)
        (change,) = driver.read_bytes("app-once-store-changelog")

    assert change.key == b"\xf5D\x01" + b"\0\0\0\x01" + b"a" + (7).to_bytes(8, "big") + (5).to_bytes(8, "big") + bytes(
        4
    )
    assert (change.value, change.timestamp_ms) == (b"\x01", 5)


def test_stream_without_keys_is_repartitioned_by_the_id_so_that_equal_ids_meet():
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(lines).deduplicate(by=lambda _, line: line.split()[0], within=SECOND).to(once_lines)

    with driver_of(topology, partitions=4) as driver:
        for number in range(24):
            driver.pipe(lines, f"id{number % 6} {number}", timestamp_ms=number, partition=number % 4)

        assert sorted(value for _, value in driver.read(once_lines)) == [f"id{number} {number}" for number in range(6)]


def test_names_are_given_to_node_store_and_repartition_topic():
    builder = StreamsBuilder()
    changed = builder.stream(orders).select_key(lambda key, value: key)
    changed.deduplicate(lambda key, value: value, name="once", within=SECOND).to(once)

    description = describe(builder.build())

    nodes = {node.name: node for sub in description.sub_topologies for node in sub.nodes}
    assert nodes["once"].stores == ("once-store",)
    assert description.internal_topics == ("once-repartition", "once-store-changelog")


def test_duplicates_are_counted_by_reason():
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).deduplicate(within=SECOND).to(once)

    with driver_of(topology) as driver:
        for time_ms in (0, 1, 2):
            driver.pipe(orders, 1, key="a", timestamp_ms=time_ms)

        assert [(drop.reason, drop.count) for drop in driver.drops()] == [("duplicate", 2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"within": timedelta(0)}, "within must be at least 1 ms"),
        ({"within": -SECOND}, "must not be negative"),
        ({"within": 1000}, "must be a timedelta"),
        ({"within": SECOND, "grace": -SECOND}, "must not be negative"),
        ({"within": SECOND, "caching": True}, "unknown option 'caching'"),
        ({"within": SECOND, "by": lambda value: value}, r"give a function of \(key, value\)"),
    ],
)
def test_wrong_arguments_are_refused_when_they_are_given(options, message):
    with pytest.raises(TopologyError, match=message):
        StreamsBuilder().stream(orders).deduplicate(**options)


def test_stream_without_keys_needs_a_function():
    with pytest.raises(TopologyError, match="has no keys: give by="):
        StreamsBuilder().stream(lines).deduplicate(within=SECOND)


@pytest.mark.parametrize("second", ["two", 2.0, True, object()])
def test_message_about_the_type_of_an_id_names_the_argument_that_declares_it(second):
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(orders).deduplicate(by=lambda key, value: 1 if value == 1 else second, within=SECOND).to(once)

    with driver_of(topology) as driver:
        driver.pipe(orders, 1, key="a", timestamp_ms=0)
        with pytest.raises(ProcessingError, match=r"id= \(of deduplicate\)"):
            driver.pipe(orders, 2, key="a", timestamp_ms=0)
