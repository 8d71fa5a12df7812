"""``join_latest`` in the DSL: arguments, names, and what comes out without a further record."""

from datetime import timedelta

import pytest

from streams import StreamsBuilder, Topic, TopologyError
from streams.testing import TopologyTestDriver
from streams.topology.describe import describe

SECOND = timedelta(seconds=1)
left = Topic("left", key=str, value=str)
right = Topic("right", key=str, value=str)
out = Topic("out", key=str, value=str)


def joined(builder: StreamsBuilder, idle_close: timedelta | None = None, **options) -> None:
    sides = builder.stream(left, idle_close=idle_close), builder.stream(right, idle_close=idle_close)
    sides[0].join_latest(sides[1], lambda key, one, two: f"{key}:{one}{two}", tolerance=SECOND, **options).to(out)


def test_names_of_nodes_and_stores_begin_with_the_given_one():
    builder = StreamsBuilder()
    joined(builder, name="quoted", store="kept")

    (sub,) = describe(builder.build()).sub_topologies

    stores = {node.name: node.stores for node in sub.nodes if node.stores}
    assert stores == dict.fromkeys(("quoted-left", "quoted-right"), ("kept-left-store", "kept-right-store"))
    assert "quoted-merge" in {node.name for node in sub.nodes}


def test_result_has_the_headers_and_the_origin_of_its_left_record():
    with TopologyTestDriver(joined) as driver:
        driver.pipe(right, "r", key="a", timestamp_ms=0)
        driver.pipe(left, "l", key="a", timestamp_ms=1, headers=(("h", b"1"),))
        driver.pipe(right, "x", key="b", timestamp_ms=2)
        (record,) = driver.read_records(out)

    assert (record.value, record.timestamp_ms, tuple(record.headers)) == ("a:lr", 1, (("h", b"1"),))


def test_waiting_records_are_joined_while_inputs_are_idle():
    with TopologyTestDriver(lambda builder: joined(builder, idle_close=SECOND)) as driver:
        driver.pipe(right, "r", key="a", timestamp_ms=0)
        driver.pipe(left, "l", key="a", timestamp_ms=1)
        assert driver.read(out) == []
        driver.advance_wall_clock(1_500)

        assert driver.read(out) == [("a", "a:lr")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 5}, "tolerance= of join_latest .* must be a timedelta"),
        ({}, "tolerance= of join_latest .* must be a timedelta, not None"),
        ({"tolerance": SECOND, "grace": -SECOND}, "must not be negative"),
        ({"tolerance": SECOND, "direction": "nearest"}, "direction must be 'backward' or 'forward'"),
        ({"tolerance": SECOND, "caching": True}, "does not take 'caching'"),
    ],
)
def test_wrong_arguments_are_refused_when_they_are_given(options, message):
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match=message):
        builder.stream(left).join_latest(builder.stream(right), lambda one, two: one, **options)


def test_other_side_is_a_stream_of_the_same_builder():
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match="needs another stream"):
        builder.stream(left).join_latest(builder.table(right), lambda one, two: one, tolerance=SECOND)
    with pytest.raises(TopologyError, match="different StreamsBuilders"):
        builder.stream(left).join_latest(StreamsBuilder().stream(right), lambda one, two: one, tolerance=SECOND)
