"""Changes of a store as server-sent events: ``/stores/S/changes``."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from attrs import define, field
from starlette.responses import StreamingResponse

from streams.core.concurrency.threads import SystemThreads
from streams.runtime import Instance, StoreChange, StoreChanges
from streams.web.answers import Refused

#: Maximum number of changes queued for a client; a client that is slower is disconnected.
_QUEUE_CHANGES = 1_000
#: Maximum number of clients that follow changes; each needs a consumer and a thread.
MAX_FOLLOWERS = 16
#: The last event that is sent to a client that was too slow.
DROPPED = b'event: dropped\ndata: {"error":"TOO_SLOW","message":"changes were lost: read the store again"}\n\n'
#: Interval of the comments that keep a connection without changes open, in seconds.
_QUIET_S = 10.0


@define(eq=False)
class Follower:
    """A client that follows the changes of a store.

    A thread reads the changes into a bounded queue, and the event loop sends them to the client.
    """

    _instance: Instance
    _loop: asyncio.AbstractEventLoop
    _changes: StoreChanges
    _key: Any = None
    _queue: "asyncio.Queue[StoreChange | None]" = field(factory=lambda: asyncio.Queue(_QUEUE_CHANGES))
    _is_slow: bool = False

    def start(self) -> None:
        """Start the thread that reads the changes."""
        SystemThreads().start(f"{self._instance.client_name}-changes", self._read)

    async def events(self) -> AsyncIterator[StoreChange | None]:
        """Yield changes, and None after each ten seconds without a change."""
        try:
            while not self._is_slow or not self._queue.empty():
                try:
                    async with asyncio.timeout(_QUIET_S):
                        change = await self._queue.get()
                except TimeoutError:
                    yield None
                    continue
                if change is None:
                    return
                yield change
        finally:
            self._changes.close()

    @property
    def is_slow(self) -> bool:
        """Whether the queue has overflowed because the client was too slow."""
        return self._is_slow

    def _read(self) -> None:
        try:
            while not self._changes.is_closed and self._instance.life.is_up:
                changes = self._changes.poll()
                if self._key is not None:
                    changes = [change for change in changes if change.entry.key == self._key]
                if changes and not self._loop.is_closed():
                    self._loop.call_soon_threadsafe(self._put, changes)
        finally:
            self._changes.release()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._end)

    def _put(self, changes: list[StoreChange]) -> None:
        for change in changes:
            if self._queue.full():
                self._is_slow = True
                self._changes.close()
                return
            self._queue.put_nowait(change)

    def _end(self) -> None:
        if not self._queue.full():
            self._queue.put_nowait(None)


def no_room() -> Refused:
    """Return the error for a client that would exceed ``MAX_FOLLOWERS``."""
    return Refused(503, "TOO_MANY", f"{MAX_FOLLOWERS} clients follow changes already; retry later")


def event_stream(parts: AsyncIterator[bytes]) -> StreamingResponse:
    """Return a response that sends ``parts`` as a stream of server-sent events."""
    return StreamingResponse(parts, media_type="text/event-stream")
