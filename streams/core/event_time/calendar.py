"""Calendars: windows by the clock and the calendar of a time zone, and by a table of openings.

A window starts at the first instant at which the clock of the zone shows the start, or, if the clock skips the start,
at the instant of the skip, and it ends where the next one starts.  So an ambiguous start is the first of the two, and a
day has 23, 24 or 25 hours.  Only hours start whenever the clock shows their start, so a repeated hour is two windows.
No window starts before 1970, as in Kafka Streams: the window of 1970-01-01T00:00Z starts then.

Zones are those of the package ``tzdata``, not those of the system, so that all workers have the same.  The module
imports only other modules of ``core``.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from attrs import asdict, frozen

from streams.core.blocks.records import Window
from streams.core.event_time.time_texts import time_text
from streams.core.nearest import suggestion

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_MS = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
#: Times outside of these, for which there is no ``datetime``, are in no window.
_FIRST_MS = -62_000_000_000_000
_LAST_MS = 253_300_000_000_000
#: Windows are looked up by chunk of time: 2 ** 31 ms (25 days).
_CHUNK_BITS: Final = 31
#: Number of windows that are noted with a store.
_MOST_NOTED = 50
#: Maximum number of chunks of a calendar; they are cleared when there are more.
_MOST_CHUNKS = 4096


def tzdata_version() -> str:
    """Return the version of the time zone database, such as ``2026a``."""
    return str(import_module("tzdata").IANA_VERSION)


def _tzdata() -> "Traversable":
    # Imported here, because few programs need a time zone.
    from importlib import resources

    return resources.files("tzdata")


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset((_tzdata() / "zones").read_text().split())


@lru_cache(maxsize=256)
def time_zone(name: str) -> ZoneInfo:
    """Return a time zone of the package ``tzdata``.

    Raises:
        ValueError: there is no such zone.
    """
    if not isinstance(name, str) or name not in _zone_names():
        example = suggestion(str(name), _zone_names()) or "use a name such as 'Europe/Berlin' or 'UTC'"
        raise ValueError(f"there is no time zone {name!r} in tzdata {tzdata_version()}; {example}")
    with _tzdata().joinpath("zoneinfo").joinpath(*name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def instants(wall: datetime, zone: tzinfo) -> list[datetime]:
    """Return the instants, as naive times in UTC, at which the clock of a zone shows a time, in ascending order.

    If the clock skips the time, the result is the instant of the skip.
    """
    utc = [wall - (wall.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0)) for fold in (0, 1)]
    if utc[0] == utc[1]:
        return utc[:1]
    shown = sorted({instant for instant in utc if _wall(instant, zone) == wall})
    if shown:
        return shown
    # The skip is between them: with fold 0 the offset is that before the skip, with fold 1 the one behind it.
    after, before = utc
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        before, after = (before, middle) if _wall(middle, zone) >= wall else (middle, after)
    return [after]


def _wall(utc: datetime, zone: tzinfo) -> datetime:
    return utc.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


@frozen(cache_hash=True)
class Calendar:
    """Consecutive windows of a calendar in a time zone, or those of a table of openings.

    ``first_day`` is a weekday (0 is Monday) of weeks, and a day of the month of longer units.
    """

    unit: str
    zone: str
    start: time = time(0)
    first_day: int = 0
    first_month: int = 1
    #: Start and end of each opening, in epoch milliseconds.
    table: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.unit} of {self.zone}"]
        if (self.first_month, self.first_day) != (1, int(self.unit in _MONTHS)):
            month = f"{self.first_month}-" if self.unit in ("quarters", "years") else "day "
            parts.append(f"from {month}{self.first_day}")
        return " ".join(parts) + (f" at {self.start}" if self.start != time(0) else "")

    def difference(self, noted: bytes, from_ms: int) -> str | None:
        """Return which window that was noted does not exist now, or None; windows before ``from_ms`` are ignored."""
        version, windows = json.loads(noted)
        for start_ms, end_ms in windows:
            if start_ms >= max(from_ms, 0) and self.window_of(start_ms) != (start_ms, end_ms):
                remedy = f"install tzdata=={version[:4]}.{ord(version[4]) - 96}, give a missing opening again"
                if version == tzdata_version():
                    remedy = "restore the calendar that it had"
                window = f"window from {time_text(start_ms)} to {time_text(end_ms)}, made with tzdata {version}"
                return self._lacks(window, remedy)
        return None

    def misfit(self, starts: Iterable[int]) -> str | None:
        """Return which of the starts of windows, as a changelog has them, no window has now, or None."""
        for start_ms in starts:
            window = self.window_of(start_ms)
            if window is None or window.start_ms != start_ms:
                remedy = "restore the calendar, or the version of tzdata, that it had"
                return self._lacks(f"window from {time_text(start_ms)}", remedy)
        return None

    def _lacks(self, window: str, remedy: str) -> str:
        return (
            f"has a {window}, which the {self} have not, with tzdata {tzdata_version()}: {remedy}, or give the store "
            "another name"
        )

    def described(self) -> dict[str, Any]:
        """Return the calendar as JSON, without its openings."""
        return asdict(self, filter=lambda attribute, _: attribute.name != "table") | {"start": self.start.isoformat()}

    @classmethod
    def of_description(cls, described: Mapping[str, Any], openings: Iterable[Sequence[int]]) -> "Calendar":
        """Return the calendar of a description."""
        table = tuple((start_ms, end_ms) for start_ms, end_ms in openings)
        return cls(**{**described, "start": time.fromisoformat(described["start"])}, table=table)

    @property
    def longest_ms(self) -> int:
        """An upper bound of the lengths of the windows in milliseconds: a clock is put back by less than a day."""
        if self.table:
            return max(end_ms - start_ms for start_ms, end_ms in self.table)
        return (2 * _HOUR if self.unit == "hours" else _LONGEST[self.unit] + _DAY) // _MS

    def window_of(self, time_ms: int) -> Window | None:
        """Return the window that contains a time in epoch milliseconds, or None."""
        return windows_of(self).window_of(time_ms)

    def _walls(self, first: datetime, last: datetime) -> Iterator[datetime]:
        """Yield the starts by the clock between two times, with more on both sides."""
        if self.unit == "hours":
            wall = first.replace(minute=self.start.minute, second=self.start.second, microsecond=0)
            while wall < last:
                yield wall
                wall += _HOUR
        elif self.unit in _MONTHS:
            months = _MONTHS[self.unit]
            for number in range((first.year - 1) * 12, (last.year + 2) * 12):
                if (number + 1 - self.first_month) % months == 0:
                    yield datetime.combine(date(number // 12, number % 12 + 1, self.first_day), self.start)
        else:
            days = _LONGEST[self.unit] // _DAY
            number = first.toordinal()
            number -= (number - 1 - self.first_day) % days
            for ordinal in range(number, last.toordinal() + 1, days):
                yield datetime.combine(date.fromordinal(ordinal), self.start)


#: The longest of each unit, by the clock, and the months in units of months.
_LONGEST = {
    "hours": _HOUR,
    "days": _DAY,
    "weeks": 7 * _DAY,
    "months": 31 * _DAY,
    "quarters": 92 * _DAY,
    "years": 366 * _DAY,
}
_MONTHS = {"months": 1, "quarters": 3, "years": 12}


class CalendarTable(dict[int, tuple[list[int], list[int]]]):
    """The starts and the ends of the windows that overlap each chunk of time, by its number."""

    def __init__(self, calendar: Calendar) -> None:
        super().__init__()
        self._calendar = calendar
        self._zone = time_zone(calendar.zone)
        self._starts = [start_ms for start_ms, _ in calendar.table]

    def window_of(self, time_ms: int) -> Window | None:
        """Return the window that contains a time, or None."""
        starts, ends = self[time_ms >> _CHUNK_BITS]
        place = bisect_right(starts, time_ms) - 1
        if place < 0 or time_ms >= ends[place]:
            return None
        # The constructor of a named tuple takes several times as long.
        return tuple.__new__(Window, (starts[place], ends[place]))

    def __missing__(self, chunk: int) -> tuple[list[int], list[int]]:
        first_ms = chunk << _CHUNK_BITS
        last_ms = first_ms + (1 << _CHUNK_BITS)
        windows: list[tuple[int, int]] = []
        if self._calendar.table:
            place = max(bisect_right(self._starts, first_ms) - 1, 0)
            windows = list(self._calendar.table[place : bisect_left(self._starts, last_ms)])
        elif _FIRST_MS < first_ms < _LAST_MS:
            all_bounds = self._bounds(first_ms, last_ms)
            place = bisect_right(all_bounds, first_ms) - 1
            inside = all_bounds[place : bisect_left(all_bounds, last_ms) + 1]
            windows = list(pairwise(inside))
        if len(self) >= _MOST_CHUNKS:
            self.clear()
        starts = [start_ms if start_ms >= 0 or first_ms < 0 else 0 for start_ms, _ in windows]
        self[chunk] = chunk_bounds = starts, [end_ms for _, end_ms in windows]
        return chunk_bounds

    def _bounds(self, first_ms: int, last_ms: int) -> list[int]:
        unit = self._calendar.unit
        margin = _LONGEST[unit] + 2 * _DAY
        walls = self._calendar._walls(_EPOCH + first_ms * _MS - margin, _EPOCH + last_ms * _MS + margin)
        each = None if unit == "hours" else 1
        return sorted({(instant - _EPOCH) // _MS for wall in walls for instant in instants(wall, self._zone)[:each]})


@lru_cache(maxsize=256)
def windows_of(calendar: Calendar) -> CalendarTable:
    """Return the table in which the windows of a calendar are looked up."""
    return CalendarTable(calendar)


@lru_cache(maxsize=256)
def noted_windows(calendar: Calendar, time_ms: int) -> bytes:
    """Return the last windows that start up to a time, with the version of tzdata, for ``Calendar.difference``."""
    table = windows_of(calendar)
    chunk = time_ms >> _CHUNK_BITS
    windows = sorted({*zip(*table[chunk - 1], strict=True), *zip(*table[chunk], strict=True)})
    return json.dumps([tzdata_version(), [row for row in windows if row[0] <= time_ms][-_MOST_NOTED:]]).encode()
