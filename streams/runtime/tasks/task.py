"""A stream task: a state machine that turns record blocks and times into output blocks and positions.

A driver (thread, test driver, simulation, replay) runs the program of a sub-topology through its task, and performs all
effects.  A task is pure: it reads no clock, and performs no I/O except in its stores.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from attrs import define, field, frozen

from streams.core.blocks.records import (
    NO_TIMESTAMP,
    Block,
    TaskId,
    TopicPartition,
)
from streams.core.concurrency.calls import BlockingLoop, CallLoop
from streams.core.concurrency.threads import INTERRUPTIONS
from streams.core.errors import ProcessingError, WallClockError
from streams.core.metrics import DropReason, Metrics
from streams.runtime.tasks.calls import TaskCalls
from streams.runtime.tasks.checkpoint import Checkpoint
from streams.runtime.tasks.columns.runs import TaskColumns, Way
from streams.runtime.tasks.current_record import CurrentRecord
from streams.runtime.tasks.failures import TaskFailures
from streams.runtime.tasks.handling import Handlers
from streams.runtime.tasks.idle import IdleClose, IdleLimits, idle_close
from streams.runtime.tasks.outbox import Outbox
from streams.runtime.tasks.punctuation import Punctuations, Timer, TimerHeap
from streams.runtime.tasks.queues import PartitionQueue, Run, TaskQueues
from streams.runtime.tasks.recording import OrderRecorder
from streams.runtime.tasks.sampling import TaskSampling
from streams.runtime.tasks.sources import SourceReader, TaskInput
from streams.runtime.tasks.task_metrics import TaskMetrics
from streams.state import Content, RecordCache, Store
from streams.topology import (
    BatchingNode,
    CallingNode,
    CompiledSubTopology,
    HoldingNode,
    NodeCalls,
    NodeClock,
    NodeContext,
    NodeMetrics,
    NodeOutput,
    NodeStores,
    Process,
    ProgramHost,
    PunctuationType,
    SideOutput,
    SinkNode,
    StreamTime,
    Topology,
)

#: Metadata entry of a store: the first changelog offset that the committed state does not contain.
CHANGELOG_POSITION = "changelog_position"
#: Metadata entry of a store: the number of the task's commit after which it was written.
_COMMITS = "commits"


def number_in(store: Store, entry: str) -> int:
    """Return the number that a store has in an entry of its metadata; 0 without the entry."""
    return int(store.metadata().get(entry, b"0"))


def commits_of(store: Store) -> int:
    """Return the number of the commit of its task after which a store was last written; 0 if it never was."""
    return number_in(store, _COMMITS)


class TaskWatch(Protocol):
    """Observes tasks, for example to trace their records."""

    def opened(self, task: "Task") -> None:
        """Handle the opening of a task, whose program is bound but whose processors may not be initialized yet."""
        ...

    def store(self, task: "Task", node: str, name: str, view: Any) -> Any:
        """Return the store view that a node uses: ``view``, or a wrapper that observes calls of its methods."""
        ...


@define
class TaskState:
    """The initial state of a task: its stores by name, and the checkpoint of its last commit.

    If ``is_complete`` is False, the stores have yet to be restored, and the driver calls ``initialize`` later.

    Stream-time punctuations continue from the checkpoint.  Wall-clock punctuations do so only with
    ``carries_wall_clock``, for a wall clock that follows the records; otherwise they are rescheduled, as in Kafka
    Streams.  With ``carries_cancelled``, cancelled punctuations stay cancelled; this is for runs that continue an
    earlier run.  It must be False if processors are recreated within a run, since a new processor schedules its
    punctuations again.
    """

    stores: Mapping[str, Store]
    global_stores: Mapping[str, Any] = field(factory=dict)
    checkpoint: Checkpoint = field(factory=Checkpoint)
    is_complete: bool = True
    carries_wall_clock: bool = False
    carries_cancelled: bool = False
    #: Whether wall-clock time passes: the driver calls ``close_idle``, so that the stream time of idle operators
    #: advances, and answers of look-ups age.
    is_timed: bool = True
    #: The event loop for calls of async functions; with None the task waits for them, on a loop of its own.
    call_loop: CallLoop | None = None


@frozen
class TaskParts:
    """The parts of a task, as assembled by its plan.

    Args:
        regroups: Whether the outputs of this task and of others of its sub-topology are merged in a repartition topic.
        timer_heap: The heap that orders punctuations with the same due time.
        cache: The record cache, or None without caching.
        watch: The observer of the task, which is notified once the task's program is bound, or None.
        now_ms: Wall-clock time, in epoch milliseconds.
        idle_limits: The idle limits of the sources, or None if stream time is advanced by records only.
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
    idle_limits: IdleLimits | None = None


