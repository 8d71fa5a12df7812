"""Aggregates over sessions: a record merges all sessions of its key within the gap into one session.

These sessions are merged in the order of the store, and the record is added last.  The old sessions are deleted unless
the merged session has the same bounds.  A session is closed when stream time is more than gap plus grace after its end
(KIP-94, KIP-825).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import frozen

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.loops import session_windowed
from streams.core.blocks.records import Headers, Window
from streams.core.event_time.windows import SessionWindows
from streams.core.metrics import DropReason
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.emission import emit_nothing, table_emit
from streams.dsl.processing.finals import measured, restored_emitted_time
from streams.dsl.processing.folds import Fold
from streams.topology import NodeContext, Process, StreamTime


@frozen
class SessionAggregate:
    """The operator that folds the values of each session; ``fold`` must have a merger."""

    store: str
    windows: SessionWindows
    fold: Fold
    send_old: bool = False
    emit_on_close: bool = False

    @property
    def keeps_back_ms(self) -> int:
        """The maximum time in milliseconds by which the timestamp of a result may lag stream time."""
        return self.windows.gap_ms + self.windows.grace_ms + 1 if self.emit_on_close else 0

    @property
    def ignores_values(self) -> bool:
        """Whether the aggregate is independent of the values of records, as for ``count``."""
        return self.fold.ignores_values

    def bind(self, context: NodeContext) -> Process:
        store = context.stores[self.store]
        find = store.sessions_of
        put = store.put_at
        remove = store.remove_at
        retention_ms = store.spec.retention_ms
        hot = store.hot
        drop = dropper(context)
        time = context.clock.stream_time()
        on_close = self.emit_on_close
        gap_ms = self.windows.gap_ms
        closed_after_ms = gap_ms + self.windows.grace_ms
        initializer, aggregator, merger = self.fold.initializer, self.fold.aggregator, self.fold.merger
        assert merger is not None, "the fold of sessions merges"
        emitted = restored_emitted_time(context.clock, self.store, time, closed_after_ms) if on_close else StreamTime()
        emit_closed = _closer(context, self, time, emitted)
        emit, is_cached = (emit_nothing, False) if on_close else table_emit(context, self.store, self.send_old)
        send_old = self.send_old or is_cached

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                drop(DropReason.NULL_KEY, key, value, timestamp_ms, headers)
                return
            hot.record_ms = timestamp_ms
            if timestamp_ms > time.ms:
                time.ms = timestamp_ms
            if on_close and timestamp_ms - retention_ms >= emitted.ms:
                # Storing this record would expire closed sessions that are not emitted yet, so they are emitted first.
                emit_closed(headers)
            sessions = find(key, timestamp_ms - gap_ms, timestamp_ms + gap_ms)
            start_ms = end_ms = timestamp_ms
            aggregate = initializer()
            for first_ms, last_ms, part in sessions:
                aggregate = merger(key, aggregate, part)
                if first_ms < start_ms:
                    start_ms = first_ms
                if last_ms > end_ms:
                    end_ms = last_ms
            if end_ms < time.ms - closed_after_ms:
                window = Window(start_ms, end_ms)
                closed_ms = end_ms + closed_after_ms
                drop(DropReason.LATE, key, value, timestamp_ms, headers, window, closed_ms, time.ms)
            else:
                old = None
                if start_ms != timestamp_ms or end_ms != timestamp_ms:
                    for first_ms, last_ms, part in sessions:
                        remove(key, first_ms, last_ms)
                        if not on_close:
                            gone = session_windowed(key, first_ms, last_ms)
                            # In Kafka Streams, only results from the cache have headers.
                            old_part = part if send_old else None
                            emit(gone, None, old_part, last_ms, headers if is_cached else None, True)
                elif is_cached and sessions:
                    # Without a cache, a session that keeps its bounds is forwarded without an old value.
                    old = sessions[0][2]
                aggregate = aggregator(key, value, aggregate)
                put(key, start_ms, end_ms, aggregate)
                if not on_close:
                    session = session_windowed(key, start_ms, end_ms)
                    emit(session, aggregate, old, end_ms, headers if is_cached else None, True)
            if on_close:
                emit_closed(headers)

        return process


def _closer(
    context: NodeContext, operator: SessionAggregate, time: StreamTime, emitted: StreamTime
) -> Callable[[Headers | None], bool]:
    """Return a function that emits the sessions closed since its last call, and returns whether there were any.

    Sessions that ended before ``emitted`` have been emitted; ``emitted`` is restored after a restart.
    """
    forward = context.output.forward
    closed_sessions = context.stores[operator.store].sessions_between
    closed_after_ms = operator.windows.gap_ms + operator.windows.grace_ms

    def emit_closed(headers: Headers | None) -> bool:
        close_ms = time.ms - closed_after_ms
        if close_ms <= emitted.ms or close_ms <= 0:
            return False
        has_emitted = emit_until(close_ms - 1, headers)
        emitted.ms = close_ms
        return has_emitted

    def emit_sessions(last_ms: int, headers: Headers | None) -> int:
        count = 0
        for session, aggregate in closed_sessions(max(emitted.ms, 0), last_ms):
            count += 1
            forward(session, (aggregate, None, True), session[1][1], headers)
        return count

    emit_until = measured(context.metrics, emit_sessions, emits_on_close=operator.emit_on_close)

    def advance(stream_time_ms: int) -> bool:
        time.ms = max(time.ms, stream_time_ms)
        return operator.emit_on_close and emit_closed(None)

    context.clock.on_idle(advance)
    if operator.emit_on_close:
        # ``emitted`` is unchanged: if the application continues, these sessions are emitted again when they close.
        context.output.on_final_flush(partial(emit_until, MAX_TIME_MS, None))
    return emit_closed
