"""``CogroupedKStream``: one aggregate over several grouped streams (KIP-150), windowed or not.

In the examples ``orders`` is a stream of amounts by customer, and ``both`` is the cogroup of its positive
and negative amounts, which adds positive amounts and counts negative ones; ``play`` shows the output for
some input.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from attrs import Factory, define, field

from streams.core.arguments import NOT_GIVEN
from streams.core.blocks.records import Windowed
from streams.core.errors import TopologyError
from streams.core.event_time.windower import Windower
from streams.core.event_time.windows import (
    CalendarWindows,
    CountWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)
from streams.dsl.building.aggregation import AGGREGATOR_FORM, MERGER_FORM, aggregate_variable
from streams.dsl.building.repartition import repartition_node
from streams.dsl.building.side_outputs import SideOutputs
from streams.dsl.building.windowing import UNWINDOWED, Windowing, check_windows
from streams.dsl.functions import check_function
from streams.dsl.logical import LogicalGraph, LogicalNode
from streams.dsl.materialized import SAME_AS_NAME, StoreArguments, StoreOptions, WindowStoreOptions
from streams.dsl.names import check_name
from streams.dsl.nodes import LogicalOperator
from streams.dsl.processing import Fold, OwnAggregates
from streams.dsl.ref import GroupRef, TableRef, check_builder
from streams.dsl.serde_variables import SerdeVariable, joint, overridden
from streams.dsl.table import KTable
from streams.dsl.table_state import SourceState
from streams.topology import Operator, PassThrough

if TYPE_CHECKING:
    from streams.dsl.grouped import KGroupedStream
    from streams.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
MERGE = "COGROUPKSTREAM-MERGE-"


@define(eq=False, repr=False)
class CogroupRef:
    """A reference to a cogroup: its grouped streams, and the repartition topics that its aggregations share."""

    graph: LogicalGraph
    #: Grouped streams with their aggregators, in the order of the calls; a grouped stream may have several.
    members: tuple[tuple[GroupRef, Callable[..., Any]], ...]
    #: The declared type of the aggregate.
    value: Any
    #: Group -> node whose output is partitioned by key: the stream, or its repartition topic.
    parents: dict[GroupRef, LogicalNode] = Factory(dict)

    def __repr__(self) -> str:
        return f"<CogroupedKStream of {len(self.members)}>"

    @property
    def groups(self) -> tuple[GroupRef, ...]:
        """The grouped streams, each once."""
        return tuple(dict.fromkeys(group for group, _ in self.members))

    def with_group(self, group: GroupRef, aggregator: Callable[..., Any]) -> "CogroupRef":
        """Return a cogroup that also contains another grouped stream.

        Raises:
            TopologyError: the stream belongs to another builder, or ``aggregator`` does not accept the arguments.
        """
        check_function(aggregator, "cogroup", AGGREGATOR_FORM)
        check_builder(self, group, "cogroup")
        return CogroupRef(self.graph, (*self.members, (group, aggregator)), self.value, self.parents)

    def side_outputs(self) -> SideOutputs:
        """Return new side outputs for an aggregation of all grouped streams."""
        first, *others = self.groups
        value = first.value
        for other in others:
            value = joint(value, other.value, first.name)
        needs_repartition = any(group.stream.needs_repartition for group in self.groups)
        stream = first.stream
        return SideOutputs(stream.at(stream.node, first.key, value, needs_repartition=needs_repartition))

    def variables(self, initializer: Any, key: Any, value: Any) -> tuple[SerdeVariable, SerdeVariable]:
        """Return the serde variables for the keys, which all groups share, and for the aggregates."""
        first, *others = self.groups
        for other in others:
            first.key.unify(other.key)
        form = self.value if value is NOT_GIVEN else value
        values = aggregate_variable(form, initializer, tuple(aggregator for _, aggregator in self.members), first.name)
        return overridden(first.key, key, first.name), values

    def aggregate(
        self,
        windowing: Windowing,
        initializer: Callable[[], Any],
        merger: Callable[..., Any] | None,
        name: str | None,
        arguments: StoreArguments,
        side: SideOutputs,
    ) -> TableRef:
        """Add one aggregation per grouped stream, all with the same store, and the merge of their results."""
        if merger is not None:
            check_function(merger, "merger of aggregate", MERGER_FORM)
        check_function(initializer, "initializer of aggregate", "()")
        explicit_name = arguments.store_name(name)
        types = self.variables(initializer, arguments.key, arguments.value)
        materialized = windowing.store(self.graph, explicit_name, AGGREGATE, *types, arguments.options)
        if name is not None:
            check_name(name)
        self._repartition(materialized.store)
        state = SourceState(materialized)
        is_versioned = materialized.is_versioned if windowing.windows is None else None
        initializer = OwnAggregates(initializer)
        nodes = []
        for number, (group, aggregator) in enumerate(self.members):
            full_name = self.graph.names.suffixed(name, f"-cogroup-agg-{number}", AGGREGATE)
            materialized.value.node = full_name
            content = LogicalOperator(_maker(windowing, Fold(initializer, aggregator, merger), state), state.specs)
            node = LogicalNode(
                full_name,
                content,
                is_output_versioned=is_versioned,
                grace_ms=windowing.closing_ms,
                window_ms=windowing.window_ms,
            )
            nodes.append(self.graph.add(self.parents[group], node))
        merge_name = self.graph.names.suffixed(name, "-cogroup-merge", MERGE)
        merge = self.graph.add(nodes, LogicalNode(merge_name, LogicalOperator(PassThrough)))
        side.attach(nodes)
        return TableRef(self.graph, merge, windowing.table_key(types[0]), types[1], state)

    def _repartition(self, store: str) -> None:
        for group in self.groups:
            stream = group.stream
            if not stream.needs_repartition:
                self.parents[group] = stream.node
                continue
            node = repartition_node(self.graph.names, group.topic or store, group.key, group.value)
            if group not in self.parents:
                self.graph.add(stream.node, node)
                self.parents[group] = node


def _maker(windowing: Windowing, fold: Fold, state: SourceState) -> Callable[[], Operator]:
    return lambda: windowing.operator(state, fold)


@define(eq=False, repr=False)
class CogroupedKStream(Generic[K, A]):
    """Several grouped streams that feed one aggregate of type ``A`` per key."""

    _ref: CogroupRef
    _side: SideOutputs = field(init=False, default=Factory(lambda self: self._ref.side_outputs(), takes_self=True))

    def __repr__(self) -> str:
        return repr(self._ref)

    def cogroup(self, grouped: "KGroupedStream[K, V]", aggregator: Callable[[K, V, A], A]) -> "CogroupedKStream[K, A]":
        """Add another grouped stream with its own aggregator.

        >>> third = orders.filter(lambda customer, amount: amount == 0).group_by_key()
        >>> three = both.cogroup(third, lambda customer, amount, total: 0)
        >>> play(three.aggregate(lambda: 0), ("ann", 5), ("ann", 0))
        [('ann', 5), ('ann', 0)]
        """
        from streams.dsl.grouped import KGroupedStream

        if not isinstance(grouped, KGroupedStream):
            raise TopologyError(f"cogroup of {self!r} needs a grouped stream, got {grouped!r}")
        return CogroupedKStream(self._ref.with_group(grouped._ref, aggregator))

    def dropped(self, name: str | None = None) -> "KStream[Any, Any]":
        """Return a stream of the records without a key or value, which an aggregation without windows drops."""
        from streams.dsl.stream import KStream

        return KStream(self._side.dropped(name))

    def aggregate(
        self,
        initializer: Callable[[], A],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        **options: Unpack[StoreOptions],
    ) -> KTable[K, A]:
        """Fold the records of all streams by key, starting with ``initializer()``.

        >>> play(both.aggregate(lambda: 0), ("ann", 5), ("ann", -2))
        [('ann', 5), ('ann', 4)]
        """
        arguments = StoreArguments(store, key, value, options)
        return KTable(self._ref.aggregate(UNWINDOWED, initializer, None, name, arguments, self._side))

    @overload
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | UnlimitedWindows | CountWindows | CalendarWindows
    ) -> "TimeWindowedCogroupedKStream[K, A]": ...
    @overload
    def windowed_by(self, windows: SessionWindows | Windower[K, Any]) -> "SessionWindowedCogroupedKStream[K, A]": ...
    def windowed_by(self, windows: Any) -> Any:
        """Group the records by time window as well as by key.

        >>> windowed = both.windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> shown(play(windowed.aggregate(lambda: 0), ("ann", 5, 0), ("ann", -2, 500), ("ann", 3, 1000)))
        ann@0/1000: 5
        ann@0/1000: 4
        ann@1000/2000: 3
        """
        check_windows(self, windows)
        kind = (
            SessionWindowedCogroupedKStream
            if isinstance(windows, SessionWindows | Windower)
            else TimeWindowedCogroupedKStream
        )
        return kind(self._ref, Windowing(windows))


@define(eq=False, repr=False)
class WindowedCogroupedKStream(Generic[K, A]):
    """What the two kinds of windowed cogroups have in common: all but ``aggregate``, which merges sessions."""

    _ref: CogroupRef
    _windowing: Windowing
    _side: SideOutputs = field(init=False, default=Factory(lambda self: self._ref.side_outputs(), takes_self=True))

    def late(self, name: str | None = None) -> "KStream[K, Any]":
        """Return a stream of the records, from all grouped streams, that arrive after their window has closed.

        ``DropNote.of(headers)`` reads the window, and by how much the record was late, from the headers of a record.
        """
        from streams.dsl.stream import KStream

        return KStream(self._side.late(name))

    def dropped(self, name: str | None = None) -> "KStream[Any, Any]":
        """Return a stream of all records that the aggregation drops: late records and records without a key."""
        from streams.dsl.stream import KStream

        return KStream(self._side.dropped(name))


@define(eq=False, repr=False)
class TimeWindowedCogroupedKStream(WindowedCogroupedKStream[K, A]):
    """Cogrouped streams, aggregated in tumbling, hopping, sliding, unlimited or count windows."""

    def aggregate(
        self,
        initializer: Callable[[], A],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], A]:
        """Fold the records of all streams by key and window, starting with ``initializer()``.

        >>> windowed = both.windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> shown(play(windowed.aggregate(lambda: 0), ("ann", 5, 0), ("ann", -2, 500)))
        ann@0/1000: 5
        ann@0/1000: 4
        """
        arguments = StoreArguments(store, key, value, options)
        return KTable(self._ref.aggregate(self._windowing, initializer, None, name, arguments, self._side))


@define(eq=False, repr=False)
class SessionWindowedCogroupedKStream(WindowedCogroupedKStream[K, A]):
    """Cogrouped streams, aggregated in sessions, or in windows of a ``Windower``."""

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A],
        name: str | None = None,
        *,
        store: str | None = SAME_AS_NAME,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        **options: Unpack[WindowStoreOptions],
    ) -> KTable[Windowed[K], A]:
        """Fold the records of all streams by key and session; ``merger(key, left, right)`` merges two sessions.

        >>> sessions = both.windowed_by(SessionWindows.of(timedelta(seconds=1)))
        >>> shown(play(sessions.aggregate(lambda: 0, lambda key, a, b: a + b), ("ann", 5, 0), ("ann", -2, 5000)))
        ann@0/0: 5
        ann@5000/5000: -1
        """
        arguments = StoreArguments(store, key, value, options)
        return KTable(self._ref.aggregate(self._windowing, initializer, merger, name, arguments, self._side))
