"""The lifecycle of a worker: its thread, its progress, its end, and the pauses between retries.

Of the other packages, this module imports only ``core`` and ``protocol``.
"""

import logging
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from attrs import define, evolve, frozen

from streams.connect.errors import ConnectError
from streams.connect.worker_settings import WorkerSettings
from streams.core.clock import Clock, SystemClock
from streams.core.concurrency.threads import SystemThreads, Threads, Worker
from streams.core.errors import ClientClosedError
from streams.core.settings.setting import changed
from streams.core.topic import Topic, check_topic_name, typed_topic
from streams.protocol.transport import Cluster

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")
#: The protocol of the connector, and the settings of its worker.
C = TypeVar("C")
S = TypeVar("S", bound=WorkerSettings)


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


class ConnectWorker(ABC, Generic[K, V, C, S]):
    """A worker of a connector: ``run`` works in the caller's thread, ``start`` and a ``with`` block in a new one."""

    def __init__(
        self,
        cluster: Cluster,
        topic: Topic[K, V],
        connector: C,
        *,
        name: str,
        settings: S | None = None,
        clock: Clock | None = None,
        threads: Threads | None = None,
        **options: Any,
    ) -> None:
        """Create a worker, which does nothing before it is run.

        Args:
            cluster: the embedded broker, or another ``Cluster``, such as ``TcpCluster``.
            topic: the topic, whose types serialize and deserialize its records.
            connector: the sink or source; the worker opens and closes it.
            name: the name under which positions are stored; that of the group of a sink, and the transactional id of a
                source.
            settings: the base of the settings; by default those of the class.
            clock: the source of time.
            threads: starts the threads.
            options: single settings by name, such as ``retry_timeout_ms=1000``.

        Raises:
            ConfigError: a setting is unknown or invalid.
            TopologyError: ``topic`` is not a ``Topic``, or the name is not legal.
        """
        self.name = check_topic_name(name)
        self._cluster = cluster
        self._topic = typed_topic(topic, type(self).__name__)
        self._connector = connector
        self._settings = changed(settings or self._default_settings(), options)
        self._clock = clock or SystemClock()
        self._threads = threads or SystemThreads()
        self._retries = Retries(self._clock, self._settings)
        self._progress = WorkerProgress()
        self._thread: Worker | None = None
        self._error: Exception | None = None
        self._is_begun = False
        self._stop = self._threads.signal()
        self._ended = self._threads.signal()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._topic.name!r}>"

    @abstractmethod
    def _default_settings(self) -> S:
        """Return the settings that are used unless others are given."""

    @abstractmethod
    def _work(self) -> None:
        """Work until the worker is told to stop."""

    @abstractmethod
    def _wakeup(self) -> None:
        """Make a waiting call of ``_work`` return; called from other threads."""

    @property
    def progress(self) -> WorkerProgress:
        """What the worker has done so far: a snapshot, which may be read from any thread."""
        return self._progress

    @property
    def is_running(self) -> bool:
        """Whether the worker was started and has not ended."""
        return self._is_begun and not self._ended.is_set()

    @property
    def _is_stopping(self) -> bool:
        return self._stop.is_set()

    def _count(self, **added: int) -> None:
        """Add to the progress counters."""
        counters = {name: getattr(self._progress, name) + number for name, number in added.items()}
        self._progress = evolve(self._progress, **counters)

    def _note(self, error: Exception) -> None:
        """Store an error as the last error."""
        self._progress = evolve(self._progress, last_error=f"{type(error).__name__}: {error}")

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
        if self._is_begun:
            raise ClientClosedError(f"worker {self.name!r} was started before; make a new one")
        self._is_begun = True
        try:
            self._work()
        except Exception as error:
            self._error = error
            self._note(error)
            raise
        finally:
            self._ended.set()

    def start(self) -> None:
        """Work in a thread of its own.

        Raises:
            ClientClosedError: the worker was run or started before.
        """
        if self._thread is not None or self._is_begun:
            raise ClientClosedError(f"worker {self.name!r} was started before; make a new one")
        self._thread = self._threads.start(f"streams-connect-{self.name}", self._run_logged)

    def _run_logged(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - wait() and close() raise it.
            log.error("worker %r has stopped: %s", self.name, error, extra={"failure": error})

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the worker has ended, or the timeout expires (None: no timeout); return whether it has ended.

        Raises:
            ClientClosedError: the worker was not started.
            Exception: the error that has ended the worker; see ``run``.
        """
        if self._thread is None and not self._is_begun:
            raise ClientClosedError(f"worker {self.name!r} was not started; call start() or run()")
        is_over = self._ended.wait(timeout_ms)
        if is_over and self._error is not None:
            raise self._error
        return is_over

    def close(self, timeout_ms: int | None = None) -> None:
        """Stop, and wait for the end (None: no timeout).  Closing again has no effect.

        A sink commits what was read; a source ends with the current block.

        Raises:
            Exception: the error that has ended the worker; see ``run``.
        """
        self._stop.set()
        self._wakeup()
        if self._thread is not None:
            self.wait(timeout_ms)

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
    _settings: WorkerSettings
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
            self._deadline_ms = now + self._settings.retry_timeout_ms
            self._next_ms = self._settings.retry_backoff_ms
        if now >= self._deadline_ms:
            raise ConnectError(
                f"{what}: tried again for retry_timeout_ms={self._settings.retry_timeout_ms} without success: "
                f"{type(error).__name__}: {error}"
            ) from error
        pause = min(self._next_ms, self._settings.retry_backoff_max_ms, self._deadline_ms - now)
        self._next_ms *= 2
        return max(1, pause)
