"""Joins of two streams within a window of time.

Each side forwards a record to its join node first and keeps it afterwards; the join node looks
into the store of the other side.  In left and outer joins a record without a partner waits
until its window has closed; results that were not joined go out in order of time, side and key
with the next record that moves stream time (KIP-633).
"""

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from streams.core.records import Headers
from streams.core.serdes import Serde
from streams.core.windows import JoinWindows
from streams.dsl.operators.joining import KeyedJoiner, joined_text, reversed_joiner, two_value_joiner
from streams.dsl.operators.unmatched import Unmatched, shared_unmatched
from streams.topology.operator import NodeContext, Process, StoreNaming
from streams.topology.template import Template, filled

_NULL = "null key or value"
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

_KEEP = """
-> {k}, {v}, {t}, {h}
if {k} is not None:
    $append({k}, {v}, {t})
"""
_FIND = """
if {k} is None or {v} is None:
    $drop($null)
else:
    $first = {t} - BEFORE
    $last = {t} + AFTER
    for $at, $other in $find({k}, $first if $first > 0 else 0, $last if $last > 0 else 0):
        $joined = JOINED
        if $at < {t}: $at = {t}
        -> {k}, $joined, $at, {h}
"""


@frozen
class JoinBuffer:
    """Forwards a record and then keeps it for the other side of a join."""

    store_naming: ClassVar = _JOIN_STORES

    store: str

    def template(self, _: Callable[[str], bool]) -> Template:
        """Return the operator as text."""
        return Template(_KEEP, lambda context: {"append": context.store(self.store).append})

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        return self.template(context.caches).bind_alone(context)


@frozen
class StreamStreamJoin:
    """One side of a join: looks for partners in the other side's store.

    ``joiner`` takes (left, right), or (key, left, right) if ``with_key``, on either side.
    ``is_outer``: this side's records also go out without a partner.  ``name`` is that of the join.
    Both sides of a left or outer join name the same ``outer_store``, made by ``unmatched_store``,
    and the serde of their keys.
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

    def template(self, _: Callable[[str], bool]) -> Template | None:
        """Return the operator as text, None if one of the sides may be missing."""
        if self.outer_store is not None:
            return None
        before_ms, after_ms = self._reach()
        left, right = ("{v}", "$other") if self.is_left_side else ("$other", "{v}")
        joined = joined_text(self.with_key, left, right)
        text = filled(_FIND, {"BEFORE": str(before_ms), "AFTER": str(after_ms), "JOINED": joined})

        def names(context: NodeContext) -> dict[str, Any]:
            find = context.store(self.other_store).rows_in_range
            return {"drop": context.drop, "find": find, "join": self.joiner, "null": _NULL}

        return Template(text, names)

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        template = self.template(context.caches)
        if template is not None:
            return template.bind_alone(context)
        assert self.outer_store is not None
        assert self.key_serde is not None, "the outer store needs the serde of the keys"
        return self._bind_outer(context, shared_unmatched(context, self.outer_store, self.key_serde))

    def _reach(self) -> tuple[int, int]:
        """Return how far before and after a record of this side its partners may lie."""
        windows = self.windows
        if self.is_left_side:
            return windows.before_ms, windows.after_ms
        return windows.after_ms, windows.before_ms

    def _joiner(self) -> KeyedJoiner:
        """Return the joiner as a function of (key, this, other)."""
        make = two_value_joiner if self.is_left_side else reversed_joiner
        return make(self.joiner, self.with_key)

    def _bind_outer(self, context: NodeContext, unmatched: Unmatched) -> Process:
        find, forward, drop = context.store(self.other_store).rows_in_range, context.forward, context.drop
        before_ms, after_ms = self._reach()
        join, is_outer, is_left = self._joiner(), self.is_outer, self.is_left_side
        is_other_left = not is_left
        time = context.stream_time()
        emit_closed = self._closer(context, unmatched)
        discard = unmatched.discard

        def restore() -> None:
            unmatched.load()
            unmatched.stream_time_ms = max(unmatched.stream_time_ms, time.ms)

        context.on_init(restore)
        if is_left:
            # One of the two keeps it for both.
            unmatched.earliest = context.stream_time("earliest")

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if timestamp_ms > unmatched.stream_time_ms:
                unmatched.stream_time_ms = time.ms = timestamp_ms
            if key is None or value is None:
                if is_outer and value is not None:
                    forward(key, join(key, value, None), timestamp_ms, headers)
                else:
                    drop(_NULL)
                return
            if timestamp_ms == unmatched.stream_time_ms:
                emit_closed(timestamp_ms, headers)
            first_ms, last_ms = timestamp_ms - before_ms, timestamp_ms + after_ms
            if last_ms < 0:
                last_ms = 0
            is_alone = True
            for other_ms, other in find(key, first_ms if first_ms > 0 else 0, last_ms):
                is_alone = False
                if unmatched.has_any(is_other_left):
                    discard(is_other_left, key, other_ms)
                joined_ms = other_ms if other_ms > timestamp_ms else timestamp_ms
                forward(key, join(key, value, other), joined_ms, headers)
            if is_alone and is_outer:
                if last_ms < unmatched.stream_time_ms:
                    # Its window lies in the past: it would not be found again.
                    forward(key, join(key, value, None), timestamp_ms, headers)
                else:
                    unmatched.add(is_left, key, value, timestamp_ms)

        return process

    def _closer(self, context: NodeContext, unmatched: Unmatched) -> Callable[[int, Headers | None], None]:
        """Return a function that emits waiting records whose window has closed by a stream time."""
        forward, windows = context.forward, self.windows
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

        if self.is_left_side:
            context.on_final_flush(lambda: emit_closed(_NEVER_MS, None))
        return emit_closed


@frozen
class StreamSelfJoin:
    """An inner join of a stream with itself over one store (KIP-862, optimized topologies).

    ``retention_ms`` is that of the store: before, after and grace together.
    """

    store_naming: ClassVar = _JOIN_STORES

    store: str
    windows: JoinWindows
    joiner: Callable[..., Any]
    with_key: bool
    retention_ms: int

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        find, forward, drop = context.store(self.store).fetch_range, context.forward, context.drop
        before_ms, after_ms, retention_ms = self.windows.before_ms, self.windows.after_ms, self.retention_ms
        join, time = two_value_joiner(self.joiner, self.with_key), context.stream_time()

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None or value is None:
                drop(_NULL)
                return
            itself = join(key, value, value)
            if timestamp_ms > time.ms:
                time.ms = timestamp_ms
            # A record that the store would refuse does not meet itself either.
            has_met_itself = timestamp_ms <= time.ms - retention_ms + 1
            for other_ms, other in find(key, max(0, timestamp_ms - before_ms), max(0, timestamp_ms + after_ms)):
                forward(key, join(key, value, other), max(timestamp_ms, other_ms), headers)
            for other_ms, other in find(key, max(0, timestamp_ms - after_ms), max(0, timestamp_ms + before_ms)):
                if other_ms > timestamp_ms and not has_met_itself:
                    has_met_itself = True
                    forward(key, itself, timestamp_ms, headers)
                forward(key, join(key, other, value), max(timestamp_ms, other_ms), headers)
            if not has_met_itself:
                forward(key, itself, timestamp_ms, headers)

        return process
