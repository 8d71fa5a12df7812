"""Drives tasks over history: feeds records to the tasks, writes their outputs, and saves their stores.

``run_work`` is a plain function that executes one call, used by Spark, the local executor and the tests.  The system
clock is only read to measure the duration of a call: tasks use the times of their records.

A call over neighbouring slices runs them one after the other, each from the report of the one before it.  The driver
makes such calls from the state before the first slice; what a later slice needs of that state is replaced here by what
the slices before it have reported.  The rest is known, since the stages that write the inputs of these tasks have run
over all of these slices.
"""

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from streams.core.blocks.records import NO_TIMESTAMP, Block, TaskId, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.metrics import Metrics
from streams.replay.calls.stores import (
    MAX_UNCOMMITTED_BYTES,
    SliceChanges,
    memory_of,
    open_all,
    write_contents,
    written_contents,
)
from streams.replay.calls.work import (
    CallMeter,
    ChainReport,
    ChainWork,
    GlobalWork,
    InputWork,
    LanesWork,
    StageReport,
    StageWork,
    StoreRef,
    TaskReport,
    TaskWork,
)
from streams.replay.errors import ReplayError
from streams.replay.history.ingest import IngestWork, MergeWork, run_ingest, run_merge
from streams.replay.run.writing import WriteWork, run_write
from streams.replay.storage.lanes import LaneRanges, LaneTable
from streams.replay.storage.segments import GROUP_ROWS, ExtentReader, Kind, MergedLanes, SegmentWriter
from streams.runtime import (
    RUN_LIMIT,
    ApplicationPlan,
    AsTheyCome,
    Checkpoint,
    Drained,
    KeyWatch,
    PartitionQueue,
    Rounds,
    Stage,
    Task,
    TaskInput,
    TaskQueues,
    TaskState,
    TaskWatch,
    WhenCertain,
)
from streams.runtime.instance import collector
from streams.state import MemoryBudget, RecordCache

#: Rows of a partition's lanes up to which they are merged in memory.
_MERGED_ROWS = 100_000
#: Records in the blocks of a task's inputs, one of each.  A merge of all inputs ends where the block of one of them
#: ends, so that a task with smaller blocks makes more of them.
_BLOCK_RECORDS = 300_000


def run_work(
    work: StageWork | ChainWork | GlobalWork | IngestWork | MergeWork | WriteWork,
    scratch: str | None = None,
    watch: TaskWatch | None = None,
) -> StageReport:
    """Execute one call of a replay; every executor uses this function.

    ``scratch`` is a folder for temporary files of the call (None = the temporary folder of the machine). ``watch``
    observes the tasks.

    Raises:
        StreamsError: user code failed, a record or file cannot be read, or nothing can be written.
    """
    collector.tune()
    try:
        if isinstance(work, StageWork):
            return run_stage(work, scratch, watch)
        if isinstance(work, ChainWork):
            return run_chain(work, partial(run_stage, scratch=scratch, watch=watch))
        if isinstance(work, GlobalWork):
            return run_global(work, scratch)
        if isinstance(work, WriteWork):
            return run_write(work)
        return run_merge(work) if isinstance(work, MergeWork) else run_ingest(work)
    finally:
        collector.restore()


def run_stage(work: StageWork, scratch: str | None = None, watch: TaskWatch | None = None) -> StageReport:
    """Run the tasks of one call over their slice of history.

    Raises:
        StreamsError: user code failed, a record or file cannot be read, or nothing can be written.
    """
    with ExitStack() as stack:
        meter = stack.enter_context(CallMeter(work))
        call = StageCall(work, _scratch_folder(stack, scratch), stack, meter, watch)
        reports: list[TaskReport] = []
        with call.writer, call.stores_writer:
            for unit in work.units:
                with ExitStack() as call.stack:
                    runs = [TaskRun.open(call, item) for item in unit]
                    stage = _StageRun(runs, call, sum(report.records_in for report in reports))
                    stage.run(is_final=work.options.final_flush)
                    reports += [run.report() for run in runs]
    return _stage_report(work, meter, tuple(map(call.with_files, reports)), call.writer.lanes())


def _scratch_folder(stack: ExitStack, scratch: str | None) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-replay-", dir=scratch)))


