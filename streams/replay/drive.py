"""The driver of tasks over history: feeds extents in, writes what comes out, snapshots the stores.

A plain function of a ``StageWork``; Spark, the local executor and the tests all call this one.
Reads no clock: the time of its tasks is that of their records.  Imports runtime and state.
"""

import resource
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from attrs import define, evolve, field

from streams.core.clock import SystemClock, VirtualClock
from streams.core.metrics import Metrics
from streams.core.records import NO_TIMESTAMP, Block, TaskId, TopicPartition
from streams.replay.application import logical_of
from streams.replay.errors import ReplayError
from streams.replay.ingest import IngestWork, run_ingest
from streams.replay.places import Place
from streams.replay.progress import Heartbeat
from streams.replay.segments import ExtentReader, Kind, SegmentWriter
from streams.replay.work import GlobalWork, InputWork, StageReport, StageWork, StoreRef, TaskReport, TaskWork
from streams.runtime.checkpoint import Checkpoint
from streams.runtime.plan import ApplicationPlan
from streams.runtime.task import Task, TaskState
from streams.state.cache import RecordCache
from streams.state.keyvalue import ValueAndTimestamp
from streams.state.opening import is_on_disk, open_store
from streams.state.specs import StoreKind, StoreSpec

#: Records of one run, at most, and of one turn between two looks at memory and progress.
_RUN_LIMIT = 10_000
#: A queue is filled again when it has no more than this.
_REFILL_BELOW = 1000
#: State that waits to be written, above which it is.
_MAX_UNCOMMITTED_BYTES = 64 << 20


def run_work(work: StageWork | GlobalWork | IngestWork, scratch: str | None = None) -> StageReport:
    """Run one call: what every executor does with it.

    ``scratch`` is a folder for what lasts no longer than the call (None = the machine's own).

    Raises:
        StreamsError: user code failed, a record or file cannot be read, or nothing can be written.
    """
    if isinstance(work, StageWork):
        return run_stage(work, scratch)
    return run_global(work, scratch) if isinstance(work, GlobalWork) else run_ingest(work)


def run_stage(work: StageWork, scratch_root: str | None = None) -> StageReport:
    """Run the tasks of one call over their slice.

    Raises:
        StreamsError: user code failed, a record or file cannot be read, or nothing can be written.
    """
    clock = SystemClock()
    started_ms, cpu_before = clock.monotonic_ms(), _cpu_ms()
    attempt = uuid4().hex[:12]
    replay_clock = VirtualClock(NO_TIMESTAMP)
    plan = work.application.plan(replay_clock)
    reports: list[TaskReport] = []
    files: dict[str, int] = {}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-replay-", dir=scratch_root)))
        heartbeat = stack.enter_context(Heartbeat(work.root, work.folder, work.name, clock))
        states = {item.task_id: _open_stores(work, plan, item, scratch / str(item.task_id)) for item in work.tasks}
        runs: list[_TaskRun] = []
        with ExitStack() as writers:
            for item in work.tasks:
                name = f"{work.folder}/{item.task_id}-{attempt}.parquet"
                writer = writers.enter_context(SegmentWriter(work.root, name, str(item.task_id)))
                run = _TaskRun.open(work, plan, item, states[item.task_id], writer, replay_clock)
                stack.callback(run.task.close)
                runs.append(run)
            stage = _Stage(runs, heartbeat, work.final_flush)
            stage.run()
        for run in runs:
            reports.append(_report(work, run, attempt))
        for report in reports:
            for _, _, extent in report.written:
                files[extent.file] = 0
            for ref in report.stores.values():
                files |= {extent.file: 0 for extent in ref.extents if extent.file.startswith(f"{work.folder}/")}
    sizes = {file: work.root.child(file).size() for file in files}
    shutil.rmtree(scratch, ignore_errors=True)
    return StageReport(
        work.name,
        tuple(reports),
        sizes,
        clock.monotonic_ms() - started_ms,
        _cpu_ms() - cpu_before,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        attempt,
    )


