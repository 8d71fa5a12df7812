"""Advance of stream time with the wall clock while inputs are idle, so that results do not wait for another record.

Operators act on stream time, which usually only records advance.  If the sources of an operator have been at their end
for their ``idle_close``, the stream time of the operator advances at the pace of the wall clock: from the highest
timestamp of these sources, by the time for which they have been idle.  So old records that are read live do not close
all windows at once.

Operators with the same sources form an idle group.  The wall-clock time since which a group is idle is committed like
the stream time of an operator, so that it is kept after a restart or a move of the task.  The module imports only
``clients``, ``core`` and ``topology`` from outside ``runtime``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from streams.clients import Consumer
from streams.core.blocks.records import NO_TIMESTAMP
from streams.runtime.tasks.queues import PartitionQueue
from streams.runtime.tasks.recording import OrderRecorder
from streams.topology import SourceNode, StreamTime, Topology, sub_topologies

#: Bounds in milliseconds for the time between two advances of an idle group; within them it is a tenth of the limit.
_SHORTEST_STEP_MS = 10
_LONGEST_STEP_MS = 250

#: Advances an operator to a stream time; returns whether it has forwarded records or changed its state.
Advance = Callable[[int], bool]


@frozen
class IdleLimits:
    """The idle limits of the sources of an application, in milliseconds.

    A source with the limit 0 is never idle.  A source whose limit is None has the longest limit of the other sources of
    its operators.  If these have no limit either, the stream time of the operators is advanced by records only.
    """

    by_source: Mapping[str, int | None]
    #: The sub-topologies upstream of each source that reads a repartition topic.
    upstream: Mapping[str, frozenset[int]]

    @classmethod
    def of(cls, topology: Topology, default_ms: int, delay_ms: int) -> "IdleLimits | None":
        """Return the idle limits of the sources of a topology, or None if no source has a limit.

        A repartition topic has the limit of its upstream sources, plus the time between two of their advances, plus
        the time for which operators upstream may keep results back until a window closes, plus ``delay_ms``, the time
        until a commit.
        """
        limits = {
            node.name: _limit(topology, node, default_ms or None, delay_ms, frozenset()) for node in topology.sources()
        }
        if not any(limits.values()):
            return None
        return cls(limits, {node.name: _subs_above(topology, node.topics) for node in topology.sources()})

    def joint(self, sources: Iterable[str]) -> int | None:
        """Return the idle limit of several sources together, which is 0 or None if they are never idle."""
        return _joint(self.by_source.get(source) for source in sources)


def _joint(limits: Iterable[int | None]) -> int | None:
    known = [limit for limit in limits if limit is not None]
    return 0 if 0 in known else max(known, default=None)


def _limit(
    topology: Topology, source: SourceNode, default_ms: int | None, delay_ms: int, seen: frozenset[str]
) -> int | None:
    """Return the idle limit of a source; the downstream sources in ``seen`` are skipped, in case of a cycle."""
    if not set(source.topics) & set(topology.internal_topics):
        return default_ms if source.idle_close_ms is None else source.idle_close_ms
    seen |= {source.name}
    sinks = [node.name for node in topology.sinks() if node.topic in source.topics]
    upstream = [topology.nodes[name] for name in sources_of(topology, sinks) - seen]
    limit = _joint(
        _limit(topology, node, default_ms, delay_ms, seen) for node in upstream if isinstance(node, SourceNode)
    )
    return limit and limit + step_ms(limit) + delay_ms + max(kept_back_ms(topology, sink) for sink in sinks)


def step_ms(limit_ms: int) -> int:
    """Return the time in milliseconds between two advances of operators whose sources have an idle limit."""
    return max(_SHORTEST_STEP_MS, min(_LONGEST_STEP_MS, limit_ms // 10))


def _subs_above(topology: Topology, topics: Iterable[str]) -> frozenset[int]:
    """Return the ids of all sub-topologies upstream of the given repartition topics."""
    subs = sub_topologies(topology)
    found = set[int]()
    waiting = [topic for topic in topics if topic in topology.internal_topics]
    while waiting:
        topic = waiting.pop()
        for sub in subs:
            if topic in sub.sink_topics and sub.id not in found:
                found.add(sub.id)
                waiting += sub.source_topics
    return frozenset(found)


def kept_back_ms(topology: Topology, node: str) -> int:
    """Return by how many milliseconds upstream operators may delay the records that reach a node.

    An operator that delays records has an attribute ``keeps_back_ms``.
    """
    parents = getattr(topology.nodes[node], "parents", ())
    return max(
        (
            kept_back_ms(topology, parent)
            + getattr(getattr(topology.nodes[parent], "operator", None), "keeps_back_ms", 0)
            for parent in parents
        ),
        default=0,
    )


def sources_of(topology: Topology, nodes: Iterable[str]) -> frozenset[str]:
    """Return the names of the sources that are upstream of ``nodes`` in the same sub-topology."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = list(nodes)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            node = topology.nodes[name]
            if isinstance(node, SourceNode):
                found.add(name)
            else:
                waiting += node.parents
    return frozenset(found)


