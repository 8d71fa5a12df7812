"""Lookups for the current rows of a table: a store, or a function of the rows of other tables.

Every ``KTable`` has a ``TableValues`` object for lookups.  ``getter(context)`` opens the lookup in one task, and
returns a function from a key to ``(value, timestamp_ms)``, or to None if there is no row.  A node that uses the lookup
must be connected to ``stores``.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from attrs import frozen

from streams.core.inlining import inlined
from streams.dsl.processing.joins.joining import JoinKind, two_value_joiner
from streams.state import InPlace, MeasuredStore, TableReads
from streams.topology import NodeContext, NodeStores

#: A value and the event time of its last change.
Pair: TypeAlias = tuple[Any, int]
Getter: TypeAlias = Callable[[Any], Pair | None]
#: Reads the row that was valid at a time: (key, timestamp_ms).
TimeGetter: TypeAlias = Callable[[Any, int], Pair | None]

_NO_TIME = -1


class TableValues(Protocol):
    """A lookup for the rows of a table, by key."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores to which a node that uses this lookup must be connected."""
        ...

    def getter(self, context: NodeContext, *, undeleted: bool = False) -> Getter:
        """Return the function that reads the current row for a key.

        With ``undeleted``, an expired row is returned until its deletion has been forwarded, so that a join can find
        the results that this deletion removes.
        """
        ...

    def time_getter(self, context: NodeContext) -> TimeGetter | None:
        """Return the function that reads the row that was valid at a time, or None if the table keeps no history."""
        ...


def open_rows(stores: NodeStores, name: str) -> tuple[Getter, Callable[[Any, Any, int], bool | None]]:
    """Return ``get(key)`` and ``put(key, value, timestamp_ms)`` for an operator's timestamped or versioned store.

    ``put`` returns whether the row is now the latest for its key, or None if the row was too old to be stored.
    """
    store = stores[name]
    table: TableReads = store.spec.kind.table
    return (table.get_own or table.get)(store), table.put(store)


def open_updates(stores: NodeStores, name: str) -> tuple[Getter, Getter, Callable[[Any, Any, int, bool], bool | None]]:
    """Return ``find(key)``, ``get(key)`` and ``put(key, value, timestamp_ms, is_in_place)`` for a store of table rows.

    ``find`` returns a row that may be replaced in place, if the store supports this.  If it has returned a row with a
    value, the next call may be ``put`` with ``is_in_place``.
    """
    store = stores[name]
    table: TableReads = store.spec.kind.table
    in_place = None if isinstance(store, MeasuredStore) else table.in_place
    find, put = (_nothing_in_place if in_place is None else in_place)(store)
    return find, (table.get_own or table.get)(store), put


def _nothing_in_place(store: Any) -> InPlace:
    put_row = store.spec.kind.table.put(store)

    @inlined
    def find(_: Any) -> None:
        return None

    @inlined
    def put(key: Any, value: Any, timestamp_ms: int, _: bool) -> bool | None:
        return put_row(key, value, timestamp_ms)  # type: ignore[no-any-return]

    return find, put


@frozen
class StoreValues:
    """A lookup in the store of a materialized table, which may be windowed."""

    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        """Return the name of the table's store."""
        return (self.store,)

    def getter(self, context: NodeContext, *, undeleted: bool = False) -> Getter:
        store = context.stores[self.store]
        table: TableReads = store.spec.kind.table
        return ((table.get_undeleted if undeleted else None) or table.get)(store)

    def time_getter(self, context: NodeContext) -> TimeGetter | None:
        """Return the function that reads the row that was valid at a time, or None if the store is not versioned."""
        store = context.stores[self.store]
        table: TableReads = store.spec.kind.table
        return None if table.get_as_of is None else table.get_as_of(store)


class RowFunction(Protocol):
    """Computes the rows of a table from the rows of its parent."""

    def bind(self, context: NodeContext) -> Callable[[Any, Pair | None], Pair | None]:
        """Return, for one task, the function that maps a key and its row in the parent table to a row of this table."""
        ...


