"""Suppression of table changes until their window closes, or until a time limit.

The buffer contains one change per key.  A later change replaces it, but keeps its buffer time.  Changes are evicted in
the order of buffer time and key bytes, with the timestamp and headers of the last update.  A full buffer emits early or
fails (KIP-328).  The store contains one row per key: the buffered record with three values (last emitted, old and new),
with the bytes of Kafka Streams (``buffered``).  The next change to evict comes from a heap of buffer times and key
bytes, which is built when the task opens the store.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar, TypeAlias

from attrs import define, field, frozen

from streams.core.blocks.records import Headers
from streams.core.errors import StreamsError
from streams.core.metrics import table
from streams.core.serdes.serdes import Serde
from streams.dsl.processing.buffered import HEADERS, ORIGIN, PLACE, TIME, VALUES, Buffered
from streams.dsl.processing.emission import release, time_listeners
from streams.dsl.processing.joins.getters import Getter, Pair, TableValues, TimeGetter
from streams.topology import NodeContext, Process, StoreNaming

#: Positions of the three values of a buffered change.
_PRIOR, _OLD, _NEW = range(VALUES, VALUES + 3)

#: The timestamp of a value whose timestamp is unknown.
_UNKNOWN_MS = -1
_NEVER_MS = 1 << 63
#: Size in bytes of the fixed parts of a buffered change: three timestamps and a partition number.
_ROW_BYTES = 28


@frozen
class Suppress:
    """Buffers changes for ``wait_ms``: the time limit, or the grace period with ``until_window_closes``.

    The parent must send old values.  The buffer is full above ``max_records`` or ``max_bytes``.  A full
    buffer emits early, or fails with ``shut_down_when_full``.  With ``until_window_closes``, deletions are
    dropped, since nothing was emitted before.
    """

    store_naming: ClassVar = StoreNaming("name", ("-store",))

    store: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    wait_ms: int
    until_window_closes: bool = False
    max_records: int | None = None
    max_bytes: int | None = None
    shut_down_when_full: bool = False
    #: Size in milliseconds of the longest window upstream.
    window_ms: int = 0

    @property
    def keeps_back_ms(self) -> int:
        """The maximum time in milliseconds by which the timestamp of a result may lag stream time."""
        return self.wait_ms + self.window_ms

    def bind(self, context: NodeContext) -> Process:
        is_weighed = self.max_bytes is not None or context.metrics.records(table.SUPPRESSED_SIZE)
        buffer = _Buffer(context.stores[self.store], self.value_serde, is_weighed)
        read = buffer.store.get
        put = buffer.put
        evict = buffer.evict
        places = buffer.places
        to_bytes = self.key_serde.serialize
        origin_of = context.output.current.metadata
        time = context.clock.stream_time()
        wait_ms = self.wait_ms
        until_close = self.until_window_closes
        emit = self._emit(context)
        is_over = self._is_over(buffer)

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if timestamp_ms > time.ms:
                time.ms = timestamp_ms
            new, old, _ = change
            key_bytes = to_bytes(key)
            assert key_bytes is not None
            held = read(key_bytes)
            if held is None:
                place_ms = key[1][1] if until_close else timestamp_ms
                prior = old
                heappush(places, (place_ms, key_bytes))
            else:
                place_ms = held[PLACE]
                prior = held[_PRIOR]
            put(key_bytes, (origin_of(), place_ms, timestamp_ms, headers, prior, old, new))
            while places and places[0][0] <= time.ms - wait_ms:
                evict(emit)
            if is_over is not None and is_over():
                if self.shut_down_when_full:
                    raise StreamsError(self._is_full(context, buffer))
                while is_over():
                    evict(emit)

        def flush() -> None:
            while places:
                evict(emit)

        def advance(stream_time_ms: int) -> bool:
            time.ms = max(time.ms, stream_time_ms)
            count = len(places)
            while places and places[0][0] <= time.ms - wait_ms:
                evict(emit)
            return len(places) < count

        context.clock.on_idle(advance)
        if until_close:
            time_listeners(context.stores, self.store).append(advance)
        context.on_init(buffer.load)
        context.output.on_final_flush(flush)
        return self._measured(context, buffer, process) if context.metrics.records(table.SUPPRESSED_COUNT) else process

    def _measured(self, context: NodeContext, buffer: "_Buffer", process: Process) -> Process:
        """Return a process function that also records the number of buffered changes, and their size."""
        counts = context.metrics.amounts(table.SUPPRESSED_COUNT, self.store)
        sizes = context.metrics.amounts(table.SUPPRESSED_SIZE, self.store)

        def measured(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            process(key, change, timestamp_ms, headers)
            counts.record(len(buffer.places))
            sizes.record(buffer.size_bytes)

        return measured

    def _emit(self, context: NodeContext) -> "_EmitBuffered":
        """Return the function that emits a buffered change."""
        send = release(context.output, context.output.forward)
        to_key = self.key_serde.deserialize
        drops_deletions = self.until_window_closes
        emitted = context.metrics.counter(table.SUPPRESSION_EMITTED)

        def emit(key_bytes: bytes, row: Buffered) -> None:
            new = row[_NEW]
            if new is not None or not drops_deletions:
                emitted.value += 1
                send(row[ORIGIN], to_key(key_bytes), (new, row[_OLD], True), row[TIME], row[HEADERS])

        return emit

    def _is_over(self, buffer: "_Buffer") -> Callable[[], bool] | None:
        """Return a function that returns whether the buffer exceeds its limits, or None if it has no limits."""
        max_records = self.max_records
        max_bytes = self.max_bytes
        places = buffer.places
        if max_bytes is not None:
            limit = _NEVER_MS if max_records is None else max_records
            return lambda: len(places) > limit or buffer.size_bytes > max_bytes
        if max_records is not None:
            return lambda: len(places) > max_records
        return None

    def _is_full(self, context: NodeContext, buffer: "_Buffer") -> str:
        limit = f"{len(buffer.places)} of {self.max_records} records"
        if self.max_bytes is not None:
            limit += f", {buffer.size_bytes} of {self.max_bytes} bytes"
        return (
            f"node {context.node!r}: the suppression buffer exceeds its capacity ({limit}); "
            "raise the limit, or let it emit early when full"
        )


#: Emits a buffered change: (key bytes, row).
_EmitBuffered: TypeAlias = Callable[[bytes, Buffered], None]


@define(eq=False)
class _Buffer:
    """The buffered changes of one task: the rows are in a store, and their order is in a heap."""

    store: Any
    value_serde: Serde[Any]
    is_weighed: bool
    #: (buffer time, key bytes) of all buffered changes, as a heap.
    places: list[tuple[int, bytes]] = field(factory=list)
    size_bytes: int = 0
    _sizes: dict[bytes, int] = field(factory=dict)

    def load(self) -> None:
        """Load the buffered changes from the store."""
        self.places.clear()
        for key_bytes, row in self.store.all():
            self.places.append((row[PLACE], key_bytes))
            self._weigh(key_bytes, row)
        heapify(self.places)

    def put(self, key_bytes: bytes, row: Buffered) -> None:
        """Add a change, which replaces the previous change of the key."""
        self.store.put(key_bytes, row)
        if self.is_weighed:
            self._weigh(key_bytes, row)

    def evict(self, emit: _EmitBuffered) -> None:
        """Emit the first change and then remove it; if emitting fails, the change stays in the buffer."""
        key_bytes = self.places[0][1]
        emit(key_bytes, self.store.get(key_bytes))
        heappop(self.places)
        self.store.put(key_bytes, None)
        if self.is_weighed:
            self.size_bytes -= self._sizes.pop(key_bytes)

    def _weigh(self, key_bytes: bytes, row: Buffered) -> None:
        """Update the size of the buffer in bytes for a new or replaced row, counted as in Kafka Streams."""
        if not self.is_weighed:
            return
        prior, old, new = map(self.value_serde.serialize, row[VALUES:])
        size = _ROW_BYTES + len(key_bytes) + len(prior or b"") + len(new or b"")
        if old != prior:
            size += len(old or b"")
        if row[ORIGIN] is not None:
            size += len(row[ORIGIN].topic)
        for name, content in row[HEADERS] or ():
            size += len(name) + len(content or b"")
        self.size_bytes += size - self._sizes.get(key_bytes, 0)
        self._sizes[key_bytes] = size


@frozen
class SuppressedValues:
    """A lookup for a suppressed table: the last emitted value of a buffered key, otherwise the row of the parent."""

    parent: TableValues
    store: str
    key_serde: Serde[Any]

    @property
    def stores(self) -> tuple[str, ...]:
        """Return the names of the buffer's store and the parent's stores."""
        return (self.store, *self.parent.stores)

    def getter(self, context: NodeContext, *, undeleted: bool = False) -> Getter:
        held = context.stores[self.store].get
        to_bytes = self.key_serde.serialize
        read = self.parent.getter(context, undeleted=undeleted)

        def get(key: Any) -> Pair | None:
            row = held(to_bytes(key))
            if row is None:
                return read(key)
            return None if row[_PRIOR] is None else (row[_PRIOR], _UNKNOWN_MS)

        return get

    def time_getter(self, context: NodeContext) -> TimeGetter | None:
        """Return None, since a suppressed table keeps no history."""
        return None
