"""Differences between two versions: their kinds, and example records and entries.

These are plain values, created by ``compare_topic`` and ``compare_stores`` and displayed by the command line.
"""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from streams.comparison.takeover import Evidence

#: Kinds of differences of a key, the most severe first.
LAST = "last value differs"
ONLY_OLD = "only in OLD"
ONLY_NEW = "only in NEW"
UPDATES = "updates differ"
TIMES = "times differ"
ORDER = "order differs"
RETYPED = "same value of another type"
KINDS = (LAST, ONLY_OLD, ONLY_NEW, UPDATES, TIMES, ORDER, RETYPED)


@frozen
class Side:
    """A record in the output of one version; ``number`` is its position within the partition, from 0."""

    partition: int
    number: int
    timestamp_ms: int
    value: Any


@frozen
class KeyDifference:
    """The difference of one key: ``old`` and ``new`` are its first differing records, or None after the last record.

    ``last`` has the last value of each version, and ``counts`` the number of records of each version.
    """

    key: str
    kind: str
    old: Side | None
    new: Side | None
    last: tuple[Any, Any]
    counts: tuple[int, int]


@frozen
class TopicComparison:
    """An output topic in two versions; ``keys`` has the number of differing keys by kind, ``examples`` lists some.

    Records without a key are compared as a multiset: every record that only one version has is counted.
    """

    name: str
    #: Number of records of each version, None if the version does not write the topic.
    counts: tuple[int | None, int | None]
    keys: Mapping[str, int] = field(factory=dict)
    keys_in_all: int = 0
    examples: tuple[KeyDifference, ...] = ()
    #: Whether the records of every key are the same, but the order across keys differs.
    is_order_only: bool = False
    #: Descriptions of changed types and partition counts.
    notes: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether both versions wrote the same records in the same order."""
        return not self.keys and not self.is_order_only and self.counts[0] == self.counts[1]


@frozen
class EntryDifference:
    """A store entry that differs between the versions; an entry that a version does not have is None."""

    key: str
    kind: str
    old: Any
    new: Any
    times: tuple[int | None, int | None]


@frozen
class StoreComparison:
    """A store in two versions, with its name in each version, or None if the version has no such store."""

    old: str | None
    new: str | None
    counts: tuple[int | None, int | None]
    entries: Mapping[str, int] = field(factory=dict)
    examples: tuple[EntryDifference, ...] = ()
    notes: tuple[str, ...] = ()
    evidence: Evidence = field(factory=Evidence)

    @property
    def is_same(self) -> bool:
        """Whether the store has the same entries in both versions."""
        return not self.entries and self.counts[0] == self.counts[1] and None not in (self.old, self.new)
