"""Checks of arguments that a program gives: the times and headers of a record, counts and durations.

Between programs (producers, processors, the test driver) and the data path, which does not check them again.  Pure:
no clock, no I/O; imports ``core.errors`` and ``core.blocks.records`` only.
"""

import operator
from collections.abc import Iterable, Mapping
from typing import Any, Final, SupportsIndex, TypeAlias, TypeVar, cast

from streams.core.blocks.records import Headers
from streams.core.errors import StreamsError, TopologyError

K = TypeVar("K")
V = TypeVar("V")

#: The latest time, and the end of an unlimited window (Long.MAX_VALUE in Java).
MAX_TIME_MS = 2**63 - 1
#: A record that a program gives: (key, value, timestamp_ms); the time may be left out, and the key as well.
InputRow: TypeAlias = tuple[K, V, int] | tuple[K, V] | tuple[V]


class _NotGiven:
    """The type of the default for omitted arguments for which None has a meaning."""

    def __repr__(self) -> str:
        return "NOT_GIVEN"


#: Default of arguments that may be None, such as a key, a type expression or a value of a row.
NOT_GIVEN: Final[Any] = _NotGiven()


def checked_time(time: object, what: str, error: type[StreamsError], **place: Any) -> int:
    """Return the event time of a record, given in epoch milliseconds; ``what`` names the argument in messages.

    Raises:
        StreamsError: it is no int, negative, or above 64 bits, where a log has no place for it; raised as class
            ``error`` with the fields ``place``.
    """
    time_ms = checked_milliseconds(time, what, error, **place)
    if 0 <= time_ms <= MAX_TIME_MS:
        return time_ms
    raise error(
        f"{what} must be from 0 (1970) to {MAX_TIME_MS} epoch milliseconds, not {time_ms}; leave it out to use the "
        "current time",
        **place,
    )


def checked_milliseconds(time: object, what: str, error: type[StreamsError], **place: Any) -> int:
    """Return a number of milliseconds; ``what`` names the argument in messages.

    Raises:
        StreamsError: it is no int; raised as class ``error`` with the fields ``place``.
    """
    if type(time) is int:
        return time
    if isinstance(time, bool) or not isinstance(time, SupportsIndex):
        raise error(
            f"{what} must be an int of epoch milliseconds, not {time!r} of type {type(time).__qualname__}; "
            "use int(seconds * 1000), which for a datetime is int(moment.timestamp() * 1000)",
            **place,
        )
    return operator.index(time)


def checked_count(value: object, what: str, error: type[StreamsError], *, minimum: int = 1) -> int:
    """Return a number of things or milliseconds; ``what`` names the argument in messages.

    Raises:
        StreamsError: it is no int, or below ``minimum``; raised as class ``error``.
    """
    if type(value) is not int or value < minimum:
        raise error(f"{what} must be an int of at least {minimum}, not {value!r}")
    return value


def check_flag(value: Any, what: str) -> bool:
    """Return the value of an argument if it is True or False; ``what`` names it in the message.

    Raises:
        TopologyError: the value is something else.
    """
    if not isinstance(value, bool):
        raise TopologyError(f"{what} must be True or False, not {value!r:.60}")
    return value


def checked_headers(headers: object, what: str, error: type[StreamsError], **place: Any) -> Headers:
    """Return the headers of a record, given as pairs of name and bytes; ``what`` names the argument in messages.

    Raises:
        StreamsError: they are no pairs of text and bytes (or None); raised as class ``error`` with fields ``place``.
    """
    if isinstance(headers, Iterable) and not isinstance(headers, str | bytes | Mapping):
        pairs = tuple(headers)
        if all(map(_is_header, pairs)):
            return cast(Headers, pairs)
        headers = pairs
    raise error(
        f"{what} must be pairs of text and bytes (or None), as in [('trace', b't1')], not {headers!r:.100}", **place
    )


def checked_row(row: object, what: str, error: type[StreamsError]) -> tuple[Any, Any, int | None]:
    """Return (key, value, time in epoch milliseconds) of a row that may leave out the time, and the key as well.

    A key that is left out is ``NOT_GIVEN``, a time None; ``what`` names the argument in messages.

    Raises:
        StreamsError: it is no such row; raised as class ``error``.
    """
    if not isinstance(row, tuple | list) or not 1 <= len(row) <= 3:
        raise error(f"{what} needs rows of (key, value, timestamp_ms), (key, value) or (value,), got {row!r:.100}")
    if len(row) == 1:
        return NOT_GIVEN, row[0], None
    key, value, *times = row
    return key, value, checked_time(times[0], f"timestamp_ms of {what}", error) if times else None


def _is_header(pair: object) -> bool:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    name, value = pair
    return isinstance(name, str) and isinstance(value, bytes | None) and (name.isascii() or _is_utf8(name))


def _is_utf8(name: str) -> bool:
    """Whether a name can be written as UTF-8; a lone surrogate cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
