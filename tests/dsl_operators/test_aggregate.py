"""Aggregates without windows, of streams and of tables."""

import pytest

from streams.core.errors import StreamsError
from streams.core.serdes.serdes import JSON, STRING
from streams.dsl.processing import (
    COUNT,
    TABLE_COUNT,
    Fold,
    StreamAggregate,
    TableAggregate,
    reduction,
    table_reduction,
)
from streams.state import RecordCache


def test_headers_go_with_the_result(bench, kv):
    bench.open(kv()).add(StreamAggregate("store", COUNT))

    bench.ready()._bound["node"]("a", 1, 5, (("h", b"1"),))

    assert bench.take_full() == [("a", (1, None, True), 5, (("h", b"1"),))]


def test_old_value_of_a_new_row_is_the_initial_aggregate(bench, kv):
    """As the reference does it: only a reduction has no initial value."""
    bench.open(kv("c"), kv("g", JSON), kv("r", STRING))
    bench.add(StreamAggregate("c", COUNT, send_old=True), "count")
    bench.add(StreamAggregate("g", Fold(list, lambda key, value, held: [*held, value]), send_old=True), "aggregate")
    bench.add(StreamAggregate("r", reduction(lambda old, new: old + new), send_old=True), "reduce")

    assert bench.send("a", "x", 1, node="count") == [("a", (1, 0, True), 1)]
    assert bench.send("a", "x", 1, node="aggregate") == [("a", (["x"], [], True), 1)]
    assert bench.send("a", "x", 1, node="reduce") == [("a", ("x", None, True), 1)]
    assert bench.send("a", "y", 1, node="reduce") == [("a", ("xy", "x", True), 1)]


def test_behind_the_cache_the_old_value_is_what_was_stored(bench, kv):
    bench.cache = RecordCache(0)
    bench.open(kv()).add(StreamAggregate("store", COUNT, send_old=True))

    assert bench.send("a", 1, 1) == [("a", (1, None, True), 1)]
    assert bench.send("a", 1, 1) == [("a", (2, 1, True), 1)]


def test_versioned_store_tells_whether_the_result_is_the_latest(bench, versioned):
    """History 100: a record 100 behind is stored as an older version, one further behind is refused."""
    bench.open(versioned(value=STRING)).add(StreamAggregate("store", reduction(lambda old, new: new)))

    assert bench.send("a", "x", 200) == [("a", ("x", None, True), 200)]
    assert bench.send("b", "y", 100) == [("b", ("y", None, True), 100)]
    assert bench.send("c", "z", 99) == []


def test_subtractor_is_not_called_for_a_group_without_row(bench, kv):
    bench.open(kv()).add(TableAggregate("store", TABLE_COUNT))

    assert bench.send("g", (None, "x", True), 1) == [("g", (None, None, True), 1)]
    assert bench.send("g", ("x", "w", True), 2) == [("g", (1, None, True), 2)]


def test_table_reduce_takes_the_first_value_as_it_is(bench, kv):
    bench.open(kv()).add(
        TableAggregate("store", table_reduction(lambda held, new: held + new, lambda held, old: held - old))
    )

    assert bench.send("g", (5, None, True), 1) == [("g", (5, None, True), 1)]
    assert bench.send("g", (2, None, True), 3) == [("g", (7, None, True), 3)]
    assert bench.send("g", (None, 5, True), 2) == [("g", (2, None, True), 3)]


@pytest.mark.parametrize(
    "operator", [TableAggregate("store", TABLE_COUNT), TableAggregate("store", table_reduction(max, min))]
)
def test_group_without_key_is_an_error(bench, kv, operator):
    bench.open(kv()).add(operator)

    with pytest.raises(StreamsError, match="no key"):
        bench.send(None, (1, None, True), 1)
