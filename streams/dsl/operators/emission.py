"""Forwarding of table changes, and of records that an operator buffered.

A change is forwarded immediately, or through the record cache of its store.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from streams.core.records import Headers, RecordContext, RecordMetadata
from streams.topology import NodeContext

#: Forwards a table change: (key, new, old, timestamp_ms, headers, is_latest).
Emit: TypeAlias = Callable[[Any, Any, Any, int, Headers | None, bool], None]
#: Forwards a record that was buffered: (origin, key, value, timestamp_ms, headers).
Release: TypeAlias = Callable[[RecordMetadata | None, Any, Any, int, Headers | None], None]


def table_emit(context: NodeContext, store: str, send_old: bool) -> tuple[Emit, bool]:
    """Return the function that forwards table changes, and whether it writes to the record cache.

    The cache always needs the stored old value, since it skips a key that was added and deleted between two
    flushes.  An uncached operator sends old values only if ``send_old`` is True; the old value of a new row is
    then the initial aggregate.
    """
    return context.table_forward(store, send_old=send_old), context.caches(store)


def emit_nothing(*_: Any) -> None:
    """Do nothing; used as ``emit`` if results are emitted on window close."""


def release(context: NodeContext, forward: Callable[[Any, Any, int, Headers | None], None]) -> Release:
    """Return ``forward`` for buffered records: downstream nodes see the original record metadata."""
    within = context.within

    def send(origin: RecordMetadata | None, key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        where = RecordContext(*(origin or ("", -1, -1)), timestamp_ms, headers or ())
        within(where, lambda: forward(key, value, timestamp_ms, headers))

    return send
