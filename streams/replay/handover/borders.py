"""Continues an output topic if the end of the previous run was computed again in another order.

The last records of each run are processed without waiting for later ones.  If the next run has rows that are older,
the outputs after the settled ones change, although the earlier ones were published.  The topic keeps them, and gets
the records after which each key has the sequence of the outputs, or at least their last record.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from attrs import define, field

from streams.core.blocks.records import Block, Headers
from streams.replay.handover.corrections import picked, record_digest


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

    def reach(self, wanted: Iterable[Block]) -> int:
        """Return the number of first records of ``wanted`` that have all of these records and keys, if they exist."""
        left = Counter((key, digest) for key, found in self._digests.items() for digest in found)
        unseen = set(self._digests)
        reached = number = 0
        for number, (key, digest, _) in enumerate(_records(wanted), 1):
            is_published = left[key, digest] > 0
            left[key, digest] -= is_published
            if is_published or key in unseen or number <= self.count:
                reached = number
            unseen.discard(key)
        return reached

    def missing(self, wanted: Iterable[Block]) -> "Missing":
        """Return what the topic needs, so that each key has the sequence, or the last record, of ``wanted``."""
        found: dict[bytes | None, list[tuple[int, bytes | None]]] = {key: [] for key in self._digests}
        result = Missing()
        for number, (key, digest, _) in enumerate(_records(wanted)):
            if key in found:
                found[key].append((number, digest))
            else:
                result.numbers.add(number)
        for key, own in found.items():
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

    def blocks(self, before: Callable[[], Iterable[Block]], wanted: Iterable[Block]) -> Iterator[Block]:
        """Yield the records; ``before`` are the outputs before ``wanted``, which have the last values of other keys."""
        if self.gone:
            yield from self._restored(before())
        yield from picked(wanted, self.numbers)

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
        for key, value, time_ms, found in zip(block.keys, block.values, block.timestamps, headers, strict=True):
            yield key, None if value is None else record_digest(value, time_ms, found), time_ms


def _known(published: Sequence[bytes | None], wanted: Sequence[bytes | None]) -> tuple[int, bool]:
    """Return how many first items of ``wanted`` were published in this order, and whether nothing came after them.

    >>> _known([b"a", b"c"], [b"a", b"b", b"c"]), _known([b"x", b"a"], [b"a", b"b"]), _known([b"a", b"x"], [b"a"])
    ((1, False), (1, True), (1, False))
    """
    count = 0
    is_last = not published
    for digest in published:
        is_last = count < len(wanted) and digest == wanted[count]
        count += is_last
    return count, is_last
