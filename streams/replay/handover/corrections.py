"""Corrections of an output topic that is read as a table: records after which each key has the replay's last value.

A topic keeps the records that were published.  After a repair, some keys have other results than the published ones; a
key may also have no result any more, such as a session that became part of another session.
"""

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from attrs import define, field

from streams.core.blocks.records import Block, Headers, TopicPartition
from streams.replay.errors import ReplayError


class _Last(NamedTuple):
    """The last record of a key: its number in the partition, its timestamp, and its digest (None for a tombstone)."""

    number: int
    timestamp_ms: int
    digest: bytes | None


@define(eq=False)
class LastRecords:
    """The last record of each key of a partition."""

    count: int = 0
    _keys: dict[bytes, _Last] = field(factory=dict)

    @classmethod
    def of(cls, partition: TopicPartition, blocks: Iterable[Block]) -> "LastRecords":
        """Return the last record of each key in blocks of records.

        Raises:
            ReplayError: a record has no key.
        """
        result = cls()
        for block in blocks:
            headers = block.headers if block.headers is not None else [()] * len(block)
            for key, value, time_ms, found in zip(block.keys, block.values, block.timestamps, headers, strict=True):
                if key is None:
                    raise ReplayError(
                        f"{partition}: cannot be corrected: it has records without a key, so it is no table; publish "
                        "to another broker"
                    )
                digest = None if value is None else record_digest(value, time_ms, found)
                result._keys[key] = _Last(result.count, time_ms, digest)
                result.count += 1
        return result

    def differing_from(self, others: "LastRecords") -> Iterator[int]:
        """Yield the numbers of the records that differ from the last record of the same key in ``others``."""
        for key, last in self._keys.items():
            other = others._keys.get(key)
            if last.digest != (None if other is None else other.digest):
                yield last.number

    def missing_in(self, others: "LastRecords") -> Block:
        """Return tombstones for the keys that have a value here, but do not exist in ``others``."""
        found = [
            (key, last.timestamp_ms)
            for key, last in self._keys.items()
            if last.digest is not None and key not in others._keys
        ]
        return Block([key for key, _ in found], [None] * len(found), [time_ms for _, time_ms in found])


def record_digest(value: bytes, timestamp_ms: int, headers: Headers) -> bytes:
    """Return a digest of the value, the timestamp and the headers of a record."""
    content = repr((value, timestamp_ms, tuple(map(tuple, headers))))
    return blake2b(content.encode(), digest_size=16).digest()


def corrections(
    partition: TopicPartition, wanted: Callable[[], Iterable[Block]], topic: LastRecords
) -> Iterator[Block]:
    """Yield the records to append to a partition so that each key has the same last record as in ``wanted``.

    Raises:
        ReplayError: a record has no key.
    """
    new = LastRecords.of(partition, wanted())
    if len(tombstones := topic.missing_in(new)):
        yield tombstones
    if numbers := set(new.differing_from(topic)):
        yield from picked(wanted(), numbers)


def picked(blocks: Iterable[Block], numbers: "set[int]") -> Iterator[Block]:
    """Yield the records with the given numbers, counted over all blocks."""
    start = 0
    for block in blocks:
        rows = [row for row in range(len(block)) if start + row in numbers]
        start += len(block)
        if rows:
            yield Block(
                [block.keys[row] for row in rows],
                [block.values[row] for row in rows],
                [block.timestamps[row] for row in rows],
                None if block.headers is None else [block.headers[row] for row in rows],
            )
