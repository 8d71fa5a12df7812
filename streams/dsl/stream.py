"""KStream: a stream of records, and the operators on it.

Each method adds a node to the logical graph and returns its output; nothing runs before the
topology is built.  In the examples ``lines`` is a stream of texts without keys, ``orders`` is a stream of
amounts by customer, and ``customers`` is a table of names; ``play`` shows the output for some input.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, Unpack, overload

from attrs import define
from typing_extensions import TypeForm

from streams.core.records import RecordContext
from streams.core.serdes import Serde
from streams.core.topic import Sink
from streams.core.windows import JoinWindows
from streams.dsl import stream_joins, stream_operators
from streams.dsl.branched import Branched
from streams.dsl.global_table import GlobalKTable
from streams.dsl.grouped import KGroupedStream
from streams.dsl.join_arguments import StreamJoinOptions, TableLookupOptions
from streams.dsl.materialized import NOT_GIVEN, SAME_AS_NAME, StoreArguments, StoreOptions
from streams.dsl.operators import JoinKind
from streams.dsl.ref import StreamRef
from streams.dsl.table import KTable
from streams.topology import Partitioner, Processor

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
KO = TypeVar("KO")
VO = TypeVar("VO")
GK = TypeVar("GK")
R = TypeVar("R")


@define(eq=False, repr=False)
class KStream(Generic[K, V]):
    """A stream of records with keys of type ``K`` and values of type ``V``."""

    _ref: StreamRef

    def __repr__(self) -> str:
        return repr(self._ref)

    # Operators on single records.

    def filter(self, predicate: Callable[[K, V], object], name: str | None = None) -> "KStream[K, V]":
        """Keep the records for which ``predicate(key, value)`` is true.

        >>> play(orders.filter(lambda customer, amount: amount > 1), ("ann", 1), ("bob", 2))
        [('bob', 2)]
        """
        return KStream(stream_operators.filter_records(self._ref, predicate, name, negate=False))

    def filter_not(self, predicate: Callable[[K, V], object], name: str | None = None) -> "KStream[K, V]":
        """Drop the records for which ``predicate(key, value)`` is true.

        >>> play(orders.filter_not(lambda customer, amount: amount > 1), ("ann", 1), ("bob", 2))
        [('ann', 1)]
        """
        return KStream(stream_operators.filter_records(self._ref, predicate, name, negate=True))

    def map(self, mapper: Callable[[K, V], tuple[K2, V2]], name: str | None = None) -> "KStream[K2, V2]":
        """Replace key and value with the pair that ``mapper(key, value)`` returns.

        >>> play(orders.map(lambda customer, amount: (amount, customer)), ("ann", 1))
        [(1, 'ann')]
        """
        return KStream(stream_operators.map_records(self._ref, mapper, name))

    @overload
    def map_values(self, mapper: Callable[[V], V2], name: str | None = None) -> "KStream[K, V2]": ...
    @overload
    def map_values(self, mapper: Callable[[K, V], V2], name: str | None = None) -> "KStream[K, V2]": ...
    def map_values(self, mapper: Callable[..., Any], name: str | None = None) -> "KStream[Any, Any]":
        """Replace the value with the result of ``mapper(value)`` or ``mapper(key, value)``.

        >>> play(lines.map_values(str.upper), (None, "hi"))
        [(None, 'HI')]
        """
        return KStream(stream_operators.map_values(self._ref, mapper, name))

    def flat_map(self, mapper: Callable[[K, V], Iterable[tuple[K2, V2]]], name: str | None = None) -> "KStream[K2, V2]":
        """Replace each record with the pairs that ``mapper(key, value)`` returns.

        >>> play(lines.flat_map(lambda _, line: [(word, len(word)) for word in line.split()]), (None, "to be"))
        [('to', 2), ('be', 2)]
        """
        return KStream(stream_operators.flat_map(self._ref, mapper, name))

    @overload
    def flat_map_values(self, mapper: Callable[[V], Iterable[V2]], name: str | None = None) -> "KStream[K, V2]": ...
    @overload
    def flat_map_values(self, mapper: Callable[[K, V], Iterable[V2]], name: str | None = None) -> "KStream[K, V2]": ...
    def flat_map_values(self, mapper: Callable[..., Any], name: str | None = None) -> "KStream[Any, Any]":
        """Replace each record with one record per value returned by ``mapper(value)`` or ``mapper(key, value)``.

        >>> play(lines.flat_map_values(lambda line: line.split()), (None, "to be"))
        [(None, 'to'), (None, 'be')]
        """
        return KStream(stream_operators.flat_map_values(self._ref, mapper, name))

    def select_key(self, mapper: Callable[[K, V], K2], name: str | None = None) -> "KStream[K2, V]":
        """Replace the key with the result of ``mapper(key, value)``.

        A later grouping or join sends the records through a repartition topic.

        >>> play(orders.select_key(lambda customer, amount: customer[0]), ("ann", 1))
        [('a', 1)]
        """
        return KStream(stream_operators.select_key(self._ref, mapper, name))

    def peek(self, action: Callable[[K, V], object], name: str | None = None) -> "KStream[K, V]":
        """Call ``action(key, value)`` for each record and forward the record unchanged.

        >>> play(orders.peek(lambda customer, amount: print("saw", customer)), ("ann", 1))
        saw ann
        [('ann', 1)]
        """
        return KStream(stream_operators.peek(self._ref, action, name))

    def for_each(self, action: Callable[[K, V], object], name: str | None = None) -> None:
        """Call ``action(key, value)`` for each record; a terminal operator.

        >>> orders.for_each(lambda customer, amount: print("saw", customer))
        >>> play(orders, ("ann", 1))
        saw ann
        [('ann', 1)]
        """
        stream_operators.for_each(self._ref, action, name)

    def split(self, name: str | None = None) -> "Branched[K, V]":
        """Split the stream into branches; ``name`` is the prefix of the branch names.

        >>> split = orders.split()
        >>> large = split.branch(lambda customer, amount: amount > 9)
        >>> small = split.default_branch()
        >>> play(large, ("ann", 1), ("bob", 10))
        [('bob', 10)]
        """
        return Branched(self._ref, name, KStream)

    def merge(self, other: "KStream[K2, V2]", name: str | None = None) -> "KStream[K | K2, V | V2]":
        """Merge the records of both streams; the order between the two streams is undefined.

        >>> play(orders.merge(totals.to_stream()), ("ann", 1), ("totals", "bob", 9))
        [('ann', 1), ('bob', 9)]
        """
        return KStream(stream_operators.merge(self._ref, _ref(other), name))

    def process(
        self,
        processor: Callable[[], Processor[K, V, KO, VO]],
        name: str | None = None,
        *,
        stores: Iterable[str] = (),
        key: TypeForm[KO] | Serde[KO] = NOT_GIVEN,
        value: TypeForm[VO] | Serde[VO] = NOT_GIVEN,
    ) -> "KStream[KO, VO]":
        """Process each record with a ``Processor``, given as a class or as a function that creates one per task.

        ``stores`` names stores that were added to the builder; stores that the class declares are
        added automatically.  The key may change (KIP-820).

        >>> class Twice(Processor[str, int, str, int]):
        ...     def process(self, record):
        ...         self.context.forward(record.key, record.value)
        ...         self.context.forward(record.key, record.value)
        >>> play(orders.process(Twice), ("ann", 1))
        [('ann', 1), ('ann', 1)]
        """
        return KStream(stream_operators.process(self._ref, processor, name, stores, key, value))

    def process_values(
        self,
        processor: Callable[[], Processor[K, V, K, VO]],
        name: str | None = None,
        *,
        stores: Iterable[str] = (),
        value: TypeForm[VO] | Serde[VO] = NOT_GIVEN,
    ) -> "KStream[K, VO]":
        """Process each record with a ``Processor`` that must keep the key, so that no repartitioning is needed.

        >>> class Double(Processor[str, int, str, int]):
        ...     def process(self, record):
        ...         self.context.forward(record.key, 2 * record.value)
        >>> play(orders.process_values(Double), ("ann", 1))
        [('ann', 2)]
        """
        return KStream(stream_operators.process_values(self._ref, processor, name, stores, value))

    # Topics.

    def repartition(
        self,
        name: str | None = None,
        *,
        partitions: int | None = None,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        partitioner: Partitioner | None = None,
    ) -> "KStream[K, V]":
        """Send the records through an internal topic ``<name>-repartition`` (KIP-221).

        ``partitions`` is the partition count, by default the count of the source topics.

        >>> play(orders.repartition(partitions=3), ("ann", 1))
        [('ann', 1)]
        """
        return KStream(stream_operators.repartition(self._ref, name, partitions, key, value, partitioner))

    @overload
    def to(self, topic: Sink[K, V], name: str | None = None, *, partitioner: Partitioner | None = None) -> None: ...
    @overload
    def to(
        self,
        topic: str | Callable[[K, V], str],
        name: str | None = None,
        *,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        partitioner: Partitioner | None = None,
    ) -> None: ...
    @overload
    def to(
        self,
        topic: Callable[[K, V, RecordContext], str],
        name: str | None = None,
        *,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        partitioner: Partitioner | None = None,
    ) -> None: ...
    def to(
        self,
        topic: Any,
        name: str | None = None,
        *,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        partitioner: Partitioner | None = None,
    ) -> None:
        """Write the records to a ``Topic``, to a topic given by name, or to the topic that a function returns.

        The function takes (key, value) or (key, value, context), where the context is the
        ``RecordContext`` of the record.

        >>> doubled = Topic("doubled", key=str, value=int)
        >>> orders.map_values(lambda amount: 2 * amount).to(doubled)
        >>> driver = driver_of(orders, ("ann", 1))
        >>> driver.read(doubled)
        [('ann', 2)]
        """
        stream_operators.to_topic(self._ref, topic, name, key, value, partitioner)

    @overload
    def to_table(
        self: "KStream[K, V2 | None]",
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V2]: ...
    @overload
    def to_table(
        self,
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, V]: ...
    def to_table(
        self,
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> Any:
        """Convert the stream to a table: each record replaces the row for its key, and None deletes the row.

        ``name`` is also the store name unless ``store`` is given.

        >>> play(orders.to_table("last-order"), ("ann", 1), ("ann", 2))
        [('ann', 1), ('ann', 2)]
        """
        return KTable(stream_operators.to_table(self._ref, name, StoreArguments(store, key, value, options)))

    # Groups.

    @overload
    def group_by_key(
        self: "KStream[K, V2 | None]",
        name: str | None = None,
        *,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
    ) -> KGroupedStream[K, V2]: ...
    @overload
    def group_by_key(
        self,
        name: str | None = None,
        *,
        key: TypeForm[K] | Serde[K] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
    ) -> KGroupedStream[K, V]: ...
    def group_by_key(self, name: str | None = None, *, key: Any = NOT_GIVEN, value: Any = NOT_GIVEN) -> Any:
        """Group the records by their key, to be counted, reduced or aggregated.

        Records whose value is None are not aggregated.

        ``name`` is the name of the repartition topic, which is created if the key was changed upstream.

        >>> play(orders.group_by_key().count(), ("ann", 1), ("ann", 2))
        [('ann', 1), ('ann', 2)]
        """
        return KGroupedStream(stream_operators.group_by_key(self._ref, name, key, value))

    @overload
    def group_by(
        self: "KStream[K, V2 | None]",
        mapper: Callable[[K, V2 | None], K2],
        name: str | None = None,
        *,
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
        value: TypeForm[V2] | Serde[V2] = NOT_GIVEN,
    ) -> KGroupedStream[K2, V2]: ...
    @overload
    def group_by(
        self,
        mapper: Callable[[K, V], K2],
        name: str | None = None,
        *,
        key: TypeForm[K2] | Serde[K2] = NOT_GIVEN,
        value: TypeForm[V] | Serde[V] = NOT_GIVEN,
    ) -> KGroupedStream[K2, V]: ...
    def group_by(self, mapper: Any, name: str | None = None, *, key: Any = NOT_GIVEN, value: Any = NOT_GIVEN) -> Any:
        """Group the records by the key that ``mapper(key, value)`` returns.

        >>> play(lines.group_by(lambda _, word: word).count("words"), (None, "to"), (None, "be"), (None, "to"))
        [('to', 1), ('be', 1), ('to', 2)]
        """
        return KGroupedStream(stream_operators.group_by(self._ref, mapper, name, key, value))

    # Joins.

    @overload
    def join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[V, V2], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "KStream[K, R]": ...
    @overload
    def join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[K, V, V2], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "KStream[K, R]": ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2], R],
        name: str | None = None,
        **options: Unpack[TableLookupOptions[K, V, V2]],
    ) -> "KStream[K, R]": ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2], R],
        name: str | None = None,
        **options: Unpack[TableLookupOptions[K, V, V2]],
    ) -> "KStream[K, R]": ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[V, V2], R],
        name: str | None = None,
        *,
        key: Callable[[K, V], GK],
    ) -> "KStream[K, R]": ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[K, V, V2], R],
        name: str | None = None,
        *,
        key: Callable[[K, V], GK],
    ) -> "KStream[K, R]": ...
    def join(self, other: Any, joiner: Any, *arguments: Any, **options: Any) -> "KStream[K, Any]":
        """Join with a stream within windows, with a table, or with a global table.

        The joiner takes (left, right) or (key, left, right).

        Two streams join records with the same key whose timestamps are within ``windows``; ``name`` is the
        prefix of the node names, and ``store`` is the prefix of the store names.  A table is looked up when a
        stream record arrives; with ``grace``, the record is buffered for that stream time and joined with the
        row that was valid at the record's timestamp (KIP-923).  A global table needs ``key``, a function that
        returns the table key for (key, value).

        >>> both = orders.join(orders, lambda one, two: one + two, JoinWindows.of(timedelta(seconds=1)))
        >>> play(both, ("ann", 1), ("ann", 2))
        [('ann', 2), ('ann', 3), ('ann', 3), ('ann', 4)]
        """
        return KStream(stream_joins.join(self._ref, _ref(other), joiner, JoinKind.INNER, arguments, options))

    @overload
    def left_join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[V, V2 | None], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "KStream[K, R]": ...
    @overload
    def left_join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[K, V, V2 | None], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "KStream[K, R]": ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], R],
        name: str | None = None,
        **options: Unpack[TableLookupOptions[K, V, V2]],
    ) -> "KStream[K, R]": ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2 | None], R],
        name: str | None = None,
        **options: Unpack[TableLookupOptions[K, V, V2]],
    ) -> "KStream[K, R]": ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[V, V2 | None], R],
        name: str | None = None,
        *,
        key: Callable[[K, V], GK],
    ) -> "KStream[K, R]": ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[K, V, V2 | None], R],
        name: str | None = None,
        *,
        key: Callable[[K, V], GK],
    ) -> "KStream[K, R]": ...
    def left_join(self, other: Any, joiner: Any, *arguments: Any, **options: Any) -> "KStream[K, Any]":
        """Join like ``join``, with None for the right side if there is no match.

        Between streams, a result without a match is emitted when the window has closed (KIP-633).

        >>> named = orders.left_join(customers, lambda amount, name: (name, amount))
        >>> play(named, ("ann", 1), ("customers", "ann", "Ann"), ("ann", 2))
        [('ann', (None, 1)), ('ann', ('Ann', 2))]
        """
        return KStream(stream_joins.join(self._ref, _ref(other), joiner, JoinKind.LEFT, arguments, options))

    @overload
    def outer_join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[V | None, V2 | None], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "KStream[K, R]": ...
    @overload
    def outer_join(
        self,
        other: "KStream[K, V2]",
        joiner: Callable[[K, V | None, V2 | None], R],
        windows: JoinWindows,
        name: str | None = None,
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> "KStream[K, R]": ...
    def outer_join(self, other: Any, joiner: Any, *arguments: Any, **options: Any) -> "KStream[K, Any]":
        """Join two streams, with None for a side that has no match.

        >>> changes = totals.to_stream()
        >>> near = JoinWindows.of(timedelta(seconds=1))
        >>> both = orders.outer_join(changes, lambda amount, total: (amount, total), near)
        >>> play(both, ("ann", 1, 0), ("totals", "ann", 9, 500), ("bob", 2, 600), ("totals", "cid", 3, 3000))
        [('ann', (1, 9)), ('bob', (2, None))]
        """
        return KStream(stream_joins.join(self._ref, _ref(other), joiner, JoinKind.OUTER, arguments, options))


def _ref(other: Any) -> Any:
    """Return the reference of a stream or table; other objects are returned unchanged, for the error message."""
    return other._ref if isinstance(other, KStream | KTable | GlobalKTable) else other
