"""Joins of a stream with a stream, a table or a global table.

KStream has the signatures; here is what they add to the logical graph, with the names and
numbers of Kafka Streams.  Imports operators and the logical graph.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from attrs import define, evolve

from streams.core.errors import TopologyError
from streams.core.windows import JoinWindows
from streams.dsl.functions import result_type, settle, settled
from streams.dsl.global_table import GlobalKTable
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import NOT_GIVEN, Materialized, once, to_ms
from streams.dsl.names import check_name
from streams.dsl.nodes import Process, StreamTableJoin
from streams.dsl.nodes import StreamStreamJoin as StreamStreamJoinNode
from streams.dsl.operators import (
    JoinBuffer,
    JoinKind,
    StreamGlobalTableJoin,
    StreamSelfJoin,
    StreamStreamJoin,
    grace_store,
    unmatched_store,
)
from streams.dsl.operators import StreamTableJoin as StreamTableJoinOperator
from streams.dsl.repartition import repartition_node
from streams.dsl.slots import Slot, hinted, overridden
from streams.dsl.stateless import check_builder, following
from streams.dsl.table import KTable
from streams.state.specs import StoreKind, StoreSpec

if TYPE_CHECKING:
    from streams.dsl.stream import KStream

_JOINER_FORMS = ("(left, right)", "(key, left, right)")
_VERBS = {JoinKind.INNER: "join", JoinKind.LEFT: "left_join", JoinKind.OUTER: "outer_join"}


@define
class _Arguments:
    """What a user gave besides the other side and the joiner."""

    verb: str
    given: dict[str, Any]

    def take(self, name: str, default: Any = None) -> Any:
        """Return one argument."""
        return self.given.pop(name, default)

    def finish(self) -> None:
        """Refuse arguments that nothing took."""
        if self.given:
            raise TopologyError(f"{self.verb} does not take {min(self.given)!r} with this kind of other side")


def joined(
    stream: "KStream[Any, Any]",
    other: Any,
    joiner: Callable[..., Any],
    kind: JoinKind,
    positional: Sequence[Any],
    options: Mapping[str, Any],
) -> "KStream[Any, Any]":
    """Join with whatever the other side is."""
    verb = _VERBS[kind]
    is_stream = isinstance(other, type(stream))
    expected = ("windows", "name") if is_stream else ("name",)
    if len(positional) > len(expected):
        raise TopologyError(f"{verb} of {stream!r} and {other!r} takes {', '.join(('joiner', *expected))} by position")
    arguments = _Arguments(verb, {**dict(zip(expected, positional, strict=False)), **options})
    with_key = settle(joiner, verb, _JOINER_FORMS) == 1
    if is_stream:
        check_builder(stream, other, verb)
        return _join_streams(stream, other, joiner, with_key, kind, arguments)
    if kind is not JoinKind.OUTER and isinstance(other, KTable):
        check_builder(stream, other, verb)
        return _join_table(stream, other, joiner, with_key, kind, arguments)
    if kind is not JoinKind.OUTER and isinstance(other, GlobalKTable):
        check_builder(stream, other, verb)
        return _join_global(stream, other, joiner, with_key, kind, arguments)
    wanted = "another stream" if kind is JoinKind.OUTER else "a stream, a table or a global table"
    raise TopologyError(f"{verb} of {stream!r} needs {wanted}, got {other!r}")


def _repartitioned(stream: "KStream[Any, Any]", base: str, key: Slot, value: Slot) -> "KStream[Any, Any]":
    """Return the stream behind a repartition topic; joins without a name share one."""
    node = repartition_node(stream._graph.names, base, key, value)
    if stream._repartition is None or stream._name != base:
        stream._repartition = stream._graph.add(stream._node, node)
    shared = stream._repartition
    return following(stream, shared, key, value, needs_repartition=False, sources=frozenset((shared.name,)))


# Stream and stream.


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


def _sides(stream: "KStream[Any, Any]", name: str | None, kind: JoinKind) -> _Sides:
    names = stream._graph.names
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


def _join_streams(
    stream: "KStream[Any, Any]",
    other: "KStream[Any, Any]",
    joiner: Callable[..., Any],
    with_key: bool,
    kind: JoinKind,
    arguments: _Arguments,
) -> "KStream[Any, Any]":
    graph = stream._graph
    windows, name = arguments.take("windows"), arguments.take("name")
    store, logging = arguments.take("store"), arguments.take("logging", True)
    key_form = arguments.take("key", NOT_GIVEN)
    this_form, other_form = arguments.take("value", NOT_GIVEN), arguments.take("other_value", NOT_GIVEN)
    arguments.finish()
    if not isinstance(windows, JoinWindows):
        raise TopologyError(
            f"{arguments.verb} of {stream!r} and {other!r} needs windows=JoinWindows.of(...), got {windows!r}"
        )
    base = None if name is None else check_name(name)
    this_key, other_key = overridden(stream._key, key_form, stream._name), overridden(other._key, key_form, other._name)
    this_value = overridden(stream._value, this_form, stream._name)
    other_value = overridden(other._value, other_form, other._name)
    this_key.same_as(other_key)
    left, right = stream, other
    if stream._needs_repartition:
        left = _repartitioned(stream, stream._name if base is None else f"{base}-left", this_key, this_value)
    if other._needs_repartition:
        right = _repartitioned(other, other._name if base is None else f"{base}-right", other_key, other_value)
    sources = graph.copartition(left._sources | right._sources)

    sides = _sides(stream, base, kind)
    if store is not None:
        check_name(store, "store name")
    this_store = (sides.this_generated if store is None else store + sides.this_suffix) + "-store"
    other_store = (sides.other_generated if store is None else store + sides.other_suffix) + "-store"
    kept = Materialized(
        this_store,
        store is not None,
        StoreKind.WINDOW,
        this_key,
        this_value,
        has_caching=False,
        has_changelog=logging,
        retention_ms=windows.size_ms + windows.grace_ms,
        window_size_ms=windows.size_ms,
        retain_duplicates=True,
        changelog_config={"cleanup.policy": "delete"},
    )
    other_kept = evolve(kept, store=other_store, key=other_key, value=other_value)
    unmatched = None if kind is JoinKind.INNER else _unmatched_name(sides, store, kind)
    for wanted in (this_store, other_store, *(() if unmatched is None else (unmatched,))):
        graph.claim_store(wanted)

    waiting = once(
        lambda: unmatched_store(
            unmatched or "", this_key.resolve(), this_value.resolve(), other_value.resolve(), has_changelog=logging
        )
    )

    def side(is_left_side: bool) -> Process:
        read = other_store if is_left_side else this_store
        is_outer = kind is JoinKind.OUTER or (is_left_side and kind is JoinKind.LEFT)
        return Process(
            lambda: StreamStreamJoin(
                sides.merge, read, windows, joiner, with_key, is_left_side, is_outer, unmatched, this_key.resolve()
            ),
            lambda: ((other_kept if is_left_side else kept).spec(), *(() if unmatched is None else (waiting(),))),
        )

    retention_ms = windows.size_ms + windows.grace_ms
    self_join = Process(
        lambda: StreamSelfJoin(this_store, windows, joiner, with_key, retention_ms), lambda: (kept.spec(),)
    )
    this_node = LogicalNode(sides.this_windowed, Process(lambda: JoinBuffer(this_store), lambda: (kept.spec(),)))
    other_node = LogicalNode(
        sides.other_windowed, Process(lambda: JoinBuffer(other_store), lambda: (other_kept.spec(),))
    )
    graph.add(left._node, this_node)
    graph.add(right._node, other_node)
    content = StreamStreamJoinNode(
        sides.this_windowed, sides.other_windowed, sides.this_name, sides.other_name, side(True), side(False), self_join
    )
    node = LogicalNode(sides.merge, content, has_relaxed_null_keys=kind is not JoinKind.INNER)
    graph.add((left._node, right._node), node)
    result = hinted(result_type(joiner), sides.merge)
    return following(left, node, this_key, result, needs_repartition=False, sources=sources)


def _unmatched_name(sides: _Sides, store: str | None, kind: JoinKind) -> str:
    """Return the name of the store for records that found no partner yet."""
    if store is not None:
        suffix = "-outer-shared-join" if kind is JoinKind.OUTER else "-left-shared-join"
        return f"{store}{suffix}-store"
    number = sides.this_generated[-10:]
    return f"KSTREAM-OUTERSHARED-{number}-store"


# Stream and table.


def _join_table(
    stream: "KStream[Any, Any]",
    table: KTable[Any, Any],
    joiner: Callable[..., Any],
    with_key: bool,
    kind: JoinKind,
    arguments: _Arguments,
) -> "KStream[Any, Any]":
    graph = stream._graph
    name: str | None = arguments.take("name")
    grace: timedelta | None = arguments.take("grace")
    key_form, form = arguments.take("key", NOT_GIVEN), arguments.take("value", NOT_GIVEN)
    other_form = arguments.take("other_value", NOT_GIVEN)
    arguments.finish()
    is_left = kind is JoinKind.LEFT
    key, value = overridden(stream._key, key_form, stream._name), overridden(stream._value, form, stream._name)
    overridden(table._value, other_form, table._name)  # Only tells the table what it may not know.
    key.same_as(table._key)
    left = stream
    if stream._needs_repartition:
        base = stream._name if name is None else check_name(name)
        left = _repartitioned(stream, base, key, value)
    sources = graph.copartition(left._sources | table._sources)
    full_name = graph.names.given(name, "KSTREAM-LEFTJOIN-" if is_left else "KSTREAM-JOIN-")
    grace_ms, buffer = None, None
    if grace is not None:
        grace_ms = to_ms(grace, f"grace of {arguments.verb} {full_name!r}")
        if table._node.is_output_versioned is False:
            raise TopologyError(
                f"{arguments.verb} of {stream!r} and {table!r}: grace= needs a versioned table; give the table history="
            )
        buffer = f"{full_name}-Buffer"
    values = table._state.values()

    def operator() -> StreamTableJoinOperator:
        return StreamTableJoinOperator(values, joiner, with_key, is_left, grace_ms, buffer, key.resolve())

    def buffers() -> Sequence[StoreSpec]:
        return () if buffer is None else (grace_store(buffer, key.resolve(), value.resolve()),)

    process = Process(operator, buffers, lambda: values.stores)
    content = StreamTableJoin(process, lambda: values.stores, grace_ms)
    node = LogicalNode(full_name, content, has_relaxed_null_keys=is_left)
    graph.add(left._node, node)
    result = hinted(result_type(joiner), full_name)
    return following(left, node, key, result, needs_repartition=False, sources=sources)


def _join_global(
    stream: "KStream[Any, Any]",
    table: GlobalKTable[Any, Any],
    joiner: Callable[..., Any],
    with_key: bool,
    kind: JoinKind,
    arguments: _Arguments,
) -> "KStream[Any, Any]":
    name, table_key = arguments.take("name"), arguments.take("key")
    arguments.finish()
    if table_key is None:
        raise TopologyError(
            f"{arguments.verb} of {stream!r} and {table!r} needs key=: a function from (key, value) to the table's key"
        )
    settled(table_key, arguments.verb, "(key, value)")
    is_left = kind is JoinKind.LEFT
    # Both kinds are called LEFTJOIN in Kafka Streams.
    full_name = stream._graph.names.given(name, "KSTREAM-LEFTJOIN-")
    operator = StreamGlobalTableJoin(table._values(), table_key, joiner, with_key, is_left)
    node = LogicalNode(full_name, Process(lambda: operator), has_relaxed_null_keys=is_left)
    stream._graph.add(stream._node, node)
    return following(stream, node, value=hinted(result_type(joiner), full_name))
