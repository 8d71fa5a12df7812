"""Bounded runs: a topology over finite inputs, on an embedded broker that belongs to the run.

A bounded run uses the same instance as a live run.  A feeder appends the inputs to their topics; the run ends when
every task has processed all its inputs.  This module imports the lower layers, and none of them imports it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from attrs import define, evolve, field, frozen

from streams.broker import EmbeddedBroker
from streams.clients import Admin, Consumer
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import SystemClock
from streams.core.closeable import Closeable
from streams.core.errors import TopologyError, TransactionError
from streams.core.metrics import Dropped, Metrics, dropped_by_node
from streams.core.settings.config import StreamsConfig
from streams.core.settings.settings import Settings
from streams.dsl import TopologySource, build_topology
from streams.runtime import BoundedProgress, Environment, Instance, LaneFilling, Task, home_of
from streams.topology import Topology, sub_topologies

#: A function that reads the rows of a file as blocks by partition: (partition count, rows to skip) -> batches.
RowReader = Callable[[int, int], Iterator[list[tuple[int, Block]]]]
#: A function from the end offset of each partition of a topic to the offset of the first input row in each partition.
Begins = Callable[[Sequence[int]], Sequence[int]]

#: Rows of a file, and the offsets of its first row.
Rows = tuple[RowReader, Begins]
#: The rows of an input: of one file, or of several, each of which is opened when the earlier ones are in the topic.
Input = RowReader | Iterable[Rows]

#: Interval in milliseconds between two checks of progress.
_LOOK_MS = 50
#: Maximum number of records fed ahead of the tasks while the tasks make progress.
_READ_AHEAD = 200_000


@frozen
class Progress:
    """The progress of a bounded run; ``records_total`` is None until every input is read.

    ``records_out`` are those for topics of others, without those for repartition topics.
    """

    records_in: int
    records_total: int | None
    records_out: int
    stream_time_ms: int


@define(eq=False)
class BoundedRun(Closeable):
    """A finished bounded run; its outputs can be read until it is closed.

    Each task writes to lanes (topic partitions of its own).  The records of a topic that several tasks write are the
    merge of these lanes, whose order does not depend on timing (``runtime.tasks.lanes``).
    """

    broker: EmbeddedBroker
    metrics: Metrics
    topology: Topology = field(repr=False)
    #: The number of records that this run has read from its inputs.
    records_in: int = 0

    def read_output(self, topic: str) -> Iterator[tuple[int, Block]]:
        """Yield the records of a topic as (partition, block of records), by partition and offset.

        Offsets have no gaps: transaction markers are not counted.
        """
        for number in range(self.broker.topics().get(topic, 0)):
            partition = TopicPartition(topic, number)
            position = self.broker.start_offset(partition)
            end = self.broker.end_offset(partition)
            offset = position
            while position < end:
                blocks = self.broker.read(partition, position, committed_only=True)
                if not blocks:
                    break
                for block in blocks:
                    yield number, evolve(block, offsets=range(offset, offset + len(block)))
                    offset += len(block)
                    position = block.offsets[-1] + 1

    @property
    def dropped(self) -> dict[str, int]:
        """The number of dropped records, by node."""
        return dropped_by_node(self.drops())

    def drops(self) -> list[Dropped]:
        """Return the dropped records by node and reason, each with the count and a description of the first record."""
        return self.metrics.drops()

    def close(self) -> None:
        """Close the broker of the run, and delete it if it is temporary."""
        self.broker.close()


def run_bounded(
    topology: TopologySource,
    inputs: Mapping[str, Input],
    *,
    application_id: str,
    partitions: int | None = None,
    state_dir: Path | None = None,
    final_flush: bool = False,
    settings: Settings | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> BoundedRun:
    """Run a topology over finite inputs until all are processed.

    Results, including the order of every topic, do not depend on the speed of the tasks, the poll size or
    the number of threads.  A topic that the application both writes and reads may also have an input.
    Inputs of global tables are read completely before the first record of another input is processed.
    ``state_dir`` keeps the topics and state, so that a further run continues from there and appends to
    the topics.  An input is a reader whose rows begin at the start of the topic, or an iterable of readers with the
    offsets of their first rows, for topics that have earlier records.  A reader with a true attribute
    ``names_partitions`` has rows that name their partitions, so that their keys need not be in those of their hash.

    Raises:
        StreamsError: an input cannot be read, user code failed, or the state directory is in use.
    """
    config = StreamsConfig.of(application_id=application_id, **(settings or {}))
    if state_dir is None and config.state_dir:
        state_dir = Path(config.state_dir)
    built = build_topology(topology, config)
    broker = EmbeddedBroker(
        None if state_dir is None else state_dir / "broker",
        default_partitions=partitions or 1,
        maintenance_interval_ms=None,
        is_private=True,
        fsync=config.fsync,
    )
    placed_by_rows: set[str] = set()
    try:
        _create_topics(broker, built, inputs, partitions)
        instance = Instance(
            built,
            config,
            Environment(
                broker,
                SystemClock(),
                home_of(None if state_dir is None else state_dir / "state", config),
                creates_topics=True,
                placed_by_rows=placed_by_rows,
            ),
            bounds=partial(BoundedProgress, end_offset=broker.end_offset, final_flush=final_flush),
        )
        records_in = 0
        globals_first = {topic for store in built.global_stores.values() for topic in store.source.topics}
        for topic in sorted(globals_first & set(inputs)):
            rows = _new_rows(broker, topic, inputs[topic], lambda partition: partition, placed_by_rows)
            for batch in rows:
                for partition, block in batch:
                    broker.append(partition, block)
                    records_in += len(block)
        instance.start()
        with Admin(broker) as admin:
            try:
                assert instance.bounded is not None
                filling = LaneFilling(instance.bounded.plan, broker, admin)
                filling.take_up()
                others = {topic: reader for topic, reader in inputs.items() if topic not in globals_first}
                records_in += _Feeder(broker, instance, instance.bounded, others, progress, placed_by_rows).run()
            finally:
                instance.close()
            if instance.failure is not None:
                raise instance.failure
            if state_dir is not None:
                _await_transactions(broker, config.producer.transaction_timeout_ms)
            filling.fill()
        return BoundedRun(broker, instance.metrics, built, records_in)
    except BaseException:
        broker.close()
        raise


def _await_transactions(broker: EmbeddedBroker, timeout_ms: int) -> None:
    """Wait until no transaction is open; those of a killed run end only at their timeout.

    This run has already ended its own transactions, including those of threads that it has replaced.

    Raises:
        TransactionError: a transaction is still open after its timeout.
    """
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + timeout_ms + _LOOK_MS
    partitions = [TopicPartition(topic, number) for topic, count in broker.topics().items() for number in range(count)]
    never = threading.Event()
    with Consumer(broker, client_id="stable-ends", isolation_level="read_committed") as consumer:
        while partitions:
            stable = consumer.end_offsets(partitions)
            partitions = [partition for partition in partitions if stable[partition] < broker.end_offset(partition)]
            if partitions and clock.monotonic_ms() > deadline_ms:
                raise TransactionError(
                    f"a killed run has left a transaction open in {partitions[0]}; run again after its timeout"
                )
            if partitions:
                never.wait(_LOOK_MS / 1000)


def _create_topics(broker: EmbeddedBroker, topology: Topology, inputs: Iterable[str], partitions: int | None) -> None:
    """Create the source and sink topics of a topology.

    Raises:
        TopologyError: a topic of an earlier run has a different partition count.
    """
    existing = broker.topics()
    named = (topic for sub in sub_topologies(topology) for topic in (*sub.source_topics, *sub.sink_topics))
    for name in dict.fromkeys((*named, *inputs)):
        if name in topology.internal_topics:
            continue
        declared = topology.topics.get(name)
        count = declared.partitions if declared is not None and declared.partitions else partitions
        if name not in existing:
            broker.create_topic(name, count or 1)
        elif count is not None and existing[name] != count:
            raise TopologyError(
                f"topic {name!r} has {existing[name]} partitions in the state directory, not {count}; "
                "give the same --partitions as before, or another --state-dir"
            )


def _new_rows(
    broker: EmbeddedBroker,
    topic: str,
    source: Input,
    place: Callable[[TopicPartition], TopicPartition],
    placed_by_rows: set[str],
) -> Iterator[list[tuple[TopicPartition, Block]]]:
    """Yield the rows of an input that are not yet in its topic, as blocks by partition, which ``place`` maps.

    After a crash some partitions may have more rows of a batch than others, so rows are skipped for each
    partition separately; the partition of a row and the order within the partition never change.  A topic whose rows
    name their partitions is added to ``placed_by_rows`` before these rows are yielded.
    """
    count = broker.topics()[topic]
    places = [place(TopicPartition(topic, number)) for number in range(count)]
    for reader, begins in [(source, _from_start)] if callable(source) else source:
        ends = [broker.end_offset(partition) for partition in places]
        have = [end - first for end, first in zip(ends, begins(ends), strict=True)]
        for batch in reader(count, 0):
            new = []
            for number, block in batch:
                skip = min(have[number], len(block))
                have[number] -= skip
                if skip < len(block):
                    new.append((places[number], block.slice(skip) if skip else block))
            if getattr(reader, "names_partitions", False):
                placed_by_rows.add(topic)
            yield new


def _from_start(ends: Sequence[int]) -> Sequence[int]:
    return [0] * len(ends)


class _Feeder:
    """Appends the inputs of a bounded run to their topics, and waits for the tasks."""

    def __init__(
        self,
        broker: EmbeddedBroker,
        instance: Instance,
        bounded: BoundedProgress,
        inputs: Mapping[str, Input],
        progress: Callable[[Progress], None] | None,
        placed_by_rows: set[str],
    ) -> None:
        self._broker = broker
        self._instance = instance
        self._bounded = bounded
        self._progress = progress
        self._last_read = -1
        plan = bounded.plan
        topics = {topic for sub in plan.subs if not sub.is_global for topic in sub.source_topics}
        topics -= set(plan.topology.internal_topics)
        counts = broker.topics()
        #: Partitions of external source topics that receive input records; the lanes of tasks are not included.
        self._sources = {
            plan.feed(TopicPartition(topic, number)) for topic in topics for number in range(counts[topic])
        }
        #: Number of records in these partitions, including records of earlier runs.
        self._written = sum(broker.end_offset(partition) for partition in self._sources)
        self._open = {
            topic: _new_rows(broker, topic, source, plan.feed, placed_by_rows) for topic, source in inputs.items()
        }
        for topic in topics - set(inputs):
            bounded.end_topic(topic)

    def run(self) -> int:
        """Feed all inputs round-robin, wait until every task has ended, and return the number of records fed."""
        before = self._written
        while self._open and not self._bounded.done.is_set():
            for topic, rows in list(self._open.items()):
                batch = next(rows, None)
                if batch is None:
                    del self._open[topic]
                    self._bounded.end_topic(topic)
                else:
                    self._append(batch)
            self._wait_for_tasks()
        while not self._bounded.done.wait(_LOOK_MS):
            self._show()
        self._show()
        return self._written - before

    def _append(self, batch: list[tuple[TopicPartition, Block]]) -> None:
        for partition, block in batch:
            self._broker.append(partition, block)
            self._written += len(block)

    def _wait_for_tasks(self) -> None:
        """Wait while tasks lag but make progress; a stalled task may need a record that is not fed yet."""
        self._show()
        while not self._bounded.done.is_set():
            done = self._read_so_far()
            if self._written - done < _READ_AHEAD or done == self._last_read:
                return
            self._last_read = done
            self._bounded.done.wait(_LOOK_MS)
            self._show()

    def _read_so_far(self) -> int:
        """Return the number of source records that the tasks have received, including those of earlier runs."""
        return sum(
            queue.position or 0
            for task in self._tasks()
            for queue in list(task.queues)
            if queue.partition in self._sources
        )

    def _tasks(self) -> list[Task]:
        return [task for thread in self._instance.stream_threads for task in list(thread.tasks.values())]

    def _show(self) -> None:
        if self._progress is None:
            return
        tasks = self._tasks()
        self._progress(
            Progress(
                self._read_so_far(),
                None if self._open else self._written,
                sum(task.outbox.sent for task in tasks),
                max((task.queues.stream_time_ms for task in tasks), default=-1),
            )
        )
