"""Group membership and the assignment of work to members.

``LeaderElection``, ``TaskDistribution`` and ``MemberNumber`` coordinate work of any kind, based on ``GroupClient``.
Consumers use the assignors.  ``Member`` and ``Coordinator`` are the two sides of Kafka's classic group protocol,
without I/O.
"""

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
from streams.group.client import WORK_PROTOCOL_TYPE, GroupClient, GroupListener
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
from streams.group.recipes import LeaderElection, MemberNumber, MemberSettings, TaskDistribution
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
    "WORK_PROTOCOL_TYPE",
    "GroupClient",
    "GroupListener",
    "LeaderElection",
    "MemberNumber",
    "MemberSettings",
    "TaskDistribution",
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