def run_global(work: GlobalWork, scratch: str | None = None) -> StageReport:
    """Fill a global store from all records of its topics, and write its contents.

    Raises:
        StreamsError: a record or file cannot be read, or nothing can be written.
    """
    meter = CallMeter(work)
    plan = work.application.plan()
    spec = plan.topology.global_stores[work.store].spec
    metrics = Metrics()
    count = 0
    with ExitStack() as stack:
        reader = work.segments.reader()
        stores = open_all([spec], {}, reader, _scratch_folder(stack, scratch), "rocksdb", memory_of(plan.config))
        task = plan.open_global(work.store, TaskState(stores), metrics)
        stack.callback(task.close)
        for item in work.inputs:
            for block in reader.blocks(item.extents, item.position):
                task.add(item.partition, block)
                while done := task.process(NO_TIMESTAMP, RUN_LIMIT):
                    count += done
                if task.uncommitted_bytes > MAX_UNCOMMITTED_BYTES:
                    task.write_state({})
        name = f"{work.folder}/{work.name}-{meter.attempt}.stores.parquet"
        with work.segments.writer(name) as writer:
            refs = write_contents(writer, "", 0, stores)
        contents = written_contents(writer, "", refs)
    report = TaskReport(TaskId(-1, 0), {}, {}, contents, (), {}, metrics.tallies(), count, 0, metrics.examples())
    return _stage_report(work, meter, (report,), {})


def _stage_report(
    work: StageWork | GlobalWork,
    meter: CallMeter,
    reports: tuple[TaskReport, ...],
    lanes: Mapping[str, LaneRanges],
) -> StageReport:
    """Return the report of a call, with the files that it has written and their sizes."""
    written = [extent for report in reports for _, _, extent in report.written]
    stored = [extent for report in reports for ref in report.stores.values() for extent in ref.every_extent]
    names = {extent.file for extent in (*written, *stored) if extent.file.startswith(f"{work.folder}/")}
    names.update(*(ranges.files for ranges in lanes.values()))
    return meter.report(StageReport, tasks=reports, files=names, lanes=lanes)


def joined_inputs(
    work: StageWork, item: TaskWork, plan: ApplicationPlan, *, has_watch: bool
) -> list[InputWork | LanesWork]:
    """Return the inputs of a task; the lanes of a repartition topic's partition are one input if they may be.

    A lane has the records of one producing task.  Lanes stay separate inputs if records have to be located by lane and
    offset: for a tracer or a handler, for the append times of records, within a cycle, and if the next slice makes the
    calls of functions again that are in flight.
    """
    is_apart = work.is_cycle or has_watch or plan.handlers.may_ask or work.options.wall_clock == "append_time"
    inputs: list[InputWork | LanesWork] = list(item.inputs)
    for lanes in item.lanes:
        inputs += lanes.separate() if is_apart or lanes.is_apart or lanes.rows > _MERGED_ROWS else [lanes]
    return inputs


@define(eq=False)
class Feed:
    """The records of one input partition that the task has not read yet."""

    partition: TopicPartition
    blocks: Iterator[Block]
    end: int
    is_ended: bool
    #: The records of lanes that are read as one input.
    lanes: MergedLanes | None = None
    #: The number of records that were read.
    count: int = 0
    is_done: bool = False
    #: Blocks that the stage itself has written before all ``blocks`` were read.
    later: deque[Block] = field(factory=deque)
    #: Original offsets and append times of the added records; only used for ``append_time``.
    raw: deque[tuple[int, int]] = field(factory=deque)

    @classmethod
    def of(cls, item: InputWork | LanesWork, reader: ExtentReader, most: int) -> "Feed":
        """Return the feed of an input partition, or of several lanes as one input, with the partition of the first.

        The blocks of a partition have at most ``most`` records.
        """
        if isinstance(item, InputWork):
            blocks = reader.blocks(item.extents, item.position, item.end, most)
            return cls(item.partition, blocks, max(item.position, item.end), item.is_ended)
        lanes = MergedLanes.read(reader, item.ranges, item.first, item.positions, is_ended=item.is_ended)
        return cls(item.partition, lanes.blocks(), int(item.ends.max()), item.is_ended, lanes=lanes)

    def next_block(self) -> Block | None:
        """Return the next block of records, or None if there are no more."""
        block = next(self.blocks, None)
        self.count += 0 if block is None else len(block)
        return self.later.popleft() if block is None and self.later else block


