"""The plan of an application: its tasks, their inputs and outputs, and how tasks are opened.

A plan is computed from the topology, the settings and the partition counts of the topics; the drivers use it to open
tasks.  The module imports only ``core``, ``state`` and ``topology`` from outside ``runtime``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import TaskId, TopicPartition, lane_of, lanes_base
from streams.core.clock import Clock
from streams.core.errors import ProcessingError
from streams.core.event_time.timestamps import EventTime, extractor_for
from streams.core.metrics import Metrics, table
from streams.core.serdes.serdes import BYTES
from streams.core.settings.config import StreamsConfig
from streams.core.wrapping import ProcessorWrapper
from streams.runtime.plan.grouping import check_changelogs, check_groups, kept_together, merged
from streams.runtime.plan.topic_configs import REPARTITION_CONFIG, changelog_config
from streams.runtime.tasks.columns.opening import open_columns
from streams.runtime.tasks.columns.runs import may_trace
from streams.runtime.tasks.handling import Handlers, HandlerSettings
from streams.runtime.tasks.idle import IdleLimits
from streams.runtime.tasks.lane_queue import PartitionLanes
from streams.runtime.tasks.lateness import Disorder
from streams.runtime.tasks.offset_metadata import lanes_fit
from streams.runtime.tasks.outbox import NewColumns, Outbox, PartitionCounts, TopicColumns, one_each
from streams.runtime.tasks.punctuation import TimerHeap
from streams.runtime.tasks.queues import TaskQueues
from streams.runtime.tasks.sources import SourceReader, TaskInput
from streams.runtime.tasks.task import Task, TaskParts, TaskState, TaskWatch
from streams.state import RecordCache, StoreSpec
from streams.topology import (
    CompiledSubTopology,
    PartitionGrouper,
    SamePartitionGrouper,
    SinkNode,
    SourceNode,
    SubTopology,
    Topology,
    divided_keys,
    refuse_generated_names,
    resolve_partitions,
    stages,
    sub_topologies,
    through_topics,
    validate,
)
from streams.topology.columns.paths import ColumnPath, column_paths

#: Suffix of the names of topics with lanes.
_LANES = ".lanes"


@frozen
class InternalTopicPlan:
    """The required properties of an internal topic on the broker."""

    name: str
    partitions: int
    config: Mapping[str, str]


@frozen
class Existing:
    """The existing state of an application.

    ``groups`` has, for each topic of a sub-topology with state, the number of partition groups among which its keys are
    divided.  ``later`` is the partition count expected of topics that a source's pattern may match later, or None if
    unknown.
    """

    groups: Mapping[str, int] = field(factory=dict)
    later: int | None = None


@define
class ApplicationPlan:
    """The tasks of an application and how to open them.

    With ``has_lanes`` (bounded runs), some topics are stored as one lane per producing task, so that the record order
    does not depend on the speed of the tasks: repartition topics, *through* topics (user topics that tasks both write
    and read), and topics that several tasks write.  A through topic has an additional first lane for external records.
    Topics of global stores have no lanes.
    """

    topology: Topology
    config: StreamsConfig
    clock: Clock
    partitions: dict[str, int]
    subs: list[SubTopology]
    groups: dict[TaskId, tuple[TopicPartition, ...]]
    has_lanes: bool = False
    #: Whether repartition and through topics are read in step, by place: in a live run.
    is_in_step: bool = False
    #: The through topics whose records may be removed one by one.
    compacted: frozenset[str] = frozenset()
    #: The producing tasks, in the order of their lanes, by topic that is stored as lanes; empty without ``has_lanes``.
    lanes: dict[str, list[TaskId]] = field(factory=dict)
    #: By topic whose records reach a store: the number of partition groups among which its keys are divided; empty with
    #: a custom grouper, which need not divide them by the hash of the key.
    divisions: Mapping[str, int] = field(factory=dict)
    #: The through topics, whose first lane is for external records.
    fed: set[str] = field(factory=set)
    #: The observer of the tasks, or None.
    watch: TaskWatch | None = None
    #: Whether tasks take runs of records by columns where that is possible: in a replay.
    may_use_columns: bool = False
    #: The ways through the topology that columns take, by source, once they are known.
    _paths: Mapping[str, ColumnPath] | None = None
    #: The topics that are stored as lanes, by the broker names of their lanes.
    _laned: dict[str, str] = field(factory=dict)
    _compiled: dict[tuple[int, bool], CompiledSubTopology] = field(factory=dict)
    _read: dict[TaskId, tuple[TopicPartition, ...]] = field(factory=dict)
    #: The inputs to which tasks are restricted (``restrict``).
    _restricted: dict[TaskId, dict[TopicPartition, list[TopicPartition]]] = field(factory=dict)
    _in_step: frozenset[str] | None = None

    @classmethod
    def make(
        cls,
        topology: Topology,
        config: StreamsConfig,
        clock: Clock,
        external: Mapping[str, int],
        *,
        has_lanes: bool = False,
        is_single_task: bool = False,
        grouper: PartitionGrouper | None = None,
        existing: Existing | None = None,
    ) -> "ApplicationPlan":
        """Plan an application for topics with the given partition counts.

        With ``is_single_task``, all sub-topologies run as one task, and every topic has one partition.

        Raises:
            TopologyError: a source topic is missing, inputs are not co-partitioned, or the partition groups would not
                match existing state.
        """
        validate(topology)
        if config.ensure_explicit_internal_resource_naming:
            refuse_generated_names(topology)
        subs = sub_topologies(topology, external)
        existing = existing or Existing()
        partitions = resolve_partitions(topology, subs, external, groups=existing.groups, later=existing.later)
        if is_single_task:
            subs = merged(subs)
        groups = (grouper or SamePartitionGrouper()).groups(subs, partitions)
        if is_single_task and not groups:
            # There are only pattern sources, whose topics may be created later.
            groups = {TaskId(sub.id, 0): () for sub in subs if not sub.is_global}
        divisions = {} if grouper else divided_keys(topology, partitions, existing.groups)
        groups = kept_together(groups, {**existing.groups, **divisions}, partitions, is_default=grouper is None)
        check_changelogs(topology, partitions, divisions)
        plan = cls(topology, config, clock, partitions, subs, groups, has_lanes, divisions=divisions)
        check_groups(plan.groups)
        if has_lanes:
            plan._lay_lanes()
        return plan

    def _lay_lanes(self) -> None:
        written = (topic for sub in self.subs for topic in self._written_by(sub))
        for topic in dict.fromkeys((*self.topology.internal_topics, *written)):
            producers = self._lanes_of(topic)
            if producers is not None:
                self._lay(topic, producers)
                if topic in self._read_topics and not self.is_internal(topic):
                    self.fed.add(topic)
        changelogs = {
            store: topic for store, topic in self.topology.source_changelogs.items() if topic not in self.lanes
        }
        if len(changelogs) < len(self.topology.source_changelogs):
            # Several lanes cannot serve as a changelog, so such a table has its own changelog.
            self.topology = evolve(self.topology, source_changelogs=changelogs)

    def _lay(self, topic: str, producers: list[TaskId]) -> None:
        self.lanes[topic] = producers
        self._laned[self._lanes_name(topic)] = topic

    def _lanes_of(self, topic: str) -> list[TaskId] | None:
        """Return the tasks whose records of a topic are stored in lanes, one per task, or None if it has no lanes."""
        producers = self.writers(topic)
        if self.is_internal(topic) or (producers and topic in self._read_topics):
            return producers
        is_global = any(topic in store.source.topics for store in self.topology.global_stores.values())
        return producers if len(producers) > 1 and not is_global else None

    def _written_by(self, sub: SubTopology) -> tuple[str, ...]:
        """Return the topics that a sub-topology writes: its sink topics and the dead letter queue topic."""
        letters = self.config.errors_dead_letter_queue_topic_name
        return (*sub.sink_topics, letters) if letters and not sub.is_global else sub.sink_topics

    @property
    def _read_topics(self) -> set[str]:
        return {topic for sub in self.subs if not sub.is_global for topic in sub.source_topics}

    def writers(self, topic: str) -> list[TaskId]:
        """Return the tasks that may write to a topic, sorted by task ID.

        Tasks write to their sink topics and to the dead letter queue topic.  If a sink or a user's handler chooses the
        topic for each record, its tasks may also write to any topic that no task reads.
        """
        subs = self._writing(topic)
        return sorted(task for task in self.groups if task.sub_topology in subs)

    def _writing(self, topic: str) -> set[int]:
        """Return the sub-topologies whose tasks may write to a topic."""
        subs = {sub.id for sub in self.subs if topic in self._written_by(sub)}
        if topic not in self._read_topics and not self.is_internal(topic):
            subs |= {sub.id for sub in self.subs if self._chooses_topics(sub)}
        return subs

    @property
    def handlers(self) -> HandlerSettings:
        """The exception handlers of the application."""
        return HandlerSettings.of(self.config)

    def _chooses_topics(self, sub: SubTopology) -> bool:
        """Return whether a sub-topology may choose output topics per record, in a sink or a custom error handler."""
        if not sub.is_global and self.handlers.has_functions:
            return True
        nodes = (self.topology.nodes.get(name) for name in sub.nodes)
        return any(isinstance(node, SinkNode) and node.topic_for is not None for node in nodes)

    def stateful(self) -> list[TaskId]:
        """Return the tasks that have a store with a changelog."""
        subs = {
            sub.id
            for sub in self.subs
            if not sub.is_global and any(self.topology.stores[store].has_changelog for store in sub.stores)
        }
        return [task_id for task_id in sorted(self.groups) if task_id.sub_topology in subs]

    def changelogs(self, task_id: TaskId, stores: Iterable[str]) -> dict[str, TopicPartition]:
        """Return the changelog partitions of a task, by store name."""
        return {
            name: TopicPartition(self.changelog(name), task_id.partition)
            for name in stores
            if self.topology.stores[name].has_changelog
        }

    def stages(self) -> list[tuple[int, ...]]:
        """Return the sub-topologies in the order of the data flow, as stages; a cycle of them is one stage."""
        return stages(evolve(sub, sink_topics=self._written_by(sub)) for sub in self.subs)

    def cycles(self) -> dict[int, tuple[int, ...]]:
        """Return, for each sub-topology in a data flow cycle, all sub-topologies of that cycle."""
        result: dict[int, tuple[int, ...]] = {}
        for stage in self.stages():
            first = next(sub for sub in self.subs if sub.id == stage[0] and not sub.is_global)
            reads_itself = any(topic in first.source_topics for topic in self._written_by(first))
            if len(stage) > 1 or reads_itself:
                result |= dict.fromkeys(stage, stage)
        return result

    def bundles(self) -> dict[TaskId, tuple[TopicPartition, ...]]:
        """Return the units of assignment: the partitions of each task or, in a bounded run, of each cycle.

        In a bounded run a cycle is one stage, which one thread runs over all its partitions, so that the
        record order does not depend on the speed of the tasks.
        """
        cycles = self.cycles() if self.has_lanes else {}
        result: dict[TaskId, tuple[TopicPartition, ...]] = {}
        for task_id in sorted(self.groups):
            stage = cycles.get(task_id.sub_topology)
            key = task_id if stage is None else TaskId(stage[0], 0)
            result[key] = (*result.get(key, ()), *(item.partition for item in self.inputs(task_id)))
        return result

    # --- names on the broker ------------------------------------------------------------

    def is_internal(self, topic: str) -> bool:
        """Return whether a topic of the topology is a repartition topic."""
        return topic in self.topology.internal_topics

    def physical_topic(self, topic: str) -> str:
        """Return the name of the broker topic that stores a topic of the topology, directly or as lanes."""
        return self._lanes_name(topic) if topic in self.lanes else self._prefixed(topic)

    def _lanes_name(self, topic: str) -> str:
        return f"{self.config.application_id}-{topic}{_LANES}"

    def topic_of_lanes(self, name: str) -> str | None:
        """Return the external topic whose records are stored as lanes in this broker topic, or None."""
        prefix = f"{self.config.application_id}-"
        if not (name.startswith(prefix) and name.endswith(_LANES)):
            return None
        topic = name[len(prefix) : -len(_LANES)]
        return None if self.is_internal(topic) else topic

    def _prefixed(self, topic: str) -> str:
        return f"{self.config.application_id}-{topic}" if self.is_internal(topic) else topic

    def changelog(self, store: str) -> str:
        """Return the broker name of a store's changelog."""
        source = self.topology.source_changelogs.get(store)
        return source if source is not None else f"{self.config.application_id}-{store}-changelog"

    def repartition_topics(self) -> set[str]:
        """Return the broker names of the repartition topics that are not stored as lanes."""
        return set() if self.has_lanes else {self.physical_topic(topic) for topic in self.topology.internal_topics}

    def regroups(self, sub_topology: int) -> bool:
        """Return whether the outputs of a sub-topology's tasks are merged in a topic that tasks read."""
        sub = next(sub for sub in self.subs if sub.id == sub_topology)
        return any(self.is_internal(topic) or topic in self.in_step() for topic in self._written_by(sub))

    def in_step(self) -> frozenset[str]:
        """Return the topics whose records are read by place, as a bounded run reads them."""
        if self._in_step is None:
            reasons = self.steps() if self.is_in_step else {}
            self._in_step = frozenset(topic for topic, reason in reasons.items() if reason is None)
        return self._in_step

    def steps(self) -> dict[str, str | None]:
        """Return the repartition and through topics, each with the reason why a live run does not read it by place.

        The reason is None if it does.
        """
        subs = [evolve(sub, sink_topics=self._written_by(sub)) for sub in self.subs]
        topics = [*self.topology.internal_topics, *through_topics(self.topology, subs)]
        reason = self._why_not_in_step()
        if reason is not None:
            return dict.fromkeys(topics, reason)
        tables = {topic: store for store, topic in self.topology.source_changelogs.items()}
        cycles = self.cycles()
        return {topic: self._why_out_of_step(topic, cycles, tables.get(topic)) for topic in topics}

    def lane_in(self, lane: int, topic: str) -> int | None:
        """Return the lane of a task in a topic, or None if the records of the topic are not merged by place.

        Others may write to a topic of the user, even tasks of another application: these have other lanes.
        """
        if self.has_lanes:
            return lane if self._lanes_of(topic) is not None else None
        if topic not in self.in_step():
            return None
        return lane if self.is_internal(topic) else lanes_base(self.config.application_id) + lane

    def patience_ms(self, topic: str) -> int:
        """Return how long the readers of a topic wait for a task that does not move; 0: not at all."""
        internal = self.topology.internal_topics.get(topic)
        if internal is None or internal.patience_ms is None:
            return self.config.repartition_patience_ms
        return internal.patience_ms

    def _why_not_in_step(self) -> str | None:
        """Return why no topic of a live run is read by place, or None if some are."""
        config = self.config
        if config.max_task_idle_ms < 0:
            return "max_task_idle_ms is -1"
        if config.flight_recorder:
            return "the flight recorder records the order of offsets"
        if config.group_protocol == "streams":
            return "a group of the streams protocol may have members in Java"
        return None

    def _why_out_of_step(self, topic: str, cycles: Iterable[int], table: str | None) -> str | None:
        """Return why a topic of a live run is not read by place, or None if it is; ``table`` is restored from it."""
        if not self._writing(topic).isdisjoint(cycles):
            return (
                "its records come from a cycle, such as a foreign-key join, which would wait for itself: intermediate "
                "results are not promised, final tables are equal"
            )
        if not self.patience_ms(topic):
            return f"{'its patience' if self.config.repartition_patience_ms else 'repartition_patience_ms'} is 0"
        if table is not None:
            return f"store {table} is restored from it, in the order of its offsets"
        if topic in self.compacted:
            return "it is compacted (cleanup.policy), or its settings cannot be read: the lanes of its records get lost"
        count = len(self.writers(topic))
        if not lanes_fit(count):
            return f"the positions of {count} writing tasks have no room in the metadata of an offset"
        return None

    def written_in_step(self, task_id: TaskId) -> list[str]:
        """Return the topics to which a task writes that are read in step."""
        sub = next(sub for sub in self.subs if sub.id == task_id.sub_topology)
        return [topic for topic in self._written_by(sub) if topic in self.in_step()]

    def lane_numbers(self, topic: str) -> frozenset[int]:
        """Return the lanes in each partition of a topic that is read in step."""
        return frozenset(map(lane_of, self.writers(topic)))

    def partition_count(self, topic: str) -> int | None:
        """Return the partition count of a topic of the topology, or None if unknown."""
        return self.partitions.get(topic)

    def internal_topics(self) -> list[InternalTopicPlan]:
        """Return the repartition topics, lanes and changelog topics that must exist."""
        result = []
        for topic in dict.fromkeys((*self.topology.internal_topics, *self.lanes)):
            if topic in self.partitions:
                count = self.partitions[topic] * max(1, self.lane_count(topic))
                result.append(InternalTopicPlan(self.physical_topic(topic), count, REPARTITION_CONFIG))
        for sub in self.subs:
            if sub.is_global:
                continue
            tasks = sum(1 for task in self.groups if task.sub_topology == sub.id)
            for store in sub.stores:
                spec = self.topology.stores[store]
                if tasks and spec.has_changelog and store not in self.topology.source_changelogs:
                    result.append(InternalTopicPlan(self.changelog(store), tasks, changelog_config(spec)))
        return result

    # --- inputs -------------------------------------------------------------------------

    def is_own(self, item: TaskInput) -> bool:
        """Return whether only this application writes to an input, as to repartition topics and lanes of tasks."""
        return self.is_internal(item.topic) or self.producer_of(item.topic, item.partition) is not None

    def inputs(self, task_id: TaskId) -> list[TaskInput]:
        """Return the inputs of a task, in order of precedence: of equal head timestamps, the first input's is next."""
        sources = self._sources(task_id.sub_topology)
        only = self._restricted.get(task_id)
        result = []
        for logical in self.groups[task_id]:
            source = sources[logical.topic]
            seen_as = self._prefixed(logical.topic)
            groups = self.divisions.get(logical.topic)
            result += [
                TaskInput(partition, source, logical.topic, logical.partition, seen_as, groups)
                for partition in (self.stored_in(logical) if only is None else only.get(logical, ()))
            ]
        return result

    def restrict(self, task_id: TaskId, partitions: Iterable[TopicPartition]) -> None:
        """Restrict the inputs of a task to ``partitions``; the other inputs are lanes without records."""
        only = self._restricted[task_id] = {}
        for partition in sorted(partitions):
            only.setdefault(self.logical(partition), []).append(partition)

    def stored_in(self, logical: TopicPartition) -> list[TopicPartition]:
        """Return the broker partitions that store a partition of the topology; with lanes, one per producing task."""
        topic, number = logical
        name = self.physical_topic(topic)
        width = self.lane_count(topic)
        return [TopicPartition(name, number * width + lane) for lane in range(width)]

    def logical(self, partition: TopicPartition) -> TopicPartition:
        """Return the partition of the topology that a broker partition stores, completely or for one producing task."""
        topic = self._laned.get(partition.topic)
        return partition if topic is None else TopicPartition(topic, partition.partition // self.lane_count(topic))

    def lane_count(self, topic: str) -> int:
        """Return the number of broker partitions (lanes) that store one partition of a topic; 1 without lanes."""
        return len(self.lanes[topic]) + (topic in self.fed) if topic in self.lanes else 1

    def feed(self, logical: TopicPartition) -> TopicPartition:
        """Return the broker partition to which external records for a partition of the topology are written."""
        return self.stored_in(logical)[0] if logical.topic in self.fed else logical

    def partition_groups(self) -> dict[TaskId, tuple[TopicPartition, ...]]:
        """Return the broker partitions that each task reads."""
        if not self._read:
            self._read = {
                task_id: tuple(item.partition for item in self.inputs(task_id)) for task_id in sorted(self.groups)
            }
        return self._read

    def producer_of(self, topic: str, partition: TopicPartition) -> TaskId | None:
        """Return the only task that writes to a partition, or None if several tasks or external producers may."""
        producers = self.lanes.get(topic)
        if not producers:
            return None
        lane = partition.partition % self.lane_count(topic) - (topic in self.fed)
        return producers[lane] if lane >= 0 else None

    def physical(self, task_id: TaskId) -> Callable[[str, int], TopicPartition]:
        """Return the function that maps a partition of the topology to the broker partition to which a task writes.

        With lanes, the function raises ProcessingError for a topic that tasks read and for which this task has no sink,
        since the end of such an input would be unknown.
        """
        sub = task_id.sub_topology
        refused = {topic for topic in self._read_topics if self.has_lanes and sub not in self._writing(topic)}
        own: dict[str, int] = {}

        def place(topic: str, partition: int) -> TopicPartition:
            producers = self.lanes.get(topic)
            name = self.physical_topic(topic)
            if topic in refused:
                raise ProcessingError(
                    f"task {task_id}: a sink chose topic {topic!r} for a record, which the application reads itself; "
                    "a bounded run must know the writers of a topic in advance: use a separate sink for these records",
                    task_id=task_id,
                )
            if producers is None:
                return TopicPartition(name, partition)
            if topic not in own:
                own[topic] = producers.index(task_id) + (topic in self.fed)
            return TopicPartition(name, partition * self.lane_count(topic) + own[topic])

        return place

    def add_topic(self, topic: str, partitions: int, provide: Callable[[InternalTopicPlan], None]) -> None:
        """Add a topic that a sink or handler has chosen for a record; called before the record is written.

        ``provide`` creates the lanes of the topic if several tasks may write to it.
        """
        producers = self._lanes_of(topic) if self.has_lanes else None
        if producers is not None:
            provide(InternalTopicPlan(self._lanes_name(topic), partitions * len(producers), REPARTITION_CONFIG))
            self._lay(topic, producers)
        self.partitions[topic] = partitions

    def _sources(self, sub_id: int) -> dict[str, str]:
        sub = next(sub for sub in self.subs if sub.id == sub_id and not sub.is_global)
        result = {}
        for name in sub.nodes:
            node = self.topology.nodes[name]
            if isinstance(node, SourceNode):
                for topic in sub.source_topics:
                    if node.reads(topic):
                        result[topic] = name
        return result

    # --- opening ------------------------------------------------------------------------

    def stores_of(self, task_id: TaskId) -> list[StoreSpec]:
        """Return the specs of the stores of a task."""
        sub = next(sub for sub in self.subs if sub.id == task_id.sub_topology)
        return [self.topology.stores[name] for name in sub.stores]

    def _counts_with(self, chosen_counts: PartitionCounts) -> PartitionCounts:
        """Return a function that asks ``chosen_counts`` for the topics only that are missing in the plan."""

        def counts_of(topics: Sequence[str]) -> list[int]:
            counts = [self.partitions.get(topic) for topic in topics]
            missing = [topic for topic, count in zip(topics, counts, strict=True) if count is None]
            chosen = iter(chosen_counts(missing) if missing else ())
            return [next(chosen) if count is None else count for count in counts]

        return counts_of

    def open_task(
        self,
        task_id: TaskId,
        state: TaskState,
        metrics: Metrics,
        *,
        chosen_counts: PartitionCounts = one_each,
        cache: RecordCache | None = None,
        is_bounded: bool = False,
        timer_heap: TimerHeap | None = None,
        new_columns: NewColumns = TopicColumns,
    ) -> Task:
        """Return a new task with the opened stores in ``state``; the driver must set the task's positions.

        ``chosen_counts`` is asked for the partition counts of topics that records choose, and that the plan lacks.
        ``is_bounded`` means that the inputs end, so the task waits whenever an input is empty but has not ended.
        """
        config = self.config
        inputs = self.inputs(task_id)
        queues = TaskQueues(
            [item.partition for item in inputs],
            max_idle_ms=None if is_bounded else config.max_task_idle_ms,
            max_buffered=config.buffered_records_per_partition,
            max_ahead_ms=config.max_partition_ahead_ms if config.max_partition_ahead_ms >= 0 else None,
            lanes={
                item.partition: PartitionLanes(self.lane_numbers(item.topic))
                for item in inputs
                if item.topic in self.in_step()
            },
        )
        outbox = Outbox(
            task_id.partition,
            self._counts_with(chosen_counts),
            self.physical(task_id),
            self.is_internal,
            new_columns,
            partial(self.lane_in, lane_of(task_id)) if self.has_lanes or self.in_step() else None,
        )
        program = self._program(task_id.sub_topology, has_cache=cache is not None)
        handlers = Handlers(self.handlers, metrics, outbox)
        task = Task(
            TaskParts(
                task_id,
                config.application_id,
                self.topology,
                program,
                inputs,
                {item.partition: self._reader(task_id, item, handlers, program=program) for item in inputs},
                queues,
                state,
                outbox,
                metrics,
                handlers,
                self.clock.now_ms(),
                regroups=self.regroups(task_id.sub_topology),
                timer_heap=timer_heap or TimerHeap(),
                cache=cache,
                watch=self.watch,
                idle_limits=self.idle_limits() if state.is_timed else None,
            )
        )
        if self.may_use_columns and config.columns != "off" and config.processor_wrapper == "none":
            if self._paths is None:
                self._paths = column_paths(self.topology)[0] if may_trace() else {}
            open_columns(task, self._paths, is_checked=config.columns == "check")
        for item in inputs if is_bounded else ():
            if not self.is_internal(item.topic):
                queue = queues[item.partition]
                counter = metrics.counter(table.DISORDER, task=task_id, topic=item.name, partition=item.number)
                queue.disorder = Disorder(counter, queue.partition_time_ms)
        return task

    def idle_limits(self) -> IdleLimits | None:
        """Return the idle limits of the sources, or None if stream time is advanced by records only."""
        config = self.config
        delays = config.is_exactly_once or config.cache_max_bytes
        return IdleLimits.of(self.topology, config.idle_close_ms, config.commit_interval_ms if delays else 0)

    def open_global(self, store: str, state: TaskState, metrics: Metrics) -> Task:
        """Return the task that fills a global store from all partitions of its topic."""
        spec = self.topology.global_stores[store]
        graph = Topology()
        graph.add_node(spec.source)
        graph.add_node(spec.processor)
        graph.add_state_store(spec.spec, spec.processor.name)
        sub = SubTopology(-1, (spec.source.name, spec.processor.name), spec.source.topics, (), (store,), is_global=True)
        task = Task(
            TaskParts(
                TaskId(-1, 0),
                self.config.application_id,
                graph,
                CompiledSubTopology(
                    graph,
                    sub,
                    isolate_errors=(
                        self.config.processing_exception_handler_global_enabled
                        and self.handlers.may_skip("processing_handler")
                    ),
                    wrapper=self._wrapper,
                ),
                [],
                {},
                TaskQueues([], max_idle_ms=-1),
                state,
                Outbox(0, one_each, TopicPartition, lambda _: False),
                metrics,
                # Without an outbox: as in Kafka Streams, global stores have no dead letters.
                Handlers(self.handlers, metrics),
                self.clock.now_ms(),
            )
        )
        for topic in spec.source.topics:
            for number in range(self.partitions.get(topic, 1)):
                self._attach(task, spec.source, topic, TopicPartition(topic, number))
        return task

    def add_tasks(self, source: str, count: int) -> list[TaskId]:
        """Return the tasks that read a topic with ``count`` partitions through a source; missing tasks are added."""
        sub = next(sub for sub in self.subs if source in sub.nodes)
        task_ids = [TaskId(sub.id, number) for number in range(count)]
        for task_id in task_ids:
            self.groups.setdefault(task_id, ())
        return task_ids

    def add_input(self, task: Task, node: SourceNode, topic: str) -> None:
        """Add to a task's inputs a partition of a topic that a pattern source has newly matched."""
        self._attach(task, node, topic, TopicPartition(topic, task.task_id.partition))

    def _attach(self, task: Task, node: SourceNode, topic: str, partition: TopicPartition) -> None:
        item = TaskInput(partition, node.name, topic, partition.partition, topic)
        task.attach(item, self._reader(task.task_id, item, task.handlers, node))

    @property
    def _wrapper(self) -> ProcessorWrapper | None:
        wrapper: Any = self.config.processor_wrapper
        return None if wrapper == "none" else wrapper

    def _program(self, sub_id: int, *, has_cache: bool) -> CompiledSubTopology:
        compiled = self._compiled.get((sub_id, has_cache))
        if compiled is None:
            sub = next(sub for sub in self.subs if sub.id == sub_id and not sub.is_global)
            compiled = self._compiled[sub_id, has_cache] = CompiledSubTopology(
                self.topology,
                sub,
                isolate_errors=self.handlers.may_skip("processing_handler"),
                guard_sinks=self.handlers.may_skip("production_handler"),
                has_cache=has_cache,
                wrapper=self._wrapper,
            )
        return compiled

    def _reader(
        self,
        task_id: TaskId,
        item: TaskInput,
        handlers: Handlers,
        source: SourceNode | None = None,
        program: CompiledSubTopology | None = None,
    ) -> SourceReader:
        node = source or self.topology.nodes[item.source]
        assert isinstance(node, SourceNode)
        # Values of a repartition topic can always be deserialized; values that no node reads remain bytes.
        is_ignored = program is not None and self.is_internal(item.topic) and program.ignores_values(node.name)
        return SourceReader(
            task_id,
            item.partition,
            node.name,
            node.key_serde,
            BYTES if is_ignored else node.value_serde,
            self.extractor(node, item.topic),
            handlers,
            TopicPartition(item.name, item.number),
            lanes_base=self.lane_in(0, item.topic),
        )

    def extractor(self, node: SourceNode, topic: str) -> EventTime:
        """Return the timestamp extractor of a source; internal topics use the record timestamp."""
        policy: Any = node.extractor
        if policy is None:
            policy = "fail_on_invalid" if self.is_internal(topic) else self.config.default_timestamp_extractor
        return extractor_for(topic, policy=policy, clock=self.clock)
