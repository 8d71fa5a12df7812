"""A client connection that reads frames and sends responses in order.

Connections run on the event loop of the server without blocking it: a request whose response is pending
delays only later requests on the same connection.  Unreadable bytes close only this connection.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, Final, cast

from streams.broker.features import VERSIONS
from streams.broker.logs.limits import (
    ANSWER_BYTES,
    FETCH_BYTES,
    REQUESTS_AT_ONCE,
    SCARCE_FETCH_BYTES,
    UNSENT_BYTES,
)
from streams.broker.service import Broker
from streams.broker.tcp.authentication import Authentication, AuthenticationFailed
from streams.broker.tcp.requests import Exchange, read_request
from streams.broker.tcp.tcp_service import TcpService, call_soon
from streams.core.errors import BrokerError
from streams.core.http.address import Address
from streams.protocol.admin_messages import (
    ApiVersions,
    SaslAuthenticate,
    SaslAuthenticateResponse,
    SaslHandshake,
)
from streams.protocol.request import ClientInformation, Response
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

# Bytes of queued requests above which reading is paused.
_QUEUED_BYTES: Final = 1 << 20
# Bytes per write: the transport copies the bytes that it cannot send at once.
_WRITE_BYTES: Final = 1 << 18
# Time in seconds in which a closing connection must have sent its responses.
_CLOSING_S: Final = 5.0
_SIZE: Final = Struct(">i")


class ClientConnection(asyncio.Protocol):
    """The server side of a client connection.

    A connection exists from the moment its socket is accepted.  ``_is_admitted`` becomes True once the client is
    authenticated or, without users, has sent a request.  ``on_admitted`` and ``on_closed`` are then called with it, and
    at its end.
    """

    def __init__(
        self,
        service: TcpService,
        peer: object,
        on_admitted: Callable[["ClientConnection"], None],
        on_closed: Callable[["ClientConnection"], None],
    ) -> None:
        self._service = service
        self._on_admitted = on_admitted
        self._on_closed = on_closed
        self._driver = service.driver
        self._loop = asyncio.get_running_loop()
        limits = service.limits
        most_bytes = limits.max_request_bytes
        if service.users is not None:
            most_bytes = min(most_bytes, limits.max_login_bytes)
        self._reader = FrameReader(most_bytes)
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._pending: Exchange | None = None
        now_ms = service.driver.clock.now_ms
        self._authentication = None if service.users is None else Authentication(service.users, now_ms=now_ms)
        self._is_client_slow = self._is_paused = self._is_closing = self._is_working = False
        self._is_admitted = self._is_rejected = False
        self._output: deque[bytes | memoryview] = deque()
        self._unsent_bytes = self._counted_bytes = 0
        self._arrival: asyncio.Task[Any] | None = None
        self._transport: asyncio.Transport | None = None
        self._login_timer = self._loop.call_later(limits.login_ms / 1000, self._on_login_timeout)
        self.peer = _text_of(peer)
        # How Java writes an address without a host name; tools show it unchanged.
        self._client = ClientInformation("", f"/{peer[0]}") if isinstance(peer, tuple) else ClientInformation()
        #: When bytes last arrived, in seconds on the clock of the event loop.
        self.active_s = self._loop.time()

    def begin(self, arrival: "asyncio.Task[Any]") -> None:
        """Set the asyncio task that creates the transport of the connection."""
        self._arrival = arrival

    # --- called by the event loop ---------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport and the addresses of both ends."""
        self._transport = cast(asyncio.Transport, transport)
        if self._is_closing:
            self._transport.abort()
            return
        local = transport.get_extra_info("sockname")
        address = self._service.advertised(Address(local[0], local[1]))
        self._serving = Serving(self._driver.cluster_id, {self._driver.node_id: address}, self._driver.node_id)

    def data_received(self, data: bytes) -> None:
        """Split received bytes into frames, and handle requests, up to a limit per event loop iteration."""
        self.active_s = self._loop.time()
        frames = self._reader.feed(data)
        self._frames += frames
        for frame in frames:
            self._queued_bytes += len(frame)
        self._work()

    def pause_writing(self) -> None:
        """Stop handling requests, because the client does not read its responses."""
        self._is_client_slow = True

    def resume_writing(self) -> None:
        """Resume handling requests, because the client reads its responses again."""
        self._is_client_slow = False
        self.active_s = self._loop.time()
        self._flush()
        self._work()

    def connection_lost(self, error: Exception | None) -> None:
        """Drop the waiting fetch of the client, and unregister the connection."""
        self._is_closing = True
        self._frames.clear()
        self._output.clear()
        self._note_unsent(0)
        self._on_closed(self)
        pending = self._pending
        self._pending = None
        waiting = None if pending is None else pending.waiting
        if waiting is not None:
            try:
                self._driver.act(lambda machine, _: machine.on_disconnect(waiting))
            except BrokerError:
                # The broker is closed, and has dropped its waiting fetches.
                _LOGGER.debug("client %s: gone after the broker", self.peer)

    # --- called by the listener -----------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether the connection has no request in progress."""
        return self._pending is None

    @property
    def is_made(self) -> bool:
        """Whether the connection has a transport, so that ``connection_lost`` will be called."""
        return self._transport is not None

    def close(self) -> None:
        """Close the connection after pending responses have been sent."""
        if self._is_closing:
            return
        if self._transport is None:
            self.abort()
            return
        self._is_closing = True
        self._frames.clear()
        self._flush()
        self._loop.call_later(_CLOSING_S, self._transport.abort)

    def abort(self) -> None:
        """Close the connection at once, without sending pending responses."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()
        elif self._arrival is not None:
            self._arrival.cancel()

    def forget_timers(self) -> None:
        """Cancel the login timeout."""
        self._login_timer.cancel()

    def _on_login_timeout(self) -> None:
        _LOGGER.info(
            "client %s: login not completed within %d ms; its connection is closed",
            self.peer,
            self._service.limits.login_ms,
        )
        self.abort()

    def _admit(self) -> None:
        """Admit the client, which is authenticated or, if the server has no users, has sent a request."""
        self._is_admitted = True
        self._login_timer.cancel()
        self._reader.max_bytes = self._service.limits.max_request_bytes
        self._on_admitted(self)

    # --- requests -------------------------------------------------------------------------

    def _work(self) -> None:
        """Handle queued requests, until the response to a request is not available immediately."""
        if self._is_working:
            return
        self._is_working = True
        try:
            for _ in range(REQUESTS_AT_ONCE):
                if not self._frames or self._pending is not None or not self._may_work:
                    break
                frame = self._frames.popleft()
                self._queued_bytes -= len(frame)
                self._take(frame)
                if len(self._output) > 1:
                    self._flush()
            else:
                self._loop.call_soon(self._work)
        finally:
            self._is_working = False
        if self._reader.fault is not None and self._pending is None and not self._frames and self._may_work:
            # All earlier requests have been answered: now close the connection.
            self._refuse("sent an invalid request: %s", self._reader.fault)
        self._flush()
        self._hold_back()

    @property
    def _may_work(self) -> bool:
        return not (self._is_client_slow or self._is_closing or self._is_rejected)

    def _hold_back(self) -> None:
        """Pause reading from the client while the queued requests exceed the limit."""
        is_enough = self._queued_bytes > _QUEUED_BYTES or self._reader.fault is not None
        should_pause = (is_enough or self._is_rejected) and not self._is_closing
        assert self._transport is not None
        if should_pause != self._is_paused and not self._transport.is_closing():
            self._is_paused = should_pause
            if should_pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _take(self, frame: bytes) -> None:
        try:
            if not self._is_admitted and self._authentication is None:
                self._admit()
            if self._authentication is not None and self._authentication.is_bare:
                self._take_token(self._authentication, frame)
                return
            header, position = read_request_header(frame)
            if header.api_key == API_VERSIONS and header.api_version > VERSIONS[API_VERSIONS][1]:
                self._put(refused_versions(header.correlation_id, VERSIONS))
                return
            if (client_id := header.client_id or "") != self._client.client_id:
                self._client = self._client._replace(client_id=client_id)
            exchange = Exchange(header, read_request(header, frame, position, self._client), self._done_later)
            first = next(iter(exchange.requests), None)
            if isinstance(first, ApiVersions | SaslHandshake | SaslAuthenticate):
                self._open_session(first, exchange)
            elif self._authentication is not None and not self._authentication.is_done:
                self._refuse("sent %s before it was authenticated", header.api)
            elif self._authentication is not None and self._authentication.has_expired:
                self._refuse("sent %s after its session had expired", header.api)
            else:
                self._ask(exchange)
        except (MalformedError, UnsupportedVersionError, EncodingError) as error:
            self._refuse("sent an unsupported request: %s", error)
        except AuthenticationFailed as error:
            self._reject_login(str(error), None)
        except Exception:
            # A bug in the broker must not affect other clients.
            _LOGGER.exception("client %s: its request could not be served; its connection is closed", self.peer)
            self.close()

    def _ask(self, exchange: Exchange) -> None:
        fetch_bytes = self._fetch_bytes()
        is_there = True

        def act(machine: Broker, now_ms: int) -> None:
            nonlocal is_there
            is_there = exchange.submit(fetch_bytes, machine, now_ms)

        self._driver.act(act)
        if is_there:
            self._reply(exchange)
        else:
            self._pending = exchange

    def _fetch_bytes(self) -> int:
        """Return the current size limit for a fetch response in bytes."""
        room = UNSENT_BYTES - self._service.unsent_bytes
        return min(FETCH_BYTES, max(room, SCARCE_FETCH_BYTES))

    def _done_later(self, exchange: Exchange) -> None:
        """Send the response of a request that was completed later; called from any thread, under the broker lock."""
        call_soon(self._loop, lambda: self._finish(exchange))

    def _finish(self, exchange: Exchange) -> None:
        if self._pending is not exchange:
            return  # The client has disconnected.
        self._pending = None
        try:
            self._reply(exchange)
        except EncodingError:
            _LOGGER.exception("client %s: no answer to %s; its connection is closed", self.peer, exchange.header.api)
            self.close()
            return
        self._work()

    def _reply(self, exchange: Exchange) -> None:
        if exchange.incoming.is_answered:
            pieces = exchange.encoded(self._serving)
            size = sum(map(len, pieces))
            if size > ANSWER_BYTES:
                self._refuse("response is too large: %s, %d bytes", exchange.header.api, size)
            else:
                self._put(pieces)
        elif exchange.has_failed:
            # The producer expects no response: as in Kafka, an error closes the connection.
            self._refuse("records sent with acks=0 were rejected")

    # --- the session ----------------------------------------------------------------------

    def _open_session(self, request: ApiVersions | SaslHandshake | SaslAuthenticate, exchange: Exchange) -> None:
        """Handle a request that is allowed before authentication."""
        authentication = self._authentication
        response: Response
        if isinstance(request, ApiVersions):
            response = self._driver.machine.served()
        elif authentication is None:
            self._refuse("sent %s, but this listener has no users", exchange.header.api)
            return
        elif isinstance(request, SaslHandshake):
            response = authentication.handshake(request, exchange.header.api_version)
        else:
            response = authentication.authenticate(request)
        exchange.take(0, response)
        if isinstance(response, SaslAuthenticateResponse) and response.error:
            self._reject_login(response.message or "", exchange)
            return
        self._reply(exchange)
        if authentication is not None and authentication.is_done and not self._is_admitted:
            self._admit()

    def _take_token(self, authentication: Authentication, token: bytes) -> None:
        answer = authentication.token(token)
        self._put((_SIZE.pack(len(answer)), answer))
        if authentication.is_done:
            self._admit()

    def _reject_login(self, reason: str, exchange: Exchange | None) -> None:
        """Respond to a failed login and close the connection, after a delay that slows down password guessing."""
        self._is_rejected = True
        self._frames.clear()
        _LOGGER.warning("client %s: %s; its connection is closed", self.peer, reason)
        self._loop.call_later(self._service.penalty_s(self._client.host, self._loop.time()), self._end_login, exchange)

    def _end_login(self, exchange: Exchange | None) -> None:
        if self._is_closing:
            return
        if exchange is not None:
            self._reply(exchange)
        self.close()

    def _refuse(self, reason: str, *arguments: object) -> None:
        """Close the connection and log the reason."""
        if not self._is_closing:
            _LOGGER.warning("client %s: " + reason + "; its connection is closed", self.peer, *arguments)
            self.close()

    # --- responses ------------------------------------------------------------------------

    def _put(self, pieces: Iterable[bytes]) -> None:
        """Queue the bytes of a response; record batches are not copied until the transport is ready."""
        for piece in pieces:
            self._output.append(piece)
            self._unsent_bytes += len(piece)

    def _flush(self) -> None:
        """Write as many queued bytes as the transport accepts.

        If the connection is closing and no bytes are left, the transport is closed.
        """
        output, transport = self._output, self._transport
        assert transport is not None
        left = self._unsent_bytes
        # A write to a transport that has lost its client is only logged, by asyncio.
        while output and not self._is_client_slow and not transport.is_closing():
            piece = output.popleft()
            if len(piece) > _WRITE_BYTES:
                view = memoryview(piece)
                piece = view[:_WRITE_BYTES]
                output.appendleft(view[_WRITE_BYTES:])
            elif output:
                pieces = [piece]
                size = len(piece)
                while output and size + len(output[0]) <= _WRITE_BYTES:
                    size += len(output[0])
                    pieces.append(output.popleft())
                piece = b"".join(pieces)
            left -= len(piece)
            transport.write(piece)
        self._note_unsent(left)
        if self._is_closing and not output:
            transport.close()

    def _note_unsent(self, count: int) -> None:
        """Set the number of unsent bytes of this connection, and update the total of all connections."""
        self._unsent_bytes = count
        if count != self._counted_bytes:
            self._service.unsent_bytes += count - self._counted_bytes
            self._counted_bytes = count


def _text_of(address: object) -> str:
    return str(Address(*address[:2])) if isinstance(address, tuple) else "unknown"
