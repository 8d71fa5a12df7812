"""A user's storage, watched: whatever it raises or gets wrong becomes a named error.

The broker's own storages raise errors of the system and of damaged bytes, which are known
above.  A storage of the user's may raise anything, and might say that it has kept what it has
not; nothing of that may stop the broker, or be acknowledged.  Under ``log``.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from attrs import define

from streams.broker.steps import Keep, Steps
from streams.broker.storage import CompactableStorage, GradualStorage, LogExtent, LogStorage
from streams.core.errors import BrokerError
from streams.core.records import Block, TopicPartition
from streams.protocol.messages import ErrorCode

T = TypeVar("T")
S = TypeVar("S", bound=LogStorage)


@define(eq=False)
class GuardedStorage(Generic[S]):
    """The verbs of a storage, each with its errors named."""

    inner: S
    partition: TopicPartition

    @property
    def start_offset(self) -> int:
        """Lowest offset that may be read."""
        return self.inner.start_offset

    @property
    def end_offset(self) -> int:
        """Offset that the next record gets."""
        return self.inner.end_offset

    def append(self, block: Block) -> int:
        """Append, and see that the records got the next offsets."""
        base = self.inner.end_offset
        returned = self._named("append to", lambda: self.inner.append(block))
        end = self.inner.end_offset
        if returned != base or end != base + len(block):
            raise self._error(
                "append to",
                f"{len(block)} records at offset {base} were to end at {base + len(block)}, "
                f"it answers {returned!r} and ends at {end!r}",
            )
        return base

    def read(self, offset: int, max_records: int) -> list[Block]:
        """Return records."""
        return self._named("read", lambda: self.inner.read(offset, max_records))

    def truncate_before(self, offset: int) -> None:
        """Make ``offset`` the start, and see that a log that ended before it ends there."""
        self._named("truncate", lambda: self.inner.truncate_before(offset))
        if self.inner.end_offset < offset:
            raise self._error("truncate", f"it was to begin at {offset}, it ends at {self.inner.end_offset}")

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return the first record at or after the time."""
        return self._named("find a time in", lambda: self.inner.offset_for_timestamp(timestamp_ms))

    def extents(self) -> Sequence[LogExtent]:
        """Return what can be dropped as a whole."""
        return self._named("list the extents of", self.inner.extents)

    def flush(self) -> None:
        """Make what was appended durable."""
        self._named("flush", self.inner.flush)

    def close(self) -> None:
        """Close."""
        self._named("close", self.inner.close)

    def delete(self) -> None:
        """Remove the records for good."""
        self._named("delete", self.inner.delete)

    def _named(self, action: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except BrokerError:
            raise
        except Exception as error:
            raise self._error(action, repr(error)) from error

    def _error(self, action: str, reason: str) -> BrokerError:
        return BrokerError(
            f"the storage of topic {self.partition.topic!r} failed to {action} {self.partition}: {reason}; "
            "see to it, then try again",
            code=ErrorCode.STORAGE_ERROR,
        )


@define(eq=False)
class GuardedCompactableStorage(GuardedStorage[CompactableStorage]):
    """The same for a storage that can be compacted."""

    @property
    def sealed_offset(self) -> int:
        """Compaction may touch records below this offset."""
        return self.inner.sealed_offset

    def compact(self, upto: int, keep: Callable[[Block], Block | None]) -> int:
        """Thin out what lies below ``upto``."""
        return self._named("compact", lambda: self.inner.compact(upto, keep))


@define(eq=False)
class GuardedGradualStorage(GuardedCompactableStorage):
    """The same for a storage that is compacted in steps."""

    def compaction(self, upto: int, keep: Keep) -> Steps[int]:
        """Thin out what lies below ``upto``, in steps."""
        assert isinstance(self.inner, GradualStorage)
        steps = self.inner.compaction(upto, keep)
        end: list[int] = []

        def step() -> int:
            try:
                return next(steps)
            except StopIteration as stop:
                end.append(stop.value)
                return 0

        while not end:
            seen = self._named("compact", step)
            if not end:
                yield seen
        return end[0]


def guarded(
    inner: LogStorage, partition: TopicPartition
) -> GuardedStorage[LogStorage] | GuardedStorage[CompactableStorage]:
    """Return a watched storage.

    Raises:
        BrokerError: it lacks a verb that every storage needs.
    """
    missing = sorted(verb for verb in _VERBS if not hasattr(inner, verb))
    if missing:
        raise BrokerError(
            f"the storage made for {partition} is a {type(inner).__qualname__} without {', '.join(missing)}: "
            "see LogStorage for what a storage has",
            code=ErrorCode.STORAGE_ERROR,
        )
    if isinstance(inner, GradualStorage):
        return GuardedGradualStorage(inner, partition)
    if isinstance(inner, CompactableStorage):
        return GuardedCompactableStorage(inner, partition)
    return GuardedStorage(inner, partition)


_VERBS = (
    "start_offset",
    "end_offset",
    "append",
    "read",
    "truncate_before",
    "offset_for_timestamp",
    "extents",
    "flush",
    "close",
    "delete",
)
