"""Many partitions and many members, within bounds that leave room to spare."""

import sys

import pytest

from streams.broker import EmbeddedBroker
from streams.clients import Consumer
from streams.core.clock import VirtualClock
from streams.group import CooperativeStickyAssignor, RangeAssignor, StickyAssignor, Subscription

#: Lines of code per partition and member that sharing out may take.
LINES_EACH = 50

TOPICS = {f"topic-{number:03}": 100 for number in range(100)}


def shared(assignor, members, before):
    """Share 10,000 partitions out; return who has what, and the lines of code that it took."""
    wants = {
        member: Subscription(tuple(TOPICS), before.get(member, ()), 1 if member in before else -1) for member in members
    }
    lines = 0

    def count(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return count

    tracer = sys.gettrace()
    sys.settrace(count)
    try:
        result = assignor.assign(TOPICS, wants)
    finally:
        sys.settrace(tracer)
    return {member: found.partitions for member, found in result.items()}, lines


@pytest.mark.case
@pytest.mark.parametrize("members", [10, 100, 1_000])
@pytest.mark.parametrize("assignor", [StickyAssignor, CooperativeStickyAssignor])
def test_ten_thousand_partitions_are_shared_out_stickily_at_a_cost_linear_in_them(assignor, members):
    """Counted in lines executed, which no other load of the machine changes."""
    names = [f"member-{number:04}" for number in range(members)]

    fresh, fresh_lines = shared(assignor(), names, {})
    _, joined_lines = shared(assignor(), [*names, "newcomer"], fresh)
    left, left_lines = shared(assignor(), names[1:], fresh)

    assert max(fresh_lines, joined_lines, left_lines) < LINES_EACH * (10_000 + members)
    assert sum(map(len, left.values())) == 10_000
    assert all(set(fresh[name]) <= set(left[name]) for name in names[1:])


@pytest.mark.case
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
