"""Group membership and the assignment of work to members.

``LeaderElection``, ``TaskDistribution`` and ``MemberNumber`` are built on ``GroupClient`` and coordinate any kind of
work.  Consumers use the assignors.  ``Member`` and ``Coordinator`` implement the two sides of Kafka's classic group
protocol as state machines without I/O.
"""

from streams.group.assignors import Assignor as Assignor
from streams.group.assignors import CooperativeStickyAssignor as CooperativeStickyAssignor
from streams.group.assignors import EqualCountAssignor as EqualCountAssignor
from streams.group.assignors import ModuloAssignor as ModuloAssignor
from streams.group.assignors import RangeAssignor as RangeAssignor
from streams.group.assignors import RebalanceProtocol as RebalanceProtocol
from streams.group.assignors import RoundRobinAssignor as RoundRobinAssignor
from streams.group.assignors import StickyAssignor as StickyAssignor
from streams.group.client import WORK_PROTOCOL_TYPE as WORK_PROTOCOL_TYPE
from streams.group.client import GroupClient as GroupClient
from streams.group.client import GroupListener as GroupListener
from streams.group.consumer_heartbeats import ConsumerHeartbeats as ConsumerHeartbeats
from streams.group.consumer_member import Assign as Assign
from streams.group.consumer_member import ConsumerMembership as ConsumerMembership
from streams.group.consumer_member import Lose as Lose
from streams.group.consumer_member import Revoke as Revoke
from streams.group.coordinator import Coordinator as Coordinator
from streams.group.coordinator_config import CoordinatorConfig as CoordinatorConfig
from streams.group.effects import CreateInternalTopics as CreateInternalTopics
from streams.group.effects import Effect as Effect
from streams.group.effects import Persist as Persist
from streams.group.effects import Reply as Reply
from streams.group.epoch_member import EpochMember as EpochMember
from streams.group.member import Action as Action
from streams.group.member import Failed as Failed
from streams.group.member import Member as Member
from streams.group.member import MemberConfig as MemberConfig
from streams.group.member import MembershipPolicy as MembershipPolicy
from streams.group.member import MemberState as MemberState
from streams.group.member import PerformAssignment as PerformAssignment
from streams.group.member import Send as Send
from streams.group.recipes import LeaderElection as LeaderElection
from streams.group.recipes import MemberNumber as MemberNumber
from streams.group.recipes import MemberSettings as MemberSettings
from streams.group.recipes import TaskDistribution as TaskDistribution
from streams.group.states import GroupState as GroupState
from streams.group.streams_heartbeats import ChangelogSums as ChangelogSums
from streams.group.streams_heartbeats import HostFacts as HostFacts
from streams.group.streams_heartbeats import StreamsHeartbeats as StreamsHeartbeats
from streams.group.streams_heartbeats import TaskHost as TaskHost
from streams.group.streams_heartbeats import TaskRoles as TaskRoles
from streams.group.subscriptions import Assignment as Assignment
from streams.group.subscriptions import Subscription as Subscription
from streams.group.subscriptions import decode_assignment as decode_assignment
from streams.group.subscriptions import decode_subscription as decode_subscription
from streams.group.subscriptions import encode_assignment as encode_assignment
from streams.group.subscriptions import encode_subscription as encode_subscription
from streams.group.topic_directory import TopicDirectory as TopicDirectory
