"""Compilation of a sub-topology into a program with three generated functions per source.

The process functions of operators, and sinks with one topic and no partitioner, are inlined, so that a record is a few
local variables.  User processors, and operators that cannot be inlined, take one call each.  The code is generated once
for all sub-topologies of the same shape, and is bound once per task.  Each generated line belongs to a node, so that
exceptions can be attributed to nodes without a cost on the normal path.  The generated source is in ``linecache``, so
that tracebacks show it and debuggers can step through it.
"""

import builtins
import linecache
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from hashlib import blake2b
from types import CodeType, FunctionType
from typing import Any, Protocol

from attrs import define, field, frozen

from streams.core.blocks.records import Headers
from streams.core.errors import ProcessingError
from streams.core.wrapping import ProcessorWrapper, wrapped
from streams.topology.bindings import Binding, Capture, Forward, Named
from streams.topology.graph import ProcessorNode, SinkNode
from streams.topology.node_context import NodeContext
from streams.topology.operator import Process
from streams.topology.processors import ProcessorOperator
from streams.topology.program_writer import NodeShape, ProgramHost, ProgramShape, ProgramWriter, sink_names
from streams.topology.shared_headers import LiveHeaders, live_headers
from streams.topology.stateless import SideOutput
from streams.topology.subtopologies import SubTopology
from streams.topology.topology import Topology


@frozen
class _Written:
    """The source and code of a generated program, shared by all tasks and sub-topologies of the same shape."""

    source_code: str
    code: CodeType
    filename: str
    owners: Sequence[str]
    #: Names of the functions in the program.
    functions: frozenset[str]


class Tracer(Protocol):
    """Observes every record that one node of a task passes to another, from ``Program.trace`` to ``untrace``."""

    def process(self, node: str, process: Process) -> Process:
        """Wrap the process function of an operator or sink, so that each call is reported."""
        ...

    def forward(
        self, node: str, key: Any, value: Any, timestamp_ms: int, headers: Any
    ) -> AbstractContextManager[object]:
        """Return a context manager that encloses the calls to a node's children with the forwarded record."""
        ...


@define(eq=False)
class Program:
    """A sub-topology bound to one task.

    While it is traced, its functions are those of a second program, in which every operator and sink is called
    through a ``Tracer``. The operators remain bound, so the program may be exchanged whenever none of its
    functions is running.
    """

    #: Names of the nodes; names in the generated source end in the index of their node in this list.
    nodes: Sequence[str]
    _written: _Written
    #: The namespace of the functions.
    _names: dict[str, Any]
    #: Functions that operators reference, by name; ``_install`` sets their code.
    _late: Mapping[str, FunctionType]
    #: Process functions of the operators, and functions that create those of the sinks.
    _operators: Mapping[str, Process]
    _sinks: Mapping[str, Callable[[], Process]]
    _write_traced: Callable[[], _Written]
    #: Source node -> process function of one record.
    entries: dict[str, Process] = field(init=False)
    #: Source node -> function that processes the columns keys, values and timestamps, for records without headers.
    runs: dict[str, Callable[[Any, Any, Any], None]] = field(init=False)
    #: Source node -> function that processes the same columns and a fourth column of headers.
    runs_with_headers: dict[str, Callable[[Any, Any, Any, Any], None]] = field(init=False)
    #: Processes records of several sources, given as columns of entries, keys, values, timestamps and headers.
    run_mixed: Callable[[Any, Any, Any, Any, Any], None] = field(init=False)
    #: Names that tracing has replaced, with their original values; None if not traced.
    _replaced: dict[str, Any] | None = field(init=False, default=None)
    _current: _Written = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._install(self._written)

    @property
    def source_code(self) -> str:
        """The Python source that tracebacks show."""
        return self._current.source_code

    def failed_node(self, error: BaseException) -> str | None:
        """Return the node to which the innermost program line in an exception's traceback belongs."""
        node = None
        for frame, line in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename == self._current.filename:
                node = self._current.owners[line - 1]
        return node or None

    def trace(self, tracer: Tracer) -> None:
        """Report all records to ``tracer`` until ``untrace``; call it only while no function of the program runs."""
        self.untrace()
        number = {node: index for index, node in enumerate(self.nodes)}
        traced: dict[str, Any] = {"forwarding": tracer.forward}
        for node, process in self._operators.items():
            traced[f"p{number[node]}"] = tracer.process(node, process)
        for node, make in self._sinks.items():
            traced[f"sink{number[node]}"] = tracer.process(node, make())
        self._replaced = {name: self._names.get(name) for name in traced}
        self._names.update(traced)
        self._install(self._write_traced())

    def untrace(self) -> None:
        """Stop tracing and restore the original program; idempotent."""
        if self._replaced is not None:
            self._names.update(self._replaced)
            self._replaced = None
            self._install(self._written)

    def _install(self, written: _Written) -> None:
        names = self._names
        exec(written.code, names)
        for name, function in self._late.items():
            if name in written.functions:
                # Operators already reference the function, whose code is set only now.
                function.__code__ = names[name].__code__
        number = {node: index for index, node in enumerate(self.nodes)}
        sources = [node for node in self.nodes if f"r{number[node]}" in written.functions]
        self.entries = {node: names[f"n{number[node]}"] for node in sources}
        self.runs = {node: names[f"r{number[node]}"] for node in sources}
        self.runs_with_headers = {node: names[f"h{number[node]}"] for node in sources}
        self.run_mixed = names["mixed"]
        self._current = written


