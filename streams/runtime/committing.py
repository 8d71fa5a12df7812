"""Outputs and commits of a thread's tasks, in the one order that loses nothing.

At least once: outputs and changelogs are flushed, then offsets committed, then stores written.
Exactly once: the first three are one transaction of the thread's producer (KIP-447), so it
takes in all of the thread's tasks.  Imports clients.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from attrs import define, field

from streams.clients import Consumer, Delivery, Producer
from streams.core.metrics import Metrics
from streams.core.records import TaskId, TopicPartition
from streams.protocol.messages import OffsetAndMetadata
from streams.runtime.plan import ApplicationPlan
from streams.runtime.purge import Purger
from streams.runtime.refusals import Refusals
from streams.runtime.restore import changelog_position
from streams.runtime.task import Task


@define(eq=False)
class Committer:
    """Sends and commits for one thread.

    ``plan`` is the plan in force.  ``new_producer`` makes a producer; with exactly-once a
    fresh one fences its predecessor and ends what that left open.
    """

    _consumer: Consumer
    _new_producer: Callable[[], Producer]
    plan: ApplicationPlan
    _metrics: Metrics
    is_exactly_once: bool
    _refusals: Refusals
    #: Told of committed offsets, to delete what nobody reads again; None keeps everything.
    _purger: Purger | None = None
    producer: Producer = field(init=False)
    #: Whether the producer has ended what an earlier one with its name left open.
    _is_initialized: bool = False
    _has_begun: bool = False
    #: Changelog blocks sent since a task's last commit, by store: delivery and size of the last one.
    _changes: dict[TaskId, dict[str, tuple[Delivery, int]]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.producer = self._new_producer()

    # --- the steps ------------------------------------------------------------------------

    def prepare(self) -> None:
        """End what an earlier run left open, before committed offsets and changelogs are read."""
        if self.is_exactly_once and not self._is_initialized:
            self.producer.init_transactions()
            self._is_initialized = True

    def send(self, task: Task, *, has_more: bool = False) -> set[TopicPartition]:
        """Send a task's outputs; return the partitions that got some.

        With ``has_more`` those of other tasks follow, and then a ``poll``: they share requests.
        """
        outputs = task.take_outputs()
        if outputs:
            self._begin()
        for number, (partition, made) in enumerate(outputs, 1):
            block = self._refusals.within_bounds(task, partition, made)
            self.producer.send_block(
                partition,
                block,
                has_more=has_more or number < len(outputs),
                on_refused=partial(self._refusals.add, task, partition),
            )
        return {partition for partition, _ in outputs}

    def commit(self, tasks: Sequence[Task]) -> None:
        """Commit tasks; with exactly-once these must be all that have sent anything since the last commit.

        Cache flush (may forward) -> outputs and changelog sent -> producer flush -> offsets ->
        one engine batch per store, which also holds the changelog position.  Changelog behind
        offsets would lose state; offsets behind changelog only repeat, which at-least-once allows
        and which a transaction excludes.

        Raises:
            RebalanceInProgressError: at-least-once; nothing is lost, the next attempt goes on.
            MemberFencedError, TransactionError: the tasks may be others' already; close them.
        """
        if not tasks:
            return
        for task in tasks:
            task.flush_caches()
            self.send(task)
            self._send_changes(task)
        if self.is_exactly_once:
            self._begin()
            offsets = self._offsets_of(tasks)
            self.producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata)
            self.producer.commit_transaction()
            self._has_begun = False
        else:
            self.flush()
            offsets = self._offsets_of(tasks)
            self._consumer.commit_sync(offsets)
        self._purge(offsets)
        for task in tasks:
            changes = self._changes.pop(task.task_id)
            done = {name: delivery.base_offset() + size for name, (delivery, size) in changes.items()}
            done |= self._source_positions(task)
            task.write_state(done)
            self._metrics.counter("commit-total", task=task.task_id).value += 1

    def flush(self) -> None:
        """Wait until what was sent is acknowledged."""
        self.producer.flush()
        self._ask_about_refusals()

    def forget(self, task_id: TaskId) -> None:
        """A task is closed without a commit."""
        self._changes.pop(task_id, None)

    def abort(self) -> None:
        """Undo what was sent since the last commit, where that is possible."""
        if self._has_begun:
            self._has_begun = False
            self.producer.abort_transaction()

    def renew(self) -> None:
        """Go on with a fresh producer: the old one was fenced, or nothing is known of its transaction."""
        for _ in self._refusals.asked():
            pass  # What is to be tried again comes again.
        old, self.producer = self.producer, self._new_producer()
        self._is_initialized = self._has_begun = False
        old.abandon()

    @property
    def has_outstanding(self) -> bool:
        """Whether something that was sent is not acknowledged yet."""
        return self.producer.has_outstanding

    def poll(self) -> None:
        """Do what is due without a commit: what waits for its turn to be sent would wait for the next one."""
        if self.has_outstanding:
            self.producer.poll()
        self._ask_about_refusals()
        if self._purger is not None:
            self._purger.poll()

    def close(self) -> None:
        """Close the producer."""
        if self._purger is not None:
            self._purger.close()
        self.producer.close()

    # --- inside ---------------------------------------------------------------------------

    def _ask_about_refusals(self) -> None:
        """Have production handlers asked about what the broker has refused; their dead letters are acknowledged too."""
        has_letters = False
        for task in self._refusals.asked():
            has_letters = bool(self.send(task)) or has_letters
        if has_letters:
            self.flush()

    def _begin(self) -> None:
        if self.is_exactly_once and not self._has_begun:
            self.prepare()
            self.producer.begin_transaction()
            self._has_begun = True

    def _send_changes(self, task: Task) -> None:
        plan = self.plan
        sent = self._changes.setdefault(task.task_id, {})
        for name, block in task.take_changes():
            if name not in plan.topology.source_changelogs:
                self._begin()
                partition = TopicPartition(plan.changelog(name), task.task_id.partition)
                sent[name] = (self.producer.send_block(partition, block), len(block))

    def _purge(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self._purger is not None:
            own = self.plan.repartition_topics()
            self._purger.note({partition: found for partition, found in offsets.items() if partition.topic in own})

    def _source_positions(self, task: Task) -> dict[str, int]:
        """Return positions of stores whose changelog is a source topic: those of the input."""
        by_topic = {item.topic: partition for partition, item in task.inputs.items()}
        positions = task.positions()
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
            notes = checkpoint.notes(list(positions))
            offsets |= {item: OffsetAndMetadata(offset, notes[item]) for item, offset in positions.items()}
        return offsets

    def _changelog_ends(self, task: Task) -> dict[str, int]:
        """Return where a task's changelogs end with this commit; a log that ends earlier some day has lost records."""
        sources = self.plan.topology.source_changelogs
        ends = {
            name: changelog_position(store)
            for name, store in task.stores.items()
            if store.spec.has_changelog and name not in sources
        }
        for name, (delivery, size) in self._changes[task.task_id].items():
            # What has failed is said by the commit itself; without acknowledgements no offset is known.
            if delivery.exception() is None and delivery.base_offset() >= 0:
                ends[name] = delivery.base_offset() + size
        return ends
