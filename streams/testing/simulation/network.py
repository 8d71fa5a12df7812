"""Simulated TCP: connections that are delayed, reset, silently lost, cut off, and closed by the broker.

The network connects the clients of simulated processes with the simulated brokers. The clients use their production
connection code (``clients.tcp.connection`` and ``channel``: lanes, timeouts, reconnect backoff); only the links are
simulated, and transmit messages instead of bytes.  As on a socket, the messages of a link arrive in order and once, the
broker handles the requests of a link one by one, and a link fails as a whole.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from attrs import define, field

from streams.clients import Backoff
from streams.clients.tcp.channel import Channel, ChannelConfig, Item
from streams.clients.tcp.connection import ClusterConnection, ConnectionConfig
from streams.core.concurrency.threads import ThreadKilled
from streams.core.http.address import parse_address
from streams.protocol.messages import Produce
from streams.protocol.request import Request, Response
from streams.protocol.wire.framing import MAX_FRAME_BYTES
from streams.testing.simulation.report import Counters
from streams.testing.simulation.scheduler import Scheduler, SimProcess, Waiter

#: Number of empty polls of a connection within a virtual millisecond; the next one takes a millisecond, so that time
#: advances in a busy loop.
_FREE_POLLS = 4
#: Size in bytes of a record without its key and value.
RECORD_BYTES = 10
_CONNECT_TIMEOUT_MS = 1_000
#: Time in milliseconds for which a request to any broker is retained while no broker is reachable.
_HOLD_MS = 2_500
_RECONNECT_BACKOFF = Backoff(50, 1_000)


class Server(Protocol):
    """The interface of the simulated brokers for the network."""

    @property
    def is_up(self) -> bool:
        """Whether the brokers accept requests."""
        ...

    @property
    def addresses(self) -> Sequence[str]:
        """The addresses of the brokers, as "host:port"."""
        ...

    def serve(self, node: int, request: Request, answer: Callable[[Response | Exception], None]) -> None:
        """Handle a request at the broker with this index in ``addresses``.

        ``answer`` is called once, immediately or later, or never if the brokers crash.
        """
        ...


@define
class Weather:
    """Probabilities (0 to 1) of message faults during the phase with faults, and limits of the broker.

    ``resets``: the connection is reset; both ends are notified.  ``silences``: the connection is lost and neither end
    is notified, so that only timeouts end it.  ``slowness``: a message takes up to ``slow_ms`` instead of ``delay_ms``,
    and delays the following messages.
    """

    resets: float = 0.0
    silences: float = 0.0
    slowness: float = 0.0
    delay_ms: int = 3
    slow_ms: int = 400
    #: Time in milliseconds without a request after which the broker closes a connection; None for never.
    broker_idle_ms: int | None = None

    def calm(self) -> None:
        """Set the probabilities of all message faults to 0; the other attributes do not change."""
        self.resets = self.silences = self.slowness = 0.0


@define(eq=False)
class SimNetwork:
    """All connections between the simulated processes and brokers."""

    scheduler: Scheduler
    server: Server
    rng: Random
    weather: Weather
    counters: Counters
    request_timeout_ms: int
    #: Time in milliseconds after which a client closes an unused connection.
    max_idle_ms: int = 540_000
    #: Processes that are cut off by a network partition, with the virtual time at which it ends.
    cut_until_ms: dict[str, int] = field(factory=dict)
    #: Whether the brokers' host is down, so that clients are not notified of closed connections.
    is_host_down: bool = False
    #: Called with each request that a broker handles after the client has closed the connection.
    on_late: Callable[[Request], None] = field(default=lambda request: None, init=False)
    #: Called with the name of a process and each request before it is sent.
    on_send: Callable[[str, Request], None] = field(default=lambda name, request: None, init=False)
    #: Called with the request and the response that its client receives, before the client does.
    on_received: Callable[[Request, Response], None] = field(default=lambda request, response: None, init=False)
    #: Links that the brokers have accepted and not closed, in the order of acceptance.
    links: "dict[SimLink, None]" = field(factory=dict)

    def cluster(self, process: SimProcess, max_request_bytes: int = MAX_FRAME_BYTES) -> "SimCluster":
        """Return the cluster for a process, which closes the connection on a request above ``max_request_bytes``."""
        return SimCluster(self, process, max_request_bytes)

    def arrival_ms(self, name: str) -> int:
        """Draw the virtual time at which a message arrives that is sent now, by or to the process ``name``."""
        rng = self.rng
        weather = self.weather
        now_ms = self.scheduler.now_ms
        cut_until_ms = self.cut_until_ms.get(name, 0)
        if cut_until_ms > now_ms:
            # The message is retransmitted until the network partition ends.
            return cut_until_ms + rng.randint(1, weather.slow_ms)
        is_slow = rng.random() < weather.slowness
        self.counters.delays += is_slow
        return now_ms + rng.randint(1, weather.slow_ms if is_slow else weather.delay_ms)

    def reset(self, name: str) -> None:
        """Reset all connections of a process."""
        for link in [link for link in self.links if link.name == name]:
            link.reset()

    def silence(self, name: str) -> None:
        """Lose all connections of a process without notifying either end."""
        for link in [link for link in self.links if link.name == name]:
            link.is_silent = True

    def server_died(self, *, is_silent: bool) -> None:
        """Close all connections at the brokers; with ``is_silent`` (the host fails too) without notifying clients."""
        self.is_host_down = is_silent
        for link in list(self.links):
            link.close_by_server(is_silent=is_silent)


@define(eq=False)
class SimCluster:
    """Opens connections for one process; implements ``protocol.transport.Cluster``."""

    _network: SimNetwork
    _process: SimProcess
    _max_request_bytes: int

    def connect(self, client_id: str) -> ClusterConnection:
        """Open a connection with the production TCP client code, over simulated links."""
        network = self._network
        channels = ChannelConfig(
            network.request_timeout_ms, _CONNECT_TIMEOUT_MS, network.max_idle_ms, self._max_request_bytes
        )
        bootstrap = tuple(map(parse_address, network.server.addresses))
        config = ConnectionConfig(client_id, bootstrap, channels, _RECONNECT_BACKOFF, _HOLD_MS)
        links = SimLinks(network, self._process)
        return ClusterConnection(config, links, network.scheduler.clock, Random(network.rng.getrandbits(64)))


@define(eq=False)
class SimLinks:
    """The links of one connection; see ``clients.tcp.channel.Links``."""

    _network: SimNetwork
    _process: SimProcess
    is_woken: bool = False
    #: Pending callbacks of the links, to be called on the client's thread.
    _reports: deque[Callable[[], None]] = field(factory=deque)
    _waiter: Waiter = field(factory=Waiter)
    #: Number of empty polls at the virtual time ``_polled_ms``.
    _fruitless: int = 0
    _polled_ms: int = 0

    def link(self, channel: Channel) -> "SimLink":
        """Return a new link for a channel, which is not connected yet."""
        return SimLink(self._network, self._process, self, channel)

    def wait(self, timeout_ms: int, *, is_idle: bool) -> None:
        """Call the pending callbacks of the links; if there are none, wait for one up to the timeout."""
        if not self._process.is_alive:
            raise ThreadKilled
        if self._reports or self.is_woken or timeout_ms > 0:
            self._process.spins.note_effect()
        else:
            self._process.spins.note_poll()
        if not self._reports and not self.is_woken:
            now = self._network.scheduler.now_ms
            self._fruitless = self._fruitless + 1 if now == self._polled_ms else 1
            self._polled_ms = now
            if timeout_ms > 0 or self._fruitless > _FREE_POLLS:
                self._process.wait(self._waiter, max(1, timeout_ms))
        while self._reports:
            self._reports.popleft()()

    def report(self, action: Callable[[], None]) -> None:
        """Add a callback, which the next ``wait`` calls."""
        self._reports.append(action)
        self._waiter.wake()

    def wakeup(self) -> None:
        self.is_woken = True
        self._waiter.wake()

    def take_wakeup(self) -> None:
        """Clear the flag ``is_woken``, which ``wakeup`` has set."""
        self.is_woken = False

    def close(self) -> None:
        """Discard the callbacks that ``wait`` has not called yet."""
        self._reports.clear()


@define(eq=False)
class SimLink:
    """Both ends of one simulated TCP connection; see ``clients.tcp.channel.Link``."""

    _network: SimNetwork
    _process: SimProcess
    _links: SimLinks
    _channel: Channel
    phase: str = "connecting"
    #: Whether the link is lost without either end being notified.
    is_silent: bool = False
    _is_client_open: bool = True
    _is_server_open: bool = False
    #: Arrival time of the last message in each direction; later messages must not arrive earlier.
    _up_ms: int = 0
    _down_ms: int = 0
    #: Requests queued at the server.
    _requests: deque[Request] = field(factory=deque)
    _served: Request | None = None
    _used_ms: int = 0
    #: Whether in-flight requests still arrive after the client has closed its end.
    _is_flushed: bool = True

    @property
    def name(self) -> str:
        """The name of the client's process."""
        return self._process.name

    # --- client side --------------------------------------------------------------------------

    def begin(self) -> None:
        if not self._process.is_alive:
            raise ThreadKilled
        self._send_up(self._accept)

    def write(self, item: Item) -> int:
        """Send a request; return its approximate size in bytes, or 0 if the cluster has no size limit."""
        if not self._process.is_alive:
            raise ThreadKilled
        request = item.request
        self._network.on_send(self.name, request)
        size = _size(request) if self._channel.config.max_request_bytes < MAX_FRAME_BYTES else 0
        self._send_up(lambda: self._on_request(request, size))
        return size

    def flush(self) -> None:
        """Do nothing: messages are sent immediately."""

    def close(self) -> None:
        """Close the client's end; in-flight requests may still arrive at the broker."""
        if self._is_client_open:
            self._is_client_open = False
            self._is_flushed = self._network.rng.random() < 0.5
            self._send_up(self._on_closed_by_client)

    def _report(self, action: Callable[[], None]) -> None:
        def act() -> None:
            if self._is_client_open:
                action()

        if self._is_client_open and self._process.is_alive:
            self._links.report(act)

    def _broken(self, reason: str, *, was_closed: bool = False) -> None:
        self._report(lambda: self._channel.on_broken(reason, was_closed=was_closed))

    # --- transmission -------------------------------------------------------------------------

    def _send_up(self, arrive: Callable[[], None]) -> None:
        if self._passes():
            self._up_ms = max(self._up_ms, self._network.arrival_ms(self.name))
            self._network.scheduler.at(self._up_ms, arrive)

    def _send_down(self, arrive: Callable[[], None]) -> None:
        if self._passes():
            self._down_ms = max(self._down_ms, self._network.arrival_ms(self.name))
            self._network.scheduler.at(self._down_ms, arrive)

    def _passes(self) -> bool:
        """Draw the faults of a message, and return whether it is transmitted; a reset takes effect later."""
        network = self._network
        weather = self._network.weather
        if not self.is_silent and (weather.resets or weather.silences):
            drawn = network.rng.random()
            if drawn < weather.resets:
                network.scheduler.after(network.rng.randint(0, 2 * weather.delay_ms), self.reset)
            elif drawn < weather.resets + weather.silences:
                self.is_silent = True
        if self.is_silent:
            network.counters.drops += 1
        return not self.is_silent

    def reset(self) -> None:
        """Reset the link for both ends; in-flight messages are lost."""
        if not (self._is_client_open or self._is_server_open):
            return
        self._network.counters.resets += 1
        self._network.counters.drops += 1
        self.is_silent = True
        self._end_server()
        self._broken("connection reset by peer", was_closed=True)

    # --- broker side --------------------------------------------------------------------------

    def close_by_server(self, *, is_silent: bool = False) -> None:
        """Close the broker's end and discard queued requests; with ``is_silent`` the client is not notified."""
        if self._is_server_open:
            self._end_server()
            if not is_silent:
                self._send_down(lambda: self._broken("it closed the connection", was_closed=True))

    def _end_server(self) -> None:
        self._is_server_open = False
        self._served = None
        self._requests.clear()
        self._network.links.pop(self, None)

    def _accept(self) -> None:
        network = self._network
        if not network.server.is_up:
            if not network.is_host_down:
                self._send_down(lambda: self._broken("connection refused"))
            return
        self._is_server_open = True
        network.links[self] = None
        self._used_ms = network.scheduler.now_ms
        self._watch_idle()
        self._send_down(self._opened)

    def _opened(self) -> None:
        def open_channel() -> None:
            self.phase = "open"
            self._channel.on_open(self._network.scheduler.now_ms)

        self._report(open_channel)

    def _watch_idle(self) -> None:
        """Close the link when it has been idle for too long, as brokers do (``connections.max.idle.ms``)."""
        network = self._network
        idle_ms = network.weather.broker_idle_ms
        if idle_ms is None or not self._is_server_open:
            return
        until_ms = self._used_ms + idle_ms
        if network.scheduler.now_ms >= until_ms and self._served is None:
            network.counters.idle_closes += 1
            self.close_by_server()
        else:
            network.scheduler.at(max(until_ms, network.scheduler.now_ms + 1_000), self._watch_idle)

    def _on_request(self, request: Request, size: int) -> None:
        network = self._network
        if not self._is_client_open and not self._is_flushed:
            network.counters.drops += 1
            return
        if not self._is_server_open:
            # The connection was closed on the broker; if the host is down, there is no response.
            if network.server.is_up or not network.is_host_down:
                self._send_down(lambda: self._broken("connection reset by peer", was_closed=True))
            return
        if size > self._channel.config.max_request_bytes:
            network.counters.refused_requests += 1
            self.close_by_server()
            return
        network.counters.late_requests += not self._is_client_open
        self._requests.append(request)
        self._serve()

    def _on_closed_by_client(self) -> None:
        if self._is_server_open:
            self._end_server()

    def _serve(self) -> None:
        """Handle the next request, once the previous one has been answered."""
        if self._served is not None or not self._requests:
            return
        self._used_ms = self._network.scheduler.now_ms
        request = self._served = self._requests.popleft()
        if not self._is_client_open:
            self._network.on_late(request)
        node = self._network.server.addresses.index(str(self._channel.address))
        self._network.server.serve(node, request, self._answered)

    def _answered(self, response: Response | Exception) -> None:
        if not self._is_server_open or self._served is None:
            return
        request, self._served = self._served, None
        self._used_ms = self._network.scheduler.now_ms
        if isinstance(response, Exception):
            # A request that cannot be handled closes the connection.
            self.close_by_server()
            return
        answer = response

        def receive() -> None:
            self._network.on_received(request, answer)
            self._channel.on_response(answer, self._network.scheduler.clock.monotonic_ms())

        self._send_down(lambda: self._report(receive))
        self._serve()


def _size(request: Request) -> int:
    """Return the approximate size of a request's records in bytes, without those that producers cannot divide."""
    if not isinstance(request, Produce):
        return 0
    return sum(
        RECORD_BYTES + len(key or b"") + len(value or b"")
        for partition, blocks in request.blocks.items()
        if not partition.topic.endswith(("-changelog", "-progress"))
        for block in blocks
        for key, value in zip(block.keys, block.values, strict=True)
    )
