"""Compilation of a sub-topology into a program: one generated function per source.

Stateless operators, plain sinks and stateful operators with a template become lines of that
function, so that a record is a handful of locals on its way; other stateful operators and user
processors are one call each.  The code is made once per sub-topology and bound once per task.
Generated lines remember their node: an exception is attributed to it without any cost while all
goes well.
"""

import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from types import CodeType
from typing import Any, Protocol

from attrs import define, field, frozen

from streams.core.errors import ProcessingError
from streams.core.records import Headers
from streams.core.serdes import Serde
from streams.core.user_code import first_result_checked, refuse_result
from streams.topology.graph import Node, ProcessorNode, SinkNode, SourceNode, Topology
from streams.topology.inline import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    PassThrough,
    Peek,
    SelectKey,
    TableToStream,
)
from streams.topology.operator import NodeContext, Process
from streams.topology.processors import ProcessorOperator
from streams.topology.shared_headers import LiveHeaders, changes_headers, live_headers, shares_headers
from streams.topology.subtopologies import SubTopology
from streams.topology.template import Change, Emission, Template

#: Python allows twenty nested blocks in a function; deeper parts become functions of their own.
_MAX_DEPTH = 14


class SinkColumns(Protocol):
    """Where a plain sink appends: parallel columns of the outbox, never replaced, only cleared."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    #: Index of the record -> its headers, as far as it has any.
    headers: dict[int, Headers]


class ProgramHost(Protocol):
    """What a task provides when a program is bound to it."""

    #: Non-empty when the run must end after the current record.
    stop: list[bool]

    def context(self, node: str, forward: Process, forward_to: Callable[[str], Process]) -> NodeContext:
        """Make the context of an operator."""
        ...

    def sink_columns(self, sink: SinkNode) -> SinkColumns:
        """Return the columns of a plain sink."""
        ...

    def sink_process(self, sink: SinkNode) -> Process:
        """Return the process function of a sink that decides or guards something per record."""
        ...

    def on_error(self, node: str, error: Exception, key: Any, value: Any, timestamp_ms: int, headers: Any) -> None:
        """Count and drop a record that failed at a node, or raise."""
        ...


@define
class Program:
    """A sub-topology bound to one task."""

    #: Source node -> process function of one record.
    entries: dict[str, Process]
    #: Source node -> function of the columns (keys, values, timestamps), for runs without headers.
    runs: dict[str, Callable[[Any, Any, Any], None]]
    #: Source node -> the same with a fourth column of headers.
    runs_with_headers: dict[str, Callable[[Any, Any, Any, Any], None]]
    #: Runs records of several sources: columns of entries, keys, values, timestamps, headers.
    run_mixed: Callable[[Any, Any, Any, Any, Any], None]
    _filename: str
    _owners: Sequence[str]

    def failed_node(self, error: BaseException) -> str | None:
        """Return the node at whose line an exception passed through the program last."""
        found = None
        for frame, line in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename == self._filename:
                found = self._owners[line - 1]
        return found or None


@define
class CompiledSubTopology:
    """Generated code of a sub-topology, shared by its tasks."""

    sub: SubTopology
    source_code: str
    code: CodeType
    _topology: Topology
    _ids: dict[str, int]
    _owners: list[str]
    _filename: str
    _functions: "dict[str, _UserFunction]"
    _templates: dict[str, Template]
    _live: frozenset[str]
    _guard_sinks: bool

    def ignores_values(self, source: str) -> bool:
        """Whether nothing depends on the values that come from a source: they need not be deserialized."""
        return all(
            child in self._templates and self._templates[child].ignores_value
            for child in self._topology.children[source]
        )

    def bind(self, host: ProgramHost) -> Program:
        """Bind stores, contexts and sinks of one task; children are bound before their parents."""
        names: dict[str, Any] = {}
        for name, user in self._functions.items():
            names[name] = user.bind(partial(names.__setitem__, name))
        names["refuse_result"] = refuse_result
        names["stop"] = host.stop
        names["on_error"] = host.on_error
        nodes = [self._topology.nodes[name] for name in self.sub.nodes]
        for node in nodes:
            if isinstance(node, SinkNode):
                self._bind_sink(node, host, names)
        exec(self.code, names)
        for node in reversed(nodes):
            number = self._ids[node.name]
            if isinstance(node, ProcessorNode) and not isinstance(node.operator, _INLINE):
                context = host.context(node.name, names[f"f{number}"], self._child_of(node.name, names))
                template = self._templates.get(node.name)
                if node.name in self._live and isinstance(node.operator, ProcessorOperator):
                    names[f"p{number}"] = node.operator.bind_live(context)
                elif template is None:
                    names[f"p{number}"] = node.operator.bind(context)
                else:
                    names.update(template.own_names(number, context))
        sources = [node.name for node in nodes if isinstance(node, SourceNode)]
        return Program(
            {name: names[f"n{self._ids[name]}"] for name in sources},
            {name: names[f"r{self._ids[name]}"] for name in sources},
            {name: names[f"h{self._ids[name]}"] for name in sources},
            names["mixed"],
            self._filename,
            self._owners,
        )

    def _bind_sink(self, node: SinkNode, host: ProgramHost, names: dict[str, Any]) -> None:
        number = self._ids[node.name]
        if self._guard_sinks or not node.is_plain:
            names[f"sink{number}"] = host.sink_process(node)
            return
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

    def _child_of(self, name: str, names: dict[str, Any]) -> Callable[[str], Process]:
        def forward_to(child: str) -> Process:
            if child not in self._topology.children[name]:
                known = ", ".join(map(repr, self._topology.children[name])) or "none"
                raise ProcessingError(f"node {name!r} has no child {child!r}; its children are: {known}", node=name)
            process: Process = names[f"n{self._ids[child]}"]
            return process

        return forward_to


_INLINE = (PassThrough, Filter, MapValues, Map, SelectKey, FlatMap, FlatMapValues, Peek, Branch, TableToStream)


def compile_sub_topology(
    topology: Topology,
    sub: SubTopology,
    *,
    isolate_errors: bool = False,
    guard_sinks: bool = False,
    has_cache: bool = False,
) -> CompiledSubTopology:
    """Generate the program of a sub-topology.

    With ``isolate_errors`` every processor catches what fails in it, for a processing handler that
    goes on; without, an exception ends the run.  What fails in a sink failed in the node that
    forwards to it, as in Kafka Streams: behind a source nothing catches it.  ``guard_sinks``
    catches what sinks cannot serialize, for a production handler that goes on.  ``has_cache`` says
    whether its tasks have a record cache, behind which changes do not go on at once.
    """
    writer = _Writer(topology, sub, isolate_errors, guard_sinks, has_cache)
    writer.write()
    source = "\n".join(writer.lines) + "\n"
    # Of its own for each program: a traceback must not be attributed to another one's nodes.  The same in
    # all processes and runs, for tracebacks travel with dead letters.
    digest = blake2b(repr((source, writer.owners)).encode(), digest_size=6).hexdigest()
    filename = f"<sub-topology {sub.id}, {digest}>"
    return CompiledSubTopology(
        sub,
        source,
        compile(source, filename, "exec"),
        topology,
        writer.ids,
        writer.owners,
        filename,
        writer.functions,
        writer.templates,
        writer.live.taking - writer.live.copying,
        guard_sinks,
    )


@define
class _Writer:
    """Writes the code of one sub-topology, line by line, noting the node of each line."""

    topology: Topology
    sub: SubTopology
    isolate: bool
    guard_sinks: bool
    has_cache: bool
    ids: dict[str, int] = field(init=False)
    #: Operators that are written out, by node.
    templates: dict[str, Template] = field(init=False)
    #: Nodes whose records have headers that a cache must see change.
    live: LiveHeaders = field(init=False)
    lines: list[str] = field(factory=list)
    owners: list[str] = field(factory=list)
    functions: dict[str, "_UserFunction"] = field(factory=dict)
    _pending: list[str] = field(factory=list)
    _separate: set[str] = field(factory=set)
    _variables: Iterator[int] = field(factory=lambda: iter(range(1 << 30)))

    def __attrs_post_init__(self) -> None:
        self.ids = {name: number for number, name in enumerate(self.sub.nodes)}
        self.templates = dict(self._found_templates())
        self.live = live_headers(self.topology, self.sub, self._caches if self.has_cache else None)

    def _found_templates(self) -> Iterator[tuple[str, Template]]:
        for name in self.sub.nodes:
            node = self.topology.nodes[name]
            make = getattr(node.operator, "template", None) if isinstance(node, ProcessorNode) else None
            found = None if make is None else make(self._caches)
            if found is not None:
                yield name, found

    def _caches(self, store: str) -> bool:
        return self.has_cache and self.topology.stores[store].has_caching

    def write(self) -> None:
        nodes = [self.topology.nodes[name] for name in self.sub.nodes]
        for node in nodes:
            if not isinstance(node, SourceNode) and (
                self._catches(node) or (len(node.parents) > 1 and not self._is_short(node))
            ):
                self._make_separate(node.name)
            if isinstance(node, ProcessorNode) and isinstance(node.operator, ProcessorOperator):
                for child in self.topology.children[node.name]:
                    self._make_separate(child)
        stops = any(isinstance(node, ProcessorNode) and isinstance(node.operator, ProcessorOperator) for node in nodes)
        for node in nodes:
            if isinstance(node, SourceNode):
                self._source(node.name, stops)
            elif isinstance(node, ProcessorNode) and not isinstance(node.operator, _INLINE):
                self._function(f"f{self.ids[node.name]}", node.name, children_only=True)
        written: set[str] = set()
        while self._pending:
            name = self._pending.pop()
            if name not in written:
                written.add(name)
                self._function(f"n{self.ids[name]}", name, children_only=False)
        self._mixed(stops)

    def _catches(self, node: Node) -> bool:
        return self.isolate and isinstance(node, ProcessorNode)

    def _is_short(self, node: ProcessorNode | SinkNode) -> bool:
        """Whether a node is written behind each of its parents, not called: where two meet before a sink."""
        if not isinstance(node, ProcessorNode) or not isinstance(node.operator, PassThrough):
            return False
        children = [self.topology.nodes[name] for name in self.topology.children[node.name]]
        return len(node.parents) == 2 and len(children) == 1 and isinstance(children[0], SinkNode)

    def _make_separate(self, name: str) -> None:
        if name not in self._separate:
            self._separate.add(name)
            self._pending.append(name)

    def _line(self, depth: int, text: str, node: str = "") -> None:
        self.lines.append("    " * depth + text)
        self.owners.append(node)

    def _source(self, name: str, stops: bool) -> None:
        number = self.ids[name]
        self._function(f"n{number}", name, children_only=True)
        for head, columns in (
            (f"r{number}", "keys, values, timestamps"),
            (f"h{number}", "keys, values, timestamps, headers"),
        ):
            self._line(0, f"def {head}({columns}):", name)
            if "headers" in columns:
                self._line(1, f"for k, v, t, h in zip({columns}):", name)
                self._enliven(name, "h", "h", 2)
            else:
                self._line(1, "h = None", name)
                self._line(1, f"for k, v, t in zip({columns}):", name)
                if self._children_change_headers(name):
                    self._line(2, "h = None", name)
                self._enliven(name, "h", "None", 2)
            self._children(name, "k", "v", "t", "h", 2)
            if stops:
                self._line(2, "if stop: break", name)

    def _mixed(self, stops: bool) -> None:
        self._line(0, "def mixed(entries, keys, values, timestamps, headers):")
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

    def _function(self, head: str, name: str, *, children_only: bool) -> None:
        self._line(0, f"def {head}(k, v, t, h):", name)
        if children_only:
            self._enliven(name, "h", "h", 1)
            self._children(name, "k", "v", "t", "h", 1)
        elif self._catches(self.topology.nodes[name]):
            self._line(1, "try:", name)
            self._body(name, "k", "v", "t", "h", 2)
            self._line(1, "except Exception as error:", name)
            headers = "tuple(h) or None" if name in self.live.taking else "h"
            self._line(2, f"on_error({name!r}, error, k, v, t, {headers})", name)
        else:
            self._body(name, "k", "v", "t", "h", 1)
        if self._children_change_headers(name) if children_only else self._changes_headers(name):
            self._line(1, "return h", name)

    def _changes_headers(self, name: str) -> bool:
        """Whether a node can change the headers of the very record that its parent forwards.

        Kafka Streams hands one record object to all children of a forward: what a processor does
        to its headers is seen by the siblings behind it.  Such nodes return the headers.
        """
        node = self.topology.nodes[name]
        if name in self.live.taking:
            return False
        return changes_headers(node) or (shares_headers(node) and self._children_change_headers(name))

    def _children_change_headers(self, name: str) -> bool:
        return any(self._changes_headers(child) for child in self.topology.children[name])

    def _children(self, name: str, k: str, v: str, t: str, h: str, depth: int) -> None:
        children = self.topology.children[name]
        if not children:
            self._line(depth, "pass", name)
        for child in children:
            self._node(child, k, v, t, h, depth)

    def _node(self, name: str, k: str, v: str, t: str, h: str, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self._make_separate(name)
        if name in self._separate:
            result = f"{h} = " if self._changes_headers(name) else ""
            self._line(depth, f"{result}n{self.ids[name]}({k}, {v}, {t}, {h})", name)
        else:
            self._body(name, k, v, t, h, depth)

    def _body(self, name: str, k: str, v: str, t: str, h: str, depth: int) -> None:
        node = self.topology.nodes[name]
        if name in self.live.copying:
            copied = f"h{next(self._variables)}"
            self._line(depth, f"{copied} = tuple({h}) if {h} else None", name)
            h = copied
        if isinstance(node, SinkNode):
            self._sink(node, k, v, t, h, depth)
        elif name in self.templates:
            self._template(name, k, v, t, h, depth)
        elif isinstance(node, ProcessorNode) and not isinstance(node.operator, _INLINE):
            result = f"{h} = " if self._changes_headers(name) else ""
            self._line(depth, f"{result}p{self.ids[name]}({k}, {v}, {t}, {h})", name)
        elif isinstance(node, ProcessorNode):
            self._inline(name, node.operator, k, v, t, h, depth)

    def _template(self, name: str, k: str, v: str, t: str, h: str, depth: int) -> None:
        for deeper, line in self.templates[name].lines(self.ids[name], k, v, t, h):
            if isinstance(line, Emission):
                self._new_record(name, line.key, line.value, line.timestamp, line.headers, depth + deeper)
            elif isinstance(line, Change):
                self._change(name, line, depth + deeper)
            else:
                self._line(depth + deeper, line, name)

    def _change(self, name: str, change: Change, depth: int) -> None:
        """Write the children of a table operator; those that only want the new value do not see a change at all."""
        made, h = None, change.headers
        if self._children_change_headers(name):
            # What one change's receivers do to its headers is nothing to the next change.
            h = f"h{next(self._variables)}"
            self._line(depth, f"{h} = {change.headers}", name)
        for child in self.topology.children[name]:
            node = self.topology.nodes[child]
            operator = node.operator if isinstance(node, ProcessorNode) else None
            if isinstance(operator, TableToStream) and child not in self._separate and depth <= _MAX_DEPTH:
                deeper = depth
                if not operator.keeps_tombstones:
                    self._line(depth, f"if {change.new} is not None:", child)
                    deeper += 1
                self._new_record(child, change.key, change.new, change.timestamp, h, deeper)
                continue
            if made is None:
                made = f"v{next(self._variables)}"
                self._line(depth, f"{made} = ({change.new}, {change.old}, True)", name)
            self._node(child, change.key, made, change.timestamp, h, depth)
        if not self.topology.children[name]:
            self._line(depth, "pass", name)

    def _new_record(self, name: str, key: str, value: str, t: str, h: str, depth: int) -> None:
        """Write the children of an operator that makes a new record, with headers of its own."""
        own = h
        if name in self.live.making:
            own = f"h{next(self._variables)}"
            self._enliven(name, own, h, depth)
        elif self._children_change_headers(name):
            own = f"h{next(self._variables)}"
            self._line(depth, f"{own} = {h}", name)
        self._children(name, key, value, t, own, depth)

    def _enliven(self, name: str, own: str, h: str, depth: int) -> None:
        """Write the list that a new record's headers are, where a cache must see them change."""
        if name in self.live.making:
            self._line(depth, f"{own} = []" if h == "None" else f"{own} = [*{h}] if {h} else []", name)

    def _inline(self, name: str, operator: Any, k: str, v: str, t: str, h: str, depth: int) -> None:
        number = next(self._variables)
        new_key, new_value = f"k{number}", f"v{number}"

        def new_record(key: str, value: str, depth: int) -> None:
            self._new_record(name, key, value, t, h, depth)

        match operator:
            case PassThrough():
                self._children(name, k, v, t, h, depth)
            case TableToStream(keeps_tombstones):
                self._line(depth, f"{new_value} = {v}[0]", name)
                if not keeps_tombstones:
                    self._line(depth, f"if {new_value} is not None:", name)
                new_record(k, new_value, depth if keeps_tombstones else depth + 1)
            case Filter(predicate, negate):
                call = f"{self._user(predicate, name)}({k}, {v})"
                self._line(depth, f"if not {call}:" if negate else f"if {call}:", name)
                new_record(k, v, depth + 1)
            case MapValues(mapper, with_key):
                self._line(depth, f"{new_value} = {self._value(mapper, name)}({f'{k}, {v}' if with_key else v})", name)
                new_record(k, new_value, depth)
            case Map(mapper):
                self._line(depth, f"{new_key}, {new_value} = {self._value(mapper, name)}({k}, {v})", name)
                new_record(new_key, new_value, depth)
            case SelectKey(mapper):
                self._line(depth, f"{new_key} = {self._value(mapper, name)}({k}, {v})", name)
                new_record(new_key, v, depth)
            case FlatMap(mapper):
                self._line(depth, f"for {new_key}, {new_value} in {self._value(mapper, name)}({k}, {v}):", name)
                new_record(new_key, new_value, depth + 1)
            case FlatMapValues(mapper, with_key):
                call = f"{self._value(mapper, name)}({f'{k}, {v}' if with_key else v})"
                self._line(depth, f"for {new_value} in {call}:", name)
                new_record(k, new_value, depth + 1)
            case Peek(action, is_terminal):
                # Nobody looks at what it returns, and it may be something for some records only.
                returned = f"x{number}"
                self._line(depth, f"{returned} = {self._user(action, name)}({k}, {v})", name)
                self._line(depth, f"if {returned} is not None: refuse_result({returned}, {f'node {name!r}'!r})", name)
                if not is_terminal:
                    new_record(k, v, depth)
            case Branch(predicates):
                self._branch(name, predicates, k, v, t, h, depth)

    def _branch(self, name: str, predicates: Sequence[Any], k: str, v: str, t: str, h: str, depth: int) -> None:
        keyword = "if"
        for predicate, child in zip(predicates, self.topology.children[name], strict=True):
            if predicate is not None:
                self._line(depth, f"{keyword} {self._user(predicate, name)}({k}, {v}):", name)
            else:
                self._line(depth, "else:" if keyword == "elif" else "if True:", name)
            self._node(child, k, v, t, h, depth + 1)
            keyword = "elif"

    def _sink(self, node: SinkNode, k: str, v: str, t: str, h: str, depth: int) -> None:
        number = self.ids[node.name]
        if self.guard_sinks or not node.is_plain:
            self._line(depth, f"sink{number}({k}, {v}, {t}, {h})", node.name)
            return
        # Both are serialized before either is appended: a failure must leave the columns equal.
        self._serialized(f"a{number}", node.key_serde, f"k{number}", k, node.name, depth)
        self._serialized(f"b{number}", node.value_serde, f"v{number}", v, node.name, depth)
        if h != "None":
            self._line(depth, f"if {h}: hs{number}[len(ts{number})] = {h}", node.name)
        self._line(depth, f"ak{number}(a{number}); av{number}(b{number}); at{number}({t})", node.name)

    def _serialized(self, name: str, serde: Serde[Any], what: str, thing: str, node: str, depth: int) -> None:
        """Write the serializing of a key or value: by a function in C where that will do, else by the serde's own."""
        slow = f"{name} = s{what}({thing})"
        if thing == "None" or serde.quick is None:
            self._line(depth, f"{name} = None" if thing == "None" else slow, node)
            return
        self._line(depth, f"try: {name} = q{what}({thing}) if type({thing}) is x{what} else s{what}({thing})", node)
        # Again, for an error that says what is wrong.
        self._line(depth, f"except Exception: {slow}", node)

    def _user(self, function: Callable[..., Any], node: str) -> str:
        """Return the name in the program of a function whose result is asked for its truth, or for nothing."""
        name = f"u{len(self.functions)}"
        self.functions[name] = _UserFunction(function, node, may_yield=False)
        return name

    def _value(self, function: Callable[..., Any], node: str) -> str:
        """Return the name in the program of a function whose result is a value or iterated, as a generator may be."""
        name = f"u{len(self.functions)}"
        self.functions[name] = _UserFunction(function, node, may_yield=True)
        return name


@frozen
class _UserFunction:
    """A function of the user's in the program."""

    function: Callable[..., Any]
    node: str
    may_yield: bool

    def bind(self, install: Callable[[Any], None]) -> Callable[..., Any]:
        """Return what is called in a task at first; it installs the function itself."""
        return first_result_checked(self.function, f"node {self.node!r}", install, may_yield=self.may_yield)
