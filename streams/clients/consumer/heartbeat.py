"""The background heartbeat of a consumer, for applications that poll rarely.

Lock rules: every access to a consumer's internals holds the guard, which is a ``ConsumerLock``.  A thread of the
application acquires the guard for each call, reentrantly (a listener may commit), and waits for the background thread;
a second thread of the application gets an error.  The background thread
acquires the guard only when it is free, for one heartbeat, and never waits while it holds the guard.  ``poll`` holds
the guard while it waits, and sends heartbeats itself.  Listeners, callbacks, assignors and errors are left for the
application's next ``poll``.  Only ``wakeup`` needs no guard.
Of the other packages, this module imports only ``core``.
"""

import logging
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, Protocol, TypeVar, cast

from streams.core.concurrency.forks import stays_in_process
from streams.core.concurrency.threads import Signal, Threads, Worker
from streams.core.errors import StreamsError

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

# Interval at which the application's thread checks whether a short heartbeat is over.
_LOOK_MS: Final = 10
# Longest wait of ``close`` for the woken thread.
_CLOSE_MS: Final = 5_000


class ConsumerLock:
    """A lock held by one thread of the application, reentrantly, or by the background thread."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._depth = 0
        self._owner = 0
        self._freed: Signal | None = None
        #: Whether the background thread holds the lock.
        self.is_background = False
        stays_in_process(self)

    def __enter__(self) -> None:
        """Acquire this lock for the application's thread, waiting until the background thread releases it.

        Raises:
            StreamsError: another thread of the application holds it.
        """
        current = threading.get_ident()
        while True:
            with self._lock:
                if self._depth and self._owner != current:
                    # Both would read the same records, or commit what the other one has not processed.
                    raise StreamsError(
                        "two threads use one consumer at once: give each thread a consumer of its own, or take turns; "
                        "only wakeup() may be called while another thread polls"
                    )
                if not self.is_background:
                    self._depth = self._depth + 1
                    self._owner = current
                    return
                signal = self._freed = self._freed or self._threads.signal()
            signal.wait(_LOOK_MS)

    def __exit__(self, *_: object) -> None:
        """Release this lock, which the application's thread holds."""
        with self._lock:
            self._depth -= 1

    def disown(self) -> None:
        """Release this lock in a forked process, which has no thread that could."""
        self._lock = threading.Lock()
        self._depth = 0
        self.is_background = False

    def try_enter(self) -> bool:
        """Acquire this lock for the background thread if it is free, and return whether it was acquired."""
        with self._lock:
            if self._depth or self.is_background:
                return False
            self.is_background = True
            return True

    def leave(self) -> None:
        """Release this lock, which the background thread holds."""
        with self._lock:
            self.is_background = False
            signal = self._freed
            self._freed = None
        if signal is not None:
            signal.set()


class Locked(Protocol):
    """An object whose methods hold the lock ``_lock`` while they run."""

    _lock: ConsumerLock


def exclusive(method: F) -> F:
    """Decorate a method so that it holds the lock of its object."""

    @wraps(method)
    def guarded(self: Locked, *args: Any, **keywords: Any) -> Any:
        with self._lock:
            return method(self, *args, **keywords)

    return cast("F", guarded)


class BackgroundHeartbeat:
    """A thread that calls ``beat`` when the consumer's lock is free, and then sleeps for the returned milliseconds."""

    def __init__(self, threads: Threads, lock: ConsumerLock, beat: Callable[[], int], name: str) -> None:
        self._lock = lock
        self._beat = beat
        self._end = threads.signal()
        self._worker: Worker = threads.start(name, self._run)

    def close(self) -> None:
        """Stop the thread; the caller must not hold the consumer's lock."""
        self._end.set()
        self._worker.join(_CLOSE_MS)

    def _run(self) -> None:
        while not self._end.is_set():
            wait_ms = _LOOK_MS
            if self._lock.try_enter():
                try:
                    wait_ms = self._beat()
                except Exception:
                    # The application's next poll raises the same error; until then the membership must not expire.
                    log.exception("a heartbeat in the background has failed")
                finally:
                    self._lock.leave()
            self._end.wait(max(wait_ms, _LOOK_MS))
