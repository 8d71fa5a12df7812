"""A stream task: a state machine that turns record blocks and times into output blocks and positions.

A driver (thread, test driver, simulation, replay) runs the program of a sub-topology through its task, and performs all
effects.  Pure: no clock, and no I/O except in its stores.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from attrs import define, field, frozen

from streams.core.errors import ForeignFormatError, HandlerError, ProcessingError, StreamsError
from streams.core.handlers import ErrorHandlerContext, FailureOrigin, ProducerRecord
from streams.core.inlining import inlined
from streams.core.metrics import Metrics
from streams.core.records import (
    NO_TIMESTAMP,
    Block,
    Headers,
    Record,
    RecordContext,
    RecordMetadata,
    TaskId,
    TopicPartition,
)
from streams.core.threads import INTERRUPTIONS
from streams.runtime.checkpoint import Checkpoint
from streams.runtime.context import TaskNodeContext
from streams.runtime.handling import Handlers
from streams.runtime.lateness import TOO_OLD
from streams.runtime.outbox import Outbox, TopicColumns
from streams.runtime.punctuation import Punctuations, Timer, TimerHeap
from streams.runtime.queues import PartitionQueue, Run, TaskQueues
from streams.runtime.sampling import TaskSampling
from streams.runtime.sources import SourceReader, TaskInput
from streams.runtime.task_metrics import TaskMetrics
from streams.runtime.watching import TaskWatch
from streams.state import Content, RecordCache, Store
from streams.topology import CompiledSubTopology, Process, PunctuationType, SinkNode, StreamTime, Topology

_NO_ORIGIN = ("", -1, -1)
#: Metadata entry of a store: the first changelog offset that the committed state does not contain.
CHANGELOG_POSITION = "changelog_position"


@define
class TaskState:
    """The initial state of a task: stores by name, and the checkpoint of the last commit.

    If ``is_complete`` is False, the stores have yet to be restored, and the driver calls ``initialize`` later.

    Stream-time punctuations continue from the checkpoint.  Wall-clock punctuations are rescheduled, as in Kafka
    Streams, unless the clock is driven by records and ``carries_wall_clock`` is True.  With ``carries_cancelled``,
    cancelled punctuations stay cancelled; this is for runs that continue an earlier run.  It must be False if
    processors are recreated within a run, since a new processor schedules its punctuations again.
    """

    stores: Mapping[str, Store]
    global_stores: Mapping[str, Any] = field(factory=dict)
    checkpoint: Checkpoint = field(factory=Checkpoint)
    is_complete: bool = True
    carries_wall_clock: bool = False
    carries_cancelled: bool = False


@frozen
class TaskParts:
    """The parts of a task, as assembled by its plan.

    Args:
        regroups: Whether the outputs of this task and of others of its sub-topology are merged in a repartition topic.
        timer_heap: The heap that orders punctuations with the same due time.
        cache: The record cache, or None without caching.
        watch: The observer of the task from its opening on, or None.
        now_ms: Wall-clock time, in epoch milliseconds.
    """

    task_id: TaskId
    application_id: str
    topology: Topology
    compiled: CompiledSubTopology
    inputs: Sequence[TaskInput]
    readers: Mapping[TopicPartition, SourceReader]
    queues: TaskQueues
    state: TaskState
    outbox: Outbox
    metrics: Metrics
    handlers: Handlers
    now_ms: int
    regroups: bool = False
    timer_heap: TimerHeap = field(factory=TimerHeap)
    cache: RecordCache | None = None
    watch: TaskWatch | None = None


class Task:
    """A task, which processes one partition group of one sub-topology, with its stores.

    Single-threaded: its driver calls ``add``, ``process``, ``punctuate`` and the steps of a
    commit from one thread at a time.
    """

    def __init__(self, parts: TaskParts) -> None:
        self.task_id = parts.task_id
        #: Objects that several nodes share, by key (``NodeContext.shared``).
        self.shared: dict[str, Any] = {}
        self.handlers = parts.handlers
        self.regroups = parts.regroups
        self.application_id = parts.application_id
        self.inputs = {item.partition: item for item in parts.inputs}
        self.queues = parts.queues
        self.outbox = parts.outbox
        self.metrics = parts.metrics
        self.cache = parts.cache
        self.topology = parts.topology
        self.punctuations = Punctuations(parts.timer_heap)
        #: Wall-clock time at the last call of the driver, in epoch milliseconds.
        self.now_ms = parts.now_ms
        #: Whether user code has requested a commit.
        self.wants_commit = False
        #: Whether the positions or the state have changed since the last commit.
        self.is_dirty = False
        #: Non-empty if the run must end after the current record.
        self.stop: list[bool] = []
        self.readers = dict(parts.readers)
        self._measure(parts)
        self._forget_run()
        self._take_state(parts.state)
        self.watch = parts.watch
        self._bind(parts.compiled)
        if parts.state.is_complete:
            self.initialize()

    def _measure(self, parts: TaskParts) -> None:
        #: Traces sampled records, or None.
        self.sampling: TaskSampling | None = None
        self.sensors = TaskMetrics(parts.metrics, parts.task_id, parts.application_id, parts.topology, self.sink_of)
        self.queues.enforced = self.sensors.enforced
        self.outbox.on_drained = lambda columns: self.sensors.produced(columns, self.now_ms)

    def _forget_run(self) -> None:
        """Reset the state of the current run."""
        #: The current run, and an iterator over its values.
        self._run: Run | None = None
        self._values: Any = None
        #: The input of all records in the run, or None if there are several inputs.
        self._item: TaskInput | None = None
        self._override: RecordContext | None = None
        self._time_memo = (0, NO_TIMESTAMP)
        #: Time of the current or last punctuation.
        self._punctuated_ms = NO_TIMESTAMP
        #: The failure for which a handler returned "fail"; no other handler is called for it.
        self._decided: Exception | None = None

    def _take_state(self, state: TaskState) -> None:
        """Restore the times of the last commit; records that a store drops as expired are counted as dropped."""
        self._state = state
        self.stores = state.stores
        self.global_stores = state.global_stores
        checkpoint = state.checkpoint
        self.operator_times = {name: StreamTime(time) for name, time in checkpoint.operator_times.items()}
        self.queues.stream_time_ms = checkpoint.stream_time_ms
        for partition, time in checkpoint.partition_times.items():
            if partition in self.queues.partitions:
                self.queues[partition].partition_time_ms = time
                self.readers[partition].partition_time_ms = time
        for name, store in self.stores.items():
            store.on_expired = partial(self.metrics.drop, TOO_OLD, task=self.task_id, node=name)

    def _bind(self, compiled: CompiledSubTopology) -> None:
        """Bind the program to this task, child nodes first."""
        self._contexts: dict[str, TaskNodeContext] = {}
        self._closers: list[Callable[[], None]] = []
        self.program = compiled.bind(self)
        # Contexts are in graph order: a flush must not forward records to a node that is already flushed.
        self._contexts = {node: self._contexts[node] for node in compiled.sub.nodes if node in self._contexts}
        #: Whether operators and user processors are initialized and may process records.
        self.is_initialized = False
        self._is_flushed = False
        if self.watch is not None:
            self.watch.opened(self)

    def initialize(self) -> None:
        """Initialize operators and user processors, once their stores are restored.

        Raises:
            StreamsError: user code failed.
        """
        for context in self._contexts.values():
            context.initialize()
        state = self._state
        self.punctuations.resume(
            state.checkpoint.timers,
            with_wall_clock=state.carries_wall_clock,
            with_cancelled=state.carries_cancelled,
        )
        self.is_initialized = True

    # --- input ------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, position: int) -> None:
        """Set the next offset to process, before any block is added."""
        queue = self.queues[partition]
        queue.position = queue.fetched = position

    def attach(self, item: TaskInput, reader: SourceReader) -> None:
        """Add an input partition."""
        self.inputs[item.partition] = item
        self.readers[item.partition] = reader
        self.queues.attach(item.partition)

    def add(self, partition: TopicPartition, block: Block) -> None:
        """Buffer a raw block of one of the task's partitions."""
        queue = self.queues[partition]
        if queue.failure is not None or not len(block):
            return
        reader = self.readers[partition]
        item = self.inputs[partition]
        self.sensors.consumed(item.source, item.name, block)
        batches, failure = reader.read(block)
        if queue.position is None:
            queue.position = block.offsets[0]
        reader.forget_raw(queue.position)
        before = queue.position
        # If a record at the head cannot be deserialized and its handler returns "fail", no later records are added.
        is_stopped = not all(self.queues.add(queue, batch) for batch in batches)
        if is_stopped:
            return
        if failure is None:
            queue.fetched = block.offsets[-1] + 1
            if not queue.size:
                queue.position = queue.fetched
        else:
            queue.fetched = failure.offset if isinstance(failure, ProcessingError) else queue.fetched
            queue.failure = failure
        # Records that were dropped immediately have advanced the position.
        self.is_dirty = self.is_dirty or queue.position != before

    def note_end(self, partition: TopicPartition, end_offset: int, *, is_ended: bool = False) -> None:
        """Set the end offset of a partition, and whether this offset is final."""
        queue = self.queues[partition]
        queue.end_offset = end_offset
        queue.is_ended = is_ended
        if queue.fetched is None and queue.position is None and end_offset == 0:
            queue.fetched = queue.position = 0

    def note_position(self, partition: TopicPartition, position: int) -> None:
        """Set the position up to which a partition was read, including transaction markers."""
        queue = self.queues[partition]
        if queue.failure is None and (queue.fetched is None or queue.fetched < position):
            queue.fetched = position
            if not queue.size:
                queue.position = position

    # --- work -------------------------------------------------------------------------

    def process(self, now_ms: int, limit: int, queue: PartitionQueue | None = None) -> int:
        """Process the longest run whose order is certain, or a run from ``queue``; return the number of records.

        Raises:
            ProcessingError: user code failed or a record cannot be deserialized, and the handler returned "fail".
        """
        self.now_ms = now_ms
        run = self.queues.take(now_ms, limit, self.punctuations.next_due_ms(PunctuationType.STREAM_TIME), queue)
        if run is None:
            return 0
        self.is_dirty = True
        count = self._execute(run) if self.sampling is None else self.sampling.run(run, self._execute)
        self._punctuate(PunctuationType.STREAM_TIME, self.queues.stream_time_ms)
        return count

    def punctuate(self, now_ms: int) -> int:
        """Fire the wall-clock punctuations that are due; return their number."""
        self.now_ms = now_ms
        return self._punctuate(PunctuationType.WALL_CLOCK_TIME, now_ms)

    def final_flush(self) -> None:
        """Forward all buffered results, as if all windows had closed; for bounded runs.

        Operators forward their buffered results in graph order; only the first call has an effect.
        """
        if self._is_flushed:
            return
        self._is_flushed = self.is_dirty = True
        self.flush_caches()
        for context in self._contexts.values():
            context.final_flush()
            self.flush_caches()

    def next_deadline_ms(self) -> int | None:
        """Return the wall-clock time at which work is due even if no record arrives, or None."""
        times = [self.punctuations.next_due_ms(PunctuationType.WALL_CLOCK_TIME), self.queues.next_deadline_ms()]
        return min((time for time in times if time is not None), default=None)

    def _execute(self, run: Run) -> int:
        size = len(run)
        values: Any = iter(run.values)
        self.stop.clear()
        self._run, self._values, self._time_memo = run, values, (0, self.queues.stream_time_ms)
        try:
            if isinstance(run.queues, list):
                self._item = None
                entry_of = {queue: self.program.entries[self.inputs[queue.partition].source] for queue in self.queues}
                entries = list(map(entry_of.__getitem__, run.queues))
                self.program.run_mixed(entries, run.keys, values, run.timestamps, run.headers)
            else:
                self._item = self.inputs[run.queues.partition]
                source = self._item.source
                if run.headers is None:
                    self.program.runs[source](run.keys, values, run.timestamps)
                else:
                    self.program.runs_with_headers[source](run.keys, values, run.timestamps, run.headers)
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            self._done(run, self._index)
            if error is self._decided or isinstance(error, HandlerError):
                raise
            raise self._failure(error, self.program.failed_node(error)) from error
        finally:
            # The position of the loop is determined by the remaining length of the iterator over the values.
            count: int = size - values.__length_hint__()
            self._run = self._values = None
        self._done(run, count)
        return count

    def _done(self, run: Run, count: int) -> None:
        stream_time_ms = self.queues.stream_time_ms
        for queue, timestamps in self.queues.done(run, count):
            item = self.inputs[queue.partition]
            self.sensors.ran(item.source, item.name, timestamps, self.now_ms, stream_time_ms)

    def _failure(self, error: BaseException, node: str | None) -> ProcessingError:
        metadata = self.record_metadata()
        where = f" at {metadata.topic}-{metadata.partition} offset {metadata.offset}" if metadata else ""
        what = str(error) if isinstance(error, StreamsError) else f"{type(error).__name__}: {error}"
        return ProcessingError(
            f"task {self.task_id}, node {node!r}{where}: {what}",
            node=node,
            task_id=self.task_id,
            topic=metadata.topic if metadata else None,
            partition=metadata.partition if metadata else None,
            offset=metadata.offset if metadata else None,
        )

    def _punctuate(self, kind: PunctuationType, time_ms: int) -> int:
        if time_ms < 0:
            return 0
        fired = self.punctuations.fire(kind, time_ms, self._run_timer)
        self.sensors.punctuated.value += fired
        self.is_dirty = self.is_dirty or fired > 0
        return fired

    def _run_timer(self, timer: Timer, now_ms: int) -> None:
        self._punctuated_ms = now_ms
        try:
            timer.callback(now_ms)
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            if error is self._decided or isinstance(error, HandlerError):
                raise
            if isinstance(error, Exception) and self._skips_punctuation(timer.node, error):
                return
            raise ProcessingError(
                f"task {self.task_id}, node {timer.node!r}, punctuation at {now_ms}: {type(error).__name__}: {error}",
                node=timer.node,
                task_id=self.task_id,
            ) from error

    def _skips_punctuation(self, node: str, error: Exception) -> bool:
        return self.handlers.settings.may_skip("processing_handler") and self.handlers.skips(
            "processing_handler", self._error_context(node), None, error
        )

    # --- calls from the program (ProgramHost) ---------------------------------------------

    def context(self, node: str, forward: Process, forward_to: Callable[[str], Process]) -> TaskNodeContext:
        """Return the context of an operator."""
        context = TaskNodeContext(self, node, forward, forward_to)
        self._contexts[node] = context
        return context

    def sink_columns(self, sink: SinkNode) -> TopicColumns:
        """Return the columns of a sink with one topic and no partitioner."""
        return self.outbox.columns(sink)

    def sink_process(self, sink: SinkNode) -> Process:
        """Return the process function of a sink that chooses topic or partition, or whose handler may skip records."""
        may_skip = self.handlers.settings.may_skip("production_handler")
        return self.outbox.process(
            sink, self.record_context, partial(self._skips_unwritable, sink.name) if may_skip else None
        )

    def _skips_unwritable(
        self, node: str, record: ProducerRecord[Any, Any], error: Exception, origin: FailureOrigin
    ) -> bool:
        return self.handlers.skips("production_handler", self._error_context(node, origin), record, error)

    def answer_about_unsent(
        self, record: ProducerRecord[Any, Any], error: Exception
    ) -> Literal["fail", "continue", "retry"]:
        """Call the production handler for an output that could not be sent; its source record is no longer known."""
        context = ErrorHandlerContext(
            self.sink_of(record.topic),
            self.task_id,
            None,
            -1,
            -1,
            record.timestamp_ms,
            record.headers,
            origin="send",
            dead_letter_topic=self.handlers.settings.dead_letter_topic,
        )
        return self.handlers.answer("production_handler", context, record, error)

    def sink_of(self, topic: str) -> str:
        """Return the sink that writes to a topic, given by its broker name, or the topic name if there is none."""
        names = (topic, topic.removeprefix(f"{self.application_id}-"))
        sinks = (node for node in self.topology.nodes.values() if isinstance(node, SinkNode) and node.topic in names)
        return next((sink.name for sink in sinks), topic)

    def on_error(self, node: str, error: Exception, key: Any, value: Any, timestamp_ms: int, headers: Any) -> None:
        """Call the processing handler for a record that failed at a node.

        Raises:
            ProcessingError: the handler returned "fail".
        """
        if error is self._decided or isinstance(error, HandlerError | ForeignFormatError):
            # Data in a foreign format in a store is not the fault of this record.
            raise error
        record = Record(key, value, timestamp_ms, headers or ())
        if not self.handlers.skips("processing_handler", self._error_context(node), record, error):
            self._decided = self._failure(error, node)
            raise self._decided from error

    def _error_context(self, node: str, origin: FailureOrigin | None = None) -> ErrorHandlerContext:
        """Return the handler context for a failure at a node."""
        topic, number, offset = self.origin()
        key = value = None
        headers: Headers = ()
        timestamp_ms = self._punctuated_ms
        run = self._run
        if self._override is not None:
            timestamp_ms, headers = self._override.timestamp_ms, self._override.headers
        elif run is not None:
            index = self._index
            timestamp_ms = run.timestamps[index]
            headers = () if run.headers is None else run.headers[index]
            key, value = self.readers[run.queue_of(index).partition].raw_record(offset)
        return ErrorHandlerContext(
            node,
            self.task_id,
            topic or None,
            number,
            offset,
            timestamp_ms,
            headers,
            key,
            value,
            origin,
            self.handlers.settings.dead_letter_topic,
        )

    # --- current record ----------------------------------------------------------------

    @property
    def _index(self) -> int:
        """The index of the current record in the run."""
        assert self._run is not None
        return len(self._run) - int(self._values.__length_hint__()) - 1

    @inlined
    def origin(self) -> tuple[str, int, int]:
        """Return topic, partition and offset of the current record, or ("", -1, -1) within a punctuation."""
        if self._override is not None:
            return self._override[:3]
        run = self._run
        if run is None:
            return _NO_ORIGIN
        index = len(run.timestamps) - self._values.__length_hint__() - 1
        item = self._item
        if item is None:
            item = self.inputs[run.queue_of(index).partition]
        return (item.name, item.number, run.offsets[index])

    def position_of_record(self) -> tuple[TaskInput, int] | None:
        """Return input and offset of the current record, which identify it even in a lane, or None without a record."""
        if self._run is None:
            return None
        return self.inputs[self._run.queue_of(self._index).partition], self._run.offsets[self._index]

    def record_metadata(self) -> RecordMetadata | None:
        """Return topic, partition and offset of the current record, or None within a punctuation."""
        if self._override is None and self._run is None:
            return None
        return RecordMetadata(*self.origin())

    def record_context(self, timestamp_ms: int, headers: Headers | None) -> RecordContext:
        """Return origin, timestamp and headers of the current record."""
        return RecordContext(*self.origin(), timestamp_ms, headers or ())

    def stream_time_ms(self) -> int:
        """Return the highest timestamp processed so far, including that of the current record."""
        if self._run is None:
            return self.queues.stream_time_ms
        start, time = self._time_memo
        stop = self._index + 1
        if stop > start:
            time = max(time, max(self._run.timestamps[start:stop]))
            self._time_memo = (stop, time)
        return time

    def within(self, context: RecordContext, forward: Callable[[], None]) -> None:
        """Forward a buffered record, with ``context`` as the metadata of the current record."""
        before, self._override = self._override, context
        try:
            forward()
        finally:
            self._override = before

    # --- commit -------------------------------------------------------------------------

    def flush_caches(self) -> None:
        """Flush the record cache, as the first step of a commit."""
        for context in self._contexts.values():
            context.flush_cache()

    def take_outputs(self) -> list[tuple[TopicPartition, Block]]:
        """Return the output blocks since the last call."""
        return self.outbox.drain()

    def take_changes(self) -> list[tuple[str, Block]]:
        """Return the changelog records since the last call, by store."""
        result = []
        for name, store in self.stores.items():
            block = store.drain_changes()
            if block is not None:
                result.append((name, block))
        return result

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset to process of each partition for which it is known."""
        return {queue.partition: queue.position for queue in self.queues if queue.position is not None}

    def checkpoint(self) -> Checkpoint:
        """Return the times and punctuations at the current positions, and the changelog formats."""
        return Checkpoint(
            self.queues.stream_time_ms,
            {queue.partition: queue.partition_time_ms for queue in self.queues},
            self.task_id.partition,
            {name: time.ms for name, time in self.operator_times.items() if time.ms != NO_TIMESTAMP},
            self.punctuations.carried() if self.is_initialized else dict(self._state.checkpoint.timers),
            {name: Content.of(store.spec) for name, store in self.stores.items() if store.spec.has_changelog},
        )

    def uncarried_timers(self) -> list[str]:
        """Return the nodes with punctuations scheduled after ``init``, which a checkpoint cannot include."""
        return self.punctuations.uncarried()

    def write_state(self, changelog_positions: Mapping[str, int]) -> None:
        """Write the changes and the changelog position of each store in one batch, as the last step of a commit."""
        for name, store in self.stores.items():
            position = changelog_positions.get(name)
            with self.sensors.flushing(name, store.type_name):
                store.commit({} if position is None else {CHANGELOG_POSITION: str(position).encode()})
        self.is_dirty = False
        self.wants_commit = False

    @property
    def uncommitted_bytes(self) -> int:
        """The approximate size of uncommitted state in bytes."""
        return sum(store.approximate_uncommitted_bytes for store in self.stores.values())

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a callback that runs when the task closes."""
        self._closers.append(callback)

    def close(self) -> None:
        """Close user processors and stores; uncommitted state is lost."""
        closers = self._closers if self.is_initialized else []
        self._close([*closers, *(store.close for store in self.stores.values())])

    def close_processors(self) -> None:
        """Close user processors, but leave the stores open, for a standby replica or to be closed by the caller."""
        if self.is_initialized:
            self._close(self._closers)

    def _close(self, closers: Sequence[Callable[[], None]]) -> None:
        errors: list[Exception] = []
        for close in closers:
            try:
                close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise ProcessingError(
                f"task {self.task_id} did not close cleanly: {errors[0]}", task_id=self.task_id
            ) from errors[0]
