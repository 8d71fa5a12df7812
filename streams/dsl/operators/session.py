"""Aggregates over sessions: a record joins all sessions of its key within the gap into one.

The sessions found are merged in the order of the store, the record is added last, and the old
sessions are deleted unless the result has the very bounds of the one it replaces.  A session
whose end lies more than gap and grace behind stream time is closed (KIP-94, KIP-825).
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.core.loops import session_windowed
from streams.core.records import Headers
from streams.core.windows import SessionWindows
from streams.dsl.operators.emission import table_emit
from streams.dsl.operators.windows import (
    EXPIRED,
    MAX_TIME,
    NULL_KEY,
    counting,
    nothing,
    reducing,
    zero,
)
from streams.topology.operator import NodeContext, Process
from streams.topology.template import Template, filled


@frozen
class SessionAggregate:
    """Values of a session folded by ``aggregator(key, value, aggregate)``.

    ``merger(key, left, right)`` unites aggregates, beginning with ``initializer()``.
    """

    store: str
    windows: SessionWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any]
    send_old: bool = False
    emit_on_close: bool = False

    def template(self, caches: Callable[[str], bool]) -> Template | None:
        """Return the operator as text, None if it emits on close."""
        fold = _Fold("$initializer()", "$merger({k}, $sum, $part)", "$aggregator({k}, {v}, $sum)")
        return None if self.emit_on_close else _template(self, fold, caches)

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        template = self.template(context.caches)
        return _emitting_on_close(context, self) if template is None else template.bind_alone(context)


@frozen
class SessionCount:
    """Number of records per session."""

    store: str
    windows: SessionWindows
    send_old: bool = False
    emit_on_close: bool = False

    def template(self, caches: Callable[[str], bool]) -> Template | None:
        """Return the operator as text, None if it emits on close."""
        fold = _Fold("0", "$sum + $part", "$sum + 1", ignores_value=True)
        return None if self.emit_on_close else _template(self._whole, fold, caches)

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        template = self.template(context.caches)
        return self._whole.bind(context) if template is None else template.bind_alone(context)

    @property
    def _whole(self) -> SessionAggregate:
        return SessionAggregate(self.store, self.windows, zero, counting, _sum, self.send_old, self.emit_on_close)


@frozen
class SessionReduce:
    """Values of a session combined by ``reducer(old, new)``."""

    store: str
    windows: SessionWindows
    reducer: Callable[[Any, Any], Any]
    send_old: bool = False
    emit_on_close: bool = False

    def template(self, caches: Callable[[str], bool]) -> Template | None:
        """Return the operator as text, None if it emits on close."""
        return self._whole.template(caches)

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        return self._whole.bind(context)

    @property
    def _whole(self) -> SessionAggregate:
        aggregator = reducing(self.reducer)

        def merge(key: Any, left: Any, right: Any) -> Any:
            return aggregator(key, right, left)

        return SessionAggregate(self.store, self.windows, nothing, aggregator, merge, self.send_old, self.emit_on_close)


def _sum(_: Any, left: int, right: int) -> int:
    return left + right


@frozen
class _Fold:
    """An empty session, the union of two, and a session with one more record, as text."""

    empty: str
    union: str
    one_more: str
    ignores_value: bool = False


# Results carry the session's end as their time and, in the reference, headers only from the cache.
_TEXT = """
if {k} is None:
    $drop($null_key)
else:
    if {t} > $time.ms: $time.ms = {t}
    $found = $find({k}, {t} - GAP, {t} + GAP)
    $start = $end = {t}
    $sum = EMPTY
    for $first, $last, $part in $found:
        $sum = UNION
        if $first < $start: $start = $first
        if $last > $end: $end = $last
    if $end < $time.ms - CLOSED:
        $drop($expired)
    else:
        $old = None
        if $start != {t} or $end != {t}:
            for $first, $last, $part in $found:
                $remove({k}, $first, $last)
                $key = $windowed({k}, $first, $last)
                GONE
        BOUNDS_STAY
        $sum = ONE_MORE
        $put({k}, $start, $end, $sum)
        $key = $windowed({k}, $start, $end)
        CHANGED
