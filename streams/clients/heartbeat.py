"""A thread that keeps a consumer's membership while the application is busy with its records.

Lock rules, stated here and nowhere else: whoever uses the insides of a consumer holds its guard.  The
application's thread takes it for the length of each call, calls within calls included (a listener that
commits), and waits for it if need be; the background takes it only when it is free, for one beat, in
which it never waits.  ``poll`` holds it while it waits, and beats itself.  What belongs to the
application - listeners, callbacks, assignors, errors - is left for its next ``poll``; only ``wakeup``
needs no guard.  Imports core only.
"""

import logging
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, Protocol, TypeVar, cast

from streams.core.threads import Signal, Threads, Worker

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

# A beat is over in moments: who waits for its end looks again that often.
_LOOK_MS: Final = 10
# How long closing waits for the thread, which has been woken.
_CLOSE_MS: Final = 5_000


class ConsumerLock:
    """Lets in the application's thread, as often as it likes, or the background."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._depth = 0
        self._freed: Signal | None = None
        #: Whether it is the background that is in.
        self.is_background = False

    def __enter__(self) -> None:
        """Let the application in, when the background is out."""
        while True:
            with self._lock:
                if not self.is_background or self._depth:
                    self._depth += 1
                    return
                signal = self._freed = self._freed or self._threads.signal()
            signal.wait(_LOOK_MS)

    def __exit__(self, *_: object) -> None:
        """Let the application out."""
        with self._lock:
            self._depth -= 1

    def try_enter(self) -> bool:
        """Let the background in, if nobody is."""
        with self._lock:
            if self._depth or self.is_background:
                return False
            self.is_background = True
            return True

    def leave(self) -> None:
        """Let the background out."""
        with self._lock:
            self.is_background = False
            signal, self._freed = self._freed, None
        if signal is not None:
            signal.set()


class Locked(Protocol):
    """Something with a guard, None where there is no background."""

    _lock: ConsumerLock | None


def exclusive(method: F) -> F:
    """Have a method hold the guard of its object."""

    @wraps(method)
    def guarded(self: Locked, *args: Any, **keywords: Any) -> Any:
        lock = self._lock
        if lock is None:
            return method(self, *args, **keywords)
        with lock:
            return method(self, *args, **keywords)

    return cast("F", guarded)


class BackgroundHeartbeat:
    """The thread: calls ``beat`` when the application is out, then sleeps for the time that it returns."""

    def __init__(self, threads: Threads, lock: ConsumerLock, beat: Callable[[], int], name: str) -> None:
        self._lock = lock
        self._beat = beat
        self._end = threads.signal()
        self._worker: Worker = threads.start(name, self._run)

    def close(self) -> None:
        """End the thread; called without the guard."""
        self._end.set()
        self._worker.join(_CLOSE_MS)

    def _run(self) -> None:
        while not self._end.is_set():
            wait_ms = _LOOK_MS
            if self._lock.try_enter():
                try:
                    wait_ms = self._beat()
                except Exception:
                    # The application meets the same in its next poll; until then the membership must not lapse.
                    log.exception("a heartbeat in the background has failed")
                finally:
                    self._lock.leave()
            self._end.wait(max(wait_ms, _LOOK_MS))
