"""The driver of tasks over history: feeds extents in, writes what comes out, snapshots the stores.

``run_work`` is a plain function of a call; Spark, the local executor and the tests all use this one.
Reads no clock but to say how long it took: the time of its tasks is that of their records.
"""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import define, field

from streams.core.clock import SystemClock, VirtualClock
from streams.core.metrics import Metrics
from streams.core.records import NO_TIMESTAMP, TaskId, TopicPartition
from streams.replay.calls import (
    MAX_UNCOMMITTED_BYTES,
    CallHeartbeat,
    GlobalWork,
    StageReport,
    StageWork,
    TaskReport,
    TaskWork,
    open_all,
    write_back,
    write_contents,
)
from streams.replay.history import IngestWork, run_ingest
from streams.replay.run.meter import Meter
from streams.replay.run.task_run import TaskRun, counters_of, report_of
from streams.replay.storage import ExtentReader, SegmentWriter
from streams.runtime import collector
from streams.runtime.plan import ApplicationPlan
from streams.runtime.rounds import Rounds
from streams.runtime.task import TaskState

#: Records of one run, at most, and of one turn between two looks at memory and progress.
_RUN_LIMIT = 10_000


def run_work(work: StageWork | GlobalWork | IngestWork, scratch: str | None = None) -> StageReport:
    """Run one call: what every executor does with it.

    ``scratch`` is a folder for what lasts no longer than the call (None = the machine's own).

    Raises:
        StreamsError: user code failed, a record or file cannot be read, or nothing can be written.
    """
    collector.tune()
    try:
        if isinstance(work, StageWork):
            return run_stage(work, scratch)
        return run_global(work, scratch) if isinstance(work, GlobalWork) else run_ingest(work)
    finally:
        collector.restore()


def run_stage(work: StageWork, scratch: str | None = None) -> StageReport:
    """Run the tasks of one call over their slice.

    Raises:
        StreamsError: user code failed, a record or file cannot be read, or nothing can be written.
    """
    meter = Meter()
    clock = VirtualClock(NO_TIMESTAMP)
    plan = work.application.plan(clock)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-replay-", dir=scratch)))
        heartbeat = stack.enter_context(CallHeartbeat(work.root, work.folder, work.name, SystemClock()))
        global_stores = _global_stores(work, plan, stack)
        with ExitStack() as writers:
            runs = [
                _open_task(work, plan, item, global_stores, folder, clock, meter.attempt, stack, writers)
                for item in work.tasks
            ]
            _Stage(runs, heartbeat, work.final_flush, Rounds(plan.config.max_cycle_rounds)).run()
        reports = tuple(report_of(work, run, meter.attempt) for run in runs)
    return _stage_report(work, meter, reports)


def _open_task(
    work: StageWork,
    plan: ApplicationPlan,
    item: TaskWork,
    global_stores: Mapping[str, Any],
    folder: Path,
    clock: VirtualClock,
    attempt: str,
    stack: ExitStack,
    writers: ExitStack,
) -> TaskRun:
    """Open a task with its stores and the file that it writes; ``stack`` closes it."""
    stores = open_all(
        plan.stores_of(item.task_id), item.stores, work.root, folder / str(item.task_id), work.store_engine
    )
    for store in stores.values():
        stack.callback(store.close)
    name = f"{work.folder}/{item.task_id}-{attempt}.parquet"
    writer = writers.enter_context(SegmentWriter(work.root, name, str(item.task_id)))
    run = TaskRun.open(work, plan, item, stores, global_stores, writer, clock)
    stack.callback(run.task.close)
    return run


def _global_stores(work: StageWork, plan: ApplicationPlan, stack: ExitStack) -> Mapping[str, Any]:
    """Return the global stores, which all tasks of a call read and none writes."""
    specs = [store.spec for name, store in plan.topology.global_stores.items() if name in work.global_stores]
    stores = open_all(specs, work.global_stores, work.root, Path(), "in_memory")
    for store in stores.values():
        stack.callback(store.close)
    return stores


