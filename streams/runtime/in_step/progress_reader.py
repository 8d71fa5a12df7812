"""Reads the progress topic for one instance, and asks other instances how far their tasks are.

It begins at the end of the topic, since old records tell nothing that counts, and asks: a question is a record, which
each thread of the others answers with all its marks.  What is read behind the own question is newer than it.  The
questions are not transactional, as they speak of no records.  The module imports only ``clients`` and ``core`` from
outside ``runtime``.
"""

import logging
from collections.abc import Callable

from attrs import define, field

from streams.clients import Consumer, Producer, RequestTimeoutError
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import Clock
from streams.core.concurrency.threads import Threads
from streams.core.errors import OffsetOutOfRangeError
from streams.runtime.in_step.progress_records import ProgressRecord
from streams.runtime.stores.reading_thread import ReadingThread
from streams.runtime.tasks.progress import ProgressBoard

log = logging.getLogger(__name__)


@define(eq=False)
class ProgressReader:
    """The thread of an instance that puts the marks of other instances onto the board.

    ``name`` is the client ID under which it asks.  ``consumer`` has no reset policy.
    """

    name: str
    _partition: TopicPartition
    board: ProgressBoard
    _consumer: Consumer
    _producer: Producer
    _clock: Clock
    _on_failure: Callable[[BaseException], None]
    _threads: Threads
    thread: ReadingThread = field(init=False)
    #: The number of the last question that was written, and of the last one that threads have asked.
    _written: int = 0
    _asked: int = 0

    def __attrs_post_init__(self) -> None:
        self.thread = ReadingThread(self._consumer, self.run_once, self._on_failure, self._threads)

    def open(self) -> None:
        """Go to the end of the topic.

        Raises:
            RequestTimeoutError: the brokers do not tell the end of the topic in time.
        """
        self._consumer.assign([self._partition])
        self._seek_to_end()

    def ask(self) -> None:
        """Ask all threads of other instances for their marks; until they answer, no task of theirs is at its end.

        Call it before a thread begins to read lanes, in any thread.
        """
        self.board.ask()
        self._asked += 1
        self._consumer.wakeup()

    def close(self) -> None:
        """Stop the thread."""
        self.thread.close()
        self._producer.abandon()

    # --- inside ---------------------------------------------------------------------------

    def run_once(self, timeout_ms: int) -> None:
        """Write the question that threads have asked, and read records; one iteration of the thread's loop.

        Raises:
            ForeignFormatError: a record is not in the format of this release.
            WakeupError: a thread asks, or the reader is being closed.
        """
        if self.board.must_ask:
            self.ask()
        if self._written != self._asked:
            self._write()
        try:
            polled = self._consumer.poll_blocks(timeout_ms)
        except OffsetOutOfRangeError as error:
            # This process was stopped for longer than records are kept.
            log.warning("%s: continues at the end of topic %r: %s", self.name, self._partition.topic, error)
            self._seek_to_end()
            self.ask()
            return
        for block in polled.get(self._partition, ()):
            self._read(block)

    def _seek_to_end(self) -> None:
        self._consumer.seek_to_end([self._partition])
        # Otherwise the end is only looked up when the first record is read.
        self._consumer.position(self._partition)

    def _write(self) -> None:
        question = self._asked
        record = ProgressRecord(self.name, question=question)
        self._producer.send_block(self._partition, record.block(self._clock.now_ms()))
        try:
            self._producer.flush()
        except RequestTimeoutError as error:
            # Tried again, as the threads of the instance do; meanwhile what others say does not count.
            log.warning("%s: cannot ask for the progress of other instances: %s", self.name, error)
            return
        self._written = question

    def _read(self, block: Block) -> None:
        now_ms = self._clock.monotonic_ms()
        for offset, value in zip(block.offsets, block.values, strict=True):
            record = ProgressRecord.decode(value, self._partition, offset)
            if record.member == self.name:
                if record.question == self._asked:
                    self.board.hear()
            elif record.question:
                self.board.answer()
            else:
                self.board.add(record.member, record.generation, record.marks, now_ms)
