"""Windows of a user's own: assigned, merged and closed by a ``Windower``."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from attrs import frozen

from streams import (
    DropNote,
    EmitStrategy,
    ProcessingError,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    Topic,
    TopologyError,
    Window,
    Windowed,
    Windower,
    session_windowed,
)
from streams.testing import TopologyTestDriver
from streams.topology.describe import describe

orders = Topic("orders", key=str, value=int)
counts = Topic("counts", key=session_windowed(str), value=int)
lost = Topic("lost", key=str, value=int)
MS = timedelta(milliseconds=1)


@frozen
class Gaps(Windower[str, int]):
    """Sessions with a gap of ``value`` ms after each record: the gap is dynamic, as in Flink."""

    retention: timedelta = 100 * MS
    grace_ms: int = 0

    def assign(self, key: str, value: int, timestamp_ms: int, windows: Sequence[Window]) -> list[Window]:
        return [Window(timestamp_ms, timestamp_ms + value)] if value else []

    def merge(self, windows: Sequence[Window]) -> list[Window]:
        merged: list[Window] = []
        for window in windows:
            if merged and window.start_ms <= merged[-1].end_ms:
                window = Window(merged[-1].start_ms, max(merged.pop().end_ms, window.end_ms))
            merged.append(window)
        return merged

    def close(self, window: Window) -> int:
        return window.end_ms + 1 + self.grace_ms


@frozen
class Quarters(Windower[str, int]):
    """Windows of 25 ms that accept records for 10 ms more; windows that are open may be chosen by the record."""

    retention: timedelta = 100 * MS

    def assign(self, key: str, value: int, timestamp_ms: int, windows: Sequence[Window]) -> Sequence[Window]:
        if value < 0:
            return windows
        start = timestamp_ms - timestamp_ms % 25
        return [Window(start, start + 25)]

    def close(self, window: Window) -> int:
        return window.end_ms + 10


def topology_of(windower, emit=None):
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(orders).group_by_key().windowed_by(windower)
        windowed = emit(windowed) if emit else windowed
        windowed.count("counted").to_stream().to(counts)
        windowed.dropped().to(lost)

    return topology


def on_close(windowed):
    return windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)


def pipe(driver, *records):
    for key, value, time_ms in records:
        driver.pipe(orders, value, key=key, timestamp_ms=time_ms)


def results(driver):
    return [
        (f"{r.key.key}@{r.key.window[0]}/{r.key.window[1]}", r.value, r.timestamp_ms)
        for r in driver.read_records(counts)
    ]


def test_records_choose_among_the_open_windows_and_are_late_for_closed_ones():
    with TopologyTestDriver(topology_of(Quarters())) as driver:
        pipe(driver, ("a", 1, 0), ("a", 1, 30), ("a", -1, 31), ("b", 1, 35), ("a", 1, 3), ("a", -1, 36))

        assert results(driver) == [
            ("a@0/25", 1, 0),
            ("a@25/50", 1, 30),
            ("a@0/25", 2, 31),
            ("a@25/50", 2, 31),
            ("b@25/50", 1, 35),
            ("a@25/50", 3, 36),
        ]
        (record,) = driver.read_records(lost)
        note = DropNote.of(record.headers)
        assert (note.reason, note.late_ms, note.window) == ("late", 0, Window(0, 25))


def test_store_is_a_session_store():
    with TopologyTestDriver(topology_of(Quarters())) as driver:
        pipe(driver, ("a", 1, 0), ("a", 1, 30))

        assert list(driver.store("counted").fetch("a")) == [
            (Windowed("a", Window(0, 25)), 1),
            (Windowed("a", Window(25, 50)), 1),
        ]
        assert driver.topology.stores["counted"].retention_ms == 100


def test_describe_names_store_and_changelog():
    builder = StreamsBuilder()
    topology_of(Quarters())(builder)

    assert describe(builder.build()).internal_topics == ("counted-changelog",)


def test_window_that_is_forgotten_before_it_closes_is_an_error_or_its_records_expire():
    short = Quarters(retention=3 * MS)
    with TopologyTestDriver(topology_of(short, on_close), default_store="in_memory") as driver:
        pipe(driver, ("a", 1, 0), ("b", 1, 30))
        with pytest.raises(ProcessingError, match="give a retention longer than 3 ms"):
            pipe(driver, ("b", 1, 40))


@pytest.mark.parametrize(
    ("assigned", "merged", "message"),
    [
        ([(0, 5)], None, None),
        (None, None, r"Strange\.assign returned None; it must return a list of windows"),
        (Window(0, 5), None, r"Strange\.assign returned Window\(.*\); it must return a list of windows"),
        (["x"], None, r"Strange\.assign returned 'x'; it must return windows"),
        ([(5, 0)], None, r"Strange\.assign returned \(5, 0\)"),
        ([(-1, 0)], None, r"Strange\.assign returned \(-1, 0\)"),
        ([(0, 1.5)], None, r"Strange\.assign returned \(0, 1.5\)"),
        ([(0, 5)], [(1, 5)], r"Strange\.merge returned 0 windows that contain"),
        ([(0, 5)], [(0, 6), (0, 7)], r"Strange\.merge returned 2 windows that contain"),
        ([(0, 5)], [None], r"Strange\.merge returned None"),
    ],
)
def test_results_of_a_windower_are_checked(assigned, merged, message):
    class Strange(Quarters):
        def assign(self, key, value, timestamp_ms, windows):
            return assigned

        def merge(self, windows):
            return windows if merged is None else merged

    with TopologyTestDriver(topology_of(Strange())) as driver:
        if message is None:
            pipe(driver, ("a", 1, 0))
            return
        with pytest.raises(ProcessingError, match=message):
            pipe(driver, ("a", 1, 0))


@pytest.mark.parametrize("closing", [None, 1.5, "5"])
@pytest.mark.parametrize("emits", [lambda windowed: windowed, on_close], ids=["each update", "on close"])
def test_closing_time_is_a_whole_number(closing, emits):
    class Strange(Quarters):
        def close(self, window):
            return closing

    with TopologyTestDriver(topology_of(Strange(), emits)) as driver:
        with pytest.raises(ProcessingError, match=r"Strange\.close returned .* for Window\(.*a whole number of ms"):
            pipe(driver, ("a", 1, 0))


def test_arguments_are_refused():
    grouped = StreamsBuilder().stream(orders).group_by_key()

    with pytest.raises(TopologyError, match=r"CalendarWindows or a Windower, got .*give an instance, such as Quarters"):
        grouped.windowed_by(Quarters)
    with pytest.raises(TopologyError, match="CalendarWindows or a Windower, got"):
        grouped.windowed_by("minutes")
    with pytest.raises(TopologyError, match="must be at least 1 ms"):
        grouped.windowed_by(Quarters(retention=timedelta(0)))
    with pytest.raises(TopologyError, match="must be a timedelta"):
        grouped.windowed_by(Quarters(retention=5))
    with pytest.raises(TopologyError, match="shorter than its"):
        grouped.windowed_by(Quarters()).count(retention=MS)
    with pytest.raises(TopologyError, match="a Windower, use emit_strategy"):
        grouped.windowed_by(Quarters()).count().suppress(Suppressed.until_window_closes())


class Nothing(Windower[str, int]):
    """A windower without any of its parts."""


class Closing(Nothing):
    def close(self, window: Window) -> int:
        return window.end_ms


class Assigning(Closing):
    def assign(self, key, value, timestamp_ms, windows):
        return [Window(timestamp_ms, timestamp_ms + 5)]


class Waiting(Quarters):
    async def close(self, window):
        return window.end_ms


class Narrow(Quarters):
    def assign(self, key, value):
        return []


@pytest.mark.parametrize(
    ("windower", "message"),
    [
        (Nothing(), r"assign of Nothing is not defined; .* the method assign\(key, value, timestamp_ms, windows\)"),
        (Closing(), "assign of Closing is not defined"),
        (Assigning(), "Assigning has no retention; set it to"),
        (Waiting(), r"close of Waiting: .* is async"),
        (Narrow(), r"assign of Narrow: .* takes \(key, value\); give a function of \(key, value, timestamp_ms"),
    ],
)
def test_windower_that_lacks_a_part_is_rejected_when_the_topology_is_built(windower, message):
    with pytest.raises(TopologyError, match=message):
        StreamsBuilder().stream(orders).group_by_key().windowed_by(windower)


def test_windower_of_sessions_gives_what_session_windows_give():
    """With a fixed gap, the windows of records that are merged are those of ``SessionWindows``."""

    class Sessions(Gaps):
        def assign(self, key, value, timestamp_ms, windows):
            near = [w for w in windows if w.start_ms - 5 <= timestamp_ms <= w.end_ms + 5]
            return [Window(min([timestamp_ms, *(w[0] for w in near)]), max([timestamp_ms, *(w[1] for w in near)]))]

        def close(self, window):
            return window.end_ms + 5 + 20 + 1

    rows = [
        ("a", 1, 10),
        ("a", 1, 18),
        ("b", 1, 20),
        ("a", 1, 14),
        ("a", 1, 40),
        ("b", 1, 22),
        ("a", 1, 12),
        ("a", 1, 60),
    ]
    found = []
    for windows in (Sessions(), SessionWindows.of(5 * MS, grace=20 * MS)):
        with TopologyTestDriver(topology_of(windows)) as driver:
            pipe(driver, *rows)
            found.append({row[:2] for row in results(driver) if row[1] is not None})
    assert found[0] == found[1]


def test_why_names_the_records_of_a_window():
    with TopologyTestDriver(topology_of(Gaps())) as driver:
        pipe(driver, ("a", 5, 0), ("a", 5, 4))
        output = driver.why("a", counts).outputs[-1]
        (made,) = output.causes
        assert "2 records of key 'a' in session" in made.text
