"""The event loop part of a server, which accepts and limits connections, and drives the broker timers.

The code here and in ``connection`` runs on one event loop; other threads only call ``nudge`` and ``stop``.
A connection counts towards ``max_connections`` from the moment it is accepted, including its TLS handshake.
The thread is owned by ``server``.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from attrs import define, field

from streams.broker.logs.descriptors import is_for_clients
from streams.broker.tcp.connection import ClientConnection
from streams.broker.tcp.tcp_service import TcpService, call_soon
from streams.core.errors import BrokerError
from streams.core.http.address import Address

_LOGGER = logging.getLogger(__name__)

_BACKLOG: Final = 512
#: Number of connections accepted per event loop iteration.
_AT_ONCE: Final = 32
# How long to pause accepting after the system has run out of descriptors, in seconds.
_REST_S: Final = 1.0
# Interval between checks for idle connections, and time for clients to read their last responses, in seconds.
_SWEEP_S: Final = 10.0
_FAREWELL_S: Final = 2.0
# Number of event loop iterations after which a transport has been created or closed.
_TURNS: Final = 5


@define(eq=False)
class Listener:
    """The event loop part of a server: a listening address and its connections."""

    service: TcpService
    tls: ssl.SSLContext | None
    connections: set[ClientConnection] = field(factory=set, init=False)
    # The unauthenticated connections, oldest first.
    _unauthenticated: dict[ClientConnection, None] = field(factory=dict, init=False)
    _sockets: list[socket.socket] = field(factory=list, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _stopping: asyncio.Event = field(factory=asyncio.Event, init=False)
    _empty: asyncio.Event = field(factory=asyncio.Event, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _rest: asyncio.TimerHandle | None = field(default=None, init=False)
    _is_nudged: bool = field(default=False, init=False)
    _has_said_full: bool = field(default=False, init=False)

    async def run(self, on_start: Callable[[Address], None]) -> None:
        """Serve until ``stop`` is called; ``on_start`` is called with the bound address.

        Raises:
            OSError: the address cannot be bound.
        """
        loop = self._loop = asyncio.get_running_loop()
        service = self.service
        self._sockets = await _listening(service.listen)
        try:
            service.listen = Address(service.listen.host, self._sockets[0].getsockname()[1])
            service.driver.keep_time(self)
            try:
                self._accept_from_now_on()
                self._tick()
                self._sweep(loop)
                on_start(service.listen)
                await self._stopping.wait()
            finally:
                service.driver.release(self)
                await self._see_off(loop)
        finally:
            for listening in self._sockets:
                listening.close()

    def stop(self) -> None:
        """Make ``run`` return; may be called from any thread."""
        assert self._loop is not None
        call_soon(self._loop, self._stopping.set)

    async def _see_off(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._rest is not None:
            self._rest.cancel()
        for listening in self._sockets:
            loop.remove_reader(listening)
        await _iterations()
        for connection in list(self.connections):
            connection.close()
        if self.connections:
            try:
                await asyncio.wait_for(self._empty.wait(), _FAREWELL_S)
            except TimeoutError:
                for connection in list(self.connections):
                    connection.abort()
        await _iterations()

    # --- accepting ------------------------------------------------------------------------

    def _accept_from_now_on(self) -> None:
        assert self._loop is not None
        self._rest = None
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept pending connections, up to the limit per event loop iteration."""
        for _ in range(_AT_ONCE):
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._take_rest(error)
                return
            self._has_said_full = False
            self._admit(sock, peer)

    def _take_rest(self, error: OSError) -> None:
        """Pause accepting connections, because the system has no file descriptor or memory for another one."""
        assert self._loop is not None
        for listening in self._sockets:
            self._loop.remove_reader(listening)
        self._rest = self._loop.call_later(_REST_S, self._accept_from_now_on)
        if not self._has_said_full:
            self._has_said_full = True
            _LOGGER.warning(
                "no more connections are accepted until others end: %s; raise the limit of open files (ulimit -n)",
                error.strerror or error,
            )

    def _admit(self, sock: socket.socket, peer: object) -> None:
        assert self._loop is not None
        limits = self.service.limits
        connection = ClientConnection(self.service, peer, self._on_authenticated, self._on_closed)
        is_full = len(self.connections) >= limits.max_connections
        if (is_full or not is_for_clients(sock.fileno())) and not self._make_room():
            if is_full:
                reason = f"there are {limits.max_connections} connections already"
            else:
                reason = "the other descriptors of the process are left to files; raise the limit (ulimit -n)"
            _LOGGER.warning("client %s: rejected, because %s", connection.peer, reason)
            sock.close()
            return
        sock.setblocking(False)
        self.connections.add(connection)
        self._unauthenticated[connection] = None
        arrival = self._loop.create_task(
            self._loop.connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=self.tls,
                ssl_handshake_timeout=None if self.tls is None else limits.login_ms / 1000,
            )
        )
        arrival.add_done_callback(partial(self._arrived, connection, sock))
        connection.begin(arrival)

    def _arrived(self, connection: ClientConnection, sock: socket.socket, arrival: "asyncio.Task[Any]") -> None:
        """Unregister a connection that got no transport: TLS failed or timed out, or the client disconnected."""
        assert self._loop is not None
        error = None if arrival.cancelled() else arrival.exception()
        if error is not None:
            _LOGGER.info("client %s: no connection: %s", connection.peer, error)
        if not connection.is_made:
            self._on_closed(connection)
            self._loop.call_soon(sock.close)

    def _make_room(self) -> bool:
        """Close the oldest unauthenticated connection to make room for another; return False if there is none."""
        oldest = next(iter(self._unauthenticated), None)
        if oldest is None:
            return False
        _LOGGER.info(
            "client %s: not authenticated yet, and the connection limit is reached; its connection is closed",
            oldest.peer,
        )
        oldest.abort()
        self._on_closed(oldest)
        return True

    # --- called by connections ------------------------------------------------------------

    def _on_authenticated(self, connection: ClientConnection) -> None:
        self._unauthenticated.pop(connection, None)

    def _on_closed(self, connection: ClientConnection) -> None:
        self._unauthenticated.pop(connection, None)
        self.connections.discard(connection)
        connection.forget_timers()
        if not self.connections and self._stopping.is_set():
            self._empty.set()

    # --- time -----------------------------------------------------------------------------

    def nudge(self) -> None:
        """Check the next timer deadline again; called from any thread, under the broker lock."""
        if not self._is_nudged:
            assert self._loop is not None
            self._is_nudged = True
            call_soon(self._loop, self._tick)

    def _tick(self) -> None:
        """Run the broker timers that are due, and schedule the next call of this method."""
        self._is_nudged = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            wait_ms = self.service.driver.run_due()
        except BrokerError:
            return  # The broker is closed; this listener will be closed soon.
        if wait_ms is not None and not self._stopping.is_set():
            assert self._loop is not None
            self._timer = self._loop.call_later(wait_ms / 1000, self._tick)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the connections that have been idle for ``idle_ms``, and schedule the next call of this method."""
        if self._stopping.is_set():
            return
        idle_s = self.service.limits.idle_ms / 1000
        before_s = loop.time() - idle_s
        for connection in list(self.connections):
            if connection.is_idle and connection.active_s < before_s:
                _LOGGER.info("client %s: no data for %d s; its connection is closed", connection.peer, idle_s)
                connection.close()
        loop.call_later(min(_SWEEP_S, max(idle_s / 2, 0.01)), partial(self._sweep, loop))


async def _listening(address: Address) -> list[socket.socket]:
    """Return listening sockets for all IP addresses of a host."""
    host, port = address
    loop = asyncio.get_running_loop()
    places = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, place in places:
            # With port 0, a free port is chosen only once, and used for all addresses.
            chosen = (place[0], port or (sockets[0].getsockname()[1] if sockets else 0), *place[2:])
            try:
                listening = socket.create_server(chosen, family=family, backlog=_BACKLOG)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT and len(places) > 1:
                    continue  # For example, a machine without IPv6.
                raise
            # Connections inherit it; asyncio does not set it on those of a socket without a protocol number.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listening.setblocking(False)
            sockets.append(listening)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets


async def _iterations() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
