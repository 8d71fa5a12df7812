"""The producer in coroutines: no call blocks the event loop.

Records go directly to the producer's buffer, and its background thread sends them.  Work that may block (room in
the buffer, the metadata of a topic, the first serialization, which may ask a schema registry) runs on a thread of its
own, in order.  Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar, overload

from streams.clients.producer.delivery import Delivery
from streams.clients.records import GroupMetadata
from streams.core.arguments import NOT_GIVEN
from streams.core.blocks.records import RecordMetadata, TopicPartition
from streams.core.concurrency.event_loops import LoopCalls
from streams.core.topic import Topic
from streams.protocol.group_messages import OffsetAndMetadata

K = TypeVar("K")
V = TypeVar("V")


class BlockingProducer(Protocol):
    """The methods of a ``Producer`` that an ``AsyncProducer`` calls."""

    def send(
        self,
        topic: Any,
        value: Any,
        *,
        key: Any = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> Delivery:
        """Send a record, waiting for room in the buffer."""
        ...

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until all records are acknowledged."""
        ...

    def close(self, timeout_ms: int | None = None) -> None:
        """Flush and close."""
        ...

    def init_transactions(self) -> None:
        """Take over the transactional id."""
        ...

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: GroupMetadata
    ) -> None:
        """Commit offsets with the transaction."""
        ...

    def transaction(self) -> AbstractContextManager[object]:
        """Begin a transaction; commit it at the end of the block, or abort it if the block raises."""
        ...


class AsyncProducer:
    """A producer in coroutines, which ``async with Producer(...) as producer`` returns.

    The methods are those of ``Producer``, with the same arguments and errors.  They may be called from several tasks,
    and from several event loops.
    """

    def __init__(self, producer: BlockingProducer, may_block: Callable[[str], bool], name: str) -> None:
        self._producer = producer
        self._may_block = may_block
        self._calls = LoopCalls(f"{name}-calls")
        #: Topics to which a record was sent, so that their serdes know their schemas.
        self._described: set[str] = set()

    @overload
    async def send(
        self,
        topic: Topic[K, V],
        value: V | None,
        *,
        key: K | None = NOT_GIVEN,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> RecordMetadata: ...
    @overload
    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> RecordMetadata: ...
    async def send(self, topic: Any, value: Any, **options: Any) -> RecordMetadata:
        """Send a record, and return its topic, partition and offset when the broker has acknowledged it.

        If the task is cancelled, the record may be written; a note of the exception tells its state.  Records of
        several tasks are written in the order in which the tasks have called.

        Raises:
            RecordTooLargeError, UnknownTopicError, BrokerError: the broker rejected the record.
            Exception: see ``Producer.send``.
        """
        return await (await self.enqueue(topic, value, **options))

    @overload
    async def enqueue(
        self,
        topic: Topic[K, V],
        value: V | None,
        *,
        key: K | None = NOT_GIVEN,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> Delivery: ...
    @overload
    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> Delivery: ...
    async def enqueue(self, topic: Any, value: Any, **options: Any) -> Delivery:
        """Send a record, wait only until it has room in the buffer, and return its delivery, which can be awaited.

        Raises:
            RequestTimeoutError: the buffer has no room for the record within ``max_block_ms``.
            Exception: see ``Producer.send``.
        """
        name = topic.name if isinstance(topic, Topic) else topic
        send = partial(self._producer.send, topic, value, **options)
        if name in self._described and not self._may_block(name) and self._calls.is_idle:
            return send()
        from asyncio import CancelledError

        try:
            delivery = await self._calls.call(send)
        except CancelledError as error:
            error.add_note(f"the record for topic {name!r} was waiting to be sent: it may be written")
            raise
        self._described.add(name)
        return delivery

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until all records sent so far are acknowledged; see ``Producer.flush``."""
        await self._calls.call(partial(self._producer.flush, timeout_ms))

    async def close(self, timeout_ms: int | None = None) -> None:
        """Flush and close; see ``Producer.close``.  A cancelled task leaves the closing to a thread."""
        try:
            await self._calls.call(partial(self._producer.close, timeout_ms), is_certain=True)
        finally:
            self._calls.close()

    # --- transactions -----------------------------------------------------------------

    async def init_transactions(self) -> None:
        """Take over the transactional id; see ``Producer.init_transactions``."""
        await self._calls.call(self._producer.init_transactions)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: GroupMetadata
    ) -> None:
        """Commit a consumer's offsets with the transaction; see ``Producer.send_offsets_to_transaction``."""
        await self._calls.call(partial(self._producer.send_offsets_to_transaction, offsets, group_metadata))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["AsyncProducer"]:
        """Begin a transaction; commit it at the end of the block, or abort it if the block raises or is cancelled.

        Raises:
            TransactionError: the transaction could not be committed and was aborted.
            ProducerFencedError, RequestTimeoutError: see ``Producer.commit_transaction``.
        """
        scope = self._producer.transaction()
        try:
            await self._calls.call(scope.__enter__)
            yield self
        except BaseException as error:
            await self._calls.call(partial(scope.__exit__, type(error), error, error.__traceback__), is_certain=True)
            raise
        await self._calls.call(partial(scope.__exit__, None, None, None), is_certain=True)
