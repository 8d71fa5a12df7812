"""Serdes for windowed keys, with the same bytes as Kafka's.

A time-windowed key is written as the key and the start of the window; the end is start + size. So is a key of count
windows, whose start is a record number. A session-windowed key is written as key, end and start. Times and numbers are
64-bit big-endian integers. This module imports only other modules of
``core``.
"""

import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, overload

from typing_extensions import TypeForm

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.records import Window, Windowed
from streams.core.errors import SerializationError
from streams.core.serdes.serde_base import Recipe, Serde, blank, fill, inside, read_error, write_error
from streams.core.serdes.serde_types import serde_for

K = TypeVar("K")


#: Number of bytes at the end of a windowed key that have its window: a start, or an end and a start.
TIME_SUFFIX, SESSION_SUFFIX = WINDOW_SUFFIXES = (8, 16)

# The constructor of a named tuple takes several times as long.
_tuple = tuple.__new__

_ONE = struct.Struct(">q")
_TWO = struct.Struct(">qq")


@overload
def time_windowed(key: Serde[K], size: timedelta) -> Serde[Windowed[K]]: ...
@overload
def time_windowed(key: TypeForm[K], size: timedelta) -> Serde[Windowed[K]]: ...
def time_windowed(key: Any, size: timedelta) -> Serde[Windowed[Any]]:
    """Return the serde for keys of time windows (tumbling, hopping or sliding) with the given size.

    >>> time_windowed(str, timedelta(seconds=1)).deserialize(b"a" + bytes(8))
    Windowed(key='a', window=Window(start_ms=0, end_ms=1000))

    Size 0 is for sliding windows of records with equal timestamps, and ``timedelta.max`` is for unlimited
    windows.

    Raises:
        ValueError: the size is negative, or no ``timedelta``.
    """
    if not isinstance(size, timedelta):
        raise ValueError(f"window size must be a timedelta, not {size!r} of type {type(size).__qualname__}")
    size_ms = MAX_TIME_MS if size == timedelta.max else size // timedelta(milliseconds=1)
    return time_windowed_ms(serde_for(key), size_ms)


@overload
def count_windowed(key: Serde[K], size: int) -> Serde[Windowed[K]]: ...
@overload
def count_windowed(key: TypeForm[K], size: int) -> Serde[Windowed[K]]: ...
def count_windowed(key: Any, size: int) -> Serde[Windowed[Any]]:
    """Return the serde for keys of count windows of ``size`` records.

    >>> count_windowed(str, 10).deserialize(b"a" + bytes(8))
    Windowed(key='a', window=Window(start_ms=0, end_ms=10))

    Raises:
        ValueError: the size is not a positive number of records.
    """
    if type(size) is not int or size < 1:
        raise ValueError(f"window size must be a positive number of records, not {size!r}")
    inner = serde_for(key)
    return _fixed("count_windowed", inner, size, -size, (count_windowed, (inner, size)))


@overload
def session_windowed(key: Serde[K]) -> Serde[Windowed[K]]: ...
@overload
def session_windowed(key: TypeForm[K]) -> Serde[Windowed[K]]: ...
def session_windowed(key: Any) -> Serde[Windowed[Any]]:
    """Return the serde for keys with start and end, as Kafka Streams writes them for sessions."""
    return _session(serde_for(key))


def time_windowed_ms(inner: Serde[K], size_ms: int) -> Serde[Windowed[K]]:
    """Return the serde for time-windowed keys, given the serde of the inner key and the window size in milliseconds.

    Size 0 is for sliding windows of records with equal timestamps.

    Raises:
        ValueError: the size is negative.
    """
    if size_ms < 0:
        raise ValueError(f"window size must not be negative, not {size_ms} ms")
    return _fixed("time_windowed", inner, size_ms, size_ms, (time_windowed_ms, (inner, size_ms)))


def _fixed(kind: str, inner: Serde[K], size: int, size_ms: int, recipe: Recipe) -> Serde[Windowed[K]]:
    """Return the serde for keys of windows of a fixed size, whose bytes contain only the start."""
    pack = _ONE.pack
    unpack = _ONE.unpack_from

    def write(window: Window) -> bytes:
        return pack(window[0])

    def read(data: bytes) -> Window:
        (start,) = unpack(data, len(data) - 8)
        return _tuple(Window, (start, min(start + size, MAX_TIME_MS)))

    return _windowed(f"{kind}:{size}:", inner, TIME_SUFFIX, size_ms, write, read, recipe)


def _session(inner: Serde[K]) -> Serde[Windowed[K]]:
    pack = _TWO.pack
    unpack = _TWO.unpack_from

    def write(window: Window) -> bytes:
        return pack(window[1], window[0])

    def read(data: bytes) -> Window:
        end, start = unpack(data, len(data) - 16)
        return _tuple(Window, (start, end))

    return _windowed("session_windowed:", inner, SESSION_SUFFIX, None, write, read, (_session, (inner,)))


class WindowedSerde(Serde[Windowed[K]]):
    """A serde for windowed keys; ``inner`` is the serde of the inner key.

    ``size_ms`` is the size of time windows, or None for sessions, whose keys contain start and end.  For count windows
    it is negative, and its absolute value is the number of records.
    """

    __slots__ = ("inner", "size_ms")

    inner: Serde[K]
    size_ms: int | None


def shown_windows(size_ms: int | None) -> str:
    """Return the name of the kind of windows, for messages."""
    if size_ms is None:
        return "session windows"
    if size_ms < 0:
        return f"count windows of {-size_ms} records"
    if size_ms >= MAX_TIME_MS:
        return "unlimited windows"
    return f"time windows of {timedelta(milliseconds=size_ms)}"


def _windowed(
    prefix: str,
    inner: Serde[K],
    suffix: int,
    size_ms: int | None,
    write: Callable[[Window], bytes],
    read: Callable[[bytes], Window],
    recipe: Recipe,
) -> WindowedSerde[K]:
    # A windowed key has no schema of its own, and its topic's subject is none for the key within.
    inner = inside(inner)
    name = prefix + inner.name

    def serialize(value: Windowed[K] | None) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, Windowed):
            raise write_error(name, value, "expected Windowed(key, Window(start_ms, end_ms))")
        # The function is read from the serde at each call, because a pinned serde changes its functions at its
        # first object.
        key = inner.serialize(value[0])
        if key is None:
            raise write_error(name, value, "the key of a windowed key must not be None")
        try:
            return key + write(value[1])
        except (struct.error, TypeError, IndexError) as error:
            raise write_error(name, value, f"expected a window of two 64-bit times: {error}") from error

    def deserialize(data: bytes | None) -> Windowed[K] | None:
        if data is None:
            return None
        if len(data) < suffix:
            raise read_error(name, data, f"expected at least {suffix} bytes")
        try:
            key = inner.deserialize(data[:-suffix])
        except SerializationError as error:
            raise read_error(name, data, error) from error
        return _tuple(Windowed, (key, read(data)))

    serde: WindowedSerde[K] = blank(WindowedSerde)
    serde.inner = inner
    serde.size_ms = size_ms
    functions = serialize, deserialize
    return fill(serde, name, recipe, functions, is_immutable=inner.is_immutable, key_suffix=suffix)
