"""Aggregates over sessions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.records import Window, Windowed
from streams.core.event_time.windows import SessionWindows
from streams.core.serdes.serdes import JSON, STRING
from streams.dsl.processing import COUNT, Fold, SessionAggregate, StoreValues, reduction
from streams.state import RecordCache


def test_session_of_equal_bounds_is_replaced_without_a_deletion(bench, session_store):
    bench.open(session_store()).add(SessionAggregate("store", SessionWindows(5), COUNT, send_old=True))

    bench.send("a", "x", 10)
    assert bench.send("a", "x", 10) == [(Windowed("a", Window(10, 10)), (2, None, True), 10)]


def test_behind_the_cache_the_replaced_session_is_the_old_value(bench, session_store):
    bench.cache = RecordCache(0)
    bench.open(session_store()).add(SessionAggregate("store", SessionWindows(5), COUNT, send_old=True))

    bench.send("a", "x", 10)
    assert bench.send("a", "x", 10) == [(Windowed("a", Window(10, 10)), (2, 1, True), 10)]


def test_results_carry_no_headers(bench, session_store):
    bench.open(session_store()).add(SessionAggregate("store", SessionWindows(5), COUNT))

    bench.ready()._bound["node"]("a", "x", 10, (("h", b"1"),))

    assert bench.take_full()[0][3] is None


def test_reduce_merges_older_sessions_first_and_adds_the_record_last(bench, session_store, shown):
    bench.open(session_store(value=STRING)).add(
        SessionAggregate("store", SessionWindows(5, 100), reduction(lambda one, two: one + two))
    )

    bench.send("a", "A", 10)
    bench.send("a", "B", 20)
    assert shown(bench.send("a", "C", 15))[-1] == ("a@10/20", "ABC", 20)


@pytest.mark.parametrize("gap", [0, 1, 5])
def test_on_close_no_session_is_lost_with_the_usual_retention(bench, session_store, shown, gap):
    """Retained for gap and grace, a session is out of sight of other reads one ms before it closes."""
    bench.open(session_store(retention_ms=gap)).add(
        SessionAggregate("store", SessionWindows(gap), COUNT, emit_on_close=True)
    )

    sent = [(key, time + late) for time in (0, 100) for key, late in (("a", 0), ("b", gap))]
    found = [row for key, time in [*sent, ("c", 1000)] for row in shown(bench.send(key, "x", time))]

    assert found == [(f"{key}@{time}/{time}", 1, time) for key, time in sent]


def test_final_flush_gives_out_open_sessions(bench, session_store, shown):
    bench.open(session_store()).add(SessionAggregate("store", SessionWindows(5), COUNT, emit_on_close=True))
    bench.send("a", "x", 10)

    assert shown(bench.flush()) == [("a@10/10", 1, 10)]


def test_lookup_of_a_session(bench, session_store):
    bench.open(session_store()).add(SessionAggregate("store", SessionWindows(5), COUNT))
    bench.send("a", "x", 10)

    get = StoreValues("store").getter(bench.contexts[0])

    assert get(Windowed("a", Window(10, 10))) == (1, 10)
    assert get(Windowed("a", Window(10, 11))) is None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=20), st.integers(0, 9))
def test_sessions_are_those_of_the_definition(new_bench, session_store, records, gap):
    """Whatever the order: records of a key at most the gap apart belong to one session."""
    bench = new_bench().open(session_store(value=JSON))
    windows = SessionWindows(gap, 1000)
    bench.add(
        SessionAggregate(
            "store", windows, Fold(list, lambda k, v, held: sorted([*held, v]), lambda k, a, b: sorted(a + b))
        )
    )
    table = {}
    for key, time in records:
        for windowed, (new, _, _), _ in bench.send(key, time, time):
            if new is None:
                del table[windowed]
            else:
                table[windowed] = new
    expected = {}
    for key in "ab":
        session: list[int] = []
        for time in [*sorted(time for at, time in records if at == key), 1 << 60]:
            if session and time - session[-1] > gap:
                expected[Windowed(key, Window(session[0], session[-1]))] = session
                session = []
            session.append(time)

    assert table == expected
