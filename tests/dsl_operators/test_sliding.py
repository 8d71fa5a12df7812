"""Aggregates over sliding windows."""

from hypothesis import given
from hypothesis import strategies as st

from streams.core.event_time.windows import SlidingWindows
from streams.core.serdes.serdes import JSON
from streams.dsl.processing import Fold, SlidingAggregate


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
