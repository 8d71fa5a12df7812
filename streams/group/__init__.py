"""Group membership and the assignment of work to members.

``LeaderElection``, ``TaskDistribution`` and ``MemberNumber`` are built on ``GroupClient`` and coordinate any kind of
work.  Consumers use the assignors.  ``Member`` and ``Coordinator`` implement the two sides of Kafka's classic group
protocol as state machines without I/O.
"""

from streams.group.assignment.assignors import Assignor as Assignor
from streams.group.assignment.assignors import CooperativeStickyAssignor as CooperativeStickyAssignor
from streams.group.assignment.assignors import EqualCountAssignor as EqualCountAssignor
from streams.group.assignment.assignors import ModuloAssignor as ModuloAssignor
from streams.group.assignment.assignors import RangeAssignor as RangeAssignor
from streams.group.assignment.assignors import RebalanceProtocol as RebalanceProtocol
from streams.group.assignment.assignors import RoundRobinAssignor as RoundRobinAssignor
from streams.group.assignment.assignors import StickyAssignor as StickyAssignor
from streams.group.assignment.subscriptions import Assignment as Assignment
from streams.group.assignment.subscriptions import Subscription as Subscription
from streams.group.assignment.subscriptions import decode_assignment as decode_assignment
from streams.group.assignment.subscriptions import decode_subscription as decode_subscription
from streams.group.assignment.subscriptions import encode_assignment as encode_assignment
from streams.group.assignment.subscriptions import encode_subscription as encode_subscription
from streams.group.classic.coordinator import Coordinator as Coordinator
from streams.group.client.client import WORK_PROTOCOL_TYPE as WORK_PROTOCOL_TYPE
from streams.group.client.client import GroupClient as GroupClient
from streams.group.client.client import GroupListener as GroupListener
from streams.group.client.consumer_heartbeats import ConsumerHeartbeats as ConsumerHeartbeats
from streams.group.client.consumer_member import Assign as Assign
from streams.group.client.consumer_member import ConsumerMembership as ConsumerMembership
from streams.group.client.consumer_member import Lose as Lose
from streams.group.client.consumer_member import Revoke as Revoke
from streams.group.client.epoch_member import EpochMember as EpochMember
from streams.group.client.member import Action as Action
from streams.group.client.member import Failed as Failed
from streams.group.client.member import Member as Member
from streams.group.client.member import MemberConfig as MemberConfig
from streams.group.client.member import MembershipPolicy as MembershipPolicy
from streams.group.client.member import MemberState as MemberState
from streams.group.client.member import PerformAssignment as PerformAssignment
from streams.group.client.member import Send as Send
from streams.group.client.recipes import LeaderElection as LeaderElection
from streams.group.client.recipes import MemberNumber as MemberNumber
from streams.group.client.recipes import MemberSettings as MemberSettings
from streams.group.client.recipes import TaskDistribution as TaskDistribution
from streams.group.client.streams_heartbeats import ChangelogSums as ChangelogSums
from streams.group.client.streams_heartbeats import HostFacts as HostFacts
from streams.group.client.streams_heartbeats import StreamsHeartbeats as StreamsHeartbeats
from streams.group.client.streams_heartbeats import TaskHost as TaskHost
from streams.group.client.streams_heartbeats import TaskRoles as TaskRoles
from streams.group.state.coordinator_config import CoordinatorConfig as CoordinatorConfig
from streams.group.state.effects import CreateInternalTopics as CreateInternalTopics
from streams.group.state.effects import Effect as Effect
from streams.group.state.effects import Persist as Persist
from streams.group.state.effects import Reply as Reply
from streams.group.state.states import GroupState as GroupState
from streams.group.state.topic_directory import TopicDirectory as TopicDirectory
