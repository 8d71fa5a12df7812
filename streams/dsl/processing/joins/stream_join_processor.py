"""Joins of two streams within a time window.

Each side forwards a record to its join node first and stores the record afterwards; the join node reads the store of
the other side.  In left and outer joins, an unmatched record is buffered until its window has closed, unless the
windows are eager.  Results without a match are emitted in the order of time, side and key, with the next record that
advances stream time (KIP-633).
"""

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from streams.core.blocks.records import Headers
from streams.core.event_time.windows import JoinWindows
from streams.core.metrics import DropReason
from streams.core.serdes.serdes import Serde
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.joins.joining import KeyedJoiner, reversed_joiner, two_value_joiner
from streams.dsl.processing.joins.unmatched import Unmatched, shared_unmatched
from streams.topology import NodeContext, Process, StoreNaming, StreamTime

_NEVER_MS = 1 << 63
_JOIN_STORES = StoreNaming(
    "store",
    (
        "-left-shared-join-store",
        "-outer-shared-join-store",
        "-outer-other-join-store",
        "-outer-this-join-store",
        "-other-join-store",
        "-this-join-store",
    ),
)


@frozen
class JoinBuffer:
    """Forwards a record to its join node, and then stores it for the other side of the join."""

    store_naming: ClassVar = _JOIN_STORES

    store: str

    def bind(self, context: NodeContext) -> Process:
        store = context.stores[self.store]
        forward = context.output.forward
        append = store.append
        lost = context.output.side_output()
        retention_ms = store.spec.retention_ms
        hidden = context.metrics.tally(DropReason.EXPIRED)

        def advance(stream_time_ms: int) -> bool:
            # Older records are refused, and older entries expire.
            store.observe(stream_time_ms)
            return False

        context.clock.on_idle(advance)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            forward(key, value, timestamp_ms, headers)
            if key is None:
                return
            expired = store.expired
            append(key, value, timestamp_ms)
            time_ms = store.observed_stream_time_ms
            if timestamp_ms + retention_ms <= time_ms:
                # The other side does not find the record. The store counts it only if its whole segment has expired.
                if store.expired == expired:
                    hidden.add(1)
                if lost is not None:
                    closed_ms = timestamp_ms + retention_ms
                    lost(DropReason.EXPIRED, key, value, timestamp_ms, headers, None, closed_ms, time_ms)

        return process


