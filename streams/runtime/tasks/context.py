"""The context through which an operator accesses its task."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from streams.core.blocks.records import NO_TIMESTAMP, Headers, RecordContext, RecordMetadata, TaskId, Window, Windowed
from streams.core.concurrency.calls import BlockingLoop, CallLoop
from streams.core.concurrency.threads import INTERRUPTIONS
from streams.core.drop_notes import DropNote
from streams.core.errors import TopologyError, WallClockError
from streams.core.inlining import inlined
from streams.core.metrics import Amounts, Counter, DropReason, SensorSpec, Stopwatch, table
from streams.runtime.tasks.calls import TaskCalls
from streams.runtime.tasks.checkpoint import emitted_name
from streams.state import HotState, Section
from streams.topology import BatchingNode, CallingNode, Lost, Process, PunctuationType, SideOutput, StreamTime

if TYPE_CHECKING:
    from streams.runtime.tasks.punctuation import Timer
    from streams.runtime.tasks.task import Task

#: Emits a change of a table: key, new, old, timestamp_ms, headers, is_latest.
TableForward = Callable[[Any, Any, Any, int, Headers | None, bool], None]


def _slots(store: Any, window_of: Callable[[int], Window] | None) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return two functions: one converts table keys to hashable cache keys, the other converts them back.

    The keys of windowed stores are windowed keys, or (key, start) if ``window_of`` returns the window for a start
    time.  The key serde of such a store is the serde of the inner key.
    """
    slot_of, key_of = store.slot_of, store.key_of
    if not store.spec.kind.family.has_windowed_keys:
        return slot_of, key_of
    hot = store.hot

    @inlined
    def windowed_slot(key: Any) -> Any:
        return key if type(key[0]) is hot.key_type else (slot_of(key[0]), key[1])

    if window_of is not None:
        return windowed_slot, lambda slot: Windowed(key_of(slot[0]), window_of(slot[1]))
    return windowed_slot, lambda slot: slot if type(slot) is Windowed else Windowed(key_of(slot[0]), slot[1])


def _no_raw_record() -> tuple[bytes | None, bytes | None]:
    return None, None


