"""Consumer groups, whose members are assigned partitions by the coordinator (KIP-848), for ``epoch_groups``.

A state machine without I/O.  A rebalance never stops members whose partitions stay with them.
"""

from collections.abc import Mapping, Sequence, Set

from attrs import evolve, frozen

from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError
from streams.group.assignment.subscriptions import Subscription
from streams.group.epochs.consumer_log import CONSUMER_LOG
from streams.group.epochs.consumer_views import describe_consumers
from streams.group.epochs.server_assignors import DEFAULT_ASSIGNOR, SERVER_ASSIGNORS
from streams.group.epochs.topic_patterns import PatternError, compiled
from streams.group.state.consumer_group import (
    NO_PLACES,
    ConsumerGroup,
    ConsumerGroupMember,
    Places,
    by_id,
    named,
    reconciled,
)
from streams.group.state.group_configs import GroupConfigs
from streams.group.state.states import Group
from streams.group.state.topic_directory import TopicDirectory
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
)


@frozen(eq=False)
class ConsumerKind:
    """The kind of consumer groups: members subscribe to topics, and partitions are assigned."""

    configs: GroupConfigs
    topics: TopicDirectory
    name = "consumer"
    title = "Group"
    heartbeat = ConsumerGroupHeartbeat
    description = ConsumerGroupDescribe
    work = "partitions"
    log = CONSUMER_LOG
    settles_when_empty = False

    # --- heartbeats -------------------------------------------------------------------

    def describe(self, shell: Group | None, request: ConsumerGroupDescribe) -> ConsumerGroupDescribeResponse:
        return describe_consumers(shell, request.group_id)

    def check(self, request: ConsumerGroupHeartbeat) -> None:
        """Check a heartbeat by itself, with Kafka's messages."""
        _check(request)

    def failed(self, request: ConsumerGroupHeartbeat, error: BrokerError) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(ErrorCode(error.code), str(error))

    def left(self, group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(ErrorCode.NONE, "", request.member_id, request.member_epoch)

    def answered(
        self,
        group_id: str,
        group: ConsumerGroup,
        before: ConsumerGroupMember,
        member: ConsumerGroupMember,
        request: ConsumerGroupHeartbeat,
        delay_ms: int,
    ) -> ConsumerGroupHeartbeatResponse:
        """Return the response to a member that stays: with its partitions if they have changed, or it says all."""
        is_full = request.member_epoch == JOIN_EPOCH or not (
            request.rebalance_timeout_ms < 0 or request.topics is None or request.owned is None
        )
        return ConsumerGroupHeartbeatResponse(
            ErrorCode.NONE,
            "",
            member.member_id,
            member.epoch,
            self.configs.heartbeat_interval_ms(self.name, group_id, delay_ms),
            by_id(member.assigned) if is_full or member.assigned != before.assigned else None,
        )

    # --- groups and members -----------------------------------------------------------

    def opened(self, generation_id: int) -> ConsumerGroup:
        """Return a new group, whose epoch follows the generation of a classic group."""
        return ConsumerGroup(generation_id)

    def owned(self, request: ConsumerGroupHeartbeat) -> Places | None:
        """Return the partitions that a member reports, or None if it reports none."""
        if request.owned is None:
            return None
        return frozenset((topic_id, number) for topic_id, numbers in request.owned.items() for number in numbers)

    def is_repeated(self, member: ConsumerGroupMember, request: ConsumerGroupHeartbeat) -> bool:
        owned = self.owned(request)
        return owned is not None and owned <= member.assigned

    def rejoined(self, member: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
        """Return a member that joins again, without partitions."""
        return member.restarted(member_id)

    def examined(self, group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> None:
        """Return None: nothing but the topics matters, which are looked up when members or topics change."""

    def described(self, member: ConsumerGroupMember, request: ConsumerGroupHeartbeat) -> ConsumerGroupMember:
        """Return a member with the subscription and the assignor of a heartbeat."""
        return evolve(
            member,
            topics=member.topics if request.topics is None else frozenset(request.topics),
            topic_regex=member.topic_regex if request.topic_regex is None else request.topic_regex or None,
            server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        )

    def is_relevant(self, before: ConsumerGroupMember, member: ConsumerGroupMember) -> bool:
        """Whether the subscription has changed."""
        return (member.topics, member.topic_regex) != (before.topics, before.topic_regex)

    def note_change(
        self, group: ConsumerGroup, before: ConsumerGroupMember, member: ConsumerGroupMember | None
    ) -> None:
        """Do nothing: members learn only of their own partitions."""

    # --- assignment -------------------------------------------------------------------

    def refresh(self, group: ConsumerGroup, request: ConsumerGroupHeartbeat, facts: None, *, is_changed: bool) -> bool:
        """Look up the subscribed topics if they, or the subscriptions, have changed."""
        if not is_changed and group.topics.version == self.topics.version:
            return False
        return group.topics.look_up(self.topics, self._subscribed_topics(group).values()) or is_changed

    def first_delay_ms(self, group_id: str) -> int:
        """Return 0: the first member is assigned its partitions at once."""
        return 0

    def targets(self, group_id: str, group: ConsumerGroup) -> Mapping[str, Places]:
        """Return the partitions of each member, by the assignor that most of them ask for."""
        topics = group.topics.by_name
        names = group.topics.names
        subscribed = self._subscribed_topics(group)
        subscriptions = {
            member.member_id: Subscription(
                tuple(sorted(subscribed[member.member_id])),
                tuple(named(group.target.get(member.member_id, NO_PLACES), names)),
                group.assignment_epoch,
                group_instance_id=member.group_instance_id,
                rack_id=member.rack_id,
            )
            for member in group.members.values()
        }
        assign = SERVER_ASSIGNORS[group.assignor(DEFAULT_ASSIGNOR)]
        partitions = assign({name: count for name, (_, count) in topics.items()}, subscriptions)
        return {
            member_id: frozenset((topics[topic][0], number) for topic, number in partitions.get(member_id, ()))
            for member_id in group.members
        }

    def reconciled(
        self, group: ConsumerGroup, member: ConsumerGroupMember, owned: Places | None
    ) -> ConsumerGroupMember:
        target = group.target.get(member.member_id, NO_PLACES)
        if group.epoch > group.assignment_epoch:
            # The target is of earlier subscriptions: the member may not want all of it any more.
            names = group.topics.names
            subscribed = member.topics | self._matching(member.topic_regex)
            target = frozenset(place for place in target if names.get(place[0]) in subscribed)
        return reconciled(member, group.assignment_epoch, target, group.is_free_for(member.member_id), owned)

    def _subscribed_topics(self, group: ConsumerGroup) -> dict[str, Set[str]]:
        """Return the topics that each member subscribes to; each regular expression is matched once."""
        members = group.members.values()
        matches = {regex: self._matching(regex) for regex in {member.topic_regex for member in members}}
        return {member.member_id: member.topics | matches[member.topic_regex] for member in members}

    def _matching(self, regex: str | None) -> frozenset[str]:
        return frozenset(filter(compiled(regex).matches, self.topics.names())) if regex else frozenset()

    # --- offsets ----------------------------------------------------------------------

    def owners(self, group: ConsumerGroup, partitions: Set[TopicPartition]) -> Sequence[ConsumerGroupMember]:
        ids = {name: topic_id for name, (topic_id, _) in group.topics.by_name.items()}
        places = {(ids[partition.topic], partition.partition) for partition in partitions if partition.topic in ids}
        return [member for member in group.members.values() if not places.isdisjoint(member.owned)]

    def has_had(self, group: ConsumerGroup, member: ConsumerGroupMember, partition: TopicPartition, epoch: int) -> bool:
        """Return False: since when a member has a partition is not recorded."""
        return False


def _check(request: ConsumerGroupHeartbeat) -> None:
    """Check a heartbeat, with Kafka's messages.

    Raises:
        BrokerError: a field is missing or invalid.
    """
    epoch = request.member_epoch
    is_joining = epoch == JOIN_EPOCH
    has_subscription = request.topics is not None or request.topic_regex is not None
    rules = (
        (not request.group_id, "GroupId can't be empty."),
        (request.group_instance_id == "", "InstanceId can't be empty."),
        (request.rack_id == "", "RackId can't be empty."),
        (epoch < LEAVE_STATIC_EPOCH, "MemberEpoch is invalid."),
        (not is_joining and not request.member_id, "MemberId can't be empty."),
        (epoch == LEAVE_STATIC_EPOCH and request.group_instance_id is None, "InstanceId can't be null."),
        (is_joining and request.rebalance_timeout_ms < 0, "RebalanceTimeoutMs must be provided in first request."),
        (
            is_joining and request.owned != {},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            is_joining and not has_subscription,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
    )
    for is_broken, message in rules:
        if is_broken:
            raise BrokerError(message, code=ErrorCode.INVALID_REQUEST)
    if request.server_assignor is not None and request.server_assignor not in SERVER_ASSIGNORS:
        raise BrokerError(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(SERVER_ASSIGNORS)}.",
            code=ErrorCode.UNSUPPORTED_ASSIGNOR,
        )
    if request.topic_regex:
        try:
            compiled(request.topic_regex)
        except PatternError as error:
            raise BrokerError(
                f"SubscribedTopicRegex `{request.topic_regex}` is not a valid regular expression: {error}.",
                code=ErrorCode.INVALID_REGULAR_EXPRESSION,
            ) from error
