"""The context of a node in one task: its stores, clock, output and metrics, and its calls.

An operator takes of them what it needs.  The task creates the context when it binds the node's operator.  The module
imports only ``core``, ``state`` and ``topology.operator``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from attrs import define, field, frozen

from streams.core.blocks.records import NO_TIMESTAMP, Headers, RecordContext, RecordMetadata, TaskId, Window, Windowed
from streams.core.concurrency.calls import CallLoop
from streams.core.drop_notes import DropNote
from streams.core.errors import TopologyError
from streams.core.inlining import inlined
from streams.core.metrics import Amounts, Counter, DropReason, Metrics, SensorSpec, Stopwatch, late_bound, table
from streams.state import HotState, RecordCache, Section, Store
from streams.topology.operator import (
    BatchingNode,
    CallingNode,
    Cancellable,
    Lost,
    Process,
    PunctuationType,
    StreamTime,
    TableForward,
)

#: The serialized key and value of a source record, each None if it is not kept.
RawRecord: TypeAlias = tuple[bytes | None, bytes | None]


#: What the stream times begin with that Kafka Streams commits as well; the name of the store follows.
EMITTED = "/"


def emitted_name(store: str) -> str:
    """Return the name of the stream time up to which the closed windows of a store have been emitted."""
    return EMITTED + store


@define(eq=False)
class NodeStores:
    """The stores that are connected to a node, and the objects that it shares with other nodes of its task."""

    node: str
    #: Names of the connected stores.
    connected: Sequence[str]
    #: The open stores of the task, and the views of the global stores, by name.
    _opened: Mapping[str, Store]
    _global_stores: Mapping[str, Any]
    _shared: dict[str, Any] = field(factory=dict)
    #: The record cache of the task, or None without caching.
    cache: RecordCache | None = None
    #: Wraps the view of a store, given its name, to measure or observe its methods.
    _view: Callable[[str, Any], Any] = lambda name, view: view

    def __getitem__(self, name: str) -> Any:
        """Return the view of a connected store, or of a global store.

        Raises:
            TopologyError: the store is not connected.
        """
        if name in self._global_stores:
            return self._view(name, self._global_stores[name].view)
        if name not in self.connected:
            names = ", ".join(map(repr, self.connected)) or "none"
            raise TopologyError(
                f"node {self.node!r} is not connected to a store {name!r} (connected: {names}); "
                "name it in stores= of process() or add_processor(), or declare it as class attribute"
            )
        return self._view(name, self._opened[name].view)

    def opened(self, name: str) -> Store:
        """Return an open store of the task itself, without view."""
        return self._opened[name]

    def hot_states(self) -> list[HotState]:
        """Return the hot states of the connected stores."""
        return [self._opened[name].hot for name in self.connected]

    def caches(self, name: str | None) -> bool:
        """Return whether the record cache buffers the changes of a store."""
        if name is None or self.cache is None or name not in self._opened:
            return False
        return self._opened[name].spec.is_cacheable

    def shared(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the object that nodes of the task share under ``key``; the first call creates it by ``make()``."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]


@define(eq=False)
class NodeClock:
    """The times of a node, and its schedule."""

    node: str
    #: The stream times of the task's operators by name, restored from the last commit.
    _stream_times: dict[str, StreamTime]
    #: Returns the highest timestamp that the task has processed, including that of the current record.
    task_stream_time_ms: Callable[[], int]
    #: Returns the wall-clock time in epoch milliseconds; raises ``WallClockError`` if the driver has no wall clock.
    wall_clock_ms: Callable[[], int]
    #: Whether wall-clock time passes, as it does not in bounded runs and in replays without append times.
    _is_running: bool
    _schedule: Callable[[int, PunctuationType, Callable[[int], None], int | None], Cancellable]
    #: The nodes that use a store, by its name.
    _store_users: Mapping[str, Sequence[str]]
    #: The functions of ``on_idle``, each with the nodes whose sources must be idle.
    advances: list[tuple[Sequence[str], Callable[[int], bool]]] = field(factory=list)

    def stream_time(self, name: str = "") -> StreamTime:
        """Return the stream time of the operator, or its stream time called ``name``; restored from the last commit."""
        return self._stream_times.setdefault(f"{self.node}/{name}" if name else self.node, StreamTime())

    def emitted_time(self, store: str) -> StreamTime:
        """Return the time up to which the closed windows of a store were emitted, restored from the last commit.

        Kafka Streams commits the same time under the name of the store: that of the latest record that emitted
        windows, minus the grace period (and the gap of sessions).
        """
        return self._stream_times.setdefault(emitted_name(store), StreamTime())

    def schedule(
        self, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None], start_ms: int | None = None
    ) -> Cancellable:
        """Call ``callback(now_ms)`` once per interval of stream time or wall-clock time, first at ``start_ms``.

        Raises:
            WallClockError: ``kind`` is wall-clock time, and the driver has no wall clock.
        """
        return self._schedule(interval_ms, kind, callback, start_ms)

    def running(self) -> Callable[[], int] | None:
        """Return a function that returns the wall-clock time in epoch milliseconds, or None if time does not pass.

        Raises:
            WallClockError: the driver has no wall clock.
        """
        self.wall_clock_ms()
        return self.wall_clock_ms if self._is_running else None

    def on_idle(self, advance: Callable[[int], bool], shared_store: str | None = None) -> None:
        """Register the function that advances this operator's stream time while its sources are idle.

        The function is called with ascending stream times, which may be before the operator's own, and returns whether
        it has forwarded records or changed its state.  With ``shared_store`` the sources are those of all nodes that
        use the store.
        """
        users = () if shared_store is None else self._store_users[shared_store]
        self.advances.append(((self.node, *users), advance))


class CurrentPlace(Protocol):
    """The place of the record that a task processes."""

    def origin(self) -> tuple[str, int, int]:
        """Return the topic, partition and offset of the current record, or ("", -1, -1) within a punctuation."""
        ...

    def metadata(self) -> RecordMetadata | None:
        """Return the topic, partition and offset of the current record, or None within a punctuation."""
        ...

    def within(self, context: RecordContext, forward: Callable[[], None]) -> None:
        """Call ``forward`` for a buffered record, with ``context`` as the metadata of the current record."""
        ...


@define(eq=False)
class NodeOutput:
    """What a node forwards, and the place of the record for which it does so."""

    node: str
    #: Calls all children in order.
    forward: Process
    #: Names of the child nodes.
    children: Sequence[str]
    #: Returns the process function of one child, given its name.
    forward_to: Callable[[str], Process]
    current: CurrentPlace
    stores: NodeStores
    #: The children that take dropped records, with the reasons for which they take them.
    _sides: Sequence[tuple[frozenset[str], str]] = ()
    #: Returns the sensor of the hit ratio of a store's section of the record cache, or None if it is not recorded.
    _hit_ratio: Callable[[str], Amounts | None] = lambda store: None
    #: The prefix of this task's sections of the record cache.
    _section_prefix: str = ""
    _final_flushes: list[Callable[[], object]] = field(factory=list)
    #: The section of the record cache that buffers this node's changes.
    section: str | None = None

    def changes(self, store: str | None, *, send_old: bool = True) -> TableForward:
        """Return the function that forwards the changes of a table, through the record cache if it has the store.

        With a record cache, the first old and the last new value of a key are cached until the flush; without,
        ``(new, old, is_latest)`` is forwarded at once.  With ``send_old`` False the old value is passed to the cache,
        but not forwarded.
        """
        if store is not None and self.stores.caches(store):
            return self.cached(store, send_old=send_old).hold
        forward = self.forward

        @inlined
        def emit(
            key: Any, new: Any, old: Any, timestamp_ms: int, headers: Headers | None, is_latest: bool = True
        ) -> None:
            forward(key, (new, old, is_latest), timestamp_ms, headers)

        return emit

    def cached(self, store: str, *, send_old: bool = True, window_of: Callable[[int], Window] | None = None) -> Section:
        """Return the section of the record cache that buffers the changes of a store.

        With ``window_of``, the keys of the section are (key, window start).
        """
        forward, within, cache = self.forward, self.current.within, self.stores.cache
        assert cache is not None
        # One section per store: the operators of a cogroup share it, and any of them may be the last to update a key.
        section = self.section = f"{self._section_prefix}{store}"
        slot_of, to_key = _slots(self.stores.opened(store), window_of)

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
            within(context, lambda: forward(key, change, timestamp_ms, headers))

        return cache.register(section, flushed, slot_of, self.current.origin, self._hit_ratio(store))

    def flush_cache(self) -> None:
        """Flush this node's changes from the record cache."""
        if self.section is not None and self.stores.cache is not None:
            self.stores.cache.flush(self.section)

    def clear_cache(self) -> None:
        """Drop this node's changes from the record cache."""
        if self.section is not None and self.stores.cache is not None:
            self.stores.cache.clear(self.section)

    def side_output(self) -> Lost | None:
        """Return the function that forwards a dropped record to the side outputs, or None if there are none.

        The function does not count the record.
        """
        node = self.node
        sides = [(reasons, self.forward_to(child)) for reasons, child in self._sides]

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

    def on_final_flush(self, callback: Callable[[], object]) -> None:
        """Register a function that forwards buffered results at the end of a bounded run.

        It is used by operators that buffer results: suppression, emission on window close, and outer joins.
        """
        self._final_flushes.append(callback)

    def final_flush(self) -> None:
        """Call the functions of ``on_final_flush``."""
        for callback in self._final_flushes:
            callback()


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


