"""Which nodes of a topology can be computed in columns, with the fields that they use, and why the others cannot."""

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


@frozen
class ColumnVerdict:
    """Whether a node can be computed in columns: ``fields`` are those that it uses; None with a ``reason`` if not."""

    node: str
    fields: tuple[str, ...] | None
    reason: str = ""

    def __str__(self) -> str:
        if self.fields is None:
            return f"{self.node}: rows, since {self.reason}"
        return f"{self.node}: columns ({', '.join(self.fields)})" if self.fields else f"{self.node}: columns"


@frozen
class _Forwarded:
    """The shapes of what a node forwards; a text says why one is unknown."""

    key: RowShape | None
    value: RowShape | str


def verdicts(graph: NodeGraph) -> list[ColumnVerdict]:
    """Return the verdict of each node with functions or with state, in the order of the topology.

    A function is run with symbols in place of values; an initializer is called once.
    """
    outputs: dict[str, _Forwarded] = {}
    told: list[ColumnVerdict] = []
    for name in graph.order:
        node = graph.nodes.get(name)
        if isinstance(node, SourceNode):
            outputs[name] = _Forwarded(_key_shape(node.key_serde), _value_shape(node.value_serde))
        elif isinstance(node, ProcessorNode):
            outputs[name] = _of_processor(node, [outputs[parent] for parent in node.parents], told)
    return told


def _of_processor(node: ProcessorNode, inputs: list[_Forwarded], told: list[ColumnVerdict]) -> _Forwarded:
    operator: Any = node.operator
    first = inputs[0]
    if any(each != first for each in inputs):
        first = _Forwarded(None, f"its inputs, {' and '.join(node.parents)}, have different types")
    if getattr(operator, "is_plumbing", False):
        return first
    form: ColumnForm | None = getattr(operator, "columns", None)
    if form is None:
        return _rows(node, told, f"{_name(operator)} is not computed in columns")
    if isinstance(first.value, str) and not isinstance(form, Aggregation):
        return _rows(node, told, first.value)
    try:
        traced = _trace(form, first)
    except TraceError as refusal:
        return _rows(node, told, first.value if isinstance(first.value, str) else _reason(form, refusal))
    told.append(ColumnVerdict(node.name, traced.fields))
    match form:
        case NewValue():
            return _Forwarded(first.key, traced.shape or first.value)
        case NewKey():
            return _Forwarded(traced.shape, first.value)
        case Aggregation():
            return _Forwarded(None, traced.shape or first.value)
        case _:
            return first


def _trace(form: ColumnForm, before: _Forwarded) -> Traced:
    value = None if isinstance(before.value, str) else before.value
    match form:
        case Aggregation(initializer, aggregator):
            try:
                initial = initializer()
            except INTERRUPTIONS:
                raise
            except Exception as error:
                raise TraceError(f"has an initializer that raises {type(error).__name__}: {error}") from error
            return trace_fold(aggregator, initial, before.key, value)
        case Condition(function):
            assert value is not None
            return trace_condition(function, before.key, value)
        case NewValue(function, with_key):
            assert value is not None
            return trace_value(function, before.key, value, with_key=with_key)
        case NewKey(function):
            assert value is not None
            return trace_value(function, before.key, value)


def _rows(node: ProcessorNode, told: list[ColumnVerdict], reason: str) -> _Forwarded:
    told.append(ColumnVerdict(node.name, None, reason))
    return _Forwarded(None, f"its values come from {node.name}, which is computed by rows")


def _reason(form: ColumnForm, refusal: TraceError) -> str:
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
    if getattr(function, "__module__", "").startswith("streams."):
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
