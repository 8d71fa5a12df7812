"""Processor API: user code that processes records one at a time, with stores and punctuations.

Each task has its own instance of a ``Processor``. ``Record`` objects are created only for user code. See KIP-478
and KIP-820.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar, overload

from attrs import evolve, field, frozen

from streams.core.arguments import MAX_TIME_MS, NOT_GIVEN, checked_headers, checked_time
from streams.core.blocks.records import Headers, Record, RecordMetadata, TaskId
from streams.core.errors import ProcessingError, StreamsError, TopologyError
from streams.core.serdes.serdes import BYTES, PinnedSerde, Serde, serde_for
from streams.core.user_code import located, refuse_result, refuse_unawaited, refuse_unawaited_methods
from streams.state import (
    StoreKind,
    StoreSpec,
)
from streams.topology.node_context import NodeContext
from streams.topology.operator import Cancellable, Process, PunctuationType

KI = TypeVar("KI", contravariant=True)
VI = TypeVar("VI", contravariant=True)
KO = TypeVar("KO")
VO = TypeVar("VO")
K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")
T = TypeVar("T")
P = TypeVar("P", bound="Processor[Any, Any, Any, Any]")


def serde_of(form: Any, node: str = "") -> Serde[Any]:
    """Return the serde for ``form``; if it is unset, the serde is determined by the first object at ``node``."""
    if form is NOT_GIVEN:
        return PinnedSerde(node) if node else BYTES
    return form if isinstance(form, Serde) else serde_for(form)


def milliseconds(duration: timedelta, what: str, *, least: int = 0) -> int:
    """Return a duration in whole milliseconds; ``what`` names the argument in messages.

    Raises:
        TopologyError: the duration is not a ``timedelta``, is below ``least`` milliseconds, or is shorter than 1 ms
            without being 0.
    """
    if not isinstance(duration, timedelta):
        raise TopologyError(f"{what} must be a timedelta, not {duration!r:.60}")
    if duration < timedelta(milliseconds=least):
        raise TopologyError(f"{what} must be at least {least} ms, not {duration}")
    if timedelta(0) < duration < timedelta(milliseconds=1):
        raise TopologyError(f"{what} must be in whole milliseconds: {duration} is less than 1 ms")
    return duration // timedelta(milliseconds=1)


class ProcessorContext(Generic[KO, VO]):
    """Forwarding, punctuations, stores and metadata for a processor.

    Call ``forward`` and ``schedule`` only on the thread of the task.
    """

    __slots__ = (
        *("_children", "_fixed_key", "_forward", "_hot_states", "_is_live", "_key", "_live", "_node", "_now_ms"),
        "_record",
    )

    def __init__(self, node: NodeContext, *, fixed_key: bool = False, is_live: bool = False) -> None:
        self._node = node
        self._forward = node.output.forward
        self._fixed_key = fixed_key
        self._children: dict[str, Process] = {}
        self._key: Any = None
        self._now_ms = 0
        self._hot_states = node.stores.hot_states()
        #: The record being processed; None within a punctuation.
        self._record: Record[Any, Any] | None = None
        #: Whether records have live headers (``topology.shared_headers``), and those of the current record.
        self._is_live = is_live
        self._live: list[tuple[str, bytes | None]] | None = None

    def forward(
        self,
        key: KO,
        value: VO,
        *,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        to: str | None = None,
    ) -> None:
        """Send a record to all children, or to the child named ``to``.

        ``timestamp_ms`` and ``headers`` default to those of the record being processed; within a punctuation,
        they default to the punctuation time and to no headers. As in Kafka Streams, default headers are shared
        with the current record, so changes by downstream processors are visible here.

        Raises:
            ProcessingError: there is no child ``to``, the timestamp is negative or no int, the headers are no pairs of
                text and bytes, or a processor in ``process_values`` changes the key.
        """
        if timestamp_ms is None:
            timestamp_ms = self._now_ms
        elif type(timestamp_ms) is not int or not 0 <= timestamp_ms <= MAX_TIME_MS:
            timestamp_ms = checked_time(
                timestamp_ms, "timestamp_ms of forward()", ProcessingError, node=self._node.node
            )
        if headers:
            headers = checked_headers(headers, "headers of forward()", ProcessingError, node=self._node.node)
        # NaN is not equal to itself.
        if self._fixed_key and key is not self._key and key != self._key:
            raise ProcessingError(
                f"process_values must keep the key {self._key!r}, got {key!r}; use process() to change it",
                node=self._node.node,
            )
        forward = self._forward if to is None else self._child(to)
        if self._is_live:
            self._forward_live(forward, key, value, timestamp_ms, headers)
            return
        record = self._record if headers is None else None
        if record is not None:
            headers = record.headers
            if type(headers) is not tuple:
                headers = checked_headers(headers, "headers of the record", ProcessingError, node=self._node.node)
        changed: Headers | None = forward(key, value, timestamp_ms, headers or None)
        if record is not None and changed is not None:
            record.headers = changed

    def _forward_live(
        self, forward: Callable[..., Any], key: KO, value: VO, timestamp_ms: int, headers: Headers | None
    ) -> None:
        """Forward a record whose headers are a list shared by several nodes (see ``topology.shared_headers``)."""
        record, live = self._record, self._live
        if headers is not None or record is None or live is None:
            forward(key, value, timestamp_ms, list(headers or ()))
            return
        headers = record.headers
        if type(headers) is not tuple:
            headers = checked_headers(headers, "headers of the record", ProcessingError, node=self._node.node)
        live[:] = headers
        forward(key, value, timestamp_ms, live)
        record.headers = tuple(live)

    def _child(self, name: str) -> Process:
        child = self._children.get(name)
        if child is None:
            child = self._children[name] = self._node.output.forward_to(name)
        return child

    def schedule(
        self,
        interval: timedelta,
        kind: PunctuationType,
        callback: Callable[[int], None],
        *,
        start_ms: int | None = None,
    ) -> Cancellable:
        """Call ``callback(now_ms)`` every ``interval`` of stream or wall-clock time (KIP-138).

        ``start_ms`` aligns the schedule (KIP-1146). By default, a stream-time schedule starts at the first
        record, and a wall-clock schedule starts one interval from now.

        Raises:
            TopologyError: the interval is below one millisecond, ``kind`` is no ``PunctuationType``, or the callback is
                async or a generator.
        """
        interval_ms = milliseconds(interval, f"interval of schedule() of node {self._node.node!r}", least=1)
        if not isinstance(kind, PunctuationType):
            raise TopologyError(
                f"kind of schedule() of node {self._node.node!r} must be PunctuationType.STREAM_TIME or "
                f"PunctuationType.WALL_CLOCK_TIME, not {kind!r}"
            )
        refuse_unawaited(callback, f"schedule() of node {self._node.node!r}")

        def fire(now_ms: int) -> None:
            before = self._now_ms, self._record, self._key, self._fixed_key
            # A punctuation has no record, so there is no key to keep.
            self._now_ms = now_ms
            self._record = None
            self._fixed_key = False
            self._note_time(now_ms)
            try:
                refuse_result(callback(now_ms), f"punctuation of node {self._node.node!r}")  # type: ignore[func-returns-value]
            finally:
                self._now_ms, self._record, self._key, self._fixed_key = before
                self._note_time(self._now_ms)

        return self._node.clock.schedule(interval_ms, kind, fire, start_ms)

    def _note_time(self, now_ms: int) -> None:
        """Set the time of changelog records of entries that have none, as in Kafka Streams."""
        for hot in self._hot_states:
            hot.record_ms = now_ms

    def commit(self) -> None:
        """Request a commit after the current record."""
        self._node.commit()

    def store(self, name: str) -> Any:
        """Return a store connected to this processor, or a global store.

        Raises:
            TopologyError: the store is not connected.
        """
        return self._node.stores[name]

    @property
    def application_id(self) -> str:
        """The id that members of the group and internal topics share."""
        return self._node.application_id

    @property
    def task_id(self) -> TaskId:
        """The id of the task, which consists of sub-topology and partition."""
        return self._node.task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The topic, partition and offset of the record being processed; None within a punctuation."""
        return self._node.output.current.metadata()

    @property
    def timestamp_ms(self) -> int:
        """The timestamp of the record being processed, or the time of the punctuation.

        It is -1 where a value transformer is asked for a row that its table does not have.
        """
        return self._now_ms

    @property
    def headers(self) -> Headers:
        """The headers of the record being processed; none within a punctuation, and none of a row of a table."""
        return () if self._record is None else tuple(self._record.headers)

    def process_row(self, key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        """Set what a value transformer sees, which gets no ``Record``."""
        self._now_ms = timestamp_ms
        self._record = Record(key, value, timestamp_ms, tuple(headers or ()))

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp of the task's records so far, in epoch milliseconds; -1 before the first record."""
        return self._node.clock.task_stream_time_ms()

    @property
    def wall_clock_ms(self) -> int:
        """The wall-clock time in epoch milliseconds, from the clock of the instance or test driver."""
        return self._node.clock.wall_clock_ms()


class Processor(Generic[KI, VI, KO, VO]):
    """Processes records one at a time. Each task has its own instance.

    ``context`` is set before ``init`` is called. Keep state in stores: Python attributes are lost when the task
    moves to another instance.
    """

    context: ProcessorContext[KO, VO]

    def init(self, context: ProcessorContext[KO, VO]) -> None:
        """Initialize the processor; called once per task, in the order of the graph."""

    def process(self, record: Record[KI, VI]) -> None:
        """Called for each record that a parent forwards, one at a time."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, record)")

    def close(self) -> None:
        """Release the resources that ``init`` acquired; called when the task closes."""


ProcessorSupplier = Callable[[], Processor[Any, Any, Any, Any]]


@frozen
class StoreBuilder(Generic[S]):
    """The declaration of a state store.

    If it is an attribute of a processor class, the attribute of an instance is the open store.
    """

    kind: StoreKind
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    options: dict[str, Any] = field(factory=dict)
    _names: list[str] = field(factory=list, eq=False)
    is_named: bool = False

    @property
    def name(self) -> str:
        """The name of the store: the given name, or else the name of the class attribute."""
        if not self._names:
            raise TopologyError("a state store that is no class attribute needs a name: key_value_store(..., name=...)")
        return self._names[0]

    def spec(self) -> StoreSpec:
        """Return the store's spec."""
        return StoreSpec(self.name, self.kind, self.key_serde, self.value_serde, **self.options)

    def viewed(self, kind: str, view: Callable[[S], T], queries: Sequence[str] = ()) -> "StoreBuilder[T]":
        """Return the declaration of a store of a custom kind, which processors use through ``view(store)``.

        ``store`` is the store declared here; its options, changelog, restore and commits are unchanged. ``kind`` is the
        name of the new kind, which is recorded in state directories and snapshots. ``queries`` are the names of the
        view methods that ``StoreView.ask`` can call.

        Raises:
            StoreError: ``kind`` is the name of the built-in kind, the view has no such query, or this is already
                a view.
        """
        return evolve(self, kind=self.kind.viewed(kind, view, queries))  # type: ignore[return-value]

    def __set_name__(self, owner: type, name: str) -> None:
        if not self._names:
            self._names.append(name)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Processor[Any, Any, Any, Any], owner: type) -> S: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        # The attribute of the instance, which the task sets to the open store, shadows this descriptor.
        return self


