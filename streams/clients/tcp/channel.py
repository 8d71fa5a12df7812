"""One socket to one broker: connects, greets, then sends requests and takes answers in their order.

Never waits: it does what the socket allows when the selector says so.  Requests queue until the
greeting is over (TLS, versions, authentication), and each is then written in the highest version that
both sides speak.  Between ``connection`` and the codec.  KIP-35, KIP-152, KIP-368, KIP-511.
"""

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

from streams.clients.errors import AuthenticationError, DisconnectedError
from streams.clients.tcp.security import sasl_exchange
from streams.core.client_settings import Security
from streams.core.errors import RecordTooLargeError, StreamsError
from streams.protocol.messages import ErrorCode, Fetch, JoinGroup, Request, SyncGroup
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
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.framing import MAX_FRAME_BYTES
from streams.protocol.wire.mapping import ask, is_answered, key_of, versions_of
from streams.protocol.wire.tables.session import SASL_AUTHENTICATE, SASL_HANDSHAKE

SOFTWARE: Final = "streams-python"
#: Largest answer that is taken: fetches are asked to stay far below.
_MAX_FRAME_BYTES: Final = 1 << 30
_READ_BYTES: Final = 1 << 18
#: Smaller messages are put together: one piece costs less than many.
_JOIN_BYTES: Final = 1 << 16
_MAX_PIECES: Final = 512
#: Part of a session's lifetime after which no more requests go into it.
_LIFETIME_PART: Final = 0.85
#: The answer to a sync waits for the group's leader, for as long as rebalances may take by default.
_SYNC_WAIT_MS: Final = 300_000
_CORRELATION_MASK: Final = 0x7FFFFFFF
#: What the system says of a connection that the other side has closed.
_CLOSED: Final = (errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED)


