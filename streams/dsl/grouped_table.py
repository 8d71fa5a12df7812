"""``KGroupedTable``: rows of a table grouped by a new key.

In the examples ``customers`` is a table of names; ``play`` shows the output for some input.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from attrs import define
from typing_extensions import TypeForm

from streams.core.arguments import NOT_GIVEN
from streams.core.serdes.serdes import Serde
from streams.dsl.building.aggregation import TableAggregation
from streams.dsl.initializer import Initializer
from streams.dsl.materialized import SAME_AS_NAME, StoreArguments, StoreOptions
from streams.dsl.processing import TableFold
from streams.dsl.ref import GroupedTableRef
from streams.dsl.table import KTable

if TYPE_CHECKING:
    from streams.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


@define(eq=False, repr=False)
class KGroupedTable(Generic[K, V]):
    """Rows of a table grouped by new keys; when a row changes, the old row is subtracted from its group.

    In all aggregations ``name`` is also the store name unless ``store`` is given.
    """

    _ref: GroupedTableRef

    def __repr__(self) -> str:
        return repr(self._ref)

    def dropped(self, name: str | None = None) -> "KStream[Any, Any]":
        """Return a stream of the rows that are in no group, because ``group_by`` gave them a key or value of None.

        A row has its key and value in the ungrouped table.  Rows of a versioned table that are out of order are dropped
        too.  ``DropNote.of(headers)`` reads the reason from the headers of a record.

        >>> short = customers.group_by(lambda customer, name: (name[0] if len(name) < 4 else None, name))
        >>> counts, dropped = short.count(), short.dropped()
        >>> play(dropped, ("customers", "c1", "Ann"), ("customers", "c2", "Bobby"))
        [('c2', 'Bobby')]
        """
        from streams.dsl.stream import KStream

        return KStream(self._ref.side.dropped(name))

    def count(
        self,
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, int]:
        """Count the rows of each group.

        >>> initials = customers.group_by(lambda customer, name: (name[0], name))
        >>> play(initials.count(), ("customers", "c1", "Ann"), ("customers", "c2", "Abe"))
        [('A', 1), ('A', 2)]
        """
        return KTable(TableAggregation(self._ref).count(name, StoreArguments(store, key, NOT_GIVEN, options)))

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]:
        """Combine the rows of each group with ``adder(aggregate, new)`` and ``subtractor(aggregate, old)``.

        >>> lengths = customers.group_by(lambda customer, name: ("all", len(name)))
        >>> total = lengths.reduce(lambda total, new: total + new, lambda total, old: total - old)
        >>> play(total, ("customers", "c1", "Ann"), ("customers", "c1", "Bobby"))
        [('all', 3), ('all', 5)]
        """
        arguments = StoreArguments(store, key, value, options)
        return KTable(TableAggregation(self._ref).reduce(adder, subtractor, name, arguments))

    @overload
    def aggregate(
        self,
        initializer: Initializer[A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, A]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        name: str | None = None,
        *,
        value: TypeForm[A],
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, A]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        name: str | None = None,
        *,
        value: Serde[A],
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, A]: ...
    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[K, V, Any], Any],
        subtractor: Callable[[K, V, Any], Any],
        name: str | None = None,
        *,
        value: Any = NOT_GIVEN,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, Any]:
        """Fold the rows of each group, starting with ``initializer()``; both functions take (key, value, aggregate).

        >>> initials = customers.group_by(lambda customer, name: (name[0], name))
        >>> longest = initials.aggregate(
        ...     lambda: 0, lambda key, name, total: total + len(name), lambda key, name, total: total - len(name))
        >>> play(longest, ("customers", "c1", "Ann"), ("customers", "c2", "Abel"))
        [('A', 3), ('A', 7)]
        """
        fold = TableFold(initializer, adder, subtractor)
        arguments = StoreArguments(store, key, value, options)
        return KTable(TableAggregation(self._ref).aggregate(fold, name, arguments))
