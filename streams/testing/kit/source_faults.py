"""Wrappers of a source and of a cluster that fail at one step."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

from attrs import define, frozen

from streams.connect import Position, SourceBlock, SourceConnector
from streams.core.topic import Topic
from streams.protocol.messages import EndTxn
from streams.protocol.request import Request
from streams.protocol.transport import Cluster, Connection
from streams.testing.kit.worker_faults import PassingError, WorkerFault


class SourceStep(StrEnum):
    """The step at which a worker is killed, or fails with an error."""

    BEFORE_OPEN = "before open"
    AFTER_OPEN = "after open"
    BEFORE_POLL = "before poll"
    #: The source has returned records, and none of them was sent.
    AFTER_POLL = "after poll"
    #: The records and the position were sent, and the transaction has not ended; only by processes.
    BEFORE_COMMIT = "before commit"
    #: At a random moment after the end of the transaction was requested; only by processes.
    WITHIN_COMMIT = "within commit"
    #: The records are in the topic, and the source does not know.
    BEFORE_COMMITTED = "before committed"
    AFTER_COMMITTED = "after committed"
    #: A call fails with a passing error, and the worker goes on.
    ERROR_BEFORE_OPEN = "error before open"
    ERROR_AFTER_OPEN = "error after open"
    ERROR_BEFORE_POLL = "error before poll"
    ERROR_AFTER_POLL = "error after poll"
    ERROR_BEFORE_COMMITTED = "error before committed"
    ERROR_AFTER_COMMITTED = "error after committed"

    @property
    def is_error(self) -> bool:
        """Whether the worker goes on after the step."""
        return self.startswith("error")

    @property
    def is_of_commit(self) -> bool:
        """Whether the step is within the worker's commit, where the source is not called."""
        return self in (SourceStep.BEFORE_COMMIT, SourceStep.WITHIN_COMMIT)


@define(eq=False)
class SourceFault(WorkerFault[SourceStep]):
    """A fault of a source; a kill within a commit is ``delay_ms`` after its request."""

    delay_ms: int = 0

    def at(self, point: SourceStep) -> None:
        """Fail if the fault is due at this point."""
        if not self.is_due(point, self.step.removeprefix("error ")):
            return
        if self.step.is_error:
            raise PassingError(self.step)
        if self.step is SourceStep.WITHIN_COMMIT:
            self.kill_later(self.delay_ms)
        else:
            self.kill()


@define(eq=False)
class FaultySource:
    """Passes calls to a source until the fault occurs."""

    inner: SourceConnector[Any, Any]
    fault: SourceFault

    def open(self, connector: str, topic: Topic[Any, Any], positions: Mapping[str, Position]) -> None:
        self.fault.at(SourceStep.BEFORE_OPEN)
        self.inner.open(connector, topic, positions)
        self.fault.at(SourceStep.AFTER_OPEN)

    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[Any, Any]]:
        """Return blocks of the source; only polls that return records count."""
        self.fault.at(SourceStep.BEFORE_POLL)
        blocks = self.inner.poll(timeout_ms)
        if any(map(len, blocks)):
            self.fault.at(SourceStep.AFTER_POLL)
        return blocks

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Pass on the positions."""
        self.fault.at(SourceStep.BEFORE_COMMITTED)
        self.inner.committed(positions)
        self.fault.at(SourceStep.AFTER_COMMITTED)

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error is a ``PassingError``, or retriable for the wrapped source."""
        return self.fault.is_retriable(error, otherwise=self.inner.is_retriable(error))

    def wakeup(self) -> None:
        """Wake up the source."""
        self.inner.wakeup()

    def close(self) -> None:
        """Close the source, as the operating system does when a process ends."""
        self.inner.close()


@frozen
class FaultyCluster:
    """A cluster whose connections fail before, or within, the commit of a transaction."""

    inner: Cluster
    fault: SourceFault

    def connect(self, client_id: str) -> Connection:
        return cast("Connection", _FaultyConnection(self.inner.connect(client_id), self.fault.at))


@define(eq=False)
class _FaultyConnection:
    _inner: Connection
    _at: Callable[[SourceStep], None]

    def send(self, node_id: int, request: Request) -> int:
        is_commit = isinstance(request, EndTxn) and request.is_commit
        if is_commit:
            self._at(SourceStep.BEFORE_COMMIT)
            self._at(SourceStep.WITHIN_COMMIT)
        return self._inner.send(node_id, request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
