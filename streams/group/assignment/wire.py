"""Encoding of Kafka's primitive types in records of ``__consumer_offsets`` and ``__transaction_state``.

Of the other packages, this module imports only ``core``.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby

from streams.core.blocks.records import TopicPartition

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class Writer:
    """An encoder of primitive values; each method except ``finish`` returns the writer."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def int8(self, value: int) -> "Writer":
        """Append an 8-bit integer."""
        self._parts.append(_INT8.pack(value))
        return self

    def int16(self, value: int) -> "Writer":
        """Append a 16-bit integer."""
        self._parts.append(_INT16.pack(value))
        return self

    def int32(self, value: int) -> "Writer":
        """Append a 32-bit integer."""
        self._parts.append(_INT32.pack(value))
        return self

    def int64(self, value: int) -> "Writer":
        """Append a 64-bit integer."""
        self._parts.append(_INT64.pack(value))
        return self

    def string(self, value: str) -> "Writer":
        """Append text with a 16-bit length."""
        data = value.encode()
        self._parts += (_INT16.pack(len(data)), data)
        return self

    def nullable_string(self, value: str | None) -> "Writer":
        """Append text, or length -1 for None."""
        return self.int16(-1) if value is None else self.string(value)

    def nullable_bytes(self, value: bytes | None) -> "Writer":
        """Append bytes with a 32-bit length, -1 for None."""
        if value is None:
            return self.int32(-1)
        self._parts += (_INT32.pack(len(value)), value)
        return self

    def int32s(self, values: Sequence[int]) -> "Writer":
        """Append an array of 32-bit integers."""
        self._parts.append(struct.pack(f">i{len(values)}i", len(values), *values))
        return self

    def partitions(self, values: Iterable[TopicPartition]) -> "Writer":
        """Append an array of topics, each with its partition numbers, sorted."""
        by_topic = {
            topic: [number for _, number in group]
            for topic, group in groupby(sorted(values), key=lambda partition: partition.topic)
        }
        self.int32(len(by_topic))
        for topic, numbers in by_topic.items():
            self.string(topic).int32s(numbers)
        return self

    def finish(self) -> bytes:
        """Return all appended bytes."""
        return b"".join(self._parts)


class Reader:
    """A decoder of primitive values; reading beyond the end of the data raises ``struct.error``."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        """Whether all data has been read."""
        return self._position >= len(self._data)

    def int8(self) -> int:
        """Read an 8-bit integer."""
        return self._unpack(_INT8)

    def int16(self) -> int:
        """Read a 16-bit integer."""
        return self._unpack(_INT16)

    def int32(self) -> int:
        """Read a 32-bit integer."""
        return self._unpack(_INT32)

    def int64(self) -> int:
        """Read a 64-bit integer."""
        return self._unpack(_INT64)

    def string(self) -> str:
        """Read text with a 16-bit length."""
        return self._take(self.int16()).decode()

    def nullable_string(self) -> str | None:
        """Read text with a 16-bit length, or None for length -1."""
        length = self.int16()
        return None if length < 0 else self._take(length).decode()

    def nullable_bytes(self) -> bytes | None:
        """Read bytes with a 32-bit length, or None for length -1."""
        length = self.int32()
        return None if length < 0 else self._take(length)

    def int32s(self) -> tuple[int, ...]:
        """Read an array of 32-bit integers."""
        count = self.int32()
        return struct.unpack(f">{count}i", self._take(4 * count))

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Read the partitions of an array of topics."""
        partitions: list[TopicPartition] = []
        for _ in range(self.int32()):
            topic = self.string()
            partitions += [TopicPartition(topic, number) for number in self.int32s()]
        return tuple(partitions)

    def _unpack(self, layout: struct.Struct) -> int:
        value: int = layout.unpack_from(self._data, self._position)[0]
        self._position += layout.size
        return value

    def _take(self, length: int) -> bytes:
        start = self._position
        self._position = self._position + length
        if length < 0 or self._position > len(self._data):
            raise struct.error(f"{length} bytes wanted at {start}, of {len(self._data)}")
        return self._data[start : self._position]