@define(eq=False)
class IdleGroup:
    """An idle group: the operators of a task that receive records from the same sources."""

    queues: list[PartitionQueue]
    limit_ms: int
    #: Wall-clock time since which all records of the group are processed, or -1 if unknown.
    since: StreamTime
    #: Node, time by which its records may be behind the sources, and its function, in graph order.
    advances: list[tuple[str, int, Advance]] = field(factory=list)
    #: The sub-topologies that write the topics of the sources, and those upstream of them.
    upstream: frozenset[int] = frozenset()
    #: Wall-clock time of the last advance.
    advanced_ms: int = NO_TIMESTAMP

    @property
    def base_ms(self) -> int:
        """The highest timestamp of the records processed from the group's sources."""
        return max(queue.partition_time_ms for queue in self.queues)

    @property
    def is_at_end(self) -> bool:
        """Whether all known records of the group's sources have been processed."""
        return all(queue.is_at_end for queue in self.queues)

    def due_ms(self) -> int | None:
        """Return the wall-clock time of the next advance of the group, or None if the group is not idle."""
        if self.since.ms == NO_TIMESTAMP:
            return None
        return max(self.since.ms + self.limit_ms, self.advanced_ms + step_ms(self.limit_ms))

    def next_check_ms(self) -> int | None:
        """Return the wall-clock time of the next check if no record arrives, or None if none is needed."""
        if not self.is_at_end or self.base_ms == NO_TIMESTAMP:
            return None
        due_ms = self.due_ms()
        # The check that would have marked the group as idle was postponed, and nothing else announces the next one.
        return self.advanced_ms + step_ms(self.limit_ms) if due_ms is None else due_ms


