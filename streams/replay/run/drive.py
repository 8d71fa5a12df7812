"""The driver of tasks over history: feeds extents to the tasks, writes their outputs, and saves the stores.

``run_work`` is a plain function of a call, used by Spark, the local executor and the tests.  The system clock is
only read to measure the duration of a call: tasks use the times of their records.
"""

import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from streams.core.clock import VirtualClock
from streams.core.metrics import Metrics
from streams.core.records import NO_TIMESTAMP, Block, TaskId, TopicPartition
from streams.replay.calls.application import logical_of
from streams.replay.calls.stores import MAX_UNCOMMITTED_BYTES, open_all, write_back, write_contents
from streams.replay.calls.work import CallMeter, GlobalWork, InputWork, StageReport, StageWork, TaskReport, TaskWork
from streams.replay.errors import ReplayError
from streams.replay.history.ingest import IngestWork, run_ingest
from streams.replay.storage.segments import ExtentReader, Kind, SegmentWriter
from streams.runtime import (
    RUN_LIMIT,
    ApplicationPlan,
    AsTheyCome,
    Checkpoint,
    PartitionQueue,
    Rounds,
    Stage,
    Task,
    TaskInput,
    TaskQueues,
    TaskState,
    TaskWatch,
    WhenCertain,
    collector,
)
from streams.state import RecordCache

#: A queue is refilled when it has no more than this number of records.
_REFILL_BELOW = 1000


def run_work(
    work: StageWork | GlobalWork | IngestWork, scratch: str | None = None, watch: TaskWatch | None = None
) -> StageReport:
    """Run one call; every executor uses this function.

    ``scratch`` is a folder for temporary files of the call (None = the temporary folder of the machine). ``watch``
    observes the tasks.

    Raises:
        StreamsError: user code failed, a record or file cannot be read, or nothing can be written.
    """
    collector.tune()
    try:
        if isinstance(work, StageWork):
            return run_stage(work, scratch, watch)
        return run_global(work, scratch) if isinstance(work, GlobalWork) else run_ingest(work)
    finally:
        collector.restore()


def run_stage(work: StageWork, scratch: str | None = None, watch: TaskWatch | None = None) -> StageReport:
    """Run the tasks of one call over their slice.

    Raises:
        StreamsError: user code failed, a record or file cannot be read, or nothing can be written.
    """
    with ExitStack() as stack:
        meter = stack.enter_context(CallMeter(work))
        call = StageCall(work, _scratch_folder(stack, scratch), stack, meter, watch)
        with ExitStack() as writers:
            runs = []
            for item in work.tasks:
                name = call.file(item.task_id, ".parquet")
                writer = writers.enter_context(SegmentWriter(work.root, name, str(item.task_id)))
                runs.append(TaskRun.open(call, item, writer))
            _StageRun(runs, meter, call.plan.config.max_cycle_rounds).run(is_final=work.options.final_flush)
        reports = tuple(run.report() for run in runs)
    return _stage_report(work, meter, reports)


def _scratch_folder(stack: ExitStack, scratch: str | None) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-replay-", dir=scratch)))


def run_global(work: GlobalWork, scratch: str | None = None) -> StageReport:
    """Fill a global store from all records of its topics, and write its contents.

    Raises:
        StreamsError: a record or file cannot be read, or nothing can be written.
    """
    meter = CallMeter(work)
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
    report = TaskReport(TaskId(-1, 0), {}, {}, contents, (), {}, metrics.tallies(), count, 0, metrics.examples())
    return _stage_report(work, meter, (report,))


def _stage_report(work: StageWork | GlobalWork, meter: CallMeter, reports: tuple[TaskReport, ...]) -> StageReport:
    """Return the report of a call, with the written files and their sizes."""
    written = [extent for report in reports for _, _, extent in report.written]
    kept = [extent for report in reports for ref in report.stores.values() for extent in ref.extents]
    names = {extent.file for extent in (*written, *kept) if extent.file.startswith(f"{work.folder}/")}
    return meter.report(StageReport, tasks=reports, files=names)


@define(eq=False)
class StageCall:
    """A running call and the objects that its tasks share; ``stack`` closes the resources of the tasks."""

    work: StageWork
    #: Folder for temporary files of the call.
    folder: Path
    stack: ExitStack
    meter: CallMeter
    watch: TaskWatch | None = None
    clock: VirtualClock = field(factory=lambda: VirtualClock(NO_TIMESTAMP))
    plan: ApplicationPlan = field(init=False)
    #: The global stores, which tasks only read.
    global_stores: Mapping[str, Any] = field(init=False)
    #: Lanes that tasks of the call both write and read.
    loops: set[TopicPartition] = field(init=False)

    def __attrs_post_init__(self) -> None:
        work = self.work
        self.plan = plan = work.application.plan(self.clock)
        plan.watch = self.watch
        specs = [store.spec for name, store in plan.topology.global_stores.items() if name in work.global_stores]
        self.global_stores = self.closing(open_all(specs, work.global_stores, work.root, Path(), "in_memory"))
        writers = {item.task_id for item in work.tasks}
        self.loops = {
            given.partition
            for task_id in writers
            for given in plan.inputs(task_id)
            if plan.producer_of(given.topic, given.partition) in writers
        }

    def closing(self, stores: dict[str, Any]) -> dict[str, Any]:
        """Register stores to be closed at the end of the call, and return them."""
        for store in stores.values():
            self.stack.callback(store.close)
        return stores

    def file(self, task_id: TaskId, ending: str) -> str:
        """Return the name of a file that this attempt writes for a task."""
        return f"{self.work.folder}/{task_id}-{self.meter.attempt}{ending}"


