"""What the logs of tasks say when the tasks open: last commits, and the offsets that inputs and changelogs have.

A thread asks for all tasks of an assignment together, so that the number of requests does not grow with the tasks.  The
module imports only ``clients``, ``core`` and ``protocol`` from outside ``runtime``.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

from attrs import define, frozen

from streams.clients import Consumer, NoOffsetError
from streams.core.blocks.records import TaskId, TopicPartition
from streams.core.clock import Clock
from streams.core.settings.config import StreamsConfig
from streams.core.settings.offset_reset import EARLIEST, LATEST, NONE, duration_ms
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.stores.losses import without_sources
from streams.runtime.stores.restore import Restorer
from streams.runtime.tasks.checkpoint import Checkpoint, is_of_others

log = logging.getLogger(__name__)


@frozen
class LastCommit:
    """The last commit of a task: the offsets with their metadata, the checkpoint, and the changelog of each store."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    checkpoint: Checkpoint
    changelogs: Mapping[str, TopicPartition]


@frozen
class TaskLogs:
    """The logs of tasks that are about to open."""

    commits: Mapping[TaskId, LastCommit]
    #: The offsets from log start to log end, with the records of open transactions: of changelogs, and of committed
    #: inputs that only the application writes.
    extents: Mapping[TopicPartition, range]
    #: By changelog of a task that commits with exactly-once: the offset before which all transactions are decided.
    stable_ends: Mapping[TopicPartition, int]
    #: Where to begin to read the inputs without a committed offset.
    begins: Mapping[TopicPartition, int]


@define(eq=False)
class TaskLogReader:
    """Reads the logs of tasks for the thread ``name``; in a bounded run, all inputs are read from the beginning."""

    name: str
    consumer: Consumer
    restorer: Restorer
    config: StreamsConfig
    clock: Clock
    is_bounded: bool

    def read(self, plan: ApplicationPlan, tasks: Sequence[TaskId], copies: Sequence[TaskId]) -> TaskLogs:
        """Return the logs of tasks, and those of tasks of which standby replicas open, whose stores are locked.

        What is read before the committed offsets, and what after them, counts.  A member that does not know that the
        group has removed it may open a task that another member owns by now; that member commits offsets, then deletes
        the records before them.  If log starts are read first, the committed offset is at or after the log start unless
        records are lost.  If the stable ends of changelogs are, records that the other member commits meanwhile are not
        ahead of its offsets; those of open transactions do not count, since their offsets may be committed later.

        Raises:
            NoOffsetError: an input has no committed offset, and the reset policy is "none".
        """
        changelogs = {
            task_id: plan.changelogs(task_id, [spec.name for spec in plan.stores_of(task_id)])
            for task_id in (*tasks, *copies)
        }
        inputs = {task_id: [item.partition for item in plan.inputs(task_id)] for task_id in changelogs}
        own = [item.partition for task_id in tasks for item in plan.inputs(task_id) if plan.is_own(item)]
        logs = [partition for stores in changelogs.values() for partition in stores.values()]
        starts = self.restorer.starts(dict.fromkeys((*own, *logs)))
        transactional = tasks if self.config.is_exactly_once else ()
        stable_ends = self.restorer.stable_ends(
            partition
            for task_id in transactional
            for partition in without_sources(changelogs[task_id], plan.topology.source_changelogs).values()
        )
        committed = self.consumer.committed([partition for group in inputs.values() for partition in group])
        ends = self.restorer.ends(dict.fromkeys((*(partition for partition in own if partition in committed), *logs)))
        commits = {task_id: self._commit_of(inputs[task_id], committed, changelogs[task_id]) for task_id in changelogs}
        new = [partition for task_id in tasks for partition in inputs[task_id] if partition not in committed]
        return TaskLogs(
            commits,
            {partition: range(starts[partition], end) for partition, end in ends.items()},
            stable_ends,
            self._begins(plan, new),
        )

    def _commit_of(
        self,
        inputs: Sequence[TopicPartition],
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        changelogs: Mapping[str, TopicPartition],
    ) -> LastCommit:
        """Return the last commit of a task; log a warning for offsets that another client has committed."""
        offsets = {partition: committed[partition] for partition in inputs if partition in committed}
        for partition, commit in offsets.items():
            if is_of_others(commit.metadata):
                log.warning(
                    "%s: the committed offset of %s has metadata of another client (%.60r): its stream time restarts",
                    self.name,
                    partition,
                    commit.metadata,
                )
        checkpoint = Checkpoint.from_metadata({partition: commit.metadata for partition, commit in offsets.items()})
        return LastCommit(offsets, checkpoint, changelogs)

    def _begins(self, plan: ApplicationPlan, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the start position of each partition without a committed offset.

        With the reset policy "latest", a partition that was added to a topic which the application already reads is
        read from the beginning, since none of its records can have been read.
        """
        by_policy: dict[str, list[TopicPartition]] = {}
        for partition in partitions:
            policy = plan.topology.offset_reset(partition.topic) or self.config.consumer.auto_offset_reset
            # Repartition topics, and all inputs of a bounded run, are read from the beginning.
            if self.is_bounded or partition.topic in plan.repartition_topics():
                policy = EARLIEST
            if policy == NONE:
                raise NoOffsetError(
                    f"{partition}: application {self.config.application_id!r} has no committed offset, and its "
                    "offset_reset (auto_offset_reset) is none; give 'earliest' or 'latest', or set it with "
                    "`streams groups rewind`",
                    (partition,),
                )
            by_policy.setdefault(policy, []).append(partition)
        result: dict[TopicPartition, int] = {}
        first, last = by_policy.pop(EARLIEST, []), by_policy.pop(LATEST, [])
        if last:
            topics = sorted({partition.topic for partition in last})
            read = self.consumer.committed([each for topic in topics for each in self.consumer.partitions_for(topic)])
            grown = {partition.topic for partition in read}
            first += [partition for partition in last if partition.topic in grown]
            last = [partition for partition in last if partition.topic not in grown]
        for policy, group in by_policy.items():
            from_ms = max(0, self.clock.now_ms() - (duration_ms(policy) or 0))
            for partition, offset in self.consumer.offsets_for_times(dict.fromkeys(group, from_ms)).items():
                if offset is None:
                    last.append(partition)
                else:
                    result[partition] = offset.offset
        if last:
            result |= self.consumer.end_offsets(last)
        if first:
            result |= self.consumer.beginning_offsets(first)
        return result
