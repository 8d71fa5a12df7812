"""The test driver: it runs the production tasks on a virtual clock, without a broker, threads or consumer groups.

A piped record is processed immediately, together with all records that result from it, one at a time and with a
commit after each record, as in the test driver of Kafka Streams. If every topic has one partition, the whole
topology runs as one task, also as in Kafka Streams; otherwise there is one task per partition group.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, TypeVar, Unpack, overload

from streams.core.arguments import NOT_GIVEN, InputRow, checked_count, checked_headers, checked_row, checked_time
from streams.core.blocks.partitioning import partition_for
from streams.core.blocks.records import NO_TIMESTAMP, Block, Headers, Record, TaskId, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.closeable import Closeable
from streams.core.concurrency.calls import BlockingLoop, CallLoop, SteppedLoop
from streams.core.errors import (
    ConfigError,
    ProcessingError,
    SerializationError,
    StreamsError,
    UnknownTopicError,
)
from streams.core.metrics import Dropped, MetricPlace, Reading
from streams.core.nearest import meant
from streams.core.settings.config import StreamsConfig
from streams.core.settings.settings import Settings
from streams.core.topic import Source, Topic, TopicLike, check_topic_name, topic_name, typed_topic
from streams.dsl import TopologySource, build_topology
from streams.runtime import (
    ApplicationPlan,
    AsTheyCome,
    Existing,
    Rounds,
    Stage,
    Task,
    TaskState,
    TaskWatch,
    TopicColumns,
    metrics_of,
    of_task,
)
from streams.state import RecordCache, open_store, queried
from streams.testing.outputs import ReadRecords
from streams.testing.reference_order import TIMERS, ReferenceOrder, TopicOrder
from streams.topology import Topology, reader_of, sub_topologies
from streams.why import Question, Recorder, Story, Trace, answer, targets_of

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

#: Records and advances of the clock up to which a failing comparison asks why, which repeats them.
_WHY_STEPS = 1_000

Row = tuple[bytes | None, bytes | None, int, Headers]


class TopologyTestDriver(Closeable):
    """Runs a topology record by record in memory.

    ``topology`` is a function that takes the builder, or a built ``Topology``. ``partitions`` is the partition count of
    topics without ``Topic(partitions=...)`` (default 1). ``now_ms`` is the initial time of the virtual clock in epoch
    milliseconds (default 0). ``watch`` observes the tasks, starting when they are opened. With ``awaits_calls``
    (default), a record is processed when all its calls of async functions have ended, and their sleeps take no time;
    without it, ``advance_wall_clock`` lets the time of their sleeps pass. The settings are those of ``StreamsConfig``.

    >>> from streams import StreamsBuilder, Topic
    >>> names, greetings = Topic("names", value=str), Topic("greetings", value=str)
    >>> def topology(builder: StreamsBuilder) -> None:
    ...     builder.stream(names).map_values(lambda name: f"hello {name}").to(greetings)
    >>> driver = TopologyTestDriver(topology)
    >>> driver.pipe(names, "ann", timestamp_ms=0)
    >>> driver.read(greetings)
    [(None, 'hello ann')]
    """

    def __init__(
        self,
        topology: TopologySource,
        *,
        partitions: int = 1,
        now_ms: int = 0,
        application_id: str = "app",
        watch: TaskWatch | None = None,
        awaits_calls: bool = True,
        **settings: Unpack[Settings],
    ) -> None:
        self.config = StreamsConfig.of(application_id=application_id, **settings)
        self.clock = VirtualClock(now_ms)
        self.metrics = metrics_of(self.config, self.clock)
        self.metrics.watch(self._readings)
        self.topology: Topology = build_topology(topology, self.config)
        self._default_partitions = checked_count(partitions, "partitions", ConfigError)
        self._started_ms = now_ms
        self._calls: CallLoop = BlockingLoop(is_virtual=True) if awaits_calls else SteppedLoop(self.clock)
        self._settings = settings
        #: The piped records, and the milliseconds by which the clock was advanced, in order.
        self._history: list[tuple[TopicPartition, Row] | int] = []
        #: All records written to each partition; partitions have their names on a broker.
        self._logs: dict[TopicPartition, list[Row]] = {}
        self._read: dict[TopicPartition, int] = {}
        self._counts = self._partition_counts()
        self._is_single = all(count == 1 for count in self._counts.values())
        self._reader: dict[TopicPartition, Task] = {}
        self._start(watch)

    # --- input ------------------------------------------------------------------------

    def pipe(
        self,
        topic: Topic[K, V],
        value: V | None,
        *,
        key: K | None = NOT_GIVEN,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Send one record, and process it and all resulting records.

        ``key`` defaults to that of ``Topic(key_from=...)``, which ``key=None`` suppresses, or else to None.
        ``timestamp_ms`` defaults to the time of the virtual clock, and ``partition`` to the partition that the
        default partitioner chooses (0 for records without a key).

        Raises:
            UnknownTopicError: the topology does not read the topic.
            TopologyError: ``topic`` is a name; use ``pipe_bytes`` instead.
            SerializationError: ``key_from`` failed, the key or value does not fit the topic's types, the headers are no
                pairs of text and bytes, or ``timestamp_ms`` is no int.
            ProcessingError: user code failed.
        """
        topic = typed_topic(topic, "pipe()")
        raw_key = topic.key_serde.serialize(topic.key_of(value, key))
        raw_value = topic.value_serde.serialize(value)
        self.pipe_bytes(topic.name, raw_key, raw_value, timestamp_ms, headers, partition)

    def pipe_all(self, topic: Topic[K, V], rows: Iterable[InputRow[K | None, V | None]]) -> None:
        """Send records one by one, given as (key, value, timestamp_ms), (key, value) or (value,).

        What is left out has the defaults of ``pipe``, which raises the same errors.
        """
        for row in rows:
            key, value, timestamp_ms = checked_row(row, "pipe_all()", SerializationError)
            self.pipe(topic, value, key=key, timestamp_ms=timestamp_ms)

    def pipe_bytes(
        self,
        topic: TopicLike,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Send one record, given as serialized bytes, as ``pipe`` does; it raises the same errors.

        A time of -1 is that of a record without timestamp, which producers of other libraries may write.
        """
        topic = topic_name(topic, "pipe_bytes()")
        if not self._reads(topic):
            topics = {partition.topic for partition in self._reader} | set(self._global_topics())
            raise UnknownTopicError(f"the topology does not read topic {topic!r}; {meant(topic, topics)}")
        count = self._counts.get(topic, 1)
        if partition is None:
            partition = 0 if key is None else partition_for(key, count)
        if type(partition) is not int or not 0 <= partition < count:
            raise UnknownTopicError(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition!r}")
        if timestamp_ms is None:
            timestamp_ms = self.clock.now_ms()
        if timestamp_ms != NO_TIMESTAMP:
            timestamp_ms = checked_time(timestamp_ms, f"topic {topic!r}: timestamp_ms", SerializationError)
        checked = checked_headers(headers, f"topic {topic!r}: headers", SerializationError)
        self._feed(TopicPartition(topic, partition), (key, value, timestamp_ms, checked))

    def _feed(self, partition: TopicPartition, row: Row) -> None:
        self._history.append((partition, row))
        self._append(partition, row)
        self._settle()

    def advance_wall_clock(self, by_ms: int) -> None:
        """Advance the virtual clock; fire due punctuations, and process records that the idle time has delayed.

        On the way, operators whose inputs are idle are advanced (``idle_close``), in steps as in a live run, but in at
        most a thousand.

        Raises:
            StreamsError: ``by_ms`` is no int, or negative: the clock never goes back.
        """
        checked_count(by_ms, "advance_wall_clock(): by_ms, in milliseconds,", StreamsError, minimum=0)
        self._history.append(by_ms)
        end_ms = self.clock.now_ms() + by_ms
        while (due_ms := self._next_idle_ms()) is not None and due_ms <= end_ms:
            self.clock.advance_to(min(end_ms, due_ms + by_ms // 1000))
            self._close_idle()
        self.clock.advance_to(end_ms)
        self._close_idle()
        for task in self._tasks:
            task.punctuate(self.clock.now_ms())
            self._commit(task)
        self._settle()

    # --- output -----------------------------------------------------------------------

    @overload
    def read(self, topic: Source[K, V], *, tombstones: Literal[True] = True) -> list[tuple[K, V | None]]: ...
    @overload
    def read(self, topic: Source[K, V], *, tombstones: Literal[False]) -> list[tuple[K, V]]: ...
    def read(self, topic: Any, *, tombstones: bool = True) -> list[tuple[Any, Any]]:
        """Return the records written to a topic since it was last read, as (key, value) pairs, by partition.

        The value of a tombstone is None; ``tombstones=False`` omits tombstones.

        Raises:
            UnknownTopicError: the topology neither writes nor reads the topic.
            TopologyError: ``topic`` is a name; use ``read_bytes`` instead.
        """
        records = self.read_records(topic)
        pairs = ((record.key, record.value) for record in records if tombstones or record.value is not None)
        return self._outputs(topic, pairs)

    def read_records(self, topic: Topic[K, V]) -> list[Record[K, V | None]]:
        """Return the records written to a topic since the last read, by partition; the errors are those of ``read``."""
        topic = typed_topic(topic, "read()")
        records: list[Record[K, V | None]] = [
            Record(topic.key_serde.deserialize(key), topic.value_serde.deserialize(value), time, headers)  # type: ignore[arg-type]
            for _, (key, value, time, headers) in self._unread(topic.name)
        ]
        return self._outputs(topic, records)

    def read_bytes(self, topic: TopicLike) -> list[Record[bytes | None, bytes | None]]:
        """Return the records written to a topic since it was last read, as bytes; the errors are those of ``read``."""
        return [Record(*row) for _, row in self._unread(topic_name(topic, "read_bytes()"))]

    def read_partitions(self, topic: Topic[K, V]) -> dict[int, list[tuple[K, V | None]]]:
        """Return the (key, value) pairs of each partition since the last read; the errors are those of ``read``."""
        topic = typed_topic(topic, "read_partitions()")
        result: dict[int, list[tuple[K, V | None]]] = {}
        for partition, (key, value, _, _) in self._unread(topic.name):
            pair = (topic.key_serde.deserialize(key), topic.value_serde.deserialize(value))
            result.setdefault(partition, []).append(pair)  # type: ignore[arg-type]
        return result

    def topics(self) -> list[str]:
        """Return the names of all topics with records, including internal ones."""
        return sorted({partition.topic for partition in self._logs})

    def store(self, name: str, partition: int | None = None) -> Any:
        """Return a view of a store; ``partition`` is required if the store has several partitions.

        Raises:
            StreamsError: the store or the partition does not exist, or there are several and none is given.
        """
        if name in self._globals:
            return queried(self._globals[name].stores[name])
        stores = {task.task_id.partition: task.stores[name] for task in self._tasks if name in task.stores}
        if not stores:
            names = ", ".join(sorted([*self.topology.stores, *self._globals])) or "none"
            raise StreamsError(f"there is no store {name!r}; the topology has: {names}")
        if partition is None and len(stores) > 1:
            raise StreamsError(f"store {name!r} has {len(stores)} partitions; name one: store({name!r}, partition=0)")
        if (partition or 0) not in stores:
            raise StreamsError(f"store {name!r} has the partitions {sorted(stores)}, not {partition!r}")
        return queried(stores[partition or 0])

    def metric(self, name: str, node: str | None = None) -> int:
        """Return a total such as ``dropped-records``: the sum over all tasks and all nodes, or over one ``node``."""
        place = {} if node is None else {"node": node}
        return int(self.metrics.get(name, **place))

    def drops(self) -> list[Dropped]:
        """Return the dropped records by node and reason, each with the count and a description of the first record."""
        return self.metrics.drops()

    def why(
        self,
        key: Any,
        topic: TopicLike | None = None,
        *,
        node: str | None = None,
        at: str | datetime | int | None = None,
        limit: int = 3,
    ) -> Story:
        """Return why there is, or is not, an output record for a key.

        All records sent to this driver so far are sent to a second one, whose tasks are traced; user code runs again,
        and this driver does not change. ``topic`` is the output topic (default: all); ``node`` selects a node instead.
        ``at`` is the event time of the output, or a time in its window (default: the last output): epoch milliseconds,
        a datetime, or ISO 8601 text, which selects all times with this prefix. At most ``limit`` records are listed in
        each place.

        >>> from streams import StreamsBuilder, Topic
        >>> orders, large = Topic("orders", key=str, value=int), Topic("large", key=str, value=int)
        >>> def topology(builder: StreamsBuilder) -> None:
        ...     builder.stream(orders).filter(lambda key, amount: amount > 100, name="large-only").to(large)
        >>> driver = TopologyTestDriver(topology)
        >>> driver.pipe(orders, 20, key="ann", timestamp_ms=0)
        >>> driver.why("ann", large).reasons
        ('filtered',)

        Raises:
            UnknownTopicError: the topology does not write to the topic, or has no such node.
            InputError: ``at`` is not a time.
        """
        question = Question.of(key, topic, node, at, limit)
        targets_of(question, self.topology)
        recorder = Recorder(Trace(question.follows, question.mentions))
        again = TopologyTestDriver(
            self.topology,
            partitions=self._default_partitions,
            now_ms=self._started_ms,
            application_id=self.config.application_id,
            watch=recorder,
            awaits_calls=isinstance(self._calls, BlockingLoop),
            **self._settings,
        )
        with again:
            again._repeat(self._history)
            return answer(question, recorder.trace, self.topology, {task.task_id: task for task in again._tasks})

    def _outputs(self, topic: Topic[Any, Any], records: Iterable[R]) -> ReadRecords[R]:
        """Return records as a list that can explain why a key has no record."""

        def why(key: Any) -> str | None:
            if len(self._history) > _WHY_STEPS:
                return None
            try:
                # The title says what the comparison has said.
                return self.why(key, topic, limit=1).text.partition("\n")[2]
            except Exception as error:  # noqa: BLE001 - user code runs again; the comparison is to be shown anyway.
                return f"why({key!r}): {error}"

        return ReadRecords(topic.name, records, why)

    def _repeat(self, history: Iterable[tuple[TopicPartition, Row] | int]) -> None:
        """Repeat the actions of another driver: its records, and its clock advances (numbers of milliseconds).

        A record that failed there also fails here.
        """
        for step in history:
            with suppress(ProcessingError):
                if isinstance(step, int):
                    self.advance_wall_clock(step)
                elif self._reads(step[0].topic):
                    self._feed(*step)

    def __repr__(self) -> str:
        return f"<TopologyTestDriver of {self.topology!r}>"

    def close(self) -> None:
        """Close all processors and stores."""
        for task in [*self._tasks, *self._globals.values()]:
            task.close()
        self._calls.close()
        self._tasks.clear()
        self._globals.clear()

    # --- internals ------------------------------------------------------------------------

    def _partition_counts(self) -> dict[str, int]:
        counts = {}
        names: set[str] = set()
        for sub in sub_topologies(self.topology):
            names.update(sub.source_topics, sub.sink_topics)
        for name in sorted(names - set(self.topology.internal_topics)):
            declared = self.topology.topics.get(name)
            counts[name] = declared.partitions if declared and declared.partitions else self._default_partitions
        return counts

    def _start(self, watch: TaskWatch | None) -> None:
        """Plan the tasks of the topics that are known, and open them."""
        self._plan = ApplicationPlan.make(
            self.topology,
            self.config,
            self.clock,
            self._counts,
            is_single_task=self._is_single,
            existing=Existing(later=self._default_partitions),
        )
        self._plan.watch = watch
        self._counts.update(self._plan.partitions)
        self._cache = RecordCache(self.config.cache_max_bytes) if self.config.cache_max_bytes else None
        self._globals = {
            name: self._plan.open_global(
                name, TaskState({name: open_store(store.spec, None, default_engine="in_memory")}), self.metrics
            )
            for name, store in self.topology.global_stores.items()
        }
        self._topic_order = TopicOrder(self._plan.physical_topic)
        self._tasks = [self._open(task_id) for task_id in sorted(self._plan.groups)]
        policy = ReferenceOrder() if self._is_single else AsTheyCome(limit=1)
        self._stage = Stage(self._tasks, policy, Rounds(self.config.max_cycle_rounds))
        self._settle()

    def _open(self, task_id: TaskId) -> Task:
        stores = {
            spec.name: open_store(spec, None, default_engine="in_memory") for spec in self._plan.stores_of(task_id)
        }
        task = self._plan.open_task(
            task_id,
            TaskState(
                stores, {name: owner.stores[name] for name, owner in self._globals.items()}, call_loop=self._calls
            ),
            self.metrics,
            chosen_counts=lambda topics: [self._counts.setdefault(topic, self._default_partitions) for topic in topics],
            cache=self._cache,
            timer_heap=TIMERS if self._is_single else None,
            new_columns=self._topic_order.columns if self._is_single else TopicColumns,
        )
        for partition in task.inputs:
            task.note_end(partition, 0, is_ended=True)
            self._reader[partition] = task
        return task

    def _readings(self, now_ms: int) -> Iterator[Reading]:
        for task in self._tasks:
            yield from of_task(task, MetricPlace(task=task.task_id), now_ms)

    def _global_topics(self) -> Mapping[str, Task]:
        return {
            topic: self._globals[name]
            for name, store in self.topology.global_stores.items()
            for topic in store.source.topics
        }

    def _reads(self, topic: str) -> bool:
        if topic in self._global_topics() or any(partition.topic == topic for partition in self._reader):
            return True
        return self._match_pattern(topic)

    def _match_pattern(self, topic: str) -> bool:
        """Add a topic to the tasks of the source whose pattern it matches; return whether there is such a source."""
        source = reader_of(topic, self.topology.sources())
        if source is None or source.pattern is None:
            return False
        opened = {task.task_id: task for task in self._tasks}
        for task_id in self._plan.add_tasks(source.name, self._counts.setdefault(topic, self._default_partitions)):
            if task_id not in opened:
                opened[task_id] = self._open(task_id)
                self._tasks.append(opened[task_id])
                self._stage.take_in(opened[task_id])
            partition = TopicPartition(topic, task_id.partition)
            self._plan.add_input(opened[task_id], source, topic)
            opened[task_id].note_end(partition, 0, is_ended=True)
            self._reader[partition] = opened[task_id]
        return True

    def _append(self, partition: TopicPartition, row: Row) -> None:
        """Append a record to a topic, and add it to the task that reads it."""
        log = self._logs.get(partition)
        if log is None:
            # A function of ``to`` chooses any name, which a broker would refuse.
            log = self._logs[TopicPartition(check_topic_name(partition.topic), partition.partition)] = []
        log.append(row)
        key, value, time, headers = row
        offset = len(log) - 1
        block = Block([key], [value], [time], [headers] if headers else None, range(offset, offset + 1))
        global_task = self._global_topics().get(partition.topic)
        if global_task is not None:
            global_task.add(partition, block)
            while global_task.process(self.clock.now_ms(), 1):
                pass
            global_task.write_state({})
        task = self._reader.get(partition)
        if task is not None:
            # The end offset is final for now: further records result only from processing this one.
            task.note_end(partition, offset + 1, is_ended=True)
            self._stage.add(task, partition, block)

    def _settle(self) -> None:
        """Process and commit one record at a time until no task can process more.

        Raises:
            TopologyError: records circulate endlessly in a cycle of topics.
        """
        try:
            while (task := self._stage.step(self.clock.now_ms())) is not None:
                self._commit(task)
        except ProcessingError:
            for task in self._tasks:
                if task.handlers.has_last_words:
                    task.handlers.has_last_words = False
                    self._send(task)
            raise
        for task in self._tasks:
            self._commit(task)
            self._close_if_idle(task)

    def _close_if_idle(self, task: Task) -> None:
        """Advance the idle operators of a task, and process what they forward."""
        if task.close_idle(self.clock.now_ms()):
            self._commit(task)
            self._settle()

    def _next_idle_ms(self) -> int | None:
        times = [task.idle.next_due_ms() for task in self._tasks if task.idle is not None]
        return min((due_ms for due_ms in times if due_ms is not None), default=None)

    def _close_idle(self) -> None:
        for task in self._tasks:
            if task.idle is not None:
                task.idle.forget_steps()
                self._close_if_idle(task)

    def _send(self, task: Task) -> None:
        outputs = task.take_outputs()
        for partition, block in self._topic_order.arranged(outputs) if self._is_single else outputs:
            for _, key, value, time, headers in block.rows():
                self._append(partition, (key, value, time, headers))

    def _commit(self, task: Task) -> None:
        task.finish_calls()
        task.prepare_commit()
        self._send(task)
        for store, block in task.take_changes():
            if store not in self.topology.source_changelogs:
                log = self._logs.setdefault(TopicPartition(self._plan.changelog(store), task.task_id.partition), [])
                log += [(key, value, time, headers) for _, key, value, time, headers in block.rows()]
        task.write_state({})

    def _check_known(self, topic: str) -> None:
        """Check that the topology reads a topic, or may have written to it.

        Raises:
            UnknownTopicError: the topology neither writes nor reads the topic.
        """
        topics = {partition.topic for partition in self._logs} | set(self._global_topics())
        topics |= {self._plan.physical_topic(name) for name in self._counts}
        topics |= {self._plan.changelog(store) for store in self.topology.stores}
        topics |= {self.config.errors_dead_letter_queue_topic_name} - {""}
        if topic in topics or reader_of(topic, self.topology.sources()) is not None:
            return
        handlers = (
            self.config.deserialization_handler,
            self.config.processing_handler,
            self.config.production_handler,
        )
        if any(sink.topic_for is not None for sink in self.topology.sinks()) or any(map(callable, handlers)):
            return  # The topic is chosen per record.
        raise UnknownTopicError(f"the topology neither writes nor reads topic {topic!r}; {meant(topic, topics)}")

    def _unread(self, topic: str) -> Iterator[tuple[int, Row]]:
        self._check_known(topic)
        for partition in sorted(partition for partition in self._logs if partition.topic == topic):
            log = self._logs[partition]
            start = self._read.get(partition, 0)
            self._read[partition] = len(log)
            for row in log[start:]:
                yield partition.partition, row
