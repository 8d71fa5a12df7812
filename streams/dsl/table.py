"""``KTable``: a table with the current row of each key, and the operators on it.

As with streams, each method extends the logical graph.  A table has a store if an operator needs one or if ``store=``
is given.  In the examples ``orders`` is a stream of amounts by customer, ``customers`` is a table of names, and
``totals`` is a table of amounts; ``play`` shows the output for some input.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from attrs import define
from typing_extensions import TypeForm

from streams.core.arguments import NOT_GIVEN
from streams.core.serdes.serdes import Serde
from streams.dsl.building import table_joins, table_operators
from streams.dsl.building.join_arguments import ForeignKeyJoinOptions, TableJoinOptions
from streams.dsl.building.table_operators import ValueTransformer
from streams.dsl.materialized import StoreArguments, StoreOptions
from streams.dsl.processing import JoinKind
from streams.dsl.ref import TableRef
from streams.dsl.suppressed import Suppressed

if TYPE_CHECKING:
    from streams.dsl.grouped_table import KGroupedTable
    from streams.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
R = TypeVar("R")


@define(eq=False, repr=False)
class KTable(Generic[K, V]):
    """A table with keys of type ``K`` and values of type ``V``; a change to the value None deletes a row."""

    _ref: TableRef

    def __repr__(self) -> str:
        return repr(self._ref)

    @property
    def store(self) -> str | None:
        """The name of the store that contains the rows, or None if the table is not materialized."""
        return self._ref.state.store

    def filter(
        self,
        predicate: Callable[[K, V], object],
        name: str | None = None,
        *,
        store: str | None = None,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> "KTable[K, V]":
        """Keep the rows for which ``predicate(key, value)`` is true; if the result becomes false, the row is deleted.

        >>> large = totals.filter(lambda customer, total: total > 9)
        >>> play(large, ("totals", "ann", 10), ("totals", "ann", 1))
        [('ann', 10), ('ann', None)]
        """
        arguments = StoreArguments(store, key, value, options)
        return KTable(table_operators.filter_rows(self._ref, predicate, name, arguments, negate=False))

    def filter_not(
        self,
        predicate: Callable[[K, V], object],
        name: str | None = None,
        *,
        store: str | None = None,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> "KTable[K, V]":
        """Drop the rows for which ``predicate(key, value)`` is true.

        >>> small = totals.filter_not(lambda customer, total: total > 9)
        >>> play(small, ("totals", "ann", 1), ("totals", "ann", 10))
        [('ann', 1), ('ann', None)]
        """
        arguments = StoreArguments(store, key, value, options)
        return KTable(table_operators.filter_rows(self._ref, predicate, name, arguments, negate=True))

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2],
        name: str | None = None,
        *,
        store: str | None = None,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> "KTable[K, V2]": ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], V2],
        name: str | None = None,
        *,
        store: str | None = None,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> "KTable[K, V2]": ...
    def map_values(
        self,
        mapper: Callable[..., Any],
        name: str | None = None,
        *,
        store: str | None = None,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> "KTable[K, Any]":
        """Replace the value of each row with the result of ``mapper(value)`` or ``mapper(key, value)``.

        >>> play(totals.map_values(lambda total: total // 10), ("totals", "ann", 25))
        [('ann', 2)]
        """
        arguments = StoreArguments(store, key, value, options)
        return KTable(table_operators.map_values(self._ref, mapper, name, arguments))

    def transform_values(
        self,
        transformer: Callable[[], ValueTransformer[K, V, R]],
        name: str | None = None,
        *,
        stores: Iterable[str] = (),
        store: str | None = None,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[R] | Serde[R] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> "KTable[K, R]":
        """Replace the value of each row with the result of a ``ValueTransformer``, which may use stores (KIP-292).

        For a deleted row, the transformer is called with the value None.

        >>> class Shown(ValueTransformer[str, int, str]):
        ...     def transform(self, key, value):
        ...         return f"{key}: {value}"
        >>> play(totals.transform_values(Shown), ("totals", "ann", 1))
        [('ann', 'ann: 1')]
        """
        arguments = StoreArguments(store, key, value, options)
        return KTable(table_operators.transform_values(self._ref, transformer, name, stores, arguments))

    @overload
    def to_stream(self, *, name: str | None = None, tombstones: Literal[True] = True) -> "KStream[K, V | None]": ...
    @overload
    def to_stream(
        self,
        mapper: Callable[[K, V | None], K2],
        name: str | None = None,
        *,
        tombstones: Literal[True] = True,
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
    ) -> "KStream[K2, V | None]": ...
    @overload
    def to_stream(self, *, name: str | None = None, tombstones: Literal[False]) -> "KStream[K, V]": ...
    @overload
    def to_stream(
        self,
        mapper: Callable[[K, V], K2],
        name: str | None = None,
        *,
        tombstones: Literal[False],
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
    ) -> "KStream[K2, V]": ...
    def to_stream(
        self,
        mapper: Callable[..., Any] | None = None,
        name: str | None = None,
        *,
        tombstones: bool = True,
        key: Any = NOT_GIVEN,
    ) -> "KStream[Any, Any]":
        """Return the changes of the table as a stream; ``mapper(key, value)`` returns a new key for each change.

        A deleted row becomes a tombstone, which is a record with value None.  Filtered tables forward tombstones, and
        so do session-windowed tables whenever a session grows.  With ``tombstones=False``, tombstones are not
        forwarded.

        >>> changes = totals.to_stream(lambda customer, total: customer[0])
        >>> more = totals.to_stream(tombstones=False).map_values(lambda total: total + 1)
        >>> play(changes.merge(more), ("totals", "ann", 1), ("totals", "ann", None))
        [('a', 1), ('ann', 2), ('a', None)]
        """
        from streams.dsl.stream import KStream

        return KStream(table_operators.to_stream(self._ref, mapper, name, key, tombstones=tombstones))

    def dropped(self, name: str | None = None) -> "KStream[K | None, Any]":
        """Return a stream of the records and rows that a table's source or join drops.

        A table of a topic or stream drops records without a key, and records older than the retention of its store.
        A join of tables drops out-of-order rows of versioned tables.  A foreign-key join also drops left rows whose
        foreign key is None; its stream contains only left rows.  ``DropNote.of(headers)`` reads the reason from the
        headers of a record.

        Raises:
            TopologyError: the table is derived from another table or an aggregation.

        >>> dropped = customers.dropped()
        >>> play(dropped, ("customers", None, "Ann"), ("customers", "c1", "Bob"))
        [(None, 'Ann')]
        """
        from streams.dsl.stream import KStream

        return KStream(table_operators.dropped(self._ref, name))

    def suppress(self, suppressed: Suppressed, name: str | None = None) -> "KTable[K, V]":
        """Buffer changes, so that fewer changes or only final results are forwarded (KIP-328).

        >>> windows = TimeWindows.of(timedelta(seconds=1))
        >>> counts = orders.group_by_key().windowed_by(windows).count()
        >>> final = counts.suppress(Suppressed.until_window_closes())
        >>> play(final, ("ann", 1, 0), ("ann", 1, 500), ("bob", 1, 1000))
        [(Windowed(key='ann', window=Window(start_ms=0, end_ms=1000)), 2)]
        """
        return KTable(table_operators.suppress(self._ref, suppressed, name))

    def group_by(
        self,
        mapper: Callable[[K, V], tuple[K2, V2]],
        name: str | None = None,
        *,
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
    ) -> "KGroupedTable[K2, V2]":
        """Group the rows by a new key; ``mapper(key, value)`` returns the new key and value as a pair.

        >>> per_initial = customers.group_by(lambda customer, name: (name[0], name))
        >>> play(per_initial.count(), ("customers", "c1", "Ann"), ("customers", "c1", "Bob"))
        [('A', 1), ('A', 0), ('B', 1)]
        """
        from streams.dsl.grouped_table import KGroupedTable

        return KGroupedTable(table_operators.group_by(self._ref, mapper, name, key, value))

    # Joins.

    @overload
    def join(
        self,
        other: "KTable[K, V2]",
        joiner: Callable[[V, V2], R],
        name: str | None = None,
        **options: Unpack[TableJoinOptions[K, R]],
    ) -> "KTable[K, R]": ...
    @overload
    def join(
        self,
        other: "KTable[K, V2]",
        joiner: Callable[[K, V, V2], R],
        name: str | None = None,
        **options: Unpack[TableJoinOptions[K, R]],
    ) -> "KTable[K, R]": ...
    @overload
    def join(
        self,
        other: "KTable[K2, V2]",
        joiner: Callable[[V, V2], R],
        name: str | None = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        **options: Unpack[ForeignKeyJoinOptions[K, R]],
    ) -> "KTable[K, R]": ...
    @overload
    def join(
        self,
        other: "KTable[K2, V2]",
        joiner: Callable[[K, V, V2], R],
        name: str | None = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        **options: Unpack[ForeignKeyJoinOptions[K, R]],
    ) -> "KTable[K, R]": ...
    def join(self, other: Any, joiner: Callable[..., Any], name: str | None = None, **options: Any) -> "KTable[K, Any]":
        """Join each row with the row of another table that has the same key, or the key returned by ``foreign_key``.

        The joiner takes (left, right) or (key, left, right).  ``foreign_key(key, value)`` is called with the left
        row (KIP-213).  ``store`` is the name of a store for the result.

        >>> one = totals.join(customers, lambda total, name: name, foreign_key=lambda key, total: str(total))
        >>> play(one, ("customers", "7", "Ann"), ("totals", "first", 7))
        [('first', 'Ann')]
        """
        return KTable(table_joins.join(self._ref, _ref(other), joiner, JoinKind.INNER, name, options))

    @overload
    def left_join(
        self,
        other: "KTable[K, V2]",
        joiner: Callable[[V, V2 | None], R],
        name: str | None = None,
        **options: Unpack[TableJoinOptions[K, R]],
    ) -> "KTable[K, R]": ...
    @overload
    def left_join(
        self,
        other: "KTable[K, V2]",
        joiner: Callable[[K, V, V2 | None], R],
        name: str | None = None,
        **options: Unpack[TableJoinOptions[K, R]],
    ) -> "KTable[K, R]": ...
    @overload
    def left_join(
        self,
        other: "KTable[K2, V2]",
        joiner: Callable[[V, V2 | None], R],
        name: str | None = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        **options: Unpack[ForeignKeyJoinOptions[K, R]],
    ) -> "KTable[K, R]": ...
    @overload
    def left_join(
        self,
        other: "KTable[K2, V2]",
        joiner: Callable[[K, V, V2 | None], R],
        name: str | None = None,
        *,
        foreign_key: Callable[[K, V], K2 | None],
        **options: Unpack[ForeignKeyJoinOptions[K, R]],
    ) -> "KTable[K, R]": ...
    def left_join(
        self, other: Any, joiner: Callable[..., Any], name: str | None = None, **options: Any
    ) -> "KTable[K, Any]":
        """Join like ``join``, with None for the right row if there is no match.

        >>> both = totals.left_join(customers, lambda total, name: (total, name))
        >>> play(both, ("totals", "ann", 1), ("customers", "ann", "Ann"))
        [('ann', (1, None)), ('ann', (1, 'Ann'))]
        """
        return KTable(table_joins.join(self._ref, _ref(other), joiner, JoinKind.LEFT, name, options))

    @overload
    def outer_join(
        self,
        other: "KTable[K, V2]",
        joiner: Callable[[V | None, V2 | None], R],
        name: str | None = None,
        **options: Unpack[TableJoinOptions[K, R]],
    ) -> "KTable[K, R]": ...
    @overload
    def outer_join(
        self,
        other: "KTable[K, V2]",
        joiner: Callable[[K, V | None, V2 | None], R],
        name: str | None = None,
        **options: Unpack[TableJoinOptions[K, R]],
    ) -> "KTable[K, R]": ...
    def outer_join(
        self, other: Any, joiner: Callable[..., Any], name: str | None = None, **options: Any
    ) -> "KTable[K, Any]":
        """Join with another table, with None for a row that does not exist.

        >>> both = totals.outer_join(customers, lambda total, name: (total, name))
        >>> play(both, ("customers", "ann", "Ann"), ("totals", "ann", 1))
        [('ann', (None, 'Ann')), ('ann', (1, 'Ann'))]
        """
        return KTable(table_joins.join(self._ref, _ref(other), joiner, JoinKind.OUTER, name, options))


def _ref(other: Any) -> Any:
    """Return the reference of a table; other objects are returned unchanged, for the error message."""
    return other._ref if isinstance(other, KTable) else other
