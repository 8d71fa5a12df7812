"""Joins of two streams within a time window.

Upstream of the join, each side keeps its records in a window store, and the join node of one side reads the store of
the other side.  ``stream_joins`` uses this module to extend the logical graph.
"""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from streams.core.arguments import NOT_GIVEN
from streams.core.errors import TopologyError
from streams.core.event_time.windows import JoinWindows
from streams.dsl.building.join_arguments import JoinArguments
from streams.dsl.building.side_outputs import SideOutputs
from streams.dsl.functions import result_type
from streams.dsl.logical import LogicalGraph, LogicalNode
from streams.dsl.materialized import Materialized, once
from streams.dsl.names import Names, check_name
from streams.dsl.nodes import LogicalOperator, LogicalStreamStreamJoin
from streams.dsl.processing import JoinBuffer, JoinKind, StreamSelfJoin, StreamStreamJoin, unmatched_store
from streams.dsl.ref import StreamRef
from streams.dsl.serde_variables import SerdeVariable, annotated, joint, overridden
from streams.state import WINDOW, StoreSpec


@frozen
class _Side:
    """The names of the nodes and the store of one side of a join."""

    windowed: str
    name: str
    store: str


def _sides(names: Names, name: str | None, store: str | None, kind: JoinKind) -> tuple[_Side, _Side, str]:
    """Return the names of both sides, and the name of the store for unmatched records.

    The numbers are taken from the counter in the same order as in Kafka Streams.
    """
    relaxed = kind is JoinKind.OUTER, kind is not JoinKind.INNER
    windowed = [names.suffixed(name, f"-{side}-windowed", "KSTREAM-WINDOWED-") for side in ("this", "other")]
    sides = []
    generated = []
    for which, is_outer, buffer in zip(("this", "other"), relaxed, windowed, strict=True):
        generated.append(names.generated(f"KSTREAM-{'OUTER' if is_outer else 'JOIN'}{which.upper()}-"))
        suffix = f"-outer-{which}-join" if is_outer else f"-{which}-join"
        base = generated[-1] if store is None else check_name(store, "store name") + suffix
        sides.append(_Side(buffer, generated[-1] if name is None else name + suffix, f"{base}-store"))
    if store is None:
        unmatched = f"KSTREAM-OUTERSHARED-{generated[0][-10:]}-store"
    else:
        unmatched = f"{store}-{'outer' if kind is JoinKind.OUTER else 'left'}-shared-join-store"
    return sides[0], sides[1], unmatched


@frozen
class _StreamJoin:
    """The definition of a stream-stream join with its stores, from which the logical node is created."""

    name: str
    this: _Side
    other: _Side
    kind: JoinKind
    windows: JoinWindows
    joiner: Callable[..., Any]
    with_key: bool
    this_store: Materialized
    other_store: Materialized
    #: The name and the spec of the store for unmatched records.
    unmatched: str | None
    unmatched_spec: Callable[[], StoreSpec]

    def claim_stores(self, graph: LogicalGraph) -> None:
        """Reserve the names of the join's stores in the graph."""
        graph.claim_store(self.this_store.store)
        graph.claim_store(self.other_store.store)
        if self.unmatched is not None:
            graph.claim_store(self.unmatched)

    def content(self) -> LogicalStreamStreamJoin:
        this_store = self.this_store
        retention_ms = self.this_store.retention_ms
        self_join = LogicalOperator(
            lambda: StreamSelfJoin(this_store.store, self.windows, self.joiner, self.with_key, retention_ms),
            lambda: (this_store.spec(),),
        )
        return LogicalStreamStreamJoin(
            self.this.windowed,
            self.other.windowed,
            self.this.name,
            self.other.name,
            self._side(is_left=True),
            self._side(is_left=False),
            self_join,
        )

    def _side(self, *, is_left: bool) -> LogicalOperator:
        read = self.other_store if is_left else self.this_store
        is_outer = self.kind is JoinKind.OUTER or (is_left and self.kind is JoinKind.LEFT)

        def operator() -> StreamStreamJoin:
            return StreamStreamJoin(
                self.name,
                read.store,
                self.windows,
                self.joiner,
                self.with_key,
                is_left,
                is_outer,
                self.unmatched,
                self.this_store.key.resolve(),
            )

        def stores() -> Sequence[StoreSpec]:
            return (read.spec(),) if self.unmatched is None else (read.spec(), self.unmatched_spec())

        return LogicalOperator(operator, stores)


