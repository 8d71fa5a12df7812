"""Joins with tables: of a stream with a table or global table, and of two tables.

Only the stream side of a stream-table join produces results.  A table-table join has a node per
side, which looks up the row of the other table, and a node that merges both sides.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from streams.core.blocks.records import Headers
from streams.core.errors import TopologyError
from streams.core.inlining import inlined
from streams.core.metrics import Counter, DropReason
from streams.core.serdes.serdes import Serde
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.emission import Closing, table_emit, time_passer
from streams.dsl.processing.joins.getters import Pair, TableValues, open_rows
from streams.dsl.processing.joins.grace_buffer import GraceBuffer
from streams.dsl.processing.joins.joining import JoinKind, KeyedJoiner, reversed_joiner, row_joiner, two_value_joiner
from streams.topology import NodeContext, Process, StoreNaming


@frozen
class StreamTableJoin:
    """The operator that joins each stream record with the table row for its key.

    In a versioned table, the record is joined with the row that was valid at its timestamp.  With ``grace_ms``,
    records are buffered in ``buffer_store`` (with the spec of ``buffer_spec``, and ``key_serde``) until stream time
    has passed them by the grace period, so that late rows are joined (KIP-923).
    """

    store_naming: ClassVar = StoreNaming("store", ("-store",))

    table: TableValues
    joiner: Callable[..., Any]
    with_key: bool
    is_left: bool = False
    grace_ms: int | None = None
    buffer_store: str | None = None
    key_serde: Serde[Any] | None = None

    @property
    def keeps_back_ms(self) -> int:
        """The maximum time in milliseconds by which the timestamp of a result may lag stream time."""
        return self.grace_ms or 0

    def bind(self, context: NodeContext) -> Process:
        drop = dropper(context)
        is_left = self.is_left
        time = context.clock.stream_time()
        joined = self._joined(context)
        has_grace = self.grace_ms is not None
        if has_grace:
            joined = self._waiting(context, joined)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            # Without grace the node does not need its own stream time.
            if has_grace and timestamp_ms > time.ms:
                time.ms = timestamp_ms
            if value is None or (key is None and not is_left):
                reason = DropReason.NULL_VALUE if value is None else DropReason.NULL_KEY
                drop(reason, key, value, timestamp_ms, headers)
                return
            joined(key, value, timestamp_ms, headers)

        return process

    def _joined(self, context: NodeContext) -> Process:
        """Return the function that joins a record with the row for its key."""
        is_left = self.is_left
        join_row = _row_joiner(context, is_left, row_joiner(self.joiner, self.with_key, with_row_key=False))
        lookup_at = self.table.time_getter(context)
        lookup = self.table.getter(context)

        @inlined
        def joined(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if is_left and key is None:
                row = None
            elif lookup_at is None:
                row = lookup(key)
            else:
                row = lookup_at(key, timestamp_ms)
            join_row(key, key, value, row, timestamp_ms, headers)

        return joined

    def _waiting(self, context: NodeContext, joined: Process) -> Process:
        """Return the function that buffers records and joins them at the end of the grace period."""
        if self.table.time_getter(context) is None:
            raise TopologyError(
                f"node {context.node!r}: a stream-table join with grace needs a versioned table; "
                "give the table a history"
            )
        assert self.buffer_store is not None
        assert self.key_serde is not None
        assert self.grace_ms is not None
        return GraceBuffer(context.stores[self.buffer_store], self.key_serde, self.grace_ms, joined).open(context)


@frozen
class StreamGlobalTableJoin:
    """The operator that joins each stream record with a row of a global table.

    ``table_key(key, value)`` returns the key of the row.  The joiner takes (left, right), or with the key of the stream
    record (key, left, right), or also with that of the row (key, row key, left, right) if ``with_row_key`` (KIP-1340).
    """

    table: TableValues
    table_key: Callable[[Any, Any], Any]
    joiner: Callable[..., Any]
    with_key: bool
    is_left: bool = False
    with_row_key: bool = False

    def bind(self, context: NodeContext) -> Process:
        lookup = self.table.getter(context)
        drop = dropper(context)
        table_key, is_left = self.table_key, self.is_left
        join_row = _row_joiner(context, is_left, row_joiner(self.joiner, self.with_key, self.with_row_key))

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            row_key = table_key(key, value)
            if value is None or (row_key is None and not is_left):
                reason = DropReason.NULL_VALUE if value is None else DropReason.NULL_KEY
                drop(reason, key, value, timestamp_ms, headers)
                return
            # Kafka Streams maps the key a second time when it joins; a mapper has no side effects.
            row = None if row_key is None else lookup(row_key)
            join_row(key, row_key, value, row, timestamp_ms, headers)

        return process


def _row_joiner(
    context: NodeContext, is_left: bool, join: Callable[[Any, Any, Any, Any], Any]
) -> Callable[[Any, Any, Any, Pair | None, int, Headers | None], None]:
    """Return a function that joins a record with its row: (key, row key, value, row, timestamp_ms, headers)."""
    forward = context.output.forward
    lost = context.output.side_output()
    unjoined = Counter() if is_left else context.metrics.tally(DropReason.UNJOINED)

    @inlined
    def join_row(
        key: Any, row_key: Any, value: Any, row: Pair | None, timestamp_ms: int, headers: Headers | None
    ) -> None:
        if row is not None:
            other = row[0]
        elif is_left:
            other = None
        else:
            unjoined.value += 1
            if lost is not None:
                lost(DropReason.UNJOINED, key, value, timestamp_ms, headers)
            return
        result = join(key, row_key, value, other)
        forward(key, result, timestamp_ms, headers)

    return join_row


@frozen
class TableTableJoin:
    """One side of a table-table join; ``other`` is the lookup for the table of the other side.

    ``joiner`` takes (left, right), or (key, left, right) if ``with_key``, on either side.
    With ``is_versioned``, the table of this side is versioned, and its late records are dropped (KIP-914).
    The suppressions in ``closings`` are told the time of changes without a result.
    """

    other: TableValues
    joiner: Callable[..., Any]
    with_key: bool
    kind: JoinKind
    is_left_side: bool
    send_old: bool = False
    is_versioned: bool = False
    closings: tuple[Closing, ...] = ()

    def bind(self, context: NodeContext) -> Process:
        compute = self._compute()
        lookup = self.other.getter(context, undeleted=True)
        forward = context.output.forward
        drop = dropper(context)
        send_old, is_versioned = self.send_old, self.is_versioned
        # Without a row on the other side, the inner join and the right side of the left join emit nothing.
        is_silent_alone = self.kind is JoinKind.INNER or (self.kind is JoinKind.LEFT and not self.is_left_side)
        pass_time = time_passer(context.stores, self.closings)

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            new, old, is_latest = change
            if key is None:
                drop(DropReason.NULL_KEY, key, new, timestamp_ms, headers)
                return
            if is_versioned and not is_latest:
                drop(DropReason.OUT_OF_ORDER, key, new, timestamp_ms, headers)
                return
            row = lookup(key)
            if row is None:
                if is_silent_alone or (new is None and old is None):
                    if pass_time is not None:
                        pass_time(timestamp_ms)
                    return
                other = None
            else:
                other, other_ms = row
                if other_ms > timestamp_ms:
                    timestamp_ms = other_ms
            result = compute(key, new, other)
            replaced = compute(key, old, other) if send_old else None
            forward(key, (result, replaced, is_latest), timestamp_ms, headers)

        return process

    def _compute(self) -> KeyedJoiner:
        """Return the function that maps (key, this row, other row) to the result, or to None if there is none."""
        make = two_value_joiner if self.is_left_side else reversed_joiner
        join = make(self.joiner, self.with_key)
        if self.kind is JoinKind.LEFT and not self.is_left_side:
            return join
        is_outer = self.kind is JoinKind.OUTER

        @inlined
        def compute(key: Any, this: Any, other: Any) -> Any:
            return None if this is None and (not is_outer or other is None) else join(key, this, other)

        return compute


@frozen
class TableJoinMerge:
    """Merges both sides of a table-table join, and materializes its result."""

    store: str | None = None
    send_old: bool = False

    def bind(self, context: NodeContext) -> Process:
        send_old = self.send_old
        if self.store is None:
            forward = context.output.forward
            if send_old:
                return forward

            def pass_on(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
                forward(key, (change[0], None, change[2]), timestamp_ms, headers)

            return pass_on
        get, put = open_rows(context.stores, self.store)
        emit, is_cached = table_emit(context, self.store, self.send_old)

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            old = change[1] if send_old else None
            if is_cached:
                row = get(key)
                old = None if row is None else row[0]
            is_latest = put(key, change[0], timestamp_ms)
            if is_latest is not None:
                emit(key, change[0], old, timestamp_ms, headers, is_latest)

        return process
