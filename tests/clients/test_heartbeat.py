"""The heartbeat in the background: it keeps the membership, leaves what is the application's, and ends with a stall."""

import threading

import pytest
from attrs import define, field

from streams.clients import Consumer, RebalanceListener
from streams.clients.consumer.heartbeat import ConsumerLock
from streams.core.blocks.records import TopicPartition
from streams.core.concurrency.threads import SystemThreads
from streams.core.errors import BrokerError
from streams.group import CooperativeStickyAssignor
from streams.protocol.group_messages import Heartbeat, LeaveGroup
from tests.waiting import WATCHDOG_MS


class EndOfTurn(Exception):
    """Ends a thread that is run step by step, where it would sleep."""


@define(eq=False)
class StepSignal:
    is_up: bool = False

    def set(self):
        self.is_up = True

    def is_set(self):
        return self.is_up

    def wait(self, timeout_ms=None):
        if not self.is_up:
            raise EndOfTurn
        return True


@define(eq=False)
class StepWorker:
    is_alive: bool = False
    is_current: bool = False

    def join(self, timeout_ms=None):
        return True

    def stack(self):
        return ""


@define(eq=False)
class StepThreads:
    """Threads that run when the test says so, until they would wait."""

    targets: list = field(factory=list)

    def start(self, name, target):
        self.targets.append(target)
        return StepWorker()

    def signal(self):
        return StepSignal()

    def step(self):
        for target in self.targets:
            with pytest.raises(EndOfTurn):
                target()


@pytest.fixture
def threads():
    return StepThreads()


class Noting(RebalanceListener):
    def __init__(self):
        self.calls = []

    def on_partitions_assigned(self, partitions):
        self.calls.append(("assigned", len(partitions)))

    def on_partitions_revoked(self, partitions):
        self.calls.append(("revoked", len(partitions)))

    def on_partitions_lost(self, partitions):
        self.calls.append(("lost", len(partitions)))


@pytest.fixture
def make(cluster, clock, threads):
    """Make members of a group with short sessions."""

    def make(listener=None, **settings):
        settings = {
            "clock": clock,
            "session_timeout_ms": 1_000,
            "heartbeat_interval_ms": 300,
            "max_poll_interval_ms": 10_000,
            "threads": threads,
        } | settings
        consumer = Consumer(cluster, "g", **settings)
        consumer.subscribe(["t"], listener)
        return consumer

    return make


def settle(clock, *consumers):
    for _ in range(15):
        for consumer in consumers:
            consumer.poll()
        clock.advance(100)


def is_member(broker, clock, consumer):
    """Whether the coordinator takes a commit of the member."""
    try:
        consumer.commit_sync({TopicPartition("t", 0): 0}, timeout_ms=500)
    except BrokerError:
        return False
    return True


@pytest.mark.parametrize("has_background", [True, False])
def test_busy_member_stays_only_with_the_background(broker, clock, make, threads, has_background):
    consumer = make(background_heartbeat=has_background)
    settle(clock, consumer)
    other = make(background_heartbeat=False)

    for _ in range(50):
        clock.advance(100)
        threads.step()

    assert is_member(broker, clock, consumer) is has_background
    other.close()


def test_stalled_member_leaves_and_joins_again_when_it_polls(broker, clock, make, threads, cluster):
    listener = Noting()
    consumer = make(listener, background_heartbeat=True)
    settle(clock, consumer)
    assert listener.calls == [("assigned", 2)]

    for _ in range(120):
        clock.advance(100)
        threads.step()

    assert [type(request) for request in cluster.sent].count(LeaveGroup) == 1
    assert listener.calls == [("assigned", 2)], "the application is told in its own thread"
    assert not is_member(broker, clock, consumer)

    settle(clock, consumer)

    assert listener.calls == [("assigned", 2), ("lost", 2), ("assigned", 2)]
    assert is_member(broker, clock, consumer)


def test_listeners_wait_for_the_application_while_others_rebalance(broker, clock, make, threads, cluster):
    """For longer than its session the member is busy, though the group waits for it; it is not dropped."""
    listener = Noting()
    consumer = make(listener, background_heartbeat=True)
    settle(clock, consumer)
    other = make()
    for _ in range(40):
        other.poll()
        clock.advance(100)
        threads.step()

    assert listener.calls == [("assigned", 2)]
    assert other.assignment() == frozenset()

    settle(clock, consumer, other)

    assert listener.calls == [("assigned", 2), ("revoked", 2), ("assigned", 1)]
    assert len(other.assignment()) == 1


def test_cooperative_member_joins_in_the_applications_poll(clock, make, threads):
    """It revokes nothing before it joins, but its assignor is the application's too."""
    asked = []

    class Asked(CooperativeStickyAssignor):
        def subscription_user_data(self):
            asked.append(1)
            return super().subscription_user_data()

    consumer = make(background_heartbeat=True, assignors=[Asked()])
    settle(clock, consumer)
    other = make(assignors=[CooperativeStickyAssignor()])
    asked.clear()
    for _ in range(40):
        other.poll()
        clock.advance(100)
        threads.step()

    assert asked == []
    assert len(consumer.assignment()) == 2

    settle(clock, consumer, other)

    assert asked
    assert len(consumer.assignment()) == len(other.assignment()) == 1


def test_callbacks_of_commits_run_in_the_applications_poll(clock, make, threads):
    consumer = make(background_heartbeat=True)
    settle(clock, consumer)
    done = []
    consumer.commit_async({TopicPartition("t", 0): 0}, lambda offsets, error: done.append(error))

    threads.step()
    assert done == []

    consumer.poll()
    assert done == [None]


def test_background_does_nothing_while_the_application_is_in(clock, make, threads, cluster):
    consumer = make(background_heartbeat=True)
    settle(clock, consumer)
    clock.advance(5_000)
    cluster.sent.clear()

    class Inside(RebalanceListener):
        def on_partitions_revoked(self, partitions):
            threads.step()
            assert not any(isinstance(request, Heartbeat) for request in cluster.sent)

    consumer.subscribe(["t"], Inside())
    consumer.unsubscribe()


def test_guard_lets_one_of_both_in():
    guard = ConsumerLock(SystemThreads())
    assert guard.try_enter()
    has_entered = threading.Event()

    def enter():
        with guard, guard:
            has_entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    assert not guard.try_enter()
    assert not has_entered.is_set()
    guard.leave()
    thread.join(WATCHDOG_MS / 1_000)

    assert has_entered.is_set()
    assert guard.try_enter()


def test_closing_ends_the_thread(broker):
    def threads():
        """Those of this consumer: others of this process may end at any time."""
        return [thread for thread in threading.enumerate() if thread.name == "closed-heartbeat"]

    with Consumer(broker, "g", client_id="closed", background_heartbeat=True) as consumer:
        consumer.subscribe(["t"])
        consumer.poll()
        assert len(threads()) == 1

    assert threads() == []
