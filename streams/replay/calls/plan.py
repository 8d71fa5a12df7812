"""The plan of a replay: stages, their calls to the executor, and the part of history that each slice reads.

The driver makes the plan.  This module is pure, except that it reads timestamps to divide history by time.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from attrs import define, evolve, field, frozen

from streams.core.records import TaskId, TopicPartition
from streams.dsl.operators import AsyncMap, LookUp
from streams.replay.calls.application import Application
from streams.replay.calls.state import ReplayState
from streams.replay.calls.work import GlobalWork, InputWork, Options, StageWork, TaskWork
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent
from streams.runtime import ApplicationPlan
from streams.topology import SubTopology

#: Rows, of inputs and stores, up to which neighbouring tasks share a call.
TASK_CALL_ROWS = 50_000


@frozen
class Pass:
    """One pass over the stages of a replay: a slice, or the final pass for the records that the slices deferred.

    ``cut`` has the first offset of each source partition that the pass does not read.
    """

    name: str
    number: int
    cut: Mapping[TopicPartition, int]
    is_last: bool
    #: Whether the state may be handed over after the pass, so that it consists of whole contents of stores.
    is_whole: bool = True


@define(eq=False)
class ReplayPlan:
    """The stages of one replay, and their calls to the executor."""

    application: Application
    plan: ApplicationPlan
    #: All known extents of each source partition, including those of global tables.
    sources: Mapping[TopicPartition, Sequence[Extent]]
    options: Options
    root: Place
    #: The tasks of each stage, and the stages that are cycles, whose tasks run together.
    stages: list[list[TaskId]] = field(init=False)
    cyclic: set[int] = field(init=False)
    #: Stage numbers in waves; the stages of a wave do not depend on each other.
    waves: list[list[int]] = field(init=False)
    #: Sub-topologies that call async or look-up functions.
    _calling: set[int] = field(init=False)
    #: The task that reads each partition of the topology.
    _readers: dict[TopicPartition, TaskId] = field(init=False)

    def __attrs_post_init__(self) -> None:
        plan = self.plan
        cycles = plan.cycles()
        parts = plan.stages()
        self.stages = [[task for task in sorted(plan.groups) if task.sub_topology in part] for part in parts]
        self.cyclic = {number for number, part in enumerate(parts) if part[0] in cycles}
        nodes = plan.topology.nodes
        self._calling = {
            sub.id
            for sub in plan.subs
            if any(isinstance(getattr(nodes.get(name), "operator", None), AsyncMap | LookUp) for name in sub.nodes)
        }
        self._readers = {logical: task for task, group in plan.groups.items() for logical in group}
        self.waves = _waves(parts, {sub.id: sub for sub in plan.subs if not sub.is_global})

    @property
    def started_ms(self) -> int:
        """The lowest timestamp in the first row groups of the source partitions, in epoch milliseconds, else 0."""
        return min((extents[0].lowest_ms for extents in self.sources.values() if extents), default=0)

    def reader_of(self, partition: TopicPartition) -> TaskId | None:
        """Return the task that reads a source partition or a lane (the part of a repartition topic from one task)."""
        return self._readers.get(self.plan.logical(partition))

    def most_calls(self, number: int) -> int:
        """Return the maximum number of calls of a stage in one pass: one for each task, or one for all of a cycle."""
        return min(1, len(self.stages[number])) if number in self.cyclic else len(self.stages[number])

    def global_works(self, folder: str) -> list[GlobalWork]:
        """Return one call for each global store, which fills the store from all records of its topics."""
        works = []
        for name, store in sorted(self.plan.topology.global_stores.items()):
            inputs = []
            for topic in store.source.topics:
                for number in range(self.plan.partitions.get(topic, 1)):
                    partition = TopicPartition(topic, number)
                    extents = tuple(self.sources.get(partition, ()))
                    inputs.append(InputWork(partition, extents, 0, _end_of(extents), True))
            works.append(GlobalWork(self.application, name, tuple(inputs), self.root, folder))
        return works

    def works(self, number: int, step: Pass, state: ReplayState, folder: str) -> list[StageWork]:
        """Return the calls of stage ``number`` that have records to process in the pass ``step``."""
        flushes = step.is_last and self.options.final_flush
        is_cycle = number in self.cyclic
        lanes: dict[TopicPartition, list[int]] = {}
        for lane in state.lanes:
            lanes.setdefault(self.plan.logical(lane), []).append(lane.partition)
        tasks = [self._task_work(task, step, state, lanes, is_cycle=is_cycle) for task in self.stages[number]]

        def is_due(task: TaskWork) -> bool:
            # At the end of its inputs, a task may process deferred records, or the results of calls in flight, even if
            # there is nothing to read.
            finishes = step.is_last and task.task_id.sub_topology in self._calling
            is_joined = step.is_whole and any(ref.changes for ref in task.stores.values())
            return task.task_id not in state.positions or flushes or finishes or is_joined or _has_work(task)

        if is_cycle:
            calls = [tasks] if any(map(is_due, tasks)) else []
        else:
            calls = list(_calls(filter(is_due, tasks)))
        return [
            StageWork(
                self.application,
                tuple(call),
                self.root,
                folder,
                number,
                step.is_last,
                evolve(self.options, final_flush=flushes),
                self.started_ms,
                state.global_stores,
                is_cycle,
                step.is_whole,
            )
            for call in calls
        ]

    def _task_work(
        self,
        task: TaskId,
        step: Pass,
        state: ReplayState,
        lanes: Mapping[TopicPartition, Sequence[int]],
        *,
        is_cycle: bool,
    ) -> TaskWork:
        """Return the input of a task in a pass; ``lanes`` has the lanes with records, by partition of the topology.

        A lane is the part of a partition that one task writes; its number is a partition number on the broker.
        """
        positions = state.positions.get(task, {})
        known = {logical: {*lanes.get(logical, ())} for logical in self.plan.groups[task]}
        for partition in positions:
            known.setdefault(self.plan.logical(partition), set()).add(partition.partition)
        # A task that runs by wall-clock time sees which inputs are idle.
        has_all = is_cycle or self.options.wall_clock == "append_time"
        inputs = []
        for logical in self.plan.groups[task]:
            numbers = None if has_all else known[logical]
            for partition, is_written in self._partitions(logical, numbers):
                is_lane = is_written or partition in state.lanes
                found = state.lanes if is_lane else self.sources
                inputs.append(self._input(partition, found.get(partition, ()), positions, step, is_lane=is_lane))
        return TaskWork(
            task,
            tuple(inputs),
            state.checkpoints.get(task),
            state.stores.get(task, {}),
            state.ends.get(task, {}),
        )

    def _partitions(self, logical: TopicPartition, known: set[int] | None) -> Iterator[tuple[TopicPartition, bool]]:
        """Yield the broker partitions that store a partition of the topology, and whether each is the lane of one task.

        Lanes that are not in ``known`` (None: all) are left out, except the first: the task waits for this lane until
        its inputs have ended.
        """
        topic, number = logical
        if topic not in self.plan.lanes:
            yield TopicPartition(self.plan.physical_topic(topic), number), False
            return
        name, width, is_fed = self.plan.physical_topic(topic), self.plan.lane_count(topic), topic in self.plan.fed
        lanes: Sequence[int] = range(number * width, (number + 1) * width)
        if known is not None:
            first = next((lane for lane in lanes if lane not in known), None)
            lanes = sorted(known if first is None else {*known, first})
        for lane in lanes:
            yield TopicPartition(name, lane), not is_fed or lane != number * width

    def _input(
        self,
        partition: TopicPartition,
        known: Sequence[Extent],
        positions: Mapping[TopicPartition, int],
        step: Pass,
        *,
        is_lane: bool,
    ) -> InputWork:
        """Return the part of a partition that a pass reads; ``known`` are the extents of the partition."""
        position = positions.get(partition, 0)
        end = _end_of(known)
        if not is_lane:
            end = min(end, step.cut.get(partition, end))
        if is_lane and not position:
            extents = tuple(known)
        else:
            # Extents are in the order of their offsets, and there may be many.
            first = bisect_left(known, position, key=attrgetter("last"))
            extents = tuple(known[first : bisect_left(known, end, first, key=attrgetter("first"))])
        if not position and extents:
            position = extents[0].first
        return InputWork(partition, extents, position, end, step.is_last)


def _waves(parts: Sequence[tuple[int, ...]], subs: Mapping[int, SubTopology]) -> list[list[int]]:
    """Group stages by the number of stages upstream of them."""
    depth: dict[int, int] = {}
    waves: list[list[int]] = []
    for number, part in enumerate(parts):
        read = {topic for sub in part for topic in subs[sub].source_topics}
        level = 1 + max((depth[sub] for sub in depth if read & set(subs[sub].sink_topics)), default=-1)
        depth |= dict.fromkeys(part, level)
        if level == len(waves):
            waves.append([])
        waves[level].append(number)
    return waves


def _calls(tasks: Iterable[TaskWork]) -> Iterator[list[TaskWork]]:
    """Divide tasks among calls; yield the tasks of each call, the call with the most records first.

    Neighbouring small tasks share a call and its files.
    """
    calls: list[tuple[int, list[TaskWork]]] = []
    for task in tasks:
        size = task.rows
        if not calls or calls[-1][0] + size > TASK_CALL_ROWS:
            calls.append((0, []))
        calls[-1][1].append(task)
        calls[-1] = calls[-1][0] + size, calls[-1][1]
    for _, call in sorted(calls, key=lambda item: item[0], reverse=True):
        yield call


def _has_work(task: TaskWork) -> bool:
    return any(given.position < given.end for given in task.inputs)


def _end_of(extents: Sequence[Extent]) -> int:
    return extents[-1].last + 1 if extents else 0
