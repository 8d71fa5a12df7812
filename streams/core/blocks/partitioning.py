"""The default partitioner: the murmur2 hash of the key bytes, as in Kafka's Java clients; and those of other clients.

The producer chooses the partition of records without a key. This module imports only the compiled partitioner.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from zlib import crc32

from attrs import frozen

try:
    from streams.core.blocks.compiled_partitioning import partitions_for as _partitions_for
except ImportError:  # Installed without a C compiler.

    def _partitions_for(keys: Sequence[bytes], partitions: int) -> list[int]:
        return plain_partitions_for(keys, partitions)


#: Chooses a partition: (topic, key bytes, value bytes, partition count) -> partition number.
Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF

#: Number of cached hashes; the cache is cleared when it is full.
_MEMO_LIMIT: Final = 1 << 16
#: Longer keys are not cached, so that the memory of the cache is bounded.
_MEMO_KEY_BYTES: Final = 256

#: Readers of n little-endian words, by n.
_WORDS: Final[list[Callable[[bytes], tuple[Any, ...]]]] = [struct.Struct(f"<{n}I").unpack_from for n in range(65)]


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash of the bytes, signed as in Java.

    >>> murmur2(b"21")
    -973932308
    """
    hashed = _murmur2(data)
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash of the bytes, unsigned."""
    size = len(data)
    count = size >> 2
    words = _WORDS[count](data) if count < 65 else struct.unpack_from(f"<{count}I", data)
    hashed = _SEED ^ size
    for word in words:
        mixed = word * _M & _MASK
        hashed = (hashed * _M ^ (mixed ^ mixed >> 24) * _M) & _MASK
    if size & 3:
        hashed = (hashed ^ int.from_bytes(data[count << 2 :], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


class _Memo(dict[bytes, int]):
    """A cache of non-negative murmur2 hashes by key; missing hashes are computed on access."""

    __slots__ = ()

    def __missing__(self, key: bytes) -> int:
        positive = _murmur2(key) & 0x7FFFFFFF
        if len(key) <= _MEMO_KEY_BYTES:
            if len(self) >= _MEMO_LIMIT:
                self.clear()
            self[key] = positive
        return positive


_memo = _Memo()


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition of a key, given the number of partitions.

    >>> partition_for(b"21", 10)
    0
    """
    return _memo[key] % partitions


def plain_partitions_for(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Return the same as ``partitions_for``, but compute it in plain Python."""
    memo = _memo
    return [memo[key] % partitions for key in keys]


def partitions_for(keys: Sequence[bytes], partitions: int, key_suffix: int = 0) -> list[int]:
    """Return the partition of each key, as ``partition_for`` does for a single key.

    The last ``key_suffix`` bytes have no influence: a windowed key is partitioned by its inner key.

    Raises:
        TypeError: a key is None, and there is more than one partition.
    """
    if partitions == 1:
        return [0] * len(keys)
    if key_suffix:
        keys = [key[:-key_suffix] for key in keys]
    return _partitions_for(keys, partitions)


@frozen
class KeyHash:
    """A hash of key bytes by which clients choose partitions: the hash, which is not negative, modulo the count.

    ``clients`` names the clients that use it.
    """

    name: str
    clients: str
    of: Callable[[bytes], int]


def fnv1a(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash of the bytes, unsigned.

    >>> hex(fnv1a(b"4"))
    '0x310ca263'
    """
    hashed = 0x811C9DC5
    for byte in data:
        hashed = (hashed ^ byte) * 0x01000193 & _MASK
    return hashed


def _absolute_fnv1a(data: bytes) -> int:
    # Of the hash as a signed number; the most negative one stays as it is, as in C and Go.
    hashed = fnv1a(data)
    return (1 << 32) - hashed if hashed >> 31 else hashed


def _masked_fnv1a(data: bytes) -> int:
    return fnv1a(data) & 0x7FFFFFFF


#: By murmur2, as Kafka's Java clients and this library.
MURMUR2: Final = KeyHash(
    "murmur2",
    "Kafka's Java clients, this library, and librdkafka with partitioner=murmur2_random",
    _memo.__getitem__,
)
#: The hashes that clients of Kafka use, the most frequent ones first.
KEY_HASHES: Final = (
    MURMUR2,
    KeyHash("CRC32", "the default of librdkafka, so of confluent-kafka and kcat", crc32),
    KeyHash(
        "FNV-1a",
        "the default of sarama, Hash of kafka-go, and librdkafka with partitioner=fnv1a_random",
        _absolute_fnv1a,
    ),
    KeyHash("FNV-1a without its sign", "sarama with NewReferenceHashPartitioner", _masked_fnv1a),
)
