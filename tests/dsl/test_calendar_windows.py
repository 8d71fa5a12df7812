"""Windows of a calendar in a topology: results, late records, keys, stores, joins, and what is refused."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from streams import (
    CalendarWindows,
    DropNote,
    EmitStrategy,
    StoreError,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    TopologyError,
    Window,
    Windowed,
    session_windowed,
    time_windowed,
)
from streams.core.event_time import calendar
from streams.core.event_time.calendar import noted_windows, time_zone, windows_of
from streams.replay.handover.snapshot import structure_differences, structure_of
from streams.state import check_restored, open_store
from streams.testing import TopologyTestDriver

BERLIN = time_zone("Europe/Berlin")
sales = Topic("sales", key=str, value=int)
per_day = Topic("per-day", key=session_windowed(str), value=int)
DAYS = CalendarWindows.days("Europe/Berlin", grace=timedelta(hours=1))


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp() * 1000)


OPENINGS = [(datetime(2026, 3, day, 9), datetime(2026, 3, day, end)) for day, end in ((9, 17), (10, 19))]
#: A day of 23 hours, one of 25 hours.
SPRING = Window(at("2026-03-29"), at("2026-03-30"))
AUTUMN = Window(at("2026-10-25"), at("2026-10-26"))
ROWS = [
    (1, "2026-03-29T00:00"),
    (2, "2026-03-29T23:59:59"),
    (4, "2026-03-30"),
    (8, "2026-03-29T12:00"),  # Within the grace period.
    (16, "2026-10-25T00:00"),
    (32, "2026-03-29T23:00"),  # Late.
    (64, "2026-10-25T23:59:59"),
    (128, "2026-10-26T01:00"),
]


def final(windowed: Any) -> Any:
    return windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).reduce(int.__add__, name="sums")


def suppressed(windowed: Any) -> Any:
    return windowed.reduce(int.__add__, name="sums").suppress(Suppressed.until_window_closes())


def early(windowed: Any) -> Any:
    """A new value of a window is emitted each time a record is added, and the last one when it closes."""
    return windowed.emit(early_every=100).aggregate(int, lambda key, value, total: total + value, name="sums")


def outputs(results: Callable[[Any], Any]) -> tuple[list[tuple[Any, Any]], list[DropNote]]:
    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(sales).group_by_key().windowed_by(DAYS)
        results(windowed).to_stream().to(per_day)
        windowed.late().to("late")

    with TopologyTestDriver(topology) as driver:
        for value, when in ROWS:
            driver.pipe(sales, value, key="a", timestamp_ms=at(when))
        late = driver.read_records(Topic("late", key=str, value=int))
        return driver.read(per_day), [DropNote.of(record.headers) for record in late]


def test_each_update_has_the_window_of_its_day() -> None:
    updates, (note,) = outputs(lambda windowed: windowed.reduce(int.__add__, name="sums"))

    assert (SPRING.end_ms - SPRING.start_ms, AUTUMN.end_ms - AUTUMN.start_ms) == (23 * 3_600_000, 25 * 3_600_000)
    assert [(key.window, total) for key, total in updates if key.window in (SPRING, AUTUMN)] == [
        (SPRING, 1), (SPRING, 3), (SPRING, 11), (AUTUMN, 16), (AUTUMN, 80),
    ]  # fmt: skip
    assert note.window == SPRING
    assert note.late_ms == at("2026-10-25") - SPRING.end_ms - 3_600_000


@pytest.mark.parametrize("results", [final, suppressed, early])
def test_a_day_closes_at_its_end_plus_grace(results: Callable[[Any], Any]) -> None:
    """The last record, an hour after the end of the day of 25 hours, closes it."""
    closed, _ = outputs(results)

    assert [(key.window, total) for key, total in closed] == [
        (SPRING, 11), (Window(at("2026-03-30"), at("2026-03-31")), 4), (AUTUMN, 80),
    ]  # fmt: skip


def test_cogroups_and_openings_of_a_table() -> None:
    openings = [(datetime(2026, 3, day, 9), datetime(2026, 3, day, 17, 30)) for day in (9, 10)]

    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(sales).group_by_key()
        windowed = grouped.cogroup(lambda key, value, total: total + value, value=int).windowed_by(
            CalendarWindows.openings("Europe/Berlin", openings)
        )
        windowed.aggregate(lambda: 0, name="sums").to_stream().to(per_day)
        windowed.dropped().to("dropped")

    with TopologyTestDriver(topology) as driver:
        for value, when in ((1, "09T09:00"), (2, "09T17:29"), (4, "09T17:30"), (8, "10T08:59"), (16, "10T09:00")):
            driver.pipe(sales, value, key="a", timestamp_ms=at(f"2026-03-{when}"))

        first = Window(at("2026-03-09T09:00"), at("2026-03-09T17:30"))
        assert [(key.window, total) for key, total in driver.read(per_day)][:2] == [(first, 1), (first, 3)]
        second = Window(at("2026-03-10T09:00"), at("2026-03-10T17:30"))
        dropped = driver.read_records(Topic("dropped", key=str, value=int))
        assert [(record.value, DropNote.of(record.headers).reason.value) for record in dropped] == [
            (4, "no window"), (8, "no window"),
        ]  # fmt: skip
        assert next((key, row.value) for key, row in driver.store("sums").all()) == (Windowed("a", second), 16)


def test_keys_on_a_topic_have_the_bytes_of_sessions() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(sales).group_by_key().windowed_by(DAYS).count().to_stream().to("counts")

    with TopologyTestDriver(topology) as driver:
        driver.pipe(sales, 1, key="a", timestamp_ms=SPRING.start_ms)
        (record,) = driver.read_records(Topic("counts", key=bytes, value=int))

    assert record.key == b"a" + SPRING.end_ms.to_bytes(8, "big") + SPRING.start_ms.to_bytes(8, "big")
    assert record.key == session_windowed(str).serialize(Windowed("a", SPRING))


def joined(one: Any, two: Any) -> Callable[[StreamsBuilder], None]:
    def topology(builder: StreamsBuilder) -> None:
        grouped = builder.stream(sales).group_by_key()
        sums = grouped.windowed_by(one).reduce(int.__add__, name="sums")
        sums.join(grouped.windowed_by(two).count("counts"), lambda total, count: total * 100 + count).to_stream().to(
            per_day
        )

    return topology


def test_tables_with_windows_of_the_same_calendar_are_joined() -> None:
    with TopologyTestDriver(joined(DAYS, CalendarWindows.days("Europe/Berlin"))) as driver:
        driver.pipe(sales, 7, key="a", timestamp_ms=SPRING.start_ms)

        assert driver.read(per_day)[-1] == (Windowed("a", SPRING), 701)


def test_a_topic_with_keys_of_sessions_is_joined_as_one_that_has_the_same_windows() -> None:
    def topology(builder: StreamsBuilder) -> None:
        sums = builder.stream(sales).group_by_key().windowed_by(DAYS).reduce(int.__add__, "sums")
        sums.join(builder.table(per_day), lambda total, budget: total * 100 + budget).to_stream().to("compared")

    with TopologyTestDriver(topology) as driver:
        driver.pipe(per_day, 7, key=Windowed("a", SPRING), timestamp_ms=0)
        driver.pipe(sales, 1, key="a", timestamp_ms=SPRING.start_ms)

        assert driver.read(Topic("compared", key=session_windowed(str), value=int)) == [(Windowed("a", SPRING), 107)]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (CalendarWindows.days("Europe/Berlin", start=time(2)), "days of Europe/Berlin at 02:00:00.* not the same keys"),
        (CalendarWindows.days("Europe/Paris"), "days of Europe/Paris"),
        (TimeWindows.of(timedelta(days=1)), "time windows of 1 day"),
    ],
)
def test_tables_of_other_windows_are_not_joined(other: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        TopologyTestDriver(joined(DAYS, other))


def test_a_sink_of_time_windows_is_refused() -> None:
    def topology(builder: StreamsBuilder) -> None:
        topic = Topic("per-day", key=time_windowed(str, timedelta(days=1)), value=int)
        builder.stream(sales).group_by_key().windowed_by(DAYS).count().to_stream().to(topic)

    with pytest.raises(TopologyError, match=r"keys of days of Europe/Berlin, .* declare session_windowed\(\.\.\.\)"):
        TopologyTestDriver(topology)


def test_windows_with_an_offset() -> None:
    hours = TimeWindows.of(timedelta(hours=6), timedelta(hours=3), offset=timedelta(hours=1))

    def topology(builder: StreamsBuilder) -> None:
        windowed = builder.stream(sales).group_by_key().windowed_by(hours).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        windowed.count("n").to_stream().to("out")
        windowed.dropped().to("dropped")

    with TopologyTestDriver(topology) as driver:
        for hour in (0, 1, 4, 6, 7, 13):
            driver.pipe(sales, 1, key="a", timestamp_ms=hour * 3_600_000)
        out = driver.read(Topic("out", key=time_windowed(str, timedelta(hours=6)), value=int))

        assert [(key.window.start_ms // 3_600_000, count) for key, count in out] == [(1, 3), (4, 3), (7, 1)]
        assert driver.read(Topic("dropped", key=str, value=int)) == [("a", 1)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (OPENINGS[:1], OPENINGS, None),
        (TimeWindows.of(timedelta(hours=2)), CalendarWindows.hours("UTC"), "store .n. has calendar .* instead of None"),
    ],
)
def test_a_snapshot_fits_longer_openings_and_no_other_calendar(old: Any, new: Any, message: str | None) -> None:
    structures = []
    for windows in (old, new):
        builder = StreamsBuilder()
        if isinstance(windows, list):
            windows = CalendarWindows.openings("UTC", windows)
        builder.stream(sales).group_by_key().windowed_by(windows).count("n").to_stream().to("counts")
        structures.append(structure_of(builder.build(), {}))

    differences = list(structure_differences(*structures))
    assert differences == [] if message is None else re.match(message, differences[0])


def _older(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time zones of an earlier tzdata, in which Berlin has no summer time in 2026."""
    utc_plus_1 = timezone(timedelta(hours=1))
    windows_of.cache_clear()
    noted_windows.cache_clear()
    monkeypatch.setattr(calendar, "time_zone", lambda name: utc_plus_1)
    monkeypatch.setattr(calendar, "tzdata_version", lambda: "2025b")


