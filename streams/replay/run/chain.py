"""Runs the tasks of a call over neighbouring slices: each slice continues from the report of the one before it.

The driver makes the calls of all slices from the state before the first one.  What a later slice needs of that state is
replaced here by what the slices before it have reported: the rest is known, since the stages that write the inputs of
these tasks have run over all of these slices.
"""

from collections.abc import Callable
from typing import Any

from attrs import define, evolve, field

from streams.core.blocks.records import NO_TIMESTAMP, TaskId
from streams.core.clock import VirtualClock
from streams.replay.calls.work import (
    CallMeter,
    ChainReport,
    ChainWork,
    InputWork,
    LanesWork,
    StageReport,
    StageWork,
    TaskReport,
    TaskWork,
)
from streams.replay.storage.ranges import LaneTable


def run_chain(work: ChainWork, run_stage: Callable[[StageWork], StageReport]) -> ChainReport:
    """Run the tasks of a call over its slices, and return the report of each.

    Raises:
        StreamsError: user code failed, a record or file cannot be read, or nothing can be written.
    """
    chain = _Chain(work)
    reports: list[StageReport | None] = []
    count = 0
    with CallMeter(work) as meter:
        for slice_ in work.slices:
            tasks = [task for task in map(chain.continued, slice_.tasks) if slice_.needs(task)]
            report = run_stage(evolve(slice_, tasks=tuple(tasks))) if tasks else None
            reports.append(report)
            if report is not None:
                chain.take(report)
                count += report.records_in
                # Each slice has its own progress file, and removes it at its end.
                meter.note(count)
        return meter.report(ChainReport, reports=tuple(reports))


@define(eq=False)
class _Chain:
    """What the slices so far have reported."""

    _work: ChainWork
    _reports: dict[TaskId, TaskReport] = field(factory=dict)
    #: The lanes that the tasks write, by their broker name; offsets of other tasks' lanes are not known.
    _lanes: dict[str, LaneTable] = field(factory=dict)
    #: The repartition topics that each task writes: broker name of the lanes, index of the task, number of tasks.
    _written: dict[TaskId, list[tuple[str, int, int]]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        first = self._work.slices[0]
        plan = first.application.plan(VirtualClock(NO_TIMESTAMP))
        self._written = {task.task_id: [] for task in first.tasks}
        for topic, producers in plan.lanes.items():
            if plan.is_internal(topic):
                for lane, task_id in enumerate(producers):
                    if task_id in self._written:
                        self._written[task_id].append((plan.physical_topic(topic), lane, len(producers)))

    def take(self, report: StageReport) -> None:
        """Note what a slice has reported."""
        self._reports |= {task.task_id: task for task in report.tasks}
        for name, ranges in report.lanes.items():
            self._lanes.setdefault(name, LaneTable()).add(ranges)

    def continued(self, task: TaskWork) -> TaskWork:
        """Return the input of a task in its next slice."""
        report = self._reports.get(task.task_id)
        if report is None:
            return task
        return evolve(
            task,
            inputs=tuple(_after(given, report) for given in task.inputs),
            lanes=tuple(_lanes_after(given, report) for given in task.lanes),
            checkpoint=report.checkpoint,
            stores=report.stores,
            ends=report.ends,
            lane_ends=self._lane_ends(task),
        )

    def _lane_ends(self, task: TaskWork) -> dict[str, Any]:
        """Return the next offset of each lane that a task writes."""
        import numpy as np

        ends = dict(task.lane_ends)
        for name, lane, width in self._written[task.task_id]:
            if name in self._lanes:
                found = self._lanes[name].ends_of(lane, width)
                known = ends.get(name, found[:0])
                # The end of a lane that this chain has not written is the one before the chain.
                size = max(len(found), len(known))
                ends[name] = np.maximum(*(np.pad(array, (0, size - len(array))) for array in (found, known)))
        return ends


def _after(given: InputWork, report: TaskReport) -> InputWork:
    """Return the part of an input that a slice reads after another one."""
    position = report.positions.get(given.partition, 0)
    extents = tuple(extent for extent in given.extents if extent.last >= position)
    if not position and extents:
        position = extents[0].first
    return evolve(given, extents=extents, position=position)


def _lanes_after(given: LanesWork, report: TaskReport) -> LanesWork:
    """Return the part of lanes that a slice reads after another one."""
    positions = report.lane_positions[given.partition]
    ranges = given.ranges
    if len(ranges):
        ranges = ranges.where(ranges.ends > positions[ranges.columns[0] - given.first])
    return evolve(given, ranges=ranges, positions=positions)
