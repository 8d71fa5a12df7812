"""Membership of groups, sans-IO: both halves of the protocol, assignors and their bytes."""

from streams.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    EqualCountAssignor,
    ModuloAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
)
from streams.group.consumer_member import Assign, ConsumerMembership, Lose, Revoke
from streams.group.coordinator import Coordinator, CoordinatorConfig, Effect, Persist, Reply
from streams.group.member import (
    Action,
    Failed,
    Member,
    MemberConfig,
    MembershipPolicy,
    MemberState,
    PerformAssignment,
    Send,
)
from streams.group.states import GroupState
from streams.group.subscriptions import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

__all__ = [
    "Action",
    "Assign",
    "Assignment",
    "Assignor",
    "ConsumerMembership",
    "CooperativeStickyAssignor",
    "Coordinator",
    "CoordinatorConfig",
    "Effect",
    "EqualCountAssignor",
    "Failed",
    "GroupState",
    "Lose",
    "Member",
    "MemberConfig",
    "MemberState",
    "MembershipPolicy",
    "ModuloAssignor",
    "PerformAssignment",
    "Persist",
    "RangeAssignor",
    "RebalanceProtocol",
    "Reply",
    "Revoke",
    "RoundRobinAssignor",
    "Send",
    "StickyAssignor",
    "Subscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
]
