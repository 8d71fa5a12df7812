"""The lifecycle of a worker: its thread, its progress, its end, and the pauses between retries.

Of the other packages, this module imports only ``core``.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from attrs import define, evolve, field, frozen

from streams.connect.errors import ConnectError
from streams.core.clock import Clock
from streams.core.concurrency.threads import Signal, Threads, Worker
from streams.core.errors import ClientClosedError

log = logging.getLogger(__name__)


@frozen(kw_only=True)
class WorkerProgress:
    """A snapshot of the counters of a worker since its start.

    ``lag`` is the number of offsets between the committed positions and the ends of the assigned partitions, None
    while it is unknown, and for sources.  ``skipped`` counts records that could not be deserialized, and rows and files
    that a source has left out; ``lost`` counts offsets that the topic no longer had, and places at which a source may
    have missed data.  ``last_error`` is the last error, also if it was retried.
    """

    records: int = 0
    bytes: int = 0
    batches: int = 0
    skipped: int = 0
    lost: int = 0
    retries: int = 0
    fenced: int = 0
    lag: int | None = None
    last_error: str | None = None


@define(eq=False)
class WorkerLife:
    """Runs a worker's function in the caller's thread or in a new thread, and keeps the error that ended it."""

    name: str
    threads: Threads
    progress: WorkerProgress = field(factory=WorkerProgress)
    _worker: Worker | None = None
    _error: Exception | None = None
    _is_begun: bool = False
    _stop: Signal = field(init=False)
    _ended: Signal = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._stop = self.threads.signal()
        self._ended = self.threads.signal()

    def count(self, **added: int) -> None:
        """Add to the progress counters."""
        self.progress = evolve(
            self.progress, **{name: getattr(self.progress, name) + number for name, number in added.items()}
        )

    def note(self, error: Exception) -> None:
        """Store an error as the last error."""
        self.progress = evolve(self.progress, last_error=f"{type(error).__name__}: {error}")

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was told to stop."""
        return self._stop.is_set()

    def pause(self, timeout_ms: int) -> None:
        """Wait until the worker is told to stop, or the timeout expires."""
        self._stop.wait(timeout_ms)

    def run(self, work: Callable[[], None]) -> None:
        """Run the worker in this thread.

        Raises:
            ClientClosedError: the worker was started before.
        """
        if self._is_begun:
            raise ClientClosedError(f"worker {self.name!r} was started before; make a new one")
        self._is_begun = True
        try:
            work()
        except Exception as error:
            self._error = error
            self.note(error)
            raise
        finally:
            self._ended.set()

    def start(self, work: Callable[[], None]) -> None:
        """Run the worker in a new thread."""
        if self._worker is not None or self._is_begun:
            raise ClientClosedError(f"worker {self.name!r} was started before; make a new one")

        def target() -> None:
            try:
                self.run(work)
            except Exception as error:  # noqa: BLE001 - wait() and close() raise it.
                log.error("worker %r has stopped: %s", self.name, error, extra={"failure": error})

        self._worker = self.threads.start(f"streams-connect-{self.name}", target)

    def wait(self, timeout_ms: int | None) -> bool:
        """Wait until the worker has ended, or the timeout expires; return whether it has ended.

        Raises:
            Exception: the error that ended the worker.
        """
        if self._worker is None and not self._is_begun:
            raise ClientClosedError(f"worker {self.name!r} was not started; call start() or run()")
        is_over = self._ended.wait(timeout_ms)
        if is_over and self._error is not None:
            raise self._error
        return is_over

    def stop(self) -> None:
        """Tell the worker to stop."""
        self._stop.set()

    @property
    def has_thread(self) -> bool:
        """Whether ``start`` was called."""
        return self._worker is not None

    @property
    def is_running(self) -> bool:
        """Whether the worker was started and has not ended."""
        return self._is_begun and not self._ended.is_set()


class ConnectWorker(ABC):
    """A worker of a connector: ``run`` works in the caller's thread, ``start`` and a ``with`` block in a new one."""

    def __init__(self, name: str, threads: Threads) -> None:
        self.name = name
        self._life = WorkerLife(name, threads)

    @abstractmethod
    def _work(self) -> None:
        """Work until the worker is told to stop."""

    @abstractmethod
    def _wakeup(self) -> None:
        """Make a waiting call of ``_work`` return; called from other threads."""

    @property
    def progress(self) -> WorkerProgress:
        """What the worker has done so far: a snapshot, which may be read from any thread."""
        return self._life.progress

    @property
    def is_running(self) -> bool:
        """Whether the worker was started and has not ended."""
        return self._life.is_running

    def run(self) -> None:
        """Work in this thread until ``close`` is called from another thread, or ``KeyboardInterrupt`` is raised.

        Raises:
            ConnectError: the connector does not answer within ``retry_timeout_ms``, or rejects a record.
            SinkFencedError: another worker has written to the same partitions, again after this one had rejoined.
            ProducerFencedError: another source worker with this name was started.
            SerializationError: a record does not fit the types of the topic.
            BrokerError: the topic does not exist, or the broker rejects a request.
            ClientClosedError: the worker was run or started before.
        """
        self._life.run(self._work)

    def start(self) -> None:
        """Work in a thread of its own.

        Raises:
            ClientClosedError: the worker was run or started before.
        """
        self._life.start(self._work)

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the worker has ended, or the timeout expires (None: no timeout); return whether it has ended.

        Raises:
            ClientClosedError: the worker was not started.
            Exception: the error that has ended the worker; see ``run``.
        """
        return self._life.wait(timeout_ms)

    def close(self, timeout_ms: int | None = None) -> None:
        """Stop, and wait for the end (None: no timeout).  Closing again has no effect.

        A sink commits what was read; a source ends with the current block.

        Raises:
            Exception: the error that has ended the worker; see ``run``.
        """
        self._life.stop()
        self._wakeup()
        if self._life.has_thread:
            self._life.wait(timeout_ms)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close the worker; its error does not replace the one of the ``with`` block."""
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and worker {self.name!r} has failed: {failure}")


@define(eq=False)
class Retries:
    """Exponential backoff between attempts after transient errors: each pause is twice the previous one."""

    _clock: Clock
    _first_ms: int
    _max_ms: int
    _timeout_ms: int
    _next_ms: int = 0
    _deadline_ms: int | None = None

    def succeeded(self) -> None:
        """Reset the backoff after a successful attempt."""
        self._next_ms = 0
        self._deadline_ms = None

    def after(self, error: Exception, what: str) -> int:
        """Return the pause in milliseconds before the next attempt.

        Raises:
            ConnectError: errors have been retried for longer than ``retry_timeout_ms``; the cause is the last one.
        """
        now = self._clock.monotonic_ms()
        if self._deadline_ms is None:
            self._deadline_ms = now + self._timeout_ms
            self._next_ms = self._first_ms
        if now >= self._deadline_ms:
            raise ConnectError(
                f"{what}: tried again for retry_timeout_ms={self._timeout_ms} without success: "
                f"{type(error).__name__}: {error}"
            ) from error
        pause = min(self._next_ms, self._max_ms, self._deadline_ms - now)
        self._next_ms *= 2
        return max(1, pause)
