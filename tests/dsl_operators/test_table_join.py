"""Joins of a stream with tables, and of two tables."""

import pytest

from streams.core.errors import StreamsError, TopologyError
from streams.core.metrics import DropReason
from streams.core.serdes.serdes import STRING
from streams.dsl.processing import (
    WAITING_RECORD,
    JoinKind,
    StoreValues,
    StreamGlobalTableJoin,
    StreamTableJoin,
    TableJoinMerge,
    TableSource,
    TableTableJoin,
    buffer_spec,
)


def both(left, right):
    return f"{left}+{right}"


def test_stream_meets_the_row_as_it_is_now(bench, kv):
    bench.open(kv("t", STRING)).add(TableSource("t"), "table")
    bench.add(StreamTableJoin(StoreValues("t"), both, False), "inner")
    bench.add(
        StreamTableJoin(StoreValues("t"), lambda key, left, right: f"{key}{left}{right}", True, is_left=True), "left"
    )

    assert bench.send("a", "x", 50, node="inner") == []
    assert bench.send("a", "x", 50, node="left") == [("a", "axNone", 50)]
    bench.send("a", "row", 99, node="table")
    assert bench.send("a", "x", 1, node="inner") == [("a", "x+row", 1)]
    assert bench.tallies[DropReason.UNJOINED].value == 1


def test_stream_records_without_key_or_value_are_dropped_but_a_left_join_needs_no_key(bench, kv):
    bench.open(kv("t", STRING))
    bench.add(StreamTableJoin(StoreValues("t"), both, False), "inner")
    bench.add(StreamTableJoin(StoreValues("t"), both, False, is_left=True), "left")

    assert bench.send(None, "x", 1, node="inner") == []
    assert bench.send(None, "x", 1, node="left") == [(None, "x+None", 1)]
    assert bench.send("a", None, 1, node="left") == []
    assert bench.dropped == {DropReason.NULL_KEY: 1, DropReason.NULL_VALUE: 1}


def test_global_table_is_looked_up_by_the_mapped_key(bench, kv):
    bench.open(kv("g", STRING)).add(TableSource("g"), "table")
    key_of = lambda key, value: value  # noqa: E731
    bench.add(StreamGlobalTableJoin(StoreValues("g"), key_of, both, False), "inner")
    bench.add(StreamGlobalTableJoin(StoreValues("g"), lambda k, v: None, both, False, is_left=True), "left")
    bench.send("v", "row", 1, node="table")

    assert bench.send("a", "v", 5, node="inner") == [("a", "v+row", 5)]
    assert bench.send("a", None, 5, node="inner") == []
    assert bench.send("a", "v", 5, node="left") == [("a", "v+None", 5)]
    assert bench.dropped.total() == 1


def test_joiner_of_a_global_table_may_have_both_keys(bench, kv):
    """As Kafka Streams 4.4 passes them; a left join has no key of the row where the mapper gives None."""
    bench.open(kv("g", STRING)).add(TableSource("g"), "table")

    def told(key, row_key, left, right):
        return f"{key} {row_key} {left} {right}"

    for name, table_key, is_left in (
        ("inner", lambda key, value: value, False),
        ("left", lambda key, value: value if value == "v" else None, True),
    ):
        bench.add(StreamGlobalTableJoin(StoreValues("g"), table_key, told, False, is_left, True), name)
    bench.send("v", "row", 1, node="table")

    assert bench.send("a", "v", 5, node="inner") == [("a", "a v v row", 5)]
    assert bench.send("a", "w", 5, node="inner") == []
    assert bench.send("a", "v", 5, node="left") == [("a", "a v v row", 5)]
    assert bench.send("a", "w", 5, node="left") == [("a", "a None w None", 5)]


def test_versioned_table_is_read_as_of_the_records_time(bench, versioned):
    bench.open(versioned("t")).add(TableSource("t"), "table")
    bench.add(StreamTableJoin(StoreValues("t"), both, False, is_left=True), "join")
    bench.send("a", "old", 10, node="table")
    bench.send("a", "new", 20, node="table")

    assert bench.send("a", "x", 15, node="join") == [("a", "x+old", 15)]
    assert bench.send("a", "x", 5, node="join") == [("a", "x+None", 5)]


@pytest.fixture
def waiting(bench, versioned):
    """A join with grace 10 of records that go to the node ``join``."""
    bench.open(versioned("t"), buffer_spec("buffer", WAITING_RECORD, STRING, STRING)).add(TableSource("t"), "table")
    return bench.add(StreamTableJoin(StoreValues("t"), both, False, True, 10, "buffer", STRING), "join")