def run_global(work: GlobalWork, scratch_root: str | None = None) -> StageReport:
    """Fill a global store from its whole topic and write its contents.

    Raises:
        StreamsError: a record or file cannot be read, or nothing can be written.
    """
    clock = SystemClock()
    started_ms, cpu_before = clock.monotonic_ms(), _cpu_ms()
    attempt = uuid4().hex[:12]
    plan = work.application.plan(VirtualClock(NO_TIMESTAMP))
    spec = plan.topology.global_stores[work.store].spec
    with tempfile.TemporaryDirectory(prefix="streams-replay-", dir=scratch_root) as scratch:
        store = _open(spec, Path(scratch), "rocksdb")
        metrics = Metrics()
        task = plan.open_global(work.store, TaskState({work.store: store}), metrics)
        count = 0
        try:
            for item in work.inputs:
                for block in ExtentReader(work.root).blocks(item.extents, item.position):
                    task.add(item.partition, block)
                    while done := task.process(NO_TIMESTAMP, _RUN_LIMIT):
                        count += done
                    if task.uncommitted_bytes > _MAX_UNCOMMITTED_BYTES:
                        _write_back(task)
            ref = _snapshot(work.root, f"{work.folder}/{work.name}-{attempt}.stores.parquet", {work.store: (store, 0)})
            counters = _counters(metrics)
        finally:
            task.close()
    report = TaskReport(TaskId(-1, 0), {}, {}, ref, (), {}, counters, count, 0)
    names = {extent.file for found in ref.values() for extent in found.extents}
    return StageReport(
        work.name,
        (report,),
        {name: work.root.child(name).size() for name in names},
        clock.monotonic_ms() - started_ms,
        _cpu_ms() - cpu_before,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        attempt,
    )


# --- stores -------------------------------------------------------------------------------


def _open(spec: StoreSpec, folder: Path, engine: str) -> Any:
    """Open an empty store that notes nothing for a changelog: a replay keeps contents, not changes."""
    unlogged = evolve(spec, has_changelog=False)
    name: Any = engine
    place = folder / spec.name if is_on_disk(spec, name) and engine == "rocksdb" else None
    return open_store(unlogged, place, default_engine=name)


def _filled(store: Any, ref: StoreRef, reader: ExtentReader) -> Any:
    for block in reader.blocks(ref.extents):
        store.restore(block)
        if store.approximate_uncommitted_bytes > _MAX_UNCOMMITTED_BYTES:
            store.commit({})
    store.restore_carried(ref.carried)
    store.commit({})
    return store


def open_contents(spec: StoreSpec, ref: StoreRef, root: Place) -> dict[Any, Any]:
    """Return what a store held, key to value; the keys of windows and sessions are ``Windowed``."""
    reader = ExtentReader(root)
    store = _filled(_open(spec, Path(), "in_memory"), ref, reader)
    try:
        if spec.kind is StoreKind.SESSION:
            return dict(store.fetch_keys(None, None))
        if spec.kind is StoreKind.VERSIONED:
            raw = dict.fromkeys(key for block in reader.blocks(ref.extents) for key in block.keys)
            keys = map(spec.key_serde.deserialize, raw)
            return {key: record.value for key in keys if (record := store.get(key)) is not None}
        return {key: held.value if type(held) is ValueAndTimestamp else held for key, held in store.all()}
    finally:
        store.close()


def _open_stores(work: StageWork, plan: ApplicationPlan, item: TaskWork, folder: Path) -> dict[str, Any]:
    stores: dict[str, Any] = {}
    reader = ExtentReader(work.root)
    try:
        for spec in plan.stores_of(item.task_id):
            stores[spec.name] = _open(spec, folder, work.store_engine)
            ref = item.stores.get(spec.name)
            if ref is not None:
                _filled(stores[spec.name], ref, reader)
    except BaseException:
        for store in stores.values():
            store.close()
        raise
    return stores


def _global_stores(work: StageWork, plan: ApplicationPlan) -> dict[str, Any]:
    """Return the global stores, which all tasks of a call read and none writes."""
    reader = ExtentReader(work.root)
    return {
        name: _filled(_open(plan.topology.global_stores[name].spec, Path(), "in_memory"), ref, reader)
        for name, ref in work.global_stores.items()
    }


def _snapshot(root: Place, name: str, stores: Mapping[str, tuple[Any, int]]) -> dict[str, StoreRef]:
    """Write the contents of stores; each by name, with the partition that the task has of it."""
    with SegmentWriter(root, name) as writer:
        for store_name, (store, number) in stores.items():
            for block in store.snapshot_blocks():
                # The types of what lambdas made are kept beside the entries, not at each of them.
                writer.append("store", TopicPartition(store_name, number), evolve(block, headers=None))
    refs = {}
    for store_name, (store, _) in stores.items():
        extents = tuple(extent for _, partition, extent in writer.written if partition.topic == store_name)
        refs[store_name] = StoreRef(extents, store.carried())
    return refs


def _write_back(task: Task) -> None:
    task.take_changes()
    task.write_state({})


# --- one task -----------------------------------------------------------------------------


