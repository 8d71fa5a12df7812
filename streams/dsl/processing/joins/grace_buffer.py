"""Buffer of stream records that join a versioned table after a grace period (KIP-923).

A record is evicted and joined when its timestamp is at or before stream time minus the grace period; a record that is
already later than this is joined immediately.  Records are evicted in the order of time, key bytes and arrival.

Keys and values have the bytes of Kafka Streams.  A store key consists of a zero byte, the time (8 bytes), the key bytes
and a sequence number (4 bytes); a value is a buffered record (``buffered``) with a new value only, and without a time
that orders it.  The next key to evict comes from a heap of all store keys, built when the task opens the store.
"""

from functools import partial
from heapq import heapify, heappop, heappush
from struct import Struct
from typing import Any

from attrs import define, field

from streams.core.blocks.records import Headers
from streams.core.errors import StreamsError
from streams.core.serdes.serdes import Serde
from streams.dsl.processing.buffered import HEADERS, ORIGIN, TIME, VALUES
from streams.dsl.processing.emission import release
from streams.topology import NodeContext, Process

#: A zero byte, as in front of all keys by time, and the time.
_TIME = Struct(">xq")
#: Position of the new value.
_NEW = VALUES + 2
_SEQUENCE = Struct(">i")
_MAX_SEQUENCE = (1 << 31) - 1
_NEVER_MS = 1 << 63


@define(eq=False)
class GraceBuffer:
    """The buffer of stream records for one join in one task."""

    store: Any
    key_serde: Serde[Any]
    grace_ms: int
    #: Joins one record.
    joined: Process
    _waiting: list[bytes] = field(factory=list)
    _sequence: int = 0

    def open(self, context: NodeContext) -> Process:
        """Return the function that buffers a record and evicts the records whose grace period has ended."""
        time = context.clock.stream_time("buffered")
        waiting, joined, grace_ms = self._waiting, self.joined, self.grace_ms
        context.on_init(self._load)
        origin_of = context.output.current.metadata
        send = release(context.output, joined)

        def evict(until_ms: int) -> bool:
            count = len(waiting)
            while waiting and _TIME.unpack_from(waiting[0])[0] <= until_ms:
                data = waiting[0]
                row = self.store.get(data)
                key = self.key_serde.deserialize(data[_TIME.size : -_SEQUENCE.size])
                send(row[ORIGIN], key, row[_NEW], row[TIME], row[HEADERS])
                heappop(waiting)
                self.store.put(data, None)
            return len(waiting) < count

        def advance(stream_time_ms: int) -> bool:
            time.ms = max(time.ms, stream_time_ms)
            return evict(time.ms - grace_ms)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                raise StreamsError(
                    f"node {context.node!r}: a record without key cannot wait in a join with grace; "
                    "filter such records out"
                )
            if timestamp_ms < time.ms - grace_ms:
                joined(key, value, timestamp_ms, headers)
                return
            if timestamp_ms > time.ms:
                time.ms = timestamp_ms
            self._sequence = (self._sequence + 1) & _MAX_SEQUENCE
            key_bytes = self.key_serde.serialize(key)
            assert key_bytes is not None
            data = _TIME.pack(timestamp_ms) + key_bytes + _SEQUENCE.pack(self._sequence)
            self.store.put(data, (origin_of(), 0, timestamp_ms, headers, None, None, value))
            heappush(waiting, data)
            evict(time.ms - grace_ms)

        context.clock.on_idle(advance)
        context.output.on_final_flush(partial(evict, _NEVER_MS))
        return process

    def _load(self) -> None:
        """Load the buffered records from the store."""
        self._waiting[:] = [data for data, _ in self.store.all()]
        heapify(self._waiting)
        self._sequence = max((_SEQUENCE.unpack(data[-_SEQUENCE.size :])[0] for data in self._waiting), default=0)
