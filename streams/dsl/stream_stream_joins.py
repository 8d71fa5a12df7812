"""Joins of two streams within a time window.

Upstream of the join, each side keeps its records in a window store, and the join node of one side reads
the store of the other side.  Used by ``stream_joins`` to extend the logical graph; imports operators.
"""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, frozen

from streams.core.errors import TopologyError
from streams.core.windows import JoinWindows
from streams.dsl.functions import result_type
from streams.dsl.join_arguments import JoinArguments
from streams.dsl.logical import LogicalGraph, LogicalNode
from streams.dsl.materialized import NOT_GIVEN, Materialized, once
from streams.dsl.names import Names, check_name
from streams.dsl.nodes import LogicalOperator, LogicalStreamStreamJoin
from streams.dsl.operators import JoinBuffer, JoinKind, StreamSelfJoin, StreamStreamJoin, unmatched_store
from streams.dsl.ref import StreamRef
from streams.dsl.serde_variables import SerdeVariable, annotated, overridden
from streams.state import WINDOW, StoreSpec


@define
class _Sides:
    """Names of the nodes of a stream-stream join, in the order in which Kafka Streams numbers them."""

    this_windowed: str
    other_windowed: str
    this_generated: str
    other_generated: str
    this_name: str
    other_name: str
    merge: str
    this_suffix: str
    other_suffix: str


def _sides(names: Names, name: str | None, kind: JoinKind) -> _Sides:
    is_outer, is_left = kind is JoinKind.OUTER, kind is not JoinKind.INNER
    this_suffix = "-outer-this-join" if is_outer else "-this-join"
    other_suffix = "-outer-other-join" if is_left else "-other-join"
    this_windowed = names.suffixed(name, "-this-windowed", "KSTREAM-WINDOWED-")
    other_windowed = names.suffixed(name, "-other-windowed", "KSTREAM-WINDOWED-")
    this_generated = names.generated("KSTREAM-OUTERTHIS-" if is_outer else "KSTREAM-JOINTHIS-")
    other_generated = names.generated("KSTREAM-OUTEROTHER-" if is_left else "KSTREAM-JOINOTHER-")
    return _Sides(
        this_windowed,
        other_windowed,
        this_generated,
        other_generated,
        this_generated if name is None else name + this_suffix,
        other_generated if name is None else name + other_suffix,
        names.suffixed(name, "-merge", "KSTREAM-MERGE-"),
        this_suffix,
        other_suffix,
    )


@frozen
class _StreamJoin:
    """A join and its stores, which makes the contents of the join nodes."""

    sides: _Sides
    kind: JoinKind
    windows: JoinWindows
    joiner: Callable[..., Any]
    with_key: bool
    this_store: Materialized
    other_store: Materialized
    #: The name and the spec of the store for records without a match so far.
    unmatched: str | None
    unmatched_spec: Callable[[], StoreSpec]

    def claim_stores(self, graph: LogicalGraph) -> None:
        """Reserve the store names."""
        graph.claim_store(self.this_store.store)
        graph.claim_store(self.other_store.store)
        if self.unmatched is not None:
            graph.claim_store(self.unmatched)

    def content(self) -> LogicalStreamStreamJoin:
        """Return the content of the join node."""
        sides, this_store = self.sides, self.this_store
        retention_ms = this_store.retention_ms
        self_join = LogicalOperator(
            lambda: StreamSelfJoin(this_store.store, self.windows, self.joiner, self.with_key, retention_ms),
            lambda: (this_store.spec(),),
        )
        return LogicalStreamStreamJoin(
            sides.this_windowed,
            sides.other_windowed,
            sides.this_name,
            sides.other_name,
            self._side(is_left=True),
            self._side(is_left=False),
            self_join,
        )

    def _side(self, *, is_left: bool) -> LogicalOperator:
        read = self.other_store if is_left else self.this_store
        is_outer = self.kind is JoinKind.OUTER or (is_left and self.kind is JoinKind.LEFT)

        def operator() -> StreamStreamJoin:
            return StreamStreamJoin(
                self.sides.merge,
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
    """Add a join of two streams."""
    graph = stream.graph
    windows, name, store = arguments.take("windows"), arguments.take("name"), arguments.take("store")
    logging, key_form = arguments.take("logging", True), arguments.take("key", NOT_GIVEN)
    this_form, other_form = arguments.take("value", NOT_GIVEN), arguments.take("other_value", NOT_GIVEN)
    arguments.finish()
    if not isinstance(windows, JoinWindows):
        raise TopologyError(
            f"{arguments.verb} of {stream!r} and {other!r} needs windows=JoinWindows.of(...), got {windows!r}"
        )
    base = None if name is None else check_name(name)
    key, other_key = overridden(stream.key, key_form, stream.name), overridden(other.key, key_form, other.name)
    value = overridden(stream.value, this_form, stream.name)
    other_value = overridden(other.value, other_form, other.name)
    key.unify(other_key)
    left, right = stream, other
    if stream.needs_repartition:
        left = stream.repartitioned_for_join(stream.name if base is None else f"{base}-left", key, value)
    if other.needs_repartition:
        right = other.repartitioned_for_join(other.name if base is None else f"{base}-right", other_key, other_value)
    sources = graph.copartition(left.sources | right.sources)

    sides = _sides(graph.names, base, kind)
    this_store = _join_store(sides.this_generated, sides.this_suffix, store, windows, key, value, logging)
    other_store = _join_store(
        sides.other_generated, sides.other_suffix, store, windows, other_key, other_value, logging
    )
    unmatched = None if kind is JoinKind.INNER else _unmatched_name(sides, store, kind)
    spec = once(
        lambda: unmatched_store(
            unmatched or "", key.resolve(), value.resolve(), other_value.resolve(), has_changelog=logging
        )
    )
    join = _StreamJoin(sides, kind, windows, joiner, with_key, this_store, other_store, unmatched, spec)
    join.claim_stores(graph)
    graph.add(left.node, _buffer(sides.this_windowed, this_store))
    graph.add(right.node, _buffer(sides.other_windowed, other_store))
    node = LogicalNode(sides.merge, join.content(), has_relaxed_null_keys=kind is not JoinKind.INNER)
    graph.add((left.node, right.node), node)
    result = annotated(result_type(joiner), sides.merge)
    return left.at(node, key, result, needs_repartition=False, sources=sources)


def _join_store(
    generated: str,
    suffix: str,
    store: str | None,
    windows: JoinWindows,
    key: SerdeVariable,
    value: SerdeVariable,
    logging: bool,
) -> Materialized:
    """Return the store of one side, which keeps records with equal key and time as separate entries."""
    base = generated if store is None else check_name(store, "store name") + suffix
    return Materialized(
        f"{base}-store",
        store is not None,
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


def _unmatched_name(sides: _Sides, store: str | None, kind: JoinKind) -> str:
    """Return the name of the store for records without a match so far."""
    if store is not None:
        suffix = "-outer-shared-join" if kind is JoinKind.OUTER else "-left-shared-join"
        return f"{store}{suffix}-store"
    number = sides.this_generated[-10:]
    return f"KSTREAM-OUTERSHARED-{number}-store"
