"""The description of a consumer group (KIP-848).  This module performs no I/O."""

from streams.group.epochs.server_assignors import DEFAULT_ASSIGNOR
from streams.group.state.consumer_group import NO_PLACES, ConsumerGroup, ConsumerGroupMember, Places, by_id
from streams.group.state.states import Group, absence
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    ConsumerGroupDescribeResponse,
    DescribedConsumer,
    NamedAssignment,
    NamedPartitions,
)


def describe_consumers(shell: Group | None, group_id: str) -> ConsumerGroupDescribeResponse:
    """Return the description of a consumer group (KIP-848)."""
    if shell is None or shell.consumer is None:
        return ConsumerGroupDescribeResponse(ErrorCode.GROUP_ID_NOT_FOUND, absence(shell, group_id, "consumer"))
    group = shell.consumer
    return ConsumerGroupDescribeResponse(
        ErrorCode.NONE,
        "",
        group.state,
        group.epoch,
        group.assignment_epoch,
        group.assignor(DEFAULT_ASSIGNOR),
        tuple(_described_consumer(group, member) for member in group.members.values()),
    )


def _described_consumer(group: ConsumerGroup, member: ConsumerGroupMember) -> DescribedConsumer:
    return DescribedConsumer(
        member.member_id,
        member.group_instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        tuple(sorted(member.topics)),
        member.topic_regex,
        _with_names(group, member.assigned),
        _with_names(group, group.target.get(member.member_id, NO_PLACES)),
    )


def _with_names(group: ConsumerGroup, places: Places) -> NamedAssignment:
    names = group.topics.names
    return NamedAssignment(
        tuple(
            NamedPartitions(topic_id, names.get(topic_id, ""), numbers)
            for topic_id, numbers in by_id(places).partitions.items()
        )
    )
