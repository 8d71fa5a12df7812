"""The source code of a program: functions for the sources and nodes of a sub-topology, and the node of each line.

``k``, ``v``, ``t`` and ``h`` are the key, value, timestamp and headers of a record at a source.  Names that end in a
number belong to the node with that number: ``f3`` calls the children of node 3, ``n3`` is the function of the node
itself, and ``p3`` is that of its operator, if the operator is called.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from attrs import define, field, frozen

from streams.core.blocks.records import Headers
from streams.topology.bindings import Binding, Forward, Inlined
from streams.topology.graph import ProcessorNode, SinkNode
from streams.topology.inliner import Inliner, is_simple, name_of
from streams.topology.node_context import NodeContext
from streams.topology.operator import Process
from streams.topology.processors import ProcessorOperator
from streams.topology.shared_headers import LiveHeaders, changes_headers, shares_headers
from streams.topology.stateless import STATELESS, Branch, PassThrough, SideOutput
from streams.topology.topology import Topology

#: Python allows twenty nested blocks in a function; deeper parts become separate functions.
_MAX_DEPTH = 14
#: Maximum number of copies of a node's children if the node forwards in several places; above it, they are called.
_MAX_COPIES = 3

_NONE = ast.Constant(None)


class SinkColumns(Protocol):
    """The outbox columns to which a sink with one topic and no partitioner appends.

    The columns may be cleared, but are never replaced.
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    #: Index of the record -> headers, for records with headers.
    headers: dict[int, Headers]


@frozen(eq=False)
class ProgramHost:
    """What a task provides to its program."""

    #: Non-empty if processing must stop after the current record.
    stop: list[bool]
    #: Drops and counts a record that failed at a node, or raises the error:
    #: (node, error, key, value, timestamp_ms, headers).
    on_error: Callable[[str, Exception, Any, Any, int, Any], None]
    #: Returns the context of an operator: (node, function that calls all children, choice of a child by name).
    context: Callable[[str, Process, Callable[[str], Process]], NodeContext]
    #: Returns the columns of the outbox for a sink with one topic and no partitioner.
    sink_columns: Callable[[SinkNode], SinkColumns]
    #: Returns the process function of a sink that is called rather than inlined.
    sink_process: Callable[[SinkNode], Process]


def sink_names(node: SinkNode, number: int, host: ProgramHost, *, is_guarded: bool) -> dict[str, Any]:
    """Return the values that the names in a sink's generated lines have in one task."""
    if is_guarded or not node.is_plain:
        return {f"sink{number}": host.sink_process(node)}
    names: dict[str, Any] = {}
    columns = host.sink_columns(node)
    for what, serde in (("k", node.key_serde), ("v", node.value_serde)):
        names[f"s{what}{number}"] = serde.serialize
        if serde.quick is not None:
            names[f"x{what}{number}"], names[f"q{what}{number}"] = serde.quick
    names[f"ak{number}"] = columns.keys.append
    names[f"av{number}"] = columns.values.append
    names[f"at{number}"] = columns.timestamps.append
    names[f"ts{number}"] = columns.timestamps
    names[f"hs{number}"] = columns.headers
    return names


@frozen
class NodeShape:
    """The properties of a node on which the program depends, apart from the binding of its operator."""

    name: str
    children: tuple[str, ...]
    parents: int = 0
    #: The class of the operator; None for sources and sinks.
    operator: type | None = None
    changes_headers: bool = False
    shares_headers: bool = False
    is_sink: bool = False
    is_plain: bool = False
    #: Whether the serdes of a sink have a C function, for keys and for values.
    quick: tuple[bool, bool] = (False, False)

    @classmethod
    def of(cls, topology: Topology, name: str) -> "NodeShape":
        """Return what the program depends on of the node with this name."""
        node = topology.nodes[name]
        children = tuple(topology.children[name])
        if isinstance(node, ProcessorNode):
            kind = type(node.operator)
            changes = changes_headers(node)
            shares = shares_headers(node)
            return cls(name, children, len(node.parents), kind, changes, shares)
        if isinstance(node, SinkNode):
            quick = (node.key_serde.quick is not None, node.value_serde.quick is not None)
            return cls(name, children, len(node.parents), is_sink=True, is_plain=node.is_plain, quick=quick)
        return cls(name, children)

    @property
    def is_source(self) -> bool:
        """Whether the node has no operator and writes to no topic."""
        return self.operator is None and not self.is_sink

    def runs(self, kinds: type | tuple[type, ...]) -> bool:
        """Return whether the node runs an operator of one of these classes."""
        return self.operator is not None and issubclass(self.operator, kinds)


