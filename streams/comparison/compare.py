"""Comparison of two versions of a topology: outputs, stores, and whether the new version can reuse the old state.

This module is the entry point of the package; it calls ``compare_topic``, ``compare_stores`` and ``take_over``.
"""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from streams.comparison.differences import StoreComparison, TopicComparison
from streams.comparison.drawing import drawing
from streams.comparison.matching import paired_stores
from streams.comparison.stores import compare_stores
from streams.comparison.takeover import TakeOver, take_over
from streams.comparison.topics import compare_topic
from streams.comparison.versions import Version
from streams.core.http.html import table
from streams.replay.run.result import ReplayResult
from streams.topology import Topology

#: Default number of examples of each topic and store.
EXAMPLES = 5


@frozen
class Comparison:
    """The comparison of two versions: replayed outputs and stores, and whether the new version can reuse the state."""

    take_over: TakeOver
    topics: tuple[TopicComparison, ...] = ()
    stores: tuple[StoreComparison, ...] = ()
    _topologies: tuple[Topology, ...] = field(default=(), repr=False, eq=False)

    def to_svg(self) -> str:
        """Return both versions as one drawing: green is new, red is gone, yellow has changed."""
        old, new = self._topologies
        names = [item.name for item in self.topics if not item.is_same]
        return drawing(old, new, [*names, *(item.new for item in self.stores if item.new and not item.is_same)])

    @property
    def is_same(self) -> bool:
        """Whether all compared outputs and store contents are the same."""
        return all(item.is_same for item in self.topics) and all(item.is_same for item in self.stores)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: tables of topics and stores, and the first keys that differ."""
        topics = [(it.name, *_counts(it.counts), _said(it.is_same, it.keys)) for it in self.topics]
        stores = [(it.new or it.old, *_counts(it.counts), _said(it.is_same, it.entries)) for it in self.stores]
        examples = [
            (topic.name, example.key, example.kind, *(_last(value) for value in example.last))
            for topic in self.topics
            for example in topic.examples
        ]
        parts = [
            table("Outputs", ["topic", "OLD", "NEW", "difference"], topics),
            table("Stores", ["store", "OLD", "NEW", "difference"], stores),
        ]
        if examples:
            parts.append(table("Keys", ["topic", "key", "difference", "last in OLD", "last in NEW"], examples))
        return "".join([*parts, self.to_svg()] if self._topologies else parts)


def _counts(counts: tuple[int | None, int | None]) -> tuple[int | str, ...]:
    return tuple("none" if count is None else count for count in counts)


def _said(is_same: bool, kinds: Mapping[str, int]) -> str:
    return "same" if is_same else ", ".join(f"{kind}: {count:,}" for kind, count in kinds.items()) or "order"


def _last(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else repr(value)


def compare(old: ReplayResult | Version, new: ReplayResult | Version, *, limit: int = EXAMPLES) -> Comparison:
    """Compare the outputs and stores of two versions, and check whether the new version can take over the state.

    Without replays, only the declared stores of the versions are compared.  ``limit`` is the maximum number of examples
    for each topic and store.

    Raises:
        ReplayError: a file of a replay is missing or damaged.
    """
    one = old if isinstance(old, Version) else Version.of(old)
    two = new if isinstance(new, Version) else Version.of(new)
    if one.result is None or two.result is None:
        return Comparison(take_over(one, two), topologies=(one.topology, two.topology))
    pairs = paired_stores(one.topology, two.topology)
    stores = tuple(compare_stores(one, two, pairs, limit))
    evidence = {item.new: item.evidence for item in stores if item.new is not None and item.new == item.old}
    topics = tuple(compare_topic(one.result, two.result, name, limit) for name in _topics(one.result, two.result))
    return Comparison(take_over(one, two, evidence), topics, stores, (one.topology, two.topology))


def _topics(old: ReplayResult, new: ReplayResult) -> list[str]:
    return sorted({str(name) for name in (*old.outputs, *new.outputs)})
