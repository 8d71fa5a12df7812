"""What is done for each record of a block, in plain Python.

What ``compiled_loops`` does too must be the same there, to the byte and the error.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from struct import Struct
from typing import Any

from streams.core.records import Window, Windowed

_new_tuple = tuple.__new__
_pack_time = Struct(">q").pack
_SUFFIXES = {4: Struct(">qi").pack, 8: Struct(">qq").pack}


def windowed(key: Any, window: Window) -> Windowed[Any]:
    """Return ``Windowed(key, window)``, at half the price of calling the class."""
    return _new_tuple(Windowed, (key, window))


def session_windowed(key: Any, start_ms: int, end_ms: int) -> Windowed[Any]:
    """Return ``Windowed(key, Window(start_ms, end_ms))``."""
    return _new_tuple(Windowed, (key, _new_tuple(Window, (start_ms, end_ms))))


def bytes_in(column: Iterable[bytes | None]) -> int:
    """Return how many bytes a column has in all; None has none."""
    return sum(map(len, filter(None, column)))


def head_places(timestamps: Iterable[int], width: int, index: int) -> list[int]:
    """Return for each record of an input when it is to be taken, lowest head timestamp first, ties by input.

    A record behind a higher one waits for it, so the highest timestamp up to it counts: as one number, that times
    ``width``, the number of inputs, plus ``index``, that of this one.
    """
    return [time * width + index for time in accumulate(timestamps, max)]


def prefixed(prefix: bytes, keys: Iterable[bytes]) -> list[bytes]:
    """Return each key with the prefix before it."""
    return list(map(prefix.__add__, keys))


def rows_by_number(numbers: Iterable[int]) -> dict[int, list[int]]:
    """Return for each number, in the order in which they come first, the indexes at which it stands."""
    rows: dict[int, list[int]] = {}
    for index, number in enumerate(numbers):
        found = rows.get(number)
        if found is None:
            rows[number] = [index]
        else:
            found.append(index)
    return rows


def timed_keys(keys: Sequence[bytes], slots: Sequence[tuple[Any, ...]], second_bytes: int) -> list[bytes]:
    """Return each key with the times of its slot behind it, big-endian: 8 bytes, then ``second_bytes``, 4 or 8.

    Slots are (key, time) or (key, time, second); without one it is 0.

    Raises:
        ValueError: as many keys as slots there are not.
    """
    suffix = _SUFFIXES[second_bytes]
    return [
        bytes(key) + suffix(slot[1], slot[2] if len(slot) == 3 else 0) for key, slot in zip(keys, slots, strict=True)
    ]


def timed_values(values: Sequence[bytes | None], times: Sequence[int]) -> list[bytes | None]:
    """Return each value with its time before it, 8 bytes, big-endian; None stays None.

    Raises:
        ValueError: as many values as times there are not.
    """
    pack = _pack_time
    return [None if value is None else pack(time_ms) + value for value, time_ms in zip(values, times, strict=True)]
