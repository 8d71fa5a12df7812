"""Aggregates over sliding windows."""

from hypothesis import given
from hypothesis import strategies as st

from streams.core.event_time.windows import SlidingWindows
from streams.core.serdes.serdes import JSON, STRING
from streams.dsl.processing import COUNT, Fold, SlidingAggregate, reduction


def test_windows_of_records_in_order(bench, window_store, shown):
    """A record opens its left window, and the right window of the record before it."""
    bench.open(window_store()).add(SlidingAggregate("store", SlidingWindows(10), COUNT))

    assert shown(bench.send("a", "x", 20)) == [("a@10/20", 1, 20)]
    assert shown(bench.send("a", "x", 25)) == [("a@21/31", 1, 25), ("a@15/25", 2, 25)]
    assert shown(bench.send("a", "x", 25)) == [("a@21/31", 2, 25), ("a@15/25", 3, 25)]


def test_late_record_updates_windows_behind_it_and_opens_its_right_window(bench, window_store, shown):
    bench.open(window_store(value=STRING)).add(
        SlidingAggregate("store", SlidingWindows(10, 100), reduction(lambda old, new: old + new))
    )

    bench.send("a", "A", 20)
    bench.send("a", "B", 25)
    assert shown(bench.send("a", "C", 22)) == [
        ("a@21/31", "BC", 25),
        ("a@15/25", "ABC", 25),
        ("a@12/22", "AC", 22),
        ("a@23/33", "B", 25),
    ]


def test_records_before_the_difference_share_the_window_from_zero(bench, window_store, shown):
    bench.open(window_store()).add(SlidingAggregate("store", SlidingWindows(10), COUNT))

    assert shown(bench.send("a", "x", 2)) == [("a@0/10", 1, 2)]
    assert shown(bench.send("a", "x", 5)) == [("a@3/13", 1, 5), ("a@0/10", 2, 5)]
    assert shown(bench.send("a", "x", 1)) == [("a@2/12", 2, 5), ("a@0/10", 3, 5)]


def test_late_and_null_records_are_dropped(bench, window_store):
    """Stream time 40, difference 10, grace 5: a record at 24 is late, at 25 its own window is open."""
    bench.open(window_store()).add(SlidingAggregate("store", SlidingWindows(10, 5), COUNT))

    bench.send("a", "x", 40)
    assert bench.send("a", "x", 24) == []
    assert bench.send("a", None, 40) == []
    assert bench.send(None, "x", 40) == []
    assert bench.dropped.total() == 3


def test_on_close_each_window_goes_out_once_by_start_then_key(bench, window_store, shown):
    """A window that ends at 20 closes when stream time is above 20."""
    bench.open(window_store()).add(SlidingAggregate("store", SlidingWindows(10), COUNT, emit_on_close=True))

    assert bench.send("b", "x", 20) == []
    assert bench.send("a", "x", 20) == []
    assert shown(bench.send("c", "x", 21)) == [("a@10/20", 1, 20), ("b@10/20", 1, 20)]
    bench.restart()
    assert shown(bench.send("c", "x", 1 << 50)) == [("c@11/21", 1, 21)]


@given(st.lists(st.tuples(st.integers(12, 60), st.integers(1, 9)), max_size=14), st.integers(0, 12))
def test_windows_are_those_of_the_definition(new_bench, window_store, records, difference):
    """Whatever the order: each record's left window, and its right window if that is not empty."""
    bench = new_bench().open(window_store(value=JSON, size_ms=difference or 1))
    bench.add(
        SlidingAggregate("store", SlidingWindows(difference, 1000), Fold(list, lambda k, v, held: sorted([*held, v])))
    )
    for time, value in records:
        bench.send("a", value, time)
    expected = {}
    for time, _ in records:
        for start in (time - difference, time + 1):
            held = [(at, value) for at, value in records if start <= at <= start + difference]
            if held:
                expected[start] = (sorted(value for _, value in held), max(held)[0])

    found = {key.window.start_ms: tuple(value) for key, value in bench.stores["store"].all()}

    assert found == expected