@frozen(eq=False)
class NodeMetrics:
    """The sensors of a node."""

    node: str
    task_id: TaskId
    _metrics: Metrics
    _stores: NodeStores
    #: Counters of late records by bound: in history out of order most records may be late.
    _late: dict[int, Counter] = field(factory=dict, init=False)

    def drop(self, reason: DropReason, count: int = 1) -> None:
        """Count records dropped at this node in the metric ``dropped-records-total``."""
        self._metrics.drop(reason, count, task=self.task_id, node=self.node)

    def late(self, late_ms: int) -> None:
        """Count a record that came so long after its window had closed, in stream time."""
        bound = late_bound(late_ms)
        counter = self._late.get(bound)
        if counter is None:
            place = {"task": self.task_id, "node": self.node, "reason": str(bound)}
            counter = self._late[bound] = self._metrics.counter(table.LATE, **place)
        counter.value += 1

    def tally(self, reason: DropReason) -> Counter:
        """Return the counter of the records that this node does not forward for the given reason.

        It is for records that Kafka Streams does not count as dropped, so they do not count as drops of the task.
        """
        return self._metrics.counter(table.DROPPED_FOR, task=self.task_id, node=self.node, reason=reason)

    def counter(self, sensor: SensorSpec) -> Counter:
        """Return this node's counter of a sensor that is declared per node."""
        return self._metrics.counter(sensor, task=self.task_id, node=self.node)

    def records(self, sensor: SensorSpec) -> bool:
        """Return whether a sensor is recorded at the recording level."""
        return self._metrics.records(sensor)

    def amounts(self, sensor: SensorSpec, store: str | None = None) -> Amounts:
        """Return the sensor of amounts, such as sizes, of this node, or of a store if it is declared per store."""
        if store is None:
            return self._metrics.amounts(sensor, task=self.task_id, node=self.node)
        store_type = self._stores.opened(store).type_name
        return self._metrics.amounts(sensor, task=self.task_id, store=store, store_type=store_type)

    def stopwatch(self, sensor: SensorSpec) -> Stopwatch:
        """Return this node's stopwatch of a sensor that is declared per node."""
        return self._metrics.stopwatch(sensor, task=self.task_id, node=self.node)


