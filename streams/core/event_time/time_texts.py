"""Conversion between event times and text; durations as text."""

from datetime import UTC, datetime
from typing import Any

from streams.core.errors import InputError
from streams.core.event_time.timestamps import to_milliseconds

#: Milliseconds of each unit of a span.
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


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


def span_text(span_ms: int) -> str:
    """Format a duration in milliseconds with its two largest units.

    >>> span_text(350), span_text(86_399_000), span_text(3_600_000)
    ('350 ms', '23 h 59 min', '1 h')
    """
    parts: list[str] = []
    for size, unit in _UNITS:
        if span_ms >= size and len(parts) < 2:
            parts.append(f"{span_ms // size} {unit}")
            span_ms %= size
        elif parts:
            break
    return " ".join(parts) or "0 ms"
