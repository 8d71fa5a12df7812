"""Joins of two streams within a window of time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.event_time.windows import JoinWindows
from streams.core.serdes.serdes import STRING, PinnedSerde
from streams.dsl.processing import JoinBuffer, JoinKind, StreamSelfJoin, StreamStreamJoin, unmatched_store


@pytest.fixture(scope="session")
def join(join_store):
    """Builds both sides of a join; records go to the nodes ``left`` and ``right``."""

    def make(bench, windows, kind, joiner=None, retention_ms=1_000_000, with_key=False):
        joiner = joiner or (lambda left, right: f"{left}+{right}")
        outer = None if kind is JoinKind.INNER else "outer"
        bench.open(join_store("l", retention_ms), join_store("r", retention_ms))
        bench.open(unmatched_store("outer", STRING, STRING, STRING))
        for side, other, is_left in (("left", "r", True), ("right", "l", False)):
            is_outer = kind is JoinKind.OUTER or (is_left and kind is JoinKind.LEFT)
            operator = StreamStreamJoin(
                "join", other, windows, joiner, with_key, is_left, is_outer, outer, STRING if outer else None
            )
            bench.add(operator, f"join-{side}").add(JoinBuffer(side[0]), side, to=f"join-{side}")
        return bench

    return make


def test_next_attempt_is_due_by_the_record_where_the_last_scan_ended(bench, join):
    """A scan at 16 ends at the record at 15; so the one at 14, due at 20, waits until that is due, too."""
    join(bench, JoinWindows(5, 5), JoinKind.LEFT)

    for key, time in (("a", 10), ("b", 14), ("c", 15)):
        bench.send(key, "L", time, node="left")
    assert bench.send("z", "r", 16, node="right") == [("a", "L+None", 10)]
    assert bench.send("z", "r", 20, node="right") == []
    assert bench.send("z", "r", 21, node="right") == [("b", "L+None", 14), ("c", "L+None", 15)]


def test_waiting_records_survive_a_restart(bench, join):
    join(bench, JoinWindows(5, 5), JoinKind.OUTER)
    bench.send("a", "L", 10, node="left")
    bench.send("b", "r", 11, node="right")

    bench.restart()

    assert bench.send("b", "L", 12, node="left") == [("b", "L+r", 12)]
    assert bench.send("z", "x", 99, node="right") == [("a", "L+None", 10)]


def test_final_flush_gives_out_waiting_records(bench, join):
    join(bench, JoinWindows(5, 5), JoinKind.OUTER)
    bench.send("a", "L", 10, node="left")

    assert bench.flush() == [("a", "L+None", 10)]
    assert bench.flush() == []


def test_record_that_fails_is_tried_again_and_the_one_before_it_comes_twice(bench, join):
    """As the reference: a record is forgotten when the next one is out."""
    fails = [True]

    def joiner(left, right):
        if left == "bad" and fails.pop():
            raise ValueError("no")
        return f"{left}+{right}"

    join(bench, JoinWindows(5, 5), JoinKind.LEFT, joiner)
    bench.send("a", "good", 10, node="left")
    bench.send("b", "bad", 11, node="left")
    with pytest.raises(ValueError, match="no"):
        bench.send("z", "x", 50, node="right")

    assert bench.take() == [("a", "good+None", 10)]
    fails.append(False)
    assert bench.send("z", "x", 51, node="right") == [("a", "good+None", 10), ("b", "bad+None", 11)]


def test_values_of_a_pinned_type_can_be_read_where_nothing_was_pinned_yet():
    row = (1, "x", "y")
    data = unmatched_store("s", STRING, PinnedSerde("writer"), STRING).value_serde.serialize(row)

    assert unmatched_store("s", STRING, PinnedSerde("reader"), STRING).value_serde.deserialize(data) == row


def test_self_join_meets_itself_between_older_and_newer_records(bench, join_store):
    bench.open(join_store("s"))
    bench.add(StreamSelfJoin("s", JoinWindows(5, 5), lambda one, two: one + two, False, 10), "join")
    bench.add(JoinBuffer("s"), to="join")

    assert bench.send("a", "1", 10) == [("a", "11", 10)]
    assert bench.send("a", "2", 12) == [("a", "21", 12), ("a", "12", 12), ("a", "22", 12)]
    assert bench.send("a", "3", 11) == [
        ("a", "31", 11),
        ("a", "32", 12),
        ("a", "13", 11),
        ("a", "33", 11),
        ("a", "23", 12),
    ]


@pytest.mark.parametrize("base_ms", [0, 1000])
def test_negative_bound_leaves_out_pairs_near_time_zero_as_at_any_other_time(bench, join, base_ms):
    """A payment comes 3 to 10 ms after its order, so that one after 1 ms has no order, now or later."""
    join(bench, JoinWindows(-3, 10, 1000), JoinKind.OUTER)

    assert bench.send("a", "order", base_ms, node="left") == []
    assert bench.send("a", "early", base_ms + 1, node="right") == [("a", "None+early", base_ms + 1)]
    assert bench.send("a", "paid", base_ms + 3, node="right") == [("a", "order+paid", base_ms + 3)]
    assert bench.flush() == []


@pytest.mark.parametrize("base_ms", [0, 1000])
def test_negative_bound_of_a_self_join_leaves_out_the_record_itself_and_pairs_near_time_zero(
    bench, join_store, base_ms
):
    bench.open(join_store("s", 1_000_000))
    bench.add(StreamSelfJoin("s", JoinWindows(-3, 5), lambda one, two: one + two, False, 10), "join")
    bench.add(JoinBuffer("s"), to="join")

    assert bench.send("a", "1", base_ms) == []
    assert bench.send("a", "2", base_ms + 1) == []
    assert bench.send("a", "3", base_ms + 4) == [("a", "13", base_ms + 4), ("a", "23", base_ms + 4)]


@given(
    st.lists(st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("ab"), st.integers(0, 40)), max_size=25),
    # A side may be negative: then a match is only before, or only after, the other record.
    st.tuples(st.integers(-9, 9), st.integers(-9, 9)).filter(lambda reach: sum(reach) >= 0),
    st.sampled_from(JoinKind),
    st.integers(0, 25),
)
def test_results_are_those_of_the_definition(new_bench, join, records, reach, kind, restart_at):
    """With grace enough all pairs within the window join, and who has none goes out alone in the end."""
    before, after = reach
    bench = join(new_bench(), JoinWindows(before, after, 1000), kind)
    results = []
    for index, (side, key, time) in enumerate(records):
        if index == restart_at:
            bench.restart()
        results += bench.send(key, f"{side}{index}", time, node=side)
    results += bench.flush()
    lefts = [(f"left{i}", key, time) for i, (side, key, time) in enumerate(records) if side == "left"]
    rights = [(f"right{i}", key, time) for i, (side, key, time) in enumerate(records) if side == "right"]
    pairs = [
        (left, right)
        for left in lefts
        for right in rights
        if left[1] == right[1] and left[2] - before <= right[2] <= left[2] + after
    ]
    expected = [(left[1], f"{left[0]}+{right[0]}", max(left[2], right[2])) for left, right in pairs]
    if kind is not JoinKind.INNER:
        expected += [(left[1], f"{left[0]}+None", left[2]) for left in lefts if left not in [p[0] for p in pairs]]
    alone = {f"None+{right[0]}" for right in rights if right not in [pair[1] for pair in pairs]}
    if kind is JoinKind.OUTER:
        expected += [(key, f"None+{name}", time) for name, key, time in rights if f"None+{name}" in alone]

    # A late record whose window lies behind stream time goes out alone at once, even if a partner follows.
    early = [row for row in results if row not in expected]
    assert all("None" in row[1] for row in early)
    assert sorted(row for row in results if row in expected) == sorted(expected)
