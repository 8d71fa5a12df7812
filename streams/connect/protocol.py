"""The interfaces of connectors: a sink writes blocks of a topic to a target, a source reads them from a system.

A worker (``SinkWorker``, ``SourceWorker``) owns the clients, the loop and the retries; a connector owns the access to
one system, and nothing else.  All calls come from one thread.  Connectors never get a call per record.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from attrs import frozen

from streams.core.blocks.records import Headers
from streams.core.topic import Topic

K = TypeVar("K")
V = TypeVar("V")

#: A position in a source: anything that JSON can represent.
Position: TypeAlias = Any


class Guarantee(StrEnum):
    """The delivery guarantee of a sink after a worker was killed and another one has taken over."""

    #: The target stores the position in the same transaction as the rows.
    EXACTLY_ONCE = "exactly_once"
    #: Rows may be written again, but by their key, so that the target ends up with the same rows.
    IDEMPOTENT = "idempotent"
    #: Rows may be there twice.
    AT_LEAST_ONCE = "at_least_once"


@frozen(eq=False)
class SinkBlock(Generic[K, V]):
    """Deserialized records of one partition, as columns of equal length, in ascending order of offset.

    A block may be empty, if none of its records could be deserialized; its position counts nevertheless.

    A value of None is a tombstone.  ``headers`` is None if no record of the block has headers.  ``timestamps_ms`` are
    event times in epoch milliseconds.  ``next_offset`` is the position after the block; it can be larger than the last
    offset plus one, since transaction markers have offsets too.
    """

    topic: Topic[K, V]
    partition: int
    offsets: Sequence[int]
    keys: Sequence[K]
    values: Sequence[V | None]
    timestamps_ms: Sequence[int]
    headers: Sequence[Headers] | None
    next_offset: int

    def __len__(self) -> int:
        return len(self.offsets)


class SinkConnector(Protocol[K, V]):
    """Writes records of one topic to a target.

    A worker calls ``open`` for the partitions it was assigned, then ``write`` and ``commit`` repeatedly, and
    ``close`` at the end.  After any error, it calls ``abort``.  If ``is_retriable`` returns True for it, the worker
    then calls ``open`` again and reads from the positions that this returns, since an unacknowledged commit may have
    succeeded.  When the assignment changes, it commits and calls ``open`` with the new partitions, possibly none.
    """

    @property
    def guarantee(self) -> Guarantee:
        """The delivery guarantee of the sink; the worker logs it when it starts."""

    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        """Prepare to write these partitions; return the next offset of each partition whose position is in the target.

        ``connector`` is the name under which the target stores positions.  The worker reads a partition from the
        returned offset, or if there is none, from the committed offset of the group ``connector``.  A sink
        that was open before keeps or renews its connections; blocks that were written but not committed are dropped.

        Raises:
            ConfigError: the target does not fit the topic's types; the message says what, where and what to do.
        """

    def write(self, block: SinkBlock[K, V]) -> None:
        """Write a block; it becomes visible and durable with the next ``commit``."""

    def commit(self) -> None:
        """Make all written blocks durable, with the position after them if the sink is exactly-once.

        An exactly-once sink checks in the same transaction that the stored position is the one at which it began, so
        that a worker that was replaced meanwhile is fenced.

        Raises:
            SinkFencedError: another worker has written to one of the partitions since ``open``.
        """

    def abort(self) -> None:
        """Drop all blocks written since the last ``commit``; called after any error, also one of ``commit``."""

    def is_retriable(self, error: Exception) -> bool:
        """Whether the worker should try again after this error, with backoff, instead of stopping."""

    def close(self) -> None:
        """Release connections and files, without a commit; called once at the end, also if ``open`` failed."""


@frozen(eq=False)
class SourceBlock(Generic[K, V]):
    """Records of one partition of a source, as columns of equal length, with the position after them.

    A block without records only moves the position.  A position of None forgets the partition.

    ``timestamps_ms`` are event times in epoch milliseconds; None for those of ``Topic(timestamp=...)``, or else the
    time at which the worker reads the block.  ``headers`` is None if no record has headers.  With ``is_serialized``,
    keys and values are bytes in the form of the topic's serdes.  With ``has_more``, the block belongs to the
    transaction of the blocks that the next ``poll`` returns, so that all of them become visible at once; the whole has
    to be read within ``transaction_timeout_ms`` of the worker.  The worker adds ``skipped``, rows and files that the
    source has left out, and ``lost``, places at which data may be missing, to its progress.
    """

    partition: str
    position: Position
    keys: Sequence[K]
    values: Sequence[V | None]
    timestamps_ms: Sequence[int] | None = None
    headers: Sequence[Headers] | None = None
    is_serialized: bool = False
    has_more: bool = False
    skipped: int = 0
    lost: int = 0

    def __len__(self) -> int:
        return len(self.values)


class SourceConnector(Protocol[K, V]):
    """Reads a system into one topic.

    A worker calls ``open`` with the stored positions, then ``poll`` repeatedly.  It writes each block and its
    position in one transaction, and then calls ``committed``.  So a block is in the topic exactly once if the source
    returns the same records after the same position.  After an error for which ``is_retriable`` returns True, the
    worker calls ``close`` and then ``open`` with the stored positions again.
    """

    def open(self, connector: str, topic: Topic[Any, Any], positions: Mapping[str, Position]) -> None:
        """Start after these positions, by partition of the source; without a position, start at the beginning.

        ``connector`` is the name of the worker, ``topic`` the topic that it writes.

        Raises:
            ConfigError: the source does not fit the topic's types; the message says what, where and what to do.
        """

    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[K, V]]:
        """Return the next blocks, waiting at most ``timeout_ms`` for the first; none if there is nothing new."""

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Called when all records up to these positions are in the topic: the system may discard them."""

    def is_retriable(self, error: Exception) -> bool:
        """Whether the worker should open the source again after this error, with backoff, instead of stopping."""

    def wakeup(self) -> None:
        """Make a waiting ``poll`` return; the only method that is called from another thread."""

    def close(self) -> None:
        """Release connections and files."""
