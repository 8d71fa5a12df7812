"""Work for requests that take long: in a thread, one at a time, and no longer than the client waits.

Imports no other module of the package but ``answers``.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from attrs import define, field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from streams.core.threads import Signal
from streams.web.answers import Refused

T = TypeVar("T")
#: Whether the work must end.
IsOver = Callable[[], bool]


@define(eq=False)
class Single:
    """Runs one function at a time; ``what`` names it in messages."""

    _what: str
    _signal: Callable[[], Signal]
    _is_running: bool = field(init=False, default=False)

    async def run(self, request: Request, work: Callable[[IsOver], T], limit_s: float) -> T:
        """Return what ``work`` returns in a thread; its argument is true once the client has left or time is over.

        ``limit_s`` is the time in seconds in which ``work`` must have returned. Otherwise it is left to end in its
        thread, and others are refused until then.

        Raises:
            Refused: the same is running for another request, or has not returned in time.
        """
        if self._is_running:
            raise Refused(409, "BUSY", f"{self._what} for another request; retry when it has ended")
        self._is_running = True
        over = self._signal()
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

    def _ended(self, running: "asyncio.Future[Any]") -> None:
        self._is_running = False
        if not running.cancelled():
            # An error is raised for the request, if it still waits.
            running.exception()


async def _left(request: Request) -> None:
    """Return when the client has closed the connection; the body of the request has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