class BrokerAddress(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@define(eq=False)
class Item:
    """A request on its way; ``number`` is the connection's, below 0 for those of its own."""

    number: int
    node_id: int
    request: Request
    since_ms: int


class _Written(NamedTuple):
    """A request that waits for its answer."""

    correlation_id: int
    api_key: int
    version: int
    sent_ms: int
    size: int
    #: None: the request is part of the greeting.
    item: Item | None


@frozen
class ChannelConfig:
    """What all channels of a client have in common; times in milliseconds."""

    client_id: str
    security: Security
    context: ssl.SSLContext | None
    request_timeout_ms: int
    connect_timeout_ms: int
    max_idle_ms: int


class _State(Enum):
    CONNECTING = "connecting"
    SHAKING_HANDS = "TLS handshake"
    GREETING = "greeting"
    READY = "ready"
    CLOSED = "closed"


@define(eq=False)
class Channel:
    """A connection to an address; ``on_answer`` gets what comes, ``on_end`` is told once of its end."""

    address: BrokerAddress
    config: ChannelConfig
    selector: selectors.BaseSelector
    #: Item, version, message or what came instead.
    on_answer: Callable[[Item, int, Fields | Exception], None]
    on_end: "Callable[[Channel, StreamsError], None]"
    ranges: dict[int, tuple[int, int]] = field(factory=dict)
    #: Written but not answered, and not written yet.
    queue: deque[Item] = field(factory=deque)
    #: Whether it was in use at all.
    was_ready: bool = False
    _state: _State = _State.CONNECTING
    _socket: Any = None
    _places: list[Any] = field(factory=list)
    _reader: FrameReader = field(factory=lambda: FrameReader(_MAX_FRAME_BYTES))
    _out: deque[memoryview] = field(factory=deque)
    _mask: int = 0
    _written: deque[_Written] = field(factory=deque)
    _next_id: int = 0
    _versions: dict[int, int] = field(factory=dict)
    _greeting: Generator[tuple[int, int, Fields], Fields, None] | None = None
    _setup_until_ms: int = 0
    _used_ms: int = 0
    _retire_ms: int | None = None
    _last_error: OSError | None = None
    #: Whether it was the broker that ended it.
    _was_closed: bool = False

    # --- life -------------------------------------------------------------------------

    def begin(self, now_ms: int) -> None:
        """Look the host up and start to connect; what goes wrong is told to ``on_end``."""
        self._setup_until_ms = now_ms + self.config.connect_timeout_ms
        self._used_ms = now_ms
        try:
            self._places = socket.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)
        except OSError as error:
            self._fail(f"the host is not known: {error}", error)
            return
        self._connect_next(now_ms)

    def _connect_next(self, now_ms: int) -> None:
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
        self._fail(reason, self._last_error)

    @property
    def is_ready(self) -> bool:
        """Whether requests are written at once."""
        return self._state is _State.READY

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._state is _State.CLOSED

    @property
    def load(self) -> int:
        """How many requests wait for an answer, or to be written."""
        return len(self._written) + len(self.queue)

    def is_worn(self, now_ms: int) -> bool:
        """Whether further requests are better sent over another one: the broker is about to close it."""
        if self._retire_ms is not None and now_ms >= self._retire_ms:
            return True
        return not self.load and now_ms - self._used_ms > self.config.max_idle_ms

    def next_deadline_ms(self) -> int | None:
        """Return when ``check`` may find that nothing moves."""
        if self._state is not _State.READY:
            return self._setup_until_ms
        return self._answer_until_ms()

    def check(self, now_ms: int) -> None:
        """End it where nothing moves."""
        if self._state is _State.CLOSED:
            return
        if self._state is not _State.READY:
            if now_ms >= self._setup_until_ms:
                self._fail(f"no connection within {self.config.connect_timeout_ms} ms ({self._state.value})")
            return
        until_ms = self._answer_until_ms()
        if until_ms is not None and now_ms >= until_ms:
            self._fail("no answer in time: the broker is stuck, or the network is cut")

    def _answer_until_ms(self) -> int | None:
        if not self._written:
            return None
        first = self._written[0]
        # Answers come in order: the time of a request begins when those before it are answered.
        return max(first.sent_ms, self._used_ms) + self.config.request_timeout_ms + _patience_ms(first)

    def close(self) -> None:
        """Drop the socket; nobody is told."""
        if self._state is _State.CLOSED:
            return
        self._state = _State.CLOSED
        if self._socket is not None:
            if self._mask:
                self.selector.unregister(self._socket)
            self._socket.close()
            self._socket = None

    def unanswered(self, error: StreamsError) -> list[tuple[Item, StreamsError]]:
        """Return the requests that were written and have no answer, with what this end means for each."""
        return [(row.item, self._meaning(row, error)) for row in self._written if row.item is not None]

    def _meaning(self, row: _Written, error: StreamsError) -> StreamsError:
        """Tell a request that is too large for the broker, which just closes, from one that was unlucky."""
        if not (self._was_closed and row.size > MAX_FRAME_BYTES):
            return error
        too_large = RecordTooLargeError(
            f"broker at {self.address} closed the connection on a request of {row.size} bytes: brokers take "
            f"{MAX_FRAME_BYTES} unless their socket.request.max.bytes says otherwise; send less at once, or raise it "
            "there",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )
        too_large.__cause__ = error
        return too_large

    def _fail(self, reason: str, cause: BaseException | None = None) -> None:
        error = DisconnectedError(f"broker at {self.address}: {reason}")
        error.__cause__ = cause
        self._end(error)

    def _end(self, error: StreamsError) -> None:
        if self._state is not _State.CLOSED:
            self.close()
            self.on_end(self, error)

    # --- requests ---------------------------------------------------------------------

    def send(self, item: Item, now_ms: int) -> None:
        """Write a request, now or when the greeting is over."""
        if self._state is _State.READY:
            self._write(item, now_ms)
            self._flush()
        else:
            self.queue.append(item)

    def _write(self, item: Item, now_ms: int) -> None:
        request = item.request
        try:
            api_key = key_of(request)
            version = self._version(api_key)
            message = ask(request, version)[1]
            is_expected = is_answered(request)
            self._put(api_key, version, message, item if is_expected else None, now_ms, is_expected=is_expected)
        except (StreamsError, ValueError) as error:
            # It cannot be said in what this broker speaks, or at all.
            self.on_answer(item, -1, error)
            return
        if not is_expected:
            self.on_answer(item, version, {})

    def _put(
        self, api_key: int, version: int, message: Fields, item: Item | None, now_ms: int, *, is_expected: bool = True
    ) -> None:
        correlation_id = self._next_id
        chunks = encode_request(api_key, version, correlation_id, self.config.client_id, message)
        self._next_id = (correlation_id + 1) & _CORRELATION_MASK
        if is_expected:
            if not self._written:
                self._used_ms = now_ms
            size = sum(map(len, chunks))
            self._written.append(_Written(correlation_id, api_key, version, now_ms, size, item))
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

    def _version(self, api_key: int) -> int:
        """Return the highest version that both sides speak.

        Raises:
            UnsupportedVersionError: there is none.
        """
        version = self._versions.get(api_key)
        if version is None:
            low, high = versions_of(api_key)
            theirs = self.ranges.get(api_key)
            version = -1 if theirs is None else min(high, theirs[1])
            if theirs is None or version < max(low, theirs[0]):
                has = "none of it" if theirs is None else f"versions {theirs[0]} to {theirs[1]}"
                raise UnsupportedVersionError(
                    f"broker at {self.address}: {APIS[api_key].name}: it speaks {has}, this client {low} to {high}; "
                    "Kafka 2.4 and later is fit for all that this client does",
                    api_key=api_key,
                    version=high,
                )
            self._versions[api_key] = version
        return version

    # --- what the selector says -------------------------------------------------------

    def on_event(self, mask: int, now_ms: int) -> None:
        """Do what the socket allows."""
        try:
            if self._state is _State.CONNECTING:
                self._on_connected(now_ms)
            elif self._state is _State.SHAKING_HANDS:
                self._shake_hands(now_ms)
            else:
                if mask & selectors.EVENT_READ:
                    self._read(now_ms)
                if not self.is_closed:
                    self._flush()
        except ssl.SSLCertVerificationError as error:
            self._end(
                AuthenticationError(
                    f"broker at {self.address}: its certificate is not trusted: {error.verify_message or error}; "
                    "name the file of who issued it as ssl_ca_location, and connect to a host that it is for"
                )
            )
        except ssl.SSLError as error:
            self._fail(f"TLS: {error.reason or error}; is this a port for TLS, and is the client's certificate right?")
        except MalformedError as error:
            self._fail(f"what came is not Kafka's protocol: {error}", error)
        except AuthenticationError as error:
            self._end(error)
        except OSError as error:
            self._was_closed = error.errno in _CLOSED
            self._fail(f"{error.strerror or error}", error)

    def _on_connected(self, now_ms: int) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and self._socket.getsockname() == self._socket.getpeername():
            # The system gave it the very port that nobody listens on: it talks to itself.
            code = errno.ECONNREFUSED
        if code:
            self._last_error = OSError(code, _reason(code))
            self.selector.unregister(self._socket)
            self._mask = 0
            self._socket.close()
            self._socket = None
            self._connect_next(now_ms)
            return
        if self.config.context is None:
            self._greet(now_ms)
            return
        self._state = _State.SHAKING_HANDS
        self.selector.unregister(self._socket)
        self._mask = 0
        self._socket = self.config.context.wrap_socket(
            self._socket, server_hostname=self.address.host, do_handshake_on_connect=False
        )
        self._shake_hands(now_ms)

    def _shake_hands(self, now_ms: int) -> None:
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._watch(selectors.EVENT_WRITE)
        else:
            self._greet(now_ms)

    def _watch(self, mask: int) -> None:
        if mask == self._mask:
            return
        if not self._mask:
            self.selector.register(self._socket, mask, self)
        else:
            self.selector.modify(self._socket, mask, self)
        self._mask = mask

    def _flush(self) -> None:
        """Write as much as goes; be called again where some is left."""
        try:
            while self._out:
                if self.config.context is None:
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
            # Seen again when its end is read; until then nothing more is written.
            self._was_closed = error.errno in _CLOSED
            self._fail(f"{error.strerror or error}", error)
        else:
            self._watch(selectors.EVENT_READ)

    def _read(self, now_ms: int) -> None:
        while not self.is_closed:
            try:
                data = self._socket.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not data:
                self._was_closed = True
                what = "it closed the connection"
                if self._state is _State.GREETING:
                    what += " before it had answered; does security_protocol fit its listener?"
                self._fail(what)
                return
            for frame in self._reader.feed(data):
                self._on_frame(frame, now_ms)
            if self._reader.fault is not None:
                raise self._reader.fault
            if len(data) < _READ_BYTES and self.config.context is None:
                return

    def _on_frame(self, frame: bytes, now_ms: int) -> None:
        if self.is_closed:
            return
        if not self._written:
            raise MalformedError("an answer to nothing", api="frame")
        written = self._written[0]
        if correlation_id_of(frame) != written.correlation_id:
            raise MalformedError("an answer to something else", api=APIS[written.api_key].name)
        _, message = read_response(written.api_key, written.version, frame)
        self._written.popleft()
        self._used_ms = now_ms
        if written.item is None:
            self._advance(message, now_ms)
        else:
            self.on_answer(written.item, written.version, message)

    # --- greeting ---------------------------------------------------------------------

    def _greet(self, now_ms: int) -> None:
        self._state = _State.GREETING
        self._watch(selectors.EVENT_READ)
        self._greeting = self._conversation(now_ms)
        self._advance(None, now_ms)

    def _advance(self, message: Fields | None, now_ms: int) -> None:
        assert self._greeting is not None
        try:
            asked = next(self._greeting) if message is None else self._greeting.send(message)
        except StopIteration:
            self._greeting = None
            self._state = _State.READY
            self.was_ready = True
            while self.queue:
                self._write(self.queue.popleft(), now_ms)
        else:
            api_key, version, fields = asked
            self._put(api_key, version, fields, None, now_ms)
        self._flush()

    def _conversation(self, now_ms: int) -> Generator[tuple[int, int, Fields], Fields, None]:
        """Ask for versions, then say who we are.

        Raises:
            AuthenticationError: the broker does not believe it.
        """
        version = APIS[API_VERSIONS].versions[1]
        software = {"client_software_name": SOFTWARE, "client_software_version": "1"}
        found = yield API_VERSIONS, version, software
        if found["error_code"] == ErrorCode.UNSUPPORTED_VERSION:
            theirs = {row["api_key"]: row["max_version"] for row in found["api_keys"]}
            found = yield API_VERSIONS, min(theirs.get(API_VERSIONS, 0), version), software
        if found["error_code"]:
            raise MalformedError(f"versions are refused with error {found['error_code']}", api="ApiVersions")
        self.ranges = {row["api_key"]: (row["min_version"], row["max_version"]) for row in found["api_keys"]}
        if not self.config.security.has_sasl:
            return
        mechanism = self.config.security.sasl_mechanism
        version = self._version(SASL_HANDSHAKE.key)
        found = yield SASL_HANDSHAKE.key, version, {"mechanism": mechanism}
        if found["error_code"]:
            raise AuthenticationError(
                f"broker at {self.address}: sasl_mechanism={mechanism!r} is not offered; "
                f"it has {', '.join(found['mechanisms']) or 'none'}"
            )
        version = self._version(SASL_AUTHENTICATE.key)
        exchange = sasl_exchange(self.config.security, secrets.token_urlsafe(24))
        said = next(exchange)
        while True:
            found = yield SASL_AUTHENTICATE.key, version, {"auth_bytes": said}
            if found["error_code"]:
                raise AuthenticationError(
                    f"broker at {self.address}: {mechanism} as {self.config.security.sasl_username!r} is refused: "
                    f"{found['error_message'] or 'wrong user name or password'}"
                )
            lifetime_ms = found.get("session_lifetime_ms", 0)
            if lifetime_ms > 0:
                self._retire_ms = now_ms + int(lifetime_ms * _LIFETIME_PART)
            try:
                said = exchange.send(found["auth_bytes"])
            except StopIteration:
                return


def _patience_ms(written: _Written) -> int:
    """Return how long the broker may rightly wait before it answers."""
    request = None if written.item is None else written.item.request
    if isinstance(request, Fetch):
        return request.max_wait_ms
    if isinstance(request, JoinGroup):
        return request.rebalance_timeout_ms
    return _SYNC_WAIT_MS if isinstance(request, SyncGroup) else 0


def _reason(code: int) -> str:
    return os.strerror(code).lower()