def _buffer(name: str, this_store: Materialized) -> LogicalNode:
    return LogicalNode(name, LogicalOperator(lambda: JoinBuffer(this_store.store), lambda: (this_store.spec(),)))


def join_streams(
    stream: StreamRef,
    other: StreamRef,
    joiner: Callable[..., Any],
    with_key: bool,
    kind: JoinKind,
    arguments: JoinArguments,
) -> StreamRef:
    """Add a join of two streams to the logical graph."""
    graph = stream.graph
    windows = arguments.take("windows")
    name = arguments.take("name")
    store = arguments.take("store")
    logging = arguments.flag("logging")
    key_form = arguments.take("key", NOT_GIVEN)
    this_form = arguments.take("value", NOT_GIVEN)
    other_form = arguments.take("other_value", NOT_GIVEN)
    arguments.finish()
    if not isinstance(windows, JoinWindows):
        raise TopologyError(
            f"{arguments.verb} of {stream!r} and {other!r} needs windows=JoinWindows.of(...), got {windows!r}"
        )
    base = None if name is None else check_name(name)
    key = overridden(stream.key, key_form, stream.name)
    other_key = overridden(other.key, key_form, other.name)
    value = overridden(stream.value, this_form, stream.name)
    other_value = overridden(other.value, other_form, other.name)
    key.unify(other_key)
    left = stream
    right = other
    if stream.needs_repartition:
        left = stream.repartitioned_for_join(stream.name if base is None else f"{base}-left", key, value)
    if other.needs_repartition:
        right = other.repartitioned_for_join(other.name if base is None else f"{base}-right", other_key, other_value)

    this, that, unmatched_name = _sides(graph.names, base, store, kind)
    merge = graph.names.suffixed(base, "-merge", "KSTREAM-MERGE-")
    is_named = store is not None
    this_store = _join_store(this, is_named, windows, key, value, logging)
    other_store = _join_store(that, is_named, windows, other_key, other_value, logging)
    unmatched = None if kind is JoinKind.INNER or windows.is_eager else unmatched_name
    spec = once(
        lambda: unmatched_store(
            unmatched_name, key.resolve(), value.resolve(), other_value.resolve(), has_changelog=logging
        )
    )
    join = _StreamJoin(merge, this, that, kind, windows, joiner, with_key, this_store, other_store, unmatched, spec)
    join.claim_stores(graph)
    graph.add(left.node, _buffer(this.windowed, this_store))
    graph.add(right.node, _buffer(that.windowed, other_store))
    node = LogicalNode(merge, join.content(), has_relaxed_null_keys=kind is not JoinKind.INNER)
    graph.add((left.node, right.node), node)
    result = annotated(result_type(joiner), merge)
    joined = left.at(node, key, result, needs_repartition=False)
    joined.side = SideOutputs(left.at(node, key, joint(value, other_value, merge)), has_late=True)
    joined.side.attach([node], this.windowed, that.windowed, this.name, that.name)
    return joined


def _join_store(
    side: _Side, is_named: bool, windows: JoinWindows, key: SerdeVariable, value: SerdeVariable, logging: bool
) -> Materialized:
    """Return the store of one side, which keeps records with equal key and time as separate entries."""
    return Materialized(
        side.store,
        is_named,
        WINDOW,
        key,
        value,
        has_caching=False,
        has_changelog=logging,
        retention_ms=windows.size_ms + windows.grace_ms,
        window_size_ms=windows.size_ms,
        retain_duplicates=True,
        changelog_config={"cleanup.policy": "delete"},
    )
