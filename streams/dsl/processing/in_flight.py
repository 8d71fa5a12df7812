"""The records of a node whose calls are in flight.

A record whose call is in flight at a commit is kept in the store of the node, in the transaction of that commit.  After
a restart or in another process, the function is called again for it.  A record whose call finishes before the next
commit is never stored.  Flink's async I/O keeps its records in the same way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, TypeAlias

import msgspec
from attrs import define, field

from streams.core.blocks.marks import Format, marked
from streams.core.blocks.records import Headers, RecordContext, RecordMetadata
from streams.core.concurrency.calls import Call, CallOrder, CallOwner
from streams.core.errors import ProcessingError, SerializationError
from streams.core.metrics import Amounts, Counter, table
from streams.core.serdes.serdes import BYTES, Serde
from streams.dsl.processing.portable import portable
from streams.state import KEY_VALUE, StoreSpec
from streams.topology import HeldRecord, HeldState, NodeContext, NodeMetrics

RECORD_IN_FLIGHT = Format("record of a call in flight", "C", 1)

_SEQUENCE = Struct(">q")
#: A stored record: origin, timestamp, headers, key, value, raw key, raw value.
_Row: TypeAlias = tuple[
    tuple[str, int, int] | None, int, Headers | None, bytes | None, bytes | None, bytes | None, bytes | None
]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Row).decode
#: Types of keys that are compared as objects; all other keys are compared by their serialized bytes.
_PLAIN = frozenset((str, int, bytes))
#: Maximum number of records held by a node, as a multiple of its concurrency.  It is above 1 so that a new call can
#: start immediately when another one ends.
_HELD = 2


def in_flight_spec(name: str, key: Serde[Any], value: Serde[Any]) -> StoreSpec:
    """Return the spec of the store for records in flight at a node, given the serdes of the node's input records."""
    write_key, read_key = portable(key)
    write_value, read_value = portable(value)

    def write(row: Any) -> bytes:
        origin, timestamp_ms, headers, key, value, *raw = row
        return _encode((origin, timestamp_ms, headers, write_key(key), write_value(value), *raw))

    def read(data: bytes, start: int) -> Any:
        origin, timestamp_ms, headers, key_bytes, value_bytes, *raw = _decode(memoryview(data)[start:])
        metadata = None if origin is None else RecordMetadata(*origin)
        return metadata, timestamp_ms, headers, read_key(key_bytes), read_value(value_bytes), *raw

    rows = marked(RECORD_IN_FLIGHT, f"{key.name}:{value.name}", write, read, is_immutable=False)
    # With at-least-once a record must not be removed from the changelog before its result is written.
    return StoreSpec(name, KEY_VALUE, BYTES, rows, has_caching=False, is_logged_last=True, is_by_key=False)


def slot_of(serde: Serde[Any]) -> Callable[[Any], Any]:
    """Return a function that maps equal keys to equal, hashable objects; None stays None."""
    to_bytes = serde.serialize
    return lambda key: key if key is None or type(key) in _PLAIN else to_bytes(key)


def lane_of(order: CallOrder, key_serde: Serde[Any]) -> Callable[[Any, RecordMetadata | None], Any]:
    """Return a function from (key, record metadata) to the key or partition whose results stay in order, or None."""
    if order == "key":
        slot = slot_of(key_serde)
        return lambda key, _: slot(key)
    if order == "partition":
        return lambda _, origin: origin and origin[:2]
    return lambda _, __: None


@define(eq=False)
class CallSensors:
    """The metrics of the calls of one node in one task; the task records them when it takes finished calls."""

    latency: Amounts
    retries: Counter
    timeouts: Counter
    failures: Counter

    @classmethod
    def of(cls, metrics: NodeMetrics) -> "CallSensors":
        """Return those of a node; they are registered if they are new."""
        return cls(
            metrics.amounts(table.CALLED),
            metrics.counter(table.CALLS_RETRIED),
            metrics.counter(table.CALLS_TIMED_OUT),
            metrics.counter(table.CALLS_FAILED),
        )

    def note(self, calls: Iterable[Call]) -> None:
        """Record the metrics of finished calls."""
        times = []
        for call in calls:
            times.append(int(call.took_s * 1e9))
            if call.attempts > 1:
                self.retries.value += call.attempts - 1
            if call.timeouts:
                self.timeouts.value += call.timeouts
            if call.error is not None:
                self.failures.value += 1
        if times:
            self.latency.record_each(times)


