"""Sockets to brokers: connecting, TLS, API versions, authentication, and frames in both directions.

Only ``Sockets.wait`` blocks; a socket is read and written when the selector reports that it is ready.  Each request is
encoded in the highest version that both sides support.  The layer above is ``channel``, which decides when requests
are sent and when a connection is lost.  See KIP-35, KIP-152, KIP-368, KIP-511.
"""

import contextlib
import errno
import os
import secrets
import selectors
import socket
import ssl
from collections import deque
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, Final, NamedTuple

from attrs import define, field, frozen

from streams.clients.errors import AuthenticationError
from streams.clients.tcp.channel import Channel, Item, Outcome
from streams.clients.tcp.credentials import Credentials
from streams.core.clock import Clock
from streams.core.errors import StreamsError
from streams.protocol.admin_messages import SOFTWARE, SOFTWARE_VERSION, SaslAuthenticate, SaslHandshake
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import Request
from streams.protocol.schema import Fields
from streams.protocol.wire import (
    API_VERSIONS,
    APIS,
    FrameReader,
    MalformedError,
    UnsupportedVersionError,
    correlation_id_of,
    encode_request,
    read_response,
)
from streams.protocol.wire.mapping import api_of_request, build_request, is_answered, parse_response, version_for

#: Largest response that is read; fetch requests limit their responses to far less.
_MAX_FRAME_BYTES: Final = 1 << 30
_READ_BYTES: Final = 1 << 18
#: Smaller messages are joined, because one write costs less than many.
_JOIN_BYTES: Final = 1 << 16
_MAX_PIECES: Final = 512
#: Fraction of a session's lifetime after which no more requests are sent.
_LIFETIME_PART: Final = 0.85
_CORRELATION_MASK: Final = 0x7FFFFFFF
#: Error numbers of a connection that the other side has closed.
_CLOSED: Final = (errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED)
#: Interval in milliseconds at which the sockets of a connection without open requests are checked.
_IDLE_CHECK_MS: Final = 100


class _Written(NamedTuple):
    """A written request whose response has not arrived."""

    correlation_id: int
    api_key: int
    version: int
    #: None for a request that is part of the handshake.
    item: Item | None


@frozen
class SocketConfig:
    """The client's identity and security settings."""

    client_id: str
    credentials: Credentials
    context: ssl.SSLContext | None


class _Phase(Enum):
    CONNECTING = "connecting"
    SHAKING_HANDS = "TLS handshake"
    GREETING = "versions and authentication"
    OPEN = "open"
    CLOSED = "closed"


@define(eq=False)
class Sockets:
    """The selector of one connection, and the socket that wakes it; implements ``channel.Links``."""

    config: SocketConfig
    clock: Clock
    is_woken: bool = False
    selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector)
    _checked_ms: int = 0
    _waker: socket.socket = field(init=False)
    _wakee: socket.socket = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._waker, self._wakee = socket.socketpair()
        self._waker.setblocking(False)
        self._wakee.setblocking(False)
        self.selector.register(self._wakee, selectors.EVENT_READ, None)

    def link(self, channel: Channel) -> "SocketLink":
        return SocketLink(channel, self.config, self.selector, self.clock.monotonic_ms)

    def wait(self, timeout_ms: int, *, is_idle: bool) -> None:
        """Serve the sockets that are ready, waiting up to the timeout for the first."""
        if is_idle and not timeout_ms and self.clock.monotonic_ms() - self._checked_ms < _IDLE_CHECK_MS:
            return
        for key, mask in self.selector.select(timeout_ms / 1000):
            if key.data is None:
                self._drain_wakeups()
            else:
                key.data.on_event(mask)
        self._checked_ms = self.clock.monotonic_ms()

    def wakeup(self) -> None:
        if self.is_woken:
            return
        self.is_woken = True
        # If the socket is full, ``wait`` ends anyway; if it is closed, there is no wait to end.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def take_wakeup(self) -> None:
        self.is_woken = False

    def close(self) -> None:
        """Close the selector; links are closed by their channels."""
        self.selector.close()
        self._waker.close()
        self._wakee.close()

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakee.recv(4096):
                pass


