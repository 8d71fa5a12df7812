"""Records traces: for each task, a recorder notes calls of its nodes, grouped by the source record that caused them.

A recorder is called on the thread of its task. During the calls it keeps a stack of steps and their outputs, so that
each step has a reference to the record that it results from.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from streams.core.blocks.records import NO_TIMESTAMP, TaskId, TopicPartition
from streams.core.metrics import DropReason
from streams.dsl.processing import StreamGlobalTableJoin
from streams.runtime import Task, TaskInput
from streams.topology import (
    HeldRecord,
    HoldingNode,
    Process,
    ProcessorNode,
    ProcessorOperator,
    SinkNode,
    SourceNode,
    processor_key,
)
from streams.why.trace import Cause, Episode, Origin, Output, Step, StoreCall, Trace, is_from

#: Methods that modify a store; all other methods only read it.
_WRITES = ("put", "put_if_absent", "put_all", "delete", "remove")
_READS = ("get", "fetch", "fetch_range", "find_sessions", "fetch_session")
#: Number of keys kept as suggestions.
_MAX_KEYS = 10_000


@define(eq=False)
class Recorder:
    """Traces tasks, each by a ``TaskRecorder``; implements ``runtime.TaskWatch``."""

    trace: Trace
    tasks: dict[TaskId, "TaskRecorder"] = field(factory=dict)
    #: Attributes of processors that were replaced by reporting stores: processor, name, and the view before.
    _replaced: dict[TaskId, list[tuple[object, str, Any]]] = field(factory=dict)

    def opened(self, task: Task) -> None:
        """Trace a task from its opening on."""
        recorder = self._of(task)
        task.program.trace(recorder)
        task.metrics.on_drop = self.dropped

    def store(self, task: Task, node: str, name: str, view: Any) -> Any:
        """Return a store view that reports calls to it if the node is a user's processor; else the view itself."""
        processor = task.topology.nodes[node]
        if isinstance(processor, ProcessorNode) and isinstance(processor.operator, ProcessorOperator):
            return ReportingStore(view, name, self._of(task), node)
        return view

    def attach(self, task: Task) -> None:
        """Trace a running task from now on, including calls to stores that are attributes of its processors."""
        self.opened(task)
        views = {id(store.view): name for name, store in task.stores.items()}
        replaced = self._replaced[task.task_id] = []
        for node in task.program.nodes:
            processor = task.shared.get(processor_key(node))
            for attribute, value in _attributes(processor):
                if id(value) in views:
                    reporting = ReportingStore(value, views[id(value)], self._of(task), node)
                    object.__setattr__(processor, attribute, reporting)
                    replaced.append((processor, attribute, value))

    def has(self, task: Task) -> bool:
        """Return whether a task is traced."""
        traced = self.tasks.get(task.task_id)
        return traced is not None and traced.task is task

    @property
    def open_tasks(self) -> dict[TaskId, Task]:
        """The tasks that are or were traced, by ID; of several with the same ID, the last."""
        return {task_id: traced.task for task_id, traced in self.tasks.items()}

    def stop(self, task: Task) -> None:
        """Stop tracing a task, which then runs its usual program again."""
        task.program.untrace()
        for processor, attribute, view in self._replaced.pop(task.task_id, ()):
            object.__setattr__(processor, attribute, view)
        task.metrics.on_drop = None

    def _of(self, task: Task) -> "TaskRecorder":
        if not self.has(task):
            self.tasks[task.task_id] = TaskRecorder(task, self.trace)
        return self.tasks[task.task_id]

    def dropped(self, task: TaskId, node: str, reason: DropReason, example: str) -> None:
        """Record that a node of a task has dropped a record."""
        traced = self.tasks.get(task)
        if traced is not None:
            traced.dropped(node, reason, example)


