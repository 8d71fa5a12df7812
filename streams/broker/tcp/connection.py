"""One client's connection: frames in, answers out, one after the other.

Runs on the server's loop and never waits there: a request whose answer is not there yet holds back what its own
client sends after it, and nobody else.  What cannot be read closes this connection alone.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol, cast

from streams.broker.driver import Driver
from streams.broker.limits import Limits
from streams.broker.tcp.address import Address
from streams.broker.tcp.authentication import AUTHENTICATE, HANDSHAKE, Authentication, AuthenticationError
from streams.broker.tcp.records import has_failed
from streams.broker.tcp.requests import OPEN_TO_ALL, VERSIONS, Exchange, asking, read_message, versions_answer
from streams.broker.tcp.users import Users
from streams.core.errors import BrokerError
from streams.protocol.wire import (
    API_VERSIONS,
    EncodingError,
    FrameReader,
    MalformedError,
    UnsupportedVersionError,
    read_request_header,
    refused_versions,
)
from streams.protocol.wire.mapping import Serving

_LOGGER = logging.getLogger(__name__)

# Bytes of requests that wait for their turn, above which nothing more is read.
_QUEUED_BYTES: Final = 1 << 20
# For so long a connection that is to be closed may still send what it has.
_CLOSING_S: Final = 5.0
_SIZE: Final = Struct(">i")


class Door(Protocol):
    """What a connection needs of its listener."""

    @property
    def behind(self) -> Driver:
        """The broker."""
        ...

    @property
    def limits(self) -> Limits:
        """What is taken from a client."""
        ...

    @property
    def users(self) -> Users | None:
        """Who may come in; None = anybody."""
        ...

    def came(self, connection: "ClientConnection") -> bool:
        """Take a connection in; False where there is no room for it."""
        ...

    def went(self, connection: "ClientConnection") -> None:
        """Forget a connection."""
        ...

    def later(self, act: Callable[[], None]) -> None:
        """Call something on the loop; from any thread."""
        ...

    def advertised(self, local: Address) -> Address:
        """Return the address under which a client that has connected to this one finds the broker."""
        ...


class ClientConnection(asyncio.Protocol):
    """A client's requests, answered in order."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._host = door.behind
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(door.limits.max_request_bytes)
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._pending: Exchange | None = None
        self._authentication = None if door.users is None else Authentication(door.users)
        self._is_choked = self._is_paused = self._is_closing = self._is_working = False
        self._output: list[bytes] = []
        self.peer = self._client_host = ""
        #: When something last came, on the loop's clock.
        self.active_s = self._loop.time()

    # --- what the loop calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of who it is."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = _text_of(peer)
        # As Java writes an address that it has no name for; tools show it as it comes.
        self._client_host = f"/{peer[0]}" if isinstance(peer, tuple) else ""
        if not self._door.came(self):
            self._is_closing = True
            self._transport.abort()
            return
        local = transport.get_extra_info("sockname")
        found = self._door.advertised(Address(local[0], local[1]))
        self._serving = Serving(self._host.cluster_id, {self._host.node_id: found}, self._host.node_id)

    def data_received(self, data: bytes) -> None:
        """Take bytes; do what they ask for, as far as it is its turn."""
        self.active_s = self._loop.time()
        frames = self._reader.feed(data)
        self._frames += frames
        for frame in frames:
            self._queued_bytes += len(frame)
        self._work()

    def pause_writing(self) -> None:
        """The client does not take its answers: nothing more is done for it."""
        self._is_choked = True

    def resume_writing(self) -> None:
        """It does again."""
        self._is_choked = False
        self._work()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the client, and what it waits for."""
        self._is_closing = True
        self._frames.clear()
        self._door.went(self)
        pending, self._pending = self._pending, None
        waiting = None if pending is None else pending.waiting
        if waiting is not None:
            try:
                self._host.act(lambda machine, _: machine.forget_fetch(waiting))
            except BrokerError:
                # It is closed, and its fetches with it.
                _LOGGER.debug("client %s: gone after the broker", self.peer)

    # --- what the server calls ------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being done for it."""
        return self._pending is None

    def close(self) -> None:
        """Send what there is to send, and close."""
        if not self._is_closing:
            self._is_closing = True
            self._frames.clear()
            self._flush()
            self._transport.close()
            self._loop.call_later(_CLOSING_S, self._transport.abort)

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._transport.abort()

    # --- requests -------------------------------------------------------------------------

    def _work(self) -> None:
        """Do what waits, until the client has to wait for something."""
        if self._is_working:
            return
        self._is_working = True
        try:
            while self._frames and self._pending is None and not (self._is_choked or self._is_closing):
                frame = self._frames.popleft()
                self._queued_bytes -= len(frame)
                self._take(frame)
                if len(self._output) > 1:
                    self._flush()
        finally:
            self._is_working = False
        if self._reader.fault is not None and self._pending is None and not self._frames:
            # All that came before is answered.
            self._refuse("sends what is no request: %s", self._reader.fault)
        self._flush()
        self._hold_back()

    def _hold_back(self) -> None:
        """Read no more than what can be done soon."""
        is_enough = self._queued_bytes > _QUEUED_BYTES or self._reader.fault is not None
        should_pause = is_enough and not self._is_closing
        if should_pause != self._is_paused and not self._transport.is_closing():
            self._is_paused = should_pause
            if should_pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _take(self, frame: bytes) -> None:
        try:
            if self._authentication is not None and self._authentication.is_bare:
                self._take_token(self._authentication, frame)
                return
            header, position = read_request_header(frame)
            if header.api_key == API_VERSIONS and header.api_version > VERSIONS[API_VERSIONS][1]:
                self._output += refused_versions(header.correlation_id, VERSIONS)
                return
            message = read_message(header, frame, position)
            exchange = Exchange(header, message, self._done_later)
            if header.api_key in OPEN_TO_ALL:
                self._open_up(exchange)
            elif self._authentication is not None and not self._authentication.is_done:
                self._refuse("asks for %s before it has proved who it is", header.api)
            else:
                self._ask(exchange)
        except (MalformedError, UnsupportedVersionError, EncodingError) as error:
            self._refuse("asks for what cannot be answered: %s", error)
        except AuthenticationError as error:
            self._refuse("authentication failed: %s", error)
        except Exception:
            # A fault of ours: it must not take the other clients along.
            _LOGGER.exception("client %s: its request could not be served; its connection is closed", self.peer)
            self.close()

    def _ask(self, exchange: Exchange) -> None:
        ask = asking(exchange, self._serving, self._client_host)
        is_there = True

        def act(machine: object, now_ms: int) -> None:
            nonlocal is_there
            ask(machine, now_ms)  # type: ignore[arg-type]
            is_there = exchange.end_asking()

        self._host.act(act)
        if is_there:
            self._reply(exchange)
        else:
            self._pending = exchange

    def _done_later(self, exchange: Exchange) -> None:
        """The answer has come; called under the broker's lock, from any thread."""
        self._door.later(lambda: self._finish(exchange))

    def _finish(self, exchange: Exchange) -> None:
        if self._pending is not exchange:
            return  # The client has gone.
        self._pending = None
        try:
            self._reply(exchange)
        except EncodingError:
            _LOGGER.exception("client %s: no answer to %s; its connection is closed", self.peer, exchange.header.api)
            self.close()
            return
        self._work()

    def _reply(self, exchange: Exchange) -> None:
        if exchange.answer is None:
            exchange.complete()
        if exchange.is_answered:
            self._output += exchange.encoded()
        elif exchange.answer is not None and has_failed(exchange.answer):
            # Nobody waits for an answer: what tells the producer is that its connection ends, as in Kafka.
            self._refuse("records were refused that were sent with acks=0")

    # --- before that ----------------------------------------------------------------------

    def _open_up(self, exchange: Exchange) -> None:
        """Answer what anybody may ask."""
        header, authentication = exchange.header, self._authentication
        if header.api_key == API_VERSIONS:
            exchange.answer = versions_answer()
        elif authentication is None:
            self._refuse("asks for %s, but this listener knows no users", header.api)
            return
        elif header.api_key == HANDSHAKE:
            exchange.answer = authentication.handshake(exchange.message, header.api_version)
        else:
            assert header.api_key == AUTHENTICATE
            exchange.answer = authentication.authenticate(exchange.message)
        self._reply(exchange)
        if header.api_key == AUTHENTICATE and exchange.answer["error_code"]:
            self._refuse("%s", exchange.answer["error_message"])

    def _take_token(self, authentication: Authentication, token: bytes) -> None:
        answer = authentication.token(token)
        self._output += (_SIZE.pack(len(answer)), answer)

    def _refuse(self, reason: str, *arguments: object) -> None:
        """Close the connection and say why."""
        if not self._is_closing:
            _LOGGER.warning("client %s: " + reason + "; its connection is closed", self.peer, *arguments)
            self.close()

    def _flush(self) -> None:
        if self._output:
            self._transport.writelines(self._output)
            self._output = []


def _text_of(address: object) -> str:
    return str(Address(*address[:2])) if isinstance(address, tuple) else "unknown"
