"""Outputs that cannot be sent: too large for the producer, or refused by the broker record by record.

Between a thread's committer and the production handler of the task that made them.  What the broker says comes later
than the source record is known, and may come on the producer's own thread: it is kept until the stream thread asks.
Imports clients.  KIP-210, KIP-1033.
"""

from collections import deque
from collections.abc import Iterator

from attrs import define, evolve, field, frozen

from streams.clients import RequestTimeoutError, oversized
from streams.core.dead_letters import EXCEPTION_HEADER
from streams.core.errors import BrokerError, ProcessingError, RecordTooLargeError
from streams.core.handlers import DeadLetter, ProducerRecord
from streams.core.records import Block, TopicPartition
from streams.protocol.messages import ErrorCode
from streams.runtime.task import Task


@frozen
class Refusal:
    """Records that a task has made, and that nobody takes."""

    task: Task
    partition: TopicPartition
    block: Block
    error: BrokerError


@define(eq=False)
class Refusals:
    """Asks production handlers about what cannot be sent; ``add`` is for any thread, the rest for the stream thread."""

    max_request_bytes: int
    is_exactly_once: bool
    _waiting: deque[Refusal] = field(factory=deque)

    def add(self, task: Task, partition: TopicPartition, block: Block, error: BrokerError) -> None:
        """Keep what the broker has refused, or not taken in time."""
        self._waiting.append(Refusal(task, partition, block, error))

    def within_bounds(self, task: Task, partition: TopicPartition, block: Block) -> Block:
        """Return a block without the records that are too large, if their handler lets them go.

        Raises:
            ProcessingError: it does not.
        """
        found = oversized(block, self.max_request_bytes)
        if not found:
            return block
        for index in found:
            error = RecordTooLargeError(
                f"a record for {partition} is above max_request_bytes={self.max_request_bytes}; send less, or raise it",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )
            self._ask(Refusal(task, partition, block.slice(index, index + 1), error), was_sent=False)
        kept = sorted(set(range(len(block))) - set(found))
        return evolve(
            block,
            keys=[block.keys[index] for index in kept],
            values=[block.values[index] for index in kept],
            timestamps=[block.timestamps[index] for index in kept],
            headers=None if block.headers is None else [block.headers[index] for index in kept],
            offsets=range(len(kept)),
        )

    def asked(self) -> Iterator[Task]:
        """Ask about each record that was refused; yield its task, which may have dead letters to be sent now.

        Raises:
            ProcessingError: the handler does not let it go, or it has ended a transaction.
            RequestTimeoutError: it is to be tried again.
        """
        while self._waiting:
            refusal = self._waiting.popleft()
            self._ask(refusal, was_sent=True)
            yield refusal.task

    def _ask(self, refusal: Refusal, *, was_sent: bool) -> None:
        for _, key, value, timestamp_ms, headers in refusal.block.rows():
            partition = refusal.partition
            record = ProducerRecord(partition.topic, key, value, timestamp_ms, headers, partition.partition)
            answer = self._answer(refusal, record)
            if answer == "retry" and isinstance(refusal.error, RequestTimeoutError):
                if self.is_exactly_once:
                    return  # Its transaction is aborted, and all of it comes again.
                raise refusal.error
            # A transaction that something is missing of cannot be committed, whatever a handler says.
            if answer != "continue" or (was_sent and self.is_exactly_once):
                raise _failure(refusal, record)

    def _answer(self, refusal: Refusal, record: DeadLetter) -> str:
        is_transient = isinstance(refusal.error, RequestTimeoutError)
        if any(name == EXCEPTION_HEADER for name, _ in record.headers):
            # Nobody is asked about a dead letter: its own would be refused next.
            return "retry" if is_transient else "fail"
        if is_transient and isinstance(refusal.task.handlers.settings.production_handler, str):
            # Nothing is wrong with the record: tried again, as by Kafka Streams' own handler (KIP-1065).
            return "retry"
        return refusal.task.answer_about_unsent(record, refusal.error)


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
