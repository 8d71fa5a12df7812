"""Position bounds on topics upstream of a store's own input topics.

The position of a store contains the offsets of the topics that its tasks read (KIP-796).  A record of a topic upstream
of a repartition is contained in a store under two conditions: its task has committed it, which includes a flush of the
record caches and the producer, and the store's task has read all records that the repartition topic had by then.  The
end offsets of the repartition topic after the commit are therefore a bound on the store's own inputs.  The module
imports only ``core`` from outside ``runtime``.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from attrs import define, field

from streams.core.blocks.records import TopicPartition
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.plan.provisioning import Provisioner
from streams.runtime.stores.store_queries import Position

#: Number of derived bounds that are kept.
_MAX_CACHED = 1_000


@define(eq=False)
class DerivedBounds:
    """Derives bounds on the inputs of stores from bounds on upstream topics; thread-safe.

    A derived bound is cached, so that a repeated query does not wait for records written after its first attempt.
    """

    _provisioner: Provisioner
    _cached: OrderedDict[tuple[frozenset[str], str], Position] = field(init=False, factory=OrderedDict)

    def derive(
        self, plan: ApplicationPlan, inputs: frozenset[str], bound: Position
    ) -> tuple[Position, Position | None]:
        """Return the bound on ``inputs``, or the committed position of an upstream topic that is before its bound.

        Raises:
            CycleError: the topics between the bound and ``inputs`` form a cycle.
        """
        slot = inputs, bound.text()
        if (cached := self._cached.get(slot)) is not None:
            return cached, None
        offsets = dict(bound.offsets)
        writes = upstream_of(plan, inputs)
        origins = {topic for topic, _ in bound.offsets} - inputs
        for topic in _in_order(writes, origins):
            if topic in inputs:
                continue
            own = Position({partition: offset for partition, offset in offsets.items() if partition.topic == topic})
            past = {partition: commit.offset for partition, commit in self._provisioner.committed().items()}
            reached = Position({partition: past.get(partition, 0) - 1 for partition in own.offsets})
            if own.missing_in(reached).offsets:
                return bound, reached
            partitions = [
                TopicPartition(plan.physical_topic(name), number)
                for name in plan.partitions
                if plan.physical_topic(name) in writes[topic]
                for number in range(plan.partitions[name])
            ]
            for partition, end in self._provisioner.ends(partitions).items():
                if end:
                    offsets[partition] = max(end - 1, offsets.get(partition, 0))
        derived = Position({partition: offset for partition, offset in offsets.items() if partition.topic in inputs})
        self._cached[slot] = derived
        if len(self._cached) > _MAX_CACHED:
            self._cached.popitem(last=False)
        return derived, None


def upstream_of(plan: ApplicationPlan, inputs: Iterable[str]) -> dict[str, set[str]]:
    """Return the topics upstream of ``inputs``, each with the next topics on its paths to ``inputs``.

    Topics are given by their names on the broker.
    """
    next_topics: dict[str, set[str]] = {}
    todo = list(inputs)
    done = set(todo)
    while todo:
        topic = todo.pop()
        for sub in plan.subs:
            writes = topic in map(plan.physical_topic, sub.sink_topics)
            for source in map(plan.physical_topic, sub.source_topics) if writes else ():
                next_topics.setdefault(source, set()).add(topic)
                if source not in done:
                    done.add(source)
                    todo.append(source)
    return next_topics


def _in_order(writes: Mapping[str, Iterable[str]], origins: Iterable[str]) -> list[str]:
    """Return the topics on the paths from ``origins`` to the inputs in topological order.

    Raises:
        CycleError: the topics form a cycle.
    """
    before: dict[str, set[str]] = {topic: set() for topic in origins}
    todo = list(before)
    while todo:
        topic = todo.pop()
        for following in writes.get(topic, ()):
            if following not in before:
                todo.append(following)
            before.setdefault(following, set()).add(topic)
    return list(TopologicalSorter(before).static_order())


__all__ = ["CycleError", "DerivedBounds", "upstream_of"]
