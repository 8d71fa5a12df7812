"""Joins of a stream with a stream, table or global table, implemented as functions that take references.

The public signatures and their documentation are in ``KStream``.  The functions here add the nodes of each join to the
logical graph, with the same names and numbers as in Kafka Streams.  The module imports only ``core`` and ``state`` from
outside ``dsl``.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from streams.core.arguments import NOT_GIVEN
from streams.core.errors import TopologyError
from streams.dsl.building.join_arguments import JoinArguments
from streams.dsl.building.side_outputs import SideOutputs
from streams.dsl.building.stream_stream_joins import join_streams
from streams.dsl.functions import check_function, matching_form, result_type
from streams.dsl.logical import LogicalNode
from streams.dsl.materialized import to_ms
from streams.dsl.names import check_name
from streams.dsl.nodes import LogicalOperator, LogicalStreamTableJoin
from streams.dsl.processing import (
    WAITING_RECORD,
    JoinKind,
    StoreValues,
    StreamGlobalTableJoin,
    StreamTableJoin,
    buffer_spec,
)
from streams.dsl.ref import GlobalTableRef, JoinableRef, StreamRef, TableRef, check_builder
from streams.dsl.serde_variables import annotated, overridden
from streams.state import StoreSpec

_JOINER_FORMS = ("(left, right)", "(key, left, right)")
#: Joins with global tables have another key for the row (KIP-1340).
_GLOBAL_JOINER_FORMS = (*_JOINER_FORMS, "(key, row key, left, right)")
_VERBS = {JoinKind.INNER: "join", JoinKind.LEFT: "left_join", JoinKind.OUTER: "outer_join"}


def join(
    stream: StreamRef,
    other: JoinableRef | Any,
    joiner: Callable[..., Any],
    kind: JoinKind,
    positional: Sequence[Any],
    options: Mapping[str, Any],
) -> StreamRef:
    """Add a ``join``, ``left_join`` or ``outer_join`` with a stream, table or global table to the logical graph."""
    verb = _VERBS[kind]
    is_stream = isinstance(other, StreamRef)
    expected = ("windows", "name") if is_stream else ("name",)
    if len(positional) > len(expected):
        raise TopologyError(f"{verb} of {stream!r} and {other!r} takes {', '.join(('joiner', *expected))} by position")
    arguments = JoinArguments(verb, {**dict(zip(expected, positional, strict=False)), **options})
    if kind is not JoinKind.OUTER and isinstance(other, GlobalTableRef):
        check_builder(stream, other, verb)
        return _join_global(stream, other, joiner, kind, arguments)
    with_key = matching_form(joiner, verb, _JOINER_FORMS) == 1
    if isinstance(other, StreamRef):
        check_builder(stream, other, verb)
        return join_streams(stream, other, joiner, with_key, kind, arguments)
    if kind is not JoinKind.OUTER and isinstance(other, TableRef):
        check_builder(stream, other, verb)
        return _join_table(stream, other, joiner, with_key, kind, arguments)
    partners = "another stream" if kind is JoinKind.OUTER else "a stream, a table or a global table"
    raise TopologyError(f"{verb} of {stream!r} needs {partners}, got {other!r}")


# Stream and table.


def _join_table(
    stream: StreamRef,
    table: TableRef,
    joiner: Callable[..., Any],
    with_key: bool,
    kind: JoinKind,
    arguments: JoinArguments,
) -> StreamRef:
    graph = stream.graph
    name: str | None = arguments.take("name")
    grace: timedelta | None = arguments.take("grace")
    key_form = arguments.take("key", NOT_GIVEN)
    form = arguments.take("value", NOT_GIVEN)
    other_form = arguments.take("other_value", NOT_GIVEN)
    arguments.finish()
    is_left = kind is JoinKind.LEFT
    key = overridden(stream.key, key_form, stream.name)
    value = overridden(stream.value, form, stream.name)
    overridden(table.value, other_form, table.name)  # The type of the table may only become known here.
    key.unify(table.key)
    left = stream
    if stream.needs_repartition:
        base = stream.name if name is None else check_name(name)
        left = stream.repartitioned_for_join(base, key, value)
    full_name = graph.names.node(name, "KSTREAM-LEFTJOIN-" if is_left else "KSTREAM-JOIN-")
    grace_ms = None
    buffer = None
    if grace is not None:
        grace_ms = to_ms(grace, f"grace of {arguments.verb} {full_name!r}")
        if table.node.is_output_versioned is False:
            raise TopologyError(
                f"{arguments.verb} of {stream!r} and {table!r}: grace= needs a versioned table; give the table history="
            )
        buffer = f"{full_name}-Buffer"
    values = table.state.values()

    def operator() -> StreamTableJoin:
        return StreamTableJoin(values, joiner, with_key, is_left, grace_ms, buffer, key.resolve())

    def buffers() -> Sequence[StoreSpec]:
        return () if buffer is None else (buffer_spec(buffer, WAITING_RECORD, key.resolve(), value.resolve()),)

    process = LogicalOperator(operator, buffers, lambda: values.stores)
    content = LogicalStreamTableJoin(process, lambda: values.stores, grace_ms)
    node = LogicalNode(full_name, content, has_relaxed_null_keys=is_left)
    graph.add(left.node, node)
    result = annotated(result_type(joiner), full_name)
    joined = left.at(node, key, result, needs_repartition=False)
    joined.side = SideOutputs(left.at(node, key, value))
    joined.side.attach([node])
    return joined


def _join_global(
    stream: StreamRef,
    table: GlobalTableRef,
    joiner: Callable[..., Any],
    kind: JoinKind,
    arguments: JoinArguments,
) -> StreamRef:
    form = matching_form(joiner, arguments.verb, _GLOBAL_JOINER_FORMS)
    name = arguments.take("name")
    table_key = arguments.take("key")
    arguments.finish()
    if table_key is None:
        raise TopologyError(
            f"{arguments.verb} of {stream!r} and {table!r} needs key=: a function from (key, value) to the table's key"
        )
    check_function(table_key, arguments.verb, "(key, value)")
    is_left = kind is JoinKind.LEFT
    # Both kinds are called LEFTJOIN in Kafka Streams.
    full_name = stream.graph.names.node(name, "KSTREAM-LEFTJOIN-")
    operator = StreamGlobalTableJoin(StoreValues(table.store), table_key, joiner, form == 1, is_left, form == 2)
    node = LogicalNode(full_name, LogicalOperator(lambda: operator), has_relaxed_null_keys=is_left)
    stream.graph.add(stream.node, node)
    joined = stream.at(node, value=annotated(result_type(joiner), full_name))
    joined.side = SideOutputs(stream.at(node, needs_repartition=False))
    joined.side.attach([node])
    return joined


def late(joined: StreamRef, name: str | None) -> StreamRef:
    """Add the side output for the late records of a join of two streams."""
    if not joined.side.has_late:
        raise TopologyError(f"late of {joined!r}: only a join of two streams drops late records; use dropped()")
    stream: StreamRef = joined.side.late(name)
    return stream
