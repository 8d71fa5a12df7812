"""The connections of the HTTP servers of this library: their number and the time until a request are limited.

uvicorn is imported with this module (extra ``web``).  It imports no other module of the project.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class LimitedConnection(H11Protocol):
    """A connection of uvicorn; it is closed if there are too many connections, or if no request arrives in time.

    ``max_connections`` is the number of open ones, ``idle_s`` the time in seconds; a connection is closed after at most
    twice this time.  A request has arrived when all of its headers have: a client that sends them slowly is like one
    that sends nothing.
    """

    def __init__(self, *arguments: Any, max_connections: int, idle_s: float, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._max_connections = max_connections
        self._idle_s = idle_s
        self._seen: object = None
        self._timer: asyncio.TimerHandle | None = None
        #: Whether the connection is beyond the maximum, so that its requests are not served.
        self.is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, or refuse the connection with status 503."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self._idle_s, self._check_idle)
        self.is_refused = len(self.connections) > self._max_connections
        if self.is_refused:
            transport.write(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\r\n")
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _check_idle(self) -> None:
        """Close the connection if no request has begun since the last check, and none is in progress."""
        cycle = self.cycle
        is_busy = cycle is not None and not cycle.response_complete
        if not is_busy and cycle is self._seen:
            self.transport.close()
            return
        self._seen = cycle
        self._timer = self.loop.call_later(self._idle_s, self._check_idle)
