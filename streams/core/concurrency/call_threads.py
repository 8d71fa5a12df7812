"""Threads for calls of plain functions, whose results go to an event loop.

The threads are daemons, so a function that does not return does not prevent the process from ending.  The threads of
the standard library's executors are not daemons.  This module imports no other module of the package.
"""

import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define, field

if TYPE_CHECKING:
    import asyncio

_Job: TypeAlias = tuple[Callable[[Any], Any], Any, "asyncio.Future[Any]"]


@define(eq=False)
class CallThreads:
    """Calls functions in up to ``limit`` threads, which start on demand; used only on the event loop's thread."""

    _loop: "asyncio.AbstractEventLoop"
    _limit: int
    _jobs: "SimpleQueue[_Job | None]" = field(factory=SimpleQueue)
    #: Number of calls that have not ended, including those whose results are no longer awaited.
    _pending: int = 0
    _count: int = 0

    def call(self, function: Callable[[Any], Any], argument: Any) -> "asyncio.Future[Any]":
        """Call a function in a thread; return a future of the event loop for its result."""
        future = self._loop.create_future()
        self._pending += 1
        self._jobs.put((function, argument, future))
        if self._pending > self._count < self._limit:
            self._count += 1
            name = f"{threading.current_thread().name}-{self._count}"
            threading.Thread(target=_work, args=(self._jobs, self._loop, self._settle), name=name, daemon=True).start()
        return future

    def close(self) -> None:
        """Let each thread end after its current call."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _settle(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._pending -= 1
        if future.done():
            return  # The call has timed out or was cancelled.
        if isinstance(error, StopIteration):
            # A future does not accept StopIteration, which would end the waiting coroutine.
            error = RuntimeError("the function raised StopIteration")
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _work(jobs: "SimpleQueue[_Job | None]", loop: "asyncio.AbstractEventLoop", settle: Callable[..., None]) -> None:
    while (job := jobs.get()) is not None:
        function, argument, future = job
        result = None
        raised = None
        try:
            result = function(argument)
        except BaseException as error:  # noqa: BLE001 - the task raises or handles it, as any failure of user code.
            raised = error
        try:
            loop.call_soon_threadsafe(settle, future, result, raised)
        except RuntimeError:
            return  # The loop is closed, so the result is no longer awaited.


def awaited(function: Callable[[Any], Any], threads: CallThreads | None) -> Callable[[Any], Awaitable[Any]]:
    """Wrap a plain function as an async one, called in a thread or, without threads, on the thread of the event loop.

    If the function returns an awaitable, as a lambda that calls an async function does, the awaitable is awaited.
    """

    async def called(argument: Any) -> Any:
        result = function(argument) if threads is None else await threads.call(function, argument)
        return await result if hasattr(result, "__await__") else result

    return called
