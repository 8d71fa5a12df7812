"""The schedule of a replay: stages, their calls to the executor, and the part of history that each slice reads.

The driver makes it.  This module is pure, except that it reads timestamps to divide history by time.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import TaskId, TopicPartition
from streams.dsl.processing import AsyncMap, LookUp
from streams.replay.calls.state import Outputs, ReplayState
from streams.replay.calls.work import (
    Application,
    ChainWork,
    GlobalWork,
    InputWork,
    LanesWork,
    Options,
    StageWork,
    TaskWork,
)
from streams.replay.storage.extents import SourceHistory
from streams.replay.storage.lanes import LaneTable
from streams.replay.storage.segments import Extent
from streams.runtime import ApplicationPlan
from streams.topology import SubTopology

#: Rows, of inputs and stores, up to which neighbouring tasks share a call.
TASK_CALL_ROWS = 50_000
#: Source records, and number, of neighbouring slices up to which they share their calls.
CHAIN_ROWS = 400_000
CHAIN_SLICES = 10


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

    @property
    def is_end(self) -> bool:
        """Whether this is the final pass, which processes the records that the slices have deferred."""
        return self.is_last and self.name != "all"

    @property
    def folder(self) -> str:
        """The folder of its files and its manifest, within that of the replay."""
        return f"{'end' if self.is_end else 'slices'}/{self.number:05d}"


@define(eq=False)
class BegunPass:
    """A pass that has begun: its current state, and the outputs so far."""

    step: Pass
    state: ReplayState
    outputs: Outputs = field(factory=dict)


@define(eq=False)
class CallSchedule:
    """The stages of one replay, and their calls to the executor."""

    application: Application
    plan: ApplicationPlan
    history: SourceHistory
    options: Options
    #: The tasks of each stage, and the stages that are cycles, whose tasks run together.
    stages: list[list[TaskId]] = field(init=False)
    cyclic: set[int] = field(init=False)
    #: Stage numbers in waves; the stages of a wave do not depend on each other.
    waves: list[list[int]] = field(init=False)
    #: Sub-topologies that call async or look-up functions.
    _calling: set[int] = field(init=False)
    #: The task that reads each partition of the topology.
    _readers: dict[TopicPartition, TaskId] = field(init=False)
    #: The repartition topics that each task writes: broker name of the lanes, index of the task, number of tasks.
    _written: dict[TaskId, list[tuple[str, int, int]]] = field(init=False, factory=dict)

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
        for topic, producers in plan.lanes.items():
            if plan.is_internal(topic):
                for lane, task in enumerate(producers):
                    place = plan.physical_topic(topic), lane, len(producers)
                    self._written.setdefault(task, []).append(place)
        self.waves = _waves(parts, {sub.id: sub for sub in plan.subs if not sub.is_global})

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
                    extents = tuple(self.history.extents.get(partition, ()))
                    inputs.append(InputWork(partition, extents, 0, _end_of(extents), True))
            works.append(GlobalWork(self.application, name, tuple(inputs), self.history.segments, folder))
        return works

    def grouped(self, steps: Iterable[Pass], before: Mapping[TopicPartition, int]) -> Iterator[list[Pass]]:
        """Divide passes into groups of neighbours that share their calls; ``before`` is the end before the first one.

        Calls over small slices would cost more than their records.  A group has few records, since it is repeated as a
        whole if the replay is killed.
        """
        group: list[Pass] = []
        rows = 0
        for step in steps:
            size = sum(max(0, end - before.get(partition, 0)) for partition, end in step.cut.items())
            # The tasks of a cycle also read what they themselves have written in the slice before.
            if group and (self.cyclic or rows + size > CHAIN_ROWS or len(group) == CHAIN_SLICES):
                yield group
                group = []
                rows = 0
            group.append(step)
            rows = rows + size
            before = step.cut
        if group:
            yield group

    def works(self, number: int, passes: Sequence[BegunPass]) -> list[StageWork | ChainWork]:
        """Return the calls of stage ``number`` that have records to process in neighbouring passes."""
        tasks = [self._tasks(number, begun.step, begun.state) for begun in passes]
        stages = [self._stage_work(number, begun) for begun in passes]
        due = [
            index
            for index, task in enumerate(tasks[-1])
            if any(self._is_due(stage, own[index]) for stage, own in zip(stages, tasks, strict=True))
        ]
        if number in self.cyclic:
            calls = [list(range(len(tasks[-1])))] if due else []
        else:
            # As many tasks share a call as in a single slice: each slice writes its own files for each call.  The last
            # slice has the records of all.
            sizes = ((index, tasks[-1][index]) for index in due)
            calls = list(_calls((index, task.rows_read // len(passes) + task.rows_kept) for index, task in sizes))
        works: list[StageWork | ChainWork] = []
        for call in calls:
            slices = [
                evolve(stage, tasks=tuple(own[index] for index in call))
                for stage, own in zip(stages, tasks, strict=True)
            ]
            works.append(slices[0] if len(slices) == 1 else ChainWork(tuple(slices)))
        return works

    def _tasks(self, number: int, step: Pass, state: ReplayState) -> list[TaskWork]:
        """Return the inputs of all tasks of a stage in a pass."""
        # A task that runs by wall-clock time sees which inputs are idle.
        has_all = number in self.cyclic or self.options.wall_clock == "append_time"
        lanes = self._lanes_of(number, step, state, has_all=has_all)
        return [self._task_work(task, step, state, lanes, has_all=has_all) for task in self.stages[number]]

    def _stage_work(self, number: int, begun: BegunPass) -> StageWork:
        """Return a call of a stage in a pass, without its tasks."""
        step = begun.step
        return StageWork(
            self.application,
            (),
            self.history.segments,
            step.folder,
            number,
            step.is_last,
            evolve(self.options, final_flush=step.is_last and self.options.final_flush),
            self.history.started_ms,
            begun.state.global_stores,
            number in self.cyclic,
            step.is_whole,
        )

    def _is_due(self, work: StageWork, task: TaskWork) -> bool:
        # At the end of its inputs, a task may process deferred records, or the results of calls in flight, even if
        # there is nothing to read.
        finishes = work.is_last and task.task_id.sub_topology in self._calling
        return work.options.final_flush or finishes or work.needs(task)

    def _lanes_of(
        self, number: int, step: Pass, state: ReplayState, *, has_all: bool
    ) -> dict[TopicPartition, LanesWork]:
        """Return the lanes that a stage reads, by partition of a repartition topic."""
        import numpy as np

        plan = self.plan
        topics = {logical.topic for task in self.stages[number] for logical in plan.groups[task]}
        is_apart = not step.is_last and any(task.sub_topology in self._calling for task in self.stages[number])
        result = {}
        for topic in sorted(topics):
            if topic in plan.lanes and plan.is_internal(topic):
                name = plan.physical_topic(topic)
                width = plan.lane_count(topic)
                table = state.tables.get(name, LaneTable())
                # A pass that runs beside earlier ones begins with what these have read by now.
                table.forget_read()
                bounds = np.arange(plan.partitions[topic] + 1) * width
                for at, ranges in enumerate(table.ranges.split(bounds)):
                    positions = table.positions_of(at * width, width)
                    lanes = LanesWork(name, at * width, ranges, positions, step.is_last, has_all, is_apart)
                    result[TopicPartition(topic, at)] = lanes
        return result

    def _task_work(
        self,
        task: TaskId,
        step: Pass,
        state: ReplayState,
        lanes: Mapping[TopicPartition, LanesWork],
        *,
        has_all: bool,
    ) -> TaskWork:
        """Return the input of a task in a pass; ``lanes`` has the lanes of the repartition topics that it reads.

        A lane is the part of a partition that one task writes; its number is a partition number on the broker.
        """
        positions = state.positions.get(task, {})
        read_before = None if has_all else {*state.lanes, *positions}
        inputs = []
        for logical in self.plan.groups[task]:
            for partition, is_written in self._partitions(logical, read_before) if logical not in lanes else ():
                is_lane = is_written or partition in state.lanes
                extents = (state.lanes if is_lane else self.history.extents).get(partition, ())
                inputs.append(self._input(partition, extents, positions, step, is_lane=is_lane))
        return TaskWork(
            task,
            tuple(inputs),
            tuple(lanes[logical] for logical in self.plan.groups[task] if logical in lanes),
            state.checkpoints.get(task),
            state.stores.get(task, {}),
            state.ends.get(task, {}),
            self._lane_ends(task, state),
        )

    def _lane_ends(self, task: TaskId, state: ReplayState) -> dict[str, Any]:
        """Return the next offset of each lane of repartition topics that a task writes."""
        return {
            name: state.tables[name].ends_of(lane, width)
            for name, lane, width in self._written.get(task, ())
            if name in state.tables
        }

    def _partitions(
        self, logical: TopicPartition, read_before: set[TopicPartition] | None
    ) -> Iterator[tuple[TopicPartition, bool]]:
        """Yield the broker partitions that store a partition of a topic that is no repartition topic.

        Also yield whether each is the lane of one task.  Lanes that are not in ``read_before`` (None: all) are
        left out, except the first: the task waits for this lane until its inputs have ended.
        """
        topic, number = logical
        name = self.plan.physical_topic(topic)
        width = self.plan.lane_count(topic)
        is_fed = topic in self.plan.fed
        has_empty = False
        for lane in range(number * width, (number + 1) * width):
            partition = TopicPartition(name, lane)
            is_known = read_before is None or partition in read_before
            if is_known or not has_empty or topic not in self.plan.lanes:
                has_empty |= not is_known
                yield partition, topic in self.plan.lanes and (not is_fed or lane != number * width)

    def _input(
        self,
        partition: TopicPartition,
        history: Sequence[Extent],
        positions: Mapping[TopicPartition, int],
        step: Pass,
        *,
        is_lane: bool,
    ) -> InputWork:
        """Return the part of a partition that a pass reads; ``history`` are the extents of the partition."""
        position = positions.get(partition, 0)
        end = _end_of(history)
        if not is_lane:
            end = min(end, step.cut.get(partition, end))
        if is_lane and not position:
            extents = tuple(history)
        else:
            # Extents are in the order of their offsets, and there may be many.
            first = bisect_left(history, position, key=attrgetter("last"))
            extents = tuple(history[first : bisect_left(history, end, first, key=attrgetter("first"))])
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


def _calls(tasks: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """Divide tasks, given as (index, rows), among calls; yield the indexes of each, the call with most records first.

    Neighbouring small tasks share a call and its files.
    """
    calls: list[tuple[int, list[int]]] = []
    for index, size in tasks:
        if not calls or calls[-1][0] + size > TASK_CALL_ROWS:
            calls.append((0, []))
        calls[-1][1].append(index)
        calls[-1] = calls[-1][0] + size, calls[-1][1]
    for _, call in sorted(calls, key=lambda item: item[0], reverse=True):
        yield call


def _end_of(extents: Sequence[Extent]) -> int:
    return extents[-1].last + 1 if extents else 0
