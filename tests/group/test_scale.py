"""Many partitions and many members, within bounds that leave room to spare."""

import pytest

from streams.broker import EmbeddedBroker
from streams.clients import Consumer
from streams.core.clock import SystemClock, VirtualClock
from streams.group import CooperativeStickyAssignor, RangeAssignor, StickyAssignor, Subscription

TOPICS = {f"topic-{number:03}": 100 for number in range(100)}


def shared(assignor, members, before):
    """Share 10,000 partitions out; return who has what, and the milliseconds that it took."""
    clock = SystemClock()
    wants = {
        member: Subscription(tuple(TOPICS), before.get(member, ()), 1 if member in before else -1) for member in members
    }
    start = clock.monotonic_ms()
    result = assignor.assign(TOPICS, wants)
    return {member: found.partitions for member, found in result.items()}, clock.monotonic_ms() - start


@pytest.mark.parametrize("members", [10, 100, 1_000])
@pytest.mark.parametrize("assignor", [StickyAssignor, CooperativeStickyAssignor])
def test_ten_thousand_partitions_are_shared_out_stickily_within_a_second(assignor, members):
    names = [f"member-{number:04}" for number in range(members)]

    fresh, fresh_ms = shared(assignor(), names, {})
    _, joined_ms = shared(assignor(), [*names, "newcomer"], fresh)
    left, left_ms = shared(assignor(), names[1:], fresh)

    assert max(fresh_ms, joined_ms, left_ms) < 1_000
    assert sum(map(len, left.values())) == 10_000
    assert all(set(fresh[name]) <= set(left[name]) for name in names[1:])


@pytest.mark.parametrize("assignor", [RangeAssignor, CooperativeStickyAssignor])
def test_thousand_consumers_settle_within_two_heartbeats(assignor):
    clock = VirtualClock()
    with EmbeddedBroker(clock=clock) as broker:
        broker.create_topic("t", 1_000)
        consumers = [Consumer(broker, "g", clock=clock, assignors=[assignor()]) for _ in range(1_000)]
        for consumer in consumers:
            consumer.subscribe("t")
        while any(len(consumer.assignment()) != 1 for consumer in consumers):
            assert clock.monotonic_ms() <= 6_000
            for consumer in consumers:
                consumer.poll()
            clock.advance(1_000)

        assert len({partition for consumer in consumers for partition in consumer.assignment()}) == 1_000
