"""``Reproduction`` re-runs the tasks of a capsule in the recorded order, and compares the records that they write."""

from collections.abc import Iterator, Sequence
from typing import Literal

from attrs import define, field, frozen

from streams.capsule.capsule import Capsule, Row, TaskSpan
from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import InputError, ProcessingError
from streams.core.metrics import Metrics
from streams.core.settings.config import StreamsConfig
from streams.runtime import (
    ApplicationPlan,
    Checkpoint,
    Choice,
    Frame,
    Opening,
    Plans,
    Task,
    TaskState,
    TaskWatch,
    Written,
)
from streams.state import RecordCache, open_store
from streams.topology import ProcessorNode, ProcessorOperator, Topology

#: Header of sampled traces (W3C Trace Context).
_TRACE = "traceparent"


@frozen
class Difference:
    """The first difference between the re-run of a task and its recording.

    ``where`` is text: a partition or changelog with an offset, the order of the inputs, the times, or a failure.
    ``recorded`` is the content of the recording, and ``rerun`` the result of the re-run, both as text.
    """

    task_id: TaskId
    frame: Frame
    where: str
    recorded: str
    rerun: str

    def __str__(self) -> str:
        commit = f"task {self.task_id}, commit {self.frame.number} of run {self.frame.run}"
        return f"{commit}: {self.where}\n  recorded: {self.recorded}\n  now:      {self.rerun}"


@frozen
class Moment:
    """One step of a task: its opening, a processed record, punctuations, a cache flush, or a commit.

    ``input``, ``offset`` and ``row`` are the partition, offset and content of the processed record. ``outputs`` has
    (partition, record) pairs, and ``changes`` has (store, changelog record) pairs.
    """

    kind: Literal["opened", "took", "punctuated", "flushed", "idled", "committed"]
    task: Task = field(repr=False)
    frame: Frame = field(repr=False)
    now_ms: int
    input: TopicPartition | None = None
    offset: int = -1
    row: Row | None = None
    outputs: Sequence[tuple[TopicPartition, Row]] = ()
    changes: Sequence[tuple[str, Row]] = ()


@define
class Agreement:
    """The result of the comparison of a re-run with its recording: numbers of equal records, and first differences."""

    #: Input records of the commits without a difference, and the number of these commits.
    inputs: int = 0
    commits: int = 0
    #: Output and changelog records that are the same.
    outputs: int = 0
    changes: int = 0
    differences: list[Difference] = field(factory=list)

    @property
    def is_same(self) -> bool:
        """Whether the re-run has no difference from the recorded run."""
        return not self.differences

    def __str__(self) -> str:
        count = (
            f"{self.outputs + self.changes:,} records ({self.outputs:,} outputs, {self.changes:,} changelog entries) "
            f"of {self.commits:,} commits, from {self.inputs:,} input records"
        )
        if self.is_same:
            return f"the same: {count}"
        differences = "\n".join(map(str, self.differences))
        return f"{differences}\ndifferent: {len(self.differences)} tasks; the same before: {count}"


class _Differs(Exception):
    def __init__(self, difference: Difference) -> None:
        self.difference = difference