@frozen
class StreamStreamJoin:
    """One side of a stream-stream join, which finds matches in the store of the other side.

    ``joiner`` takes (left, right), or (key, left, right) if ``with_key``, on either side.
    With ``is_outer``, records of this side are also emitted without a match.  ``name`` is the name of the join.
    Both sides of a left or outer join have the same ``outer_store``, with the spec of ``unmatched_store``,
    and the same key serde.  Without an outer store, a record without a match is emitted at once.
    """

    store_naming: ClassVar = _JOIN_STORES

    name: str
    other_store: str
    windows: JoinWindows
    joiner: Callable[..., Any]
    with_key: bool
    is_left_side: bool
    is_outer: bool = False
    outer_store: str | None = None
    key_serde: Serde[Any] | None = None

    @property
    def keeps_back_ms(self) -> int:
        """The maximum time in milliseconds by which the timestamp of a result may lag stream time."""
        return self.windows.size_ms + self.windows.grace_ms if self.outer_store is not None else 0

    def _reach(self) -> tuple[int, int]:
        """Return by how many milliseconds a match may be before, and after, a record of this side."""
        windows = self.windows
        if self.is_left_side:
            return windows.before_ms, windows.after_ms
        return windows.after_ms, windows.before_ms

    def _joiner(self) -> KeyedJoiner:
        """Return the joiner as a function that takes (key, this value, other value)."""
        make = two_value_joiner if self.is_left_side else reversed_joiner
        return make(self.joiner, self.with_key)

    def bind(self, context: NodeContext) -> Process:
        find = context.stores[self.other_store].rows_in_range
        forward = context.output.forward
        drop = dropper(context)
        before_ms, after_ms = self._reach()
        join = self._joiner()
        is_outer = self.is_outer
        is_left = self.is_left_side
        is_other_left = not is_left
        time = context.clock.stream_time()
        unmatched = self._open_unmatched(context, time)
        emit_closed = _ignore if unmatched is None else self._closer(context, unmatched, time)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if unmatched is not None and timestamp_ms > unmatched.stream_time_ms:
                unmatched.stream_time_ms = time.ms = timestamp_ms
            if key is None or value is None:
                if is_outer and value is not None:
                    forward(key, join(key, value, None), timestamp_ms, headers)
                    return
                reason = DropReason.NULL_KEY if key is None else DropReason.NULL_VALUE
                drop(reason, key, value, timestamp_ms, headers)
                return
            if unmatched is not None and timestamp_ms == unmatched.stream_time_ms:
                emit_closed(timestamp_ms, headers)
            first_ms = timestamp_ms - before_ms
            last_ms = timestamp_ms + after_ms
            is_alone = True
            for other_ms, other in find(key, first_ms, last_ms):
                is_alone = False
                if unmatched is not None and unmatched.has_any(is_other_left):
                    unmatched.discard(is_other_left, key, other_ms)
                joined = join(key, value, other)
                forward(key, joined, other_ms if other_ms > timestamp_ms else timestamp_ms, headers)
            if is_outer and is_alone:
                if unmatched is None or last_ms < unmatched.stream_time_ms:
                    # Kafka Streams does not wait for the grace period here: a late match is emitted as well.
                    forward(key, join(key, value, None), timestamp_ms, headers)
                else:
                    unmatched.add(is_left, key, value, timestamp_ms)

        return process

    def _open_unmatched(self, context: NodeContext, time: StreamTime) -> Unmatched | None:
        """Return the unmatched records of the join, or None for an inner join."""
        if self.outer_store is None:
            return None
        assert self.key_serde is not None, "the outer store needs the serde of the keys"
        unmatched = shared_unmatched(context.stores, self.outer_store, self.key_serde)

        def restore() -> None:
            unmatched.load()
            unmatched.stream_time_ms = max(unmatched.stream_time_ms, time.ms)

        context.on_init(restore)
        if self.is_left_side:
            # One of the two sides stores the time for both.
            unmatched.earliest = context.clock.stream_time("earliest")
        return unmatched

    def _closer(
        self, context: NodeContext, unmatched: Unmatched, time: StreamTime
    ) -> Callable[[int, Headers | None], None]:
        """Return a function that emits the unmatched records whose window has closed at a given stream time."""
        forward = context.output.forward
        windows = self.windows
        join = two_value_joiner(self.joiner, self.with_key)
        _, after_ms = self._reach()
        due_after_ms = after_ms + windows.grace_ms
        left_reach_ms = windows.after_ms + windows.grace_ms
        right_reach_ms = windows.before_ms + windows.grace_ms

        def emit_closed(stream_time_ms: int, headers: Headers | None) -> None:
            earliest_ms = unmatched.earliest.ms
            if earliest_ms < 0 or earliest_ms + due_after_ms >= stream_time_ms:
                return

            def emit(key: Any, left: Any, right: Any, time_ms: int) -> None:
                forward(key, join(key, left, right), time_ms, headers)

            unmatched.emit_due(stream_time_ms - left_reach_ms, stream_time_ms - right_reach_ms, emit)

        def advance(stream_time_ms: int) -> bool:
            unmatched.stream_time_ms = time.ms = max(unmatched.stream_time_ms, stream_time_ms)
            before_ms = unmatched.earliest.ms
            emit_closed(time.ms, None)
            return unmatched.earliest.ms != before_ms

        if self.is_left_side:
            context.output.on_final_flush(lambda: emit_closed(_NEVER_MS, None))
            context.clock.on_idle(advance, self.outer_store)
        return emit_closed


def _ignore(_: int, __: Headers | None) -> None:
    """Emit nothing, because an inner join keeps no unmatched records."""


@frozen
class StreamSelfJoin:
    """An inner join of a stream with itself, with a single store (KIP-862, optimized topologies).

    ``retention_ms`` is the retention of the store: the sum of the times before and after a record and the grace period.
    """

    store_naming: ClassVar = _JOIN_STORES

    store: str
    windows: JoinWindows
    joiner: Callable[..., Any]
    with_key: bool
    retention_ms: int

    def bind(self, context: NodeContext) -> Process:
        find = context.stores[self.store].fetch_range
        forward = context.output.forward
        drop = dropper(context)
        before_ms = self.windows.before_ms
        after_ms = self.windows.after_ms
        retention_ms = self.retention_ms
        join = two_value_joiner(self.joiner, self.with_key)
        time = context.clock.stream_time()
        excludes_itself = before_ms < 0 or after_ms < 0

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None or value is None:
                reason = DropReason.NULL_KEY if key is None else DropReason.NULL_VALUE
                drop(reason, key, value, timestamp_ms, headers)
                return
            itself = join(key, value, value)
            if timestamp_ms > time.ms:
                time.ms = timestamp_ms
            # A record that the store would drop as expired is not joined with itself, nor any with a negative bound.
            has_met_itself = excludes_itself or timestamp_ms <= time.ms - retention_ms + 1
            for other_ms, other in find(key, timestamp_ms - before_ms, timestamp_ms + after_ms):
                forward(key, join(key, value, other), max(timestamp_ms, other_ms), headers)
            for other_ms, other in find(key, timestamp_ms - after_ms, timestamp_ms + before_ms):
                if other_ms > timestamp_ms and not has_met_itself:
                    has_met_itself = True
                    forward(key, itself, timestamp_ms, headers)
                forward(key, join(key, other, value), max(timestamp_ms, other_ms), headers)
            if not has_met_itself:
                forward(key, itself, timestamp_ms, headers)

        return process
