"""Joins of two streams within a window of time.

Before the join each side keeps its records in a window store; the join looks into that of the
other side.  Between stream_joins and the logical graph; imports operators.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, frozen

from streams.core.errors import TopologyError
from streams.core.windows import JoinWindows
from streams.dsl.functions import result_type
from streams.dsl.join_arguments import JoinArguments, repartitioned
from streams.dsl.logical import LogicalGraph, LogicalNode
from streams.dsl.materialized import NOT_GIVEN, Materialized, once
from streams.dsl.names import Names, check_name
from streams.dsl.nodes import Process
from streams.dsl.nodes import StreamStreamJoin as StreamStreamJoinNode
from streams.dsl.operators import JoinBuffer, JoinKind, StreamSelfJoin, StreamStreamJoin, unmatched_store
from streams.dsl.slots import Slot, hinted, overridden
from streams.dsl.stateless import following
from streams.state.specs import StoreKind, StoreSpec

if TYPE_CHECKING:
    from streams.dsl.stream import KStream


@define
class _Sides:
    """Names of the parts of a stream-stream join, in the order in which Kafka Streams numbers them."""

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
    """A join with its stores; makes the contents of its nodes."""

    sides: _Sides
    kind: JoinKind
    windows: JoinWindows
    joiner: Callable[..., Any]
    with_key: bool
    kept: Materialized
    other_kept: Materialized
    #: The store for records that found no partner yet: its name and its spec.
    unmatched: str | None
    unmatched_spec: Callable[[], StoreSpec]

    def claim_stores(self, graph: LogicalGraph) -> None:
        """Reserve the names of the stores."""
        graph.claim_store(self.kept.store)
        graph.claim_store(self.other_kept.store)
        if self.unmatched is not None:
            graph.claim_store(self.unmatched)

    def content(self) -> StreamStreamJoinNode:
        """Return the content of the join node."""
        sides, kept = self.sides, self.kept
        retention_ms = kept.retention_ms
        self_join = Process(
            lambda: StreamSelfJoin(kept.store, self.windows, self.joiner, self.with_key, retention_ms),
            lambda: (kept.spec(),),
        )
        return StreamStreamJoinNode(
            sides.this_windowed,
            sides.other_windowed,
            sides.this_name,
            sides.other_name,
            self._side(is_left=True),
            self._side(is_left=False),
            self_join,
        )

    def _side(self, *, is_left: bool) -> Process:
        read = self.other_kept if is_left else self.kept
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
                self.kept.key.resolve(),
            )

        def stores() -> Sequence[StoreSpec]:
            return (read.spec(),) if self.unmatched is None else (read.spec(), self.unmatched_spec())

        return Process(operator, stores)


def _buffer(name: str, kept: Materialized) -> LogicalNode:
    return LogicalNode(name, Process(lambda: JoinBuffer(kept.store), lambda: (kept.spec(),)))


def join_streams(
    stream: "KStream[Any, Any]",
    other: "KStream[Any, Any]",
    joiner: Callable[..., Any],
    with_key: bool,
    kind: JoinKind,
    arguments: JoinArguments,
) -> "KStream[Any, Any]":
    """Add a join of two streams."""
    graph = stream._graph
    windows, name, store = arguments.take("windows"), arguments.take("name"), arguments.take("store")
    logging, key_form = arguments.take("logging", True), arguments.take("key", NOT_GIVEN)
    this_form, other_form = arguments.take("value", NOT_GIVEN), arguments.take("other_value", NOT_GIVEN)
    arguments.finish()
    if not isinstance(windows, JoinWindows):
        raise TopologyError(
            f"{arguments.verb} of {stream!r} and {other!r} needs windows=JoinWindows.of(...), got {windows!r}"
        )
    base = None if name is None else check_name(name)
    key, other_key = overridden(stream._key, key_form, stream._name), overridden(other._key, key_form, other._name)
    value = overridden(stream._value, this_form, stream._name)
    other_value = overridden(other._value, other_form, other._name)
    key.same_as(other_key)
    left, right = stream, other
    if stream._needs_repartition:
        left = repartitioned(stream, stream._name if base is None else f"{base}-left", key, value)
    if other._needs_repartition:
        right = repartitioned(other, other._name if base is None else f"{base}-right", other_key, other_value)
    sources = graph.copartition(left._sources | right._sources)

    sides = _sides(graph.names, base, kind)
    kept = _kept(sides.this_generated, sides.this_suffix, store, windows, key, value, logging)
    other_kept = _kept(sides.other_generated, sides.other_suffix, store, windows, other_key, other_value, logging)
    unmatched = None if kind is JoinKind.INNER else _unmatched_name(sides, store, kind)
    spec = once(
        lambda: unmatched_store(
            unmatched or "", key.resolve(), value.resolve(), other_value.resolve(), has_changelog=logging
        )
    )
    join = _StreamJoin(sides, kind, windows, joiner, with_key, kept, other_kept, unmatched, spec)
    join.claim_stores(graph)
    graph.add(left._node, _buffer(sides.this_windowed, kept))
    graph.add(right._node, _buffer(sides.other_windowed, other_kept))
    node = LogicalNode(sides.merge, join.content(), has_relaxed_null_keys=kind is not JoinKind.INNER)
    graph.add((left._node, right._node), node)
    result = hinted(result_type(joiner), sides.merge)
    return following(left, node, key, result, needs_repartition=False, sources=sources)


def _kept(
    generated: str, suffix: str, store: str | None, windows: JoinWindows, key: Slot, value: Slot, logging: bool
) -> Materialized:
    """Return the store of one side, which keeps records of equal key and time apart."""
    base = generated if store is None else check_name(store, "store name") + suffix
    return Materialized(
        f"{base}-store",
        store is not None,
        StoreKind.WINDOW,
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
    """Return the name of the store for records that found no partner yet."""
    if store is not None:
        suffix = "-outer-shared-join" if kind is JoinKind.OUTER else "-left-shared-join"
        return f"{store}{suffix}-store"
    number = sides.this_generated[-10:]
    return f"KSTREAM-OUTERSHARED-{number}-store"
