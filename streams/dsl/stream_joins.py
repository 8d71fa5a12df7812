"""Joins of a stream with a stream, a table or a global table.

KStream has the signatures; here is what they add to the logical graph, with the names and
numbers of Kafka Streams.  Imports operators and the logical graph.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from streams.core.errors import TopologyError
from streams.dsl.functions import result_type, settle, settled
from streams.dsl.global_table import GlobalKTable
from streams.dsl.join_arguments import JoinArguments, repartitioned
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import NOT_GIVEN, to_ms
from streams.dsl.names import check_name
from streams.dsl.nodes import Process, StreamTableJoin
from streams.dsl.operators import (
    JoinKind,
    StreamGlobalTableJoin,
    grace_store,
)
from streams.dsl.operators import StreamTableJoin as StreamTableJoinOperator
from streams.dsl.slots import hinted, overridden
from streams.dsl.stateless import check_builder, following
from streams.dsl.stream_stream_joins import join_streams
from streams.dsl.table import KTable
from streams.state.specs import StoreSpec

if TYPE_CHECKING:
    from streams.dsl.stream import KStream

_JOINER_FORMS = ("(left, right)", "(key, left, right)")
_VERBS = {JoinKind.INNER: "join", JoinKind.LEFT: "left_join", JoinKind.OUTER: "outer_join"}


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
    arguments = JoinArguments(verb, {**dict(zip(expected, positional, strict=False)), **options})
    with_key = settle(joiner, verb, _JOINER_FORMS) == 1
    if is_stream:
        check_builder(stream, other, verb)
        return join_streams(stream, other, joiner, with_key, kind, arguments)
    if kind is not JoinKind.OUTER and isinstance(other, KTable):
        check_builder(stream, other, verb)
        return _join_table(stream, other, joiner, with_key, kind, arguments)
    if kind is not JoinKind.OUTER and isinstance(other, GlobalKTable):
        check_builder(stream, other, verb)
        return _join_global(stream, other, joiner, with_key, kind, arguments)
    wanted = "another stream" if kind is JoinKind.OUTER else "a stream, a table or a global table"
    raise TopologyError(f"{verb} of {stream!r} needs {wanted}, got {other!r}")


# Stream and table.


def _join_table(
    stream: "KStream[Any, Any]",
    table: KTable[Any, Any],
    joiner: Callable[..., Any],
    with_key: bool,
    kind: JoinKind,
    arguments: JoinArguments,
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
        left = repartitioned(stream, base, key, value)
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
    arguments: JoinArguments,
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
