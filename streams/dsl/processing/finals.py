"""Metrics of the final results that windowed aggregations emit when a window closes (KIP-825)."""

from collections.abc import Callable

from streams.core.blocks.records import NO_TIMESTAMP, Headers
from streams.core.metrics import table
from streams.topology import NodeClock, NodeMetrics, StreamTime

#: Emits all windows that start, or sessions that end, at a time or earlier; returns how many there were.
EmitUntil = Callable[[int, Headers | None], int]


def restored_emitted_time(clock: NodeClock, store: str, time: StreamTime, closes_after_ms: int) -> StreamTime:
    """Return the time up to which closed windows of a store have been emitted.

    Stream time is at least ``closes_after_ms`` later, so that no record is added to a window that was emitted.  Kafka
    Streams, which may have made the last commit, keeps no stream time of an operator.
    """
    emitted = clock.emitted_time(store)
    if emitted.ms != NO_TIMESTAMP:
        time.ms = max(time.ms, emitted.ms + closes_after_ms)
    return emitted


def measured(
    metrics: NodeMetrics, emit_until: EmitUntil, *, emits_on_close: bool = True
) -> Callable[[int, Headers | None], bool]:
    """Wrap ``emit_until`` to count its results and measure its duration; the wrapper returns whether it emitted any.

    Without ``emits_on_close`` the node has no such metrics, and the returned function emits nothing.
    """
    if not emits_on_close:
        return lambda last_ms, headers: False
    emitted = metrics.counter(table.FINAL_EMITTED)
    if not metrics.records(table.FINAL_EMIT_TIME):

        def emit(last_ms: int, headers: Headers | None) -> bool:
            count = emit_until(last_ms, headers)
            emitted.value += count
            return count > 0

        return emit
    watch = metrics.stopwatch(table.FINAL_EMIT_TIME)

    def emit_timed(last_ms: int, headers: Headers | None) -> bool:
        with watch:
            count = emit_until(last_ms, headers)
        emitted.value += count
        return count > 0

    return emit_timed