@define(eq=False)
class RecordsInFlight:
    """The records of one node in one task whose results are not forwarded yet."""

    context: NodeContext
    store: Any
    #: The records by sequence number.
    held: dict[int, Call] = field(factory=dict)
    #: The last sequence number.
    sequence: int = 0
    #: Sequence numbers of stored records whose results are forwarded.
    _obsolete: list[int] = field(factory=list)
    #: The record whose result is being forwarded.
    _delivered: Call | None = None

    def by_lane(self) -> Iterator[tuple[Call, Call | None]]:
        """Yield each call, with the first unfinished earlier call of its lane or None; may be called by any thread."""
        first: dict[Any, Call] = {}
        for call in list(self.held.values()):
            behind = first.get(call.lane)
            if not call.is_done and behind is None and call.lane is not None:
                first[call.lane] = call
            yield call, behind

    def delivered(self) -> Sequence[HeldRecord]:
        """Return the record whose result is being forwarded, or () if there is none."""
        call = self._delivered
        if call is None:
            return ()
        took_ms = round(call.took_s * 1000)
        state = HeldState.DELIVERED
        return (HeldRecord(call.origin, call.value, state, call.attempts, took_ms, error=call.error),)

    def room(self, concurrency: int) -> int:
        """Return the number of further records that the node can accept now; at 0, some calls must finish first."""
        room = _HELD * concurrency - len(self.held)
        # Short runs are inefficient, so accept records only if there is room for a run of some length.
        return room if room > concurrency // 4 else 0

    def forward(self, call: Call, send: Callable[[], None]) -> None:
        """Call ``send``, which forwards a result, with the call's input record as the record context."""
        del self.held[call.sequence]
        if call.is_stored:
            self._obsolete.append(call.sequence)
        where = RecordContext.of(call.origin, call.timestamp_ms, call.headers)
        self._delivered = call
        try:
            self.context.calls.deliver(where, call.raw, send)
        finally:
            self._delivered = None

    def save(self) -> None:
        """Store the records, as part of a commit.

        Raises:
            ProcessingError: a key or value cannot be serialized.
        """
        put = self.store.put
        for number in self._obsolete:
            put(_SEQUENCE.pack(number), None)
        self._obsolete.clear()
        for number, call in self.held.items():
            if not call.is_stored:
                row = (call.origin, call.timestamp_ms, call.headers, call.key, call.value, *call.raw)
                try:
                    put(_SEQUENCE.pack(number), row)
                except SerializationError as error:
                    what = f"the record, whose call is in flight at a commit, cannot be stored: {error}"
                    raise self.failure(call, what) from error
                call.is_stored = True

    def load(self, owner: CallOwner, lane: Callable[[Any, RecordMetadata | None], Any]) -> Iterator[Call]:
        """Yield the records whose calls were in flight at the last commit, in order, as calls of ``owner``."""
        for data, (origin, timestamp_ms, headers, key, value, *raw) in sorted(self.store.all(), key=_row_key):
            (number,) = _SEQUENCE.unpack(data)
            self.sequence = max(self.sequence, number)
            place = lane(key, origin)
            pair = (raw[0], raw[1])
            yield Call(number, key, value, timestamp_ms, headers, origin, owner, pair, place, is_stored=True)

    def failure(self, call: Call | None, what: str) -> ProcessingError:
        """Return the error for a failure outside the user function; without ``call``, it names only the node."""
        origin = None if call is None else call.origin
        topic, partition, offset = origin or (None, None, None)
        where = f" at {topic}-{partition} offset {offset}" if origin else ""
        node = self.context.node
        return ProcessingError(
            f"node {node!r}{where}: {what}", node=node, topic=topic, partition=partition, offset=offset
        )


def _row_key(row: tuple[bytes, Any]) -> bytes:
    return row[0]
