"""One connection to one broker: its in-flight requests and timeouts.

A channel keeps requests until its link is open, sends them in order, and receives the responses in the same order.
When a channel ends, every request in flight fails with an unknown outcome.  The channel does no I/O.  I/O is done by
the link, which is a socket (``sockets``) or simulated, so both share the logic in this module.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from attrs import define, field, frozen

from streams.clients.errors import DisconnectedError
from streams.core.errors import RecordTooLargeError, StreamsError
from streams.core.http.address import Address
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import Produce, Produced, ProduceResponse
from streams.protocol.request import Request, Response
from streams.protocol.transport import response_timeout_ms
from streams.protocol.wire.framing import MAX_FRAME_BYTES
from streams.protocol.wire.mapping import is_answered

#: The outcome of a request.
Outcome: TypeAlias = Response | Exception


@define(eq=False)
class Item:
    """A request to send; ``number`` is its correlation id, which is negative for internal requests."""

    number: int
    node_id: int
    request: Request
    since_ms: int


class _Sent(NamedTuple):
    """A request in flight."""

    item: Item
    size: int


@frozen
class ChannelConfig:
    """Limits of all channels of a connection; times in milliseconds.

    A broker closes the connection on a request larger than ``max_request_bytes``.
    """

    request_timeout_ms: int
    connect_timeout_ms: int
    max_idle_ms: int
    max_request_bytes: int = MAX_FRAME_BYTES


class Link(Protocol):
    """The transport of a channel: a socket or a simulated link.

    A link calls the channel's ``on_open``, ``on_response``, ``on_retire`` and ``on_broken``, always from within
    ``begin`` or ``Links.wait`` and therefore on the connection's thread.
    """

    @property
    def phase(self) -> str:
        """The current phase of the handshake, for messages."""
        ...

    def begin(self) -> None:
        """Start to connect to the broker."""
        ...

    def write(self, item: Item) -> int:
        """Queue a request; return its size in bytes.

        Raises:
            StreamsError, ValueError: the request cannot be encoded in a version that the broker supports.
        """
        ...

    def flush(self) -> None:
        """Send as many queued bytes as possible without blocking."""
        ...

    def close(self) -> None:
        """Close the link without calling the channel."""
        ...


class Links(Protocol):
    """All links of one connection."""

    def link(self, channel: "Channel") -> Link:
        """Return a new link for a channel."""
        ...

    def wait(self, timeout_ms: int, *, is_idle: bool) -> None:
        """Let links report events, waiting up to the timeout; ``is_idle`` is set if no request is open."""
        ...

    @property
    def is_woken(self) -> bool:
        """Whether ``wakeup`` was called since the last ``take_wakeup``."""
        ...

    def wakeup(self) -> None:
        """Make the current or the next ``wait`` return; may be called from another thread."""
        ...

    def take_wakeup(self) -> None:
        """Clear the wakeup, so that ``is_woken`` is False."""
        ...

    def close(self) -> None:
        """Release the resources that all links share."""
        ...


class _State(Enum):
    OPENING = "opening"
    READY = "ready"
    CLOSED = "closed"


@define(eq=False)
class Channel:
    """A connection to an address; calls ``on_outcome`` for each outcome, and ``on_end`` once when it ends."""

    address: Address
    config: ChannelConfig
    links: Links
    on_outcome: Callable[[Item, Outcome], None]
    on_end: "Callable[[Channel, StreamsError], None]"
    #: Called with the monotonic time when the channel is connected and authenticated.
    on_ready: "Callable[[Channel, int], None]" = lambda *_: None
    #: Queued requests.
    queue: deque[Item] = field(factory=deque)
    #: Whether the channel was ever ready for requests.
    was_ready: bool = False
    _state: _State = _State.OPENING
    _link: Link = field(init=False)
    _in_flight: deque[_Sent] = field(factory=deque)
    #: When ``check`` may find a timeout, or None if no response is due.
    deadline_ms: int | None = None
    #: When the last response arrived, or the first of the in-flight requests was sent.
    _used_ms: int = 0
    _retire_ms: int | None = None
    #: Whether the broker closed the connection.
    _was_closed: bool = False

    def __attrs_post_init__(self) -> None:
        self._link = self.links.link(self)

    # --- lifecycle --------------------------------------------------------------------

    def begin(self, now_ms: int) -> None:
        """Start to connect to the broker; ``on_end`` reports failures."""
        self.deadline_ms = now_ms + self.config.connect_timeout_ms
        self._used_ms = now_ms
        self._link.begin()

    @property
    def is_ready(self) -> bool:
        """Whether a request would be sent immediately, because the channel is connected and authenticated."""
        return self._state is _State.READY

    @property
    def is_closed(self) -> bool:
        """Whether the channel is closed."""
        return self._state is _State.CLOSED

    @property
    def load(self) -> int:
        """The number of requests that are in flight or queued."""
        return len(self._in_flight) + len(self.queue)

    def is_worn(self, now_ms: int) -> bool:
        """Whether new requests need another channel, because the broker is about to close this channel."""
        if self._retire_ms is not None and now_ms >= self._retire_ms:
            return True
        return not self.load and now_ms - self._used_ms > self.config.max_idle_ms

    def check(self, now_ms: int) -> None:
        """End the channel if a connect or response timeout has expired."""
        if self.is_closed or self.deadline_ms is None or now_ms < self.deadline_ms:
            return
        if self.is_ready:
            self._fail_overdue()
        else:
            self.fail(f"no connection within {self.config.connect_timeout_ms} ms ({self._link.phase})")

    def _begin_waiting(self, now_ms: int) -> None:
        """Set the deadline of the oldest in-flight request, whose timeout begins when all earlier ones are answered."""
        self._used_ms = now_ms
        self.deadline_ms = None
        if self._in_flight:
            request = self._in_flight[0].item.request
            self.deadline_ms = now_ms + response_timeout_ms(request, self.config.request_timeout_ms)

    def close(self) -> None:
        """Close the channel and its link; ``on_end`` is not called."""
        if not self.is_closed:
            self._state = _State.CLOSED
            self._link.close()

    def unanswered(self, error: StreamsError) -> list[tuple[Item, StreamsError]]:
        """Return the requests in flight, each with the error to report for it."""
        return [(sent.item, self._meaning(sent, error)) for sent in self._in_flight]

    def _meaning(self, sent: _Sent, error: StreamsError) -> StreamsError:
        """Return the error for a lost request: RecordTooLargeError if it exceeded the limit, else ``error``."""
        limit = self.config.max_request_bytes
        if not (self._was_closed and sent.size > limit):
            return error
        too_large = RecordTooLargeError(
            f"broker at {self.address} closed the connection on a request of {sent.size} bytes: brokers take "
            f"{limit} unless their socket.request.max.bytes says otherwise; send less at once, or raise it there",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )
        too_large.__cause__ = error
        return too_large

    def _fail_overdue(self) -> None:
        self.fail("no response in time: the broker is stuck, or the network is down")

    def fail(self, reason: str, cause: BaseException | None = None) -> None:
        """End the channel because the connection failed."""
        error = DisconnectedError(f"broker at {self.address}: {reason}")
        error.__cause__ = cause
        self.end(error)

    def end(self, error: StreamsError) -> None:
        """End the channel; every request in flight fails with ``error``."""
        if not self.is_closed:
            self.close()
            self.on_end(self, error)

    # --- requests ---------------------------------------------------------------------

    def send(self, item: Item, now_ms: int) -> None:
        """Send a request, now or as soon as the link is open."""
        if self.is_ready:
            self._write(item, now_ms)
            self._link.flush()
        else:
            self.queue.append(item)

    def give_up(self, number: int) -> bool:
        """Drop a request, and end the channel if the request is in flight; return whether the channel had it."""
        for item in self.queue:
            if item.number == number:
                self.queue.remove(item)
                return True
        for sent in self._in_flight:
            if sent.item.number == number:
                # Responses arrive in order: without this one, there are none to later requests.
                self._in_flight.remove(sent)
                self._fail_overdue()
                return True
        return False

    def _write(self, item: Item, now_ms: int) -> None:
        request = item.request
        try:
            size = self._link.write(item)
        except (StreamsError, ValueError) as error:
            # The request cannot be encoded for this broker, or not at all.
            self.on_outcome(item, error)
            return
        if isinstance(request, Produce) and not is_answered(request):
            self.on_outcome(item, ProduceResponse(dict.fromkeys(request.blocks, Produced(ErrorCode.NONE))))
            return
        self._in_flight.append(_Sent(item, size))
        if len(self._in_flight) == 1:
            self._begin_waiting(now_ms)

    # --- events of the link -----------------------------------------------------------

    def on_open(self, now_ms: int) -> None:
        """Send the queued requests, because the link is open."""
        self._state = _State.READY
        self.was_ready = True
        self.deadline_ms = None
        self.on_ready(self, now_ms)
        while self.queue and not self.is_closed:
            self._write(self.queue.popleft(), now_ms)
        self._link.flush()

    def on_response(self, outcome: Outcome, now_ms: int) -> None:
        """Process the response to the oldest request in flight."""
        item = self._in_flight.popleft().item
        self._begin_waiting(now_ms)
        self.on_outcome(item, outcome)

    def on_retire(self, at_ms: int) -> None:
        """Send no new requests after ``at_ms``, because the broker will close the connection (KIP-368)."""
        self._retire_ms = at_ms

    def on_broken(self, reason: str, cause: BaseException | None = None, *, was_closed: bool = False) -> None:
        """Handle the loss of the link; ``was_closed`` is set if the broker closed it."""
        self._was_closed = was_closed
        self.fail(reason, cause)
