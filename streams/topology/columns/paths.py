"""What runs by columns: the nodes on the way from a source to an aggregate, as one register program."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from attrs import frozen

from streams.core.serdes.serdes import BOOLEAN, BYTES, DOUBLE, INT32, LONG, STRING, Serde
from streams.state import TIMESTAMPED_KEY_VALUE, TIMESTAMPED_WINDOW
from streams.topology.columns.bytecode import OuterName, OuterVariable
from streams.topology.columns.forms import Aggregation, Condition, NewValue
from streams.topology.columns.json_fields import JsonField, json_fields
from streams.topology.columns.nodes import TracedNode, reason_of, traced_nodes
from streams.topology.columns.program import RowProgram, RowProgramWriter
from streams.topology.columns.symbols import TraceError
from streams.topology.columns.trace import RowShape, trace_value
from streams.topology.graph import NodeGraph, ProcessorNode, SinkNode, SourceNode
from streams.topology.stateless import STATELESS, SideOutput

#: Keys that are told apart by their bytes.
_KEYS = (STRING, LONG, INT32, BYTES)
#: A record is in this many windows at most.
_MAX_HOPS = 1000


@frozen
class ColumnVerdict:
    """Whether a node is computed in columns: ``fields`` are those that it uses; None with a ``reason`` if not."""

    node: str
    fields: tuple[str, ...] | None
    reason: str = ""

    def __str__(self) -> str:
        if self.fields is None:
            return f"{self.node}: rows, since {self.reason}"
        return f"{self.node}: columns ({', '.join(self.fields)})" if self.fields else f"{self.node}: columns"


@frozen(eq=False)
class ColumnPath:
    """The way from a source to an aggregate, and the program that does what its nodes do."""

    source: SourceNode
    aggregate: str
    form: Aggregation
    shape: RowShape
    program: RowProgram
    fields: tuple[JsonField, ...]
    outer: tuple[OuterName | OuterVariable, ...]

    @property
    def is_bound(self) -> bool:
        """Whether all that its functions use from outside is still what it was when they were traced."""
        return all(each.is_same for each in self.outer)

    def parts_of(self, value: Any) -> tuple[Any, ...] | None:
        """Return the parts of a state, or None if it is of another class."""
        if self.shape.kind is not None:
            return (value,)
        if type(value) is not self.shape.form:
            return None
        return tuple(getattr(value, name) for name, _ in self.shape.fields)

    def maker(self) -> Callable[..., Any]:
        """Return the function that creates a state of its parts, in their order."""
        form: Any = self.shape.form
        names = tuple(name for name, _ in self.shape.fields)
        if self.shape.kind is not None:
            return lambda part: part
        if not issubclass(form, msgspec.Struct | tuple):
            return _as_read(form, names)
        # Fields by keyword are no positional ones.
        return form if names == getattr(form, "__match_args__", ()) else _by_name(form, names)

    def times(self, function: Callable[..., Any]) -> tuple[RowProgram, tuple[OuterName | OuterVariable, ...]]:
        """Return the program of a function of a value that returns its event time, and what it uses from outside.

        Raises:
            TraceError: the function cannot be traced, or returns no whole number.
        """
        traced = trace_value(function, None, RowShape.of(declared(self.source.value_serde)), with_key=False)
        if traced.shape is None or traced.shape.kind is not int:
            raise TraceError("returns no whole number")
        return RowProgramWriter().value(traced), traced.outer


def _by_name(form: Any, names: tuple[str, ...]) -> Callable[..., Any]:
    return lambda *parts: form(**dict(zip(names, parts, strict=True)))


def _as_read(form: Any, names: tuple[str, ...]) -> Callable[..., Any]:
    """Return what sets the fields of an object as a decoder does, without the constructor of its class."""

    def make(*parts: Any) -> Any:
        value = object.__new__(form)
        for name, part in zip(names, parts, strict=True):
            object.__setattr__(value, name, part)
        return value

    return make


def declared(serde: Serde[Any]) -> Any:
    """Return the type whose values a serde reads."""
    from streams.core.serdes.serde_types import declared_type

    return declared_type(serde)


def column_paths(graph: NodeGraph) -> tuple[dict[str, ColumnPath], list[ColumnVerdict]]:
    """Return the paths by source, and the verdict of each node with functions or with state, in their order."""
    nodes = traced_nodes(graph)
    paths: dict[str, ColumnPath] = {}
    reasons: dict[str, str] = {}
    for name in graph.order:
        source = graph.nodes.get(name)
        if isinstance(source, SourceNode):
            way, reason = _way(graph, nodes, source)
            if not reason:
                try:
                    paths[name] = _path(graph, source, way)
                except TraceError as refusal:
                    reason = str(refusal)
            for each in way:
                reasons.setdefault(each.node.name, reason)
    told = []
    for name, each in nodes.items():
        if each.form is None and not each.reason:
            continue
        reason = each.reason or reasons.get(name, "columns begin at a source, on a way without branches")
        told.append(ColumnVerdict(name, None if reason or each.traced is None else each.traced.fields, reason))
    return paths, told


def verdicts(graph: NodeGraph) -> list[ColumnVerdict]:
    """Return whether columns compute each node with functions or with state in a replay, in the order of the topology.

    A function is run with symbols in place of values; an initializer is called once.
    """
    return column_paths(graph)[1]


def _plain_fields(serde: Serde[Any], what: str) -> tuple[JsonField, ...]:
    try:
        return json_fields(serde)
    except TraceError as refusal:
        raise TraceError(f"{what} {refusal}") from None


def _way(graph: NodeGraph, nodes: Mapping[str, TracedNode], source: SourceNode) -> tuple[list[TracedNode], str]:
    """Return the nodes from a source to the first aggregate, and why columns do not compute them ("" if they do)."""
    way: list[TracedNode] = []
    name = source.name
    while True:
        children = graph.children[name]
        if len(children) != 1:
            return way, f"{name} has {len(children) or 'no'} nodes behind it"
        child = graph.nodes[children[0]]
        if not isinstance(child, ProcessorNode):
            return way, "no aggregate is behind it"
        if len(child.parents) != 1:
            return way, f"{child.name} has several inputs"
        each = nodes[child.name]
        way.append(each)
        if each.reason:
            return way, f"{child.name}, which is behind it, is computed by rows"
        if isinstance(each.form, Aggregation):
            return way, _refusal(graph, source, each.node, each.form)
        if each.form is not None and not isinstance(each.form, Condition | NewValue):
            return way, "columns do not change keys"
        name = child.name


def _refusal(graph: NodeGraph, source: SourceNode, node: ProcessorNode, form: Aggregation) -> str:
    """Return why columns do not compute an aggregate whose functions were traced, or ""."""
    size_ms, advance_ms, _ = form.windows
    if source.key_serde not in _KEYS:
        return f"keys of serde {source.key_serde.name!r} are not told apart by their bytes"
    if size_ms > _MAX_HOPS * max(advance_ms, 1):
        return f"a record is in more than {_MAX_HOPS} windows"
    store = graph.stores[form.store]
    if graph.store_users[form.store] != [node.name]:
        return f"other nodes use its store {form.store!r}"
    if store.kind not in (TIMESTAMPED_WINDOW, TIMESTAMPED_KEY_VALUE) or store.ttl_ms >= 0:
        return "its store keeps more than the last values, or for a time"
    if store.key_serde not in _KEYS:
        return f"keys of serde {store.key_serde.name!r} are not told apart by their bytes"
    if any(
        isinstance(getattr(graph.nodes[child], "operator", None), SideOutput) for child in graph.children[node.name]
    ):
        return "the records that it drops are used"
    operator: Any = node.operator
    if not getattr(operator, "emit_on_close", False):
        behind = [name for name in _behind(graph, node.name) if not _is_simple(graph, name)]
        if behind:
            return f"{behind[0]} takes each of its results"
    return ""


def _behind(graph: NodeGraph, name: str) -> list[str]:
    """Return the nodes behind a node."""
    result: dict[str, None] = {}
    pending = list(graph.children[name])
    while pending:
        each = pending.pop()
        if each not in result:
            result[each] = None
            pending += graph.children.get(each, ())
    return list(result)


def _is_simple(graph: NodeGraph, name: str) -> bool:
    """Whether a node only forwards or writes what it gets, so that it may see several records after another."""
    node = graph.nodes[name]
    return isinstance(node, SinkNode) or (isinstance(node, ProcessorNode) and isinstance(node.operator, STATELESS))


def _path(graph: NodeGraph, source: SourceNode, way: list[TracedNode]) -> ColumnPath:
    writer = RowProgramWriter()
    outer: list[OuterName | OuterVariable] = []
    fields = _plain_fields(source.value_serde, f"values of {source.name}")
    for each in way:
        form = each.form
        traced = each.traced
        if form is None or traced is None:
            continue
        outer += traced.outer
        try:
            match form:
                case Condition():
                    writer.filter(traced, negate=form.negate)
                case NewValue():
                    writer.map(traced)
                case Aggregation():
                    program = writer.fold(traced, is_reduction=form.initializer() is None)
        except TraceError as refusal:
            raise TraceError(reason_of(form, refusal)) from None
    last = way[-1]
    assert isinstance(last.form, Aggregation)
    assert last.traced is not None
    shape = last.traced.shape
    store = graph.stores[last.form.store]
    assert shape is not None
    if shape.kind is None:
        # Others may round what they write, or check what they read.
        _plain_fields(store.value_serde, f"aggregates of {last.node.name}")
        if getattr(getattr(shape.form, "__struct_config__", None), "omit_defaults", False):
            # The encoder omits the very objects of the defaults, not others that are equal.
            raise TraceError(f"aggregates of {last.node.name} are written without their defaults (omit_defaults)")
        initial = last.form.initializer()
        if not store.value_serde.is_immutable and initial is not None and initial is last.form.initializer():
            raise TraceError(f"the initializer of {last.node.name} returns the same object again and again")
    elif store.value_serde is not {int: LONG, float: DOUBLE, bool: BOOLEAN}[shape.kind]:
        raise TraceError(f"aggregates are written with serde {store.value_serde.name!r}")
    return ColumnPath(source, last.node.name, last.form, shape, program, fields, tuple(outer))
