"""A channel ends when its oldest request has no response in time; some requests may wait at the broker."""

from random import Random

import pytest
from attrs import define, evolve, field

from streams.clients.network import Backoff, Network
from streams.clients.tcp.channel import Channel, ChannelConfig, Item
from streams.clients.tcp.connection import ClusterConnection, ConnectionConfig
from streams.core.clock import VirtualClock
from streams.core.errors import StreamsError
from streams.core.http.address import Address
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import Heartbeat, HeartbeatResponse, JoinGroup, SyncGroup
from streams.protocol.messages import Fetch, Metadata, MetadataResponse
from streams.protocol.request import Request
from streams.protocol.transport import ANY_NODE

BEAT = Heartbeat("g", 1, "m")
FIRST_JOIN = JoinGroup("g", "", "consumer", (), 10_000, 60_000, takes_member_id=True)
JOIN = JoinGroup("g", "m", "consumer", (), 10_000, 60_000, takes_member_id=True)


@define(eq=False)
class Wire:
    """Links that take everything and report nothing by themselves."""

    phase: str = "connecting"
    sent: list[Request] = field(factory=list)
    is_woken: bool = False

    def link(self, channel: Channel) -> "Wire":
        return self

    def begin(self) -> None:
        pass

    def write(self, item: Item) -> int:
        self.sent.append(item.request)
        return 1

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def wait(self, timeout_ms: int, *, is_idle: bool) -> None:
        pass

    def wakeup(self) -> None:
        pass

    def take_wakeup(self) -> None:
        pass


@define(eq=False)
class Ends:
    """What a channel has reported."""

    outcomes: list[object] = field(factory=list)
    errors: list[StreamsError] = field(factory=list)


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def channel(ends: Ends) -> Channel:
    config = ChannelConfig(request_timeout_ms=2_000, connect_timeout_ms=500, max_idle_ms=9_000)
    made = Channel(
        Address("a", 1),
        config,
        Wire(),
        lambda _, outcome: ends.outcomes.append(outcome),
        lambda _, error: ends.errors.append(error),
    )
    made.begin(0)
    return made


def send(channel: Channel, request: Request, now_ms: int) -> None:
    channel.send(Item(0, 0, request, now_ms), now_ms)


@pytest.mark.parametrize(
    ("request_", "wait_ms"),
    [
        (BEAT, 0),
        (Fetch({}, 700, 1), 700),
        (FIRST_JOIN, 0),
        (JOIN, 63_000),
        (SyncGroup("g", 1, "m", rebalance_timeout_ms=60_000), 63_000),
        (evolve(JOIN, rebalance_timeout_ms=100), 3_100),
    ],
    ids=lambda value: type(value).__name__,
)
def test_deadline_is_the_request_timeout_and_the_time_that_the_broker_may_hold_the_request(
    channel, ends, request_, wait_ms
):
    channel.on_open(100)
    send(channel, request_, 100)

    channel.check(2_099 + wait_ms)
    assert not ends.errors
    channel.check(2_100 + wait_ms)
    assert "no response in time" in str(ends.errors[0])
    assert channel.unanswered(ends.errors[0])[0][0].request is request_


def test_time_of_a_request_begins_when_those_before_it_are_answered(channel, ends):
    channel.on_open(0)
    send(channel, JOIN, 0)
    send(channel, BEAT, 0)

    channel.on_response(HeartbeatResponse(ErrorCode.NONE), 50_000)
    channel.check(51_999)
    assert not ends.errors
    channel.check(52_000)
    assert len(ends.errors) == 1


def test_requests_wait_until_it_is_open_and_fail_where_it_never_is(channel, ends):
    send(channel, BEAT, 10)

    channel.check(499)
    assert not ends.errors
    channel.check(500)
    assert "no connection within 500 ms (connecting)" in str(ends.errors[0])
    assert [item.request for item in channel.queue] == [BEAT]


def test_channel_that_has_been_idle_for_long_is_not_used_again(channel):
    channel.on_open(0)
    send(channel, BEAT, 0)

    assert not channel.is_worn(20_000)
    channel.on_response(HeartbeatResponse(ErrorCode.NONE), 20_000)
    assert not channel.is_worn(29_000)
    assert channel.is_worn(29_001)


def test_request_that_is_given_up_ends_the_channel_or_is_never_sent(channel, ends):
    send(channel, BEAT, 0)
    channel.send(Item(7, 0, JOIN, 0), 0)
    assert channel.give_up(7)
    channel.on_open(0)
    channel.send(Item(8, 0, JOIN, 0), 0)
    assert not channel.give_up(7)
    assert not ends.errors

    assert channel.give_up(8)
    assert "no response in time" in str(ends.errors[0])
    assert [item.request for item, _ in channel.unanswered(ends.errors[0])] == [BEAT]


def test_request_after_one_that_is_overdue_does_not_wait_for_its_response():
    """A join without a response ends where Kafka's client ends it, and the next join has a connection of its own."""
    clock, opened = VirtualClock(), []

    class Wires(Wire):
        def link(self, channel: Channel) -> Wire:
            opened.append((channel, Wire()))
            return opened[-1][1]

        def wait(self, timeout_ms: int, *, is_idle: bool) -> None:
            clock.advance(timeout_ms)

    config = ChannelConfig(request_timeout_ms=30_000, connect_timeout_ms=10_000, max_idle_ms=99_000)
    settings = ConnectionConfig("c", (Address("a", 1),), config, Backoff(), hold_ms=60_000)
    network = Network(ClusterConnection(settings, Wires(), clock, Random(1)), clock)
    errors: list[object] = []

    def join() -> tuple[Channel, Wire]:
        network.send(0, JOIN, errors.append)
        return opened[-1]

    network.send(ANY_NODE, Metadata())
    opened[0][0].on_open(0)
    opened[0][0].on_response(MetadataResponse({0: "a:1"}, ()), 0)
    network.poll(0)
    first, _ = join()
    clock.advance_to(2_000)
    first.on_open(2_000)
    while not errors:
        network.poll(100_000)

    assert clock.monotonic_ms() == JOIN.rebalance_timeout_ms + 5_000
    assert first.is_closed
    clock.advance(2_000)
    second, wire = join()
    second.on_open(clock.monotonic_ms())
    assert wire.sent == [JOIN]
