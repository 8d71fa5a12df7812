"""Blocking calls for coroutines: ``LoopCalls`` runs them in order on a thread of its own.

The event loop that waits for a call is never blocked, and several loops may use the same thread.  Of the package, this
module imports only ``core.concurrency.threads``.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from streams.core.concurrency.threads import Signal, SystemThreads, Threads, Worker

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

# The thread ends after this time without calls, so that what is dropped without being closed leaves no thread behind.
_IDLE_MS: Final = 5_000


def settle(future: "asyncio.Future[T]", find: Callable[[], T]) -> None:
    """Set the result or exception of ``find()`` in a future, from any thread; a future that is done is not changed."""
    value: T | None = None
    failure: Exception | None = None
    try:
        value = find()
    except Exception as error:  # noqa: BLE001 - raised where the future is awaited.
        failure = error

    def on_loop() -> None:
        if future.done():
            return
        if failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(value)  # type: ignore[arg-type]

    # A loop that is closed has nobody who waits.
    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(on_loop)


class _Call(Generic[T]):
    """A call that a coroutine waits for."""

    def __init__(self, function: Callable[[], T]) -> None:
        from asyncio import get_running_loop

        self.function = function
        self.future: asyncio.Future[T] = get_running_loop().create_future()
        self.has_begun = False


class LoopCalls:
    """A thread that runs blocking calls for coroutines, in order; it starts on use and ends when it is idle."""

    def __init__(self, name: str, threads: Threads | None = None) -> None:
        self._name = name
        self._threads = threads or SystemThreads()
        self._lock = threading.Lock()
        self._calls: deque[_Call[Any]] = deque()
        self._signal: Signal | None = None
        self._worker: Worker | None = None
        self._is_busy = self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """Whether no call is running or queued."""
        with self._lock:
            return not self._calls and not self._is_busy

    async def call(self, function: Callable[[], T], *, is_certain: bool = False) -> T:
        """Run a function on the thread, after all earlier calls, and return its result.

        If the asyncio task is cancelled, a call that has not started is withdrawn unless ``is_certain``; a started
        call continues.

        Raises:
            Exception: the function raised this error.
        """
        from asyncio import CancelledError

        call = _Call(function)
        self._add(call)
        try:
            return await call.future
        except CancelledError:
            if not is_certain:
                self._withdraw(call)
            raise

    def close(self) -> None:
        """End the thread after all earlier calls; a later call starts a new thread."""
        with self._lock:
            self._is_closed = True
            if self._signal is not None:
                self._signal.set()

    # --- inside -----------------------------------------------------------------------

    def _add(self, call: _Call[Any]) -> None:
        with self._lock:
            self._calls.append(call)
            if self._worker is None:
                self._worker = self._threads.start(self._name, self._run)
            elif self._signal is not None:
                self._signal.set()

    def _withdraw(self, call: _Call[Any]) -> None:
        with self._lock:
            if not call.has_begun:
                self._calls.remove(call)

    def _run(self) -> None:
        while (call := self._next()) is not None:
            settle(call.future, partial(self._answer, call.function))

    def _answer(self, function: Callable[[], T]) -> T:
        try:
            return function()
        finally:
            # Before the task learns of it: it looks whether this thread is idle.
            with self._lock:
                self._is_busy = False

    def _next(self) -> _Call[Any] | None:
        """Wait for the next call and return it, or return None if the thread must end because it is idle or closed."""
        is_over = False
        while True:
            with self._lock:
                if self._calls:
                    call = self._calls.popleft()
                    call.has_begun = self._is_busy = True
                    return call
                if is_over or self._is_closed:
                    self._worker = self._signal = None
                    return None
                signal = self._signal = self._threads.signal()
            is_over = not signal.wait(_IDLE_MS)