@define(eq=False)
class TaskRecorder:
    """Records the steps of one task; implements ``topology.Tracer``."""

    task: Task
    trace: Trace
    _stack: list[Step | Output] = field(factory=list)
    _episode: Episode | None = None
    #: Partition and offset of the record of the episode, None for another episode.
    _position: tuple[TopicPartition, int] | None = None
    #: The serialized value of the source record if no node of the program deserializes it, and the deserialized value.
    _undecoded: Any = None
    _decoded: Any = None
    #: Topics that the application both writes and reads.
    _through: frozenset[str] = frozenset()
    #: The nodes that hold records until calls or batches have ended.
    _holders: dict[str, HoldingNode] = field(factory=dict)
    #: The values and steps of the records that these nodes hold.
    _waiting: dict[str, list[tuple[Any, Step]]] = field(factory=dict)
    #: The result being forwarded by such a node: its records, their steps, and the episode of its last output.
    _delivery: tuple[object, list[Step]] = (None, [])
    _delivered: Episode | None = None

    def __attrs_post_init__(self) -> None:
        nodes = self.task.topology.nodes.values()
        read = {topic for node in nodes if isinstance(node, SourceNode) for topic in node.topics}
        self._through = frozenset(
            node.topic for node in nodes if isinstance(node, SinkNode) and node.topic in read and node.topic
        )

    # --- the tracer of the program ----------------------------------------------------------

    def process(self, node: str, process: Process) -> Process:
        """Wrap the process function of a node, so that it records a step for each call."""
        sink = self.task.topology.nodes[node]
        through = sink.topic if isinstance(sink, SinkNode) and sink.topic in self._through else None
        operator_time = self.task.operator_times
        read_rows = self._row_reader(node)
        holder = next((holding for holding in self.task.holding_nodes if holding.name == node), None)
        waiting = self._waiting.setdefault(node, [])
        if holder is not None:
            self._holders[node] = holder

        def traced(key: Any, value: Any, timestamp_ms: int, headers: Any) -> Any:
            stack = self._stack
            depth = len(self._stack)
            step = self._enter(node, key, value, timestamp_ms)
            if read_rows is not None and step.episode.is_kept:
                step.rows = read_rows(key)
            if holder is not None:
                waiting.append((value, step))
            stack.append(step)
            try:
                return process(key, value, timestamp_ms, headers)
            except BaseException as error:
                if not any(child.error is error for output in step.outputs for child in output.children):
                    step.error = error
                raise
            finally:
                del stack[depth:]
                if holder is not None and (step.outputs or step.error is not None):
                    waiting[:] = [pair for pair in waiting if pair[1] is not step]
                time = operator_time.get(node)
                step.node_time_ms = NO_TIMESTAMP if time is None else time.ms
                if through is not None and step.error is None and not step.drops:
                    self.trace.note_written(through, step)

        return traced

    @contextmanager
    def forward(self, node: str, key: Any, value: Any, timestamp_ms: int, headers: Any) -> Iterator[None]:
        """Record an output of a node; steps of its child nodes within the ``with`` block result from it."""
        stack = self._stack
        depth = len(self._stack)
        top = stack[-1] if stack else None
        held = self._held_at(node)
        if held:
            top = self._result(node, held, key, value, timestamp_ms)
            stack.append(top)
        elif not isinstance(top, Step) or top.node != node:
            top = self._held(node, key, value, timestamp_ms)
            stack.append(top)
        output = Output(top, key, self._readable(value), timestamp_ms)
        top.outputs.append(output)
        for step in top.made_of:
            step.results.append(output)
        stack.append(output)
        try:
            yield
        finally:
            del stack[depth:]

    # --- results of calls and batches -----------------------------------------------------------

    def _held_at(self, node: str) -> Sequence[HeldRecord]:
        """Return the records whose result a node is forwarding, if the node waits for async calls or batches."""
        holder = self._holders.get(node)
        return () if holder is None else holder.delivered()

    def _inputs(self, node: str, held: Sequence[HeldRecord]) -> list[Step]:
        """Return the steps of records whose result is being forwarded, and remove them from the waiting steps."""
        delivery = node, [(record.origin, id(record.value)) for record in held]
        if delivery != self._delivery[0]:
            steps = []
            waiting = self._waiting[node]
            for record in held:
                own = next((pair for pair in waiting if pair[0] is record.value and is_from(pair[1], record)), None)
                if own is not None:
                    waiting.remove(own)
                    own[1].ended = record
                    steps.append(own[1])
            self._delivery = delivery, steps
        return self._delivery[1]

    def _result(self, node: str, held: Sequence[HeldRecord], key: Any, value: Any, timestamp_ms: int) -> Step:
        """Return a step for the result of an async call or a batch; the step starts an episode of its own."""
        inputs = self._inputs(node, held)
        self._delivered = episode = Episode(self.task.task_id, None)
        self.trace.recent.append(episode)
        step = self._step(episode, node, key, value, timestamp_ms, None)
        step.cause = "flush"
        step.made_of = inputs
        step.ended = held[-1]
        if any(source.episode.is_kept for source in inputs):
            self.trace.keep(episode, is_result=True)
        return step

    def _row_reader(self, node: str) -> Callable[[Any], list[tuple[str, Any]]] | None:
        """Return a function that reads a key's rows from the tables of a join, or None if the node is no table join."""
        operator = getattr(self.task.topology.nodes[node], "operator", None)
        table = getattr(operator, "table", None) or getattr(operator, "other", None)
        if table is None or isinstance(operator, StreamGlobalTableJoin):
            return None
        readers = []
        for name in table.stores:
            store = self.task.stores.get(name)
            if store is not None and store.spec.kind.table is not None:
                readers.append((name, store.spec.kind.table.get(store.view)))

        def read(key: Any) -> list[tuple[str, Any]]:
            return [] if key is None else [(name, get(key)) for name, get in readers]

        return read

    # --- stores and drops ---------------------------------------------------------------------

    def called(self, node: str, call: StoreCall) -> None:
        """Record a call to a state store by a user's processor."""
        step = next((item for item in reversed(self._stack) if isinstance(item, Step)), None)
        if step is None or step.node != node:
            step = self._held(node, call.key, None, self.task.record.stream_time_ms(), joins=True)
        step.calls.append(call)
        if self.trace.concerns(call.key):
            self.trace.keep(step.episode)

    def dropped(self, node: str, reason: DropReason, example: str) -> None:
        """Record that a node has dropped a record."""
        if held := self._held_at(node):
            for step in self._inputs(node, held):
                step.drops.append((reason, example))
            return
        for item in reversed(self._stack):
            if isinstance(item, Step) and item.node == node:
                item.drops.append((reason, example))
                return
        if isinstance(self.task.topology.nodes.get(node), SourceNode):
            self.trace.unreadable.append((self.task.task_id, node, reason, example))
            return
        # A drop by an exception handler is counted after the step has ended; a drop by a store has the name of the
        # store.
        episodes = [episode for episode in (self._episode, self._delivered) if episode is not None]
        steps = sorted((step for episode in episodes for step in episode.steps), key=lambda step: step.number)
        for step in reversed(steps):
            if step.node == node or node in self.task.topology.stores_of(step.node):
                step.drops.append((reason, example))
                return

    # --- steps and episodes ---------------------------------------------------------------------

    def _enter(self, node: str, key: Any, value: Any, timestamp_ms: int) -> Step:
        parent: Output | None = None
        if self._stack:
            top = self._stack[-1]
            if isinstance(top, Step):
                # A record for one child only.
                parent = Output(top, key, self._readable(value), timestamp_ms)
                top.outputs.append(parent)
            else:
                parent = top
            episode = parent.step.episode
        else:
            episode = self._root(key, value, timestamp_ms)
        step = self._step(episode, node, key, value, timestamp_ms, parent)
        if parent is not None:
            parent.children.append(step)
        return step

    def _step(
        self, episode: Episode, node: str, key: Any, value: Any, timestamp_ms: int, parent: Output | None
    ) -> Step:
        step = Step(next(self.trace.numbers), node, key, self._readable(value), timestamp_ms, episode, parent)
        step.stream_time_ms = self.task.record.stream_time_ms()
        episode.steps.append(step)
        if not episode.is_kept and self.trace.concerns(key):
            self.trace.keep(episode)
        return step

    def _root(self, key: Any, value: Any, timestamp_ms: int) -> Episode:
        """Return the episode of the current source record, which is created at the first call for the record."""
        position = self.task.record.position()
        assert position is not None, "a source has a record"
        item, offset = position
        if self._episode is not None and self._position == (item.partition, offset):
            return self._episode
        trace = self.trace
        episode = self._begin(Origin(item.topic, item.number, offset))
        self._position = (item.partition, offset)
        self._undecoded, self._decoded = value, self._decode(item, value)
        value = self._decoded
        at = (item.topic, item.number)
        trace.read[at] = trace.read.get(at, 0) + 1
        if len(trace.keys) < _MAX_KEYS:
            trace.keys[str(key)] = None
        if item.topic in self._through:
            episode.producer = trace.take_written(item.topic, key, value, timestamp_ms)
            if episode.producer is not None:
                episode.producer.read_by = episode
                if episode.producer.episode.is_kept:
                    trace.keep(episode)
        if trace.mentions(value):
            trace.keep(episode)
        return episode

    def _held(self, node: str, key: Any, value: Any, timestamp_ms: int, *, joins: bool = False) -> Step:
        """Return the step for a node that forwards a record, or calls a store, while it is not processing a record."""
        operator = getattr(self.task.topology.nodes[node], "operator", None)
        cause: Cause = "punctuation" if isinstance(operator, ProcessorOperator) else "flush"
        last = self._episode.steps[-1] if self._episode is not None and self._episode.steps else None
        if not self._stack and last is not None and last.cause == cause == "punctuation" and last.node == node:
            return last
        top = self._stack[-1] if self._stack else None
        episode = self._begin(None) if top is None else (top if isinstance(top, Step) else top.step).episode
        step = self._step(episode, node, key, value, timestamp_ms, None)
        step.cause = cause
        return step

    def _begin(self, place: Origin | None) -> Episode:
        self._episode = episode = Episode(self.task.task_id, place)
        self._position = self._undecoded = self._decoded = None
        self.trace.recent.append(episode)
        return episode

    def _readable(self, value: Any) -> Any:
        """Return a value as a deserialized object, even if the nodes forwarded it as bytes."""
        return self._decoded if value is self._undecoded else value

    def _decode(self, item: TaskInput, value: Any) -> Any:
        """Deserialize the value of a source record; a value of an internal topic that no node reads remains bytes."""
        source = self.task.topology.nodes[item.source]
        assert isinstance(source, SourceNode)
        if value is None or source.value_serde is self.task.readers[item.partition].value_serde:
            return value
        try:
            return source.value_serde.deserialize(value)
        except Exception:  # noqa: BLE001 - a serde of the user may raise anything; the bytes are shown then.
            return value


def _attributes(processor: object) -> list[tuple[str, Any]]:
    """Return the attributes of a processor as (name, value) pairs, including those in ``__slots__``."""
    slots = [name for kind in type(processor).__mro__ for name in getattr(kind, "__slots__", ())]
    slotted = {name: getattr(processor, name) for name in slots if hasattr(processor, name)}
    return list((slotted | getattr(processor, "__dict__", {})).items())


class ReportingStore:
    """A view of a state store that reports writes, and reads of single keys, to the recorder of the task."""

    def __init__(self, view: Any, name: str, recorder: TaskRecorder, node: str) -> None:
        self._view = view
        self._name = name
        self._recorder = recorder
        self._node = node

    def __getattr__(self, method: str) -> Any:
        attribute = getattr(self._view, method)
        is_write = method in _WRITES
        if not is_write and method not in _READS:
            return attribute

        def called(*arguments: Any, **named: Any) -> Any:
            result = attribute(*arguments, **named)
            key = arguments[0] if arguments else next(iter(named.values()), None)
            value = (arguments[1] if len(arguments) > 1 else None) if is_write else result
            if hasattr(value, "__next__"):
                value = "some rows"
            self._recorder.called(self._node, StoreCall(self._name, method, key, value, is_write))
            return result

        return called