@define(eq=False)
class _Feed:
    """What is still to be read of one input partition."""

    partition: TopicPartition
    blocks: Iterator[Block]
    end: int
    is_ended: bool
    is_done: bool = False
    #: Offsets and times of records that were added, as they lie in the log; only for ``append_time``.
    raw: "deque[tuple[int, int]]" = field(factory=deque)


@define(eq=False)
class _TaskRun:
    """A task, what feeds it and what it writes to."""

    work: TaskWork
    task: Task
    stores: dict[str, Any]
    feeds: list[_Feed]
    writer: SegmentWriter
    metrics: Metrics
    clock: VirtualClock
    wall_clock: str
    plan: ApplicationPlan
    #: Where each partition that the task writes goes: what it is for, and under which name.
    places: dict[TopicPartition, tuple[Kind, TopicPartition]] = field(factory=dict)
    records_in: int = 0
    records_out: int = 0
    is_touched: bool = False

    @classmethod
    def open(
        cls,
        work: StageWork,
        plan: ApplicationPlan,
        item: TaskWork,
        stores: dict[str, Any],
        writer: SegmentWriter,
        clock: VirtualClock,
    ) -> "_TaskRun":
        """Open a task where its last slice ended."""
        metrics = Metrics()
        config = plan.config
        saved = dict(item.checkpoint or {})
        if work.wall_clock != "error":
            clock.jump_to(int(saved.pop("wall_clock_ms", work.started_ms)))
        checkpoint = Checkpoint.from_json(saved) if saved else Checkpoint()
        if work.wall_clock != "append_time":
            _refuse_wall_clock_sources(plan, item)
        task = plan.open_task(
            item.task_id,
            TaskState(
                stores,
                _global_stores(work, plan),
                checkpoint,
                carries_wall_clock=work.wall_clock == "append_time",
                carries_cancelled=True,
            ),
            metrics,
            partitions_of=lambda topic: plan.partition_count(topic) or 1,
            cache=RecordCache(config.cache_max_bytes) if config.cache_max_bytes > 0 else None,
            is_bounded=True,
        )
        writes_itself = set(_lanes_written(plan, work))
        feeds = []
        for given in item.inputs:
            task.seek(given.partition, given.position)
            task.queues[given.partition].is_loop = given.partition in writes_itself
            feeds.append(_feed(work, given))
        for (kind, partition), offset in item.ends.items():
            writer.start_at(kind, partition, offset)
        return cls(item, task, stores, feeds, writer, metrics, clock, work.wall_clock, plan)

    def feed(self) -> bool:
        """Fill the queues that are low; return whether something was added or ended."""
        progressed = False
        task = self.task
        for feed in self.feeds:
            queue = task.queues[feed.partition]
            while not feed.is_done and queue.size <= _REFILL_BELOW and queue.failure is None:
                block = next(feed.blocks, None)
                progressed = True
                if block is None:
                    feed.is_done = True
                    task.note_position(feed.partition, feed.end)
                    task.note_end(feed.partition, feed.end, is_ended=feed.is_ended)
                else:
                    if self.wall_clock == "append_time":
                        feed.raw.extend(zip(block.offsets, block.timestamps, strict=True))
                    task.add(feed.partition, block)
        return progressed

    def process(self, limit: int) -> int:
        """Process what is certain; return the number of records."""
        task = self.task
        if self.wall_clock == "append_time":
            self._advance_clock()
            limit = 1
        count = task.process(self.clock.now_ms(), limit)
        if count and self.wall_clock == "append_time":
            task.punctuate(self.clock.now_ms())
        elif count and self.wall_clock == "skip":
            self.clock.advance_to(task.queues.stream_time_ms)
        if count:
            self.records_in += count
            self.is_touched = True
        return count

    def _advance_clock(self) -> None:
        """Set the wall clock to when the next record was appended."""
        heads = [(queue.head_ms, queue.index, queue) for queue in self.task.queues if queue.size]
        if not heads:
            return
        queue = min(heads)[2]
        raw = next(feed.raw for feed in self.feeds if feed.partition == queue.partition)
        offset = queue.batches[0].offsets[queue.start]
        while raw[0][0] < offset:
            raw.popleft()
        self.clock.advance_to(raw[0][1])

    def send(self) -> list[tuple[TopicPartition, Block]]:
        """Write outputs; return those that stay within the stage, with their offsets."""
        around = []
        for partition, block in self.task.take_outputs():
            kind, name = self.places.get(partition) or self._place(partition)
            first = self.writer.next_offset(kind, name)
            self.writer.append(kind, name, block)
            self.records_out += len(block)
            around.append((partition, evolve(block, offsets=range(first, first + len(block)))))
        if self.task.uncommitted_bytes > _MAX_UNCOMMITTED_BYTES:
            _write_back(self.task)
        return around

    def _place(self, partition: TopicPartition) -> tuple[Kind, TopicPartition]:
        logical = logical_of(self.plan, partition)
        if self.plan.is_internal(logical.topic):
            place: tuple[Kind, TopicPartition] = ("repartition", partition)
        else:
            place = ("through", partition) if logical.topic in self.plan.fed else ("sink", logical)
        self.places[partition] = place
        return place

    @property
    def is_settled(self) -> bool:
        """Whether everything is at hand that could come before the next record."""
        return all(queue.size or queue.is_loop or (queue.is_ended and queue.is_caught_up) for queue in self.task.queues)


