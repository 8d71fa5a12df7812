"""One client's connection to a cluster: finds the channel for each request, and reconnects with backoff.

A broker performs the requests of a channel one after the other, so requests whose response it may delay have separate
channels.  Fetches have several, so that a partition without new records does not delay the others; group joins and
syncs have one.  All other requests to a broker share one channel, in order.  Channels are opened on demand; the broker
addresses come from metadata.
Except for ``wakeup``, a connection is used by one thread.  It implements
``protocol.transport.Connection``.  The links of the channels are sockets, or are simulated.
"""

import logging
import math
from collections import deque
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final

from attrs import define, field, frozen

from streams.clients.errors import AuthenticationError, DisconnectedError, UnreachableError, codes_of
from streams.clients.network import SEVERAL_BROKERS, Backoff
from streams.clients.tcp.channel import Channel, ChannelConfig, Item, Links, Outcome
from streams.core.clock import Clock
from streams.core.concurrency.forks import DISOWNED, stays_in_process
from streams.core.errors import ClientClosedError, StreamsError
from streams.core.http.address import Address, parse_address
from streams.core.notices import Notices
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JoinGroup, SyncGroup
from streams.protocol.messages import CreatePartitions, CreateTopics, DeleteTopics, Fetch, Metadata, MetadataResponse
from streams.protocol.request import Request
from streams.protocol.transport import ANY_NODE, Outage, Traits
from streams.protocol.wire.mapping import api_of_request

log = logging.getLogger(__name__)

#: Number of channels to one broker for fetches.
_FETCH_CHANNELS: Final = 4
_REQUESTS = "requests"
_REBALANCES = "rebalances"
#: Metadata request for the brokers, without topics.
_BROKERS: Final = Metadata((), allow_auto_topic_creation=False)
#: Only the controller performs these requests; the brokers of KRaft clusters forward them.
_OF_THE_CONTROLLER: Final = (CreateTopics, CreatePartitions, DeleteTopics)


@frozen
class ConnectionConfig:
    """Settings of a connection; times in milliseconds.

    A request is kept for up to ``hold_ms`` until a broker can be reached, and fails after that.
    """

    client_id: str
    bootstrap: tuple[Address, ...]
    channels: ChannelConfig
    backoff: Backoff
    hold_ms: int


@define(eq=False)
class _Outage:
    """The failures and the next retry time of an address that is unreachable or whose last channel was lost."""

    failures: int = 0
    retry_at_ms: int = 0
    reason: str = ""