@define(eq=False)
class IdleClose:
    """The idle groups of one task, and the functions that advance their stream time.

    ``call`` calls a function of a node, and attributes its errors to the node.  ``flush`` forwards the changes in the
    record cache.
    """

    groups: list[IdleGroup]
    call: Callable[[str, Advance, int], bool]
    flush: Callable[[], None]
    recorder: OrderRecorder | None = None
    #: Whether buffered records are known only because they are history: then the group is idle until they are taken.
    foresees: bool = False
    #: Whether an operator has forwarded results, or changed its state, in the current check; punctuations do not count.
    _has_results: bool = False

    def took(self, queues: Sequence[PartitionQueue]) -> None:
        """Mark the groups that read these queues as not idle, because records from the queues have been processed."""
        for group in self.groups:
            if any(queue in group.queues for queue in queues):
                group.since.ms = group.advanced_ms = NO_TIMESTAMP

    def check(self, now_ms: int, busy: frozenset[int] = frozenset()) -> int:
        """Advance the groups that have been idle for their limit; return for how many this had an effect.

        ``busy`` are the sub-topologies that have unprocessed input: groups downstream of them are not idle.
        """
        count = 0
        self._has_results = False
        for index, group in enumerate(self.groups):
            if not (self.foresees or group.is_at_end) or group.base_ms == NO_TIMESTAMP:
                continue
            # In a test driver one task may run all sub-topologies: results upstream must arrive first.
            if group.upstream and (self._has_results or not group.upstream.isdisjoint(busy)):
                group.advanced_ms = now_ms
                continue
            due_ms = group.due_ms()
            if due_ms is None or now_ms >= due_ms:
                count += self.step(index, now_ms)
        return count

    def step(self, index: int, now_ms: int) -> bool:
        """Mark a group as idle or, if it is idle already, advance it; return whether an advance had an effect."""
        group = self.groups[index]
        is_first = group.since.ms == NO_TIMESTAMP
        if is_first:
            group.since.ms = now_ms
        has_effect = not is_first and self._advance(group, now_ms)
        if self.recorder is not None:
            self.recorder.idled(now_ms, index, is_kept=is_first or has_effect)
        return has_effect

    def forget_steps(self) -> None:
        """Make the next check advance all groups that have been idle for their limit, without waiting for a step."""
        for group in self.groups:
            group.advanced_ms = NO_TIMESTAMP

    def waits_for_answers(self, consumer: Consumer, oldest_ms: int, now_ms: int) -> bool:
        """Return whether the consumer learned the end offset of any input before ``oldest_ms``.

        ``oldest_ms`` is monotonic time.  If the result is True, the next check is postponed.
        """
        queues = {queue.partition for group in self.groups for queue in group.queues}
        if all((consumer.end_known_ms(partition) or 0) >= oldest_ms for partition in queues):
            return False
        self.postpone(now_ms)
        return True

    def postpone(self, now_ms: int) -> None:
        """Postpone the next advance of each group by one step."""
        for group in self.groups:
            group.advanced_ms = now_ms

    def next_due_ms(self) -> int | None:
        """Return the wall-clock time at which the next check is due if no record arrives, or None."""
        times = [at_ms for group in self.groups if (at_ms := group.next_check_ms()) is not None]
        return min(times, default=None)

    def _advance(self, group: IdleGroup, now_ms: int) -> bool:
        group.advanced_ms = now_ms
        stream_time_ms = group.base_ms + now_ms - group.since.ms
        self.flush()
        has_effect = False
        for node, behind_ms, advance in group.advances:
            if self.call(node, advance, stream_time_ms - behind_ms):
                has_effect = True
                self._has_results = self._has_results or bool(node)
                # An operator further downstream must see the results before its own time advances.
                self.flush()
        return has_effect


def idle_close(
    limits: IdleLimits,
    topology: Topology,
    queues_of: Callable[[Iterable[str]], list[PartitionQueue]],
    times: dict[str, StreamTime],
    advances: Iterable[tuple[str, Sequence[str], Advance]],
    **calls: Any,
) -> IdleClose | None:
    """Return the idle groups of a task, or None if none of its operators can be idle.

    ``advances`` contains, in graph order, the name of a node, the nodes whose sources determine its group, and the
    function that advances it.  ``times`` are the committed stream times of the task's operators.
    """
    groups: dict[frozenset[str], IdleGroup] = {}
    for node, counted, advance in advances:
        sources = sources_of(topology, counted)
        limit_ms = limits.joint(sources)
        queues = queues_of(sources)
        if not limit_ms or not queues:
            continue
        if sources not in groups:
            since = times.setdefault(f"{node}/idle", StreamTime())
            upstream = frozenset[int]().union(*(limits.upstream[source] for source in sources))
            groups[sources] = IdleGroup(queues, limit_ms, since, upstream=upstream)
        behind_ms = kept_back_ms(topology, node) if node in topology.nodes else 0
        groups[sources].advances.append((node, behind_ms, advance))
    return IdleClose(list(groups.values()), **calls) if groups else None