"""


def _template(operator: SessionAggregate, fold: _Fold, caches: Callable[[str], bool]) -> Template:
    """Return the text of an aggregate that emits each update, or holds it back in the record cache."""
    gap_ms, is_cached = operator.windows.gap_ms, caches(operator.store)
    words = {
        "GAP": str(gap_ms),
        "CLOSED": str(gap_ms + operator.windows.grace_ms),
        "EMPTY": fold.empty,
        "UNION": fold.union,
        "ONE_MORE": fold.one_more,
    }
    if is_cached:
        words |= {
            "GONE": "$emit($key, None, $part, $last, {h}, True)",
            # Where a session keeps its bounds the uncached operator sends no old value.
            "BOUNDS_STAY": "elif $found: $old = $found[0][2]",
            "CHANGED": "$emit($key, $sum, $old, $end, {h}, True)",
        }
    else:
        words |= {
            "GONE": f"=> $key, None, {'$part' if operator.send_old else None}, $last, None",
            "BOUNDS_STAY": "",
            "CHANGED": "=> $key, $sum, None, $end, None",
        }

    def names(context: NodeContext) -> dict[str, Any]:
        store = context.store(operator.store)
        emit, _ = table_emit(context, operator.store, operator.send_old)
        return {
            "aggregator": operator.aggregator,
            "drop": context.drop,
            "emit": emit,
            "expired": EXPIRED,
            "find": store.sessions_of,
            "initializer": operator.initializer,
            "merger": operator.merger,
            "null_key": NULL_KEY,
            "put": store.put_at,
            "remove": store.remove_at,
            "time": context.stream_time(),
            "windowed": session_windowed,
        }

    return Template(filled(_TEXT, words), names, fold.ignores_value)


def _emitting_on_close(context: NodeContext, operator: SessionAggregate) -> Process:
    """Update silently and emit each session once, when stream time passes its end, the gap and the grace."""
    store = context.store(operator.store)
    find, put, remove, closed_sessions = store.sessions_of, store.put_at, store.remove_at, store.sessions_between
    forward, drop, time = context.forward, context.drop, context.stream_time()
    # Sessions that ended before are emitted; outlives a restart.
    emitted = context.stream_time("emitted")
    gap_ms = operator.windows.gap_ms
    closed_after_ms, retention_ms = gap_ms + operator.windows.grace_ms, store.spec.retention_ms
    initializer, aggregator, merger = operator.initializer, operator.aggregator, operator.merger

    def update(key: Any, value: Any, timestamp_ms: int, close_ms: int) -> None:
        aggregate = initializer()
        start_ms = end_ms = timestamp_ms
        found = find(key, timestamp_ms - gap_ms, timestamp_ms + gap_ms)
        for first_ms, last_ms, part in found:
            aggregate = merger(key, aggregate, part)
            if first_ms < start_ms:
                start_ms = first_ms
            if last_ms > end_ms:
                end_ms = last_ms
        if end_ms < close_ms:
            drop(EXPIRED)
            return
        if start_ms != timestamp_ms or end_ms != timestamp_ms:
            for first_ms, last_ms, _ in found:
                remove(key, first_ms, last_ms)
        put(key, start_ms, end_ms, aggregator(key, value, aggregate))

    def emit_closed(close_ms: int, headers: Headers | None) -> None:
        if close_ms > emitted.ms and close_ms > 0:
            for session, aggregate in closed_sessions(max(emitted.ms, 0), close_ms - 1):
                forward(session, (aggregate, None, True), session[1][1], headers)
            emitted.ms = close_ms

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        if key is None:
            drop(NULL_KEY)
            return
        if timestamp_ms > time.ms:
            time.ms = timestamp_ms
        close_ms = time.ms - closed_after_ms
        if timestamp_ms - retention_ms >= emitted.ms:
            # So far ahead that the store would forget sessions that are still to be emitted.
            emit_closed(close_ms, headers)
        update(key, value, timestamp_ms, close_ms)
        emit_closed(close_ms, headers)

    def flush() -> None:
        # What is open still goes out again when it closes, should the program go on.
        for session, aggregate in closed_sessions(max(emitted.ms, 0), MAX_TIME):
            forward(session, (aggregate, None, True), session[1][1], None)

    context.on_final_flush(flush)
    return process
