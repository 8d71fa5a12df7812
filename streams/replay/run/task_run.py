"""One task over one slice of history: what feeds it, what it writes, and what it reports.

Between ``drive``, which runs the tasks of a call, and the task itself.  Imports runtime.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, evolve, field

from streams.core.clock import VirtualClock
from streams.core.metrics import Metrics
from streams.core.records import Block, TopicPartition
from streams.replay.calls import (
    MAX_UNCOMMITTED_BYTES,
    InputWork,
    StageWork,
    TaskReport,
    TaskWork,
    logical_of,
    write_back,
    write_contents,
)
from streams.replay.errors import ReplayError
from streams.replay.storage import ExtentReader, Kind, SegmentWriter
from streams.runtime.checkpoint import Checkpoint
from streams.runtime.lateness import DISORDER, READ, merged
from streams.runtime.plan import ApplicationPlan
from streams.runtime.task import Task, TaskState
from streams.state.cache import RecordCache

#: A queue is filled again when it has no more than this.
_REFILL_BELOW = 1000


@define(eq=False)
class Feed:
    """What is still to be read of one input partition."""

    partition: TopicPartition
    blocks: Iterator[Block]
    end: int
    is_ended: bool
    is_done: bool = False
    #: Offsets and times of records that were added, as they lie in the log; only for ``append_time``.
    raw: "deque[tuple[int, int]]" = field(factory=deque)


@define(eq=False)
class TaskRun:
    """A task, what feeds it and what it writes to."""

    work: TaskWork
    task: Task
    stores: dict[str, Any]
    feeds: list[Feed]
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
        global_stores: Mapping[str, Any],
        writer: SegmentWriter,
        clock: VirtualClock,
    ) -> "TaskRun":
        """Open a task where its last slice ended.

        Raises:
            StreamsError: user code failed, or asks for the wall clock.
        """
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
                global_stores,
                checkpoint,
                carries_wall_clock=work.wall_clock == "append_time",
                carries_cancelled=True,
            ),
            metrics,
            partitions_of=lambda topic: plan.partition_count(topic) or work.application.default_partitions,
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
                    self.add(feed, block)
        return progressed

    def add(self, feed: "Feed", block: Block) -> None:
        """Take records in."""
        if self.wall_clock == "append_time":
            feed.raw.extend(zip(block.offsets, block.timestamps, strict=True))
        self.task.add(feed.partition, block)

    def add_from_stage(self, partition: TopicPartition, block: Block) -> None:
        """Take records in that a task of the same stage has just written."""
        self.add(next(feed for feed in self.feeds if feed.partition == partition), block)

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
        if self.task.uncommitted_bytes > MAX_UNCOMMITTED_BYTES:
            write_back(self.task)
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


def _feed(work: StageWork, given: InputWork) -> Feed:
    blocks = ExtentReader(work.root).blocks(given.extents, given.position, given.end)
    return Feed(given.partition, blocks, max(given.position, given.end), given.is_ended)


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


def report_of(work: StageWork, run: TaskRun, attempt: str) -> TaskReport:
    """Return what became of a task, its stores written if it has done anything.

    Raises:
        ReplayError: it cannot go on in a further slice, or nothing can be written.
    """
    task = run.task
    strays = task.uncarried_timers()
    if strays and not work.is_last:
        raise ReplayError(
            f"node {strays[0]!r} schedules punctuations outside of init(), which cannot be carried from one slice to "
            "the next; schedule them in init(), or replay without slices"
        )
    write_back(task)
    number = task.task_id.partition
    if run.is_touched or set(run.work.stores) != set(run.stores):
        name = f"{work.folder}/{task.task_id}-{attempt}.stores.parquet"
        stores = write_contents(work.root, name, {name: (store, number) for name, store in run.stores.items()})
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
        counters_of(run.metrics),
        run.records_in,
        run.records_out,
        run.metrics.examples(),
    )


def counters_of(metrics: Metrics) -> dict[tuple[str, str], int]:
    """Return the counters of a task that its replay keeps, by name and node: what was dropped, and of how many.

    How many records it has read stands under the number of its sub-topology.
    """
    result: dict[tuple[str, str], int] = {}
    for key, count in metrics.snapshot().items():
        if not count:
            continue
        if key.name == READ:
            place = (key.name, str(key.task.sub_topology))
        elif key.name.startswith("dropped") or key.name == DISORDER:
            place = (key.name, key.node or "")
        else:
            continue
        result[place] = merged(key.name, result.get(place, 0), int(count))
    return result
