"""Records of share groups in the ``__consumer_offsets`` log, in Kafka's format (KIP-932).

They are those of consumer groups, with their own numbers, without what only these have.  Where a group has got to in
a partition is not among them: see ``broker.shares``.  This module performs no I/O.
"""

from typing import Final

from attrs import evolve

from streams.group.record_coding import decoded, encoded, key_of, key_parts, places_of, rows_of
from streams.group.share_group import ShareGroup, ShareGroupMember
from streams.group.target_records import PARTITIONS, TargetRecords
from streams.protocol.wire import INT8, INT32, INT64, STRING, Field, Message, array

_MEMBER, _GROUP, _TARGET, _TARGET_MEMBER, _CURRENT = 10, 11, 12, 13, 14
_VERSIONS: Final = frozenset({_MEMBER, _GROUP, _TARGET, _TARGET_MEMBER, _CURRENT})
_OF_MEMBERS: Final = frozenset({_MEMBER, _TARGET_MEMBER, _CURRENT})
TARGETS: Final = TargetRecords("ShareGroup", _TARGET, _TARGET_MEMBER)

_GROUP_VALUE = Message("ShareGroupMetadataValue", 0, (Field("epoch", INT32), Field("metadata_hash", INT64)))
_MEMBER_VALUE = Message(
    "ShareGroupMemberMetadataValue",
    0,
    (
        Field("rack_id", STRING, nullable=0),
        Field("client_id", STRING),
        Field("client_host", STRING),
        array("subscribed_topic_names", STRING),
    ),
)
_CURRENT_VALUE = Message(
    "ShareGroupCurrentMemberAssignmentValue",
    0,
    (
        Field("member_epoch", INT32),
        Field("previous_member_epoch", INT32),
        Field("state", INT8),
        array("assigned_partitions", *PARTITIONS),
    ),
)


def group_record(group_id: str, group: ShareGroup) -> tuple[bytes, bytes]:
    """Return the record of a group's epoch; the hash of its topics is not used here."""
    return key_of(_GROUP, group_id), encoded(_GROUP_VALUE, {"epoch": group.epoch, "metadata_hash": 0})


def member_record(group_id: str, member: ShareGroupMember) -> tuple[bytes, bytes]:
    """Return the record of a member's subscription."""
    fields = {
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
    }
    return key_of(_MEMBER, group_id, member.member_id), encoded(_MEMBER_VALUE, fields)


def current_record(group_id: str, member: ShareGroupMember) -> tuple[bytes, bytes]:
    """Return the record of a member's epoch and assignment."""
    fields = {
        "member_epoch": member.epoch,
        "previous_member_epoch": member.previous_epoch,
        "state": 0,
        "assigned_partitions": rows_of(member.assigned),
    }
    return key_of(_CURRENT, group_id, member.member_id), encoded(_CURRENT_VALUE, fields)


def keys_of_member(group_id: str, member_id: str) -> list[bytes]:
    """Return the keys of all records of a member."""
    return [key_of(version, group_id, member_id) for version in (_CURRENT, _TARGET_MEMBER, _MEMBER)]


def keys_of_group(group_id: str) -> list[bytes]:
    """Return the keys of all records of a group without members."""
    return [key_of(version, group_id) for version in (_TARGET, _GROUP)]


def read_share_key(data: bytes) -> tuple[int, str, str] | None:
    """Decode a record key: its version, group ID, and member ID or ""; None if it is not of this module."""
    return key_parts(data, _VERSIONS, _OF_MEMBERS)


def load_share_record(group: ShareGroup, version: int, member_id: str, value: bytes | None) -> None:
    """Apply a record of a group to its state.  Compaction keeps the records of a member in any order."""
    if version == _GROUP:
        group.epoch = 0 if value is None else decoded(_GROUP_VALUE, value)["epoch"]
    elif TARGETS.load(group, version, member_id, value):
        return
    elif value is not None:
        load = _with_subscription if version == _MEMBER else _with_assignment
        group.members[member_id] = load(group.members.get(member_id) or ShareGroupMember(member_id), value)
    else:
        group.members.pop(member_id, None)


def _with_subscription(member: ShareGroupMember, value: bytes) -> ShareGroupMember:
    fields = decoded(_MEMBER_VALUE, value)
    return evolve(
        member,
        rack_id=fields["rack_id"],
        client_id=fields["client_id"],
        client_host=fields["client_host"],
        topics=frozenset(fields["subscribed_topic_names"]),
    )


def _with_assignment(member: ShareGroupMember, value: bytes) -> ShareGroupMember:
    fields = decoded(_CURRENT_VALUE, value)
    return evolve(
        member,
        epoch=fields["member_epoch"],
        previous_epoch=fields["previous_member_epoch"],
        assigned=places_of(fields["assigned_partitions"]),
    )
