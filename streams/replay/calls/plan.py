"""The plan of a replay: stages, their calls, and the part of history that each slice reads.

The driver makes the plan.  Pure, except that timestamps are read to cut history by time.
"""

from collections.abc import Iterator, Mapping, Sequence

from attrs import define, evolve, field, frozen

from streams.core.records import TaskId, TopicPartition
from streams.replay.calls.application import Application
from streams.replay.calls.state import ReplayState
from streams.replay.calls.work import GlobalWork, InputWork, Options, StageWork, TaskWork
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent
from streams.runtime import ApplicationPlan
from streams.topology import SubTopology


@frozen
class Pass:
    """One pass over the stages: a slice, or the final pass, which processes the records that the slices deferred.

    ``cut`` has the first offset of each source partition that the pass does not read.
    """

    name: str
    number: int
    cut: Mapping[TopicPartition, int]
    is_last: bool


@define(eq=False)
class ReplayPlan:
    """The stages and calls of one replay."""

    application: Application
    plan: ApplicationPlan
    #: All known extents of each source partition, including those of global tables.
    sources: Mapping[TopicPartition, Sequence[Extent]]
    options: Options
    root: Place
    #: Calls of each stage; a call has one task, or all tasks of a cycle.
    stages: list[list[list[TaskId]]] = field(init=False)
    #: Stage numbers in waves; the stages of a wave do not depend on each other.
    waves: list[list[int]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        plan = self.plan
        cycles = plan.cycles()
        parts = plan.stages()
        self.stages = []
        for part in parts:
            tasks = [task for task in sorted(plan.groups) if task.sub_topology in part]
            # The longest task comes first, so that it is not the last one to start.
            calls = [tasks] if part[0] in cycles else [[task] for task in sorted(tasks, key=self._size, reverse=True)]
            self.stages.append([call for call in calls if call])
        self.waves = _waves(parts, {sub.id: sub for sub in plan.subs if not sub.is_global})

    @property
    def started_ms(self) -> int:
        """Lowest timestamp in the first row groups of the source partitions, in epoch milliseconds; 0 without any."""
        return min((extents[0].lowest_ms for extents in self.sources.values() if extents), default=0)

    @property
    def readers(self) -> dict[TopicPartition, TaskId]:
        """Maps each lane or source partition to the task that reads it."""
        return {item.partition: task for task in self.plan.groups for item in self.plan.inputs(task)}

    def global_works(self, folder: str) -> list[GlobalWork]:
        """Return the calls that fill the global stores, each from all records of the topics of its store."""
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
        """Return the calls of a stage that have work in a pass."""
        works = []
        for call in self.stages[number]:
            tasks = tuple(self._task_work(task, step, state) for task in call)
            is_new = any(task not in state.positions for task in call)
            flushes = step.is_last and self.options.final_flush
            # At the end of its inputs, a task may process deferred records even if there is nothing to read.
            if not is_new and not flushes and not any(_has_work(task) for task in tasks):
                continue
            works.append(
                StageWork(
                    self.application,
                    tasks,
                    self.root,
                    folder,
                    number,
                    step.is_last,
                    evolve(self.options, final_flush=flushes),
                    self.started_ms,
                    state.global_stores,
                )
            )
        return works

    def _task_work(self, task: TaskId, step: Pass, state: ReplayState) -> TaskWork:
        positions = state.positions.get(task, {})
        inputs = []
        for item in self.plan.inputs(task):
            position = positions.get(item.partition, 0)
            lane = item.partition in state.lanes or self.plan.producer_of(item.topic, item.partition) is not None
            known: Sequence[Extent] = (
                state.lanes.get(item.partition, ()) if lane else self.sources.get(item.partition, ())
            )
            end = _end_of(known)
            if not lane:
                end = min(end, step.cut.get(item.partition, end))
            extents = tuple(extent for extent in known if extent.last >= position and extent.first < end)
            if not position and extents:
                position = extents[0].first
            inputs.append(InputWork(item.partition, extents, position, end, step.is_last))
        return TaskWork(
            task,
            tuple(inputs),
            state.checkpoints.get(task),
            state.stores.get(task, {}),
            state.ends.get(task, {}),
        )

    def _size(self, task: TaskId) -> int:
        return sum(extent.rows for item in self.plan.inputs(task) for extent in self.sources.get(item.partition, ()))


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


def _has_work(task: TaskWork) -> bool:
    return any(given.position < given.end for given in task.inputs)


def _end_of(extents: Sequence[Extent]) -> int:
    return extents[-1].last + 1 if extents else 0


def explained(replay: ReplayPlan, passes: Sequence[Pass]) -> Iterator[str]:
    """Yield the plan as lines of text: stages, tasks, inputs, shuffles."""
    plan = replay.plan
    subs = {sub.id: sub for sub in plan.subs if not sub.is_global}
    records = sum(extent.rows for extents in replay.sources.values() for extent in extents)
    slices = "1 slice" if len(passes) == 1 else f"{len(passes) - 1} slices and their end"
    stages = _count(len(replay.stages), "stage")
    yield f"replay of {plan.config.application_id}: {records:,} records, {stages}, {slices}"
    for name, store in sorted(plan.topology.global_stores.items()):
        yield f"  first: global store {name} from {', '.join(store.source.topics)}, whole, broadcast to all tasks"
    for number, calls in enumerate(replay.stages):
        tasks = [task for call in calls for task in call]
        ids = sorted({task.sub_topology for task in tasks})
        what = f"sub-topology {ids[0]}" if len(ids) == 1 else f"sub-topologies {', '.join(map(str, ids))}"
        how = "one process over all its partitions: a cycle" if len(calls) < len(tasks) else "each separately"
        if len(calls) == len(tasks) == 1:
            how = "one process"
        others = [other for wave in replay.waves if number in wave for other in wave if other != number]
        beside = f", at the same time as stage {', '.join(map(str, others))}" if others else ""
        yield f"  stage {number}: {what}, {_count(len(tasks), 'task')}, {how}{beside}"
        for topic in dict.fromkeys(topic for sub in ids for topic in subs[sub].source_topics):
            yield f"    reads {_input_line(replay, topic, tasks)}"
        stores = [name for sub in ids for name in subs[sub].stores]
        if stores:
            yield f"    keeps {', '.join(stores)} in {replay.options.store_engine}"
        for topic in dict.fromkeys(topic for sub in ids for topic in subs[sub].sink_topics):
            kind = "repartition topic" if plan.is_internal(topic) else "topic"
            yield f"    writes {kind} {topic}, {_count(plan.partitions.get(topic, 1), 'partition')}"


def _input_line(replay: ReplayPlan, topic: str, tasks: Sequence[TaskId]) -> str:
    plan = replay.plan
    producers = plan.lanes.get(topic)
    count = plan.partitions.get(topic, 1)
    if producers:
        return (
            f"{topic}, {_count(count, 'partition')}: shuffle by key, "
            f"{_count(len(producers), 'lane')} each, merged by lowest head timestamp"
        )
    extents = [extent for number in range(count) for extent in replay.sources.get(TopicPartition(topic, number), ())]
    return f"{topic}, {_count(count, 'partition')}, {_count(sum(extent.rows for extent in extents), 'record')}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
