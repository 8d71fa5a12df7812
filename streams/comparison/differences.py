"""What may differ between two versions: the words for it, records and entries that show it.

Values only; made by ``compare_topics`` and ``compare_stores``, shown by the command line.
"""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from streams.comparison.takeover import Evidence

#: How a key may differ, the gravest first.
LAST, ONLY_OLD, ONLY_NEW, UPDATES, TIMES, ORDER, RETYPED = (
    "last value differs",
    "only in OLD",
    "only in NEW",
    "updates differ",
    "times differ",
    "order differs",
    "same value of another type",
)
KINDS = (LAST, ONLY_OLD, ONLY_NEW, UPDATES, TIMES, ORDER, RETYPED)


@frozen
class Side:
    """A record as one version has it: ``number`` counts within its partition, from 0."""

    partition: int
    number: int
    timestamp_ms: int
    value: Any


@frozen
class KeyDifference:
    """What differs in one key: ``old`` and ``new`` are its first records that differ, None where one has no more.

    ``last`` has the values that each version ends with, ``counts`` how many records it has.
    """

    key: str
    kind: str
    old: Side | None
    new: Side | None
    last: tuple[Any, Any]
    counts: tuple[int, int]


@frozen
class TopicComparison:
    """An output topic in two versions; ``keys`` counts those that differ, by kind, ``examples`` shows some.

    Records without a key are compared as a heap: each that only one version has counts as one.
    """

    name: str
    #: Records of each version, None where it does not write the topic.
    counts: tuple[int | None, int | None]
    keys: Mapping[str, int] = field(factory=dict)
    keys_in_all: int = 0
    examples: tuple[KeyDifference, ...] = ()
    #: Each key has the same records, but the keys take turns otherwise.
    is_order_only: bool = False
    #: Changed types and partition counts, in words.
    notes: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether both versions wrote the same records in the same order."""
        return not self.keys and not self.is_order_only and self.counts[0] == self.counts[1]


@frozen
class EntryDifference:
    """An entry of a store that differs; None is an entry that is not there."""

    key: str
    kind: str
    old: Any
    new: Any
    times: tuple[int | None, int | None]


@frozen
class StoreComparison:
    """A store in two versions, under its names there, None where it has none."""

    old: str | None
    new: str | None
    counts: tuple[int | None, int | None]
    entries: Mapping[str, int] = field(factory=dict)
    examples: tuple[EntryDifference, ...] = ()
    notes: tuple[str, ...] = ()
    evidence: Evidence = field(factory=Evidence)

    @property
    def is_same(self) -> bool:
        """Whether both have the same entries."""
        return not self.entries and self.counts[0] == self.counts[1] and None not in (self.old, self.new)