@define(eq=False)
class StageCall:
    """A running call and the objects that its tasks share; ``stack`` closes the resources of the running tasks."""

    work: StageWork
    #: Folder for temporary files of the call.
    folder: Path
    stack: ExitStack
    meter: CallMeter
    watch: TaskWatch | None = None
    clock: VirtualClock = field(factory=lambda: VirtualClock(NO_TIMESTAMP))
    plan: ApplicationPlan = field(init=False)
    #: The memory of all stores of the call.
    memory: MemoryBudget = field(init=False)
    #: The global stores, which tasks only read.
    global_stores: Mapping[str, Any] = field(init=False)
    #: Lanes that tasks of the call both write and read.
    loops: set[TopicPartition] = field(init=False)
    #: Reads the inputs and stores of all tasks.
    reader: ExtentReader = field(init=False)
    #: Writes the outputs of all tasks, and their stores.
    writer: SegmentWriter = field(init=False)
    stores_writer: SegmentWriter = field(init=False)
    #: The stores whose contents have been written, by task.
    rewritten: dict[TaskId, set[str]] = field(factory=dict)
    #: The changes of the other stores that may have changed, by task.
    changes: dict[TaskId, SliceChanges] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        work = self.work
        name = f"{work.folder}/{work.name}-{self.meter.attempt}"
        self.reader = work.segments.reader(keeps_open=True)
        self.stack.callback(self.reader.close)
        self.writer = work.segments.writer(f"{name}.parquet", has_places=True)
        self.stores_writer = work.segments.writer(f"{name}.stores.parquet")
        self.plan = plan = work.application.plan(self.clock)
        plan.watch = self.watch
        plan.may_use_columns = True
        specs = [store.spec for name, store in plan.topology.global_stores.items() if name in work.global_stores]
        self.memory = memory_of(plan.config)
        self.global_stores = self.closing(
            open_all(specs, work.global_stores, self.reader, Path(), "in_memory", self.memory)
        )
        writers = {item.task_id for item in work.tasks} if work.is_cycle else ()
        self.loops = {
            source.partition
            for task_id in writers
            for source in plan.inputs(task_id)
            if plan.producer_of(source.topic, source.partition) in writers
        }

    def closing(self, stores: dict[str, Any]) -> dict[str, Any]:
        """Register stores to be closed with ``stack``, and return them."""
        for store in stores.values():
            self.stack.callback(store.close)
        return stores

    def start_offsets(self, item: TaskWork) -> None:
        """Set the next offsets of the partitions, and of the lanes of repartition topics, that a task writes."""
        plan = self.plan
        producer = str(item.task_id)
        for (kind, partition), offset in item.ends.items():
            self.writer.start_at(kind, partition, offset, producer)
        for topic, producers in plan.lanes.items():
            if not plan.is_internal(topic) or item.task_id not in producers:
                continue
            name = plan.physical_topic(topic)
            lane = producers.index(item.task_id)
            width = len(producers)
            ends = item.lane_ends.get(name, ())
            if not self.work.is_cycle:
                self.writer.start_lanes(name, plan.partitions[topic] * width, width)[lane::width][: len(ends)] = ends
                continue
            for number, end in enumerate(ends):
                self.writer.start_at("repartition", TopicPartition(name, number * width + lane), int(end), producer)

    def with_files(self, report: TaskReport) -> TaskReport:
        """Add the ranges of records that have been written to the report of a task; the files must be complete."""
        producer = str(report.task_id)
        written = tuple(self.writer.written_by(producer))
        new = {name: ref for name, ref in report.stores.items() if name in self.rewritten.get(report.task_id, ())}
        ends = dict(report.ends)
        for kind, partition, extent in written:
            if kind != "repartition":
                ends[kind, partition] = extent.last + 1
        stores = {**report.stores, **written_contents(self.stores_writer, producer, new)}
        if (changes := self.changes.get(report.task_id)) is not None:
            stores |= changes.refs({name: report.stores[name].carried for name in changes.few})
        return evolve(report, written=written, ends=ends, stores=stores)


