"""What a producer returns at once: the promise of a place in the log.  Imports core only."""

from collections.abc import Callable
from typing import Protocol

from streams.core.errors import BrokerError, ConfigError
from streams.core.records import Block, RecordMetadata, TopicPartition
from streams.core.user_code import refuse_result, refuse_unawaited


class DeliveryDriver(Protocol):
    """Whoever can get deliveries done: the producer."""

    def await_delivery(self, delivery: "Delivery", timeout_ms: int | None) -> None:
        """Send and receive until the delivery is done."""
        ...


class Delivery:
    """A record, or a block of them, on its way; a future without threads of its own.

    Waiting for the ``result`` drives the producer, so that no background work is needed.
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
        #: Takes what the broker refuses of a block, record by record, and what it does not take in time.
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
        """Whether it is acknowledged or has failed."""
        return self._is_done

    def result(self, timeout_ms: int | None = None) -> RecordMetadata:
        """Wait and return the place in the log; of a block, that of its first record.

        Raises:
            RecordTooLargeError, UnknownTopicError, BrokerError: it was refused.
            RequestTimeoutError: nothing is known in time.
        """
        error = self.exception(timeout_ms)
        if error is not None:
            raise error
        return RecordMetadata(self.partition.topic, self.partition.partition, self._offset)

    def base_offset(self, timeout_ms: int | None = None) -> int:
        """Wait and return the offset of the first record."""
        return self.result(timeout_ms).offset

    def exception(self, timeout_ms: int | None = None) -> BrokerError | None:
        """Wait and return why it has failed, None if it has not."""
        if not self._is_done:
            self._driver.await_delivery(self, timeout_ms)
        return self._error

    def add_done_callback(self, callback: Callable[["Delivery"], None]) -> None:
        """Have a function called when it is done, by whichever thread drives the producer; at once if it is.

        Raises:
            ConfigError: the function is async or a generator, which nobody would run.
        """
        refuse_unawaited(callback, "callback of a delivery", error=ConfigError)
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)
        # Looked at after the callback is in: who takes it out calls it, this thread or the driving one.
        if self._is_done:
            self._call_back()

    def divide(self, parts: int) -> None:
        """Tell that it is acknowledged in so many parts, which were one; the producer's to call."""
        self._parts += parts - 1

    def fulfil(self, offset: int) -> None:
        """Tell that it, or a part of it, is acknowledged at an offset; the producer's to call."""
        if self._is_done:
            return
        # The first record's place is that of the block; parts may be acknowledged in any order.
        self._offset = offset if self._offset < 0 else min(self._offset, offset)
        self._parts -= 1
        if self._parts:
            return
        self._is_done = True
        if self._callbacks is not None:
            self._call_back()

    def fail(self, error: BrokerError) -> None:
        """Tell that it, or a part of it, has failed; the producer's to call."""
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
            refuse_result(callback(self), "callback of a delivery")