@define
class CompiledSubTopology:
    """The generated code that the tasks of a sub-topology share.

    With ``isolate_errors`` every processor catches its errors, for a processing handler that continues; otherwise an
    exception ends processing.  As in Kafka Streams, an error in a sink is attributed to the node that forwards to the
    sink; if that node is a source, the error is not caught.  ``guard_sinks`` catches serialization errors in sinks, for
    a production handler that continues.  ``has_cache`` means that the tasks have a record cache.  With
    ``inlines=False`` each operator is called instead of inlined; with a ``wrapper``, the function that it returns is
    called instead of the operator's.
    """

    _topology: Topology
    sub: SubTopology
    isolate_errors: bool = field(kw_only=True, default=False)
    guard_sinks: bool = field(kw_only=True, default=False)
    has_cache: bool = field(kw_only=True, default=False)
    inlines: bool = field(kw_only=True, default=True)
    wrapper: ProcessorWrapper | None = field(kw_only=True, default=None)
    _ids: dict[str, int] = field(init=False)
    _live: LiveHeaders = field(init=False)
    _shapes: tuple[NodeShape, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ids = {name: number for number, name in enumerate(self.sub.nodes)}
        self._live = live_headers(self._topology, self.sub, has_cache=self.has_cache)
        self._shapes = tuple(NodeShape.of(self._topology, name) for name in self.sub.nodes)

    def ignores_values(self, source: str) -> bool:
        """Return whether the values of a source are unused, so that they need not be deserialized."""
        nodes = [self._topology.nodes[name] for name in self._topology.children[source]]
        return self.wrapper is None and all(
            isinstance(node, ProcessorNode) and self._ignores_values(node) for node in nodes
        )

    def _ignores_values(self, node: ProcessorNode) -> bool:
        children = [self._topology.nodes[name] for name in self._topology.children[node.name]]
        has_side_output = any(isinstance(getattr(child, "operator", None), SideOutput) for child in children)
        return bool(getattr(node.operator, "ignores_values", False)) and not has_side_output

    def bind(self, host: ProgramHost) -> Program:
        """Bind the stores, contexts and sinks of one task, and return its program."""
        names: dict[str, Any] = {"__builtins__": builtins, "stop": host.stop, "on_error": host.on_error}
        nodes = [self._topology.nodes[name] for name in self.sub.nodes]
        late: dict[str, FunctionType] = {}
        entries = {node.name: self._late(f"n{self._ids[node.name]}", names, late) for node in nodes}
        forwards: dict[int, Forward] = {}
        bodies: dict[str, Binding] = {}
        operators: dict[str, Process] = {}
        sinks: dict[str, Callable[[], Process]] = {}
        capture = Capture(names, forwards)
        for node in reversed(nodes):
            number = self._ids[node.name]
            if isinstance(node, SinkNode):
                names.update(sink_names(node, number, host, is_guarded=self.guard_sinks))
                sinks[node.name] = partial(host.sink_process, node)
            elif isinstance(node, ProcessorNode):
                forward = self._late(f"f{number}", names, late)
                forwards[id(forward)] = Forward(f"f{number}", node.name)
                connections = Counter(self._topology.children[node.name])
                for child in connections:
                    forwards[id(entries[child])] = Forward(f"n{self._ids[child]}", node.name, child)
                children = {child: _repeated(entries[child], times) for child, times in connections.items()}
                context = host.context(node.name, forward, _chooser(node.name, children))
                process = operators[node.name] = self._process(node, context)
                bodies[node.name] = self._binding(node, number, process, capture)
        written = self._write(bodies)
        return Program(self.sub.nodes, written, names, late, operators, sinks, self._write_traced)

    def _late(self, name: str, names: dict[str, Any], late: dict[str, FunctionType]) -> FunctionType:
        """Return a placeholder for a function of the program; its code is set when all operators are bound."""
        function = names[name] = late[name] = FunctionType(_not_written.__code__, names, name)
        return function

    def _process(self, node: ProcessorNode, context: NodeContext) -> Process:
        """Bind an operator, and wrap its process function."""
        operator = node.operator
        if isinstance(operator, ProcessorOperator) and node.name in self._live.taking - self._live.copying:
            process = operator.bind_live(context)
        else:
            process = operator.bind(context)
        return process if self.wrapper is None else wrapped(self.wrapper, context, process)

    def _binding(self, node: ProcessorNode, number: int, process: Process, capture: Capture) -> Binding:
        """Return the binding of an operator's process function in the program."""
        if self.inlines and self.wrapper is None and not isinstance(node.operator, ProcessorOperator):
            return capture.process(process, f"p{number}", number)
        capture.names[f"p{number}"] = process
        return Named(f"p{number}")

    def _write_traced(self) -> _Written:
        """Return the program in which operators and sinks are called through a tracer."""
        processors = (shape.name for shape in self._shapes if shape.operator is not None)
        return self._write({name: Named(f"p{self._ids[name]}") for name in processors}, is_traced=True)

    def _write(self, bodies: Mapping[str, Binding], *, is_traced: bool = False) -> _Written:
        shape = ProgramShape(
            self.sub.id,
            self._shapes,
            self._live,
            tuple(bodies.items()),
            isolates=self.isolate_errors,
            guards_sinks=self.guard_sinks or is_traced,
            is_traced=is_traced,
        )
        return _written(shape)


# Tests and simulations build the same topology hundreds of times, and writing its program takes milliseconds.
@lru_cache(maxsize=256)
def _written(shape: ProgramShape) -> _Written:
    """Write and compile the program for a shape; the result is cached."""
    writer = ProgramWriter(shape)
    writer.write()
    source = "\n".join(writer.lines) + "\n"
    # The file name is unique per program, so that tracebacks are attributed to the right nodes. It is the
    # same in all processes and runs, because dead letters contain tracebacks.
    digest = blake2b(repr((source, writer.owners)).encode(), digest_size=6).hexdigest()
    filename = f"<sub-topology {shape.sub_id}, {digest}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return _Written(source, compile(source, filename, "exec"), filename, writer.owners, frozenset(writer.functions))


def _not_written(k: Any, v: Any, t: Any, h: Any) -> None:
    raise AssertionError("a node forwards before its task is bound")


def _repeated(process: Process, times: int) -> Process:
    """Return the process function of a child that is connected several times, as a merge of a stream with itself."""
    if times == 1:
        return process

    def forward(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> Any:
        for _ in range(times - 1):
            process(key, value, timestamp_ms, headers)
        return process(key, value, timestamp_ms, headers)

    return forward


def _chooser(node: str, children: Mapping[str, Process]) -> Callable[[str], Process]:
    def forward_to(child: str) -> Process:
        if child not in children:
            names = ", ".join(map(repr, children)) or "none"
            raise ProcessingError(f"node {node!r} has no child {child!r}; its children are: {names}", node=node)
        return children[child]

    return forward_to
