"""Threads, signals between threads, and results of calls on other threads.

The runtime and the clients start all their threads through ``Threads``. In production these are operating system
threads; in a simulation they are coroutines of one scheduler on virtual time, so that the production code itself
is simulated. This module imports no other module of the package.
"""

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
K = TypeVar("K")


def copied(shared: dict[K, T]) -> dict[K, T]:
    """Return a copy of a dict that another thread may be changing.

    Iterating over ``list(shared.items())`` is not safe: it allocates a tuple for each item, and an allocation may run
    the garbage collector, whose finalizers let the other thread run (Python 3.11).
    """
    return shared.copy()


class ThreadKilled(BaseException):
    """Ends a thread of a simulated process that was killed; later operations of the thread have no effect."""


#: Exceptions that may be raised during user code, but are not failures of that code. All others are failures,
#: including ``SystemExit`` and ``asyncio.CancelledError``, which do not derive from ``Exception`` and would end a
#: thread silently.
INTERRUPTIONS = (KeyboardInterrupt, ThreadKilled)


class Signal(Protocol):
    """A flag that threads can wait for."""

    def set(self) -> None:
        """Set the flag and wake all waiting threads."""
        ...

    def is_set(self) -> bool:
        """Whether the flag is set."""
        ...

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the flag is set or the timeout expires (None: no timeout); return whether the flag is set."""
        ...


class Worker(Protocol):
    """A thread that was started."""

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        ...

    def join(self, timeout_ms: int | None = None) -> bool:
        """Wait until the thread ends or the timeout expires (None: no timeout); return whether the thread has ended."""
        ...

    def stack(self) -> str:
        """Return the stack of the thread as traceback lines, or "" if the thread has ended or its stack is unknown."""
        ...


class Threads(Protocol):
    """Starts threads and creates signals."""

    def start(self, name: str, target: Callable[[], None]) -> Worker:
        """Run a function in a new daemon thread."""
        ...

    def signal(self) -> Signal:
        """Return a new flag that is not set."""
        ...


class SystemSignal:
    """A flag shared by operating system threads."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout_ms: int | None = None) -> bool:
        return self._event.wait(None if timeout_ms is None else timeout_ms / 1000)


class SystemWorker:
    """An operating system thread."""

    __slots__ = ("_thread",)

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        return self._thread is threading.current_thread()

    def join(self, timeout_ms: int | None = None) -> bool:
        self._thread.join(None if timeout_ms is None else timeout_ms / 1000)
        return not self._thread.is_alive()

    def stack(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "" if frame is None else "".join(traceback.format_stack(frame)).rstrip()


class SystemThreads:
    """Starts operating system threads."""

    def start(self, name: str, target: Callable[[], None]) -> Worker:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return SystemWorker(thread)

    def signal(self) -> Signal:
        return SystemSignal()


class Answer(Generic[T]):
    """The result of a call that one thread requests from another thread: a value or an error."""

    __slots__ = ("_done", "_error", "_then", "_value")

    def __init__(self, threads: Threads) -> None:
        self._done = threads.signal()
        self._then: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._value: T | None = None

    def settle(self, find: Callable[[], T]) -> None:
        """Call ``find``, store its value or error as the result, and wake the waiting thread."""
        try:
            self._value = find()
        except Exception as error:  # noqa: BLE001
            # result() raises it in the thread that requested the call.
            self._error = error
        self._set()

    def refuse(self, error: BaseException) -> None:
        """Store an error as the result, instead of a value."""
        self._error = error
        self._set()

    def _set(self) -> None:
        self._done.set()
        if self._then is not None:
            self._then()

    def then(self, call: Callable[[], None]) -> None:
        """Call ``call`` when the result is set, in the thread that sets it, or now if it is set; possibly twice."""
        self._then = call
        if self._done.is_set():
            call()

    def result(self, timeout_ms: int | None = None) -> T:
        """Wait for the requested call to finish, and return its value.

        Raises:
            TimeoutError: the call did not finish within the timeout.
            Exception: the call raised this error.
        """
        if not self._done.wait(timeout_ms):
            raise TimeoutError(f"no answer within {timeout_ms} ms")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
