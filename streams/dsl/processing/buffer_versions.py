"""Changelog records of ``suppress`` as earlier releases of Kafka Streams wrote them, converted to the present layout.

The header ``v`` of a record names its version: none for 0 (up to 2.1), 1 (2.2), 2 (2.3), 3 (since 2.4; 2.4.0, 2.4.1
and 2.5.0 named it 2).  Versions 0 and 1 begin with the time that orders the record, and have no value before the first
buffered change: it is the old value of the first record of the key.  Versions 0 to 2 have old and new value in one
array.  A record that does not have the structure of its version stays as it is, and is refused when it is restored.
"""

from collections.abc import Callable
from struct import Struct, error

from attrs import define, field

from streams.core.blocks.records import Block, Headers, RecordMetadata, TopicPartition
from streams.dsl.processing.buffered import Buffered, parsed_context, unsized, written

_HEADER = "v"
_PRESENT = b"\x03"
_PLACE = Struct(">q")

#: Old and new value.
_Change = tuple[bytes | None, bytes | None]


def buffer_upgrades(partition: TopicPartition) -> Callable[[Block], Block]:
    """Return the function that converts the records of one partition of the changelog, which are given in order."""
    return _Upgrade(partition).block


@define
class _Upgrade:
    partition: TopicPartition
    #: The value before the first buffered change, by the keys that earlier releases have buffered.
    _priors: dict[bytes | None, bytes | None] = field(factory=dict)

    def block(self, block: Block) -> Block:
        """Return the block with values of the present layout."""
        versions = [_version(headers) for headers in block.headers or [()] * len(block)]
        if not self._priors and all(
            value is None or version == _PRESENT for value, version in zip(block.values, versions, strict=True)
        ):
            return block
        values = list(block.values)
        for index, (offset, key, value, time_ms, headers) in enumerate(block.rows()):
            if value is None:
                self._priors.pop(key, None)
            elif versions[index] != _PRESENT:
                place = RecordMetadata(*self.partition, offset), time_ms, headers or None
                row = self._row(versions[index], key, value, place)
                if row is not None:
                    values[index] = written(row)
        return block.with_values(values)

    def _row(
        self, version: bytes | None, key: bytes | None, data: bytes, place: tuple[RecordMetadata, int, Headers | None]
    ) -> Buffered | None:
        """Return the buffered record, or None if the bytes are something else."""
        try:
            if version == b"\x02":
                return _second(data)
            if version == b"\x01":
                context, at = parsed_context(data, _PLACE.size)
                both, end = unsized(data, at)
                (old, new), _ = _change(both or b"", 0)
            elif version is None:
                context = place
                (old, new), end = _change(data, _PLACE.size)
            else:
                return None
            if end != len(data):
                return None
        except (ValueError, error):
            return None
        origin, time_ms, headers = context
        prior = self._priors.setdefault(key, old)
        return origin, _PLACE.unpack_from(data)[0], time_ms, headers, prior, old, new


def _version(headers: Headers) -> bytes | None:
    return next((content for name, content in reversed(headers) if name == _HEADER), None)


def _change(data: bytes, place: int) -> tuple[_Change, int]:
    """Return old and new value at ``place``, and the place behind them."""
    old, place = unsized(data, place)
    new, place = unsized(data, place)
    return (old, new), place


def _second(data: bytes) -> Buffered | None:
    """Return a record of version 2, or None if it has the present layout, or another."""
    (origin, time_ms, headers), place = parsed_context(data, 0)
    both, place = unsized(data, place)
    if both is None:
        return None
    (old, new), end = _change(both, 0)
    prior, place = unsized(data, place)
    if end != len(both) or place + _PLACE.size != len(data):
        return None
    return origin, _PLACE.unpack_from(data, place)[0], time_ms, headers, prior, old, new
