"""The driver of tasks over history: feeds extents to the tasks, writes their outputs, and saves the stores.

``run_work`` is a plain function of a call, used by Spark, the local executor and the tests.  The system clock is
only read to measure the duration of a call: tasks use the times of their records.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from attrs import define, field

from streams.core.clock import SystemClock, VirtualClock
from streams.core.metrics import Metrics
from streams.core.records import NO_TIMESTAMP, TaskId
from streams.replay.calls import (
    MAX_UNCOMMITTED_BYTES,
    CallHeartbeat,
    GlobalWork,
    StageReport,
    StageWork,
    TaskReport,
    open_all,
    write_back,
    write_contents,
)
from streams.replay.history import IngestWork, run_ingest
from streams.replay.run.meter import Meter
from streams.replay.run.task_run import StageCall, TaskRun, counters_of
from streams.replay.storage import ExtentReader, SegmentWriter
from streams.runtime import RUN_LIMIT, AsTheyCome, Rounds, Stage, TaskState, WhenCertain, collector


def run_work(work: StageWork | GlobalWork | IngestWork, scratch: str | None = None) -> StageReport:
    """Run one call; every executor uses this function.

    ``scratch`` is a folder for temporary files of the call (None = the temporary folder of the machine).

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
    with ExitStack() as stack:
        call = StageCall(work, _scratch_folder(stack, scratch), stack)
        heartbeat = stack.enter_context(CallHeartbeat(work.root, work.folder, work.name, SystemClock()))
        with ExitStack() as writers:
            runs = []
            for item in work.tasks:
                name = call.file(item.task_id, ".parquet")
                writer = writers.enter_context(SegmentWriter(work.root, name, str(item.task_id)))
                runs.append(TaskRun.open(call, item, writer))
            _StageRun(runs, heartbeat, call.plan.config.max_cycle_rounds).run(is_final=work.final_flush)
        reports = tuple(run.report() for run in runs)
    return _stage_report(work, call.meter, reports)


def _scratch_folder(stack: ExitStack, scratch: str | None) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-replay-", dir=scratch)))


def run_global(work: GlobalWork, scratch: str | None = None) -> StageReport:
    """Fill a global store from all records of its topics, and write its contents.

    Raises:
        StreamsError: a record or file cannot be read, or nothing can be written.
    """
    meter = Meter()
    plan = work.application.plan(VirtualClock(NO_TIMESTAMP))
    spec = plan.topology.global_stores[work.store].spec
    metrics = Metrics()
    count = 0
    with ExitStack() as stack:
        stores = open_all([spec], {}, work.root, _scratch_folder(stack, scratch), "rocksdb")
        task = plan.open_global(work.store, TaskState(stores), metrics)
        stack.callback(task.close)
        for item in work.inputs:
            for block in ExtentReader(work.root).blocks(item.extents, item.position):
                task.add(item.partition, block)
                while done := task.process(NO_TIMESTAMP, RUN_LIMIT):
                    count += done
                if task.uncommitted_bytes > MAX_UNCOMMITTED_BYTES:
                    write_back(task)
        name = f"{work.folder}/{work.name}-{meter.attempt}.stores.parquet"
        contents = write_contents(work.root, name, {work.store: (stores[work.store], 0)})
    report = TaskReport(TaskId(-1, 0), {}, {}, contents, (), {}, counters_of(metrics), count, 0, metrics.examples())
    return _stage_report(work, meter, (report,))


def _stage_report(work: StageWork | GlobalWork, meter: Meter, reports: tuple[TaskReport, ...]) -> StageReport:
    """Return the report of a call, with the written files and their sizes."""
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
class _StageRun:
    """The tasks of one call, a single task or all tasks of a cycle, from the first record to the last."""

    runs: list[TaskRun]
    heartbeat: CallHeartbeat
    max_cycle_rounds: int
    stage: Stage[TaskRun] = field(init=False)

    def __attrs_post_init__(self) -> None:
        is_cycle = any(queue.is_loop for run in self.runs for queue in run.queues)
        policy = WhenCertain() if is_cycle else AsTheyCome()
        self.stage = Stage(self.runs, policy, Rounds(self.max_cycle_rounds))

    def run(self, *, is_final: bool) -> None:
        """Process all records whose order is certain; with ``is_final``, also forward results that are held back."""
        self._settle(is_final=False)
        if is_final:
            self._settle(is_final=True)

    def _settle(self, *, is_final: bool) -> None:
        """Process and flush until the stage sends no more records to itself."""
        has_more = True
        while has_more:
            self._drain()
            self.stage.flush(is_final=is_final)
            has_more = False
            for run in self.runs:
                has_more |= self._send(run)

    def _drain(self) -> None:
        has_progressed = True
        while has_progressed:
            has_progressed = False
            for run in self.runs:
                has_progressed |= self._feed(run)
            while (stepped := self.stage.step(NO_TIMESTAMP)) is not None:
                has_progressed = True
                self._send(stepped)
                self.heartbeat.beat(sum(run.records_in for run in self.runs))

    def _feed(self, run: TaskRun) -> bool:
        has_progressed = run.feed()
        if has_progressed:
            self._send(run)  # Unreadable records may be sent to the dead letter queue topic immediately.
        return has_progressed

    def _send(self, run: TaskRun) -> bool:
        """Write the outputs of a task; return whether the stage itself reads some of them."""
        loops = self.stage.loops
        around = [(partition, block) for partition, block in run.send() if partition in loops]
        for partition, block in around:
            self.stage.add(loops[partition], partition, block)
        return bool(around)
