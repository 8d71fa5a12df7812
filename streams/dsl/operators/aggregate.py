"""Aggregates of grouped streams and grouped tables, without windows.

Each keeps one row per key in a timestamped or versioned store and forwards changes
``(new, old, is_latest)``.  Behind a grouped stream records without key or value are dropped;
behind a grouped table the old row is taken out before the new one is added (KIP-904 order).
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.core.errors import StreamsError
from streams.core.records import Headers
from streams.dsl.operators.emission import table_emit
from streams.dsl.operators.getters import IS_LATEST, NOT_PUT, open_rows
from streams.topology.operator import NodeContext, Process

_NULL = "null key or value"


@frozen
class StreamCount:
    """Number of records per key."""

    store: str
    send_old: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        get, put = open_rows(context, self.store)
        emit, is_cached = table_emit(context, self.store, self.send_old)
        drop, send_old = context.drop, self.send_old or is_cached

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None or value is None:
                drop(_NULL)
                return
            row = get(key)
            if row is None:
                new, old = 1, None if is_cached else 0
            else:
                old = row[0]
                new = old + 1
                if row[1] > timestamp_ms:
                    timestamp_ms = row[1]
            code = put(key, new, timestamp_ms)
            if code is None:
                emit(key, new, old if send_old else None, timestamp_ms, headers, True)
            elif code != NOT_PUT:
                emit(key, new, old if send_old else None, timestamp_ms, headers, code == IS_LATEST)

        return process


@frozen
class StreamReduce:
    """Values of a key combined by ``reducer(old, new)``, the first one as it is."""

    store: str
    reducer: Callable[[Any, Any], Any]
    send_old: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        get, put = open_rows(context, self.store)
        emit, is_cached = table_emit(context, self.store, self.send_old)
        drop, send_old, reducer = context.drop, self.send_old or is_cached, self.reducer

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None or value is None:
                drop(_NULL)
                return
            row = get(key)
            if row is None:
                old, new = None, value
            else:
                old = row[0]
                new = reducer(old, value)
                if row[1] > timestamp_ms and not (new is None and is_cached):
                    timestamp_ms = row[1]
            code = put(key, new, timestamp_ms)
            if code is None:
                emit(key, new, old if send_old else None, timestamp_ms, headers, True)
            elif code != NOT_PUT:
                emit(key, new, old if send_old else None, timestamp_ms, headers, code == IS_LATEST)

        return process


@frozen
class StreamAggregate:
    """Values of a key folded by ``aggregator(key, value, aggregate)`` from ``initializer()`` on.

    Where a key has no row yet, the old value sent on is the initial one.  Behind the record cache
    it is what was stored, and a deletion has the time of its record, as in the reference.
    """

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        get, put = open_rows(context, self.store)
        emit, is_cached = table_emit(context, self.store, self.send_old)
        drop, send_old = context.drop, self.send_old or is_cached
        initializer, aggregator = self.initializer, self.aggregator

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None or value is None:
                drop(_NULL)
                return
            row = get(key)
            if row is None:
                old = initializer()
                new = aggregator(key, value, old)
                if is_cached:
                    old = None
            else:
                old = row[0]
                new = aggregator(key, value, old)
                if row[1] > timestamp_ms and not (new is None and is_cached):
                    timestamp_ms = row[1]
            code = put(key, new, timestamp_ms)
            if code is None:
                emit(key, new, old if send_old else None, timestamp_ms, headers, True)
            elif code != NOT_PUT:
                emit(key, new, old if send_old else None, timestamp_ms, headers, code == IS_LATEST)

        return process


@frozen
class TableAggregate:
    """Rows of a table grouped by a new key, kept up by an adder and a subtractor.

    Both are called with (key, value, aggregate).
    """

    store: str
    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    send_old: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        get, put = open_rows(context, self.store)
        emit, is_cached = table_emit(context, self.store, self.send_old)
        send_old, node = self.send_old or is_cached, context.node
        initializer, adder, subtractor = self.initializer, self.adder, self.subtractor

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                raise _null_key(node)
            added, removed, _ = change
            record_ms = timestamp_ms
            row = get(key)
            old = aggregate = None if row is None else row[0]
            if removed is not None and old is not None:
                assert row is not None
                aggregate = subtractor(key, removed, old)
                timestamp_ms = max(timestamp_ms, row[1])
            if added is not None:
                if aggregate is None:
                    aggregate = initializer()
                aggregate = adder(key, added, aggregate)
                if row is not None and row[1] > timestamp_ms:
                    timestamp_ms = row[1]
            code = put(key, aggregate, timestamp_ms)
            if aggregate is None and is_cached:
                timestamp_ms = record_ms
            if code != NOT_PUT:
                is_latest = code is None or code == IS_LATEST
                emit(key, aggregate, old if send_old else None, timestamp_ms, headers, is_latest)

        return process


@frozen
class TableCount:
    """Number of rows of a table per new key."""

    store: str
    send_old: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        return TableAggregate(self.store, _zero, _one_more, _one_less, self.send_old).bind(context)


def _zero() -> int:
    return 0


def _one_more(_: Any, __: Any, count: int) -> int:
    return count + 1


def _one_less(_: Any, __: Any, count: int) -> int:
    return count - 1


@frozen
class TableReduce:
    """Rows of a table combined per new key: ``adder(aggregate, new)``, ``subtractor(aggregate, old)``."""

    store: str
    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]
    send_old: bool = False

    def bind(self, context: NodeContext) -> Process:
        """Make the process function of one task."""
        get, put = open_rows(context, self.store)
        emit, is_cached = table_emit(context, self.store, self.send_old)
        send_old, node = self.send_old or is_cached, context.node
        adder, subtractor = self.adder, self.subtractor

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                raise _null_key(node)
            added, removed, _ = change
            record_ms = timestamp_ms
            row = get(key)
            old = aggregate = None if row is None else row[0]
            if removed is not None and old is not None:
                assert row is not None
                aggregate = subtractor(old, removed)
                timestamp_ms = max(timestamp_ms, row[1])
            if added is not None:
                if aggregate is None:
                    aggregate = added
                else:
                    assert row is not None
                    aggregate = adder(aggregate, added)
                    timestamp_ms = max(timestamp_ms, row[1])
            code = put(key, aggregate, timestamp_ms)
            if aggregate is None and is_cached:
                timestamp_ms = record_ms
            if code != NOT_PUT:
                is_latest = code is None or code == IS_LATEST
                emit(key, aggregate, old if send_old else None, timestamp_ms, headers, is_latest)

        return process


def _null_key(node: str) -> StreamsError:
    return StreamsError(f"node {node!r}: a row of a grouped table has no key; give group_by a key that is never None")