@frozen(eq=False)
class NodeCalls:
    """What a node needs that holds records until a call of an async function or a batch has ended."""

    #: Returns the event loop of the task, on which async functions are called.
    loop: Callable[[], CallLoop]
    #: Registers the part of the node that calls async functions; ``loop`` must have been called.
    add: Callable[[CallingNode], None]
    #: Registers the part of the node that collects records in batches.
    add_batches: Callable[[BatchingNode], None]
    #: Whether batches end with each run of records, because time does not pass, as in a replay.
    ends_runs: bool
    #: Returns the raw key and value of the source record, each None if no handler may need them.
    raw_record: Callable[[], RawRecord]
    #: Forwards the result of a call, with the metadata and raw record of its input.
    deliver: Callable[[RecordContext, RawRecord, Callable[[], None]], None]
    #: Calls the processing handler for a record that failed at this node, given as (error, key, value, timestamp_ms,
    #: headers); raises ``ProcessingError`` if the handler returned "fail".
    fail: Callable[[BaseException, Any, Any, int, Headers | None], None]


@frozen(eq=False)
class NodeContext:
    """What a task provides to the operator of a node."""

    node: str
    task_id: TaskId
    application_id: str
    stores: NodeStores
    clock: NodeClock
    output: NodeOutput
    metrics: NodeMetrics
    calls: NodeCalls
    #: Requests a commit after the current record.
    commit: Callable[[], None]
    #: Registers a function to call when the task closes.
    on_close: Callable[[Callable[[], None]], None]
    _initializers: list[Callable[[], None]] = field(factory=list)

    def on_init(self, callback: Callable[[], None]) -> None:
        """Register a function to call once all nodes are bound; functions are called in the order of the graph."""
        self._initializers.append(callback)

    def initialize(self) -> None:
        """Call the functions of ``on_init``."""
        for callback in self._initializers:
            callback()

    def record_metadata(self) -> RecordMetadata | None:
        return self.output.current.metadata()

    def wall_clock_ms(self) -> int:
        """Return the wall-clock time of the driver in epoch milliseconds.

        Raises:
            WallClockError: the driver has no wall clock.
        """
        return self.clock.wall_clock_ms()


class Operator(Protocol):
    """The behaviour of a node: an immutable object that all tasks share."""

    def bind(self, context: NodeContext) -> Process:
        """Return the process function for one task."""
        ...