class Task:
    """A task, which processes one partition group of one sub-topology, with its stores.

    A task is not thread-safe: its driver must call ``add``, ``process``, ``punctuate`` and the steps of a commit from
    one thread at a time.
    """

    def __init__(self, parts: TaskParts) -> None:
        self.task_id = parts.task_id
        #: Objects that several nodes share, by key (``NodeStores.shared``).
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
        #: Grows whenever the task does something: those that wait for the task see that it does not stand still.
        self.activity = 0
        #: Whether user code has requested a commit.
        self.wants_commit = False
        #: Whether the positions or the state have changed since the last commit.
        self.is_dirty = False
        #: Non-empty if the run must end after the current record.
        self.stop: list[bool] = []
        self.readers = dict(parts.readers)
        #: Traces sampled records, or None.
        self.sampling: TaskSampling | None = None
        self.sensors = TaskMetrics(parts.metrics, parts.task_id, parts.application_id, parts.topology, self.sink_of)
        self.queues.enforced = self.sensors.enforced
        self.outbox.on_drained = lambda columns: self.sensors.produced(columns, self.now_ms)
        self.record = CurrentRecord(self.inputs, self.readers, self.queues)
        state = parts.state
        self.initial = state
        self.stores = state.stores
        #: Number of commits of the task.  Committed offsets may have been set by another client since.
        self.commits = max([state.checkpoint.commits, *map(commits_of, state.stores.values())])
        #: Nodes that gather records in batches, upstream nodes first.
        self.batches: list[BatchingNode] = []
        #: The calls of async functions; None without nodes that make calls.
        self.calls: TaskCalls | None = None
        self.global_stores = state.global_stores
        checkpoint = state.checkpoint
        self.operator_times = {name: StreamTime(time) for name, time in checkpoint.operator_times.items()}
        self.queues.stream_time_ms = checkpoint.stream_time_ms
        self.outbox.place_ms = checkpoint.place_ms
        for partition, time in checkpoint.partition_times.items():
            if partition in self.queues.partitions:
                self.queues[partition].partition_time_ms = time
                self.readers[partition].partition_time_ms = time
        for name, store in self.stores.items():
            store.on_expired = partial(self.metrics.drop, DropReason.EXPIRED, task=self.task_id, node=name)
        self.watch = parts.watch
        #: Takes runs of records by columns, or None.
        self.columns: TaskColumns | None = None
        self._bind(parts)
        if state.is_complete:
            self.initialize()

    def _bind(self, parts: TaskParts) -> None:
        """Bind the program to this task, child nodes first."""
        self.failures = TaskFailures(
            self.task_id,
            self.topology,
            self.handlers,
            self.record,
            lambda error: self.program.failed_node(error),
            self.sink_of,
        )
        #: What the task provides to the operators of its nodes.
        self.contexts: dict[str, NodeContext] = {}
        self._closers: list[Callable[[], None]] = []
        host = ProgramHost(self.stop, self.failures.on_error, self._context, self.outbox.columns, self._sink_process)
        self.program = parts.compiled.bind(host)
        # Contexts are in graph order: a flush must not forward records to a node that is already flushed.
        self.contexts = {node: self.contexts[node] for node in parts.compiled.sub.nodes if node in self.contexts}
        limits = self._idle_limits = parts.idle_limits
        #: Whether an idle repartition topic is downstream of this task.
        self.feeds_idle = limits is not None and any(
            self.task_id.sub_topology in ids for ids in limits.upstream.values()
        )
        #: Advances stream time while inputs are idle, or None.
        self.idle = self._idle_close()
        #: Whether operators and user processors are initialized and may process records.
        self.is_initialized = False
        self._is_flushed = False
        if self.watch is not None:
            self.watch.opened(self)

    def _idle_close(self) -> IdleClose | None:
        if self._idle_limits is None:
            return None
        advances = [(name, *row) for name, context in self.contexts.items() for row in context.clock.advances]
        sources = tuple(dict.fromkeys(item.source for item in self.inputs.values()))
        return idle_close(
            self._idle_limits,
            self.topology,
            lambda names: [self.queues[item.partition] for item in self.inputs.values() if item.source in names],
            self.operator_times,
            # The stream time of the task is that of all its sources.
            [*advances, ("", sources, self._advance)],
            call=self._call_idle,
            flush=self.prepare_commit,
            recorder=self.queues.recorder,
        )

    def _advance(self, stream_time_ms: int) -> bool:
        self.queues.stream_time_ms = max(self.queues.stream_time_ms, stream_time_ms)
        return self._punctuate(PunctuationType.STREAM_TIME, self.queues.stream_time_ms) > 0

    def initialize(self) -> None:
        """Initialize operators and user processors; must be called once the task's stores are restored.

        Raises:
            StreamsError: user code failed.
        """
        for context in self.contexts.values():
            context.initialize()
        self._start_expiry()
        state = self.initial
        self.punctuations.resume(
            state.checkpoint.timers,
            with_wall_clock=state.carries_wall_clock,
            with_cancelled=state.carries_cancelled,
        )
        self.is_initialized = True

    def _start_expiry(self) -> None:
        """Set the clock of stores that have a TTL, and schedule the removal of their expired entries.

        The clock is the stream time of the task, and the due time of the punctuation is part of its checkpoint: what is
        removed, within one bucket of time after its expiry, does not depend on restarts.
        """
        for name, store in self.stores.items():
            if store.spec.ttl_ms < 0:
                continue
            opened: Any = store
            expiry = opened.expiry
            expiry.clock = self.record.stream_time_ms
            node = self.topology.store_users[name][0]
            due_from_ms = self.record.stream_time_ms()
            self.punctuations.schedule(
                node, expiry.bucket_ms, PunctuationType.STREAM_TIME, expiry.sweep, None, due_from_ms
            )

    @property
    def holding_nodes(self) -> list[HoldingNode]:
        """The nodes that hold records until async calls finish or batches are full."""
        return [*self.batches, *(() if self.calls is None else self.calls.nodes)]

    # --- input ------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, position: int) -> None:
        """Set the next offset to process in a partition; must be called before any block of records is added."""
        queue = self.queues[partition]
        queue.position = queue.fetched = position
        if queue.lanes is not None:
            queue.lanes.start_at(position, self.initial.checkpoint.lanes.get(partition, {}))

    def record_order(self, recorder: OrderRecorder) -> None:
        """Record the order of processing with ``recorder`` from now on."""
        self.queues.recorder = self.punctuations.recorder = recorder
        if self.idle is not None:
            self.idle.recorder = recorder

    def attach(self, item: TaskInput, reader: SourceReader) -> None:
        """Add an input partition, with the reader that deserializes its records."""
        self.inputs[item.partition] = item
        self.readers[item.partition] = reader
        self.queues.attach(item.partition)
        self.idle = self._idle_close()

    def add(self, partition: TopicPartition, block: Block) -> None:
        """Buffer a block of raw records from one of the task's input partitions."""
        queue = self.queues[partition]
        if queue.failure is not None or not len(block):
            return
        self.activity += 1
        reader = self.readers[partition]
        item = self.inputs[partition]
        self.sensors.consumed(item.source, item.name, block)
        batches, failure = reader.read(block)
        if queue.fetched is None and queue.position is None:
            queue.position = block.offsets[0]
        reader.forget_raw(queue)
        dropped = self.queues.dropped
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
        self.is_dirty = self.is_dirty or self.queues.dropped != dropped

    def note_end(self, partition: TopicPartition, end_offset: int, *, is_ended: bool = False) -> None:
        """Set the known end offset of a partition; ``is_ended`` means that this offset is final."""
        queue = self.queues[partition]
        queue.end_offset = end_offset
        queue.is_ended = is_ended
        if queue.fetched is None and queue.position is None and end_offset == 0:
            queue.fetched = queue.position = 0

    def note_position(self, partition: TopicPartition, position: int) -> None:
        """Set the position up to which a partition was read; it may be after transaction markers."""
        queue = self.queues[partition]
        if queue.failure is None and (queue.fetched is None or queue.fetched < position):
            queue.fetched = position
            if not queue.size:
                queue.position = position

    # --- work -------------------------------------------------------------------------

    def process(self, now_ms: int, limit: int, queue: PartitionQueue | None = None) -> int:
        """Process the longest run of records whose order is certain, or a run from ``queue``; return its size.

        Records that are dropped at their places count.

        Raises:
            ProcessingError: user code failed or a record cannot be deserialized, and the handler returned "fail".
        """
        self.now_ms = now_ms
        if self.calls is not None:
            limit = min(limit, self.calls.room)
            if not limit:
                return 0
        before = self.queues.dropped
        run = self.queues.take(now_ms, limit, self.punctuations.next_due_ms(PunctuationType.STREAM_TIME), queue)
        dropped = self.queues.dropped - before
        if run is not None or dropped:
            self.is_dirty = True
            self.activity += 1
        if run is None:
            return dropped
        columns = None if self.columns is None or self.sampling is not None else self.columns.of(run)
        if columns is not None:
            count = columns.take(run, self._execute, self.stop)
        else:
            count = self._execute(run) if self.sampling is None else self.sampling.run(run, self._execute)
        self._punctuate(PunctuationType.STREAM_TIME, self.queues.stream_time_ms)
        self._end_batches()
        if self.calls is not None:
            self.calls.hand_over()
        return count + dropped

    def _end_batches(self) -> None:
        for node in self.batches:
            node.end_run()

    def punctuate(self, now_ms: int) -> int:
        """Fire due wall-clock punctuations, and forward the results of finished async calls.

        Return the number of punctuations fired plus the number of results forwarded.
        """
        self.now_ms = now_ms
        fired = self._punctuate(PunctuationType.WALL_CLOCK_TIME, now_ms)
        if self.calls is not None and (forwarded := self.calls.forward()):
            self.is_dirty = True
            fired = fired + forwarded
        return fired

    def finish_calls(self) -> None:
        """Wait for all calls to async functions, and forward their results; used when inputs end."""
        if self.calls is not None and self.calls.finish():
            self.is_dirty = True

    @property
    def has_work(self) -> bool:
        """Whether the task may have unprocessed input, such as buffered records, calls in flight or open batches."""
        is_at_end = all(queue.is_at_end for queue in self.queues)
        return not (self.is_initialized and is_at_end) or self._holds_records

    def mark(self) -> tuple[int, bool]:
        """Return the lowest place of the records that the task may still write, and whether it is at its end."""
        # An input at its end holds back nothing: it would hide that the task moves with the others.
        bounds = [queue.bound_ms for queue in self.queues if not queue.is_at_end]
        bound_ms = min(bounds, default=NO_TIMESTAMP)
        return max(self.outbox.place_ms, bound_ms), not self.has_work

    @property
    def _holds_records(self) -> bool:
        return bool(self.calls is not None and self.calls.in_flight) or any(node.held for node in self.batches)

    def close_idle(self, now_ms: int, busy: frozenset[int] = frozenset()) -> int:
        """Advance the stream time of idle operators, and return for how many operator groups this had an effect.

        ``busy`` are the sub-topologies of the instance that have unprocessed input.
        """
        self.now_ms = now_ms
        if self.idle is None:
            return 0
        if self._holds_records:
            # Their results would be late; and a batch ends with its own limits.
            self.idle.postpone(now_ms)
            return 0
        count = self.idle.check(now_ms, busy)
        self.is_dirty = self.is_dirty or count > 0
        return count

    def final_flush(self) -> None:
        """Forward all buffered results, as if all windows had closed; used at the end of bounded runs.

        Operators forward their buffered results in graph order; only the first call has an effect.
        """
        if self._is_flushed:
            return
        self._is_flushed = self.is_dirty = True
        self.prepare_commit()
        for context in self.contexts.values():
            context.output.final_flush()
            self.prepare_commit()

    def next_deadline_ms(self) -> int | None:
        """Return the wall-clock time at which work is due even if no record arrives, or None."""
        times = [self.punctuations.next_due_ms(PunctuationType.WALL_CLOCK_TIME)]
        # Without room, the records wait for calls, not for an empty input: the end of a call wakes the thread.
        times.append(self.queues.next_deadline_ms() if self.calls is None or self.calls.room else None)
        times.append(None if self.idle is None else self.idle.next_due_ms())
        return min((time for time in times if time is not None), default=None)

    def _execute(self, run: Run, way: Way | None = None) -> int:
        """Take a run by rows, or in another way; return how many of its records were taken."""
        size = len(run)
        item = None if isinstance(run.queues, list) else self.inputs[run.queues.partition]
        values, call = _by_rows(self, run, item) if way is None else way(run)
        self.stop.clear()
        self.record.begin(run, values, item)
        try:
            call()
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            self._done(run, self.record.index)
            if self.failures.is_final(error):
                raise
            raise self.failures.of_record(error, self.program.failed_node(error)) from error
        finally:
            # The position of the loop is determined by the remaining length of the iterator over the values.
            count: int = size - values.__length_hint__()
            self.record.end()
        self._done(run, count)
        return count

    def _done(self, run: Run, count: int) -> None:
        stream_time_ms = self.queues.stream_time_ms
        taken = self.queues.done(run, count)
        for queue, timestamps in taken:
            item = self.inputs[queue.partition]
            self.sensors.ran(item.source, item.name, timestamps, self.now_ms, stream_time_ms)
        if self.idle is not None:
            self.idle.took([queue for queue, _ in taken])

    def _punctuate(self, kind: PunctuationType, time_ms: int) -> int:
        if time_ms < 0:
            return 0
        fired = self.punctuations.fire(kind, time_ms, self._run_timer)
        self.is_dirty = self.is_dirty or fired > 0
        return fired

    def _run_timer(self, timer: Timer, now_ms: int) -> None:
        with self.sensors.punctuated:
            self._call("punctuation", timer.node, timer.callback, now_ms)

    def _call_idle(self, node: str, advance: Callable[[int], bool], stream_time_ms: int) -> bool:
        return bool(self._call("advance of idle inputs", node, advance, stream_time_ms))

    def _call(self, what: str, node: str, callback: Callable[[int], object], time_ms: int) -> object:
        """Call a function of a node outside of record processing, and attribute its errors to the node."""
        self.record.punctuated_ms = time_ms
        try:
            return callback(time_ms)
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            if self.failures.is_final(error):
                raise
            if not (isinstance(error, Exception) and self.failures.skips_punctuation(node, error)):
                raise self.failures.of_call(error, what, node, time_ms) from error
            return True

    # --- calls from the program -----------------------------------------------------------

    def _context(self, node: str, forward: Process, forward_to: Callable[[str], Process]) -> NodeContext:
        """Return the context of an operator."""
        nodes = self.topology.nodes
        children = self.topology.children[node]
        sides = [
            (operator.reasons, child)
            for child in children
            if isinstance(operator := getattr(nodes[child], "operator", None), SideOutput)
        ]
        stores = NodeStores(
            node,
            self.topology.stores_of(node),
            self.stores,
            self.global_stores,
            self.shared,
            self.cache,
            partial(self._view, node),
        )
        clock = NodeClock(
            node,
            self.operator_times,
            self.record.stream_time_ms,
            partial(self._wall_clock_ms, node),
            self.initial.is_timed,
            partial(self._schedule, node),
            self.topology.store_users,
        )
        output = NodeOutput(
            node, forward, children, forward_to, self.record, stores, sides, self.sensors.hit_ratio, f"{self.task_id}/"
        )
        # Before the stores are closed: what the cache holds is not committed.
        self.on_close(output.clear_cache)
        context = self.contexts[node] = NodeContext(
            node,
            self.task_id,
            self.application_id,
            stores,
            clock,
            output,
            NodeMetrics(node, self.task_id, self.metrics, stores),
            self._node_calls(node),
            self._request_commit,
            self.on_close,
        )
        return context

    def _node_calls(self, node: str) -> NodeCalls:
        loop = self.initial.call_loop
        return NodeCalls(
            loop=self._call_loop,
            add=self._add_calls,
            add_batches=partial(self.batches.insert, 0),
            ends_runs=loop is None or isinstance(loop, BlockingLoop),
            raw_record=self.record.raw_record if self.handlers.settings.may_ask else lambda: (None, None),
            deliver=self.failures.deliver,
            fail=partial(self.failures.fail, node),
        )

    def _call_loop(self) -> CallLoop:
        if self.calls is None:
            self.calls = TaskCalls.on(self.initial.call_loop)
            self.on_close(self.calls.close)
        return self.calls.loop

    def _add_calls(self, node: CallingNode) -> None:
        assert self.calls is not None
        self.calls.add(node)

    def _view(self, node: str, name: str, view: Any) -> Any:
        if name in self.stores:
            view = self.sensors.measured(name, self.stores[name].type_name, view)
        return view if self.watch is None else self.watch.store(self, node, name, view)

    def _wall_clock_ms(self, node: str) -> int:
        if self.now_ms == NO_TIMESTAMP:
            raise WallClockError(node)
        return self.now_ms

    def _schedule(
        self,
        node: str,
        interval_ms: int,
        kind: PunctuationType,
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> Timer:
        is_stream_time = kind is PunctuationType.STREAM_TIME
        now_ms = self.record.stream_time_ms() if is_stream_time else self._wall_clock_ms(node)
        self.stop.append(True)  # The new punctuation may be due before the run of records ends.
        return self.punctuations.schedule(node, interval_ms, kind, callback, start_ms, now_ms)

    def _request_commit(self) -> None:
        self.wants_commit = True
        self.stop.append(True)

    def _sink_process(self, sink: SinkNode) -> Process:
        """Return the process function of a sink that chooses topic or partition, or that may skip records."""
        may_skip = self.handlers.settings.may_skip("production_handler")
        return self.outbox.process(
            sink, self.record.context, partial(self.failures.skips_unwritable, sink.name) if may_skip else None
        )

    def sink_of(self, topic: str) -> str:
        """Return the name of the sink that writes to a topic, given its broker name; without a sink, the topic name."""
        names = (topic, topic.removeprefix(f"{self.application_id}-"))
        sinks = (node for node in self.topology.nodes.values() if isinstance(node, SinkNode) and node.topic in names)
        return next((sink.name for sink in sinks), topic)

    # --- commit -------------------------------------------------------------------------

    def prepare_commit(self) -> None:
        """Process open batches, flush the record cache, and store the records of calls in flight, before a commit."""
        for node in self.batches:
            node.flush()
        for context in self.contexts.values():
            context.output.flush_cache()
        if self.calls is not None:
            self.calls.save()

    def take_outputs(self) -> list[tuple[TopicPartition, Block]]:
        """Return the records to send, as blocks by partition, that were added since the last call."""
        return self.outbox.drain()

    def take_changes(self) -> list[tuple[str, Block]]:
        """Return the changelog records that were added since the last call, by store name."""
        drained = ((name, store.drain_changes()) for name, store in self.stores.items())
        return [(name, block) for name, block in drained if block is not None]

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset to process of each input partition for which it is known."""
        return {queue.partition: queue.position for queue in self.queues if queue.position is not None}

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint to commit with the current positions: stream times, punctuations, changelog formats."""
        return Checkpoint(
            self.queues.stream_time_ms,
            {queue.partition: queue.partition_time_ms for queue in self.queues},
            self.task_id.partition,
            {name: time.ms for name, time in self.operator_times.items() if time.ms != NO_TIMESTAMP},
            self.punctuations.carried() if self.is_initialized else dict(self.initial.checkpoint.timers),
            {name: Content.of(store.spec) for name, store in self.stores.items() if store.spec.has_changelog},
            groups={item.partition: item.groups for item in self.inputs.values() if item.groups is not None},
            lanes={
                queue.partition: queue.lanes.ahead_of(queue.position)
                for queue in self.queues
                if queue.lanes is not None and queue.position is not None
            },
            place_ms=self.outbox.place_ms,
            commits=self.commits + 1,
        )

    def uncarried_timers(self) -> list[str]:
        """Return the nodes with punctuations scheduled after ``init``, which a checkpoint cannot include."""
        return self.punctuations.uncarried()

    def write_state(self, changelog_positions: Mapping[str, int]) -> None:
        """Write the changes and the changelog position of each store in one batch, as the last step of a commit."""
        self.commits += 1
        for name, store in self.stores.items():
            position = changelog_positions.get(name)
            notes = {} if position is None else {CHANGELOG_POSITION: position, _COMMITS: self.commits}
            with self.sensors.flushing(name, store.type_name):
                store.commit({note: str(number).encode() for note, number in notes.items()})
            self.sensors.note_statistics(name, store)
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


def _by_rows(task: Task, run: Run, item: TaskInput | None) -> tuple[Any, Callable[[], None]]:
    """Return an iterator over the values of a run, and the function that runs the program over it."""
    values: Any = iter(run.values)
    timestamps: Any = task.outbox.placed(run.timestamps, run.places)
    program = task.program
    if isinstance(run.queues, list) or item is None:
        entry_of = {queue: program.entries[task.inputs[queue.partition].source] for queue in task.queues}
        entries = list(map(entry_of.__getitem__, run.queues))  # type: ignore[arg-type]
        return values, partial(program.run_mixed, entries, run.keys, values, timestamps, run.headers)
    if run.headers is None:
        return values, partial(program.runs[item.source], run.keys, values, timestamps)
    return values, partial(program.runs_with_headers[item.source], run.keys, values, timestamps, run.headers)
