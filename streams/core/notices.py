"""Lines of the log about what goes on: one WARNING per cause and minute, with the number of times.

What happens first is told at once; what follows is counted, and told when the minute is over. Callers give the
monotonic time. Imports nothing of the package.
"""

import logging
import threading
from collections.abc import Callable, Hashable
from typing import TypeAlias

from attrs import define, field

_MINUTE_MS = 60_000

#: A text, or what returns it for the number of times.
Text: TypeAlias = str | Callable[[int], str]


def alone(text: str) -> Text:
    """Return a text that is written without the number of times."""
    return lambda _: text


@define
class Minutes:
    """Counts by cause within a minute, which begins with the first time."""

    _seen: dict[Hashable, tuple[int, int]] = field(factory=dict)

    def add(self, cause: Hashable, now_ms: int, count: int = 1) -> int:
        """Count, and return the number within the minute."""
        since_ms, before = self._seen.get(cause, (now_ms, 0))
        self._seen[cause] = since_ms, before + count
        return before + count

    def over(self, now_ms: int | None) -> list[tuple[Hashable, int]]:
        """Remove the minutes that are over at a time, all for None; return their causes and numbers."""
        causes = [
            cause for cause, (since_ms, _) in self._seen.items() if now_ms is None or now_ms - since_ms >= _MINUTE_MS
        ]
        return [(cause, self._seen.pop(cause)[1]) for cause in causes]


@define
class _Told:
    """A cause that was told in its minute: the number that was told, and what tells the others."""

    log: logging.Logger
    text: Text
    count: int
    #: That it is over, to be told with the others, because an end was told in this minute.
    end: str = ""
    is_end_told: bool = False


@define(eq=False)
class Notices:
    """Writes one WARNING per cause and minute; any thread may call it.

    Nothing is written if it is not ``is_logged``.
    """

    is_logged: bool = True
    _minutes: Minutes = field(factory=Minutes)
    _told: dict[Hashable, _Told] = field(factory=dict)
    #: Since when causes last that have an end.
    _lasting: dict[Hashable, int] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def warn(
        self, log: logging.Logger, cause: Hashable, now_ms: int, text: Text, count: int = 1, *, least: int = 1
    ) -> None:
        """Tell of what has happened ``count`` times, if it is ``least`` times or more within a minute."""
        self.look(now_ms)
        with self._lock:
            number = self._minutes.add(cause, now_ms, count)
            told = self._told.get(cause)
            if told is not None:
                told.text = text
                told.end = ""
            elif number >= least:
                self._told[cause] = _Told(log, text, number)
        if told is None and number >= least:
            self._write(log, text, number)

    def last(
        self, log: logging.Logger, cause: Hashable, now_ms: int, text: Text, *, since_ms: int | None = None
    ) -> None:
        """Tell of what lasts, by default from now on, until ``end`` is called."""
        self._lasting.setdefault(cause, now_ms if since_ms is None else since_ms)
        self.warn(log, cause, now_ms, text)

    def end(self, log: logging.Logger, cause: Hashable, now_ms: int, text: str) -> bool:
        """Tell that what lasted is over, and how long it did, once in a minute; return whether it lasted."""
        if cause not in self._lasting:
            return False
        self.look(now_ms)
        with self._lock:
            text = f"{text}, after {(now_ms - self._lasting.pop(cause, now_ms)) / 1000:,.0f} s"
            told = self._told.get(cause)
            is_due = told is None or not told.is_end_told
            if told is not None and is_due:
                # What has not been told of it yet is of no use behind its end.
                told.count = self._minutes.add(cause, now_ms, 0)
                told.is_end_told = True
            elif told is not None:
                told.end = text
        if is_due:
            self._write(log, text, 1)
        return True

    def forget(self, cause: Hashable) -> None:
        """Tell no end of what lasts, as nobody waits for it any more."""
        self._lasting.pop(cause, None)

    def look(self, now_ms: int | None) -> None:
        """Tell of what has happened again in minutes that are over at a time; for None, in all."""
        due: list[tuple[_Told, int]] = []
        with self._lock:
            for cause, number in self._minutes.over(now_ms):
                told = self._told.pop(cause, None)
                if told is not None and number > told.count:
                    due.append((told, number - told.count))
                    if now_ms is not None:
                        self._minutes.add(cause, now_ms, 0)
                        self._told[cause] = _Told(told.log, told.text, 0)
        for told, number in due:
            self._write(told.log, told.text, number, told.end)

    def _write(self, log: logging.Logger, text: Text, count: int, end: str = "") -> None:
        if self.is_logged:
            many = f" ({count:,} times within a minute)" if count > 1 else ""
            told = text(count) if callable(text) else f"{text}{many}"
            # As a message of its own kind: a handler that limits kinds has nothing to limit here.
            log.warning(f"{told}; {end}" if end else told)