@frozen
class Punctuation:
    """A punctuation declared on a method of a processor."""

    interval: timedelta
    kind: PunctuationType


def punctuate(
    interval: timedelta, kind: PunctuationType = PunctuationType.STREAM_TIME
) -> Callable[[Callable[[P, int], None]], Callable[[P, int], None]]:
    """Decorator: call a processor method with ``now_ms`` every ``interval`` of stream or wall-clock time (KIP-138)."""

    def mark(method: Callable[[P, int], None]) -> Callable[[P, int], None]:
        method.__dict__["punctuation"] = Punctuation(interval, kind)
        return method

    return mark


def _members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield class attributes in the order of their definition, base classes first."""
    seen: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        seen.update(vars(base))
    yield from seen.items()


@contextmanager
def _named(context: NodeContext, what: str) -> Iterator[None]:
    """Let an error of user code that no record causes name the node."""
    try:
        yield
    except StreamsError:
        raise
    except Exception as error:
        raise ProcessingError(
            f"node {context.node!r}: {what} failed: {type(error).__name__}: {error}",
            node=context.node,
            task_id=context.task_id,
        ) from error


def processor_key(node: str) -> str:
    """Return the key of a node's processor in ``NodeStores.shared``."""
    return f"processor/{node}"


@frozen
class ProcessorOperator:
    """Runs a user's processor as a node."""

    supplier: ProcessorSupplier
    has_fixed_key: bool = False

    def __attrs_post_init__(self) -> None:
        refuse_unawaited(self.supplier, "process()")
        if isinstance(self.supplier, type):
            _refuse_unawaited(self.supplier)

    def store_builders(self) -> list[StoreBuilder[Any]]:
        """Return the stores that the processor class declares as attributes.

        Raises:
            TopologyError: the supplier makes no processor, or the same processor each time.
        """
        if not isinstance(self.supplier, type):
            processor = self._make()
            if self._make() is processor:
                raise TopologyError(
                    f"process(): {located(self.supplier)} makes the same {type(processor).__qualname__} each time; "
                    "make a new one: each task has its own"
                )
        return [value for _, value in _members(self._class) if isinstance(value, StoreBuilder)]

    @property
    def _class(self) -> type:
        return self.supplier if isinstance(self.supplier, type) else type(self._make())

    @property
    def punctuates_in_stream_time(self) -> bool:
        """Whether the processor class declares a punctuation in stream time."""
        marks = [getattr(value, "punctuation", None) for _, value in _members(self._class)]
        return any(isinstance(mark, Punctuation) and mark.kind is PunctuationType.STREAM_TIME for mark in marks)

    def bind(self, context: NodeContext) -> Process:
        """Create the processor of a task, and return its process function; ``init`` runs when all nodes are bound."""
        user_context, handle, shown = self._bound(context, is_live=False)
        hot_states = user_context._hot_states

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> Headers:
            user_context._key = key
            user_context._now_ms = timestamp_ms
            for hot in hot_states:
                hot.record_ms = timestamp_ms
            record: Record[Any, Any] = Record(key, value, timestamp_ms, headers or ())
            user_context._record = record
            if (returned := handle(record)) is not None:
                refuse_result(returned, shown)
            user_context._record = None
            return record.headers

        return process

    def bind_live(self, context: NodeContext) -> Process:
        """Return the process function of one task, for records whose headers are a list that nodes share."""
        user_context, handle, shown = self._bound(context, is_live=True)
        hot_states = user_context._hot_states

        def process(key: Any, value: Any, timestamp_ms: int, headers: Any) -> None:
            user_context._key = key
            user_context._now_ms = timestamp_ms
            for hot in hot_states:
                hot.record_ms = timestamp_ms
            record: Record[Any, Any] = Record(key, value, timestamp_ms, tuple(headers))
            user_context._record = record
            user_context._live = headers
            if (returned := handle(record)) is not None:
                refuse_result(returned, shown)
            user_context._record = user_context._live = None
            headers[:] = record.headers

        return process

    def _bound(
        self, context: NodeContext, *, is_live: bool
    ) -> tuple[ProcessorContext[Any, Any], Callable[[Record[Any, Any]], object], str]:
        """Create the processor of a task; return its context, its ``process`` method and the name for messages."""
        with _named(context, "making the processor"):
            processor = self._make()
        user_context: ProcessorContext[Any, Any] = ProcessorContext(
            context, fixed_key=self.has_fixed_key, is_live=is_live
        )
        processor.context = user_context
        context.stores.shared(processor_key(context.node), lambda: processor)
        for attribute, value in _members(type(processor)):
            if isinstance(value, StoreBuilder):
                setattr(processor, attribute, context.stores[value.name])
        shown = f"processor {type(processor).__qualname__}"

        def close() -> None:
            with _named(context, "close()"):
                refuse_result(processor.close(), f"close of {shown}")  # type: ignore[func-returns-value]

        def init() -> None:
            user_context._now_ms = max(context.clock.task_stream_time_ms(), 0)
            user_context._note_time(user_context._now_ms)
            with _named(context, "init()"):
                refuse_result(processor.init(user_context), f"init of {shown}")  # type: ignore[func-returns-value]
            for attribute, value in _members(type(processor)):
                punctuation = getattr(value, "punctuation", None)
                if isinstance(punctuation, Punctuation):
                    user_context.schedule(punctuation.interval, punctuation.kind, getattr(processor, attribute))

        context.on_init(init)
        context.on_close(close)
        return user_context, processor.process, shown

    def _make(self) -> Processor[Any, Any, Any, Any]:
        processor = self.supplier()
        if not isinstance(processor, Processor):
            raise TopologyError(
                f"process() needs a Processor class or a function that makes one; {self.supplier!r} made {processor!r}"
            )
        _refuse_unawaited(processor)
        return processor


def _refuse_unawaited(processor: Any) -> None:
    """Raise an error if a processor, or its class, has async or generator methods, whose code would not run."""
    owner = processor if isinstance(processor, type) else type(processor)
    timers = [name for name, value in _members(owner) if isinstance(getattr(value, "punctuation", None), Punctuation)]
    refuse_unawaited_methods(processor, ("init", "process", "close", *timers), f"processor {owner.__qualname__}")
