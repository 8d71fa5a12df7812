"""Joins of a stream with tables, and of two tables."""

import pytest

from streams.core.errors import StreamsError
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
    assert [origin.offset for origin in waiting.record.origins] == [3, 2, 0, 1, 4]


def test_a_record_without_key_cannot_wait(waiting):
    with pytest.raises(StreamsError, match="without key"):
        waiting.send(None, "x", 1, node="join")


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


def test_without_old_values_deletions_of_nothing_still_go_out(tables):
    bench = tables(JoinKind.INNER, send_old=False)
    bench.send("a", "R", 10, node="right")

    assert bench.send("a", None, 12, node="left") == [("a", (None, None, True), 12)]


def test_late_records_of_a_versioned_table_and_null_keys_are_dropped(tables):
    bench = tables(JoinKind.OUTER, is_versioned=True)

    assert bench.send("a", ("x", None, False), 1, node="join-left") == []
    assert bench.send(None, ("x", None, True), 1, node="join-left") == []
    assert bench.dropped == 2
