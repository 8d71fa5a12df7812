"""What groups of consumers (KIP-848) and of streams (KIP-1071) have in common: sessions, epochs, static members."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from streams.group import CoordinatorConfig
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import LEAVE_STATIC_EPOCH, DeleteGroup, ListGroups
from tests.group import test_consumer_groups, test_streams_groups
from tests.group.desk import Desk
from tests.group.test_consumer_groups import REVOKE_MS, SESSION_MS, settle


@frozen
class Group:
    """A coordinator of a group, in which there are four partitions or tasks to share, and its members."""

    desk: Desk
    client: Callable[..., Any]

    def clients(self) -> tuple[Any, Any]:
        """Two members that have not joined yet."""
        return self.client(self.desk, "one"), self.client(self.desk, "two")


def group_of(kind: str, interval_ms: int = 0) -> Group:
    """Return a group whose assignments are at least so long apart."""
    if kind == "streams":
        return Group(test_streams_groups.streams_desk(interval_ms), test_streams_groups.Client)
    desk = Desk(config=CoordinatorConfig(consumer_assignment_interval_ms=interval_ms))
    desk.topics.put("t", 4)
    return Group(desk, test_consumer_groups.Client)


@pytest.fixture(params=["consumers", "streams"])
def kind(request):
    return request.param


@pytest.fixture
def group(kind):
    return group_of(kind)


def test_heartbeat_without_change_has_no_assignment_and_writes_nothing(group):
    one, _ = group.clients()
    settle(one)
    size = len(group.desk.log)
    one.beat()
    assert (one.assignment(), one.last.heartbeat_interval_ms) == (None, 5_000)
    assert len(group.desk.log) == size


def test_member_that_is_silent_is_removed_after_its_session(group):
    one, two = group.clients()
    settle(one, two)
    group.desk.advance(SESSION_MS - 1)
    one.beat()
    assert len(group.desk.described().members) == 2
    group.desk.advance(1)
    settle(one)
    assert len(one.share) == 4
    assert two.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_does_not_revoke_is_removed_after_its_rebalance_timeout(group):
    one, two = group.clients()
    settle(one)
    held = set(one.share)
    two.beat()
    one.beat()
    for _ in range(3):
        group.desk.advance(REVOKE_MS // 4)
        one.hold(held)
        one.beat()
        two.beat()
    assert two.share == set()
    group.desk.advance(REVOKE_MS)
    settle(two)
    assert two.share == held
    assert one.beat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("number", [0, 1])
def test_lost_response_is_made_good(group, number):
    """A member repeats its heartbeat with the epoch that it had; what it owns is a part of what it was assigned."""
    one, two = group.clients()
    settle(one)
    everything = set(one.share)
    two.beat()
    one.beat()
    epoch = one.epoch
    if number:
        one.beat()
    (one, two)[number].beat(is_lost=True)
    assert number or one.epoch == epoch
    settle(one, two)
    assert (len(one.share), len(two.share)) == (2, 2)
    assert one.share | two.share == everything


def test_epochs_of_another_life_are_fenced(group):
    one, two = group.clients()
    settle(one, two)
    late = group.client(group.desk, "one", epoch=1)
    late.hold(one.share | two.share)
    assert late.beat() is ErrorCode.FENCED_MEMBER_EPOCH
    ahead = group.client(group.desk, "one", epoch=9)
    ahead.hold(set())
    assert ahead.beat() is ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch (9)" in ahead.last.message
    assert ahead.beat() is ErrorCode.NONE


def test_static_member_that_is_away_keeps_its_share_for_a_session(group):
    one, two = group.client(group.desk, "one"), group.client(group.desk, "two", instance="i")
    settle(one, two)
    own, its = set(one.share), set(two.share)
    assert two.leave(LEAVE_STATIC_EPOCH).member_epoch == LEAVE_STATIC_EPOCH
    settle(one)
    assert one.share == own
    epoch = group.desk.described().group_epoch
    group.desk.restart()
    heir = group.client(group.desk, "three", instance="i")
    heir.beat()
    assert heir.share == its
    # The restart alone makes the coordinator look at the topics again.
    assert group.desk.described().group_epoch <= epoch + 1
    assert two.beat() is ErrorCode.UNRELEASED_INSTANCE_ID
    two.epoch = 3
    assert two.beat() is ErrorCode.FENCED_INSTANCE_ID
    heir.leave(LEAVE_STATIC_EPOCH)
    group.desk.advance(SESSION_MS - 1)
    one.beat()
    group.desk.advance(1)
    settle(one)
    assert one.share == own | its


def test_group_with_members_is_not_deleted(group):
    one, _ = group.clients()
    settle(one)
    assert group.desk.ask(DeleteGroup("g")).error is ErrorCode.NON_EMPTY_GROUP
    one.leave()
    assert group.desk.described().state == "Empty"
    assert group.desk.ask(DeleteGroup("g")).error is ErrorCode.NONE
    group.desk.restart()
    assert group.desk.ask(ListGroups()).groups == ()


def test_group_whose_last_member_has_left_is_assigned_at_once(kind):
    group = group_of(kind, 1_000)
    one, two = group.clients()
    one.beat()
    # The internal topics of streams exist now.
    group.desk.advance(1_000)
    one.beat()
    one.leave()
    two.beat()
    assert len(two.share) == 4