@define(eq=False)
class Feed:
    """The records of one input partition that are not read yet."""

    partition: TopicPartition
    blocks: Iterator[Block]
    end: int
    is_ended: bool
    is_done: bool = False
    #: Blocks that the stage itself has written before all ``blocks`` were read.
    later: deque[Block] = field(factory=deque)
    #: Original offsets and append times of the added records; only used for ``append_time``.
    raw: deque[tuple[int, int]] = field(factory=deque)

    @classmethod
    def of(cls, given: InputWork, reader: ExtentReader) -> "Feed":
        """Return the feed of an input."""
        blocks = reader.blocks(given.extents, given.position, given.end)
        return cls(given.partition, blocks, max(given.position, given.end), given.is_ended)

    def next_block(self) -> Block | None:
        """Return the next block, None if there are no more."""
        block = next(self.blocks, None)
        return self.later.popleft() if block is None and self.later else block


@define(eq=False)
class TaskRun:
    """A task with its inputs, its stores and the writer of its outputs."""

    call: StageCall
    work: TaskWork
    task: Task
    stores: dict[str, Any]
    feeds: dict[TopicPartition, Feed]
    writer: SegmentWriter
    metrics: Metrics
    #: Kind and logical partition under which each written partition is stored.
    places: dict[TopicPartition, tuple[Kind, TopicPartition]] = field(factory=dict)
    records_in: int = 0
    records_out: int = 0
    is_touched: bool = False

    @classmethod
    def open(cls, call: StageCall, item: TaskWork, writer: SegmentWriter) -> "TaskRun":
        """Open a task and its stores at the end of the previous slice.

        Raises:
            StreamsError: user code failed, or uses wall-clock time, which is not allowed.
        """
        work, plan, task_id = call.work, call.plan, item.task_id
        folder = call.folder / str(task_id)
        stores = call.closing(
            open_all(plan.stores_of(task_id), item.stores, work.root, folder, work.options.store_engine)
        )
        metrics = Metrics()
        saved = dict(item.checkpoint or {})
        if work.options.wall_clock != "error":
            call.clock.jump_to(int(saved.pop("wall_clock_ms", work.started_ms)))
        if work.options.wall_clock != "append_time":
            _refuse_wall_clock_sources(plan, item)
        state = TaskState(
            stores,
            call.global_stores,
            Checkpoint.from_json(saved) if saved else Checkpoint(),
            carries_wall_clock=work.options.wall_clock == "append_time",
            carries_cancelled=True,
        )
        cache_bytes = plan.config.cache_max_bytes
        task = plan.open_task(
            task_id,
            state,
            metrics,
            partitions_of=lambda topic: plan.partition_count(topic) or work.application.default_partitions,
            cache=RecordCache(cache_bytes) if cache_bytes > 0 else None,
            is_bounded=True,
        )
        call.stack.callback(task.close)
        reader = ExtentReader(work.root)
        for given in item.inputs:
            task.seek(given.partition, given.position)
            task.queues[given.partition].is_loop = given.partition in call.loops
        for (kind, partition), offset in item.ends.items():
            writer.start_at(kind, partition, offset)
        feeds = {given.partition: Feed.of(given, reader) for given in item.inputs}
        return cls(call, item, task, stores, feeds, writer, metrics)

    # --- the interface to the stage ---------------------------------------------------------

    @property
    def task_id(self) -> TaskId:
        """The ID of the task."""
        return self.task.task_id

    @property
    def inputs(self) -> Mapping[TopicPartition, TaskInput]:
        """The inputs of the task."""
        return self.task.inputs

    @property
    def queues(self) -> TaskQueues:
        """The input queues of the task."""
        return self.task.queues

    @property
    def is_initialized(self) -> bool:
        """Whether the task is initialized."""
        return self.task.is_initialized

    def add(self, partition: TopicPartition, block: Block) -> None:
        """Add records that a task of the same stage has just written."""
        feed = self.feeds[partition]
        if feed.is_done:
            self._take_in(feed, block)
        else:
            feed.later.append(block)

    def flush_caches(self) -> None:
        """Flush the record cache: forward its buffered records."""
        self.task.flush_caches()

    def final_flush(self) -> None:
        """Forward the results that the task still buffers, at the end of history."""
        self.is_touched = True
        self.task.final_flush()

    def feed(self) -> bool:
        """Fill the queues that are low; return whether records were added or an input has ended."""
        progressed = False
        task = self.task
        for feed in self.feeds.values():
            queue = task.queues[feed.partition]
            while not feed.is_done and queue.size <= _REFILL_BELOW and queue.failure is None:
                block = feed.next_block()
                progressed = True
                if block is None:
                    feed.is_done = True
                    task.note_position(feed.partition, feed.end)
                    task.note_end(feed.partition, feed.end, is_ended=feed.is_ended)
                else:
                    self._take_in(feed, block)
        return progressed

    def _take_in(self, feed: Feed, block: Block) -> None:
        if self.call.work.options.wall_clock == "append_time":
            feed.raw.extend(zip(block.offsets, block.timestamps, strict=True))
        self.task.add(feed.partition, block)

    def process(self, now_ms: int, limit: int, queue: PartitionQueue | None = None) -> int:
        """Process records whose order is certain; return their number.  Wall-clock time is derived from the records."""
        task, clock, wall_clock = self.task, self.call.clock, self.call.work.options.wall_clock
        if wall_clock == "append_time":
            self._advance_clock()
            limit = 1
        count = task.process(clock.now_ms(), limit, queue)
        if count and wall_clock == "append_time":
            task.punctuate(clock.now_ms())
        elif count and wall_clock == "skip":
            clock.advance_to(task.queues.stream_time_ms)
        if count:
            self.records_in += count
            self.is_touched = True
        return count

    def _advance_clock(self) -> None:
        """Advance the wall clock to the append time of the next record."""
        queue = self.task.queues.head
        if queue is None:
            return
        raw = self.feeds[queue.partition].raw
        offset = queue.batches[0].offsets[queue.start]
        while raw[0][0] < offset:
            raw.popleft()
        self.call.clock.advance_to(raw[0][1])

    def send(self) -> list[tuple[TopicPartition, Block]]:
        """Write the outputs of the task; return them with their offsets."""
        sent = []
        for partition, block in self.task.take_outputs():
            kind, name = self.places.get(partition) or self._place(partition)
            first = self.writer.next_offset(kind, name)
            self.writer.append(kind, name, block)
            self.records_out += len(block)
            sent.append((partition, evolve(block, offsets=range(first, first + len(block)))))
        if self.task.uncommitted_bytes > MAX_UNCOMMITTED_BYTES:
            write_back(self.task)
        return sent

    def _place(self, partition: TopicPartition) -> tuple[Kind, TopicPartition]:
        plan = self.call.plan
        logical = logical_of(plan, partition)
        if plan.is_internal(logical.topic):
            place: tuple[Kind, TopicPartition] = ("repartition", partition)
        else:
            place = ("through", partition) if logical.topic in plan.fed else ("sink", logical)
        self.places[partition] = place
        return place

    def report(self) -> TaskReport:
        """Return the report of the task, and write its stores if they may have changed.

        Raises:
            ReplayError: the task cannot be continued in a further slice, or its stores cannot be written.
        """
        task, work = self.task, self.call.work
        strays = task.uncarried_timers()
        if strays and not work.is_last:
            raise ReplayError(
                f"node {strays[0]!r} schedules punctuations outside of init(), which cannot be carried from one slice "
                "to the next; schedule them in init(), or replay without slices"
            )
        write_back(task)
        number = self.task_id.partition
        if self.is_touched or set(self.work.stores) != set(self.stores):
            contents = {name: (store, number) for name, store in self.stores.items()}
            stores = write_contents(work.root, self.call.file(self.task_id, ".stores.parquet"), contents)
        else:
            stores = dict(self.work.stores)
        saved = task.checkpoint().to_json()
        if work.options.wall_clock != "error":
            saved["wall_clock_ms"] = self.call.clock.now_ms()
        ends = dict(self.work.ends)
        for kind, partition, extent in self.writer.written:
            ends[kind, partition] = extent.last + 1
        return TaskReport(
            self.task_id,
            task.positions(),
            saved,
            stores,
            tuple(self.writer.written),
            ends,
            self.metrics.tallies(),
            self.records_in,
            self.records_out,
            self.metrics.examples(),
        )


def _refuse_wall_clock_sources(plan: ApplicationPlan, item: TaskWork) -> None:
    for given in plan.inputs(item.task_id):
        node: Any = plan.topology.nodes[given.source]
        policy = node.extractor or ("" if plan.is_internal(given.topic) else plan.config.default_timestamp_extractor)
        if policy == "wall_clock":
            raise ReplayError(
                f"source {node.name!r} takes the wall clock as event time, which history does not have; give "
                "wall_clock='append_time' to take the times at which its records were appended"
            )


@define(eq=False)
class _StageRun:
    """The tasks of one call, a single task or all tasks of a cycle, from the first record to the last."""

    runs: list[TaskRun]
    meter: CallMeter
    max_cycle_rounds: int
    stage: Stage[TaskRun] = field(init=False)

    def __attrs_post_init__(self) -> None:
        is_cycle = any(queue.is_loop for run in self.runs for queue in run.queues)
        policy = WhenCertain() if is_cycle else AsTheyCome()
        self.stage = Stage(self.runs, policy, Rounds(self.max_cycle_rounds))

    def run(self, *, is_final: bool) -> None:
        """Process all records whose order is certain; with ``is_final``, also forward buffered results."""
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
                self.meter.beat(sum(run.records_in for run in self.runs))

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
