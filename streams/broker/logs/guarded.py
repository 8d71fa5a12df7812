"""Wrapper of a user-defined storage that converts exceptions and wrong results to ``STORAGE_ERROR``.

Built-in storages raise operating system errors and errors for damaged bytes, which their callers handle.
A user-defined storage may raise any exception, which must not stop the broker.  Its ``append`` may also return
without having stored the records; such an append must not be acknowledged.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from attrs import define

from streams.broker.logs.steps import Keep, Steps
from streams.broker.logs.storage import CompactableStorage, GradualStorage, LogExtent, LogStorage, storage_error
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode

T = TypeVar("T")
S = TypeVar("S", bound=LogStorage)


@define(eq=False)
class GuardedStorage(Generic[S]):
    """A wrapper of a storage that converts exceptions to ``BrokerError`` and checks results."""

    inner: S
    partition: TopicPartition

    @property
    def start_offset(self) -> int:
        return self.inner.start_offset

    @property
    def end_offset(self) -> int:
        return self.inner.end_offset

    def append(self, block: Block) -> int:
        """Append a block of records, and check that the records were assigned the next offsets."""
        base = self.inner.end_offset
        returned = self._named("append to", lambda: self.inner.append(block))
        end = self.inner.end_offset
        if returned != base or end != base + len(block):
            raise self._error(
                "append to",
                f"{len(block)} records at offset {base} were to end at {base + len(block)}, "
                f"it returned {returned!r} and ends at {end!r}",
            )
        return base

    def read(self, offset: int, max_records: int) -> list[Block]:
        return self._named("read", lambda: self.inner.read(offset, max_records))

    def truncate_before(self, offset: int) -> None:
        """Make ``offset`` the start of the log, and check that the log does not end before this offset."""
        self._named("truncate", lambda: self.inner.truncate_before(offset))
        if self.inner.end_offset < offset:
            raise self._error("truncate", f"it was to begin at {offset}, it ends at {self.inner.end_offset}")

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        return self._named("find a time in", lambda: self.inner.offset_for_timestamp(timestamp_ms))

    def extents(self) -> Sequence[LogExtent]:
        return self._named("list the extents of", self.inner.extents)

    def flush(self) -> None:
        self._named("flush", self.inner.flush)

    def close(self) -> None:
        """Close the wrapped storage."""
        self._named("close", self.inner.close)

    def delete(self) -> None:
        """Delete the records of the wrapped storage."""
        self._named("delete", self.inner.delete)

    def _named(self, action: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except BrokerError:
            raise
        except Exception as error:
            raise storage_error(action, self.partition, error) from error

    def _error(self, action: str, reason: str) -> BrokerError:
        return BrokerError(
            f"the storage of topic {self.partition.topic!r} failed to {action} {self.partition}: {reason}; "
            "fix the storage, then retry",
            code=ErrorCode.STORAGE_ERROR,
        )


@define(eq=False)
class GuardedCompactableStorage(GuardedStorage[CompactableStorage]):
    """A guarded storage that can be compacted."""

    @property
    def sealed_offset(self) -> int:
        return self.inner.sealed_offset

    def compact(self, upto: int, keep: Callable[[Block], Block | None]) -> int:
        return self._named("compact", lambda: self.inner.compact(upto, keep))


@define(eq=False)
class GuardedGradualStorage(GuardedCompactableStorage):
    """A guarded storage that is compacted in steps."""

    def compaction(self, upto: int, keep: Keep) -> Steps[int]:
        """Compact the records below ``upto``, in steps."""
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
    """Wrap a user-defined storage, so that its errors do not stop the broker.

    Raises:
        BrokerError: the storage lacks a required method.
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