class TaskNodeContext:
    """The context of one node of a task; implements ``topology.operator.NodeContext``."""

    __slots__ = ("_final_flushes", "_forward_to", "_initializers", "_section", "_task", "advances", "forward", "node")

    def __init__(self, task: "Task", node: str, forward: Process, forward_to: Callable[[str], Process]) -> None:
        self._task = task
        self.node = node
        self.forward = forward
        self._forward_to = forward_to
        self._initializers: list[Callable[[], None]] = []
        self._final_flushes: list[Callable[[], object]] = []
        #: The functions of ``on_idle``, each with the nodes whose sources must be idle.
        self.advances: list[tuple[Sequence[str], Callable[[int], bool]]] = []
        self._section: str | None = None

    @property
    def task_id(self) -> TaskId:
        """Return the id of the task, which consists of sub-topology and partition."""
        return self._task.task_id

    @property
    def application_id(self) -> str:
        """Return the id of the application."""
        return self._task.application_id

    @property
    def children(self) -> Sequence[str]:
        """Return the names of this node's children."""
        return self._task.topology.children[self.node]

    def forward_to(self, child: str) -> Process:
        """Return the process function of the child with this name."""
        return self._forward_to(child)

    def store(self, name: str) -> Any:
        """Return a store connected to this node, or a global store.

        Raises:
            TopologyError: the store is not connected.
        """
        task = self._task
        if name in task.global_stores:
            return self._watched(name, task.global_stores[name].view)
        if self.node not in task.topology.store_users.get(name, ()):
            connected = ", ".join(map(repr, task.topology.stores_of(self.node))) or "none"
            raise TopologyError(
                f"node {self.node!r} is not connected to a store {name!r} (connected: {connected}); "
                "name it in stores= of process() or add_processor(), or declare it as class attribute"
            )
        return self._watched(name, task.stores[name].view)

    def hot_states(self) -> list[HotState]:
        """Return the hot states of the stores that are connected to this node."""
        return [self._task.stores[name].hot for name in self._task.topology.stores_of(self.node)]

    def _watched(self, name: str, view: Any) -> Any:
        watch = self._task.watch
        if name in self._task.stores:
            view = self._task.sensors.measured(name, self._task.stores[name].type_name, view)
        return view if watch is None else watch.store(self._task, self.node, name, view)

    def table_forward(self, store: str | None, *, send_old: bool = True) -> TableForward:
        """Return the function that forwards the changes of a table, through the record cache if the store is cached."""
        forward = self.forward
        task = self._task
        if task.cache is None or not self.caches(store):

            @inlined
            def emit(
                key: Any, new: Any, old: Any, timestamp_ms: int, headers: Headers | None, is_latest: bool = True
            ) -> None:
                forward(key, (new, old, is_latest), timestamp_ms, headers)

            return emit
        assert store is not None
        return self.table_section(store, send_old=send_old).hold

    def table_section(
        self, store: str, *, send_old: bool = True, window_of: Callable[[int], Window] | None = None
    ) -> Section:
        """Return the section of the record cache that buffers the changes of a store."""
        forward, task = self.forward, self._task
        cache = task.cache
        assert cache is not None
        # One section per store: the operators of a cogroup share it, and any of them may be the last to update a key.
        section = self._section = f"{task.task_id}/{store}"
        slot_of, to_key = _slots(task.stores[store], window_of)

        def flushed(
            slot: Any,
            new: Any,
            old: Any,
            timestamp_ms: int,
            headers: Headers | None,
            origin: tuple[str, int, int],
            is_latest: bool,
        ) -> None:
            key = to_key(slot)
            # Nodes that share the record may have changed its headers since (``topology.shared_headers``).
            headers = tuple(headers) if headers else None
            change = (new, old if send_old else None, is_latest)
            context = RecordContext(*origin, timestamp_ms, headers or ())
            task.within(context, lambda: forward(key, change, timestamp_ms, headers))

        task.on_close(lambda: cache.clear(section))
        return cache.register(section, flushed, slot_of, task.origin, task.sensors.hit_ratio(store))

    def flush_cache(self) -> None:
        """Flush this node's changes from the record cache."""
        if self._section is not None and self._task.cache is not None:
            self._task.cache.flush(self._section)

    def shared(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the object that nodes of the task share under ``key``; the first call creates it with ``make``."""
        shared = self._task.shared
        if key not in shared:
            shared[key] = make()
        return shared[key]

    def stream_time(self, name: str = "") -> StreamTime:
        """Return the operator's own stream time, restored from the last commit."""
        return self._task.operator_times.setdefault(f"{self.node}/{name}" if name else self.node, StreamTime())

    def emitted_time(self, store: str) -> StreamTime:
        """Return the time up to which the closed windows of a store were emitted, restored from the last commit."""
        return self._task.operator_times.setdefault(emitted_name(store), StreamTime())

    def schedule(
        self,
        interval_ms: int,
        kind: PunctuationType,
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> "Timer":
        """Schedule ``callback(now_ms)``, to be called once per interval of stream time or wall-clock time.

        Raises:
            WallClockError: ``kind`` is wall-clock time, and the driver has no wall clock.
        """
        task = self._task
        now_ms = task.stream_time_ms() if kind is PunctuationType.STREAM_TIME else self.wall_clock_ms()
        task.stop.append(True)  # The new punctuation may be due before the run of records ends.
        return task.punctuations.schedule(self.node, interval_ms, kind, callback, start_ms, now_ms)

    def commit(self) -> None:
        """Request a commit after the current record."""
        self._task.wants_commit = True
        self._task.stop.append(True)

    def drop(self, reason: DropReason, count: int = 1) -> None:
        """Count records dropped at this node."""
        self._task.metrics.drop(reason, count, task=self.task_id, node=self.node)

    def side_output(self) -> Lost | None:
        """Return the function that forwards a dropped record to the side outputs, or None if there are none."""
        nodes = self._task.topology.nodes
        node = self.node
        sides = [
            (operator.reasons, self.forward_to(child))
            for child in self.children
            if isinstance(operator := getattr(nodes[child], "operator", None), SideOutput)
        ]

        def lost(
            reason: DropReason,
            key: Any,
            value: Any,
            timestamp_ms: int,
            headers: Headers | None,
            window: Window | None = None,
            closed_ms: int = NO_TIMESTAMP,
            stream_time_ms: int = NO_TIMESTAMP,
        ) -> None:
            note = DropNote(reason, node)
            if stream_time_ms != NO_TIMESTAMP:
                note = DropNote(reason, node, stream_time_ms - closed_ms, stream_time_ms, window)
            for reasons, forward in sides:
                if reason in reasons:
                    forward(key, value, timestamp_ms, (*(headers or ()), *note.headers()))

        return lost if sides else None

    def tally(self, reason: DropReason) -> Counter:
        """Return the counter of the records that this node does not forward for the given reason."""
        return self._task.metrics.counter(table.DROPPED_FOR, task=self.task_id, node=self.node, reason=reason)

    def counter(self, sensor: SensorSpec) -> Counter:
        """Return the counting sensor for this node."""
        return self._task.metrics.counter(sensor, task=self.task_id, node=self.node)

    def records(self, sensor: SensorSpec) -> bool:
        """Return whether a sensor is recorded at the recording level."""
        return self._task.metrics.records(sensor)

    def amounts(self, sensor: SensorSpec, store: str | None = None) -> Amounts:
        """Return the sensor of measured amounts, such as sizes, for this node, or for a store of its task."""
        if store is None:
            return self._task.metrics.amounts(sensor, task=self.task_id, node=self.node)
        store_type = self._task.stores[store].type_name
        return self._task.metrics.amounts(sensor, task=self.task_id, store=store, store_type=store_type)

    def stopwatch(self, sensor: SensorSpec) -> Stopwatch:
        """Return the sensor of measured durations for this node."""
        return self._task.metrics.stopwatch(sensor, task=self.task_id, node=self.node)

    def task_stream_time_ms(self) -> int:
        """Return the highest timestamp that the task has read, including that of the current record."""
        return self._task.stream_time_ms()

    def wall_clock_ms(self) -> int:
        """Return the wall-clock time of the driver in epoch milliseconds.

        Raises:
            WallClockError: the driver has no wall clock.
        """
        now_ms = self._task.now_ms
        if now_ms == NO_TIMESTAMP:
            raise WallClockError(self.node)
        return now_ms

    def running_clock(self) -> Callable[[], int] | None:
        """Return a function that returns the wall-clock time, or None if time does not pass, as in a bounded run.

        Raises:
            WallClockError: the driver has no wall clock.
        """
        self.wall_clock_ms()
        task = self._task
        return (lambda: task.now_ms) if task.initial.is_timed else None

    def record_metadata(self) -> RecordMetadata | None:
        """Return topic, partition and offset of the current record, or None within a punctuation."""
        return self._task.record_metadata()

    def on_init(self, callback: Callable[[], None]) -> None:
        """Register a callback that runs once all nodes are bound; callbacks run in the order of the graph."""
        self._initializers.append(callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Register a callback that runs when the task closes."""
        self._task.on_close(callback)

    def caches(self, store: str | None) -> bool:
        """Return whether the record cache buffers the changes of this store."""
        spec = None if store is None else self._task.topology.stores.get(store)
        return self._task.cache is not None and spec is not None and spec.is_cacheable

    def within(self, context: RecordContext, forward: Callable[[], None]) -> None:
        """Call ``forward`` for a buffered record, with ``context`` as the metadata of the current record."""
        self._task.within(context, forward)

    @property
    def ends_runs(self) -> bool:
        """Return whether open batches are processed after each run of consecutive records."""
        loop = self._task.initial.call_loop
        return loop is None or isinstance(loop, BlockingLoop)

    def add_batches(self, node: BatchingNode) -> None:
        """Register the object that collects this node's records in batches."""
        self._task.batches.insert(0, node)

    def call_loop(self) -> CallLoop:
        """Return the event loop of the task, on which async functions are called."""
        task = self._task
        if task.calls is None:
            task.calls = TaskCalls.on(task.initial.call_loop)
            task.on_close(task.calls.close)
        return task.calls.loop

    def add_calls(self, node: CallingNode) -> None:
        """Register the object that calls this node's async function."""
        assert self._task.calls is not None
        self._task.calls.add(node)

    def raw_reader(self) -> Callable[[], tuple[bytes | None, bytes | None]]:
        """Return a function that returns the source record's raw key and value, each None if it is not kept."""
        return self._task.raw_bytes if self._task.handlers.settings.may_ask else _no_raw_record

    def deliver(
        self, context: RecordContext, raw: tuple[bytes | None, bytes | None], forward: Callable[[], None]
    ) -> None:
        """Call ``forward`` for the result of an async call, with the metadata and raw record of its input."""
        self._task.deliver(context, raw, forward)

    def fail(self, error: BaseException, key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        """Call the processing handler for a record that failed at this node.

        An ``error`` that is not an ``Exception`` fails the task without a call to the handler.  An interruption, such
        as ``KeyboardInterrupt``, is raised unchanged.
        """
        if isinstance(error, INTERRUPTIONS):
            raise error
        if not isinstance(error, Exception):
            # Such as a cancelled future: not a failure that a handler may skip, as in other nodes.
            raise self._task.failures.decided(error, self.node) from error
        self._task.on_error(self.node, error, key, value, timestamp_ms, headers)

    def on_final_flush(self, callback: Callable[[], object]) -> None:
        """Register a callback that forwards buffered results at the end of a bounded run."""
        self._final_flushes.append(callback)

    def on_idle(self, advance: Callable[[int], bool], shared_store: str | None = None) -> None:
        """Register a function that advances this operator to a given stream time while its sources are idle."""
        users = () if shared_store is None else self._task.topology.store_users[shared_store]
        self.advances.append(((self.node, *users), advance))

    def final_flush(self) -> None:
        """Run the callbacks of ``on_final_flush``."""
        for callback in self._final_flushes:
            callback()

    def initialize(self) -> None:
        """Run the callbacks of ``on_init``."""
        for callback in self._initializers:
            callback()
