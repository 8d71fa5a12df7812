"""Sending of outputs and commits for the tasks of a thread, in an order that loses no records.

With at-least-once, outputs and changelogs are flushed, then offsets are committed, then stores are written.  With
exactly-once, outputs, changelogs and offsets of all tasks of the thread are one transaction of its producer (KIP-447).
The module imports only ``clients``, ``core`` and ``protocol`` from outside ``runtime``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from attrs import define, evolve, field

from streams.clients import Consumer, Delivery, GroupMetadata, Producer
from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.core.clock import Clock
from streams.core.errors import MemberFencedError
from streams.core.metrics import Stopwatch
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime.in_step.progress_records import ProgressRecord, progress_partition
from streams.runtime.in_step.thread_progress import MarkedTask, ThreadProgress
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.plan.purge import Purger
from streams.runtime.stores.restore import changelog_position
from streams.runtime.tasks.recording import block_of, recorder_topic
from streams.runtime.tasks.refusals import Refusals
from streams.runtime.tasks.task import Task

#: Changes of a store: its task, its name, and the changelog records.
_Changes: TypeAlias = tuple[Task, str, Block]


@define(eq=False)
class Committer:
    """Sends the outputs and commits the tasks of one thread.

    ``plan`` is the current plan.  ``new_producer`` creates a producer; with exactly-once a new producer fences its
    predecessor, whose open transaction is aborted.
    """

    _consumer: Consumer
    _new_producer: Callable[[], Producer]
    plan: ApplicationPlan
    #: Measures the duration of commits.
    _measured: Stopwatch
    _clock: Clock
    is_exactly_once: bool
    _refusals: Refusals
    #: Deletes consumed records of repartition topics after commits; with None these records are kept.
    _purger: Purger | None = None
    #: Says how far the tasks are; None if no topic is read in step.
    progress: ThreadProgress | None = None
    producer: Producer = field(init=False)
    #: Whether the producer is initialized, so that no transaction of an earlier producer is open.
    _is_initialized: bool = False
    _has_begun: bool = False
    #: The last changelog batch sent since the last commit, by task and store: its delivery and record count.
    _changes: dict[TaskId, dict[str, tuple[Delivery, int]]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.producer = self._new_producer()

    # --- steps ----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Abort a transaction left open by an earlier process; call it before committed offsets are read."""
        if self.is_exactly_once and not self._is_initialized:
            self.producer.init_transactions()
            self._is_initialized = True

    def send(self, task: Task, *, has_more: bool = False) -> set[TopicPartition]:
        """Send a task's outputs, and return the partitions to which they are sent.

        With ``has_more``, the caller sends outputs of other tasks next and then calls ``poll``, so that all
        these outputs share requests.
        """
        outputs = task.take_outputs()
        if outputs:
            self._begin()
        for number, (partition, output) in enumerate(outputs, 1):
            block = self._refusals.within_bounds(task, partition, output)
            delivery = self.producer.send_block(
                partition,
                block,
                has_more=has_more or number < len(outputs),
                on_refused=partial(self._refusals.add, task, partition),
            )
            if task.queues.recorder is not None:
                task.queues.recorder.sent.append((partition, delivery, len(block)))
        return {partition for partition, _ in outputs}

    def commit(self, tasks: Sequence[Task]) -> None:
        """Commit tasks; with exactly-once, ``tasks`` must include every task with outputs since the last commit.

        The order is: flush the caches (which may forward), send outputs and changelogs, flush the producer, commit
        offsets, and write one engine batch per store, which also has the changelog position.  If offsets were committed
        before changelogs, a failure would lose state.  In this order a failure only causes records to be reprocessed;
        at-least-once allows this, and a transaction prevents it.  With at-least-once, changes of stores whose entries
        suppress records (``is_logged_last``) are sent after a flush of everything else: a reprocessed record must not
        be suppressed by its own entry before its results are written.

        Raises:
            RebalanceInProgressError: the consumer group is rebalancing; only with at-least-once.  Nothing is lost, and
                the commit can be retried.
            MemberFencedError, TransactionError: other members may already own the tasks, which must be closed dirty.
        """
        if tasks or (self.is_exactly_once and self._may_publish):
            with self._measured:
                self._commit(tasks)

    def _commit(self, tasks: Sequence[Task]) -> None:
        last: list[_Changes] = []
        for task in tasks:
            task.prepare_commit()
            if task.queues.recorder is not None:
                task.queues.recorder.flushed(task.now_ms)
            self.send(task)
            last += self._send_changes(task)
        if last:
            self.flush()
            for task, name, block in last:
                self._send_change(task, name, block)
        self._send_frames(tasks)
        if self.is_exactly_once:
            self._begin()
            offsets = self._offsets_of(tasks)
            self._enclose_progress()
            self.producer.send_offsets_to_transaction(offsets, self._membership())
            # This waits until all outputs and changelog records are acknowledged; their offsets are used below.
            self.producer.commit_transaction()
            self._has_begun = False
            if self.progress is not None:
                self.progress.committed(self._clock.monotonic_ms())
        else:
            self.flush()
            offsets = self._offsets_of(tasks)
            self._consumer.commit_sync(offsets)
        self._purge(offsets)
        for task in tasks:
            changes = self._changes.pop(task.task_id)
            done = {name: delivery.base_offset() + size for name, (delivery, size) in changes.items()}
            done |= self._source_positions(task, task.positions())
            task.write_state(done)

    def flush(self) -> None:
        self.producer.flush()
        self._ask_about_refusals()

    def forget(self, task_id: TaskId) -> None:
        """Discard the unconfirmed changelog records, and the marks, of a task that is closed."""
        self._changes.pop(task_id, None)
        if self.progress is not None:
            self.progress.forget(task_id)

    def abort(self) -> None:
        """Abort the open transaction, if any, including all records since the last commit."""
        if self.progress is not None:
            self.progress.aborted()
        if self._has_begun:
            self._has_begun = False
            self.producer.abort_transaction()

    def renew(self) -> None:
        """Replace a producer that was fenced or whose transaction state is unknown."""
        for _ in self._refusals.handled():
            pass  # Rejected records to be retried are reprocessed.
        if self.progress is not None:
            self.progress.aborted()
        old = self.producer
        self.producer = self._new_producer()
        self._is_initialized = self._has_begun = False
        old.abandon()

    @property
    def has_outstanding(self) -> bool:
        """Whether records are not acknowledged yet, or the progress of tasks is to be sent soon."""
        return self.producer.has_outstanding or (
            self.progress is not None and self.progress.wait_ms(self._clock.monotonic_ms()) is not None
        )

    def poll(self) -> None:
        """Send due requests, call production handlers for rejected records, and purge, but do not commit."""
        if self.has_outstanding:
            self.producer.poll()
        self._ask_about_refusals()
        if self._purger is not None:
            self._purger.poll()

    def note_progress(
        self,
        tasks: Iterable[MarkedTask],
        *,
        restored: Callable[[TaskId], int | None] = lambda _: None,
    ) -> None:
        """Note how far the tasks are, whose outputs must have been sent; it does not wait for what was sent.

        With at-least-once this sends what is due and whose records are acknowledged; with exactly-once it is sent with
        the next commit.  ``restored`` returns the number of records that a task has restored, or None if it does not.
        """
        if self.progress is None:
            return
        now_ms = self._clock.monotonic_ms()
        self.progress.note(
            tasks,
            self._consumer.group_metadata.generation_id,
            self.producer.last_sequence,
            now_ms,
            restored=restored,
        )
        if not self.is_exactly_once:
            record = self.progress.take(self._has_written, now_ms)
            if record is not None:
                self._send_progress(record)

    @property
    def is_asked(self) -> bool:
        """Whether another instance has asked for the progress of the tasks; ``note_progress`` answers."""
        return self.progress is not None and self.progress.is_asked

    @property
    def owes_progress(self) -> bool:
        """Whether the tasks have something to say that is not sent yet."""
        return self.progress is not None and (
            self.progress.has_waiting or self.progress.wait_ms(self._clock.monotonic_ms()) is not None
        )

    @property
    def progress_wants_commit(self) -> bool:
        """Whether to commit before a commit is due, since a task has come to its end; only with exactly-once."""
        return self.progress is not None and self.progress.wants_commit(self._clock.monotonic_ms())

    def close(self) -> None:
        """Close the purger and the producer."""
        if self._purger is not None:
            self._purger.close()
        self.producer.close()

    # --- internals ------------------------------------------------------------------------

    def _membership(self) -> GroupMetadata:
        """Return the membership under which offsets are committed in a transaction.

        Raises:
            MemberFencedError: the thread has just lost it.  A broker would take the offsets as those of no group, even
                if other members have the tasks by now.
        """
        metadata = self._consumer.group_metadata
        if metadata.generation_id < 0:
            raise MemberFencedError(
                f"group {metadata.group_id!r} has removed this member: its tasks go back to their last commit",
                code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
        return metadata

    @property
    def _may_publish(self) -> bool:
        """Whether there is something to be said, and the thread is a member of the group whose tasks it speaks of."""
        is_member = self._consumer.group_metadata.generation_id >= 0
        return self.progress is not None and self.progress.has_waiting and is_member

    def _has_written(self, sequence: int) -> bool:
        """Return whether everything up to a batch is acknowledged; rejected records may still be sent again."""
        return self._refusals.is_empty and self.producer.has_acknowledged(sequence)

    def _enclose_progress(self) -> None:
        """Send the progress of tasks in the transaction with the outputs that it speaks of."""
        record = None if self.progress is None else self.progress.enclose(self._clock.monotonic_ms())
        if record is not None:
            self._send_progress(record)

    def _send_progress(self, record: ProgressRecord) -> None:
        partition = progress_partition(self.plan.config.application_id)
        self.producer.send_block(partition, record.block(self._clock.now_ms()))

    def _ask_about_refusals(self) -> None:
        """Call production handlers for rejected records, and wait until the resulting dead letters are acknowledged."""
        has_letters = False
        for task in self._refusals.handled():
            has_letters = bool(self.send(task)) or has_letters
        if has_letters:
            self.flush()

    def _begin(self) -> None:
        if self.is_exactly_once and not self._has_begun:
            self.prepare()
            self.producer.begin_transaction()
            self._has_begun = True

    def _send_changes(self, task: Task) -> list[_Changes]:
        """Send the changelog records of a task; with at-least-once, return the records that must be sent last."""
        last: list[_Changes] = []
        self._changes.setdefault(task.task_id, {})
        for name, block in task.take_changes():
            if name in self.plan.topology.source_changelogs:
                continue
            self._begin()
            if task.stores[name].spec.is_logged_last and not self.is_exactly_once:
                last.append((task, name, block))
            else:
                self._send_change(task, name, block)
        return last

    def _send_change(self, task: Task, name: str, block: Block) -> None:
        partition = TopicPartition(self.plan.changelog(name), task.task_id.partition)
        delivery = self.producer.send_block(partition, block)
        self._changes[task.task_id][name] = (delivery, len(block))
        if task.queues.recorder is not None:
            task.queues.recorder.changed.setdefault(name, []).append((partition, delivery, len(block)))

    def _send_frames(self, tasks: Iterable[Task]) -> None:
        """Send the flight recorder frames of tasks, once the offsets of their outputs and changes are known."""
        recorded = [(task, task.queues.recorder) for task in tasks if task.queues.recorder is not None]
        if not recorded:
            return
        self._begin()
        self.flush()
        topic = TopicPartition(recorder_topic(self.plan.config.application_id), 0)
        frames = []
        for task, recorder in recorded:
            if not recorder.number:
                recorder.opening = evolve(recorder.opening, changelogs=self._opened_at(task, recorder.opening.start))
            ends = self._changelog_ends(task) | self._source_positions(task, task.positions())
            frames.append(recorder.frame(list(task.inputs), task.positions(), task.checkpoint().to_json(), ends))
        self.producer.send_block(topic, block_of(frames))

    def _purge(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self._purger is not None:
            own = self.plan.repartition_topics()
            self._purger.note({partition: commit for partition, commit in offsets.items() if partition.topic in own})

    def _opened_at(self, task: Task, start: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Return the changelog position that each store of a task had when the task was opened."""
        own = {name: changelog_position(store) for name, store in task.stores.items() if store.spec.has_changelog}
        return own | self._source_positions(task, start)

    def _source_positions(self, task: Task, positions: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Return the positions of stores whose changelog is a source topic, which are the task's positions in it."""
        by_topic = {item.topic: partition for partition, item in task.inputs.items()}
        return {
            store: positions[by_topic[topic]]
            for store, topic in self.plan.topology.source_changelogs.items()
            if store in task.stores and topic in by_topic and by_topic[topic] in positions
        }

    def _offsets_of(self, tasks: Iterable[Task]) -> dict[TopicPartition, OffsetAndMetadata]:
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for task in tasks:
            positions = task.positions()
            checkpoint = task.checkpoint()
            checkpoint.changelog_ends = self._changelog_ends(task)
            checkpoint.is_exactly_once = self.is_exactly_once
            metadata = checkpoint.offset_metadata(list(positions))
            offsets |= {item: OffsetAndMetadata(offset, metadata[item]) for item, offset in positions.items()}
        return offsets

    def _changelog_ends(self, task: Task) -> dict[str, int]:
        """Return the changelog end offsets of a task at this commit; they are stored to detect lost records later."""
        sources = self.plan.topology.source_changelogs
        ends = {
            name: changelog_position(store)
            for name, store in task.stores.items()
            if store.spec.has_changelog and name not in sources
        }
        for name, (delivery, size) in self._changes[task.task_id].items():
            # The commit itself raises on failed deliveries; without an acknowledgement the offset is unknown.
            if delivery.exception() is None and delivery.base_offset() >= 0:
                ends[name] = delivery.base_offset() + size
        return ends
