"""Aggregates over sessions: a record joins all sessions of its key within the gap into one.

The sessions found are merged in the order of the store, the record is added last, and the old
sessions are deleted unless the result has the very bounds of the one it replaces.  A session
whose end lies more than gap and grace behind stream time is closed (KIP-94, KIP-825).
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen

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
    session_of,
    zero,
)
from streams.topology.operator import NodeContext, Process


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

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        return _emitting_on_close(context, self) if self.emit_on_close else _emitting_updates(context, self)


@frozen
class SessionCount:
    """Number of records per session."""

    store: str
    windows: SessionWindows
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        full = SessionAggregate(self.store, self.windows, zero, counting, _sum, self.send_old, self.emit_on_close)
        return full.bind(context)


@frozen
class SessionReduce:
    """Values of a session combined by ``reducer(old, new)``."""

    store: str
    windows: SessionWindows
    reducer: Callable[[Any, Any], Any]
    send_old: bool = False
    emit_on_close: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        aggregator = reducing(self.reducer)

        def merge(key: Any, left: Any, right: Any) -> Any:
            return aggregator(key, right, left)

        full = SessionAggregate(self.store, self.windows, nothing, aggregator, merge, self.send_old, self.emit_on_close)
        return full.bind(context)


def _sum(_: Any, left: int, right: int) -> int:
    return left + right


def _emitting_updates(context: NodeContext, operator: SessionAggregate) -> Process:
    store = context.store(operator.store)
    find, put, remove = store.sessions_of, store.put_at, store.remove_at
    emit, is_cached = table_emit(context, operator.store, operator.send_old)
    drop, time = context.drop, context.stream_time()
    gap_ms = operator.windows.gap_ms
    closed_after_ms = gap_ms + operator.windows.grace_ms
    initializer, aggregator, merger = operator.initializer, operator.aggregator, operator.merger
    send_old = operator.send_old or is_cached

    # Results carry the session's end as their time and, in the reference, headers only from the cache.
    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        if key is None:
            drop(NULL_KEY)
            return
        if timestamp_ms > time.ms:
            time.ms = timestamp_ms
        aggregate = initializer()
        start_ms = end_ms = timestamp_ms
        found = find(key, timestamp_ms - gap_ms, timestamp_ms + gap_ms)
        for first_ms, last_ms, part in found:
            aggregate = merger(key, aggregate, part)
            if first_ms < start_ms:
                start_ms = first_ms
            if last_ms > end_ms:
                end_ms = last_ms
        if end_ms < time.ms - closed_after_ms:
            drop(EXPIRED)
            return
        if not is_cached:
            headers = None
        old = None
        if start_ms != timestamp_ms or end_ms != timestamp_ms:
            for first_ms, last_ms, part in found:
                remove(key, first_ms, last_ms)
                emit(session_of(key, first_ms, last_ms), None, part if send_old else None, last_ms, headers, True)
        elif found and is_cached:
            # Where a session keeps its bounds the uncached operator sends no old value.
            old = found[0][2]
        aggregate = aggregator(key, value, aggregate)
        put(key, start_ms, end_ms, aggregate)
        emit(session_of(key, start_ms, end_ms), aggregate, old, end_ms, headers, True)

    return process


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
