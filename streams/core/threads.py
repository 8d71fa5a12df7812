"""Threads, and how they wait for each other: the only door to ``threading`` for whoever starts any.

The runtime and the clients start their threads through ``Threads``.  In a process these are the
machine's; in a simulation they are coroutines that one scheduler runs on virtual time, so that the
code which is simulated is the code which runs.  Imports nothing of ours.
"""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class ThreadKilled(BaseException):
    """Ends a thread from outside, as the death of its process does: nothing that it still does has an effect."""


#: What user code is left with through no fault of its own.  All else that it raises is its failure: also
#: ``SystemExit`` and ``asyncio.CancelledError``, which are no ``Exception`` and would end a thread without a word.
INTERRUPTIONS = (KeyboardInterrupt, ThreadKilled)


class Signal(Protocol):
    """A flag that can be waited for."""

    def set(self) -> None:
        """Raise the flag and end all waiting."""
        ...

    def is_set(self) -> bool:
        """Whether the flag is up."""
        ...

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the flag is up, at most the timeout (None = for ever); return whether it is."""
        ...


class Worker(Protocol):
    """A thread that was started."""

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether it is the one that asks."""
        ...

    def join(self, timeout_ms: int | None = None) -> bool:
        """Wait for its end, at most the timeout (None = for ever); return whether it has ended."""
        ...


class Threads(Protocol):
    """Starts threads and makes what they wait for."""

    def start(self, name: str, target: Callable[[], None]) -> Worker:
        """Run a function in a thread of its own, which does not keep the process alive."""
        ...

    def signal(self) -> Signal:
        """Return a new flag, not raised."""
        ...


class SystemSignal:
    """A flag between the machine's threads."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Raise the flag and end all waiting."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether the flag is up."""
        return self._event.is_set()

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the flag is up."""
        return self._event.wait(None if timeout_ms is None else timeout_ms / 1000)


class SystemWorker:
    """One of the machine's threads."""

    __slots__ = ("_thread",)

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether it is the one that asks."""
        return self._thread is threading.current_thread()

    def join(self, timeout_ms: int | None = None) -> bool:
        """Wait for its end."""
        self._thread.join(None if timeout_ms is None else timeout_ms / 1000)
        return not self._thread.is_alive()


class SystemThreads:
    """The machine's threads."""

    def start(self, name: str, target: Callable[[], None]) -> Worker:
        """Run a function in a daemon thread."""
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return SystemWorker(thread)

    def signal(self) -> Signal:
        """Return a new flag."""
        return SystemSignal()


class Answer(Generic[T]):
    """What one thread asked another to find out: a value or an error, which can be waited for."""

    __slots__ = ("_done", "_error", "_value")

    def __init__(self, threads: Threads) -> None:
        self._done = threads.signal()
        self._error: BaseException | None = None
        self._value: T | None = None

    def settle(self, find: Callable[[], T]) -> None:
        """Find the value, or keep the error, and end all waiting."""
        try:
            self._value = find()
        except Exception as error:  # noqa: BLE001
            # Whoever asked gets it from result().
            self._error = error
        self._done.set()

    def refuse(self, error: BaseException) -> None:
        """Say that there will be no value."""
        self._error = error
        self._done.set()

    def result(self, timeout_ms: int | None = None) -> T:
        """Wait and return the value.

        Raises:
            TimeoutError: it is not there in time.
            Exception: what went wrong where it was to be found.
        """
        if not self._done.wait(timeout_ms):
            raise TimeoutError(f"no answer within {timeout_ms} ms")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
