"""Early results: one operator over a real store."""

from streams.core.blocks.records import Window, Windowed
from streams.core.event_time.result_timing import ResultTiming
from streams.core.serdes.serdes import LONG, STRING, time_windowed_ms
from streams.dsl.processing import EARLY_RESULT, EarlyEvery, EarlyResults, buffer_spec

KEY = time_windowed_ms(STRING, 10)


def opened(bench, every):
    bench.open(buffer_spec("store", EARLY_RESULT, KEY, LONG))
    bench.add(EarlyResults("store", KEY, LONG, every, lambda window: window.end_ms, 10))
    return bench


def window(key, start):
    return Windowed(key, Window(start, start + 10))


def test_end_of_a_run_gives_open_windows_and_later_results_replace_these(bench):
    opened(bench, EarlyEvery(records=3))
    bench.send(window("b", 0), (4, None, True), 1)
    bench.send(window("a", 0), (1, None, True), 2)

    assert bench.flush() == [(window("a", 0), (1, None, True), 2), (window("b", 0), (4, None, True), 1)]
    assert bench.send(window("a", 0), (2, None, True), 3) == []
    bench.restart()
    assert bench.send(window("c", 10), (1, None, True), 10) == [
        (window("a", 0), (2, 1, True), 3),
        (window("b", 0), (4, 4, True), 1),
    ]


def test_counts_since_the_last_result_survive_a_restart(bench):
    opened(bench, EarlyEvery(records=3))
    for value in (1, 2):
        assert bench.send(window("a", 0), (value, None, True), 1) == []
    bench.restart()
    assert bench.send(window("a", 0), (3, None, True), 1) == [(window("a", 0), (3, None, True), 1)]


def test_changes_since_the_last_multiple_survive_a_restart(bench):
    opened(bench, EarlyEvery(ms=4))
    bench.send(window("a", 0), (1, None, True), 1)
    bench.restart()
    assert bench.send(window("b", 0), (1, None, True), 4) == [(window("a", 0), (1, None, True), 1)]
    bench.restart()
    assert bench.send(window("b", 0), (2, None, True), 8) == [(window("b", 0), (1, None, True), 4)]


def test_deleted_window_is_forwarded_only_if_a_result_of_it_was(bench):
    opened(bench, EarlyEvery(records=2))
    assert bench.send(window("a", 0), (1, None, True), 1) == []
    assert bench.send(window("a", 0), (None, None, True), 1) == []
    bench.send(window("a", 0), (1, None, True), 1)
    bench.send(window("a", 0), (2, None, True), 1)
    assert bench.send(window("a", 0), (None, None, True), 2) == [(window("a", 0), (None, 2, True), 2)]
    assert bench.send(window("b", 20), (1, None, True), 20) == []


def test_timing_replaces_that_of_an_operator_upstream():
    headers = ResultTiming.FINAL.marked((("x", b"1"), *ResultTiming.EARLY.marked(None)))

    assert headers == (("x", b"1"), ("__streams.result", b"final"))