@frozen
class ComputedValues:
    """A lookup that computes each row from the row of a parent table.

    ``own_stores`` are the stores that the computing function uses.
    """

    parent: TableValues
    function: RowFunction
    own_stores: tuple[str, ...] = ()

    @property
    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores of the parent and of the computing function."""
        return (*self.parent.stores, *self.own_stores)

    def getter(self, context: NodeContext, *, undeleted: bool = False) -> Getter:
        read = self.parent.getter(context, undeleted=undeleted)
        compute = self.function.bind(context)

        @inlined
        def get(key: Any) -> Pair | None:
            row = read(key)
            return compute(key, row)

        return get

    def time_getter(self, context: NodeContext) -> TimeGetter | None:
        """Return the function that reads the row that was valid at a time, or None if the parent keeps no history."""
        read = self.parent.time_getter(context)
        if read is None:
            return None
        compute = self.function.bind(context)

        @inlined
        def get(key: Any, timestamp_ms: int) -> Pair | None:
            row = read(key, timestamp_ms)
            return compute(key, row)

        return get


@frozen
class FilteredRow:
    """A row function that keeps the row if a predicate is true or, with ``negate``, false."""

    predicate: Callable[[Any, Any], object]
    negate: bool = False

    def bind(self, context: NodeContext) -> Callable[[Any, Pair | None], Pair | None]:
        """Return the function that computes rows in one task."""
        predicate, negate = self.predicate, self.negate

        @inlined
        def compute(key: Any, row: Pair | None) -> Pair | None:
            return row if row is not None and bool(predicate(key, row[0])) is not negate else None

        return compute


@frozen
class MappedRow:
    """A row function that maps the row's value with ``mapper(value)`` or ``mapper(key, value)``."""

    mapper: Callable[..., Any]
    with_key: bool = False

    def bind(self, context: NodeContext) -> Callable[[Any, Pair | None], Pair | None]:
        """Return the function that computes rows in one task."""
        mapper, with_key = self.mapper, self.with_key

        @inlined
        def compute(key: Any, row: Pair | None) -> Pair | None:
            if row is None:
                return None
            value = mapper(key, row[0]) if with_key else mapper(row[0])
            return None if value is None else (value, row[1])

        return compute


@frozen
class TransformedRow:
    """A row function that calls the transformer returned by ``supplier(context)``, even if there is no row."""

    supplier: Callable[[NodeContext], Callable[[Any, Any, int, None], Any]]

    def bind(self, context: NodeContext) -> Callable[[Any, Pair | None], Pair | None]:
        """Return the function that computes rows in one task."""
        transform = self.supplier(context)

        @inlined
        def compute(key: Any, row: Pair | None) -> Pair | None:
            time_ms = _NO_TIME if row is None else row[1]
            value = transform(key, None if row is None else row[0], time_ms, None)
            return None if value is None else (value, time_ms)

        return compute


@frozen
class JoinedValues:
    """A lookup that computes the rows of a table-table join without a store; it keeps no history (KIP-914)."""

    left: TableValues
    right: TableValues
    joiner: Callable[..., Any]
    kind: JoinKind
    with_key: bool = False

    @property
    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores of both tables."""
        return tuple(dict.fromkeys((*self.left.stores, *self.right.stores)))

    def getter(self, context: NodeContext, *, undeleted: bool = False) -> Getter:
        read_left, read_right = (side.getter(context, undeleted=undeleted) for side in (self.left, self.right))
        join = two_value_joiner(self.joiner, self.with_key)
        needs_left = self.kind is not JoinKind.OUTER
        needs_right = self.kind is JoinKind.INNER

        def get(key: Any) -> Pair | None:
            left = read_left(key)
            if left is None and needs_left:
                return None
            right = read_right(key)
            if right is None and (needs_right or left is None):
                return None
            if left is None:
                assert right is not None
                value = join(key, None, right[0])
                time_ms = right[1]
            elif right is None:
                value = join(key, left[0], None)
                time_ms = left[1]
            else:
                value = join(key, left[0], right[0])
                time_ms = max(left[1], right[1])
            return None if value is None else (value, time_ms)

        return get

    def time_getter(self, context: NodeContext) -> TimeGetter | None:
        """Return None, since the result of a join is not versioned."""
        return None
