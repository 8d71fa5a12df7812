"""Comparison of two versions of a topology: outputs, stores, and whether the new one can take over from the old one.

The entry point of the package; ``compare_topic``, ``compare_stores`` and ``take_over`` do the work.
"""

from attrs import frozen

from streams.comparison.differences import StoreComparison, TopicComparison
from streams.comparison.matching import paired_stores
from streams.comparison.stores import compare_stores
from streams.comparison.takeover import TakeOver, take_over
from streams.comparison.topics import compare_topic
from streams.comparison.versions import Version
from streams.replay.run.result import ReplayResult

#: Default number of examples of each topic and store.
EXAMPLES = 5


@frozen
class Comparison:
    """The comparison of two versions: replayed outputs and stores, and whether the new version can take over."""

    take_over: TakeOver
    topics: tuple[TopicComparison, ...] = ()
    stores: tuple[StoreComparison, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether all compared outputs and store contents are the same."""
        return all(item.is_same for item in self.topics) and all(item.is_same for item in self.stores)


def compare(old: ReplayResult | Version, new: ReplayResult | Version, *, limit: int = EXAMPLES) -> Comparison:
    """Compare the outputs and stores of two versions, and check whether the new one can take over the state.

    Without replays, only the declared stores of the versions are compared.  ``limit`` bounds the examples
    of each topic and store.

    Raises:
        ReplayError: a file of a replay is missing or damaged.
    """
    one = old if isinstance(old, Version) else Version.of(old)
    two = new if isinstance(new, Version) else Version.of(new)
    if one.result is None or two.result is None:
        return Comparison(take_over(one, two))
    pairs = paired_stores(one.topology, two.topology)
    stores = tuple(compare_stores(one, two, pairs, limit))
    evidence = {item.new: item.evidence for item in stores if item.new is not None and item.new == item.old}
    topics = tuple(compare_topic(one.result, two.result, name, limit) for name in _topics(one.result, two.result))
    return Comparison(take_over(one, two, evidence), topics, stores)


def _topics(old: ReplayResult, new: ReplayResult) -> list[str]:
    return sorted({str(name) for name in (*old.outputs, *new.outputs)})
