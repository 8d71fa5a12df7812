"""A wrapper of a sink that fails at one step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from attrs import define, field

from streams.connect import Guarantee, SinkBlock, SinkConnector, SinkFencedError
from streams.core.clock import SystemClock
from streams.core.topic import Topic
from streams.testing.kit.worker_faults import PassingError, WorkerFault


class SinkStep(StrEnum):
    """The step at which a worker is killed, fails with an error, or is replaced by another worker."""

    BEFORE_OPEN = "before open"
    AFTER_OPEN = "after open"
    BEFORE_WRITE = "before write"
    AFTER_WRITE = "after write"
    BEFORE_COMMIT = "before commit"
    #: At a random moment of the commit; only by processes.
    WITHIN_COMMIT = "within commit"
    #: The sink has committed, and the worker does not know.
    AFTER_COMMIT = "after commit"
    #: After an error of a write.
    BEFORE_ABORT = "before abort"
    AFTER_ABORT = "after abort"
    #: A write, a commit or an opening fails with a passing error, and the worker goes on.
    ERROR_BEFORE_OPEN = "error before open"
    ERROR_AFTER_OPEN = "error after open"
    ERROR_BEFORE_WRITE = "error before write"
    ERROR_AFTER_WRITE = "error after write"
    ERROR_BEFORE_COMMIT = "error before commit"
    ERROR_AFTER_COMMIT = "error after commit"
    #: Another worker has written the same blocks meanwhile: this one is a zombie.
    OVERTAKEN_BEFORE_WRITE = "overtaken before write"
    OVERTAKEN_BEFORE_COMMIT = "overtaken before commit"
    #: A second worker joins the group, and the first is killed before a commit.
    REASSIGNED = "reassigned"

    @property
    def point(self) -> str:
        """The method call of the worker at which the step begins."""
        if self in (SinkStep.BEFORE_ABORT, SinkStep.AFTER_ABORT):
            return SinkStep.BEFORE_WRITE
        if self in (SinkStep.WITHIN_COMMIT, SinkStep.REASSIGNED):
            return SinkStep.BEFORE_COMMIT
        return self.removeprefix("error ").removeprefix("overtaken ")

    @property
    def is_takeover(self) -> bool:
        """Whether another worker writes the blocks."""
        return self.startswith("overtaken")


@define(eq=False)
class SinkFault(WorkerFault[SinkStep]):
    """A fault of a sink; a kill within a commit is after ``fraction`` of the duration of the last one."""

    fraction: float = 0
    #: Whether the step may come; before that, occurrences are not counted.
    is_armed: bool = field(default=True, init=False)


@define(eq=False)
class FaultySink:
    """Passes calls to a sink until the fault occurs."""

    inner: SinkConnector[Any, Any]
    fault: SinkFault
    make: Callable[[], SinkConnector[Any, Any]]
    #: Whether the sink raised ``SinkFencedError``.
    was_fenced: bool = field(default=False, init=False)
    #: Whether the other worker could not write, as with a sink that holds a lock from its first write on.
    was_locked: bool = field(default=False, init=False)
    partitions: Sequence[int] = field(default=(), init=False)
    _opened: tuple[str, Topic[Any, Any]] | None = field(default=None, init=False)
    _blocks: list[SinkBlock[Any, Any]] = field(factory=list, init=False)
    #: The time of the last commit in milliseconds.
    _commit_ms: float = field(default=5.0, init=False)

    @property
    def guarantee(self) -> Guarantee:
        return self.inner.guarantee

    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        self._at(SinkStep.BEFORE_OPEN)
        self._blocks.clear()
        stored = self.inner.open(connector, topic, partitions)
        self._opened = (connector, topic)
        self.partitions = list(partitions)
        self._at(SinkStep.AFTER_OPEN)
        return stored

    def write(self, block: SinkBlock[Any, Any]) -> None:
        if not self._blocks or not self.fault.step.is_takeover:
            self._at(SinkStep.BEFORE_WRITE, block)
        with self._noted():
            self.inner.write(block)
        self._blocks.append(block)
        self._at(SinkStep.AFTER_WRITE)

    def commit(self) -> None:
        self._at(SinkStep.BEFORE_COMMIT)
        began = SystemClock().monotonic_ms()
        with self._noted():
            self.inner.commit()
        self._commit_ms = max(1.0, SystemClock().monotonic_ms() - began)
        self._blocks.clear()
        self._at(SinkStep.AFTER_COMMIT)

    def abort(self) -> None:
        self.fault.check()
        if self.fault.has_happened and self.fault.step is SinkStep.BEFORE_ABORT:
            self.fault.kill()
        self.inner.abort()
        self._blocks.clear()
        if self.fault.has_happened and self.fault.step is SinkStep.AFTER_ABORT:
            self.fault.kill()

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error is a ``PassingError``, or retriable for the wrapped sink."""
        return self.fault.is_retriable(error, otherwise=self.inner.is_retriable(error))

    def close(self) -> None:
        """Close the sink, as the operating system does when a process ends."""
        self.inner.close()

    # --- faults -----------------------------------------------------------------------

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except SinkFencedError:
            self.was_fenced = True
            raise

    def _at(self, point: SinkStep, *blocks: SinkBlock[Any, Any]) -> None:
        """Cause the fault if it is due at this point; ``blocks`` are the blocks about to be written."""
        fault = self.fault
        if not fault.is_armed or not fault.is_due(point, fault.step.point):
            return
        step = fault.step
        if step.startswith("error") or step in (SinkStep.BEFORE_ABORT, SinkStep.AFTER_ABORT):
            raise PassingError(step)
        if step.is_takeover:
            self._overtake([*self._blocks, *blocks])
        elif step is SinkStep.WITHIN_COMMIT:
            fault.kill_later(int(fault.fraction * self._commit_ms))
        else:
            fault.kill()

    def _overtake(self, blocks: Sequence[SinkBlock[Any, Any]]) -> None:
        """Write the blocks with another sink, as a worker does that has taken over the partitions."""
        assert self._opened is not None, "a commit comes after an opening"
        connector, topic = self._opened
        other = self.make()
        try:
            other.open(connector, topic, self.partitions)
            for block in blocks:
                other.write(block)
            other.commit()
        except Exception as error:
            self.was_locked = other.is_retriable(error)
            if not self.was_locked:
                raise
        finally:
            other.close()
