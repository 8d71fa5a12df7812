"""The consumer in coroutines: all its work runs on one thread, and no call blocks the event loop.

A call that comes while the thread polls wakes it, so that a commit does not wait for records.  Records that were
polled stay in the consumer until a coroutine takes them: a cancelled ``async for`` loses none.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from streams.clients.consumer.topic_subscription import Topics
from streams.clients.errors import WakeupError
from streams.clients.records import GroupMetadata
from streams.core.blocks.records import ConsumerRecord, TopicPartition
from streams.core.concurrency.event_loops import LoopCalls
from streams.core.errors import ClientClosedError
from streams.core.topic import Topic
from streams.protocol.group_messages import OffsetAndMetadata

T = TypeVar("T")

# Longest poll for iteration; a call wakes it.
_POLL_MS: Final = 60_000


class BlockingConsumer(Protocol):
    """The methods of a ``Consumer`` that an ``AsyncConsumer`` calls."""

    @property
    def group_metadata(self) -> GroupMetadata:
        """The group metadata."""
        ...

    def subscribe(self, topics: Any, listener: Any = None) -> None:
        """Subscribe to topics."""
        ...

    def assign(self, partitions: Iterable[TopicPartition], topics: Iterable[Topic[Any, Any]] = ()) -> None:
        """Assign partitions."""
        ...

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        ...

    def partitions_for(self, topic: str, timeout_ms: int | None = None) -> list[TopicPartition]:
        """Return the partitions of a topic."""
        ...

    def read_ahead(self, timeout_ms: int) -> None:
        """Poll records for ``next_record``."""
        ...

    def next_record(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record, without waiting."""
        ...

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position."""
        ...

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the position."""
        ...

    def commit_sync(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None, timeout_ms: int | None = None
    ) -> None:
        """Commit offsets."""
        ...

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets."""
        ...

    def wakeup(self) -> None:
        """End the current poll."""
        ...

    def close(self, timeout_ms: int = 30_000) -> None:
        """Close the consumer."""
        ...


class AsyncConsumer:
    """A consumer in coroutines, which ``async with Consumer(...) as consumer`` returns.

    The methods are those of ``Consumer``, with the same arguments and errors; ``call`` reaches the others.  Heartbeats
    are sent in the background; one task iterates, others may commit meanwhile.
    """

    def __init__(self, consumer: BlockingConsumer, name: str) -> None:
        self._consumer = consumer
        self._calls = LoopCalls(f"{name}-calls")
        self._is_polling = self._is_closed = False
        #: Calls that have not begun, for which a poll ends early.
        self._waiting: set[object] = set()

    async def subscribe(self, topics: Topics, listener: Any = None) -> None:
        """Subscribe to topics; see ``Consumer.subscribe``.  Methods of the listener run on the consumer's thread."""
        await self.call(partial(self._consumer.subscribe, topics, listener))

    async def assign(self, partitions: Iterable[TopicPartition], topics: Iterable[Topic[Any, Any]] = ()) -> None:
        """Assign partitions manually; see ``Consumer.assign``."""
        await self.call(partial(self._consumer.assign, partitions, topics))

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        return self._consumer.assignment()

    async def partitions_for(self, topic: str, timeout_ms: int | None = None) -> list[TopicPartition]:
        """Return the partitions of a topic; the list is empty if the topic does not exist."""
        return await self.call(partial(self._consumer.partitions_for, topic, timeout_ms))

    async def group_metadata(self) -> GroupMetadata:
        """Return the group metadata, to pass to ``AsyncProducer.send_offsets_to_transaction``."""
        return await self.call(lambda: self._consumer.group_metadata)

    def __aiter__(self) -> "AsyncConsumer":
        """Iterate over records until the consumer is closed; a record counts as consumed when it is returned."""
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        """Wait for the next record and return it; if the task is cancelled, the record stays for the next call."""
        while not self._is_closed:
            # Only while the thread is idle: it works with the same records.
            record = self._consumer.next_record() if self._calls.is_idle else None
            if record is not None:
                return record
            await self._read_ahead(_POLL_MS)
        raise StopAsyncIteration

    async def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord[Any, Any]]:
        """Return records as soon as there are any; the list is empty after the timeout, or if another task calls.

        If the task is cancelled, the records stay for the next call.  The errors are those of ``Consumer.poll``.
        """
        await self._read_ahead(timeout_ms)
        return list(iter(self._consumer.next_record, None)) if self._calls.is_idle else []

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position in a partition; see ``Consumer.seek``."""
        await self.call(partial(self._consumer.seek, partition, offset))

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record; see ``Consumer.position``."""
        return await self.call(partial(self._consumer.position, partition, timeout_ms))

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None, timeout_ms: int | None = None
    ) -> None:
        """Commit offsets, by default the positions after the returned records; see ``Consumer.commit_sync``."""
        await self.call(partial(self._consumer.commit_sync, offsets, timeout_ms))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; see ``Consumer.committed``."""
        return await self.call(partial(self._consumer.committed, partitions, timeout_ms))

    async def call(self, function: Callable[[], T], *, is_certain: bool = False) -> T:
        """Run a function on the thread of the consumer, such as ``partial(blocking_consumer.pause, partitions)``.

        A poll in progress ends early.  A function that has begun is not cancelled with the task; one that has not
        is, unless ``is_certain``.
        """
        # Announced before the poll is looked at: a poll that begins now sees it.
        ticket = object()
        self._waiting.add(ticket)
        if self._is_polling:
            self._consumer.wakeup()
        try:
            return await self._calls.call(partial(self._undisturbed, function, ticket), is_certain=is_certain)
        finally:
            self._waiting.discard(ticket)

    async def close(self, timeout_ms: int = 30_000) -> None:
        """Close the consumer, and end ``async for``; see ``Consumer.close``.

        A cancelled task leaves the closing to a thread.
        """
        self._is_closed = True
        try:
            await self.call(partial(self._consumer.close, timeout_ms), is_certain=True)
        finally:
            self._calls.close()

    # --- inside -----------------------------------------------------------------------

    async def _read_ahead(self, timeout_ms: int) -> None:
        """Poll on the thread; end the poll if the task is cancelled."""
        from asyncio import CancelledError

        try:
            await self._calls.call(partial(self._poll, timeout_ms))
        except CancelledError:
            if self._is_polling:
                self._consumer.wakeup()
            raise

    def _poll(self, timeout_ms: int) -> None:
        self._is_polling = True
        try:
            if not self._waiting:
                self._consumer.read_ahead(timeout_ms)
        except WakeupError:
            return  # Another call waits, or the task was cancelled.
        except ClientClosedError:
            if not self._is_closed:
                raise
        finally:
            self._is_polling = False

    def _undisturbed(self, function: Callable[[], T], ticket: object) -> T:
        self._waiting.discard(ticket)
        while True:
            try:
                return function()
            except WakeupError:
                continue  # Meant for a poll that had ended.
