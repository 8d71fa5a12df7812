"""Where the keys of a topic are: whether a sample of them is in the partitions that the default partitioner gives.

Records of one key in two partitions belong to two tasks: joins find no partner, and aggregates are counted twice.
Topics that were given more partitions have such records, and topics whose producers use another partitioner; which
one it was is derived from the misplaced keys. This module is pure, and imports only other
modules of ``core``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import log2

from attrs import define, field, frozen

from streams.core.blocks.partitioning import KEY_HASHES, MURMUR2, KeyHash, partitions_for
from streams.core.concurrency.threads import copied

#: What explains misplaced keys that several partitioners would explain.
UNCLEAR = "unclear"
#: Number of records of a partition that a command samples, in some spans of neighbours.
_SAMPLE = 1_000
_SPANS = 5
#: Number of distinct misplaced keys of a topic from which the partitioner is derived.
_MAX_EVIDENCE = 64
#: Below this number of keys nothing is certain: a person may have written them, to a partition of their choice.
_MIN_EVIDENCE = 8
#: Share of the misplaced keys that a partitioner must explain; the others may come from another producer.
_SHARE = 0.9
#: A partitioner is certain if the keys would fit it by chance once in so many topics.
_CHANCE_BITS = 10
#: Number of bytes of a key that messages show.
_SHOWN = 60
#: With more partitions, earlier partition counts of a topic are looked for among the divisors of the count only.
_MAX_COUNTS = 64


@frozen
class MisplacedKey:
    """A key that is in another partition than the default partitioner gives; ``expected`` is that partition."""

    key: bytes
    partition: int
    offset: int
    expected: int

    def __str__(self) -> str:
        key = f"{self.key!r}" if len(self.key) <= _SHOWN else f"{self.key[:_SHOWN]!r}..."
        where = f"offset {self.offset:,} of partition {self.partition}"
        return f"{key} is at {where}; by murmur2 its place is partition {self.expected}"


@frozen
class Placement:
    """A way to choose partitions: the hash of the key modulo a partition count; ``explained`` keys are where it says.

    ``bits`` is the binary logarithm of how unlikely it is that the keys fit by chance.
    """

    hash: KeyHash
    partitions: int
    explained: int
    bits: float

    def name(self, partitions: int) -> str:
        """Return a short name, for a topic with ``partitions`` partitions."""
        if self.partitions == partitions:
            return self.hash.name
        return f"{self.hash.name} over {self.partitions} partition{'s' * (self.partitions > 1)}"

    def describe(self, partitions: int) -> str:
        """Return the name and what uses it, for a topic with ``partitions`` partitions."""
        if self.partitions == partitions:
            return f"{self.name(partitions)} ({self.hash.clients})"
        return f"{self.name(partitions)} (the topic had fewer partitions when they were written)"


def placements(
    misplaced: Mapping[bytes, int], partitions: int, placed: Mapping[int, int] | None = None
) -> list[Placement]:
    """Return the placements that explain the partitions of misplaced keys, the most likely one first.

    ``placed`` has the number of keys in each partition that are where the default partitioner puts them.

    >>> [placement.hash.name for placement in placements({b"23456": 0xB1B451D7 % 7}, 7)][:1]
    ['CRC32']
    """
    counts = [count for count in range(partitions, 0, -1) if partitions <= _MAX_COUNTS or not partitions % count]
    result = []
    for hash_ in KEY_HASHES:
        # librdkafka's default places empty keys at random.
        hashed = [(hash_.of(key), partition) for key, partition in misplaced.items() if key]
        for count in counts:
            if hash_ is MURMUR2 and count == partitions:
                continue
            explained = sum(number % count == partition for number, partition in hashed)
            if not explained or explained < _SHARE * len(hashed):
                continue
            # Before the topic grew, no key was in the new partitions, and those that are there now are in their places.
            beyond = sum(number for partition, number in (placed or {}).items() if partition >= count)
            result.append(Placement(hash_, count, explained, explained * log2(count) + beyond * log2(partitions)))
    return sorted(result, key=lambda placement: -placement.bits)


def sampled_spans(start: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of offsets to sample between two offsets: the oldest records, the newest, and some between.

    >>> sampled_spans(0, 900), sampled_spans(0, 9_000)[::4]
    ([(0, 900)], [(0, 200), (8800, 9000)])
    """
    if end - start <= _SAMPLE:
        return [(start, end)]
    size = _SAMPLE // _SPANS
    firsts = (start + (end - start - size) * number // (_SPANS - 1) for number in range(_SPANS))
    return [(first, first + size) for first in firsts]


@define(eq=False)
class KeyPlaces:
    """The sampled keys of one topic: how many there are, how many of them are misplaced, and what explains these.

    ``key_suffix`` is the number of bytes at the end of a key that have no influence on its partition, such as the
    window of a windowed key.
    """

    topic: str
    partitions: int
    key_suffix: int = 0
    misplaced: int = 0
    first: MisplacedKey | None = None
    #: Distinct misplaced keys, with their partitions.
    _evidence: dict[bytes, int] = field(factory=dict)
    #: Number of keys at their place, by partition.
    _placed: dict[int, int] = field(factory=dict)

    @property
    def sampled(self) -> int:
        """The number of sampled keys."""
        return self.misplaced + sum(self._placed.values())

    def expected(self, keys: Sequence[bytes]) -> list[int]:
        """Return the partition of each key by the default partitioner."""
        return partitions_for(keys, self.partitions, self.key_suffix)

    def place(self, partition: int, count: int = 0) -> None:
        """Add ``count`` keys of a partition that are at their place to the sample."""
        self._placed[partition] = self._placed.get(partition, 0) + count

    @property
    def needs_evidence(self) -> bool:
        """Whether further misplaced keys help to derive the partitioner."""
        return len(self._evidence) < _MAX_EVIDENCE

    def weigh(self, partition: int, keys: Iterable[bytes | None], home: Collection[int]) -> None:
        """Use further keys of a partition, which are not of the sample, to derive the partitioner of misplaced keys."""
        present = [key for key in keys if key is not None]
        for key, expected in zip(present, self.expected(present), strict=True):
            if expected not in home and self.needs_evidence:
                self._evidence[key[: len(key) - self.key_suffix]] = partition

    def look(
        self, partition: int, keys: Sequence[bytes | None], offsets: Sequence[int], home: Collection[int]
    ) -> list[MisplacedKey]:
        """Add the keys of records of one partition to the sample, and return those that are misplaced.

        ``home`` has the partitions that are read together with this one, so that a key may be in any of them. Null keys
        have no place.
        """
        indices = [index for index, key in enumerate(keys) if key is not None]
        present = [key for key in keys if key is not None]
        strays = []
        for index, key, expected in zip(indices, present, self.expected(present), strict=True):
            if expected in home:
                continue
            strays.append(MisplacedKey(key, partition, offsets[index], expected))
        self.first = self.first or next(iter(strays), None)
        self.misplaced += len(strays)
        self.place(partition, len(present) - len(strays))
        if self.needs_evidence:
            self.weigh(partition, [stray.key for stray in strays], home)
        return strays

    @property
    def _likely(self) -> tuple[list[Placement], bool]:
        """The placements that explain the misplaced keys, and whether the first one, or that there is none, is sure."""
        # Another thread may be adding keys of its partitions.
        likely = placements(copied(self._evidence), self.partitions, copied(self._placed))
        if not likely:
            return likely, True
        needed = _CHANCE_BITS + log2(len(KEY_HASHES) * self.partitions)
        return likely, len(self._evidence) >= _MIN_EVIDENCE and likely[0].bits >= needed

    @property
    def summary(self) -> str:
        """The numbers of sampled and misplaced keys, with what explains these."""
        counts = f"{self.sampled:,} sampled, {self.misplaced:,} misplaced"
        return f"{counts}: {self.explanation}" if self.misplaced else counts

    @property
    def reason(self) -> str:
        """What explains the misplaced keys, as the value of a tag: the name of a partitioner, "none" or ``UNCLEAR``."""
        likely, is_sure = self._likely
        if not likely:
            return "none"
        return likely[0].name(self.partitions) if is_sure else UNCLEAR

    @property
    def explanation(self) -> str:
        """What explains the misplaced keys, as a clause."""
        likely, is_sure = self._likely
        count = len(self._evidence)
        keys = f"{count} such key{'s' * (count > 1)}"
        if not likely:
            return f"no hash of the key explains {keys}: sticky, round robin, or a partitioner of its own"
        if is_sure:
            return f"{likely[0].describe(self.partitions)} explains {likely[0].explained} of {keys}"
        names = " or ".join(placement.describe(self.partitions) for placement in likely[:3])
        return f"{keys} cannot tell which partitioner it was: perhaps {names}"
