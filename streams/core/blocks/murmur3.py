"""The 128-bit murmur3 hash (x64) of serialized values, as Kafka Streams' foreign-key joins use it.

This module imports no other module.
"""

import struct
from typing import Final

_SEED: Final = 104_729
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_MASK: Final = 0xFFFFFFFFFFFFFFFF
_BLOCK: Final = struct.Struct("<QQ")
_RESULT: Final = struct.Struct(">QQ")


def hash128(data: bytes) -> bytes:
    """Return the murmur3 hash of the bytes: two big-endian longs, as Kafka Streams writes them.

    >>> hash128(b"").hex()
    '9d2764a018e329428c3cf3b035938518'
    """
    size = len(data)
    whole = size & ~15
    one = two = _SEED
    for first, second in _BLOCK.iter_unpack(memoryview(data)[:whole]):
        one ^= _first(first)
        one = ((((one << 27 | one >> 37) & _MASK) + two) * 5 + 0x52DCE729) & _MASK
        two ^= _second(second)
        two = ((((two << 31 | two >> 33) & _MASK) + one) * 5 + 0x38495AB5) & _MASK
    # Missing bytes are zeros, which change nothing.
    two ^= _second(int.from_bytes(data[whole + 8 :], "little"))
    one ^= _first(int.from_bytes(data[whole : whole + 8], "little"))
    one ^= size
    two ^= size
    one = (one + two) & _MASK
    two = (two + one) & _MASK
    one = _mixed(one)
    two = _mixed(two)
    one = (one + two) & _MASK
    return _RESULT.pack(one, (two + one) & _MASK)


def _first(word: int) -> int:
    word = word * _C1 & _MASK
    return ((word << 31 | word >> 33) & _MASK) * _C2 & _MASK


def _second(word: int) -> int:
    word = word * _C2 & _MASK
    return ((word << 33 | word >> 31) & _MASK) * _C1 & _MASK


def _mixed(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33
