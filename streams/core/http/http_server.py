"""The HTTP server of this library: uvicorn in a thread, with limits of connections, header size and idle time.

Queries and the live page, webhooks and the schema registry are applications of it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, Final

import uvicorn
from attrs import define
from uvicorn.protocols.http.h11_impl import H11Protocol

from streams.core.concurrency.threads import Signal, SystemThreads
from streams.core.errors import ConfigError
from streams.core.http.address import Address

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


class HttpServer:
    """A running server of an ASGI application; it has a thread with an event loop, and writes no logs.

    ``address`` is where it listens.  ``on_stop`` is awaited on the event loop after the last request.  Beyond
    ``MAX_CONNECTIONS`` open connections, and ``waiting_connections`` whose requests wait for long, further ones get
    status 503.  An answer that comes before the whole body has been read says ``connection: close``, and the connection
    is closed.

    Raises:
        ConfigError: the address is taken, or is not one of this machine.
    """

    def __init__(
        self,
        application: Any,
        address: Address,
        thread_name: str,
        *,
        waiting_connections: int = 0,
        on_stop: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        listening = _listening(address)
        self.address = Address(*listening.getsockname()[:2])
        threads = SystemThreads()
        is_up = threads.signal()
        connection = partial(_Connection, max_connections=MAX_CONNECTIONS + waiting_connections, idle_s=IDLE_S)
        self._uvicorn = _Uvicorn(_config(application, connection), is_up, on_stop)
        self._worker = threads.start(thread_name, lambda: self._uvicorn.run([listening]))
        is_up.wait()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which the application runs."""
        assert self._uvicorn.loop is not None, "the server is up"
        return self._uvicorn.loop

    @property
    def is_open(self) -> bool:
        """Whether the server has not been closed."""
        return not self._uvicorn.should_exit

    def close(self) -> None:
        """Stop listening, and wait up to two seconds for open requests to complete.  A second call has no effect."""
        self._uvicorn.should_exit = True
        self._worker.join()


class _Uvicorn(uvicorn.Server):
    """A server that sets a signal once it accepts requests."""

    def __init__(
        self,
        config: uvicorn.Config,
        is_up: Signal,
        on_stop: Callable[[], Awaitable[None]] | None,
    ) -> None:
        super().__init__(config)
        self._is_up = is_up
        self._on_stop = on_stop
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._is_up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, and end what belongs to the server."""
        await super().shutdown(sockets)
        if self._on_stop is not None:
            await self._on_stop()


def _listening(address: Address) -> socket.socket:
    """Return a socket that listens; a host name may have several addresses, of which the first counts.

    Raises:
        ConfigError: the address is taken, or is not one of this machine.
    """
    try:
        family, *_, place = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen at {address}: {error.strerror or error}") from None
    # Connections inherit it.  asyncio does not set it on those of a socket without a protocol number, and the body of
    # an answer, which follows its headers, would wait 40 ms for the client's acknowledgement of them.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _config(application: Any, connection: Any) -> uvicorn.Config:
    return uvicorn.Config(
        _BodyReading(application),
        http=connection,
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


class _Connection(H11Protocol):
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
        if message.get("more_body"):
            # A stream whose next parts are at hand would not hear that its client is gone, and write them all.
            await asyncio.sleep(0)


def _has_body(scope: _Message) -> bool:
    headers = dict(scope["headers"])
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
