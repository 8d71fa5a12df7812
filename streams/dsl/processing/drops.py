"""Dropping of records by operators: a dropped record is counted by reason, and forwarded to side outputs."""

from typing import Any

from streams.core.blocks.records import NO_TIMESTAMP, Headers, Window
from streams.core.inlining import inlined
from streams.core.metrics import DropReason
from streams.topology import Lost, NodeContext


def dropper(context: NodeContext) -> Lost:
    """Return the function that drops a record; for a late record, it also takes the window and times of ``Lost``."""
    count = context.metrics.drop
    count_late = context.metrics.late
    lost = context.output.side_output()

    @inlined
    def drop(
        reason: DropReason,
        key: Any,
        value: Any,
        timestamp_ms: int,
        headers: Headers | None,
        window: Window | None = None,
        closed_ms: int = NO_TIMESTAMP,
        stream_time_ms: int = NO_TIMESTAMP,
    ) -> None:
        count(reason)
        if closed_ms != NO_TIMESTAMP and closed_ms <= stream_time_ms:
            count_late(stream_time_ms - closed_ms)
        if lost is not None:
            lost(reason, key, value, timestamp_ms, headers, window, closed_ms, stream_time_ms)

    return drop