@define(eq=False)
class Reproduction:
    """Re-runs the tasks of a capsule with a topology, which may be a changed version of the captured one.

    ``watch`` observes the tasks, starting when they are opened.

    Raises:
        InputError: the topology does not have all tasks of the capsule.
    """

    capsule: Capsule
    topology: Topology
    config: StreamsConfig
    watch: TaskWatch | None = None
    _plan: ApplicationPlan = field(init=False)
    _clock: VirtualClock = field(factory=VirtualClock)

    def __attrs_post_init__(self) -> None:
        self.config = self.config.replace(
            application_id=self.capsule.application_id, max_task_idle_ms=-1, flight_recorder=False
        )
        plans = Plans(self.topology, self.config, self._clock)
        self._plan = plans.of(plans.layout(self.capsule.partition_counts))
        self._plan.watch = self.watch
        for span in self.capsule.spans.values():
            if span.task_id not in self._plan.groups:
                tasks = ", ".join(map(str, sorted(self._plan.groups)))
                raise InputError(f"the topology has no task {span.task_id}; with these topics it has {tasks}")

    def compare(self) -> Agreement:
        """Re-run all tasks, each up to its first difference from the recording.

        Raises:
            InputError: a task reads other partitions in this topology.
        """
        result = Agreement()
        for span in self.capsule.spans.values():
            try:
                for _ in self._run(span, result):
                    pass
            except _Differs as error:
                result.differences.append(error.difference)
        return result

    def begins_at(self, task_id: TaskId, first: int) -> bool:
        """Whether the state of a task is known before frame ``first``, so that ``moments`` can start there.

        The state is known when the task was opened, and at each commit if all state is in stores that can be restored
        exactly.
        """
        frames = self.capsule.spans[task_id].frames
        if first >= len(frames):
            return False
        sub = next(sub for sub in self._plan.subs if sub.id == task_id.sub_topology)
        nodes = [self.topology.nodes[name] for name in sub.nodes]
        has_own_state = any(
            isinstance(node, ProcessorNode) and type(node.operator) is ProcessorOperator for node in nodes
        )
        specs = self._plan.stores_of(task_id)
        is_restored = all(spec.has_changelog and spec.max_entries < 0 for spec in specs)
        return frames[first].opening is not None or (is_restored and not has_own_state)

    def moments(self, task_id: TaskId, first: int = 0) -> Iterator[Moment]:
        """Re-run one task record by record, without comparison, from frame (recorded commit) ``first`` on.

        Raises:
            ProcessingError: user code failed.
            InputError: the recorded order does not match the input records, or the task reads other partitions in this
                topology.
        """
        span = self.capsule.spans[task_id]
        if first:
            span = TaskSpan(task_id, span.frames[first:], span.frames[first - 1])
        moments = self._run(span, None)
        try:
            if first and span.frames[0].opening is None:
                next(moments)  # The opening for this run, which is not one of the recorded steps.
            yield from moments
        except _Differs as error:
            raise InputError(str(error.difference)) from error

    # --- running ----------------------------------------------------------------------------

    def _run(self, span: TaskSpan, comparison: Agreement | None) -> Iterator[Moment]:
        """Re-run a task and yield each step; if the re-run is compared, yield only openings and commits."""
        task: Task | None = None
        position = dict(span.before.end) if span.before is not None else {}
        try:
            for frame in span.frames:
                if task is None or frame.opening is not None:
                    if task is not None:
                        task.close()
                    task = self._open(span, frame)
                    position = dict(frame.opening.start) if frame.opening is not None else position
                    for partition in frame.inputs:
                        task.seek(partition, position.get(partition, 0))
                    yield Moment("opened", task, frame, task.now_ms)
                self._feed(task, frame, position)
                yield from self._frame(task, frame, comparison)
                position.update(frame.end)
        finally:
            if task is not None:
                task.close()

    def _open(self, span: TaskSpan, frame: Frame) -> Task:
        """Open a task with the state that it had at the start of a frame."""
        plan = self._plan
        task_id = span.task_id
        partitions = {item.partition for item in plan.inputs(task_id)}
        if partitions != set(frame.inputs):
            names = ", ".join(map(str, sorted(partitions)))
            recorded = ", ".join(map(str, frame.inputs))
            raise InputError(f"task {task_id} reads {names} in this topology; recorded are {recorded}")
        opening = frame.opening
        if opening is None:
            assert span.before is not None
            opening = Opening(span.before.now_ms, span.before.end, span.before.checkpoint, span.before.changelogs)
        stores = {spec.name: open_store(spec, None, default_engine="in_memory") for spec in plan.stores_of(task_id)}
        for name, position in opening.changelogs.items():
            if name in stores:
                partition = TopicPartition(plan.changelog(name), task_id.partition)
                stores[name].restore(self.capsule.rows(partition, 0, position))
                stores[name].commit({})
        self._clock.jump_to(opening.now_ms)
        return plan.open_task(
            task_id,
            TaskState(
                stores,
                {},
                Checkpoint.from_json(opening.checkpoint),
                # A span that begins within a run of the task keeps its punctuation schedules.
                carries_wall_clock=frame.opening is None,
                carries_cancelled=frame.opening is None,
            ),
            Metrics(),
            chosen_counts=lambda topics: [self.capsule.partition_counts.get(topic, 1) for topic in topics],
            cache=RecordCache(frame.cache_bytes) if frame.cache_bytes else None,
        )

    def _feed(self, task: Task, frame: Frame, position: dict[TopicPartition, int]) -> None:
        """Add the input records of a frame (recorded commit) to the task."""
        for partition, end in frame.end.items():
            block = self.capsule.rows(partition, position.get(partition, 0), end)
            task.note_end(partition, end)
            task.add(partition, block)
            task.note_position(partition, end)

    def _frame(self, task: Task, frame: Frame, comparison: Agreement | None) -> Iterator[Moment]:
        try:
            for step in frame.steps:
                if step.kind != "took":
                    if step.kind == "punctuated":
                        task.punctuate(step.now_ms)
                    elif step.kind == "idled":
                        self._idle(task, frame, step)
                    else:
                        task.prepare_commit()
                    if comparison is None:
                        yield self._moment(step.kind, task, frame, step.now_ms)
                elif comparison is None:
                    for _ in range(step.count):
                        yield self._record(task, frame, step)
                else:
                    self._take(task, frame, step, step.count)
        except ProcessingError as error:
            if comparison is None:
                raise
            raise _Differs(Difference(task.task_id, frame, "failed", "processed", str(error))) from error
        for queue in task.queues:
            if queue.size:
                left = f"{queue.size:,} records of {queue.partition} are left, from offset {queue.position}"
                raise _Differs(Difference(task.task_id, frame, "the order of the inputs", "none is left", left))
        if comparison is not None:
            self._compare(task, frame, comparison)
        task.write_state({})
        yield self._moment("committed", task, frame, frame.now_ms)

    def _take(self, task: Task, frame: Frame, step: Choice, count: int) -> None:
        partition = frame.inputs[step.index]
        queue = task.queues[partition]
        while count:
            done = task.process(step.now_ms, count, queue) if queue.size else 0
            if not done:
                left = f"{count:,} records of {partition} are not among its inputs, after offset {queue.position}"
                raise _Differs(Difference(task.task_id, frame, "the order of the inputs", "they were taken", left))
            count -= done

    def _idle(self, task: Task, frame: Frame, step: Choice) -> None:
        if task.idle is None or step.index >= len(task.idle.groups):
            raise _Differs(Difference(task.task_id, frame, "idle inputs", "operators were advanced", "they are not"))
        task.idle.step(step.index, step.now_ms)

    def _record(self, task: Task, frame: Frame, step: Choice) -> Moment:
        """Process one record, and return it with its outputs and changes."""
        partition = frame.inputs[step.index]
        queue = task.queues[partition]
        offset = queue.head_offset if queue.size else -1
        self._take(task, frame, step, 1)
        block = self.capsule.rows(partition, offset, offset + 1)
        row = next((row[1:] for row in block.rows()), None)
        return self._moment("took", task, frame, step.now_ms, partition, offset, row)

    def _moment(
        self,
        kind: Literal["took", "punctuated", "flushed", "idled", "committed"],
        task: Task,
        frame: Frame,
        now_ms: int,
        partition: TopicPartition | None = None,
        offset: int = -1,
        row: Row | None = None,
    ) -> Moment:
        outputs = [(place, row[1:]) for place, block in task.take_outputs() for row in block.rows()]
        changes = [(store, row[1:]) for store, block in task.take_changes() for row in block.rows()]
        return Moment(kind, task, frame, now_ms, partition, offset, row, outputs, changes)

    # --- comparing --------------------------------------------------------------------------

    def _compare(self, task: Task, frame: Frame, into: Agreement) -> None:
        """Compare the records and times of a commit with the recording.

        Raises:
            _Differs: the records or times are not the same.
        """
        outputs: dict[TopicPartition, list[Row]] = {}
        for partition, block in task.take_outputs():
            outputs.setdefault(partition, []).extend(row[1:] for row in block.rows())
        recorded: dict[TopicPartition, list[tuple[int, Row]]] = {partition: [] for partition in outputs}
        for written in frame.outputs:
            recorded.setdefault(written.partition, []).extend(self._written(written))
        for partition, rows in recorded.items():
            self._same(task, frame, str(partition), rows, outputs.get(partition, []))
            into.outputs += len(rows)
        plan = self._plan
        changes = {
            store: [row[1:] for row in block.rows()]
            for store, block in task.take_changes()
            if store not in plan.topology.source_changelogs
        }
        for store in sorted(changes.keys() | frame.changes.keys()):
            before = [row for written in frame.changes.get(store, ()) for row in self._written(written)]
            self._same(task, frame, f"changelog of store {store!r}", before, changes.get(store, []))
            into.changes += len(before)
        now = Checkpoint.from_json(frame.checkpoint)
        then = task.checkpoint()
        if (now.stream_time_ms, now.operator_times) != (then.stream_time_ms, then.operator_times):
            times = [f"stream time {item.stream_time_ms}, {item.operator_times}" for item in (now, then)]
            raise _Differs(Difference(task.task_id, frame, "times", *times))
        into.inputs += frame.count
        into.commits += 1

    def _written(self, written: Written) -> list[tuple[int, Row]]:
        block = self.capsule.rows(written.partition, written.base, written.base + written.count)
        return [(row[0], row[1:]) for row in block.rows()]

    def _same(
        self, task: Task, frame: Frame, where: str, recorded: Sequence[tuple[int, Row]], rerun: Sequence[Row]
    ) -> None:
        for index in range(max(len(recorded), len(rerun))):
            offset, before = recorded[index] if index < len(recorded) else (-1, None)
            now = rerun[index] if index < len(rerun) else None
            if before != now and _untraced(before) != _untraced(now):
                place = f"{where} offset {offset}" if before is not None else f"{where}, one more record"
                raise _Differs(Difference(task.task_id, frame, place, row_text(before), row_text(now)))


def _untraced(row: Row | None) -> Row | None:
    """Return a record without its trace header, which depends on the sampling of traces and is not compared."""
    if row is None:
        return None
    return (*row[:3], tuple(header for header in row[3] if header[0] != _TRACE))


def row_text(row: Row | None) -> str:
    """Return a record as text for messages, with key and value as bytes."""
    if row is None:
        return "no record"
    key, value, timestamp_ms, headers = row
    return f"{key!r}: {value!r} at {timestamp_ms}{f', headers {headers!r}' if headers else ''}"
