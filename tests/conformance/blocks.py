"""Playing a case in blocks: through the tasks and programs that a running application has.

Each sub-topology is a task of its own, opened by the plan as a stream thread opens it.  Blocks go
in, blocks come out, and those of internal topics go round as blocks.  No broker and no threads:
who goes when, how much at once, and when is committed, is up to ``Pace``.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

from attrs import define, field, frozen

from streams import Headers, StreamsConfig, StreamsError, Topology, VirtualClock
from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.core.metrics import Metrics
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.tasks.task import Task, TaskState
from streams.state import RecordCache, open_store
from streams.topology.subtopologies import sub_topologies
from tests.conformance.flow import Flow, Segment, has_plain_times, segments, singles
from tests.conformance.play import REFUSALS, Observed, Row, build, entry_of, settings_of
from tests.conformance.stores import read_store
from tests.conformance.values import TopicSerdes, to_json

#: Longest run, as of a stream thread.
_RUN = 10_000


class Pace(Protocol):
    """Decides what the order of work leaves open."""

    def pieces(self, rows: Sequence[Row]) -> list[Sequence[Row]]:
        """Cut a topic's rows into blocks."""

    def next_task(self, tasks: Sequence[Task]) -> Task:
        """Choose among the tasks that have something to do."""

    def limit(self) -> int:
        """Return how many records are processed at once."""

    def commits(self) -> bool:
        """Whether to commit before going on."""


class OneBlock:
    """Everything in one block, every block in one run, one commit at the end."""

    def pieces(self, rows: Sequence[Row]) -> list[Sequence[Row]]:
        """Leave the rows together."""
        return [rows]

    def next_task(self, tasks: Sequence[Task]) -> Task:
        """Take the first in the order of data flow."""
        return tasks[0]

    def limit(self) -> int:
        """Return the longest run there is."""
        return _RUN

    def commits(self) -> bool:
        """Commit at the end only."""
        return False


@frozen
class RandomPace:
    """Any split of blocks and runs, any task first, and commits anywhere."""

    random: Random

    def pieces(self, rows: Sequence[Row]) -> list[Sequence[Row]]:
        """Cut anywhere."""
        cuts = sorted(self.random.sample(range(1, len(rows)), self.random.randrange(len(rows))))
        return [rows[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True)]

    def next_task(self, tasks: Sequence[Task]) -> Task:
        """Take any."""
        return self.random.choice(tasks)

    def limit(self) -> int:
        """Return 1 up to a few more than blocks have."""
        return self.random.randint(1, 12)

    def commits(self) -> bool:
        """Commit before every third step."""
        return self.random.random() < 0.3


def joined(rows: Sequence[Row], first_offset: int) -> Block:
    """Return rows as a block."""
    headers: list[Headers] | None = [row[3] for row in rows]
    return Block(
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        headers if any(headers or ()) else None,
        range(first_offset, first_offset + len(rows)),
    )


@define(eq=False)
class Tasks:
    """All tasks of an application, and the logs of its topics."""

    topology: Topology
    config: StreamsConfig
    clock: VirtualClock
    plan: ApplicationPlan
    pace: Pace
    metrics: Metrics = field(factory=Metrics)
    logs: dict[str, list[Row]] = field(factory=dict)
    #: What the application itself has written.
    written: dict[str, list[Row]] = field(factory=dict)
    globals: dict[str, Task] = field(factory=dict)
    tasks: list[Task] = field(factory=list)
    #: Most records that a task was given at once by another.
    widest: int = 0
    _owner: dict[TopicPartition, list[Task]] = field(factory=dict)

    def open(self) -> None:
        """Open global stores and tasks, in the order of data flow."""
        cache = RecordCache(self.config.cache_max_bytes) if self.config.cache_max_bytes else None
        for name, store in self.topology.global_stores.items():
            state = TaskState({name: open_store(store.spec, None, default_engine="in_memory")})
            self.globals[name] = self.plan.open_global(name, state, self.metrics)
        order = [TaskId(sub, 0) for stage in self.plan.stages() for sub in stage]
        for task_id in [task_id for task_id in order if task_id in self.plan.groups]:
            stores = {
                spec.name: open_store(spec, None, default_engine="in_memory") for spec in self.plan.stores_of(task_id)
            }
            views = {name: owner.stores[name] for name, owner in self.globals.items()}
            task = self.plan.open_task(task_id, TaskState(stores, views), self.metrics, cache=cache)
            self.tasks.append(task)
            for partition in task.inputs:
                task.note_end(partition, 0)
        for task in [*self.globals.values(), *self.tasks]:
            for partition in task.inputs:
                self._owner.setdefault(partition, []).append(task)

    def hand_over(self, segment: Segment) -> None:
        """Process a segment, with everything that follows from it."""
        pieces = {topic: self.pace.pieces(rows) for topic, rows in segment.rows.items()}
        # The ends first: a task waits for what it knows to be there.
        for topic, rows in segment.rows.items():
            for task in self._owner.get(TopicPartition(topic, 0), ()):
                task.note_end(TopicPartition(topic, 0), len(self.logs.get(topic, ())) + len(rows))
        while any(pieces.values()):
            for topic, left in pieces.items():
                if left:
                    self.append(topic, joined(left.pop(0), 0), is_piped=True)
            self._work()
        self.settle()

    def append(self, topic: str, block: Block, *, is_piped: bool = False) -> None:
        """Write a block to a topic, and hand it to those who read it."""
        log = self.logs.setdefault(topic, [])
        start = len(log)
        rows: list[Row] = [(key, value, time, headers) for _, key, value, time, headers in block.rows()]
        log += rows
        if not is_piped:
            self.written.setdefault(topic, []).extend(rows)
            if TopicPartition(topic, 0) in self._owner:
                self.widest = max(self.widest, len(rows))
        block.offsets = range(start, len(log))
        partition = TopicPartition(topic, 0)
        for task in self._owner.get(partition, ()):
            task.note_end(partition, max(len(log), task.queues[partition].end_offset or 0))
            task.add(partition, block)
            if task in self.globals.values():
                while task.process(self.clock.now_ms(), _RUN):
                    pass
                task.write_state({})

    def settle(self) -> None:
        """Work and commit until nothing is left."""
        has_sent = True
        while has_sent:
            self._work()
            has_sent = False
            for task in self.tasks:
                has_sent = self._commit(task) or has_sent

    def drain(self) -> None:
        """Write what the tasks have sent so far to its topics, as far as anybody may see it."""
        for task in self.tasks:
            self._send(task)

    def _work(self) -> None:
        while ready := [task for task in self.tasks if task.queues.size or any(q.failure for q in task.queues)]:
            task = self.pace.next_task(ready)
            count = task.process(self.clock.now_ms(), self.pace.limit())
            is_sent = self._commit(task) if self.pace.commits() else self._send(task)
            if not count and not is_sent and len(ready) == 1:
                return
            if not count and not is_sent and not self._can_go(ready):
                return

    def _can_go(self, ready: Sequence[Task]) -> bool:
        """Whether any of the tasks does something: each waits for input that is still to come otherwise."""
        done = False
        for task in ready:
            done = bool(task.process(self.clock.now_ms(), self.pace.limit())) or done
            done = self._send(task) or done
        return done

    def _send(self, task: Task) -> bool:
        blocks = task.take_outputs()
        for partition, block in blocks:
            self.append(partition.topic, block)
        return bool(blocks)

    def _commit(self, task: Task) -> bool:
        """Commit as a thread does; return whether that sent anything."""
        task.finish_calls()
        task.prepare_commit()
        is_sent = self._send(task)
        for store, block in task.take_changes():
            # The log of a store that keeps its source topic as changelog is that topic.
            if store not in self.topology.source_changelogs:
                log = self.logs.setdefault(self.plan.changelog(store), [])
                log += [(key, value, time, headers) for _, key, value, time, headers in block.rows()]
        task.write_state({})
        return is_sent

    def store(self, name: str) -> Any:
        """Return a store by name."""
        if name in self.globals:
            return self.globals[name].stores[name]
        return next(task.stores[name] for task in self.tasks if name in task.stores)

    def close(self) -> None:
        """Close processors and stores."""
        for task in [*self.tasks, *self.globals.values()]:
            task.close()


