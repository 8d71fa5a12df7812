"""Corrections of an output topic that is read as a table: records after which each key has the replay's last value.

A topic keeps the records that were published.  After a repair, some keys have other results than the published ones; a
key may also have no result any more, such as a session that became part of another session.

The last records of each run are processed without waiting for later ones.  If the next run has rows that are older,
the outputs after the settled ones change, although the earlier ones were published.  The topic keeps these, too, and
gets the records after which each key has the sequence of the outputs, or at least their last record.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
            for key, value, time_ms, own_headers in zip(
                block.keys, block.values, block.timestamps, headers, strict=True
            ):
                if key is None:
                    raise ReplayError(
                        f"{partition}: cannot be corrected: it has records without a key, so it is no table; publish "
                        "to another broker"
                    )
                digest = None if value is None else record_digest(value, time_ms, own_headers)
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
        lost = [
            (key, last.timestamp_ms)
            for key, last in self._keys.items()
            if last.digest is not None and key not in others._keys
        ]
        return Block([key for key, _ in lost], [None] * len(lost), [time_ms for _, time_ms in lost])


def record_digest(value: bytes, timestamp_ms: int, headers: Headers) -> bytes:
    """Return a digest of the value, the timestamp and the headers of a record."""
    content = repr((value, timestamp_ms, tuple(map(tuple, headers))))
    return blake2b(content.encode(), digest_size=16).digest()


def corrections(
    partition: TopicPartition, outputs: Callable[[], Iterable[Block]], topic: LastRecords
) -> Iterator[Block]:
    """Yield the records to append to a partition so that each key has the same last record as in ``outputs``.

    Raises:
        ReplayError: a record has no key.
    """
    new = LastRecords.of(partition, outputs())
    if len(tombstones := topic.missing_in(new)):
        yield tombstones
    if numbers := set(new.differing_from(topic)):
        yield from picked(outputs(), numbers)


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


@define(eq=False)
class PublishedEnd:
    """The records at the end of a partition that were published from outputs which have changed since, by key."""

    count: int = 0
    _digests: dict[bytes | None, list[bytes | None]] = field(factory=dict)
    _last_ms: dict[bytes, int] = field(factory=dict)

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> "PublishedEnd":
        """Return the records of blocks."""
        result = cls()
        for key, digest, time_ms in _records(blocks):
            result._digests.setdefault(key, []).append(digest)
            if key is not None:
                result._last_ms[key] = time_ms
            result.count += 1
        return result

    def reach(self, outputs: Iterable[Block]) -> int:
        """Return the number of first records of ``outputs`` that have all of these records and keys, if they exist."""
        left = Counter((key, digest) for key, digests in self._digests.items() for digest in digests)
        unseen = set(self._digests)
        reached = number = 0
        for number, (key, digest, _) in enumerate(_records(outputs), 1):
            is_published = left[key, digest] > 0
            left[key, digest] -= is_published
            if is_published or key in unseen or number <= self.count:
                reached = number
            unseen.discard(key)
        return reached

    def missing(self, outputs: Iterable[Block]) -> "Missing":
        """Return what the topic needs, so that each key has the sequence, or the last record, of ``outputs``."""
        sequences: dict[bytes | None, list[tuple[int, bytes | None]]] = {key: [] for key in self._digests}
        result = Missing()
        for number, (key, digest, _) in enumerate(_records(outputs)):
            if key in sequences:
                sequences[key].append((number, digest))
            else:
                result.numbers.add(number)
        for key, own in sequences.items():
            published = self._digests[key]
            if key is None:
                left = Counter(published)
                for number, digest in own:
                    if left[digest] > 0:
                        left[digest] -= 1
                    else:
                        result.numbers.add(number)
            elif not own:
                result.gone[key] = published[-1], self._last_ms[key]
            else:
                same, is_last = _known(published, [digest for _, digest in own])
                rest = own[same:] if is_last else own[same:] or own[-1:]
                result.numbers.update(number for number, _ in rest)
        return result


@define(eq=False)
class Missing:
    """The records that a topic needs: numbers of outputs, and keys whose published records have no successor."""

    numbers: set[int] = field(factory=set)
    #: By key, the digest and the time of the last published record.
    gone: dict[bytes, tuple[bytes | None, int]] = field(factory=dict)

    def blocks(self, before: Callable[[], Iterable[Block]], outputs: Iterable[Block]) -> Iterator[Block]:
        """Yield the records; ``before`` are the outputs before, which have the last values of other keys."""
        if self.gone:
            yield from self._restored(before())
        yield from picked(outputs, self.numbers)

    def _restored(self, before: Iterable[Block]) -> Iterator[Block]:
        """Yield the last record of each key that the new outputs do not have, or a tombstone if there is none."""
        last: dict[bytes, Block] = {}
        for block in before:
            for row, key in enumerate(block.keys):
                if key in self.gone:
                    last[key] = block.slice(row, row + 1)
        for key, (digest, time_ms) in self.gone.items():
            block = last.get(key) or Block([key], [None], [time_ms])
            if next(_records([block]))[1] != digest:
                yield block


def _records(blocks: Iterable[Block]) -> Iterator[tuple[bytes | None, bytes | None, int]]:
    """Yield the key, the digest (None for a tombstone) and the time of each record."""
    for block in blocks:
        headers: Sequence[Headers] = block.headers if block.headers is not None else [()] * len(block)
        for key, value, time_ms, own_headers in zip(block.keys, block.values, block.timestamps, headers, strict=True):
            yield key, None if value is None else record_digest(value, time_ms, own_headers), time_ms


def _known(published: Sequence[bytes | None], outputs: Sequence[bytes | None]) -> tuple[int, bool]:
    """Return how many first items of ``outputs`` were published in this order, and whether nothing came after them.

    >>> _known([b"a", b"c"], [b"a", b"b", b"c"]), _known([b"x", b"a"], [b"a", b"b"]), _known([b"a", b"x"], [b"a"])
    ((1, False), (1, True), (1, False))
    """
    count = 0
    is_last = not published
    for digest in published:
        is_last = count < len(outputs) and digest == outputs[count]
        count += is_last
    return count, is_last
