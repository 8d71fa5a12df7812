"""Operators on single tables: sources, filters, maps, and the map that precedes grouping by a new key.

Rows are forwarded as changes ``(new, old, is_latest)``.  With a store, the operator materializes its result
and reads the old row from the store.  Without a store, it computes the old row from the old row of the parent.
"""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from streams.core.blocks.records import Headers
from streams.core.errors import StreamsError
from streams.core.inlining import inlined
from streams.core.metrics import Counter, DropReason
from streams.core.serdes.serdes import PartialRow, PartialSerde
from streams.core.user_code import CheckedFunction, located
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.emission import Closing, table_emit, time_passer
from streams.dsl.processing.joins.getters import StoreValues, open_rows
from streams.topology import NodeContext, Process


@frozen
class TableSource:
    """Converts a stream of upserts to a table; used for table sources and ``to_table``.

    A value of None deletes the row.  Without a store, the old row is unknown. If ``serde`` reads a ``PartialRow``, it
    is completed by the row in the store.
    """

    store: str | None = None
    send_old: bool = False
    serde: Any = None

    def bind(self, context: NodeContext) -> Process:
        drop = dropper(context)
        lost = context.output.side_output()
        if self.store is None:
            forward = context.output.forward

            def pass_on(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
                if key is None:
                    drop(DropReason.NULL_KEY, key, value, timestamp_ms, headers)
                    return
                forward(key, (value, None, True), timestamp_ms, headers)

            return pass_on

        get, put = open_rows(context.stores, self.store)
        emit, is_cached = table_emit(context, self.store, self.send_old)
        complete = self.serde.complete if isinstance(self.serde, PartialSerde) else None
        get_as_of = StoreValues(self.store).time_getter(context)
        # An expired row is deleted downstream before it is replaced, and is found when it is read.
        reads_old = self.send_old or is_cached or context.stores[self.store].spec.ttl_ms >= 0

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                drop(DropReason.NULL_KEY, key, value, timestamp_ms, headers)
                return
            if complete is not None and type(value) is PartialRow:
                former = get(key) if get_as_of is None else get_as_of(key, timestamp_ms)
                value = complete(value, None if former is None else former[0])
            old = None
            if reads_old:
                row = get(key)
                if row is not None:
                    old = row[0]
            is_latest = put(key, value, timestamp_ms)
            if is_latest is not None:
                emit(key, value, old, timestamp_ms, headers, is_latest)
            elif lost is not None:
                # The store has counted it.
                lost(DropReason.EXPIRED, key, value, timestamp_ms, headers)

        return process


#: ``to_table`` is the same operator as a table source.
ToTable = TableSource


@frozen
class TableFilter:
    """Keeps the rows for which ``predicate(key, value)`` is true (or false with ``negate``); others become deletions.

    With ``is_versioned``, the parent is a versioned table, so that deletions of absent rows are
    forwarded (KIP-914).  The suppressions in ``closings`` are told the time of changes that are not forwarded.
    """

    predicate: Callable[[Any, Any], object]
    negate: bool = False
    store: str | None = None
    send_old: bool = False
    is_versioned: bool = False
    closings: tuple[Closing, ...] = ()

    def bind(self, context: NodeContext) -> Process:
        negate = self.negate
        predicate = CheckedFunction(self.predicate, f"node {context.node!r}")

        @inlined
        def keep(key: Any, value: Any, _: int, __: Headers | None) -> Any:
            return value if value is not None and bool(predicate(key, value)) is not negate else None

        skips_empty = self.send_old and not self.is_versioned
        return _mapping(context, keep, self.store, self.send_old, self.closings, skips_empty=skips_empty)


@frozen
class TableMapValues:
    """Maps the values of rows with ``mapper(value)`` or ``mapper(key, value)``; deletions remain deletions."""

    mapper: Callable[..., Any]
    with_key: bool = False
    store: str | None = None
    send_old: bool = False
    closings: tuple[Closing, ...] = ()

    @property
    def is_one_to_one(self) -> bool:
        """Whether each change is forwarded once: a store drops outdated ones, and may be cached."""
        return self.store is None

    def bind(self, context: NodeContext) -> Process:
        mapper, with_key = self.mapper, self.with_key

        @inlined
        def compute(key: Any, value: Any, _: int, __: Headers | None) -> Any:
            if value is None:
                return None
            return mapper(key, value) if with_key else mapper(value)

        return _mapping(context, compute, self.store, self.send_old, self.closings)


@frozen
class TableTransformValues:
    """Transforms rows with the function that ``supplier(context)`` returns.

    The function takes the key, the value or None, and the timestamp and headers of the change.
    """

    supplier: Callable[[NodeContext], Callable[[Any, Any, int, Headers | None], Any]]
    store: str | None = None
    send_old: bool = False
    closings: tuple[Closing, ...] = ()

    @property
    def is_one_to_one(self) -> bool:
        """Whether each change is forwarded once: a store drops outdated ones, and may be cached."""
        return self.store is None

    def bind(self, context: NodeContext) -> Process:
        return _mapping(context, self.supplier(context), self.store, self.send_old, self.closings)


def _mapping(
    context: NodeContext,
    compute: Callable[[Any, Any, int, Headers | None], Any],
    store: str | None,
    send_old: bool,
    closings: Sequence[Closing],
    *,
    skips_empty: bool = False,
) -> Process:
    """Return the process function that maps rows; with ``skips_empty``, it drops changes without new and old value."""
    pass_time = time_passer(context.stores, closings)
    if store is None:
        forward = context.output.forward

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            new = compute(key, change[0], timestamp_ms, headers)
            old = compute(key, change[1], timestamp_ms, headers) if send_old else None
            if skips_empty and new is None and old is None:
                if pass_time is not None:
                    pass_time(timestamp_ms)
                return
            forward(key, (new, old, change[2]), timestamp_ms, headers)

        return process
    get, put = open_rows(context.stores, store)
    emit, is_cached = table_emit(context, store, send_old)
    reads_old = send_old or is_cached

    def materialize(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
        new = compute(key, change[0], timestamp_ms, headers)
        row = get(key) if reads_old else None
        old = None if row is None else row[0]
        is_latest = None if skips_empty and new is None and old is None else put(key, new, timestamp_ms)
        if is_latest is not None:
            emit(key, new, old, timestamp_ms, headers, is_latest)
        elif pass_time is not None:
            pass_time(timestamp_ms)

    return materialize


@frozen
class TableGroupMap:
    """Maps rows to the key and value returned by ``mapper(key, value)``, before they are grouped by the new key.

    The parent must send old values.  If the mapped key is unchanged, one record has the new and the
    old value; otherwise the old row is forwarded as a subtraction first (KIP-904).  Rows whose new key or value is None
    are in no group.  With ``is_versioned``, the parent is a versioned table, and its late records are dropped
    (KIP-914).
    """

    mapper: Callable[[Any, Any], tuple[Any, Any]]
    is_versioned: bool = False

    def bind(self, context: NodeContext) -> Process:
        mapper = self.mapper
        is_versioned = self.is_versioned
        forward = context.output.forward
        node = context.node

        def mapped(key: Any, row: Any) -> tuple[Any, Any]:
            pair = mapper(key, row)
            # Text of two characters, such as a country code, would be unpacked as a pair too.
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(
                    f"{located(mapper)} of group_by returned {pair!r:.100} where a pair (key, value) is needed"
                )
            return pair[0], pair[1]

        lost = context.output.side_output()
        reasons = DropReason.OUT_OF_ORDER, DropReason.NULL_KEY, DropReason.NULL_VALUE
        out_of_order, without_key, without_value = (context.metrics.tally(reason) for reason in reasons)

        def drop(
            tally: Counter, reason: DropReason, key: Any, value: Any, timestamp_ms: int, headers: Headers | None
        ) -> None:
            tally.value += 1
            if lost is not None:
                lost(reason, key, value, timestamp_ms, headers)

        def process(key: Any, change: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                raise StreamsError(f"node {node!r}: a row of the table that is grouped has no key")
            new, old, is_latest = change
            if is_versioned and not is_latest:
                drop(out_of_order, DropReason.OUT_OF_ORDER, key, new, timestamp_ms, headers)
                return
            new_key = new_value = old_key = old_value = None
            if new is not None:
                new_key, new_value = mapped(key, new)
            if old is not None:
                old_key, old_value = mapped(key, old)
            has_new = new_key is not None and new_value is not None
            has_old = old_key is not None and old_value is not None
            if new is not None and not has_new:
                if new_key is None:
                    drop(without_key, DropReason.NULL_KEY, key, new, timestamp_ms, headers)
                else:
                    drop(without_value, DropReason.NULL_VALUE, key, new, timestamp_ms, headers)
            if has_new and has_old and old_key == new_key:
                forward(old_key, (new_value, old_value, is_latest), timestamp_ms, headers)
                return
            if has_old:
                forward(old_key, (None, old_value, is_latest), timestamp_ms, headers)
            if has_new:
                forward(new_key, (new_value, None, is_latest), timestamp_ms, headers)

        return process