def external_topics(case: dict[str, Any], topology: Topology) -> dict[str, int]:
    """Return the topics that are there before the application, one partition each."""
    piped = [step["pipe"]["topic"] for step in case["script"] if "pipe" in step]
    names = dict.fromkeys([*case["topics"], *piped])
    for sub in sub_topologies(topology, dict.fromkeys(names, 1)):
        names |= dict.fromkeys((*sub.source_topics, *sub.sink_topics))
    return {name: 1 for name in names if name not in topology.internal_topics}


@define
class BlockPlayer:
    """Plays one case in blocks; topics that are joined into one segment are as ``flow.segments`` says.

    With ``is_single`` each record is a segment, with everything that follows before the next.
    """

    case: dict[str, Any]
    pace: Pace = field(factory=OneBlock)
    is_single: bool = False
    observed: Observed = field(factory=Observed)
    flow: Flow | None = None
    parts: list[Segment | int] = field(factory=list)
    logs: dict[str, list[Row]] = field(factory=dict)
    widest: int = 0
    error: StreamsError | None = None

    def play(self) -> Observed:
        """Run the whole case."""
        try:
            topology = build(self.case, self._peeked)
            tasks = self._tasks(topology)
            tasks.open()
        except REFUSALS as error:
            return self.observed.fail("build", None, error)
        self.logs = tasks.logs
        self.flow = Flow(topology, tasks.plan.subs)
        self.parts = segments(
            self.case,
            self.flow,
            joins_topics=not self.is_single and has_plain_times(topology, self.case.get("config") or {}),
        )
        if self.is_single:
            self.parts = singles(self.parts)
        try:
            self._run(tasks)
        finally:
            self.widest = tasks.widest
            tasks.close()
        return self.observed

    def _tasks(self, topology: Topology) -> Tasks:
        now_ms, settings = settings_of(self.case)
        config = StreamsConfig.of(**settings)
        clock = VirtualClock(now_ms)
        plan = ApplicationPlan.make(topology, config, clock, external_topics(self.case, topology))
        return Tasks(topology, config, clock, plan, self.pace)

    def _peeked(self, label: str, key: Any, value: Any) -> None:
        self.observed.note(f"peek:{label}", {"key": to_json(key), "value": to_json(value)})

    def _run(self, tasks: Tasks) -> None:
        for part in self.parts:
            try:
                if isinstance(part, Segment):
                    tasks.hand_over(part)
                else:
                    self._read(tasks, self.case["script"][part]["read_store"])
            except StreamsError as error:
                self.error = error
                self.observed.fail("run", None, error)
                tasks.drain()
                break
        for topic, spec in self.case["topics"].items():
            forms = TopicSerdes.of(spec)
            for row in tasks.written.get(topic, ()):
                self.observed.note(topic, entry_of(row, forms))
        if self.error is not None:
            return
        for request in self.case.get("read_stores") or ():
            self.observed.stores[request["store"]] = read_store(tasks.store(request["store"]), request)
        self.observed.dropped = tasks.metrics.get("dropped-records-total")

    def _read(self, tasks: Tasks, request: dict[str, Any]) -> None:
        entries = read_store(tasks.store(request["store"]), request)
        self.observed.note(f"store:{request['store']}", {"entries": entries})
