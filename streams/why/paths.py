"""Relations between the steps of a trace: by node, by store, and through the topics of the application."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from attrs import define, field

from streams.core.blocks.records import TaskId, Windowed
from streams.dsl.processing import (
    AsyncMap,
    BatchMap,
    CountWindowAggregate,
    EarlyResults,
    LookUp,
    SessionAggregate,
    SlidingAggregate,
    StreamAggregate,
    StreamSelfJoin,
    StreamStreamJoin,
    StreamTableJoin,
    Suppress,
    TableAggregate,
    TableTableJoin,
    WindowAggregate,
    WindowerAggregate,
)
from streams.runtime import Task
from streams.topology import ProcessorOperator, SinkNode, SourceNode, Topology
from streams.why.trace import Output, Step, Trace

#: Operators that aggregate the records of a key into one row.
AGGREGATES = (
    StreamAggregate,
    TableAggregate,
    WindowAggregate,
    SlidingAggregate,
    SessionAggregate,
    CountWindowAggregate,
    WindowerAggregate,
)
#: Operators that may buffer a record and forward its result with a later one.
_HOLDING = (*AGGREGATES, EarlyResults, Suppress, StreamTableJoin, ProcessorOperator)
#: Operators that may also forward results of other keys in a step, because stream time has advanced.
_MIXING = (*AGGREGATES, EarlyResults, Suppress, StreamTableJoin, StreamStreamJoin)


@define(eq=False)
class Paths:
    """The steps of a trace, by node and in order, and the paths of their records through the topology."""

    trace: Trace
    topology: Topology
    tasks: Mapping[TaskId, Task]
    steps: dict[str, list[Step]] = field(init=False, factory=dict)
    #: Node -> nodes that receive its records: its children, and the sources that read the topic it writes.
    _next: dict[str, set[str]] = field(init=False, factory=dict)
    #: Outputs by node, in the order of their steps.
    _outputs: dict[str, list[Output]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        for episode in self.trace.episodes():
            for step in episode.steps:
                self.steps.setdefault(step.node, []).append(step)
        for name, steps in self.steps.items():
            steps.sort(key=lambda step: step.number)
            self._outputs[name] = [output for step in steps for output in step.outputs]
        sources: dict[str, list[str]] = {}
        for source in self.topology.sources():
            for topic in source.topics:
                sources.setdefault(topic, []).append(source.name)
        for name, node in self.topology.nodes.items():
            self._next[name] = set(self.topology.children.get(name, ()))
            if isinstance(node, SinkNode) and node.topic in sources:
                self._next[name].update(sources[node.topic])

    def operator(self, node: str) -> Any:
        """Return the operator of a node, or None for sources and sinks."""
        return getattr(self.topology.nodes.get(node), "operator", None)

    def is_counted(self, step: Step) -> bool:
        """Whether the key of a step has a count window, whose bounds are numbers of records."""
        before = step.parent
        while before is not None and type(before.key) is Windowed:
            if isinstance(self.operator(before.step.node), CountWindowAggregate):
                return True
            before = before.step.parent
        return False

    def upstream(self, targets: Collection[str]) -> set[str]:
        """Return the nodes whose records may reach ``targets``, including ``targets``."""
        names = set(targets)
        before = -1
        while len(names) != before:
            before = len(names)
            names |= {node for node, following in self._next.items() if following & names}
        return names

    def at(self, nodes: Iterable[str], matches: Callable[[Step], bool]) -> list[Step]:
        """Return the matching steps at ``nodes``, in order, without steps caused by punctuations and flushes."""
        steps = [
            step for node in nodes for step in self.steps.get(node, ()) if step.cause == "record" and matches(step)
        ]
        return sorted(steps, key=lambda step: step.number)

    def outputs(self, nodes: Iterable[str], of: Step) -> list[Output]:
        """Return the outputs of ``nodes`` in the task of the step ``of``, in order."""
        outputs = [
            output for node in nodes for output in self._outputs.get(node, ()) if output.step.task_id == of.task_id
        ]
        return sorted(outputs, key=lambda output: output.step.number)

    def sharing(self, node: str) -> list[str]:
        """Return the aggregations that use the same store as a node, including this node, as in a cogroup."""
        store = self.operator(node).store
        return [
            name
            for name in self.topology.nodes
            if isinstance(self.operator(name), AGGREGATES) and self.operator(name).store == store
        ]

    def writers(self, stores: Collection[str]) -> list[str]:
        """Return the DSL nodes that write to any of the given stores."""
        operators = {name: self.operator(name) for name in self.topology.nodes}
        return [
            name
            for name, operator in operators.items()
            if getattr(operator, "store", None) in stores and not hasattr(operator, "store_naming")
        ]

    def sides(self, operator: Any, other_than: str | None = None) -> list[str]:
        """Return the nodes of both sides of a stream-stream join, without the node ``other_than``."""
        if isinstance(operator, StreamSelfJoin):
            return [name for name in self.topology.nodes if self.operator(name) is operator]
        return [
            name
            for name in self.topology.nodes
            if name != other_than
            and isinstance(join := self.operator(name), StreamStreamJoin)
            and join.name == operator.name
        ]

    def partners(self, node: str) -> list[str]:
        """Return the nodes whose records are joined at ``node``: the other side, or the writers of the table."""
        operator = self.operator(node)
        if isinstance(operator, StreamStreamJoin):
            return self.sides(operator, other_than=node)
        if isinstance(operator, StreamTableJoin | TableTableJoin):
            table = operator.other if isinstance(operator, TableTableJoin) else operator.table
            return self.writers(table.stores)
        return []

    def released(self, step: Step) -> list[Output]:
        """Return later outputs to which a step's record contributed: it was buffered, or joined with a later record."""
        operator = self.operator(step.node)
        if isinstance(operator, AsyncMap | LookUp | BatchMap):
            return step.results
        if isinstance(operator, StreamStreamJoin):
            before_ms, after_ms = reach(operator)
            nodes = self.sides(operator)

            def has(output: Output) -> bool:
                other = output.step
                if output.key != step.key:
                    return False
                if other.node == step.node or other.key != step.key:
                    return output.timestamp_ms == step.timestamp_ms
                return step.timestamp_ms - before_ms <= other.timestamp_ms <= step.timestamp_ms + after_ms

        else:
            is_holding = isinstance(operator, _HOLDING)
            nodes = [step.node]

            def has(output: Output) -> bool:
                return is_of(output.key, step) and (is_holding or output.step.cause != "record")

        return [
            output
            for node in nodes
            for output in self._outputs.get(node, ())
            if output.step.number >= step.number
            and output.step is not step
            and output.step.task_id == step.task_id
            and has(output)
        ]

    def following(self, step: Step, among: Collection[str]) -> Iterator[Step]:
        """Yield the steps that result from a step, at the nodes in ``among``."""
        if step.read_by is not None:
            yield from (reader for reader in step.read_by.steps if reader.parent is None and reader.node in among)
        is_mixed = isinstance(self.operator(step.node), _MIXING)
        own = [output for output in step.outputs if not is_mixed or is_of(output.key, step)]
        for output in (*own, *self.released(step)):
            yield from (child for child in output.children if child.node in among)

    def is_waiting(self, step: Step) -> bool:
        """Return whether a step wrote a record to a topic that the application reads, and has not read it yet."""
        node = self.topology.nodes.get(step.node)
        return isinstance(node, SinkNode) and bool(self._next[step.node]) and step.read_by is None

    def reads(self, topic: str) -> bool:
        """Return whether a source reads a topic."""
        return any(topic in node.topics for node in self.topology.nodes.values() if isinstance(node, SourceNode))


def is_of(key: Any, step: Step) -> bool:
    """Return whether an output key is the key of a step, or a window of this key with the step's timestamp."""
    if type(key) is Windowed and type(step.key) is not Windowed:
        return bool(key.key == step.key and key.window.start_ms <= step.timestamp_ms <= key.window.end_ms)
    return bool(key == step.key)


def reach(operator: StreamStreamJoin) -> tuple[int, int]:
    """Return by how many milliseconds a join partner may be earlier, and later, than a record on this side."""
    windows = operator.windows
    if operator.is_left_side:
        return windows.before_ms, windows.after_ms
    return windows.after_ms, windows.before_ms


def in_window(operator: Any, window: Any, timestamp_ms: int) -> bool:
    """Return whether an aggregation may add a record with this timestamp to a window."""
    if isinstance(operator, CountWindowAggregate):
        return True
    if isinstance(operator, WindowAggregate):
        return bool(window.start_ms <= timestamp_ms < window.end_ms)
    return bool(window.start_ms <= timestamp_ms <= window.end_ms)
