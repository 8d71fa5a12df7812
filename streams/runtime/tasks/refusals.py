"""Outputs that cannot be sent: records too large for the producer, and records that the broker rejects.

The module connects the committer of a thread to the production handlers of its tasks.  When a broker error arrives, the
source record is no longer known; the error may arrive on the producer's thread, so it is queued for the stream thread.
The module imports only ``clients``, ``core`` and ``protocol`` from outside ``runtime``.  KIP-210, KIP-1033.
"""

from collections import deque
from collections.abc import Iterator

from attrs import define, evolve, field, frozen

from streams.clients import RequestTimeoutError, oversized
from streams.core.blocks.records import Block, TopicPartition
from streams.core.dead_letters import EXCEPTION_HEADER
from streams.core.errors import BrokerError, ProcessingError, RecordTooLargeError
from streams.core.handlers import DeadLetter, ProducerRecord
from streams.protocol.error_codes import ErrorCode
from streams.runtime.tasks.task import Task


@frozen
class Refusal:
    """A block of output records of a task that the broker rejected, with its error."""

    task: Task
    partition: TopicPartition
    block: Block
    error: BrokerError


@define(eq=False)
class Refusals:
    """Calls production handlers for rejected records; other threads may call ``add`` only."""

    max_request_bytes: int
    is_exactly_once: bool
    _waiting: deque[Refusal] = field(factory=deque)

    @property
    def is_empty(self) -> bool:
        """Whether all rejected records have been handled."""
        return not self._waiting

    def add(self, task: Task, partition: TopicPartition, block: Block, error: BrokerError) -> None:
        """Add a block of records that the broker has rejected, or has not acknowledged in time."""
        self._waiting.append(Refusal(task, partition, block, error))

    def within_bounds(self, task: Task, partition: TopicPartition, block: Block) -> Block:
        """Call the production handler for each record that is too large, and return the block without these records.

        Raises:
            ProcessingError: the handler returned "fail".
        """
        found = oversized(block, self.max_request_bytes)
        if not found:
            return block
        for index in found:
            error = RecordTooLargeError(
                f"a record for {partition} is above max_request_bytes={self.max_request_bytes}; send less, or raise it",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )
            self._handle(Refusal(task, partition, block.slice(index, index + 1), error), was_sent=False)
        kept = sorted(set(range(len(block))) - set(found))
        return evolve(
            block,
            keys=[block.keys[index] for index in kept],
            values=[block.values[index] for index in kept],
            timestamps=[block.timestamps[index] for index in kept],
            headers=None if block.headers is None else [block.headers[index] for index in kept],
            offsets=range(len(kept)),
            lanes=None if block.lanes is None else block.lanes.pick(kept),
        )

    def handled(self) -> Iterator[Task]:
        """Call the production handler for each rejected record; yield the tasks, which may have dead letters to send.

        Raises:
            ProcessingError: the handler returned "fail", or an exactly-once transaction lacks the record.
            RequestTimeoutError: the request timed out, and the record is to be retried; only with at-least-once.
        """
        while self._waiting:
            refusal = self._waiting.popleft()
            self._handle(refusal, was_sent=True)
            yield refusal.task

    def _handle(self, refusal: Refusal, *, was_sent: bool) -> None:
        for _, key, value, timestamp_ms, headers in refusal.block.rows():
            partition = refusal.partition
            record = ProducerRecord(partition.topic, key, value, timestamp_ms, headers, partition.partition)
            answer = self._answer(refusal, record)
            if answer == "retry" and isinstance(refusal.error, RequestTimeoutError):
                if self.is_exactly_once:
                    return  # The transaction is aborted, and all its records are processed again.
                raise refusal.error
            # A transaction that lacks a record must not be committed, even if the handler returns "continue".
            if answer != "continue" or (was_sent and self.is_exactly_once):
                raise _failure(refusal, record)

    def _answer(self, refusal: Refusal, record: DeadLetter) -> str:
        is_transient = isinstance(refusal.error, RequestTimeoutError)
        if any(name == EXCEPTION_HEADER for name, _ in record.headers):
            # No handler is called for a dead letter: its own dead letter would probably be rejected too.
            return "retry" if is_transient else "fail"
        if is_transient and isinstance(refusal.task.handlers.settings.production_handler, str):
            # The record is not the cause, so it is retried, as by the default handler of Kafka Streams (KIP-1065).
            return "retry"
        return refusal.task.failures.answer_about_unsent(record, refusal.error)


def _failure(refusal: Refusal, record: DeadLetter) -> ProcessingError:
    size = len(record.key or b"") + len(record.value or b"")
    task, error = refusal.task, refusal.error
    failure = ProcessingError(
        f"task {task.task_id}: a record of {size:,} bytes for topic {record.topic!r} cannot be written: {error}",
        node=task.sink_of(record.topic),
        task_id=task.task_id,
        topic=record.topic,
        partition=record.partition,
    )
    failure.__cause__ = error
    return failure
