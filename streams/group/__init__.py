"""Groups: who is there, who does what, and nobody does it twice.

For work of any kind: ``LeaderElection``, ``TaskDistribution``, ``MemberNumber``, and the ``GroupClient`` on which they
stand.  For consumers: the assignors.  Beneath, without I/O, both halves of Kafka's classic group protocol:
``Member`` and ``Coordinator``.
"""

from streams.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    EqualCountAssignor,
    Members,
    ModuloAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    in_order,
)
from streams.group.client import WORK_PROTOCOL_TYPE, GroupClient, GroupListener
from streams.group.consumer_member import Assign, ConsumerMembership, Lose, Revoke
from streams.group.coordinator import Coordinator, CoordinatorConfig, Effect, Persist, Reply, undone
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
from streams.group.states import Group, GroupState
from streams.group.sticky import withhold_owned
from streams.group.subscriptions import (
    CONSUMER_PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from streams.group.timers import Timers
from streams.group.wire import Reader, Writer

__all__ = [
    "Action",
    "Assign",
    "Assignment",
    "Assignor",
    "CONSUMER_PROTOCOL_TYPE",
    "ConsumerMembership",
    "CooperativeStickyAssignor",
    "Coordinator",
    "CoordinatorConfig",
    "Effect",
    "EqualCountAssignor",
    "Failed",
    "Group",
    "GroupClient",
    "GroupListener",
    "GroupState",
    "LeaderElection",
    "Lose",
    "Member",
    "MemberConfig",
    "MemberNumber",
    "MemberSettings",
    "MemberState",
    "Members",
    "MembershipPolicy",
    "ModuloAssignor",
    "PerformAssignment",
    "Persist",
    "RangeAssignor",
    "Reader",
    "RebalanceProtocol",
    "Reply",
    "Revoke",
    "RoundRobinAssignor",
    "Send",
    "StickyAssignor",
    "Subscription",
    "TaskDistribution",
    "Timers",
    "WORK_PROTOCOL_TYPE",
    "Writer",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "in_order",
    "undone",
    "withhold_owned",
]
