"""How operators send out table changes, and records that they held back.

A change leaves at once, or through the record cache of its store.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from streams.core.records import Headers, RecordContext, RecordMetadata
from streams.topology.operator import NodeContext

#: Sends a table's change: (key, new, old, timestamp_ms, headers, is_latest).
Emit: TypeAlias = Callable[[Any, Any, Any, int, Headers | None, bool], None]
#: Sends a record that was held back: (origin, key, value, timestamp_ms, headers).
Release: TypeAlias = Callable[[RecordMetadata | None, Any, Any, int, Headers | None], None]


def table_emit(context: NodeContext, store: str, send_old: bool) -> tuple[Emit, bool]:
    """Return the function that sends a table's changes, and whether the record cache is behind it.

    The cache must always be told what was stored: it skips a key that came and went between two
    flushes.  An uncached operator sends the initial aggregate as the old value of a new row, and
    no old value at all unless it is asked to.
    """
    return context.table_forward(store, send_old=send_old), context.caches(store)


def emit_nothing(*_: Any) -> None:
    """Take the place of ``emit`` where results wait until their window closes."""


def release(context: NodeContext, forward: Callable[[Any, Any, int, Headers | None], None]) -> Release:
    """Return ``forward`` for records held back earlier: those behind see the origin of that time."""
    within = context.within

    def send(origin: RecordMetadata | None, key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        where = RecordContext(*(origin or ("", -1, -1)), timestamp_ms, headers or ())
        within(where, lambda: forward(key, value, timestamp_ms, headers))

    return send
