"""The future returned by a producer, which resolves to the offset of a record or block of records.

Of the other packages, this module imports only ``core``.
"""

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol

from streams.core.blocks.records import Block, RecordMetadata, TopicPartition
from streams.core.concurrency.event_loops import settle
from streams.core.errors import BrokerError, ConfigError
from streams.core.user_code import refuse_result, refuse_unawaited

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)


class DeliveryDriver(Protocol):
    """The part of a producer that drives its requests until deliveries are completed."""

    def await_delivery(self, delivery: "Delivery", timeout_ms: int | None) -> None:
        """Drive the producer until ``delivery`` is done or the timeout expires."""
        ...

    def ensure_driven(self) -> None:
        """Let a background thread drive the producer."""
        ...


class Delivery:
    """A future for a record or a block of records that was sent.

    Waiting for ``result`` drives the producer, so no background thread is needed.  In a coroutine, ``await delivery``
    returns and raises the same without blocking the event loop.
    """

    __slots__ = (
        "_callbacks",
        "_driver",
        "_error",
        "_is_done",
        "_offset",
        "_parts",
        "on_refused",
        "partition",
        "sequence",
    )

    def __init__(
        self,
        driver: DeliveryDriver,
        partition: TopicPartition,
        sequence: int,
        on_refused: "Callable[[Block, BrokerError], None] | None" = None,
    ) -> None:
        #: Called with the records of a block that the broker rejects or does not accept in time, and the error.
        self.on_refused = on_refused
        self.partition = partition
        self.sequence = sequence
        self._driver = driver
        self._offset = -1
        self._error: BrokerError | None = None
        self._is_done = False
        self._callbacks: list[Callable[[Delivery], None]] | None = None
        self._parts = 1

    def done(self) -> bool:
        """Whether the record or block is acknowledged or has failed."""
        return self._is_done

    def result(self, timeout_ms: int | None = None) -> RecordMetadata:
        """Wait, and return the topic, partition and offset of the record, or of the first record in a block.

        Raises:
            RecordTooLargeError, UnknownTopicError, BrokerError: the broker rejected the record.
            RequestTimeoutError: no response came in time.
        """
        error = self.exception(timeout_ms)
        if error is not None:
            raise error
        return RecordMetadata(self.partition.topic, self.partition.partition, self._offset)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Wait in a coroutine; see ``result``.  A record whose wait is cancelled is written nevertheless."""
        from asyncio import CancelledError, get_running_loop

        if not self._is_done:
            acknowledged: asyncio.Future[RecordMetadata] = get_running_loop().create_future()
            self.add_done_callback(lambda done: settle(acknowledged, done.result))
            self._driver.ensure_driven()
            try:
                return (yield from acknowledged)
            except CancelledError as error:
                error.add_note(f"the record for {self.partition} was sent: it is, or will be, written unless it fails")
                raise
        return self.result()

    def base_offset(self, timeout_ms: int | None = None) -> int:
        """Wait, and return the offset of the record, or of the first record in a block."""
        return self.result(timeout_ms).offset

    def exception(self, timeout_ms: int | None = None) -> BrokerError | None:
        """Wait, and return the error of the delivery, or None on success."""
        if not self._is_done:
            self._driver.await_delivery(self, timeout_ms)
        return self._error

    def add_done_callback(self, callback: Callable[["Delivery"], None]) -> None:
        """Call ``callback`` on the thread that drives the producer when the delivery is done, or now if it already is.

        An error of the callback is logged: who waits for this delivery or sends another one must not get it.

        Raises:
            ConfigError: ``callback`` is async or a generator function, which would never run.
        """
        refuse_unawaited(callback, "callback of a delivery", error=ConfigError)
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)
        # Check after adding the callback.  The thread that removes the callback, this one or the driving one, calls it.
        if self._is_done:
            self._call_back()

    def divide(self, parts: int) -> None:
        """Expect ``parts`` acknowledgements instead of one; called by the producer."""
        self._parts += parts - 1

    def fulfil(self, offset: int) -> None:
        """Acknowledge the delivery, or a part of it, at ``offset``; called by the producer."""
        if self._is_done:
            return
        # The result is the lowest offset; parts may be acknowledged in any order.
        self._offset = offset if self._offset < 0 else min(self._offset, offset)
        self._parts -= 1
        if self._parts:
            return
        self._is_done = True
        if self._callbacks is not None:
            self._call_back()

    def fail(self, error: BrokerError) -> None:
        """Fail the delivery, even if only a part of it has failed; called by the producer."""
        if self._is_done:
            return
        self._error = error
        self._is_done = True
        if self._callbacks is not None:
            self._call_back()

    def _call_back(self) -> None:
        callbacks = self._callbacks
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:
                return
            try:
                result = callback(self)
            except Exception:
                log.exception("a callback of the delivery to %s has failed", self.partition)
                continue
            refuse_result(result, "callback of a delivery")
