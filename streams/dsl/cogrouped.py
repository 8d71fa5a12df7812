"""CogroupedKStream: one aggregate over several grouped streams (KIP-150), windowed or not.

In the examples ``orders`` is a stream of amounts by customer and ``both`` the cogroup of its
positive and negative amounts, which adds the ones and counts the others; ``play`` shows what
comes out for some input.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from attrs import Factory, define

from streams.core.errors import TopologyError
from streams.core.records import Windowed
from streams.core.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from streams.core.windows import Windows as AnyWindows
from streams.dsl.aggregation import (
    AGGREGATOR_FORM,
    MERGER_FORM,
    Group,
    aggregate_slot,
)
from streams.dsl.functions import settled
from streams.dsl.logical import LogicalGraph, LogicalNode
from streams.dsl.materialized import (
    NOT_GIVEN,
    SAME_AS_NAME,
    Materialized,
    StoreOptions,
    WindowStoreOptions,
    key_value,
    store_name,
)
from streams.dsl.names import check_name
from streams.dsl.nodes import Process
from streams.dsl.operators import SessionAggregate, SlidingAggregate, StreamAggregate, WindowAggregate
from streams.dsl.repartition import repartition_node
from streams.dsl.slots import Slot, overridden
from streams.dsl.table import KTable
from streams.dsl.table_state import AggregateState
from streams.dsl.window_stores import closing_ms, window_store, windowed_key
from streams.topology.inline import PassThrough
from streams.topology.operator import Operator

if TYPE_CHECKING:
    from streams.dsl.grouped import KGroupedStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
MERGE = "COGROUPKSTREAM-MERGE-"

#: Makes the operator of one input: aggregator, whether old values are sent.
_MakeInput = Callable[[Callable[..., Any], bool], Operator]


@define(eq=False, repr=False)
class _Inputs:
    """The inputs of a cogroup, with the repartition topics that its aggregations share."""

    graph: LogicalGraph
    groups: dict[Group, Callable[..., Any]]
    value: Any
    together: dict[Group, tuple[LogicalNode, frozenset[str]]] = Factory(dict)

    def key(self, form: Any, node: str) -> Slot:
        """Return the slot of the keys, which all inputs share."""
        first, *others = self.groups
        for other in others:
            first.key.same_as(other.key)
        return overridden(first.key, form, node)

    def aggregated(
        self,
        name: str | None,
        kept: Materialized,
        make: _MakeInput,
        key: Slot,
        grace_ms: int | None = None,
    ) -> KTable[Any, Any]:
        """Add an aggregation per input over one store, and their merge."""
        self._bring_together(kept.store)
        sources = self.graph.copartition(source for group in self.groups for source in self.together[group][1])
        state = AggregateState(kept)
        parts = []
        for number, (group, aggregator) in enumerate(self.groups.items()):
            part = self.graph.names.suffixed(name, f"-cogroup-agg-{number}", AGGREGATE)
            kept.value.node = part
            content = Process(_maker(make, aggregator, state), state.specs)
            node = LogicalNode(part, content, is_output_versioned=_versioned(kept, grace_ms), grace_ms=grace_ms)
            parts.append(self.graph.add(self.together[group][0], node))
        merge = self.graph.names.suffixed(name, "-cogroup-merge", MERGE)
        merged = LogicalNode(merge, Process(PassThrough))
        self.graph.add(parts, merged)
        return KTable(self.graph, merge, key, kept.value, sources, state, merged)

    def _bring_together(self, store: str) -> None:
        for group in self.groups:
            if not group.needs_repartition:
                self.together[group] = group.node, group.sources
                continue
            node = repartition_node(self.graph.names, group.topic or store, group.key, group.value)
            if group not in self.together:
                self.graph.add(group.node, node)
                self.together[group] = node, frozenset((node.name,))


def _maker(make: _MakeInput, aggregator: Callable[..., Any], state: AggregateState) -> Callable[[], Operator]:
    return lambda: make(aggregator, state.send_old)


def _versioned(kept: Materialized, grace_ms: int | None) -> bool | None:
    return kept.is_versioned if grace_ms is None else None


class CogroupedKStream(Generic[K, A]):
    """Several grouped streams that feed one aggregate of type ``A`` per key."""

    __slots__ = ("_graph", "_inputs")

    def __init__(self, graph: LogicalGraph, inputs: "_Inputs | tuple[()]", value: Any) -> None:
        self._graph = graph
        self._inputs = inputs or _Inputs(graph, {}, value)

    def __repr__(self) -> str:
        return f"<CogroupedKStream of {len(self._inputs.groups)}>"

    def _with(self, grouped: "KGroupedStream[Any, Any]", aggregator: Callable[..., Any]) -> "CogroupedKStream[K, A]":
        from streams.dsl.grouped import KGroupedStream

        settled(aggregator, "cogroup", AGGREGATOR_FORM)
        if not isinstance(grouped, KGroupedStream):
            raise TopologyError(f"cogroup of {self!r} needs a grouped stream, got {grouped!r}")
        if grouped._graph is not self._graph:
            raise TopologyError(f"cogroup of {self!r} and {grouped!r}: they belong to different StreamsBuilders")
        groups = {**self._inputs.groups, grouped._group: aggregator}
        return CogroupedKStream(
            self._graph, _Inputs(self._graph, groups, self._inputs.value, self._inputs.together), None
        )

    def cogroup(self, grouped: "KGroupedStream[K, V]", aggregator: Callable[[K, V, A], A]) -> "CogroupedKStream[K, A]":
        """Add another grouped stream with an aggregator of its own.

        >>> third = orders.filter(lambda customer, amount: amount == 0).group_by_key()
        >>> three = both.cogroup(third, lambda customer, amount, total: 0)
        >>> play(three.aggregate(lambda: 0), ("ann", 5), ("ann", 0))
        [('ann', 5), ('ann', 0)]
        """
        return self._with(grouped, aggregator)

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
        """Fold the records of all streams by key, from ``initializer()`` on.

        >>> play(both.aggregate(lambda: 0), ("ann", 5), ("ann", -2))
        [('ann', 5), ('ann', 4)]
        """
        settled(initializer, "initializer of aggregate", "()")
        inputs = self._inputs
        slots = _slots(inputs, initializer, key, value)
        kept = key_value(self._graph, store_name(name, store), AGGREGATE, *slots, options)
        return inputs.aggregated(
            _named(name),
            kept,
            lambda aggregator, send_old: StreamAggregate(kept.store, initializer, aggregator, send_old),
            kept.key,
        )

    @overload
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | UnlimitedWindows
    ) -> "TimeWindowedCogroupedKStream[K, A]": ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> "SessionWindowedCogroupedKStream[K, A]": ...
    def windowed_by(self, windows: Any) -> Any:
        """Group the records by windows of time, too.

        >>> windowed = both.windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> shown(play(windowed.aggregate(lambda: 0), ("ann", 5, 0), ("ann", -2, 500), ("ann", 3, 1000)))
        ann@0/1000: 5
        ann@0/1000: 4
        ann@1000/2000: 3
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._inputs, windows)
        if isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
            return TimeWindowedCogroupedKStream(self._inputs, windows)
        raise TopologyError(
            f"windowed_by of {self!r} needs TimeWindows, SlidingWindows, SessionWindows or UnlimitedWindows, "
            f"got {windows!r}"
        )