@frozen
class ProgramShape:
    """Everything on which the program of a sub-topology depends; equal shapes have the same program.

    ``bodies`` contains the binding of each operator's process function.  With ``isolates``, each node catches its
    errors.  With ``guards_sinks``, all sinks are called rather than inlined.  With ``is_traced``, the calls to a node's
    children are enclosed by ``forwarding``, a name in the program.
    """

    sub_id: int
    nodes: tuple[NodeShape, ...]
    live: LiveHeaders
    bodies: tuple[tuple[str, Binding], ...]
    isolates: bool = field(kw_only=True)
    guards_sinks: bool = field(kw_only=True)
    is_traced: bool = field(kw_only=True, default=False)


@define
class _Record:
    """The expressions for the key, value, timestamp and headers of a record at some point in the program."""

    key: ast.expr
    value: ast.expr
    timestamp: ast.expr
    headers: ast.expr
    #: Number of copies of these lines in the program.
    copies: int = 1

    def __str__(self) -> str:
        return ", ".join(map(_text, self.columns))

    @property
    def columns(self) -> list[ast.expr]:
        return [self.key, self.value, self.timestamp, self.headers]


@define
class ProgramWriter:
    """Writes the program of one sub-topology."""

    shape: ProgramShape
    nodes: Mapping[str, NodeShape] = field(init=False)
    live: LiveHeaders = field(init=False)
    bodies: Mapping[str, Binding] = field(init=False)
    lines: list[str] = field(init=False, factory=list)
    owners: list[str] = field(init=False, factory=list)
    #: Names of the functions that have been written.
    functions: list[str] = field(init=False, factory=list)
    _ids: dict[str, int] = field(init=False)
    #: Functions still to be written: name -> node, and whether the function calls the children of the node.
    _pending: dict[str, tuple[str, bool]] = field(init=False, factory=dict)
    _separate: set[str] = field(init=False, factory=set)
    _variables: Iterator[int] = field(init=False, factory=lambda: iter(range(1 << 30)))

    def __attrs_post_init__(self) -> None:
        self.nodes = {node.name: node for node in self.shape.nodes}
        self.live = self.shape.live
        self.bodies = dict(self.shape.bodies)
        self._ids = {name: number for number, name in enumerate(self.nodes)}

    def write(self) -> None:
        """Write all functions of the program."""
        nodes = self.shape.nodes
        for node in nodes:
            if self._catches(node) or (node.parents > 1 and not self._is_short(node)):
                self._make_separate(node.name)
            if node.runs(SideOutput):
                self._make_separate(node.name)
            if node.runs(ProcessorOperator):
                for child in node.children:
                    self._make_separate(child)
        stops = any(node.runs(ProcessorOperator) for node in nodes)
        for node in nodes:
            if node.is_source:
                self._source(node.name, stops)
            elif node.operator is not None and not node.runs(STATELESS):
                self._need_children(node.name)
        while waiting := [head for head in self._pending if head not in self.functions]:
            self._function(waiting[0], *self._pending[waiting[0]])
        self._mixed(stops)

    def _catches(self, node: NodeShape) -> bool:
        return self.shape.isolates and node.operator is not None

    def _is_short(self, node: NodeShape) -> bool:
        """Return whether a node is small enough to be inlined at each parent, such as a merge before a sink."""
        is_merge = node.runs(PassThrough) and node.parents == 2 and len(node.children) == 1
        return is_merge and self.nodes[node.children[0]].is_sink

    def _make_separate(self, name: str) -> None:
        self._separate.add(name)
        self._pending.setdefault(f"n{self._ids[name]}", (name, False))

    def _need_children(self, name: str) -> None:
        self._pending.setdefault(f"f{self._ids[name]}", (name, True))

    def _line(self, depth: int, text: str, node: str = "") -> None:
        self.lines.append("    " * depth + text)
        self.owners.append(node)

    # Functions.

    def _head(self, name: str, parameters: str, node: str = "") -> None:
        self.functions.append(name)
        self._line(0, "")
        self._line(0, f"def {name}({parameters}):", node)

    def _source(self, name: str, stops: bool) -> None:
        number = self._ids[name]
        children = self._aside(name)
        self._head(f"n{number}", "k, v, t, h", name)
        self._enliven(name, "h", "h", 1)
        self._lines_of(children, 1)
        if self._children_change_headers(name):
            self._line(1, "return h", name)
        for head, columns in (
            (f"r{number}", "keys, values, timestamps"),
            (f"h{number}", "keys, values, timestamps, headers"),
        ):
            self._head(head, columns, name)
            if "headers" in columns:
                self._line(1, f"for k, v, t, h in zip({columns}):", name)
                self._enliven(name, "h", "h", 2)
            else:
                self._line(1, "h = None", name)
                self._line(1, f"for k, v, t in zip({columns}):", name)
                if self._children_change_headers(name):
                    self._line(2, "h = None", name)
                self._enliven(name, "h", "None", 2)
            self._lines_of(children, 2)
            if stops:
                self._line(2, "if stop: break", name)

    def _aside(self, name: str) -> list[tuple[str, str]]:
        """Return the lines for a source's children, which three functions contain, each with the node it belongs to."""
        before = self.lines, self.owners
        self.lines = []
        self.owners = []
        self._children(name, _source_record(), 2)
        children = list(zip(self.lines, self.owners, strict=True))
        self.lines, self.owners = before
        return children

    def _lines_of(self, children: Sequence[tuple[str, str]], depth: int) -> None:
        for line, owner in children:
            self._line(0, line[4 * (2 - depth) :], owner)

    def _mixed(self, stops: bool) -> None:
        """Write the loop over records of several inputs, by their entry functions; with ``stops`` a node may end it."""
        self._head("mixed", "entries, keys, values, timestamps, headers")
        self._line(1, "if headers is None:")
        self._line(2, "for e, k, v, t in zip(entries, keys, values, timestamps):")
        self._line(3, "e(k, v, t, None)")
        if stops:
            self._line(3, "if stop: break")
        self._line(1, "else:")
        self._line(2, "for e, k, v, t, h in zip(entries, keys, values, timestamps, headers):")
        self._line(3, "e(k, v, t, h)")
        if stops:
            self._line(3, "if stop: break")

    def _function(self, head: str, name: str, children_only: bool) -> None:
        self._head(head, "k, v, t, h", name)
        if children_only:
            self._enliven(name, "h", "h", 1)
            if self.shape.is_traced:
                self._line(1, f"with forwarding({name!r}, k, v, t, h):", name)
            self._children(name, _source_record(), 2 if self.shape.is_traced else 1)
        elif self._catches(self.nodes[name]):
            self._line(1, "try:", name)
            self._body(name, _source_record(), 2)
            self._line(1, "except Exception as error:", name)
            headers = "tuple(h) or None" if name in self.live.taking else "h"
            self._line(2, f"on_error({name!r}, error, k, v, t, {headers})", name)
        else:
            self._body(name, _source_record(), 1)
        if self._children_change_headers(name) if children_only else self._changes_headers(name):
            self._line(1, "return h", name)

    # Headers.

    def _changes_headers(self, name: str) -> bool:
        """Return whether a node can change the headers of the record object that its parent forwards.

        Kafka Streams passes one record object to all children: a processor's changes of its headers
        are visible to the siblings after it.  Such nodes return the headers.
        """
        node = self.nodes[name]
        if name in self.live.taking:
            return False
        return node.changes_headers or (node.shares_headers and self._children_change_headers(name))

    def _children_change_headers(self, name: str) -> bool:
        return any(self._changes_headers(child) for child in self.nodes[name].children)

    def _enliven(self, name: str, own: str, h: str, depth: int) -> None:
        """Write code that makes the headers of a new record a list, if a record cache must see changes to them."""
        if name in self.live.making:
            self._line(depth, f"{own} = []" if h == "None" else f"{own} = [*{h}] if {h} else []", name)

    # Nodes.

    def _children(self, name: str, record: _Record, depth: int) -> None:
        # Side outputs get only what the node drops.
        children = [child for child in self.nodes[name].children if not self.nodes[child].runs(SideOutput)]
        if not children:
            self._line(depth, "pass", name)
        for child in children:
            self._node(child, record, depth)

    def _new_record(self, name: str, record: _Record, depth: int) -> None:
        """Write the children of an operator that creates a new record with its own headers."""
        h = _text(record.headers)
        own = f"h{next(self._variables)}"
        if name in self.live.making:
            self._enliven(name, own, h, depth)
        elif self._children_change_headers(name):
            self._line(depth, f"{own} = {h}", name)
        else:
            own = h
        headers = record.headers if own == h else name_of(own)
        self._children(name, _Record(record.key, record.value, record.timestamp, headers, record.copies), depth)

    def _node(self, name: str, record: _Record, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self._make_separate(name)
        if name in self._separate:
            result = f"{_text(record.headers)} = " if self._changes_headers(name) else ""
            self._line(depth, f"{result}n{self._ids[name]}({record})", name)
        else:
            self._body(name, record, depth)

    def _body(self, name: str, record: _Record, depth: int) -> None:
        node = self.nodes[name]
        self._line(depth, f"# {name}", name)
        if name in self.live.copying:
            h = _text(record.headers)
            copied = f"h{next(self._variables)}"
            self._line(depth, f"{copied} = tuple({h}) if {h} else None", name)
            record = _Record(record.key, record.value, record.timestamp, name_of(copied), record.copies)
        if node.is_sink:
            self._sink(node, record, depth)
            return
        body = self.bodies[name]
        if isinstance(body, Forward):
            self._forward(body, record, depth)
            return
        if isinstance(body, Inlined):
            inliner = Inliner(self._ids[name])
            statements = inliner.body(body, record.columns)
            if statements is not None:
                forwards = {item.name: item for item in inliner.functions.values() if isinstance(item, Forward)}
                copies = self._need_forwards(statements, forwards)
                _Operator(self, name, forwards, record.copies * copies).statements(statements, depth)
                return
        self._call(name, record, depth)

    def _need_forwards(self, statements: Sequence[ast.stmt], forwards: Mapping[str, Forward]) -> int:
        """Request functions for the children whose forward call cannot be inlined, because its result is used.

        Return the number of forward calls to the child with the most calls.
        """
        inside = _nodes_in(statements)
        called = Counter(
            node.func.id for node in inside if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        )
        for node in inside:
            match node:
                case ast.Expr(ast.Call(ast.Name(name), [_, _, _, _])) if name in forwards:
                    called[f"{name} is written out"] += 1
        for name, forward in forwards.items():
            if called[name] == called[f"{name} is written out"]:
                continue
            if forward.child is None:
                self._need_children(forward.node)
            else:
                self._make_separate(forward.child)
        return max((called[name] for name in forwards), default=1) or 1

    def _call(self, name: str, record: _Record, depth: int) -> None:
        """Write a call to an operator, which calls the functions of the node's children."""
        node = self.nodes[name]
        if node.runs(STATELESS):
            self._need_children(name)
        if node.runs(Branch):
            for child in node.children:
                self._make_separate(child)
        call = f"p{self._ids[name]}({record})"
        if not self._changes_headers(name):
            self._line(depth, call, name)
        elif node.runs(ProcessorOperator):
            self._line(depth, f"{_text(record.headers)} = {call}", name)
        else:
            self._line(depth, f"changed = {call}", name)
            self._line(depth, f"if changed is not None: {_text(record.headers)} = changed", name)

    def _forward(self, forward: Forward, record: _Record, depth: int) -> None:
        """Write the code that forwards a record from a node to its children."""
        if forward.child is None:
            self._children(forward.node, record, depth)
        else:
            self._node(forward.child, record, depth)

    # Sinks.

    def _sink(self, node: NodeShape, record: _Record, depth: int) -> None:
        number = self._ids[node.name]
        if self.shape.guards_sinks or not node.is_plain:
            self._line(depth, f"sink{number}({record})", node.name)
            return
        # Key and value are serialized before either is appended: after a failure the columns must have equal
        # lengths.
        self._serialized(f"a{number}", f"k{number}", record.key, node, depth)
        self._serialized(f"b{number}", f"v{number}", record.value, node, depth)
        h = _text(record.headers)
        if h != "None":
            self._line(depth, f"if {h}: hs{number}[len(ts{number})] = {h}", node.name)
        t = _text(record.timestamp)
        self._line(depth, f"ak{number}(a{number}); av{number}(b{number}); at{number}({t})", node.name)

    def _serialized(self, name: str, what: str, of: ast.expr, node: NodeShape, depth: int) -> None:
        """Write the code that serializes a key or value, with a C function where possible, otherwise with the serde."""
        thing = _text(of)
        slow = f"{name} = s{what}({thing})"
        if thing == "None" or not node.quick[what[0] == "v"]:
            self._line(depth, f"{name} = None" if thing == "None" else slow, node.name)
            return
        line = f"try: {name} = q{what}({thing}) if type({thing}) is x{what} else s{what}({thing})"
        self._line(depth, line, node.name)
        # The value is serialized again for a better error message.
        self._line(depth, f"except Exception: {slow}", node.name)


@define
class _Operator:
    """Writes the statements of one operator, with the lines of its children in place of ``forward``."""

    writer: ProgramWriter
    name: str
    forwards: Mapping[str, Forward]
    copies: int

    def statements(self, statements: list[ast.stmt], depth: int) -> None:
        """Write statements at a nesting depth."""
        block = ast.Module(statements or [ast.Pass()], [])
        emissions: dict[str, tuple[Forward, list[ast.expr]]] = {}
        for node in _nodes_in([block]):
            match node:
                case ast.If(test, [], [_, *_]):
                    node.test = ast.UnaryOp(ast.Not(), test)
                    node.body = node.orelse
                    node.orelse = []
                case ast.Expr(ast.Call(ast.Name(name), [_, _, _, _] as arguments)) if name in self.forwards:
                    # A line of its own, which is not Python yet.
                    node.value = name_of(f"<{len(emissions)}>")
                    emissions[node.value.id] = self.forwards[name], arguments
            if getattr(node, "body", None) == []:
                node.body = [ast.Pass()]  # type: ignore[attr-defined]
        for line in ast.unparse(block).splitlines():
            text = line.lstrip()
            inner = depth + (len(line) - len(text)) // 4
            if text in emissions:
                self._emission(*emissions[text], inner)
            else:
                self._line(inner, text)

    def _line(self, depth: int, text: str) -> None:
        self.writer._line(depth, text, self.name)

    def _emission(self, forward: Forward, arguments: Sequence[ast.expr], depth: int) -> None:
        writer = self.writer
        columns = [
            self._once(argument, what, depth)
            for argument, what in zip(arguments, ("key", "value", "time", "headers"), strict=True)
        ]
        record = _Record(columns[0], columns[1], columns[2], columns[3], self.copies)
        if writer.nodes[self.name].shares_headers:
            writer._forward(forward, record, depth)
        elif self.copies > _MAX_COPIES and not self._ends_here():
            writer._need_children(self.name)
            self._line(depth, f"f{writer._ids[self.name]}({record})")
        else:
            writer._new_record(self.name, record, depth)

    def _ends_here(self) -> bool:
        nodes = self.writer.nodes
        return all(nodes[child].is_sink for child in nodes[self.name].children)

    def _once(self, value: ast.expr, what: str, depth: int) -> ast.expr:
        """Return an expression that is equivalent to an argument and may be repeated."""
        is_change = what == "value" and isinstance(value, ast.Tuple) and all(map(is_simple, value.elts))
        if is_simple(value) or (is_change and self._all_take_changes()):
            return value
        local = f"{what}{next(self.writer._variables)}"
        self._line(depth, f"{local} = {_text(value)}")
        return name_of(local)

    def _all_take_changes(self) -> bool:
        """Return whether all children are inlined operators, which need no change tuple ``(new, old, is_latest)``."""
        writer = self.writer
        return all(
            isinstance(writer.bodies.get(child), Inlined) and child not in writer._separate
            for child in writer.nodes[self.name].children
        )


def _nodes_in(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """Return syntax tree nodes and all their descendants, three times as fast as ``ast.walk``."""
    collected = list(nodes)
    for node in collected:
        for value in vars(node).values():
            if isinstance(value, ast.AST):
                collected.append(value)
            elif isinstance(value, list):
                collected += [item for item in value if isinstance(item, ast.AST)]
    return collected


def _text(value: ast.expr) -> str:
    """Return the source of an expression, which is usually a name."""
    return value.id if isinstance(value, ast.Name) else ast.unparse(value)


def _source_record() -> _Record:
    return _Record(name_of("k"), name_of("v"), name_of("t"), name_of("h"))
