"""Aggregates over tumbling, hopping and unlimited windows."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.records import Window, Windowed
from streams.core.event_time.windows import TimeWindows, UnlimitedWindows
from streams.core.serdes.serdes import JSON, STRING
from streams.dsl.processing import COUNT, Fold, StoreValues, WindowAggregate, reduction

TUMBLING = TimeWindows(10, 10)


def test_tumbling_count(bench, window_store, shown):
    bench.open(window_store()).add(WindowAggregate("store", TUMBLING, COUNT))

    assert shown(bench.send("a", "x", 3)) == [("a@0/10", 1, 3)]
    assert shown(bench.send("a", None, 1)) == [("a@0/10", 2, 3)]
    assert shown(bench.send("a", "x", 10)) == [("a@10/20", 1, 10)]


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


def test_record_behind_grace_is_dropped_and_counted(bench, window_store, shown):
    """Stream time 30, window [0, 10), grace 20: a record at 9 is late, at stream time 29 it is not."""
    bench.open(window_store()).add(WindowAggregate("store", TimeWindows(10, 10, 20), COUNT))

    bench.send("a", "x", 29)
    assert shown(bench.send("a", "x", 9)) == [("a@0/10", 1, 9)]
    bench.send("a", "x", 30)
    assert bench.send("a", "x", 9) == []
    assert bench.dropped.total() == 1


def test_null_key_is_dropped_and_does_not_move_time(bench, window_store, shown):
    bench.open(window_store()).add(WindowAggregate("store", TUMBLING, COUNT))

    assert bench.send(None, "x", 99) == []
    assert shown(bench.send("a", "x", 3)) == [("a@0/10", 1, 3)]


def test_hopping_updates_all_open_windows_in_order_of_their_start(bench, window_store, shown):
    bench.open(window_store()).add(
        WindowAggregate("store", TimeWindows(10, 4), Fold(lambda: 0, lambda k, v, n: n + v), True)
    )

    assert shown(bench.send("a", 2, 9)) == [("a@0/10", 2, 9), ("a@4/14", 2, 9), ("a@8/18", 2, 9)]
    assert shown(bench.send("a", 3, 12)) == [("a@4/14", 5, 12), ("a@8/18", 5, 12), ("a@12/22", 3, 12)]
    assert shown(bench.send("a", 1, 9)) == [("a@4/14", 6, 12), ("a@8/18", 6, 12)]
    assert bench.dropped.total() == 1


def test_old_value_of_a_new_window_is_the_initial_one(bench, window_store):
    bench.open(window_store("a"), window_store("r", STRING))
    bench.add(WindowAggregate("a", TUMBLING, Fold(lambda: 0, lambda k, v, n: n + 1), True), "a")
    bench.add(WindowAggregate("r", TUMBLING, reduction(lambda old, new: old + new), True), "r")

    assert [value for _, value, _ in bench.send("k", "x", 1, node="a")] == [(1, 0, True)]
    assert [value for _, value, _ in bench.send("k", "x", 1, node="r")] == [("x", None, True)]
    assert [value for _, value, _ in bench.send("k", "y", 1, node="r")] == [("xy", "x", True)]


def test_unlimited_window_starts_at_its_start_and_never_closes(bench, window_store, shown):
    end = (1 << 63) - 1
    bench.open(window_store(size_ms=end, retention_ms=end)).add(WindowAggregate("store", UnlimitedWindows(5), COUNT))

    assert bench.send("a", "x", 4) == []
    assert shown(bench.send("a", "x", 5)) == [(f"a@5/{end}", 1, 5)]
    assert shown(bench.send("a", "x", 10**15)) == [(f"a@5/{end}", 2, 10**15)]


def test_on_close_each_window_goes_out_once_by_start_then_key(bench, window_store, shown):
    bench.open(window_store()).add(WindowAggregate("store", TimeWindows(10, 10, 5), COUNT, emit_on_close=True))

    for key, time in (("b", 1), ("a", 3), ("a", 11), ("b", 14), ("a", 2)):
        assert bench.send(key, "x", time) == []
    assert shown(bench.send("c", "x", 30)) == [
        ("a@0/10", 2, 3),
        ("b@0/10", 1, 1),
        ("a@10/20", 1, 11),
        ("b@10/20", 1, 14),
    ]
    assert bench.send("c", "x", 31) == []


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

    get = StoreValues("store").getter(bench._contexts[0])

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
    assert bench.dropped.total() == late