@define(eq=False)
class TaskRun:
    """A running task of a replay, with its inputs and its stores."""

    call: StageCall
    work: TaskWork
    task: Task
    stores: dict[str, Any]
    feeds: dict[TopicPartition, Feed]
    metrics: Metrics
    #: What the stores have changed in this slice.
    changes: SliceChanges
    #: Kind and logical partition under which each written partition is stored.
    places: dict[TopicPartition, tuple[Kind, TopicPartition]] = field(factory=dict)
    records_in: int = 0
    records_out: int = 0
    is_touched: bool = False
    #: A queue is refilled when it has no more than this number of records.
    refill_below: int = GROUP_ROWS // 10

    @classmethod
    def open(cls, call: StageCall, item: TaskWork) -> "TaskRun":
        """Open a task and its stores with their state at the end of the previous slice.

        Raises:
            StreamsError: user code failed, or uses wall-clock time, which is not allowed.
        """
        work = call.work
        plan = call.plan
        task_id = item.task_id
        folder = call.folder / str(task_id)
        inputs = joined_inputs(work, item, plan, has_watch=call.watch is not None)
        plan.restrict(task_id, {source.partition for source in inputs})
        specs = plan.stores_of(task_id)
        changes = SliceChanges.of(call.stores_writer, task_id, item.stores, specs, is_whole=work.is_whole)
        engine = work.options.store_engine
        stores = call.closing(open_all(specs, item.stores, call.reader, folder, engine, call.memory, changes.recorded))
        metrics = Metrics()
        saved = dict(item.checkpoint or {})
        if work.options.wall_clock != "error":
            call.clock.jump_to(int(saved.pop("wall_clock_ms", work.started_ms)))
        has_clock = work.options.wall_clock == "append_time"
        if not has_clock:
            _refuse_wall_clock_sources(plan, item)
        if work.options.wall_clock == "error" and plan.idle_limits() is not None:
            raise ReplayError(
                "windows close when inputs are idle (idle_close) by the wall clock, which history does not have; give "
                "wall_clock='append_time' to take the times at which its records were appended, or 'skip' to close "
                "windows by records only"
            )
        state = TaskState(
            stores,
            call.global_stores,
            Checkpoint.from_json(saved) if saved else Checkpoint(),
            carries_wall_clock=has_clock,
            carries_cancelled=True,
            is_timed=has_clock,
        )
        cache_bytes = plan.config.cache_max_bytes
        task = plan.open_task(
            task_id,
            state,
            metrics,
            chosen_counts=lambda topics: [work.application.default_partitions] * len(topics),
            cache=RecordCache(cache_bytes) if cache_bytes > 0 else None,
            is_bounded=True,
        )
        KeyWatch(plan.config.misplaced_keys, work.options.is_by_key, is_logging=False).attach(task, plan)
        if task.idle is not None:
            task.idle.foresees = True
        call.stack.callback(task.close)
        for source in inputs:
            task.seek(source.partition, source.position if isinstance(source, InputWork) else 0)
            task.queues[source.partition].is_loop = source.partition in call.loops
        call.start_offsets(item)
        share = min(GROUP_ROWS, -(-_BLOCK_RECORDS // max(1, len(inputs))))
        feeds = {source.partition: Feed.of(source, call.reader, share) for source in inputs}
        return cls(call, item, task, stores, feeds, metrics, changes, refill_below=share // 10)

    # --- the interface to the stage ---------------------------------------------------------

    @property
    def task_id(self) -> TaskId:
        """As the task has it, for the stage."""
        return self.task.task_id

    @property
    def inputs(self) -> Mapping[TopicPartition, TaskInput]:
        """Those of the task, by partition, for the stage."""
        return self.task.inputs

    @property
    def queues(self) -> TaskQueues:
        return self.task.queues

    @property
    def is_initialized(self) -> bool:
        """Whether the processors of the task have been initialized."""
        return self.task.is_initialized

    def add(self, partition: TopicPartition, block: Block) -> None:
        """Add records that a task of the same stage has just written."""
        feed = self.feeds[partition]
        if feed.is_done:
            self._take_in(feed, block)
        else:
            feed.later.append(block)

    def finish_calls(self) -> None:
        """At the end of history, wait for all calls to async functions; otherwise the next slice makes them again."""
        if self.call.work.is_last and self.task.calls is not None:
            self.is_touched = True
            self.task.finish_calls()

    def prepare_commit(self) -> None:
        self.task.prepare_commit()

    def final_flush(self) -> None:
        """Forward the results that the task still buffers, at the end of history."""
        self.is_touched = True
        self.task.final_flush()

    def feed(self) -> bool:
        """Fill the input queues that are low; return whether records were added or an input has ended."""
        progressed = False
        task = self.task
        for feed in self.feeds.values():
            queue = task.queues[feed.partition]
            while not feed.is_done and queue.size <= self.refill_below and queue.failure is None:
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
        """Process records whose order can no longer change, and return their number.

        Wall-clock time, if there is any, is derived from the records.
        """
        task = self.task
        clock = self.call.clock
        wall_clock = self.call.work.options.wall_clock
        if wall_clock == "append_time":
            self._advance_clock()
            limit = 1
            head = task.queues.head
            # What is only dropped passes no time.
            is_record = head is not None and not head.drops
            if task.idle is not None and is_record and task.queues.take(clock.now_ms(), 1, None, queue) is not None:
                # The time since the previous record has passed before this one was appended.
                task.close_idle(clock.now_ms())
        count = task.process(clock.now_ms(), limit, queue)
        if count and wall_clock == "append_time":
            task.punctuate(clock.now_ms())
            task.close_idle(clock.now_ms())
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
        offset = queue.head_offset
        while raw[0][0] < offset:
            raw.popleft()
        self.call.clock.advance_to(raw[0][1])

    def send(self) -> list[tuple[TopicPartition, Block]]:
        """Write the outputs of the task, and return them as blocks with offsets, by partition."""
        sent = []
        producer = str(self.task_id)
        outbox = self.task.outbox
        writer = self.call.writer
        for drained in outbox.drain_topics():
            self.records_out += len(drained.keys)
            if self.call.plan.is_internal(drained.topic) and not self.call.work.is_cycle:
                self._scatter(drained)
                continue
            for partition, block in outbox.split(drained):
                kind, name = self.places.get(partition) or self._place(partition)
                first = writer.next_offset(kind, name, producer)
                writer.append(kind, name, block, producer)
                sent.append((partition, evolve(block, offsets=range(first, first + len(block)))))
        if self.task.uncommitted_bytes > MAX_UNCOMMITTED_BYTES:
            self._write_back()
        return sent

    def _write_back(self) -> None:
        """Flush the buffered writes of the stores, and write their changes."""
        self.changes.write(self.task.take_changes())
        self.task.write_state({})

    def _scatter(self, drained: Drained) -> None:
        """Write records to the partitions of a repartition topic that only this task writes, most of which get few."""
        import numpy as np

        name, first = self.task.outbox.physical(drained.topic, 0)
        lanes = np.array(drained.partitions, dtype=np.int64) * self.call.plan.lane_count(drained.topic) + first
        self.call.writer.scatter(name, lanes, self.task.outbox.joined(drained))

    def _place(self, partition: TopicPartition) -> tuple[Kind, TopicPartition]:
        plan = self.call.plan
        logical = plan.logical(partition)
        if plan.is_internal(logical.topic):
            place: tuple[Kind, TopicPartition] = ("repartition", partition)
        else:
            place = ("through", partition) if logical.topic in plan.fed else ("sink", logical)
        self.places[partition] = place
        return place

    def report(self) -> TaskReport:
        """Write the stores of the task if they may have changed; return its report, without the locations of records.

        Raises:
            ReplayError: the task cannot be continued in a further slice, or its stores cannot be written.
        """
        task = self.task
        work = self.call.work
        strays = task.uncarried_timers()
        if strays and not work.is_last:
            raise ReplayError(
                f"node {strays[0]!r} schedules punctuations outside of init(), which cannot be carried from one slice "
                "to the next; schedule them in init(), or replay without slices"
            )
        self._write_back()
        stores = self._written_stores()
        saved = task.checkpoint().to_json()
        if work.options.wall_clock != "error":
            saved["wall_clock_ms"] = self.call.clock.now_ms()
        positions = dict(task.positions())
        lane_positions = {item.partition: self._positions_in(item, positions) for item in self.work.lanes}
        return TaskReport(
            self.task_id,
            positions,
            saved,
            stores,
            (),
            self.work.ends,
            self.metrics.tallies(),
            self.records_in,
            self.records_out,
            self.metrics.examples(),
            sum(
                feed.count - task.queues[feed.partition].waiting
                for feed in self.feeds.values()
                if feed.partition not in {lanes.partition for lanes in self.work.lanes}
            ),
            lane_positions,
        )

    def _positions_in(self, lanes: LanesWork, positions: dict[TopicPartition, int]) -> Any:
        """Return the next offset to read of each lane, and remove the lanes from ``positions``."""
        import numpy as np

        feed = self.feeds.get(lanes.partition)
        if feed is not None and feed.lanes is not None:
            positions.pop(lanes.partition, None)
            return feed.lanes.positions_after(feed.count - self.task.queues[lanes.partition].waiting)
        separate = (TopicPartition(lanes.topic, lanes.first + lane) for lane in range(len(lanes.positions)))
        return np.array([positions.pop(lane, 0) for lane in separate], dtype=np.int64)

    def _written_stores(self) -> dict[str, StoreRef]:
        """Write the contents of stores with many changes; return references to all stores, without locations."""
        before = self.work.stores
        task_id = self.task_id
        is_joined = self.call.work.is_whole and any(ref.changes for ref in before.values())
        if not self.is_touched and not is_joined and set(before) == set(self.stores):
            return dict(before)
        few = self.changes.few
        contents = {name: store for name, store in self.stores.items() if name not in few}
        self.call.rewritten[task_id] = set(contents)
        self.call.changes[task_id] = self.changes
        changed = {name: StoreRef((), self.stores[name].carried()) for name in few}
        return changed | write_contents(self.call.stores_writer, str(task_id), task_id.partition, contents)


def _refuse_wall_clock_sources(plan: ApplicationPlan, item: TaskWork) -> None:
    for source in plan.inputs(item.task_id):
        node: Any = plan.topology.nodes[source.source]
        policy = node.extractor or ("" if plan.is_internal(source.topic) else plan.config.default_timestamp_extractor)
        if policy == "wall_clock":
            raise ReplayError(
                f"source {node.name!r} takes the wall clock as event time, which history does not have; give "
                "wall_clock='append_time' to take the times at which its records were appended"
            )


@define(eq=False)
class _StageRun:
    """A run of tasks that are processed together: a single task, or all tasks of a cycle."""

    runs: list[TaskRun]
    call: StageCall
    #: Number of records that the tasks of the call before these have read.
    records_before: int
    stage: Stage[TaskRun] = field(init=False)

    def __attrs_post_init__(self) -> None:
        is_cycle = any(queue.is_loop for run in self.runs for queue in run.queues)
        policy = WhenCertain() if is_cycle else AsTheyCome()
        self.stage = Stage(self.runs, policy, Rounds(self.call.plan.config.max_cycle_rounds))

    def run(self, *, is_final: bool) -> None:
        """Process all records whose order can no longer change; with ``is_final``, also forward buffered results."""
        self._settle(is_final=False)
        if is_final:
            self._settle(is_final=True)

    def _settle(self, *, is_final: bool) -> None:
        """Process records and flush caches until the tasks send no more records to each other."""
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
                self.call.meter.beat(self.records_before + sum(run.records_in for run in self.runs))

    def _feed(self, run: TaskRun) -> bool:
        has_progressed = run.feed()
        if has_progressed:
            self._send(run)  # Unreadable records may be sent to the dead letter queue topic immediately.
        return has_progressed

    def _send(self, run: TaskRun) -> bool:
        """Write the outputs of a task; return whether tasks of the same call read some of them."""
        loops = self.stage.loops
        around = [(partition, block) for partition, block in run.send() if partition in loops]
        for partition, block in around:
            self.stage.add(loops[partition], partition, block)
        return bool(around)


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
        plan = first.application.plan()
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
            inputs=tuple(_after(part, report) for part in task.inputs),
            lanes=tuple(_lanes_after(part, report) for part in task.lanes),
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
                new = self._lanes[name].ends_of(lane, width)
                before = ends.get(name, new[:0])
                # The end of a lane that this chain has not written is the one before the chain.
                size = max(len(new), len(before))
                ends[name] = np.maximum(*(np.pad(array, (0, size - len(array))) for array in (new, before)))
        return ends


def _after(part: InputWork, report: TaskReport) -> InputWork:
    """Return the part of an input that a slice reads after another one."""
    position = report.positions.get(part.partition, 0)
    extents = tuple(extent for extent in part.extents if extent.last >= position)
    if not position and extents:
        position = extents[0].first
    return evolve(part, extents=extents, position=position)


def _lanes_after(lanes: LanesWork, report: TaskReport) -> LanesWork:
    """Return the part of lanes that a slice reads after another one."""
    positions = report.lane_positions[lanes.partition]
    ranges = lanes.ranges
    if len(ranges):
        ranges = ranges.where(ranges.ends > positions[ranges.columns[0] - lanes.first])
    return evolve(lanes, ranges=ranges, positions=positions)
