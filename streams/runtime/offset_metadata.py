"""Offset metadata as Kafka Streams writes it (KAFKA-5510, KIP-825), with a text of our own behind it.

Base64 of a version byte (2), the partition time, the number of entries of the processor metadata, and these entries:
names with their length, and times.  Integers are big-endian.  Kafka Streams does not read further; there is what only
this library commits.  Version 1 has no more than the partition time.  The module is pure.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from struct import Struct, error

from attrs import field, frozen

from streams.core.records import NO_TIMESTAMP

_VERSION = 2
_HEAD = Struct(">bq")
_COUNT = Struct(">i")
_TIME = Struct(">q")


@frozen
class OffsetMetadata:
    """The metadata of one committed offset; times are epoch milliseconds, -1 if unknown.

    ``times`` is the processor metadata: by store, the time up to which closed windows have been emitted.
    """

    partition_time_ms: int = NO_TIMESTAMP
    times: Mapping[str, int] = field(factory=dict)
    #: What only this library commits; empty if Kafka Streams has committed.
    own: str = ""

    def encode(self) -> str:
        """Return the metadata as text."""
        parts = [_HEAD.pack(_VERSION, self.partition_time_ms), _COUNT.pack(len(self.times))]
        for name, time_ms in self.times.items():
            data = name.encode()
            parts += [_COUNT.pack(len(data)), data, _TIME.pack(time_ms)]
        return b64encode(b"".join(parts) + self.own.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> "OffsetMetadata | None":
        """Parse the metadata of a committed offset; return None if another client or tool has committed it."""
        try:
            data = b64decode(text, validate=True)
            version, partition_time_ms = _HEAD.unpack_from(data)
            if version == 1:
                return cls(partition_time_ms)
            if version != _VERSION:
                return None
            times, place = _times(data, _HEAD.size) if len(data) > _HEAD.size else ({}, len(data))
            return cls(partition_time_ms, times, data[place:].decode())
        except (ValueError, error):
            return None


def _times(data: bytes, place: int) -> tuple[dict[str, int], int]:
    """Return the entries of the processor metadata from ``place``, and the place behind them."""
    times: dict[str, int] = {}
    (count,) = _COUNT.unpack_from(data, place)
    place += _COUNT.size
    for _ in range(count):
        (size,) = _COUNT.unpack_from(data, place)
        if size < 0:
            raise ValueError(f"a name of {size} bytes")
        place += _COUNT.size
        name = data[place : place + size].decode()
        (times[name],) = _TIME.unpack_from(data, place + size)
        place += size + _TIME.size
    return times, place
