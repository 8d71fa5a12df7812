"""Runs the work of slow requests in a thread: one request at a time, and only while its client waits.

Of its own package, this module imports only ``answers``.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from attrs import define, field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from streams.core.concurrency.threads import Signal
from streams.web.answers import Refused

T = TypeVar("T")
#: Whether the work must end.
IsOver = Callable[[], bool]


@define(eq=False)
class Single:
    """Runs at most one function at a time; ``what`` describes its work in error messages."""

    _what: str
    _signal: Callable[[], Signal]
    #: Set when the running work must end; None if nothing runs.
    _over: Signal | None = field(init=False, default=None)

    async def run(self, request: Request, work: Callable[[IsOver], T], limit_s: float) -> T:
        """Run ``work`` in a thread, and return its result.

        Its argument returns true once the client has disconnected or ``limit_s`` seconds have passed; ``work`` should
        then return. If it has not returned after ``limit_s``, it continues in its thread, and further requests are
        refused until it ends.

        Raises:
            Refused: the work is running for another request, or has not returned in time.
        """
        if self._over is not None:
            raise Refused(409, "BUSY", f"{self._what} for another request; retry when it has ended")
        over = self._over = self._signal()
        running = asyncio.ensure_future(run_in_threadpool(work, over.is_set))
        running.add_done_callback(self._ended)
        gone = asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait((running, gone), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.set()
            gone.cancel()
        if not running.done():
            raise Refused(503, "NOT_DONE", f"{self._what}, and has not ended in time; retry later")
        return running.result()

    @property
    def is_running(self) -> bool:
        """Whether the work of a request is running."""
        return self._over is not None

    def end(self) -> bool:
        """Signal the running work to end, and return whether there was any; its own request gets the result."""
        if self._over is not None:
            self._over.set()
        return self._over is not None

    def _ended(self, running: "asyncio.Future[Any]") -> None:
        self._over = None
        if not running.cancelled():
            # The error is raised for the request, if its client still waits.
            running.exception()


async def _left(request: Request) -> None:
    """Wait until the client has closed the connection; the body of the request must have been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
