"""Records of consumer groups in the ``__consumer_offsets`` log, in Kafka's format (KIP-848).

A group has a record with its epoch and one with the epoch of its target assignment.  A member has a record with its
subscription, one with its target assignment, and one with its current assignment.  This module performs no I/O.
"""

from typing import Final

from attrs import evolve

from streams.group.consumer_group import (
    ConsumerGroup,
    ConsumerGroupMember,
    Places,
    ReconciliationState,
)
from streams.group.record_coding import decoded, encoded, key_of, key_parts, places_of, rows_of
from streams.protocol.wire import INT8, INT32, STRING, UUID, Field, Message, array

_GROUP = 3
_MEMBER = 5
_TARGET = 6
_TARGET_MEMBER = 7
_CURRENT = 8
_VERSIONS: Final = frozenset({_GROUP, _MEMBER, _TARGET, _TARGET_MEMBER, _CURRENT})
_OF_MEMBERS: Final = frozenset({_MEMBER, _TARGET_MEMBER, _CURRENT})

#: The fields of a row of partitions, by topic ID.
_PARTITIONS: Final = (Field("topic_id", UUID), array("partitions", INT32))

_GROUP_VALUE = Message("ConsumerGroupMetadataValue", 0, (Field("epoch", INT32),))
_MEMBER_VALUE = Message(
    "ConsumerGroupMemberMetadataValue",
    0,
    (
        Field("instance_id", STRING, nullable=0),
        Field("rack_id", STRING, nullable=0),
        Field("client_id", STRING),
        Field("client_host", STRING),
        array("subscribed_topic_names", STRING),
        Field("subscribed_topic_regex", STRING, nullable=0),
        Field("rebalance_timeout_ms", INT32),
        Field("server_assignor", STRING, nullable=0),
    ),
)
_TARGET_VALUE = Message("ConsumerGroupTargetAssignmentMetadataValue", 0, (Field("assignment_epoch", INT32),))
_TARGET_MEMBER_VALUE = Message(
    "ConsumerGroupTargetAssignmentMemberValue", 0, (array("topic_partitions", *_PARTITIONS),)
)
_CURRENT_VALUE = Message(
    "ConsumerGroupCurrentMemberAssignmentValue",
    0,
    (
        Field("member_epoch", INT32),
        Field("previous_member_epoch", INT32),
        Field("state", INT8),
        array("assigned_partitions", *_PARTITIONS),
        array("partitions_pending_revocation", *_PARTITIONS),
    ),
)


def group_record(group_id: str, group: ConsumerGroup) -> tuple[bytes, bytes]:
    """Return the record of a group's epoch."""
    return key_of(_GROUP, group_id), encoded(_GROUP_VALUE, {"epoch": group.epoch})


def member_record(group_id: str, member: ConsumerGroupMember) -> tuple[bytes, bytes]:
    """Return the record of a member's subscription."""
    fields = {
        "instance_id": member.group_instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
        "subscribed_topic_regex": member.topic_regex,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "server_assignor": member.server_assignor,
    }
    return key_of(_MEMBER, group_id, member.member_id), encoded(_MEMBER_VALUE, fields)


def target_record(group_id: str, group: ConsumerGroup) -> tuple[bytes, bytes]:
    """Return the record of the epoch of a group's target assignment."""
    return key_of(_TARGET, group_id), encoded(_TARGET_VALUE, {"assignment_epoch": group.assignment_epoch})


def target_member_record(group_id: str, member_id: str, target: Places) -> tuple[bytes, bytes]:
    """Return the record of a member's target assignment."""
    fields = {"topic_partitions": rows_of(target)}
    return key_of(_TARGET_MEMBER, group_id, member_id), encoded(_TARGET_MEMBER_VALUE, fields)


def current_record(group_id: str, member: ConsumerGroupMember) -> tuple[bytes, bytes]:
    """Return the record of a member's epoch and assignment."""
    fields = {
        "member_epoch": member.epoch,
        "previous_member_epoch": member.previous_epoch,
        "state": member.state,
        "assigned_partitions": rows_of(member.assigned),
        "partitions_pending_revocation": rows_of(member.revoking),
    }
    return key_of(_CURRENT, group_id, member.member_id), encoded(_CURRENT_VALUE, fields)


def keys_of_member(group_id: str, member_id: str) -> list[bytes]:
    """Return the keys of all records of a member."""
    return [key_of(version, group_id, member_id) for version in (_CURRENT, _TARGET_MEMBER, _MEMBER)]


def keys_of_group(group_id: str) -> list[bytes]:
    """Return the keys of the records of a group without members."""
    return [key_of(version, group_id) for version in (_TARGET, _GROUP)]


def read_consumer_key(data: bytes) -> tuple[int, str, str] | None:
    """Decode a record key: its version, group ID, and member ID or ""; None if it is not of this module."""
    return key_parts(data, _VERSIONS, _OF_MEMBERS)


def load_consumer_record(group: ConsumerGroup, version: int, member_id: str, value: bytes | None) -> None:
    """Apply a record of a group to its state.  Compaction keeps the records of a member in any order."""
    if version == _GROUP:
        group.epoch = 0 if value is None else decoded(_GROUP_VALUE, value)["epoch"]
    elif version == _TARGET:
        group.assignment_epoch = 0 if value is None else decoded(_TARGET_VALUE, value)["assignment_epoch"]
    elif version == _TARGET_MEMBER:
        if value is None:
            group.target.pop(member_id, None)
        else:
            group.target[member_id] = places_of(decoded(_TARGET_MEMBER_VALUE, value)["topic_partitions"])
    else:
        known = group.members.get(member_id)
        if value is not None:
            load = _with_subscription if version == _MEMBER else _with_assignment
            group.put(load(known or ConsumerGroupMember(member_id), value))
        elif known is not None:
            target = group.target.get(member_id)
            group.remove(known)
            if target is not None:
                group.target[member_id] = target


def _with_subscription(member: ConsumerGroupMember, value: bytes) -> ConsumerGroupMember:
    fields = decoded(_MEMBER_VALUE, value)
    return evolve(
        member,
        group_instance_id=fields["instance_id"],
        rack_id=fields["rack_id"],
        client_id=fields["client_id"],
        client_host=fields["client_host"],
        topics=frozenset(fields["subscribed_topic_names"]),
        topic_regex=fields["subscribed_topic_regex"],
        rebalance_timeout_ms=fields["rebalance_timeout_ms"],
        server_assignor=fields["server_assignor"],
    )


def _with_assignment(member: ConsumerGroupMember, value: bytes) -> ConsumerGroupMember:
    fields = decoded(_CURRENT_VALUE, value)
    return evolve(
        member,
        epoch=fields["member_epoch"],
        previous_epoch=fields["previous_member_epoch"],
        state=ReconciliationState(fields["state"]),
        assigned=places_of(fields["assigned_partitions"]),
        revoking=places_of(fields["partitions_pending_revocation"]),
    )
