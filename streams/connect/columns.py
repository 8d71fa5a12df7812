"""Raw blocks as columns of keys and values.

Of the other packages, this module imports only ``core``.
"""

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from streams.core.blocks.records import Block, Headers
from streams.core.errors import StreamsError
from streams.core.serdes.serdes import Serde
from streams.core.topic import Topic


@frozen(eq=False)
class RawColumns:
    """Records of one partition that are not deserialized, as columns."""

    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps_ms: list[int]
    headers: list[Headers] | None

    def without(self, indexes: set[int]) -> "RawColumns":
        """Return the columns without some rows."""
        remaining = [index for index in range(len(self.offsets)) if index not in indexes]
        return RawColumns(
            [self.offsets[index] for index in remaining],
            [self.keys[index] for index in remaining],
            [self.values[index] for index in remaining],
            [self.timestamps_ms[index] for index in remaining],
            None if self.headers is None else [self.headers[index] for index in remaining],
        )


@frozen
class Unreadable:
    """A record that the serdes of its topic cannot read."""

    index: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers
    error: StreamsError


def joined(blocks: Sequence[Block]) -> RawColumns:
    """Return the concatenated records of several blocks of one partition."""
    columns = RawColumns([], [], [], [], [] if any(block.headers is not None for block in blocks) else None)
    for block in blocks:
        columns.offsets.extend(block.offsets)
        columns.keys.extend(block.keys)
        columns.values.extend(block.values)
        columns.timestamps_ms.extend(block.timestamps)
        if columns.headers is not None:
            columns.headers.extend(block.headers if block.headers is not None else [()] * len(block))
    return columns


def readable(topic: Topic[Any, Any], raw: RawColumns) -> tuple[list[Any], list[Any], list[Unreadable]]:
    """Return the keys and values of the records that can be deserialized, and the records that cannot."""
    key_serde, value_serde = topic.key_serde, topic.value_serde
    try:
        return key_serde.deserialize_all(raw.keys), value_serde.deserialize_all(raw.values), []
    except StreamsError:
        return _one_by_one(raw, key_serde, value_serde)


def _one_by_one(
    raw: RawColumns, key_serde: Serde[Any], value_serde: Serde[Any]
) -> tuple[list[Any], list[Any], list[Unreadable]]:
    keys = []
    values = []
    unreadable = []
    for index, (key, value) in enumerate(zip(raw.keys, raw.values, strict=True)):
        try:
            read = key_serde.deserialize(key), value_serde.deserialize(value)
        except StreamsError as error:
            headers = () if raw.headers is None else raw.headers[index]
            unreadable.append(
                Unreadable(index, raw.offsets[index], key, value, raw.timestamps_ms[index], headers, error)
            )
        else:
            keys.append(read[0])
            values.append(read[1])
    return keys, values, unreadable
