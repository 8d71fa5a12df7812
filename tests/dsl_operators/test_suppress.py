"""Holding back a table's changes."""

import pytest

from streams.core.blocks.records import Window, Windowed
from streams.core.serdes.serdes import STRING, time_windowed_ms
from streams.dsl.processing import (
    SUPPRESSED_CHANGE,
    Closing,
    StoreValues,
    Suppress,
    SuppressedValues,
    TableFilter,
    TableSource,
    buffer_spec,
)
from streams.state import RecordCache

WINDOWED = time_windowed_ms(STRING, 10)


def held(bench, wait_ms, **options):
    """A buffer of changes with text keys."""
    bench.open(buffer_spec("buffer", SUPPRESSED_CHANGE, STRING, STRING))
    return bench.add(Suppress("buffer", STRING, STRING, wait_ms, **options))


@pytest.fixture
def final(bench):
    """A buffer until windows close, grace 5."""
    bench.open(buffer_spec("buffer", SUPPRESSED_CHANGE, WINDOWED, STRING))
    return bench.add(Suppress("buffer", WINDOWED, STRING, 5, until_window_closes=True, shut_down_when_full=True))


def window(key, start):
    return Windowed(key, Window(start, start + 10))


def test_changes_leave_by_time_then_key_bytes_with_their_headers_and_origins(bench):
    held(bench, 10)
    process = bench.ready()._bound["node"]
    for key in "ba":
        process(key, ("x", None, True), 5, ((key, None),))
        bench.record.offset += 1

    process("z", ("y", None, True), 15, None)

    assert [(row[0], row[3]) for row in bench.take_full()] == [("a", (("a", None),)), ("b", (("b", None),))]
    assert [origin.offset for origin in bench.record.origins] == [1, 0]


def test_rows_that_do_not_pass_a_filter_close_windows(final):
    """Also when the task has been opened again in between: the time that has passed is that of the buffer."""
    passes = TableFilter(lambda _, text: len(text) > 1, send_old=True, closings=(Closing("buffer", ()),))
    final.add(passes, "filter", to="node")

    assert final.send(window("a", 0), ("xy", None, True), 1, node="filter") == []
    assert final.send(window("a", 10), ("x", None, True), 14, node="filter") == []
    assert final.send(window("b", 10), ("x", None, True), 15, node="filter") == [
        (window("a", 0), ("xy", None, True), 1)
    ]
    final.restart()
    assert final.send(window("c", 0), ("zz", None, True), 9, node="filter") == [(window("c", 0), ("zz", None, True), 9)]


def test_rows_that_do_not_pass_close_no_window_of_which_a_cache_may_hold_changes(final, kv):
    """The time comes with the changes of the cache, or the window would be emitted before its last ones, and again."""
    final.cache = RecordCache(0)
    final.open(kv("mapped"))
    passes = TableFilter(lambda _, text: len(text) > 1, send_old=True, closings=(Closing("buffer", ("mapped",)),))
    final.add(passes, "filter", to="node")

    assert final.send(window("a", 0), ("xy", None, True), 1, node="filter") == []
    assert final.send(window("b", 10), ("x", None, True), 15, node="filter") == []
    assert final.send(window("b", 10), ("xx", None, True), 16, node="filter") == [
        (window("a", 0), ("xy", None, True), 1)
    ]


def test_full_buffer_by_bytes_emits_early(bench):
    """A change weighs 28 bytes, key and values, and the topic's name."""
    held(bench, 100, max_bytes=2 * (28 + 1 + 1 + len("in")))

    assert bench.send("a", ("x", None, True), 1) == []
    assert bench.send("b", ("x", None, True), 2) == []
    assert bench.send("b", ("xy", None, True), 2) == [("a", ("x", None, True), 1)]


def test_held_changes_survive_a_restart(final):
    final.send(window("b", 0), ("1", None, True), 3)
    final.send(window("b", 0), ("2", "1", True), 4)

    final.restart()

    assert final.send(window("a", 10), ("3", None, True), 15) == [(window("b", 0), ("2", "1", True), 4)]
    assert final.flush() == [(window("a", 10), ("3", None, True), 15)]


def test_a_jump_to_a_huge_time_empties_the_buffer(final):
    final.send(window("b", 0), ("1", None, True), 3)

    assert len(final.send(window("b", 1 << 50), ("2", None, True), 1 << 50)) == 1


def test_lookup_sees_what_was_emitted_last(bench, kv):
    """While a change is held, the table behind is as it was before."""
    bench.open(kv("t", STRING))
    held(bench, 10)
    bench.add(TableSource("t", send_old=True), "table", to="node")
    get = SuppressedValues(StoreValues("t"), "buffer", STRING).getter(bench.contexts[0])

    bench.send("a", "1", 0, node="table")
    assert get("a") is None
    bench.send("b", "x", 10, node="table")
    assert get("a") == ("1", 0)
    bench.send("a", "2", 11, node="table")
    bench.send("a", "3", 12, node="table")
    assert get("a") == ("1", -1)