def run_global(work: GlobalWork, scratch: str | None = None) -> StageReport:
    """Fill a global store from its whole topic and write its contents.

    Raises:
        StreamsError: a record or file cannot be read, or nothing can be written.
    """
    meter = Meter()
    plan = work.application.plan(VirtualClock(NO_TIMESTAMP))
    spec = plan.topology.global_stores[work.store].spec
    metrics = Metrics()
    count = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-replay-", dir=scratch)))
        stores = open_all([spec], {}, work.root, folder, "rocksdb")
        task = plan.open_global(work.store, TaskState(stores), metrics)
        stack.callback(task.close)
        for item in work.inputs:
            for block in ExtentReader(work.root).blocks(item.extents, item.position):
                task.add(item.partition, block)
                while done := task.process(NO_TIMESTAMP, _RUN_LIMIT):
                    count += done
                if task.uncommitted_bytes > MAX_UNCOMMITTED_BYTES:
                    write_back(task)
        name = f"{work.folder}/{work.name}-{meter.attempt}.stores.parquet"
        contents = write_contents(work.root, name, {work.store: (stores[work.store], 0)})
    report = TaskReport(TaskId(-1, 0), {}, {}, contents, (), {}, counters_of(metrics), count, 0, metrics.examples())
    return _stage_report(work, meter, (report,))


def _stage_report(work: StageWork | GlobalWork, meter: Meter, reports: tuple[TaskReport, ...]) -> StageReport:
    """Return the answer to a call, with the files that it wrote and their sizes."""
    written = [extent for report in reports for _, _, extent in report.written]
    kept = [extent for report in reports for ref in report.stores.values() for extent in ref.extents]
    names = {extent.file for extent in (*written, *kept) if extent.file.startswith(f"{work.folder}/")}
    return StageReport(
        work.name,
        reports,
        {name: work.root.child(name).size() for name in sorted(names)},
        meter.elapsed_ms,
        meter.cpu_ms,
        meter.peak_bytes,
        meter.attempt,
    )


@define(eq=False)
class _Stage:
    """The tasks of one call: a single one, or all of a cycle, which then take turns by lowest head."""

    runs: Sequence[TaskRun]
    heartbeat: CallHeartbeat
    final_flush: bool
    rounds: Rounds
    _owner: dict[TopicPartition, TaskRun] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._owner = {queue.partition: run for run in self.runs for queue in run.task.queues if queue.is_loop}

    def run(self) -> None:
        """Process everything that is certain, and flush at the end if asked to."""
        self._drain()
        while self._gives_out():
            self._drain()
        if self.final_flush:
            for run in self.runs:
                run.is_touched = True
                run.task.final_flush()
                self._send(run)
            while True:
                self._drain()
                if not self._gives_out():
                    break

    def _drain(self) -> None:
        step = self._step if not self._owner else self._cycle_step
        while step():
            self.heartbeat.beat(sum(run.records_in for run in self.runs))

    def _step(self) -> bool:
        progressed = False
        for run in self.runs:
            progressed |= self._feed(run)
            while run.process(_RUN_LIMIT):
                progressed = True
                self._send(run)
        return progressed

    def _cycle_step(self) -> bool:
        """Process the record with the lowest time of all; what it sends around is taken in before the next."""
        progressed = False
        for run in self.runs:
            progressed |= self._feed(run)
        if not all(run.is_settled for run in self.runs):
            return progressed
        heads = [(run.task.queues.head_ms, run.task.task_id, run) for run in self.runs if run.task.queues.size]
        if heads:
            run = min(heads, key=lambda head: head[:2])[2]
            if run.process(1):
                self._send(run)
                self.rounds.note(1, self._left, self._topics)
                return True
        return progressed

    def _left(self) -> int:
        """Return the records that wait for the cycle, 0 while its inputs go on."""
        queues = [queue for run in self.runs for queue in run.task.queues]
        if any(not queue.is_loop and not queue.is_ended for queue in queues):
            return 0
        return sum(queue.size for queue in queues)

    def _topics(self) -> set[str]:
        return {run.task.inputs[partition].topic for partition, run in self._owner.items()}

    def _feed(self, run: TaskRun) -> bool:
        progressed = run.feed()
        if progressed:
            self._send(run)  # Records that cannot be read may be dropped at once, into the dead letter queue.
        return progressed

    def _send(self, run: TaskRun) -> None:
        for partition, block in run.send():
            owner = self._owner.get(partition)
            if owner is not None:
                owner.add_from_stage(partition, block)

    def _gives_out(self) -> bool:
        """Flush the record caches; return whether that goes around within the stage."""
        before = sum(run.records_out for run in self.runs)
        for run in self.runs:
            if run.task.cache is not None:
                run.task.flush_caches()
                self._send(run)
        return bool(self._owner) and sum(run.records_out for run in self.runs) > before
