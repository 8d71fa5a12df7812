"""One client's way to a cluster over TCP: requests by broker id, many at once, over as many sockets as that takes.

A broker works on the requests of a socket one after the other, so what may wait at the broker has sockets
of its own: fetches (several, for a partition with news must not wait for one without) and the joining of
groups.  Everything else that goes to a broker shares one, in order.  Sockets are opened when they are
needed; whose they are, metadata says.  Used by one thread, but for ``wakeup``; implements
``protocol.transport.Connection``.
"""

import contextlib
import logging
import selectors
import socket
from collections import deque
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

from streams.clients.errors import AuthenticationError, DisconnectedError, UnreachableError
from streams.clients.network import ANY_NODE, Backoff, Traits
from streams.clients.tcp.channel import BrokerAddress, Channel, ChannelConfig, Item
from streams.core.clock import Clock
from streams.core.errors import ClientClosedError, StreamsError
from streams.protocol.messages import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ErrorCode,
    Fetch,
    JoinGroup,
    Metadata,
    Produce,
    Produced,
    ProduceResponse,
    Request,
    Response,
    SyncGroup,
)
from streams.protocol.wire.fields import Fields
from streams.protocol.wire.mapping import answer, key_of

log = logging.getLogger(__name__)

#: Sockets to one broker on which fetches may wait.
_FETCH_SOCKETS: Final = 4
_REQUESTS, _REBALANCES = "requests", "rebalances"
#: Version 1 of Metadata has brokers, and no topics where none are named.
_NO_TOPICS: Final = Metadata(())
#: How often a connection without anything under way looks whether its sockets are still there.
_LOOK_MS: Final = 100
#: The trouble with an address is logged that often.
_SAY_MS: Final = 10_000
#: Only the controller does these; brokers of KRaft clusters pass them on.
_OF_THE_CONTROLLER: Final = (CreateTopics, CreatePartitions, DeleteTopics)

#: What comes of a request.
Outcome: TypeAlias = Response | Exception


@frozen
class ConnectionConfig:
    """What a connection has beside its channels; times in milliseconds."""

    bootstrap: tuple[BrokerAddress, ...]
    channels: ChannelConfig
    backoff: Backoff
    #: How long a request that any broker may answer waits for one that can be reached.
    hold_ms: int
    traits: Traits


@define(eq=False)
class _Trouble:
    """An address that could not be reached, or was lost."""

    failures: int = 0
    retry_at_ms: int = 0
    reason: str = ""
    said_ms: int | None = None


