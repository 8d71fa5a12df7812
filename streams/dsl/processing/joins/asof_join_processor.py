"""As-of joins: each left record is joined with the latest right record at or before it, or the first at or after it.

A left record is buffered until no right record can change its match: until stream time has passed the record's time
plus the grace period.  With ``is_forward``, it is buffered until stream time has passed the time of its first match, or
the end of its tolerance, plus the grace period.  So results do not depend on which side is read first.  Both sides
advance the stream time.  A window store keeps right records for the tolerance plus the grace period of stream time.
Another store keeps the buffered left records by time and key.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from struct import Struct
from typing import Any, ClassVar

from attrs import define, field, frozen

from streams.core.blocks.marks import Format
from streams.core.blocks.records import Headers
from streams.core.metrics import Counter, DropReason
from streams.core.serdes.serdes import Serde
from streams.dsl.processing.buffered import HEADERS, ORIGIN, TIME, VALUES
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.emission import Release, release
from streams.dsl.processing.joins.joining import two_value_joiner
from streams.topology import NodeContext, Process, StoreNaming, StreamTime

WAITING_LEFT = Format("record that waits for its latest match", "A", 1)

_TIME = Struct(">q")
_SEQUENCE = Struct(">i")
_NEVER_MS = 1 << 63
_STORES = StoreNaming("store", ("-right-store", "-left-store"))


@frozen
class AsOf:
    """The definition of an as-of join, which is shared by its two sides.

    ``joiner`` takes (left, right), or (key, left, right) if ``with_key``.  With ``is_left_join``, a left record without
    a match is joined with None.
    """

    name: str
    rights: str
    lefts: str
    joiner: Callable[..., Any]
    with_key: bool
    tolerance_ms: int
    grace_ms: int
    is_forward: bool
    is_left_join: bool
    key_serde: Serde[Any]

    @property
    def kept_ms(self) -> int:
        """The time in milliseconds by which a record of either side may be behind stream time and still be joined."""
        return self.tolerance_ms + self.grace_ms


@define(eq=False)
class _Waiting:
    """The buffered left records of one task, and the stream time of both sides."""

    join: AsOf
    store: Any
    rights: Any
    time: StreamTime
    #: (due time, store key) as a heap; an entry is skipped if the due time of the record has changed since.
    _heap: list[tuple[int, bytes]] = field(factory=list)
    _due: dict[bytes, int] = field(factory=dict)
    #: Store keys by key bytes; only for forward joins, in which a right record may make a left record due earlier.
    _of_key: dict[bytes, set[bytes]] = field(factory=dict)
    #: The latest sequence number by time and key bytes.  It depends only on the buffered records, so a restored task,
    #: or a task of the next slice of a replay, gives a record the same store key as a task that was never stopped.
    _latest: dict[bytes, int] = field(factory=dict)

    def load(self) -> None:
        """Load the buffered left records from the store."""
        self._due.clear()
        self._of_key.clear()
        self._latest.clear()
        for place, row in self.store.all():
            key = self.join.key_serde.deserialize(place[_TIME.size : -_SEQUENCE.size])
            self._schedule(place, self.due_ms(key, row[TIME]))
            prefix = place[: -_SEQUENCE.size]
            sequence = _SEQUENCE.unpack(place[-_SEQUENCE.size :])[0]
            self._latest[prefix] = max(self._latest.get(prefix, 0), sequence)
        self._heap[:] = [(due_ms, place) for place, due_ms in self._due.items()]
        heapify(self._heap)

    def match(self, key: Any, time_ms: int) -> tuple[int, Any] | None:
        """Return the (time, value) of the right record that matches a left record so far, or None."""
        tolerance_ms = self.join.tolerance_ms
        if self.join.is_forward:
            right: tuple[int, Any] | None = self.rights.first_in(key, max(time_ms, 0), time_ms + tolerance_ms)
        else:
            right = self.rights.last_in(key, max(time_ms - tolerance_ms, 0), time_ms)
        return right

    def due_ms(self, key: Any, time_ms: int) -> int:
        """Return the due time of a left record: its match is certain once stream time has passed this time."""
        if not self.join.is_forward:
            return time_ms + self.join.grace_ms
        right = self.match(key, time_ms)
        return (time_ms + self.join.tolerance_ms if right is None else right[0]) + self.join.grace_ms

    def add(self, row: tuple[Any, ...], key: Any, due_ms: int) -> None:
        """Buffer a left record until stream time has passed ``due_ms``."""
        key_bytes = self.join.key_serde.serialize(key)
        assert key_bytes is not None
        prefix = _TIME.pack(row[TIME]) + key_bytes
        sequence = self._latest[prefix] = self._latest.get(prefix, 0) + 1
        place = prefix + _SEQUENCE.pack(sequence)
        self.store.put(place, row)
        self._schedule(place, due_ms)
        heappush(self._heap, (due_ms, place))

    def _schedule(self, place: bytes, due_ms: int) -> None:
        self._due[place] = due_ms
        if self.join.is_forward:
            self._of_key.setdefault(place[_TIME.size : -_SEQUENCE.size], set()).add(place)

    def matched(self, key: Any, time_ms: int) -> None:
        """Make the left records that match a new right record due earlier; only used in forward joins."""
        key_bytes = self.join.key_serde.serialize(key)
        assert key_bytes is not None
        due_ms = time_ms + self.join.grace_ms
        for place in self._of_key.get(key_bytes, ()):
            left_ms = _TIME.unpack_from(place)[0]
            if left_ms <= time_ms <= left_ms + self.join.tolerance_ms and due_ms < self._due[place]:
                self._due[place] = due_ms
                heappush(self._heap, (due_ms, place))

    def advance(self, time_ms: int, send: Release) -> bool:
        """Advance stream time, and join the left records that are due; return whether there were any."""
        if time_ms <= self.time.ms:
            return False
        self.time.ms = time_ms
        return self.release(time_ms, send)

    def release(self, before_ms: int, send: Release) -> bool:
        """Join the left records due before ``before_ms``, in the order of due time, time, key bytes and arrival."""
        heap = self._heap
        is_any = False
        while heap and heap[0][0] < before_ms:
            due_ms, place = heap[0]
            if self._due.get(place) == due_ms:
                is_any = True
                row = self.store.get(place)
                key_bytes = place[_TIME.size : -_SEQUENCE.size]
                send(row[ORIGIN], self.join.key_serde.deserialize(key_bytes), row[VALUES], row[TIME], row[HEADERS])
                self.store.put(place, None)
                del self._due[place]
                # Records with the same time and key are due together, in the order of their sequence numbers.
                if self._latest[place[: -_SEQUENCE.size]] == _SEQUENCE.unpack(place[-_SEQUENCE.size :])[0]:
                    del self._latest[place[: -_SEQUENCE.size]]
                if self.join.is_forward:
                    self._of_key[key_bytes].discard(place)
                    if not self._of_key[key_bytes]:
                        del self._of_key[key_bytes]
            heappop(heap)
        return is_any


def _opened(context: NodeContext, join: AsOf) -> tuple[_Waiting, Process, Release]:
    """Return a task's buffered left records, and two functions: one joins a left record now, one joins it when due."""

    def make() -> _Waiting:
        return _Waiting(join, context.stores[join.lefts], context.stores[join.rights], StreamTime())

    waiting: _Waiting = context.stores.shared(join.lefts, make)
    forward = context.output.forward
    lost = context.output.side_output()
    is_left_join = join.is_left_join
    unjoined = Counter() if is_left_join else context.metrics.tally(DropReason.UNJOINED)
    joiner = two_value_joiner(join.joiner, join.with_key)

    def joined(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        right = waiting.match(key, timestamp_ms)
        if right is not None:
            forward(key, joiner(key, value, right[1]), max(right[0], timestamp_ms), headers)
        elif is_left_join:
            forward(key, joiner(key, value, None), timestamp_ms, headers)
        else:
            unjoined.value += 1
            if lost is not None:
                lost(DropReason.UNJOINED, key, value, timestamp_ms, headers)

    return waiting, joined, release(context.output, joined)


@frozen
class AsOfLeft:
    """The left side of an as-of join, whose records are buffered until they are due."""

    store_naming: ClassVar = _STORES

    join: AsOf

    @property
    def keeps_back_ms(self) -> int:
        """The maximum time in milliseconds by which the timestamp of a result may lag stream time."""
        return self.join.kept_ms if self.join.is_forward else self.join.grace_ms

    @property
    def periods(self) -> dict[str, int]:
        """The declared tolerance and grace period, in milliseconds."""
        return {"tolerance": self.join.tolerance_ms, "grace": self.join.grace_ms}

    @property
    def options(self) -> dict[str, int | str]:
        """The declared direction of the search for a match."""
        return {"direction": "forward" if self.join.is_forward else "backward"}

    def bind(self, context: NodeContext) -> Process:
        join = self.join
        waiting, joined, send = _opened(context, join)
        # One of the two sides stores the time for both.
        time = waiting.time = context.clock.stream_time()
        forward = context.output.forward
        drop = dropper(context)
        kept_ms = join.kept_ms
        is_left_join = join.is_left_join
        joiner = two_value_joiner(join.joiner, join.with_key)
        origin_of = context.output.current.metadata
        advance = waiting.advance
        add = waiting.add
        due_of = waiting.due_ms

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            advance(timestamp_ms, send)
            if key is None or value is None:
                if is_left_join and value is not None:
                    forward(key, joiner(key, value, None), timestamp_ms, headers)
                else:
                    reason = DropReason.NULL_KEY if key is None else DropReason.NULL_VALUE
                    drop(reason, key, value, timestamp_ms, headers)
                return
            if timestamp_ms < time.ms - kept_ms:
                drop(DropReason.LATE, key, value, timestamp_ms, headers, None, timestamp_ms + kept_ms, time.ms)
                return
            due_ms = due_of(key, timestamp_ms)
            if due_ms < time.ms:
                joined(key, value, timestamp_ms, headers)
            else:
                add((origin_of(), timestamp_ms, timestamp_ms, headers, value), key, due_ms)

        context.on_init(waiting.load)
        context.output.on_final_flush(lambda: waiting.release(_NEVER_MS, send))
        context.clock.on_idle(lambda stream_time_ms: waiting.advance(stream_time_ms, send), join.lefts)
        return process


@frozen
class AsOfRight:
    """The right side of an as-of join, whose records are stored as possible matches."""

    store_naming: ClassVar = _STORES

    join: AsOf

    def bind(self, context: NodeContext) -> Process:
        join = self.join
        waiting, _, send = _opened(context, join)
        append = waiting.rights.append
        drop = dropper(context)
        kept_ms = join.kept_ms
        is_forward = join.is_forward
        advance, matched = waiting.advance, waiting.matched

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            # Records that are due are joined first: storing this one may expire their matches.
            advance(timestamp_ms, send)
            if key is None or value is None:
                reason = DropReason.NULL_KEY if key is None else DropReason.NULL_VALUE
                drop(reason, key, value, timestamp_ms, headers)
                return
            if timestamp_ms < waiting.time.ms - kept_ms:
                closed_ms = timestamp_ms + kept_ms
                now_ms = waiting.time.ms
                drop(DropReason.LATE, key, value, timestamp_ms, headers, None, closed_ms, now_ms)
                return
            append(key, value, timestamp_ms)
            if is_forward:
                matched(key, timestamp_ms)

        return process
