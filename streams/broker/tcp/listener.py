"""The loop's side of a server: takes connections in, bounds them, and drives the machine's timers.

Everything here and in ``connection`` happens on one loop; other threads come in through ``later`` only.
Under ``server``, which has the thread.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from attrs import define, field

from streams.broker.driver import Driver
from streams.broker.limits import Limits
from streams.broker.tcp.address import WILDCARDS, Address
from streams.broker.tcp.connection import ClientConnection
from streams.broker.tcp.users import Users
from streams.core.errors import BrokerError

_LOGGER = logging.getLogger(__name__)

_BACKLOG: Final = 512
_HANDSHAKE_S: Final = 10.0
# So often idle connections are looked for, and for so long clients may take what is left for them at the end.
_SWEEP_S: Final = 10.0
_FAREWELL_S: Final = 2.0
# Turns of the loop within which a transport is made, or closed.
_TURNS: Final = 5


@define(eq=False)
class Listener:
    """One listening address with its connections.

    ``advertise``: what clients are told, None = the address listened on, and where that is every address of the
    machine, the one that a client has come to.
    """

    behind: Driver
    listen: Address
    limits: Limits
    users: Users | None
    tls: ssl.SSLContext | None
    advertise: Address | None
    connections: set[ClientConnection] = field(factory=set, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _stopping: asyncio.Event = field(factory=asyncio.Event, init=False)
    _empty: asyncio.Event = field(factory=asyncio.Event, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _is_nudged: bool = field(default=False, init=False)

    async def run(self, on_start: Callable[[Address], None]) -> None:
        """Serve until ``stop``; ``on_start`` is told where.

        Raises:
            OSError: nobody can listen at that address.
        """
        loop = self._loop = asyncio.get_running_loop()
        host, port = self.listen
        server = await loop.create_server(
            lambda: ClientConnection(self),
            host or None,
            port,
            ssl=self.tls,
            ssl_handshake_timeout=None if self.tls is None else _HANDSHAKE_S,
            backlog=_BACKLOG,
        )
        try:
            bound = server.sockets[0].getsockname()
            self.listen = Address(host, bound[1])
            self.behind.keep_time(self)
            self._tick()
            self._sweep()
            on_start(self.listen)
            await self._stopping.wait()
        finally:
            self.behind.release(self)
            await self._see_off(server)

    def stop(self) -> None:
        """End ``run``; on the loop."""
        self._stopping.set()

    async def _see_off(self, server: asyncio.Server) -> None:
        # A server that is closed fails over what it accepted a moment ago, and leaves it open: so accepting ends
        # first, and what is on its way comes in.
        for socket in server.sockets:
            asyncio.get_running_loop().remove_reader(socket.fileno())
        await _turns()
        server.close()
        for connection in list(self.connections):
            connection.close()
        if self.connections:
            try:
                await asyncio.wait_for(self._empty.wait(), _FAREWELL_S)
            except TimeoutError:
                for connection in list(self.connections):
                    connection.abort()
        await _turns()

    # --- the door of connections ----------------------------------------------------------

    def came(self, connection: ClientConnection) -> bool:
        """Take a connection in; False where there is no room for it."""
        if self._stopping.is_set():
            return False
        if len(self.connections) >= self.limits.max_connections:
            limit = self.limits.max_connections
            _LOGGER.warning("client %s: refused, for there are %d connections already", connection.peer, limit)
            return False
        self.connections.add(connection)
        return True

    def went(self, connection: ClientConnection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        if not self.connections and self._stopping.is_set():
            self._empty.set()

    def later(self, act: Callable[[], None]) -> None:
        """Call something on the loop; from any thread."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            # The loop has ended, and with it whoever would have got this.
            _LOGGER.debug("an answer came after the server's end")

    def advertised(self, local: Address) -> Address:
        """Return the address under which a client that has connected to this one finds the broker."""
        if self.advertise is not None:
            return self.advertise
        return local if self.listen.host in WILDCARDS else self.listen

    # --- time -----------------------------------------------------------------------------

    def nudge(self) -> None:
        """Look for the next deadline again; from any thread, under the broker's lock."""
        if not self._is_nudged:
            self._is_nudged = True
            self.later(self._tick)

    def _tick(self) -> None:
        """Run what is due, and come back when the next is."""
        self._is_nudged = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            wait_ms = self.behind.run_due()
        except BrokerError:
            return  # It is closed; so is this soon.
        if wait_ms is not None and not self._stopping.is_set():
            assert self._loop is not None
            self._timer = self._loop.call_later(wait_ms / 1000, self._tick)

    def _sweep(self) -> None:
        """Close connections on which nothing has come for too long."""
        assert self._loop is not None
        if self._stopping.is_set():
            return
        idle_s = self.limits.idle_ms / 1000
        before_s = self._loop.time() - idle_s
        for connection in list(self.connections):
            if connection.is_idle and connection.active_s < before_s:
                _LOGGER.info("client %s: nothing has come for %d s; its connection is closed", connection.peer, idle_s)
                connection.close()
        self._loop.call_later(min(_SWEEP_S, max(idle_s / 2, 0.01)), self._sweep)


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