@define(eq=False)
class TcpConnection:
    """See ``protocol.transport.Connection``."""

    config: ConnectionConfig
    _clock: Clock
    _rng: Random
    _selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector)
    _channels: dict[tuple[BrokerAddress, str], Channel] = field(factory=dict)
    #: Replaced, but with answers to come.
    _worn: list[Channel] = field(factory=list)
    _addresses: dict[int, BrokerAddress] = field(factory=dict)
    _controller: int | None = None
    _troubles: dict[BrokerAddress, _Trouble] = field(factory=dict)
    #: What cannot be sent yet: it is not known where to, or nobody can be reached.
    _waiting: deque[Item] = field(factory=deque)
    _arrived: list[tuple[int, Any]] = field(factory=list)
    _numbers: "count[int]" = field(factory=count)
    #: How many requests are without an answer, own ones included.
    _open: int = 0
    _asks_brokers: bool = False
    _has_brokers: bool = False
    _next_candidate: int = 0
    _looked_ms: int = 0
    _is_woken: bool = False
    _is_closed: bool = False
    _waker: socket.socket = field(init=False)
    _wakee: socket.socket = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._waker, self._wakee = socket.socketpair()
        self._waker.setblocking(False)
        self._wakee.setblocking(False)
        self._selector.register(self._wakee, selectors.EVENT_READ, None)

    @property
    def traits(self) -> Traits:
        """What is to be expected of this way to brokers."""
        return self.config.traits

    # --- the verbs --------------------------------------------------------------------

    def send(self, node_id: int, request: Request) -> int:
        """Send to a broker by its id (-1 = any) and return the correlation id.

        Raises:
            ClientClosedError: the connection is closed.
            UnsupportedVersionError: Kafka has no such request.
        """
        self._check_open()
        key_of(request)
        now = self._clock.monotonic_ms()
        item = Item(next(self._numbers), node_id, request, now)
        self._open += 1
        self._dispatch(item, now)
        return item.number

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        """Return what has arrived as (correlation id, response), waiting up to the timeout.

        Raises:
            ClientClosedError: the connection is closed.
        """
        self._check_open()
        now = self._clock.monotonic_ms()
        until_ms = now + timeout_ms
        if not timeout_ms and not self._open and now - self._looked_ms < _LOOK_MS:
            until_ms = -1
        while until_ms >= 0:
            wait_ms = 0 if self._arrived or self._is_woken else self._wait_ms(until_ms, now)
            events = self._selector.select(wait_ms / 1000)
            now = self._looked_ms = self._clock.monotonic_ms()
            for key, mask in events:
                if key.data is None:
                    self._drain_wakeups()
                elif not key.data.is_closed:
                    key.data.on_event(mask, now)
            self._look_after(now)
            if self._arrived or self._is_woken or now >= until_ms:
                break
        self._is_woken = False
        arrived, self._arrived = self._arrived, []
        return arrived

    def wakeup(self) -> None:
        """End a waiting ``poll``, or the next one, from another thread."""
        if self._is_woken:
            return
        self._is_woken = True
        # Full: then it wakes up anyway.  Closed: nobody waits.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """Drop all sockets; what is under way is never answered."""
        if self._is_closed:
            return
        self._is_closed = True
        for channel in [*self._channels.values(), *self._worn]:
            channel.close()
        self._channels.clear()
        self._worn.clear()
        self._waiting.clear()
        self._arrived.clear()
        self._selector.close()
        self._waker.close()
        self._wakee.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError(
                f"connection of client {self.config.channels.client_id!r} is closed: open another one"
            )

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakee.recv(4096):
                pass

    # --- where requests go ------------------------------------------------------------

    def _dispatch(self, item: Item, now: int) -> None:
        """Hand a request to a channel, or keep it until it is known which."""
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
        channel = self._channel(address, self._lane(address, item.request), now)
        if channel is None:
            self._refuse(item, address, now)
        else:
            channel.send(item, now)

    def _hold(self, item: Item, now: int) -> None:
        """Keep a request until the brokers' addresses are known."""
        self._waiting.append(item)
        if not self._asks_brokers:
            self._has_brokers = False
            self._ask_brokers(now)

    def _refuse(self, item: Item, address: BrokerAddress, now: int) -> None:
        if item.node_id == ANY_NODE:
            # To the controller: there may be another one by now.
            self._controller = None
            self._hold(item, now)
            return
        trouble = self._troubles[address]
        self._deliver(item, DisconnectedError(trouble.reason or f"broker at {address}: it cannot be reached"))

    def _lane(self, address: BrokerAddress, request: object) -> str:
        if isinstance(request, (JoinGroup, SyncGroup)):
            return _REBALANCES
        if not isinstance(request, Fetch):
            return _REQUESTS
        best, load = "fetches-0", -1
        for number in range(_FETCH_SOCKETS):
            name = f"fetches-{number}"
            channel = self._channels.get((address, name))
            if channel is None or not channel.load:
                return name
            if load < 0 or channel.load < load:
                best, load = name, channel.load
        return best

    def _any_channel(self, now: int) -> Channel | None:
        """Return a channel to some broker, None while none can be reached."""
        open_: Channel | None = None
        for (address, lane), channel in self._channels.items():
            if lane == _REQUESTS and not channel.is_worn(now) and address in self._candidates():
                if channel.is_ready:
                    return channel
                open_ = open_ or channel
        if open_ is not None:
            return open_
        candidates = self._candidates()
        for step in range(len(candidates)):
            address = candidates[(self._next_candidate + step) % len(candidates)]
            found = self._channel(address, _REQUESTS, now)
            if found is not None:
                return found
        return None

    def _candidates(self) -> list[BrokerAddress]:
        return list(dict.fromkeys((*self._addresses.values(), *self.config.bootstrap)))

    def _channel(self, address: BrokerAddress, lane: str, now: int) -> Channel | None:
        """Return the channel to an address, a new one if need be; None while it is given a rest."""
        channel = self._channels.get((address, lane))
        if channel is not None:
            if not channel.is_worn(now):
                return channel
            del self._channels[address, lane]
            if channel.load:
                self._worn.append(channel)
            else:
                channel.close()
        trouble = self._troubles.get(address)
        if trouble is not None and now < trouble.retry_at_ms:
            return None
        new = Channel(address, self.config.channels, self._selector, self._on_answer, partial(self._on_end, lane))
        self._channels[address, lane] = new
        new.begin(now)
        return None if new.is_closed else new

    # --- what comes back --------------------------------------------------------------

    def _on_answer(self, item: Item, version: int, message: Fields | Exception) -> None:
        request = item.request
        if isinstance(message, Exception):
            if item.number < 0:
                self._asks_brokers = False
            self._deliver(item, message)
            return
        try:
            outcome = self._outcome(request, version, message)
        except StreamsError as error:
            outcome = error
        if item.number < 0:
            self._asks_brokers = False
            self._learn(message)
            self._open -= 1
            return
        if isinstance(request, Metadata):
            self._learn(message)
        self._deliver(item, outcome)

    def _outcome(self, request: Request, version: int, message: Fields) -> Outcome:
        if isinstance(request, Produce) and not request.acks:
            return ProduceResponse(dict.fromkeys(request.blocks, Produced(ErrorCode.NONE)))
        response = answer(request, version, message)
        if isinstance(request, _OF_THE_CONTROLLER) and _is_elsewhere(response):
            self._controller = None
        return response

    def _learn(self, message: Fields) -> None:
        """Take in who the brokers are."""
        brokers = {row["node_id"]: BrokerAddress(row["host"], row["port"]) for row in message["brokers"]}
        if brokers:
            self._addresses = brokers
            self._has_brokers = True
        controller = message.get("controller_id", -1)
        self._controller = controller if controller in brokers else next(iter(brokers), None)

    def _deliver(self, item: Item, outcome: Any) -> None:
        self._open -= 1
        if item.number >= 0:
            self._arrived.append((item.number, outcome))

    def _on_end(self, lane: str, channel: Channel, error: StreamsError) -> None:
        """A channel has ended: what it had is answered with the error, or finds another."""
        if channel in self._worn:
            self._worn.remove(channel)
        else:
            self._channels.pop((channel.address, lane), None)
        now = self._clock.monotonic_ms()
        trouble = self._troubles.setdefault(channel.address, _Trouble())
        if channel.was_ready:
            # It worked: the first attempt to have it back need not wait.
            trouble.failures = 0
        trouble.failures += 1
        if trouble.said_ms is None or now - trouble.said_ms > _SAY_MS:
            trouble.said_ms = now
            # A broker closes connections on which nothing has come for long: nobody has lost anything.
            is_quiet = channel.was_ready and not channel.load
            log.log(logging.INFO if is_quiet else logging.WARNING, "%s", error)
        rest_ms = self.config.backoff.after(trouble.failures)
        trouble.retry_at_ms = now + int(rest_ms * self._rng.uniform(0.8, 1.2))
        trouble.reason = str(error)
        candidates = self._candidates()
        if channel.address in candidates:
            self._next_candidate = candidates.index(channel.address) + 1
        for item, meaning in channel.unanswered(error):
            if item.number < 0:
                self._asks_brokers = False
            self._deliver(item, meaning)
        is_final = isinstance(error, AuthenticationError)
        for item in channel.queue:
            if item.number < 0:
                self._asks_brokers = False
                self._deliver(item, error)
            elif item.node_id == ANY_NODE and not is_final:
                self._waiting.append(item)
            else:
                self._deliver(item, error)
        channel.queue.clear()

    # --- what is due by itself --------------------------------------------------------

    def _ask_brokers(self, now: int) -> None:
        channel = self._any_channel(now)
        if channel is not None:
            self._asks_brokers = True
            self._open += 1
            channel.send(Item(-1, ANY_NODE, _NO_TOPICS, now), now)

    def _wait_ms(self, until_ms: int, now: int) -> int:
        deadline_ms = until_ms
        if self._open:
            for channel in (*self._channels.values(), *self._worn):
                at = channel.next_deadline_ms()
                if at is not None and at < deadline_ms:
                    deadline_ms = at
        if self._waiting and self._asks_brokers:
            deadline_ms = min(deadline_ms, self._waiting[0].since_ms + self.config.hold_ms)
        elif self._waiting:
            retries = [self._retry_at_ms(address) for address in self._candidates()]
            deadline_ms = min(deadline_ms, self._waiting[0].since_ms + self.config.hold_ms, max(now + 1, min(retries)))
        return max(0, deadline_ms - now)

    def _retry_at_ms(self, address: BrokerAddress) -> int:
        trouble = self._troubles.get(address)
        return 0 if trouble is None else trouble.retry_at_ms

    def _look_after(self, now: int) -> None:
        """End what does not move, and try again to send what waits."""
        if self._open:
            for channel in [*self._channels.values(), *self._worn]:
                channel.check(now)
        for channel in [channel for channel in self._worn if not channel.load]:
            self._worn.remove(channel)
            channel.close()
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, deque()
        for item in waiting:
            if now - item.since_ms >= self.config.hold_ms:
                self._deliver(item, self._out_of_reach(item))
            elif item.node_id not in (ANY_NODE, *self._addresses) and self._has_brokers and not self._asks_brokers:
                # The cluster was asked, and does not know it: it is down, or gone.
                self._has_brokers = False
                self._deliver(item, DisconnectedError(f"broker {item.node_id} is not in the cluster now"))
            else:
                self._dispatch(item, now)

    def _out_of_reach(self, item: Item) -> UnreachableError:
        reasons = "; ".join(
            trouble.reason for address in self._candidates() if (trouble := self._troubles.get(address)) is not None
        )
        name = type(item.request).__name__
        return UnreachableError(
            f"{name}: no broker could be reached in {self.config.hold_ms} ms: {reasons or 'no answer'}; "
            "check bootstrap_servers and whether the cluster runs"
        )


def _is_elsewhere(response: object) -> bool:
    """Whether somebody was asked who is not the controller any more."""
    errors = getattr(response, "errors", {})
    codes = (found[0] if isinstance(found, tuple) else found for found in errors.values())
    return any(code is ErrorCode.NOT_CONTROLLER for code in codes)