def _slots(inputs: _Inputs, initializer: Any, key: Any, value: Any) -> tuple[Slot, Slot]:
    form = inputs.value if value is NOT_GIVEN else value
    node = next(iter(inputs.groups)).name
    return inputs.key(key, node), aggregate_slot(form, initializer, tuple(inputs.groups.values()), node)


def _named(name: str | None) -> str | None:
    return None if name is None else check_name(name)


def _windowed(
    inputs: _Inputs,
    windows: AnyWindows,
    initializer: Any,
    name: str | None,
    wanted: str | None,
    key: Any,
    value: Any,
    options: Mapping[str, Any],
    make: Callable[[Materialized], _MakeInput],
) -> KTable[Any, Any]:
    settled(initializer, "initializer of aggregate", "()")
    slots = _slots(inputs, initializer, key, value)
    kept = window_store(inputs.graph, windows, wanted, AGGREGATE, *slots, options)
    return inputs.aggregated(_named(name), kept, make(kept), windowed_key(windows, kept.key), closing_ms(windows))


@define(eq=False, repr=False)
class TimeWindowedCogroupedKStream(Generic[K, A]):
    """A cogroup in tumbling, hopping, sliding or unlimited windows."""

    _inputs: _Inputs
    _windows: TimeWindows | SlidingWindows | UnlimitedWindows

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
        """Fold the records of all streams by key and window, from ``initializer()`` on.

        >>> windowed = both.windowed_by(TimeWindows.of(timedelta(seconds=1)))
        >>> shown(play(windowed.aggregate(lambda: 0), ("ann", 5, 0), ("ann", -2, 500)))
        ann@0/1000: 5
        ann@0/1000: 4
        """
        windows = self._windows

        def make(kept: Materialized) -> _MakeInput:
            def operator(aggregator: Callable[..., Any], send_old: bool) -> Operator:
                if isinstance(windows, SlidingWindows):
                    return SlidingAggregate(kept.store, windows, initializer, aggregator, send_old)
                return WindowAggregate(kept.store, windows, initializer, aggregator, send_old)

            return operator

        wanted = store_name(name, store)
        return _windowed(self._inputs, windows, initializer, name, wanted, key, value, options, make)


@define(eq=False, repr=False)
class SessionWindowedCogroupedKStream(Generic[K, A]):
    """A cogroup in sessions."""

    _inputs: _Inputs
    _windows: SessionWindows

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
        """Fold the records of all streams by key and session; ``merger(key, left, right)`` joins two sessions.

        >>> sessions = both.windowed_by(SessionWindows.of(timedelta(seconds=1)))
        >>> shown(play(sessions.aggregate(lambda: 0, lambda key, a, b: a + b), ("ann", 5, 0), ("ann", -2, 5000)))
        ann@0/0: 5
        ann@5000/5000: -1
        """
        settled(merger, "merger of aggregate", MERGER_FORM)
        windows = self._windows

        def make(kept: Materialized) -> _MakeInput:
            return lambda aggregator, send_old: SessionAggregate(
                kept.store, windows, initializer, aggregator, merger, send_old
            )

        wanted = store_name(name, store)
        return _windowed(self._inputs, windows, initializer, name, wanted, key, value, options, make)