def _feed(work: StageWork, given: InputWork) -> _Feed:
    blocks = ExtentReader(work.root).blocks(given.extents, given.position, given.end)
    return _Feed(given.partition, blocks, max(given.position, given.end), given.is_ended)


def _lanes_written(plan: ApplicationPlan, work: StageWork) -> Iterator[TopicPartition]:
    """Yield the lanes that the tasks of a call write: those it also reads are within its cycle."""
    writers = {item.task_id for item in work.tasks}
    for item in work.tasks:
        for given in plan.inputs(item.task_id):
            if plan.producer_of(given.topic, given.partition) in writers:
                yield given.partition


def _refuse_wall_clock_sources(plan: ApplicationPlan, item: TaskWork) -> None:
    for given in plan.inputs(item.task_id):
        node: Any = plan.topology.nodes[given.source]
        policy = node.extractor or ("" if plan.is_internal(given.topic) else plan.config.default_timestamp_extractor)
        if policy == "wall_clock":
            raise ReplayError(
                f"source {node.name!r} takes the wall clock as event time, which history does not have; give "
                "wall_clock='append_time' to take the times at which its records were appended"
            )


# --- one stage ----------------------------------------------------------------------------


@define(eq=False)
class _Stage:
    """The tasks of one call: a single one, or all of a cycle, which then take turns by lowest head."""

    runs: Sequence[_TaskRun]
    heartbeat: Heartbeat
    final_flush: bool
    _owner: dict[TopicPartition, _TaskRun] = field(init=False)

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
                return True
        return progressed

    def _feed(self, run: _TaskRun) -> bool:
        progressed = run.feed()
        if progressed:
            self._send(run)  # Records that cannot be read may be dropped at once, into the dead letter queue.
        return progressed

    def _send(self, run: _TaskRun) -> None:
        for partition, block in run.send():
            owner = self._owner.get(partition)
            if owner is not None:
                owner.task.add(partition, block)

    def _gives_out(self) -> bool:
        """Flush the record caches; return whether that goes around within the stage."""
        before = sum(run.records_out for run in self.runs)
        for run in self.runs:
            if run.task.cache is not None:
                run.task.flush_caches()
                self._send(run)
        return bool(self._owner) and sum(run.records_out for run in self.runs) > before


def _report(work: StageWork, run: _TaskRun, attempt: str) -> TaskReport:
    task = run.task
    strays = task.uncarried_timers()
    if strays and not work.is_last:
        raise ReplayError(
            f"node {strays[0]!r} schedules punctuations outside of init(), which cannot be carried from one slice to "
            "the next; schedule them in init(), or replay without slices"
        )
    _write_back(task)
    number = task.task_id.partition
    if run.is_touched or set(run.work.stores) != set(run.stores):
        name = f"{work.folder}/{task.task_id}-{attempt}.stores.parquet"
        stores = _snapshot(work.root, name, {name: (store, number) for name, store in run.stores.items()})
    else:
        stores = dict(run.work.stores)
    saved = task.checkpoint().to_json()
    if work.wall_clock != "error":
        saved["wall_clock_ms"] = run.clock.now_ms()
    ends = dict(run.work.ends)
    for kind, partition, extent in run.writer.written:
        ends[kind, partition] = extent.last + 1
    return TaskReport(
        task.task_id,
        task.positions(),
        saved,
        stores,
        tuple(run.writer.written),
        ends,
        _counters(run.metrics),
        run.records_in,
        run.records_out,
    )


def _counters(metrics: Metrics) -> dict[tuple[str, str], int]:
    result: dict[tuple[str, str], int] = {}
    for key, count in metrics.snapshot().items():
        if count and key.name.startswith("dropped"):
            place = (key.name, key.node or "")
            result[place] = result.get(place, 0) + int(count)
    return result


def _cpu_ms() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1000)
