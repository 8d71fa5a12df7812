"""Loops over the keys and values of a store, in plain Python.

The functions of ``compiled_loops`` have the same results and errors.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

__all__ = ["prefixed", "timed_keys", "timed_values"]

_pack_time = Struct(">q").pack
_SUFFIXES = {4: Struct(">qi").pack, 8: Struct(">qq").pack}


def prefixed(prefix: bytes, keys: Iterable[bytes]) -> list[bytes]:
    """Return each key with the prefix prepended."""
    return list(map(prefix.__add__, keys))


def timed_keys(keys: Sequence[bytes], slots: Sequence[tuple[Any, ...]], second_bytes: int) -> list[bytes]:
    """Return each key followed by the big-endian times of its slot: 8 bytes, then ``second_bytes`` (4 or 8).

    Slots are (key, time) or (key, time, second); a missing second is 0.

    Raises:
        ValueError: the lengths of the columns differ.
    """
    suffix = _SUFFIXES[second_bytes]
    return [
        bytes(key) + suffix(slot[1], slot[2] if len(slot) == 3 else 0) for key, slot in zip(keys, slots, strict=True)
    ]


def timed_values(values: Sequence[bytes | None], times: Sequence[int]) -> list[bytes | None]:
    """Return each value prefixed with its time as 8 big-endian bytes; None remains None.

    Raises:
        ValueError: the lengths of the columns differ.
    """
    pack = _pack_time
    return [None if value is None else pack(time_ms) + value for value, time_ms in zip(values, times, strict=True)]
