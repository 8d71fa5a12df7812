"""Aggregates over tumbling, hopping and unlimited windows."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.records import Window, Windowed
from streams.core.event_time.windows import TimeWindows
from streams.core.serdes.serdes import JSON, STRING
from streams.dsl.processing import COUNT, Fold, StoreValues, WindowAggregate, reduction

TUMBLING = TimeWindows(10, 10)


def test_a_range_that_was_read_shows_later_updates(bench, window_store):
    """Ranges are cached from the first one on: updates in place, without a call of the store, end there."""
    bench.open(window_store()).add(WindowAggregate("store", TUMBLING, COUNT))
    bench.send("a", "x", 3)
    store = bench.stores["store"]
    found = [list(store.fetch_range("a", 0, 10))]

    # A range stages what is dirty: only the second update after it could be made in place.
    for timestamp_ms in (4, 5, 6):
        bench.send("a", "x", timestamp_ms)
        found.append(list(store.fetch_range("a", 0, 10)))

    assert found == [[(0, (count, count + 2))] for count in (1, 2, 3, 4)]


def test_old_value_of_a_new_window_is_the_initial_one(bench, window_store):
    bench.open(window_store("a"), window_store("r", STRING))
    bench.add(WindowAggregate("a", TUMBLING, Fold(lambda: 0, lambda k, v, n: n + 1), True), "a")
    bench.add(WindowAggregate("r", TUMBLING, reduction(lambda old, new: old + new), True), "r")

    assert [value for _, value, _ in bench.send("k", "x", 1, node="a")] == [(1, 0, True)]
    assert [value for _, value, _ in bench.send("k", "x", 1, node="r")] == [("x", None, True)]
    assert [value for _, value, _ in bench.send("k", "y", 1, node="r")] == [("xy", "x", True)]


def test_on_close_results_carry_the_headers_of_the_record_that_closed_them(bench, window_store):
    bench.open(window_store()).add(WindowAggregate("store", TUMBLING, COUNT, emit_on_close=True))
    process = bench.ready()._bound["node"]

    process("a", "x", 1, (("h", b"1"),))
    process("a", "x", 10, (("h", b"2"),))

    assert [row[3] for row in bench.take_full()] == [(("h", b"2"),)]


def test_on_close_survives_a_jump_to_a_huge_time(bench, window_store, shown):
    bench.open(window_store(retention_ms=10)).add(
        WindowAggregate("store", TimeWindows(10, 1), COUNT, emit_on_close=True)
    )

    bench.send("a", "x", 0)
    assert shown(bench.send("a", "x", 1 << 50)) == [("a@0/10", 1, 0)]


def test_on_close_goes_on_after_a_restart(bench, window_store, shown):
    """A window emitted before is not emitted again, an open one is emitted when it closes."""
    bench.open(window_store()).add(WindowAggregate("store", TUMBLING, COUNT, emit_on_close=True))
    bench.send("a", "x", 1)
    assert shown(bench.send("a", "x", 12)) == [("a@0/10", 1, 1)]

    bench.restart()

    assert bench.send("a", "x", 13) == []
    assert shown(bench.send("a", "x", 25)) == [("a@10/20", 2, 13)]


def test_final_flush_gives_out_open_windows(bench, window_store, shown):
    bench.open(window_store()).add(WindowAggregate("store", TUMBLING, COUNT, emit_on_close=True))
    bench.send("a", "x", 1)
    bench.send("a", "x", 12)

    assert shown(bench.flush()) == [("a@10/20", 1, 12)]


def test_lookup_of_a_window(bench, window_store):
    bench.open(window_store()).add(WindowAggregate("store", TUMBLING, COUNT))
    bench.send("a", "x", 12)

    get = StoreValues("store").getter(bench.contexts[0])

    assert get(Windowed("a", Window(10, 20))) == (1, 12)
    assert get(Windowed("a", Window(0, 10))) is None


@given(
    st.integers(1, 12).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size), st.integers(0, 9))),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=30),
    st.booleans(),
)
def test_counts_are_those_of_the_definition(new_bench, window_store, shape, records, emit_on_close):
    """A record counts in each window that holds it and is open; all windows come out in the end."""
    size, advance, grace = shape
    bench = new_bench().open(window_store(value=JSON, size_ms=size))
    bench.add(WindowAggregate("store", TimeWindows(size, advance, grace), COUNT, emit_on_close=emit_on_close))
    expected: Counter[tuple[str, int]] = Counter()
    results, now, late = {}, 0, 0
    for key, time in records:
        now = max(now, time)
        for start in range(0, time + 1, advance):
            if start <= time < start + size:
                is_open = start + size > now - grace
                expected[key, start] += is_open
                late += not is_open
        for windowed, value, _ in bench.send(key, "x", time):
            assert (windowed.window.end_ms <= now - grace) is emit_on_close
            results[windowed.key, windowed.window.start_ms] = value[0]
    for windowed, value, _ in bench.flush():
        assert (windowed.key, windowed.window.start_ms) not in results
        results[windowed.key, windowed.window.start_ms] = value[0]

    assert results == +expected
    assert bench.dropped == late