@pytest.mark.parametrize("how", ["opened again", "restored from a snapshot", "restored from a changelog"])
@pytest.mark.parametrize("when", ["2026-03-29", "2026-03-27"])
def test_state_with_windows_of_another_tzdata_is_refused_only_if_they_differ(
    when: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StreamsBuilder()
    builder.stream(sales).group_by_key().windowed_by(DAYS).count("n").to_stream().to(per_day)
    spec = builder.build().stores["n"]
    folder = tmp_path / "n" if how == "opened again" else None

    with monkeypatch.context() as earlier:
        _older(earlier)
        store = open_store(spec, folder, default_engine="rocksdb")
        for time_ms in (at(when), at(when) + 86_400_000):
            store.put_pair("a", 1, 0, DAYS.windows_for(time_ms)[0])
        changes = store.drain_changes()
        store.commit({})
        carried = store.carried()
        store.close()
    windows_of.cache_clear()
    noted_windows.cache_clear()

    message = (
        r"store 'n' has a window from 2026-03-28T23:00:00Z to 2026-03-29T23:00:00Z, made with tzdata 2025b, which the "
        r"days of Europe/Berlin have not, with tzdata .*: install tzdata==2025.2"
    )
    if how == "restored from a changelog":
        # It has no ends: the day that began at 00:00 of UTC+1, and now at 00:00 of UTC+2.
        message = r"store 'n' has a window from 2026-03-29T23:00:00Z, which the days of Europe/Berlin have not"
    with pytest.raises(StoreError, match=message) if when == "2026-03-29" else nullcontext():
        again = open_store(spec, folder, default_engine="rocksdb")
        if how == "restored from a snapshot":
            again.restore_carried(carried)
        elif folder is None:
            again.restore(changes)
            check_restored(again)
        again.close()