def test_with_grace_records_wait_and_meet_the_row_of_their_time(waiting):
    assert waiting.send("a", "x", 20, node="join") == []
    waiting.send("a", "row", 15, node="table")
    assert waiting.send("b", "y", 29, node="join") == []
    assert waiting.send("c", "z", 30, node="join") == [("a", "x+row", 20)]
    assert waiting.send("d", "w", 19, node="join") == [("d", "w+None", 19)]
    assert waiting.send("e", "v", 20, node="join") == [("e", "v+None", 20)]


def test_waiting_records_leave_by_time_key_and_arrival_after_a_restart(waiting):
    for key, value, time in (("b", "1", 21), ("b", "2", 21), ("a", "3", 21), ("c", "4", 20)):
        waiting.send(key, value, time, node="join")

    waiting.restart()

    assert [row[1][0] for row in waiting.send("z", "x", 99, node="join")] == ["4", "3", "1", "2"]
    assert [row[1] for row in waiting.flush()] == ["x+None"]
    assert [origin.offset for origin in waiting.origins] == [3, 2, 0, 1, 4]


def test_a_record_without_key_cannot_wait(waiting):
    with pytest.raises(StreamsError, match="without key"):
        waiting.send(None, "x", 1, node="join")


def test_grace_needs_a_versioned_table(bench, kv):
    bench.open(kv("t", STRING), buffer_spec("buffer", WAITING_RECORD, STRING, STRING))

    with pytest.raises(TopologyError, match="versioned"):
        bench.add(StreamTableJoin(StoreValues("t"), both, False, True, 10, "buffer", STRING))


@pytest.fixture
def tables(bench, kv):
    """Makes a join of the tables ``l`` and ``r``, whose rows go to the nodes ``left`` and ``right``."""

    def make(kind, *, send_old=True, is_versioned=False, store=None):
        bench.open(kv("l", STRING), kv("r", STRING), kv("result", STRING))
        bench.add(TableJoinMerge(store, send_old), "merge")
        for side, other in (("left", "r"), ("right", "l")):
            operator = TableTableJoin(StoreValues(other), both, False, kind, side == "left", send_old, is_versioned)
            bench.add(operator, f"join-{side}", to="merge")
            bench.add(TableSource(side[0], send_old), side, to=f"join-{side}")
        return bench

    return make


def test_inner_table_join_has_the_later_time_of_both_rows(tables):
    bench = tables(JoinKind.INNER)

    assert bench.send("a", "L", 20, node="left") == []
    assert bench.send("a", "R", 10, node="right") == [("a", ("L+R", None, True), 20)]
    assert bench.send("a", "M", 5, node="left") == [("a", ("M+R", "L+R", True), 10)]
    assert bench.send("a", None, 6, node="right") == [("a", (None, "M+R", True), 6)]
    assert bench.send("a", None, 7, node="left") == []


def test_left_table_join(tables):
    bench = tables(JoinKind.LEFT)

    assert bench.send("a", "L", 20, node="left") == [("a", ("L+None", None, True), 20)]
    assert bench.send("a", "R", 10, node="right") == [("a", ("L+R", "L+None", True), 20)]
    assert bench.send("a", None, 30, node="right") == [("a", ("L+None", "L+R", True), 30)]
    assert bench.send("a", None, 31, node="left") == [("a", (None, "L+None", True), 31)]
    assert bench.send("a", None, 32, node="left") == []
    assert bench.send("a", "R", 33, node="right") == []


def test_outer_table_join(tables):
    bench = tables(JoinKind.OUTER)

    assert bench.send("a", "R", 10, node="right") == [("a", ("None+R", None, True), 10)]
    assert bench.send("a", "L", 5, node="left") == [("a", ("L+R", "None+R", True), 10)]
    assert bench.send("a", None, 11, node="right") == [("a", ("L+None", "L+R", True), 11)]
    assert bench.send("a", None, 12, node="left") == [("a", (None, "L+None", True), 12)]
    assert bench.send("a", None, 13, node="left") == []


def test_without_old_values_deletions_of_nothing_still_go_out(tables):
    bench = tables(JoinKind.INNER, send_old=False)
    bench.send("a", "R", 10, node="right")

    assert bench.send("a", None, 12, node="left") == [("a", (None, None, True), 12)]


def test_late_records_of_a_versioned_table_and_null_keys_are_dropped(tables):
    bench = tables(JoinKind.OUTER, is_versioned=True)

    assert bench.send("a", ("x", None, False), 1, node="join-left") == []
    assert bench.send(None, ("x", None, True), 1, node="join-left") == []
    assert bench.dropped.total() == 2


def test_materialized_join_keeps_its_result(tables):
    bench = tables(JoinKind.OUTER, store="result")

    assert bench.send("a", "L", 5, node="left") == [("a", ("L+None", None, True), 5)]
    assert bench.stores["result"].get("a") == ("L+None", 5)
