"""Forwarding of table changes, of buffered records, and of the time of changes that are not forwarded.

A change is forwarded immediately, or through the record cache of its store.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from attrs import frozen

from streams.core.blocks.records import Headers, RecordContext, RecordMetadata
from streams.topology import NodeContext, NodeOutput, NodeStores, TableForward

#: Forwards a record that was buffered: (origin, key, value, timestamp_ms, headers).
Release: TypeAlias = Callable[[RecordMetadata | None, Any, Any, int, Headers | None], None]


def table_emit(context: NodeContext, store: str, send_old: bool) -> tuple[TableForward, bool]:
    """Return the function that forwards table changes, and whether it writes to the record cache.

    The record cache always needs the stored old value, since it skips a key that was added and deleted between two
    flushes.  An uncached operator sends old values only if ``send_old`` is True; the old value of a new row is then the
    initial aggregate.  If rows expire, their deletions are forwarded in the same way.
    """
    emit = context.output.changes(store, send_old=send_old)
    is_cached = context.stores.caches(store)
    opened = context.stores[store]
    if opened.spec.ttl_ms >= 0:

        def removed(key: Any, old: Any, expiry_ms: int) -> None:
            emit(key, None, old if send_old or is_cached else None, expiry_ms, None, True)

        expiry = opened.expiry
        time = context.clock.stream_time("expiry")
        expiry.on_removed = removed
        expiry.idle_ms = max(expiry.idle_ms, time.ms)

        def advance(stream_time_ms: int) -> bool:
            time.ms = expiry.idle_ms = max(expiry.idle_ms, stream_time_ms)
            return bool(expiry.sweep(time.ms))

        context.clock.on_idle(advance)
    return emit, is_cached


@frozen
class Closing:
    """A suppression until windows close, as an operator upstream of it sees it.

    ``store`` is that of the suppression, and ``through`` are the stores of the operators up to it, which may be cached.
    """

    store: str
    through: tuple[str, ...]


def time_listeners(stores: NodeStores, suppression: str) -> list[Callable[[int], object]]:
    """Return the list of the functions that are told the time of changes that do not reach a suppression's store."""
    listeners: list[Callable[[int], object]] = stores.shared(f"time of {suppression}", list)
    return listeners


def time_passer(stores: NodeStores, closings: Iterable[Closing]) -> Callable[[int], None] | None:
    """Return a function to call with the timestamp of a change that is not forwarded, or None if nobody needs it.

    Otherwise a window whose rows, and those of later windows, do not pass would never close.  A record cache on the way
    may hold changes of a window that this time would close before them; such a suppression learns it with the changes.
    """
    listeners = [
        time_listeners(stores, closing.store)
        for closing in closings
        if not any(stores.caches(store) for store in closing.through)
    ]
    if not listeners:
        return None

    def pass_time(timestamp_ms: int) -> None:
        for functions in listeners:
            for tell in functions:
                tell(timestamp_ms)

    return pass_time


def emit_nothing(*_: Any) -> None:
    """Do nothing; used in place of the emitting function if results are emitted on window close."""


def release(output: NodeOutput, forward: Callable[[Any, Any, int, Headers | None], None]) -> Release:
    """Return a function that forwards a buffered record such that downstream nodes see its original metadata."""
    within = output.current.within

    def send(origin: RecordMetadata | None, key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        where = RecordContext.of(origin, timestamp_ms, headers)
        within(where, lambda: forward(key, value, timestamp_ms, headers))

    return send
