"""The functions of a topology as traced, each with the types of what its node gets; why the others cannot be."""

import re
from pathlib import PurePath
from typing import Any

from attrs import frozen

from streams.core.concurrency.threads import INTERRUPTIONS
from streams.core.serdes.serde_types import declared_type
from streams.core.serdes.serdes import Serde
from streams.core.user_code import last_frame_outside
from streams.topology.columns.bytecode import place_of
from streams.topology.columns.forms import Aggregation, ColumnForm, Condition, NewKey, NewValue
from streams.topology.columns.symbols import TraceError
from streams.topology.columns.trace import RowShape, Traced, trace_condition, trace_fold, trace_value
from streams.topology.graph import NodeGraph, ProcessorNode, SourceNode


@frozen(eq=False)
class TracedNode:
    """A node whose function, if it has one, was traced; ``form`` is None for nodes that forward what they get."""

    node: ProcessorNode
    form: ColumnForm | None
    traced: Traced | None
    #: Why it was not traced.
    reason: str = ""


@frozen
class _Forwarded:
    """The shapes of what a node forwards; a text says why one is unknown."""

    key: RowShape | None
    value: RowShape | str


def traced_nodes(graph: NodeGraph) -> dict[str, TracedNode]:
    """Return the nodes with functions or with state, and those that only forward, in the order of the topology.

    A function is run with symbols in place of values; an initializer is called once.
    """
    outputs: dict[str, _Forwarded] = {}
    nodes: dict[str, TracedNode] = {}
    for name in graph.order:
        node = graph.nodes.get(name)
        if isinstance(node, SourceNode):
            outputs[name] = _Forwarded(_key_shape(node.key_serde), _value_shape(node.value_serde))
        elif isinstance(node, ProcessorNode):
            nodes[name], outputs[name] = _of_processor(node, [outputs[parent] for parent in node.parents])
    return nodes


def _of_processor(node: ProcessorNode, inputs: list[_Forwarded]) -> tuple[TracedNode, _Forwarded]:
    operator: Any = node.operator
    first = inputs[0]
    if any(each != first for each in inputs):
        first = _Forwarded(None, f"its inputs, {' and '.join(node.parents)}, have different types")
    if getattr(operator, "is_plumbing", False):
        return TracedNode(node, None, None), first
    form: ColumnForm | None = getattr(operator, "columns", None)
    behind = _Forwarded(None, f"its values come from {node.name}, which is computed by rows")
    if form is None:
        return TracedNode(node, None, None, f"{_name(operator)} is not computed in columns"), behind
    if isinstance(form, Aggregation) and form.refusal:
        return TracedNode(node, form, None, form.refusal), behind
    if isinstance(first.value, str) and not isinstance(form, Aggregation):
        return TracedNode(node, form, None, first.value), behind
    try:
        traced = _trace(form, first)
    except TraceError as refusal:
        reason = first.value if isinstance(first.value, str) else reason_of(form, refusal)
        return TracedNode(node, form, None, reason), behind
    match form:
        case NewValue():
            forwarded = _Forwarded(first.key, traced.shape or first.value)
        case NewKey():
            forwarded = _Forwarded(traced.shape, first.value)
        case Aggregation():
            forwarded = _Forwarded(None, traced.shape or first.value)
        case _:
            forwarded = first
    return TracedNode(node, form, traced), forwarded


def _trace(form: ColumnForm, before: _Forwarded) -> Traced:
    value = None if isinstance(before.value, str) else before.value
    match form:
        case Aggregation():
            try:
                initial = form.initializer()
            except INTERRUPTIONS:
                raise
            except Exception as error:
                raise TraceError(f"has an initializer that raises {type(error).__name__}: {error}") from error
            return trace_fold(form.aggregator, initial, before.key, value)
        case Condition(function):
            assert value is not None
            return trace_condition(function, before.key, value)
        case NewValue(function, with_key):
            assert value is not None
            return trace_value(function, before.key, value, with_key=with_key)
        case NewKey(function):
            assert value is not None
            return trace_value(function, before.key, value)


def reason_of(form: ColumnForm, refusal: TraceError) -> str:
    """Return what was refused of the function of a node, with its place."""
    places = getattr(refusal, "__notes__", [])
    frame = last_frame_outside(refusal.__traceback__)
    if places:
        place = places[0]
    elif frame is not None:
        place = f"{frame.name} ({PurePath(frame.filename).name}:{frame.lineno})"
    else:
        place = place_of(_users(form.aggregator if isinstance(form, Aggregation) else form.function))
    return f"{place} {refusal}"


def _users(function: Any) -> Any:
    """Return the user's function within one of this package, such as a reducer."""
    if (getattr(function, "__module__", None) or "").startswith("streams."):
        for cell in function.__closure__ or ():
            if callable(cell.cell_contents):
                return cell.cell_contents
    return function


def _name(operator: Any) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(operator).__name__).lower()


def _key_shape(serde: Serde[Any]) -> RowShape | None:
    shape = _value_shape(serde)
    return None if isinstance(shape, str) else shape


def _value_shape(serde: Serde[Any]) -> RowShape | str:
    form = declared_type(serde)
    if form is None:
        return f"its values have no declared class: they are of serde {serde.name!r}"
    try:
        return RowShape.of(form)
    except TraceError as refusal:
        return f"it {refusal}"
