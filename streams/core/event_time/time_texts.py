"""Conversion between event times and text; durations as text."""

from datetime import UTC, datetime
from typing import Any

from streams.core.errors import InputError
from streams.core.event_time.timestamps import to_milliseconds


def time_ms(time: Any, what: str) -> int:
    """Convert a datetime, ISO 8601 text (UTC without a zone), or epoch milliseconds to epoch milliseconds.

    >>> time_ms("1970-01-01T00:00:01Z", "until"), time_ms("1000", "until")
    (1000, 1000)

    Raises:
        InputError: the value is not a time; the message refers to it as ``what``.
    """
    try:
        if isinstance(time, str):
            is_number = time.lstrip("-").isdecimal()
            time = int(time) if is_number else datetime.fromisoformat(time)
        return to_milliseconds(time)
    except ValueError as error:
        raise InputError(f"{what} {time!r}: give a time such as 2026-01-31T12:00:00Z, or epoch milliseconds") from error
    except (TypeError, OverflowError) as error:
        raise InputError(f"{what} {time!r}: {error}") from error


def stream_time_text(time_ms: int) -> str:
    """Return a stream time as text, which is -1 before the first record.

    >>> stream_time_text(0), stream_time_text(-1)
    ('1970-01-01T00:00:00Z', 'none yet')
    """
    return "none yet" if time_ms < 0 else time_text(time_ms)


def time_text(time_ms: int) -> str:
    """Return an event time as ISO 8601 text in UTC, or as milliseconds if it is outside the range of datetime.

    >>> time_text(0), time_text(1_500)
    ('1970-01-01T00:00:00Z', '1970-01-01T00:00:01.500Z')
    """
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):  # Outside the range of datetime.
        return f"{time_ms} ms"
    rest = f".{time_ms % 1000:03d}" if time_ms % 1000 else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{rest}Z"


def duration_text(seconds: float) -> str:
    """Return a duration, in its largest units.

    >>> duration_text(42), duration_text(150), duration_text(7_260), duration_text(90_000)
    ('42 s', '2 min', '2 h 1 min', '1 d 1 h')
    """
    minutes = int(seconds) // 60
    if not minutes:
        return f"{seconds:.0f} s"
    hours = minutes // 60
    if hours < 24:
        return f"{minutes} min" if not hours else f"{hours} h {minutes % 60} min"
    return f"{hours // 24:,} d {hours % 24} h"
