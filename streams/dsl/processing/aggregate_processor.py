"""Aggregates of grouped streams and grouped tables, without windows.

Each aggregate keeps one row per key in a timestamped or versioned store and forwards changes ``(new, old, is_latest)``.
Records of a grouped stream without a key or value are dropped.  For a grouped table, the old row is subtracted before
the new row is added (the order of KIP-904).
"""

from functools import partial
from typing import Any

from attrs import frozen

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.records import Headers
from streams.core.errors import StreamsError
from streams.core.metrics import DropReason
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.emission import emit_nothing, table_emit
from streams.dsl.processing.folds import Fold, TableFold
from streams.dsl.processing.joins.getters import open_rows, open_updates
from streams.state import TimestampedKeyValueStore
from streams.topology import NodeContext, Process
from streams.topology.columns.forms import Aggregation, FoldState


@frozen
class StreamAggregate:
    """The operator that folds all values of a key into one aggregate.

    For a key without a row, the forwarded old value is the initial aggregate.  With a record cache, the old value is
    the stored value, and a deletion has the timestamp of the record that caused it, as in Kafka Streams.
    """

    store: str
    fold: Fold
    send_old: bool = False

    @property
    def columns(self) -> Aggregation | None:
        """What columns do instead; None where they do not know what an aggregate begins with."""
        if self.fold.starts_with_none:
            return None
        refusal = "old values of its results are used" if self.send_old else ""
        return Aggregation(
            self.fold.initializer,
            self.fold.aggregator,
            store=self.store,
            refusal=refusal,
            bind=partial(_column_state, self.store),
        )

    def bind(self, context: NodeContext) -> Process:
        find, get, put = open_updates(context.stores, self.store)
        emit, is_cached = table_emit(context, self.store, self.send_old)
        drop = dropper(context)
        lost = context.output.side_output()
        send_old = self.send_old or is_cached
        initializer, aggregator = self.fold.initializer, self.fold.aggregator

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None or value is None:
                reason = DropReason.NULL_KEY if key is None else DropReason.NULL_VALUE
                drop(reason, key, value, timestamp_ms, headers)
                return
            row = find(key)
            if row is not None and row[0] is not None:
                is_in_place = True
                old, changed_ms = row
            else:
                is_in_place = False
                row = get(key)
                if row is None:
                    old = initializer()
                    changed_ms = timestamp_ms
                else:
                    old, changed_ms = row
            new = aggregator(key, value, old)
            if changed_ms < timestamp_ms or (is_cached and new is None):
                changed_ms = timestamp_ms
            if is_cached and row is None:
                old = None
            is_latest = put(key, new, changed_ms, is_in_place)
            if is_latest is not None:
                emit(key, new, old if send_old else None, changed_ms, headers, is_latest)
            elif lost is not None:
                # The store has counted it.
                lost(DropReason.EXPIRED, key, value, timestamp_ms, headers)

        return process


def _column_state(name: str, context: NodeContext) -> FoldState | None:
    """Return the state of a task's keys for columns; None if each record must be seen by others."""
    store = context.stores[name]
    is_plain = type(store) is TimestampedKeyValueStore and store.spec.ttl_ms < 0
    if not is_plain or context.stores.caches(name) or context.output.side_output() is not None:
        return None
    forward, _ = table_emit(context, name, send_old=False)
    get_pair = store.get_pair
    put_pair = store.put_pair

    def emit(key: Any, value: Any, timestamp_ms: int, _: int) -> None:
        forward(key, value, None, timestamp_ms, None, True)

    return FoldState(
        None,
        lambda key, _: get_pair(key),
        lambda key, value, timestamp_ms, _: put_pair(key, value, timestamp_ms),
        emit_nothing,
        lambda: 0,
        lambda: MAX_TIME_MS,
        emit,
    )


@frozen
class TableAggregate:
    """The operator that folds the rows of a table, grouped by a new key."""

    store: str
    fold: TableFold
    send_old: bool = False

    def bind(self, context: NodeContext) -> Process:
        get, put = open_rows(context.stores, self.store)
        emit, is_cached = table_emit(context, self.store, self.send_old)
        send_old = self.send_old or is_cached
        node = context.node
        initializer, adder, subtractor = self.fold.initializer, self.fold.adder, self.fold.subtractor

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                raise StreamsError(
                    f"node {node!r}: a row of a grouped table has no key; give group_by a key that is never None"
                )
            added, removed, _ = change
            row = get(key)
            aggregate = old = None if row is None else row[0]
            changed_ms = timestamp_ms
            if row is not None and row[1] > timestamp_ms and (added is not None or removed is not None):
                changed_ms = row[1]
            if removed is not None and old is not None:
                aggregate = subtractor(key, removed, old)
            if added is not None:
                if aggregate is None:
                    aggregate = initializer()
                aggregate = adder(key, added, aggregate)
            is_latest = put(key, aggregate, changed_ms)
            if is_cached and aggregate is None:
                changed_ms = timestamp_ms
            if is_latest is not None:
                emit(key, aggregate, old if send_old else None, changed_ms, headers, is_latest)

        return process
