"""How classic groups with members become consumer groups, and consumer groups classic ones (KIP-848, online migration).

The members of a classic group whose protocol type is ``consumer`` say in JoinGroup what they subscribe to and what
they own, so the coordinator can assign partitions to them too.  This module performs no I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Final

from streams.core.errors import BrokerError, SerializationError
from streams.core.records import TopicPartition
from streams.group.assignors import CooperativeStickyAssignor, StickyAssignor
from streams.group.consumer_group import NO_PLACES, ClassicProtocol, ConsumerGroup, ConsumerGroupMember, Place, Places
from streams.group.coordinator_config import MigrationPolicy
from streams.group.states import Group, GroupMember, GroupState
from streams.group.subscriptions import (
    CONSUMER_PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from streams.protocol.error_codes import ErrorCode

#: The assignors whose user data only repeats what a member owns.
_STICKY: Final = frozenset({StickyAssignor.name, CooperativeStickyAssignor.name})


def check_upgrade(group: Group, policy: MigrationPolicy) -> None:
    """Check that a classic group with members may become a consumer group, with Kafka's messages.

    Raises:
        BrokerError: it may not (``GROUP_ID_NOT_FOUND``): the policy forbids it, the members are no consumers, or their
            assignor exchanges data with them.
    """
    why = _objection(group, policy)
    if why:
        raise BrokerError(
            f"Cannot upgrade classic group {group.group_id} to consumer group because {why}.",
            code=ErrorCode.GROUP_ID_NOT_FOUND,
        )


def _objection(group: Group, policy: MigrationPolicy) -> str:
    if not policy.allows_upgrade:
        return "online upgrade is disabled"
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return "the group does not use the consumer embedded protocol"
    try:
        members = group.members.values()
        is_custom = any(_is_custom(member.protocols) for member in members)
        assigned = [decode_assignment(member.assignment).user_data for member in members]
    except SerializationError:
        return "the embedded consumer protocol is malformed"
    if is_custom or (group.protocol_name not in _STICKY and any(assigned)):
        return (
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade"
        )
    return ""


def joined_subscription(protocols: Sequence[tuple[str, bytes]]) -> Subscription | None:
    """Return the subscription of a member that joins with these protocols.

    It is None if the coordinator cannot assign partitions to the member: its metadata is not that of a consumer, or its
    assignor exchanges data with its members, as that of Kafka Streams does.
    """
    try:
        return None if not protocols or _is_custom(protocols) else decode_subscription(protocols[0][1])
    except SerializationError:
        return None


def _is_custom(protocols: Iterable[tuple[str, bytes]]) -> bool:
    return any(name not in _STICKY and decode_subscription(metadata).user_data for name, metadata in protocols)


def upgraded(group: Group, found: Callable[[str], tuple[bytes, int] | None]) -> ConsumerGroup:
    """Return the consumer group for the members of a classic group that passed ``check_upgrade``.

    Each member owns what it may be reading: its assignment, and what it said it owned when it joined last.  So no
    other member is assigned these partitions before it joins again without them.
    """
    subscriptions = {member.member_id: decode_subscription(member.protocols[0][1]) for member in group.members.values()}
    held = _held(group.members.values(), subscriptions, found)
    consumer = ConsumerGroup(group.generation_id, group.generation_id, target=dict(held))
    for member in group.members.values():
        consumer.put(
            ConsumerGroupMember(
                member.member_id,
                member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                topics=frozenset(subscriptions[member.member_id].topics),
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                epoch=group.generation_id,
                previous_epoch=group.generation_id,
                assigned=held[member.member_id],
                classic=ClassicProtocol(group.session_timeout_ms(member), tuple(member.protocols)),
            )
        )
    return consumer


def _held(
    members: Iterable[GroupMember],
    subscriptions: Mapping[str, Subscription],
    found: Callable[[str], tuple[bytes, int] | None],
) -> dict[str, Places]:
    """Return the partitions of each member, with one owner each: the newest claim of each partition counts."""
    assigned = [(member.member_id, decode_assignment(member.assignment).partitions) for member in members]
    newest_first = sorted(subscriptions, key=lambda member_id: -subscriptions[member_id].generation)
    claimed = [(member_id, subscriptions[member_id].owned) for member_id in newest_first]
    held = dict.fromkeys(subscriptions, NO_PLACES)
    taken = set[Place]()
    for member_id, partitions in chain(assigned, claimed):
        new = places_of(partitions, found) - taken
        held[member_id] |= new
        taken |= new
    return held


def places_of(partitions: Iterable[TopicPartition], found: Callable[[str], tuple[bytes, int] | None]) -> Places:
    """Return partitions by topic ID, without those of topics that do not exist."""
    ids = {topic: found(topic) for topic in {partition.topic for partition in partitions}}
    return frozenset(
        (topic[0], partition.partition) for partition in partitions if (topic := ids[partition.topic]) is not None
    )


def downgraded(group: Group, consumer: ConsumerGroup, names: Mapping[bytes, str]) -> None:
    """Add the members of a consumer group, which all use the classic protocol, to a classic group without members.

    They keep their assignments and their generation.
    """
    for member in consumer.members.values():
        assert member.classic is not None
        group.add(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.classic.protocols,
                encoded(member.assigned, names),
                has_synced=True,
                client_host=member.client_host,
            )
        )
    group.state = GroupState.STABLE
    group.protocol_type = CONSUMER_PROTOCOL_TYPE
    group.protocol_name = group.select_protocol()


def encoded(places: Set[Place], names: Mapping[bytes, str]) -> bytes:
    """Encode an assignment for a member that uses the classic protocol, without deleted topics."""
    found = (TopicPartition(names[topic_id], number) for topic_id, number in places if topic_id in names)
    return encode_assignment(Assignment(tuple(sorted(found))))