@define(eq=False)
class SocketLink:
    """The socket of one channel; implements ``channel.Link``."""

    _channel: Channel
    _config: SocketConfig
    _selector: selectors.BaseSelector
    _now: Callable[[], int]
    _phase: _Phase = _Phase.CONNECTING
    _socket: Any = None
    _places: list[Any] = field(factory=list)
    _reader: FrameReader = field(factory=lambda: FrameReader(_MAX_FRAME_BYTES))
    _out: deque[memoryview] = field(factory=deque)
    _mask: int = 0
    _written: deque[_Written] = field(factory=deque)
    _next_id: int = 0
    _ranges: dict[int, tuple[int, int]] = field(factory=dict)
    _versions: dict[int, int] = field(factory=dict)
    _greeting: Generator[tuple[int, int, Fields], Fields, None] | None = None
    _last_error: OSError | None = None

    @property
    def phase(self) -> str:
        return self._phase.value

    # --- lifecycle --------------------------------------------------------------------

    def begin(self) -> None:
        """Resolve the host name and start to connect to the broker."""
        address = self._channel.address
        try:
            self._places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except OSError as error:
            self._channel.on_broken(f"the host is not known: {error}", error)
            return
        self._connect_next()

    def _connect_next(self) -> None:
        while self._places:
            family, kind, protocol, _, place = self._places.pop(0)
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            code = sock.connect_ex(place)
            if code in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                self._socket = sock
                self._watch(selectors.EVENT_WRITE)
                return
            sock.close()
            self._last_error = OSError(code, _reason(code))
        reason = "it has no address" if self._last_error is None else str(self._last_error.strerror)
        self._channel.on_broken(reason, self._last_error)

    def close(self) -> None:
        self._phase = _Phase.CLOSED
        if self._socket is not None:
            if self._mask:
                self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None

    # --- requests ---------------------------------------------------------------------

    def write(self, item: Item) -> int:
        request = item.request
        api_key = api_of_request(request).key
        version = version_for(request, self._version(api_key))
        message = build_request(request, version)[1]
        return self._put(api_key, version, message, item)

    def _put(self, api_key: int, version: int, message: Fields, item: Item | None) -> int:
        correlation_id = self._next_id
        chunks = encode_request(api_key, version, correlation_id, self._config.client_id, message)
        self._next_id = (correlation_id + 1) & _CORRELATION_MASK
        if item is None or is_answered(item.request):
            self._written.append(_Written(correlation_id, api_key, version, item))
        small: list[bytes] = []
        for chunk in chunks:
            if len(chunk) < _JOIN_BYTES:
                small.append(chunk)
                continue
            if small:
                self._out.append(memoryview(b"".join(small)))
                small = []
            self._out.append(memoryview(chunk))
        if small:
            self._out.append(memoryview(b"".join(small)))
        return sum(map(len, chunks))

    def _version(self, api_key: int) -> int:
        """Return the highest version of a request that client and broker support.

        Raises:
            UnsupportedVersionError: there is no such version.
        """
        version = self._versions.get(api_key)
        if version is None:
            low, high = APIS[api_key].versions
            theirs = self._ranges.get(api_key)
            version = -1 if theirs is None else min(high, theirs[1])
            if theirs is None or version < max(low, theirs[0]):
                has = "none of it" if theirs is None else f"versions {theirs[0]} to {theirs[1]}"
                raise UnsupportedVersionError(
                    f"broker at {self._channel.address}: {APIS[api_key].name}: it supports {has}, this client {low} to "
                    f"{high}; "
                    "Kafka 2.4 and later support all APIs that this client uses, but groups whose members the broker "
                    "assigns need 4.0 (consumer) and 4.2 (streams)",
                    api_key=api_key,
                    version=high,
                )
            self._versions[api_key] = version
        return version

    # --- selector events --------------------------------------------------------------

    def on_event(self, mask: int) -> None:
        """Read from and write to the socket as far as it is ready."""
        if self._phase is _Phase.CLOSED:
            return
        try:
            if self._phase is _Phase.CONNECTING:
                self._on_connected()
            elif self._phase is _Phase.SHAKING_HANDS:
                self._shake_hands()
            else:
                if mask & selectors.EVENT_READ:
                    self._read()
                self.flush()
        except ssl.SSLCertVerificationError as error:
            self._channel.end(
                AuthenticationError(
                    f"broker at {self._channel.address}: its certificate is not trusted: "
                    f"{error.verify_message or error}; name the file of who issued it as ssl_ca_location, and connect "
                    "to a host that it is for"
                )
            )
        except ssl.SSLError as error:
            self._channel.on_broken(
                f"TLS: {error.reason or error}; is this a port for TLS, and is the client's certificate right?"
            )
        except MalformedError as error:
            self._channel.on_broken(f"the response is not Kafka's protocol: {error}", error)
        except AuthenticationError as error:
            self._channel.end(error)
        except OSError as error:
            self._broken(error)

    def _broken(self, error: OSError) -> None:
        self._channel.on_broken(f"{error.strerror or error}", error, was_closed=error.errno in _CLOSED)

    def _on_connected(self) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and self._socket.getsockname() == self._socket.getpeername():
            # Self-connection: the system chose the closed target port as the local port.
            code = errno.ECONNREFUSED
        if code:
            self._last_error = OSError(code, _reason(code))
            self._selector.unregister(self._socket)
            self._mask = 0
            self._socket.close()
            self._socket = None
            self._connect_next()
            return
        if self._config.context is None:
            self._greet()
            return
        self._phase = _Phase.SHAKING_HANDS
        self._selector.unregister(self._socket)
        self._mask = 0
        self._socket = self._config.context.wrap_socket(
            self._socket, server_hostname=self._channel.address.host, do_handshake_on_connect=False
        )
        self._shake_hands()

    def _shake_hands(self) -> None:
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._watch(selectors.EVENT_WRITE)
        else:
            self._greet()

    def _watch(self, mask: int) -> None:
        if mask == self._mask:
            return
        if not self._mask:
            self._selector.register(self._socket, mask, self)
        else:
            self._selector.modify(self._socket, mask, self)
        self._mask = mask

    def flush(self) -> None:
        """Write as much as the socket accepts; the rest is written when the selector reports the socket as ready."""
        if self._phase is _Phase.CLOSED:
            return
        try:
            while self._out:
                if self._config.context is None:
                    pieces = list(self._out) if len(self._out) <= _MAX_PIECES else [*self._out][:_MAX_PIECES]
                    count = self._socket.sendmsg(pieces)
                else:
                    count = self._socket.send(self._out[0])
                while count:
                    first = self._out[0]
                    if count < len(first):
                        self._out[0] = first[count:]
                        break
                    count -= len(first)
                    self._out.popleft()
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)
        except OSError as error:
            self._broken(error)
        else:
            self._watch(selectors.EVENT_READ)

    def _read(self) -> None:
        while self._phase is not _Phase.CLOSED:
            try:
                data = self._socket.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not data:
                what = "it closed the connection"
                if self._phase is _Phase.GREETING:
                    what += " before it had answered; does security_protocol fit its listener?"
                self._channel.on_broken(what, was_closed=True)
                return
            for frame in self._reader.feed(data):
                self._on_frame(frame)
            if self._reader.fault is not None:
                raise self._reader.fault
            if len(data) < _READ_BYTES and self._config.context is None:
                return

    def _on_frame(self, frame: bytes) -> None:
        if self._phase is _Phase.CLOSED:
            return
        if not self._written:
            raise MalformedError("a response without a request", api="frame")
        written = self._written[0]
        if correlation_id_of(frame) != written.correlation_id:
            raise MalformedError("a response to another request", api=APIS[written.api_key].name)
        _, message = read_response(written.api_key, written.version, frame)
        self._written.popleft()
        if written.item is None:
            self._advance(message)
        else:
            self._channel.on_response(_outcome(written.item.request, written.version, message), self._now())

    # --- handshake --------------------------------------------------------------------

    def _greet(self) -> None:
        self._phase = _Phase.GREETING
        self._watch(selectors.EVENT_READ)
        self._greeting = self._conversation()
        self._advance(None)

    def _advance(self, message: Fields | None) -> None:
        assert self._greeting is not None
        try:
            asked = next(self._greeting) if message is None else self._greeting.send(message)
        except StopIteration:
            self._greeting = None
            self._phase = _Phase.OPEN
            self._channel.on_open(self._now())
        else:
            api_key, version, fields = asked
            self._put(api_key, version, fields, None)
            self.flush()

    def _conversation(self) -> Generator[tuple[int, int, Fields], Fields, None]:
        """Request the API versions that the broker supports, and then authenticate.

        Raises:
            AuthenticationError: the broker rejects the credentials.
        """
        version = APIS[API_VERSIONS].versions[1]
        software = {"client_software_name": SOFTWARE, "client_software_version": SOFTWARE_VERSION}
        response = yield API_VERSIONS, version, software
        if response["error_code"] == ErrorCode.UNSUPPORTED_VERSION:
            theirs = {row["api_key"]: row["max_version"] for row in response["api_keys"]}
            response = yield API_VERSIONS, min(theirs.get(API_VERSIONS, 0), version), software
        if response["error_code"]:
            raise MalformedError(f"versions were rejected with error {response['error_code']}", api="ApiVersions")
        self._ranges = {row["api_key"]: (row["min_version"], row["max_version"]) for row in response["api_keys"]}
        credentials = self._config.credentials
        if not credentials.security.has_sasl:
            return
        mechanism = credentials.security.sasl_mechanism
        version = self._version(SaslHandshake.api.key)
        response = yield SaslHandshake.api.key, version, {"mechanism": mechanism}
        if response["error_code"]:
            raise AuthenticationError(
                f"broker at {self._channel.address}: sasl_mechanism={mechanism!r} is not offered; "
                f"it has {', '.join(response['mechanisms']) or 'none'}"
            )
        version = self._version(SaslAuthenticate.api.key)
        exchange = credentials.exchange(secrets.token_urlsafe(24))
        said = next(exchange)
        reason = ""
        while True:
            response = yield SaslAuthenticate.api.key, version, {"auth_bytes": said}
            if response["error_code"]:
                credentials.on_rejected()
                reason = response["error_message"] or reason or "wrong user name or password"
                raise AuthenticationError(
                    f"broker at {self._channel.address}: {mechanism} as {credentials.who} is rejected: {reason}"
                )
            lifetime_ms = response.get("session_lifetime_ms", 0)
            if lifetime_ms > 0:
                self._channel.on_retire(self._now() + int(lifetime_ms * _LIFETIME_PART))
            if credentials.security.has_tokens and response["auth_bytes"]:
                # The reason of a rejection, as JSON; the error follows.
                reason = response["auth_bytes"].decode(errors="replace")
            try:
                said = exchange.send(response["auth_bytes"])
            except StopIteration:
                return


def _outcome(request: Request, version: int, message: Fields) -> Outcome:
    try:
        return parse_response(request, version, message)
    except StreamsError as error:
        return error


def _reason(code: int) -> str:
    return os.strerror(code).lower()
