"""Settings of the HTTP servers of this library, which uvicorn runs (extra ``web``).

This module imports no other module of the project; uvicorn is imported on use.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from attrs import define

if TYPE_CHECKING:
    from uvicorn import Config

#: Maximum number of connections that wait to be accepted.
BACKLOG: Final = 2_048
#: Maximum number of open connections of a server; further ones get status 503.
MAX_CONNECTIONS: Final = 512
#: Time in which a connection must begin a request, in seconds.
IDLE_S: Final = 15
#: Time for open requests to complete when a server closes, in seconds.
GRACE_S: Final = 2
#: Largest size of a request line with its headers in bytes.
_MAX_HEAD_BYTES: Final = 32 << 10

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


def server_config(application: Any, http: Any = "h11") -> "Config":
    """Return the settings of a server within a program: it writes no logs.

    ``application`` is an ASGI application; ``http`` is uvicorn's implementation of HTTP/1.1, or a class of one's own.
    An answer that comes before the whole body has been read says ``connection: close``, and the connection is closed.
    """
    from uvicorn import Config

    return Config(
        _BodyReading(application),
        http=http,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=GRACE_S,
    )


@define
class _BodyReading:
    """Closes connections whose request has a body that the application has not read, and says so in the answer.

    A client that is not told may send its next request on this connection, and lose it.
    """

    _application: Callable[[_Message, _Receive, _Send], Awaitable[None]]

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Serve a request."""
        exchange = _Exchange(receive, send, is_read=not _has_body(scope))
        await self._application(scope, exchange.receive, exchange.send)


@define
class _Exchange:
    """A request and its answer."""

    _receive: _Receive
    _send: _Send
    #: Whether the application has read the whole body.
    _is_read: bool

    async def receive(self) -> _Message:
        """Read the next part of the body."""
        message = await self._receive()
        self._is_read = not message.get("more_body", False)
        return message

    async def send(self, message: _Message) -> None:
        """Write the next part of the answer."""
        if message["type"] == "http.response.start" and not self._is_read:
            headers = [header for header in message.get("headers", ()) if header[0].lower() != b"connection"]
            message["headers"] = [*headers, (b"connection", b"close")]
        await self._send(message)


def _has_body(scope: _Message) -> bool:
    headers = dict(scope["headers"])
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
