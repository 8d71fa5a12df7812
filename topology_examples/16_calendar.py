"""Ticks of a meter, counted by the calendars of several places: days of 23 and 25 hours, and repeated hours.

The meter ticks every half hour, so an hour has 2 ticks and a day has 48, but where the clock is put forward or back.
A window starts when the clock of its zone first shows the start.  At 02:00 it is put forward in Copenhagen: the day
from 02:00 starts at 03:00.  In New York the hour from 01:00 is there twice when the clock is put back: two windows.

    python topology_examples/16_calendar.py
    streams run topology_examples/16_calendar.py --input ticks=ticks.jsonl --output counts=counts.records.jsonl
"""

from datetime import UTC, datetime, time, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from attrs import frozen

from streams import CalendarWindows, EmitStrategy, StreamsBuilder, Topic, Windowed, session_windowed

CALENDARS = {
    "Berlin": CalendarWindows.days("Europe/Berlin"),
    "Copenhagen": CalendarWindows.days("Europe/Copenhagen", start=time(2)),
    "Sydney": CalendarWindows.days("Australia/Sydney"),
    "Kolkata": CalendarWindows.days("Asia/Kolkata"),
    "New York": CalendarWindows.hours("America/New_York"),
}


@frozen
class Tick:
    """A tick of the meter at a place."""

    place: str
    time: datetime


ticks = Topic("ticks", value=Tick, timestamp=lambda tick: tick.time)
counts = Topic("counts", key=session_windowed(str), value=int)


def topology(builder: StreamsBuilder) -> None:
    """Count the ticks of each place by its own calendar; a window is written once, when it has closed."""
    places = builder.stream(ticks).group_by(lambda _, tick: tick.place)
    for place, windows in CALENDARS.items():
        closed = places.windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        counted = closed.count(place.replace(" ", "-").lower())
        counted.to_stream().filter(partial(is_of, place)).to(counts)


def is_of(place: str, key: Windowed[str], _: int | None) -> bool:
    """Return whether a window is of a place: each calendar has the ticks of all places."""
    return key.key == place


def local(bound_ms: int, place: str) -> datetime:
    """Return a bound of a window by the clock of its place."""
    return datetime.fromtimestamp(bound_ms / 1000, ZoneInfo(CALENDARS[place].calendar.zone))


def ticks_around(place: str, day: datetime) -> list[Tick]:
    """Return the ticks of a day, with those of some hours before and behind it."""
    return [Tick(place, day + timedelta(minutes=30 * number)) for number in range(-32, 64)]


def main() -> None:
    """Print the day at which the clock is put forward or back, and in New York the hour before and behind that."""
    from streams.testing import TopologyTestDriver

    for place, month, day in (
        ("Berlin", 3, 29), ("Berlin", 10, 25), ("Copenhagen", 3, 29), ("Sydney", 4, 5), ("Sydney", 10, 4),
        ("Kolkata", 3, 29), ("New York", 3, 8), ("New York", 11, 1),
    ):  # fmt: skip
        driver = TopologyTestDriver(topology)
        for tick in ticks_around(place, datetime(2026, month, day, tzinfo=UTC)):
            driver.pipe(ticks, tick)
        for key, count in driver.read(counts):
            start, end = (local(bound_ms, place) for bound_ms in key.window)
            if start.day == day and (place != "New York" or start.hour == 1):
                print(f"{place:10} {start:%Y-%m-%d %H:%M %z} to {end:%d %H:%M %z} {count:3}")


if __name__ == "__main__":
    main()
