"""Operators on tables that keep the key, the map before grouping, and lookups."""

import pytest

from streams.core.errors import SerializationError, StreamsError
from streams.core.serdes.serdes import LONG, STRING, PinnedSerde
from streams.dsl.processing import (
    ComputedValues,
    FilteredRow,
    JoinedValues,
    JoinKind,
    MappedRow,
    StoreValues,
    TableFilter,
    TableGroupMap,
    TableSource,
    TransformedRow,
    change_serde,
)


def test_source_without_store_knows_no_old_value(bench):
    bench.add(TableSource())

    bench.send("a", "x", 5)
    assert bench.send("a", "y", 3) == [("a", ("y", None, True), 3)]


def test_versioned_source_marks_late_rows_and_refuses_those_behind_the_history(bench, versioned):
    bench.open(versioned(history_ms=50)).add(TableSource("store", send_old=True))

    assert bench.send("a", "x", 100) == [("a", ("x", None, True), 100)]
    assert bench.send("a", "w", 60) == [("a", ("w", "x", False), 60)]
    assert bench.send("a", "v", 49) == []


def test_negated_filter_with_store_takes_the_old_row_from_it(bench, kv):
    bench.open(kv()).add(TableFilter(lambda key, value: value > 5, negate=True, store="store", send_old=True))

    assert bench.send("a", (1, None, True), 1) == [("a", (1, None, True), 1)]
    assert bench.send("a", (9, None, True), 2) == [("a", (None, 1, True), 2)]
    assert bench.stores["store"].get("a") is None


def test_group_map_skips_null_keys_late_versions_and_refuses_rows_without_key(bench):
    bench.add(TableGroupMap(lambda key, value: (None, value)))
    bench.add(TableGroupMap(lambda key, value: (key, value), is_versioned=True), "versioned")

    assert bench.send("k", ("x", None, True), 1) == []
    assert bench.send("k", ("x", None, False), 1, node="versioned") == []
    with pytest.raises(StreamsError, match="no key"):
        bench.send(None, ("x", None, True), 1)


@pytest.mark.parametrize(
    "change", [("new", None, True), (None, "old", True), ("new", "old", True), ("n" * 300, "", True)]
)
def test_changes_survive_their_bytes(change):
    serde = change_serde(STRING)

    assert serde.deserialize(serde.serialize(change)) == change


def test_change_bytes_are_those_of_kafka_streams():
    serde = change_serde(STRING)

    assert serde.serialize(("ab", None, True)) == b"ab\x01"
    assert serde.serialize((None, "c", True)) == b"c\x00"
    assert serde.serialize(("ab", "c", True)) == b"\x04abc\x02"
    with pytest.raises(SerializationError):
        serde.serialize((None, None, True))


def test_changes_of_a_pinned_type_can_be_read_where_nothing_was_pinned_yet():
    data = change_serde(PinnedSerde("writer")).serialize((7, None, True))

    assert change_serde(PinnedSerde("reader")).deserialize(data) == (7, None, True)


def test_lookups_compose(bench, kv):
    """A filtered, mapped and joined table without stores is computed from its sources."""
    bench.open(kv("left"), kv("right", STRING)).add(TableSource("left"), "left").add(TableSource("right"), "right")
    over_five = ComputedValues(StoreValues("left"), FilteredRow(lambda key, value: value > 5))
    left = ComputedValues(over_five, MappedRow(lambda value: value * 2))
    context = bench.contexts[0]
    inner = JoinedValues(left, StoreValues("right"), lambda one, two: f"{one}{two}", JoinKind.INNER).getter(context)
    outer = JoinedValues(left, StoreValues("right"), lambda one, two: f"{one}{two}", JoinKind.OUTER).getter(context)
    always = ComputedValues(
        left, TransformedRow(lambda context: lambda key, value, time_ms, headers: value or 0)
    ).getter(context)

    bench.send("a", 7, 10, node="left")
    bench.send("b", 1, 10, node="left")
    bench.send("b", "r", 20, node="right")

    assert (left.getter(context)("a"), left.getter(context)("b")) == ((14, 10), None)
    assert (inner("a"), inner("b")) == (None, None)
    assert (outer("a"), outer("b"), outer("c")) == (("14None", 10), ("Noner", 20), None)
    assert (always("a"), always("c")) == ((14, 10), (0, -1))
    assert inner("a") is None
    bench.send("a", "x", 5, node="right")
    assert inner("a") == ("14x", 10)


def test_lookups_as_of_a_time_need_a_versioned_store(bench, kv, versioned):
    bench.open(kv("plain", LONG), versioned("kept")).add(TableSource("kept"), "kept")
    context = bench.contexts[0]
    bench.send("a", "x", 10, node="kept")
    bench.send("a", "y", 20, node="kept")

    read = ComputedValues(StoreValues("kept"), MappedRow(lambda value: value.upper())).time_getter(context)

    assert StoreValues("plain").time_getter(context) is None
    assert read is not None
    assert [read("a", time) for time in (9, 10, 25)] == [None, ("X", 10), ("Y", 20)]
