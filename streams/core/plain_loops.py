"""Loops over the records of a block, in plain Python.

The functions of ``compiled_loops`` have equal results and errors.
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
    """Return ``Windowed(key, window)``, at half the cost of a call of the class."""
    return _new_tuple(Windowed, (key, window))


def session_windowed(key: Any, start_ms: int, end_ms: int) -> Windowed[Any]:
    """Return ``Windowed(key, Window(start_ms, end_ms))``."""
    return _new_tuple(Windowed, (key, _new_tuple(Window, (start_ms, end_ms))))


def bytes_in(column: Iterable[bytes | None]) -> int:
    """Return the total size of a column in bytes; None counts 0."""
    return sum(map(len, filter(None, column)))


def head_places(timestamps: Iterable[int], width: int, index: int) -> list[int]:
    """Return the sort key of each record of an input: lowest head timestamp first, ties by input.

    A record is taken after those before it, so the running maximum of the timestamps counts.  The sort key is that
    maximum times ``width``, the number of inputs, plus ``index``, the number of this input.
    """
    return [time * width + index for time in accumulate(timestamps, max)]


def prefixed(prefix: bytes, keys: Iterable[bytes]) -> list[bytes]:
    """Return the prefix plus each key."""
    return list(map(prefix.__add__, keys))


def rows_by_number(numbers: Iterable[int]) -> dict[int, list[int]]:
    """Return the indexes of each number, in the order of their first occurrence."""
    rows: dict[int, list[int]] = {}
    for index, number in enumerate(numbers):
        found = rows.get(number)
        if found is None:
            rows[number] = [index]
        else:
            found.append(index)
    return rows


def timed_keys(keys: Sequence[bytes], slots: Sequence[tuple[Any, ...]], second_bytes: int) -> list[bytes]:
    """Return each key plus the times of its slot, big-endian: 8 bytes, then ``second_bytes``, 4 or 8.

    Slots are (key, time) or (key, time, second); a missing second is 0.

    Raises:
        ValueError: the lengths differ.
    """
    suffix = _SUFFIXES[second_bytes]
    return [
        bytes(key) + suffix(slot[1], slot[2] if len(slot) == 3 else 0) for key, slot in zip(keys, slots, strict=True)
    ]


def timed_values(values: Sequence[bytes | None], times: Sequence[int]) -> list[bytes | None]:
    """Return the time, 8 bytes, big-endian, plus each value; None remains None.

    Raises:
        ValueError: the lengths differ.
    """
    pack = _pack_time
    return [None if value is None else pack(time_ms) + value for value, time_ms in zip(values, times, strict=True)]