@define(eq=False)
class ClusterConnection:
    """An implementation of ``protocol.transport.Connection`` for a cluster of brokers."""

    config: ConnectionConfig
    _links: Links
    _clock: Clock
    _rng: Random
    traits: Traits = SEVERAL_BROKERS
    #: Tells of brokers that are away; all connections to a cluster have the same.
    notices: Notices = field(factory=Notices)
    outage: Outage | None = None
    _channels: dict[tuple[Address, str], Channel] = field(factory=dict)
    #: Replaced channels with requests in flight.
    _worn: list[Channel] = field(factory=list)
    _addresses: dict[int, Address] = field(factory=dict)
    _controller: int | None = None
    _outages: dict[Address, _Outage] = field(factory=dict)
    #: Requests that cannot be sent yet, because the address is not known or no broker can be reached.
    _waiting: deque[Item] = field(factory=deque)
    _arrived: list[tuple[int, Any]] = field(factory=list)
    _numbers: "count[int]" = field(factory=count)
    #: The number of requests without an outcome, including internal requests.
    _open: int = 0
    _asks_brokers: bool = False
    _has_brokers: bool = False
    _next_candidate: int = 0
    _is_closed: bool = False
    _why_closed: str = "is closed: open another one"

    def __attrs_post_init__(self) -> None:
        """Keep the sockets to this process."""
        stays_in_process(self)

    # --- the interface ----------------------------------------------------------------

    def send(self, node_id: int, request: Request) -> int:
        """Send a request to the broker ``node_id`` (-1 for any broker) and return the correlation id.

        Raises:
            ClientClosedError: the connection is closed.
            UnsupportedVersionError: Kafka does not have this request.
        """
        self._check_open()
        api_of_request(request)
        now = self._clock.monotonic_ms()
        item = Item(next(self._numbers), node_id, request, now)
        self._open += 1
        self._dispatch(item, now)
        return item.number

    def poll(self, timeout_ms: int) -> list[tuple[int, Any]]:
        """Return arrived responses as (correlation id, response), waiting up to the timeout.

        Raises:
            ClientClosedError: the connection is closed.
        """
        self._check_open()
        now = self._clock.monotonic_ms()
        until_ms = now + timeout_ms
        links = self._links
        while True:
            deadline_ms = self._deadline_ms()
            wait_ms = 0 if self._arrived or links.is_woken else self._wait_ms(min(until_ms, deadline_ms), now)
            links.wait(wait_ms, is_idle=not self._open)
            now = self._clock.monotonic_ms()
            if now >= deadline_ms:
                for channel in [*self._channels.values(), *self._worn]:
                    channel.check(now)
            if self._worn:
                self._close_worn()
            if self._waiting:
                self._dispatch_waiting(now)
            if self._arrived or links.is_woken or now >= until_ms:
                break
        links.take_wakeup()
        arrived = self._arrived
        self._arrived = []
        return arrived

    def give_up(self, correlation_id: int) -> None:
        """Drop a request whose response is overdue; end its channel if it is in flight."""
        for item in self._waiting:
            if item.number == correlation_id:
                self._waiting.remove(item)
                self._open -= 1
                return
        for channel in [*self._channels.values(), *self._worn]:
            if channel.give_up(correlation_id):
                self._open -= 1
                return

    def wakeup(self) -> None:
        """Make the current or the next ``poll`` return; may be called from another thread."""
        self._links.wakeup()

    def close(self) -> None:
        """Close all channels; callers are not notified of requests in flight."""
        if self._is_closed:
            return
        self._is_closed = True
        for channel in [*self._channels.values(), *self._worn]:
            channel.close()
        self._channels.clear()
        self._worn.clear()
        self._waiting.clear()
        self._arrived.clear()
        self._links.close()

    def disown(self) -> None:
        """Refuse all further use in a forked process; its copies of the sockets are not touched."""
        self._is_closed = True
        self._why_closed = f"{DISOWNED}: open another one here"

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError(f"connection of client {self.config.client_id!r} {self._why_closed}")

    # --- routing ----------------------------------------------------------------------

    def _dispatch(self, item: Item, now: int) -> None:
        """Pass a request to a channel, or keep the request until a channel is available."""
        node_id = item.node_id
        if node_id == ANY_NODE and isinstance(item.request, _OF_THE_CONTROLLER):
            if self._controller is None:
                self._hold(item, now)
                return
            node_id = self._controller
        if node_id == ANY_NODE:
            any_channel = self._any_channel(now)
            if any_channel is None:
                self._waiting.append(item)
            else:
                any_channel.send(item, now)
            return
        address = self._addresses.get(node_id)
        if address is None:
            self._hold(item, now)
            return
        channel = self._channel(address, self._kind_of(address, item.request), now)
        if channel is None:
            self._refuse(item, address, now)
        else:
            channel.send(item, now)

    def _hold(self, item: Item, now: int) -> None:
        """Keep a request until the addresses of the brokers are known."""
        self._waiting.append(item)
        if not self._asks_brokers:
            self._has_brokers = False
            self._ask_brokers(now)

    def _refuse(self, item: Item, address: Address, now: int) -> None:
        if item.node_id == ANY_NODE:
            # The request is for the controller, which may have changed.
            self._controller = None
            self._hold(item, now)
            return
        outage = self._outages[address]
        self._deliver(item, DisconnectedError(outage.reason or f"broker at {address}: it cannot be reached"))

    def _kind_of(self, address: Address, request: object) -> str:
        if isinstance(request, (JoinGroup, SyncGroup)):
            return _REBALANCES
        if not isinstance(request, Fetch):
            return _REQUESTS
        best = "fetches-0"
        load = -1
        for number in range(_FETCH_CHANNELS):
            name = f"fetches-{number}"
            channel = self._channels.get((address, name))
            if channel is None or not channel.load:
                return name
            if load < 0 or channel.load < load:
                best = name
                load = channel.load
        return best

    def _any_channel(self, now: int) -> Channel | None:
        """Return a channel to any broker, or None while no broker can be reached."""
        open_: Channel | None = None
        for (address, kind), channel in self._channels.items():
            if kind == _REQUESTS and not channel.is_worn(now) and address in self._candidates():
                if channel.is_ready:
                    return channel
                open_ = open_ or channel
        if open_ is not None:
            return open_
        candidates = self._candidates()
        for step in range(len(candidates)):
            address = candidates[(self._next_candidate + step) % len(candidates)]
            opened = self._channel(address, _REQUESTS, now)
            if opened is not None:
                return opened
        return None

    def _candidates(self) -> list[Address]:
        return list(dict.fromkeys((*self._addresses.values(), *self.config.bootstrap)))

    def _channel(self, address: Address, kind: str, now: int) -> Channel | None:
        """Return the channel to an address, opening it if necessary, or None during the reconnect backoff."""
        channel = self._channels.get((address, kind))
        if channel is not None:
            if not channel.is_worn(now):
                return channel
            del self._channels[address, kind]
            if channel.load:
                self._worn.append(channel)
            else:
                channel.close()
        if now < self._retry_at_ms(address):
            return None
        new = Channel(
            address, self.config.channels, self._links, self._on_outcome, partial(self._on_end, kind), self._on_ready
        )
        self._channels[address, kind] = new
        new.begin(now)
        return None if new.is_closed else new

    # --- responses --------------------------------------------------------------------

    def _on_outcome(self, item: Item, outcome: Outcome) -> None:
        if isinstance(outcome, MetadataResponse):
            self._learn(outcome)
        elif isinstance(item.request, _OF_THE_CONTROLLER) and ErrorCode.NOT_CONTROLLER in codes_of(outcome):
            # The broker is no longer the controller.
            self._controller = None
        self._deliver(item, outcome)

    def _learn(self, response: MetadataResponse) -> None:
        """Update the addresses of the brokers from a metadata response."""
        brokers = {node_id: parse_address(text) for node_id, text in response.brokers.items()}
        if brokers:
            self._addresses = brokers
            self._has_brokers = True
        controller = response.controller_id
        self._controller = controller if controller in brokers else next(iter(brokers), None)

    def _deliver(self, item: Item, outcome: Outcome) -> None:
        self._open -= 1
        if item.number >= 0:
            self._arrived.append((item.number, outcome))
        else:
            self._asks_brokers = False

    def _on_ready(self, channel: Channel, now: int) -> None:
        self.outage = None
        text = f"broker at {channel.address}: connected again"
        self.notices.end(log, channel.address, now, text)

    def _on_end(self, kind: str, channel: Channel, error: StreamsError) -> None:
        """Handle the end of a channel: fail the requests in flight, and fail or reroute queued requests."""
        if channel in self._worn:
            self._worn.remove(channel)
        else:
            self._channels.pop((channel.address, kind), None)
        now = self._clock.monotonic_ms()
        outage = self._outages.setdefault(channel.address, _Outage())
        if channel.was_ready:
            # The channel was connected: restart the backoff.
            outage.failures = 0
        outage.failures += 1
        if channel.was_ready and not channel.load:
            # A broker closes connections that have been idle for a long time, which loses no request.
            log.info("%s", error)
        else:
            self.notices.last(log, channel.address, now, str(error))
            if not any(other.is_ready for other in self._channels.values()):
                self.outage = Outage(now if self.outage is None else self.outage.since_ms, str(error))
        rest_ms = self.config.backoff.after(outage.failures)
        outage.retry_at_ms = now + int(rest_ms * self._rng.uniform(0.8, 1.2))
        outage.reason = str(error)
        candidates = self._candidates()
        if channel.address in candidates:
            self._next_candidate = candidates.index(channel.address) + 1
        for item, meaning in channel.unanswered(error):
            self._deliver(item, meaning)
        is_final = isinstance(error, AuthenticationError)
        for item in channel.queue:
            if item.number >= 0 and item.node_id == ANY_NODE and not is_final:
                self._waiting.append(item)
            else:
                self._deliver(item, error)
        channel.queue.clear()

    # --- timers -----------------------------------------------------------------------

    def _ask_brokers(self, now: int) -> None:
        channel = self._any_channel(now)
        if channel is not None:
            self._asks_brokers = True
            self._open += 1
            channel.send(Item(-1, ANY_NODE, _BROKERS, now), now)

    def _wait_ms(self, until_ms: float, now: int) -> int:
        if self._waiting:
            until_ms = min(until_ms, self._waiting[0].since_ms + self.config.hold_ms)
            if not self._asks_brokers:
                retries = [self._retry_at_ms(address) for address in self._candidates()]
                until_ms = min(until_ms, max(now + 1, min(retries)))
        return max(0, int(until_ms) - now)

    def _deadline_ms(self) -> float:
        """Return the earliest time at which any channel may time out."""
        deadline_ms = math.inf
        for channel in self._channels.values():
            at = channel.deadline_ms
            if at is not None and at < deadline_ms:
                deadline_ms = at
        for channel in self._worn:
            at = channel.deadline_ms
            if at is not None and at < deadline_ms:
                deadline_ms = at
        return deadline_ms

    def _retry_at_ms(self, address: Address) -> int:
        outage = self._outages.get(address)
        return 0 if outage is None else outage.retry_at_ms

    def _close_worn(self) -> None:
        for channel in [channel for channel in self._worn if not channel.load]:
            self._worn.remove(channel)
            channel.close()

    def _dispatch_waiting(self, now: int) -> None:
        """Try again to send the requests that have no channel, and fail those older than ``hold_ms``."""
        waiting = self._waiting
        self._waiting = deque()
        for item in waiting:
            if now - item.since_ms >= self.config.hold_ms:
                self._deliver(item, self._out_of_reach(item))
            elif item.node_id not in (ANY_NODE, *self._addresses) and self._has_brokers and not self._asks_brokers:
                # The broker is not in the metadata, so it is down or removed.
                self._has_brokers = False
                self._deliver(item, DisconnectedError(f"broker {item.node_id} is not in the cluster now"))
            else:
                self._dispatch(item, now)

    def _out_of_reach(self, item: Item) -> UnreachableError:
        reasons = "; ".join(
            outage.reason for address in self._candidates() if (outage := self._outages.get(address)) is not None
        )
        name = type(item.request).__name__
        return UnreachableError(
            f"{name}: no broker could be reached in {self.config.hold_ms} ms: {reasons or 'no answer'}; "
            "check bootstrap_servers and whether the cluster runs"
        )
