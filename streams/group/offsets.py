"""Records of the ``__consumer_offsets`` log: committed offsets and group metadata.

Bytes are Kafka's (OffsetCommitKey v1, OffsetCommitValue v3, GroupMetadataKey v2,
GroupMetadataValue v3), so that tools which read that topic understand it.  Pure.
"""

import struct
from typing import TypeAlias

from streams.core.records import TopicPartition
from streams.group.states import Group, GroupMember
from streams.group.wire import Reader, Writer
from streams.protocol.messages import OffsetAndMetadata

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
_VALUE_VERSION = 3

#: (group, partition) of a committed offset, or the group of its metadata.
LogKey: TypeAlias = tuple[str, TopicPartition | None]


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """Return the key under which a group's offset of a partition is kept."""
    return (
        Writer().int16(OFFSET_KEY_VERSION).string(group_id).string(partition.topic).int32(partition.partition).finish()
    )


def offset_value(committed: OffsetAndMetadata, now_ms: int) -> bytes:
    """Return a committed offset as bytes (leader epoch unknown)."""
    writer = Writer().int16(_VALUE_VERSION).int64(committed.offset).int32(-1)
    return writer.string(committed.metadata).int64(now_ms).finish()


def group_key(group_id: str) -> bytes:
    """Return the key under which a group's metadata is kept."""
    return Writer().int16(GROUP_KEY_VERSION).string(group_id).finish()


def group_value(group: Group, now_ms: int) -> bytes:
    """Return generation, protocol, leader and members with their assignments as bytes."""
    writer = Writer().int16(_VALUE_VERSION).string(group.protocol_type).int32(group.generation_id)
    writer.nullable_string(group.protocol_name or None).nullable_string(group.leader or None).int64(now_ms)
    writer.int32(len(group.members))
    for member in group.members.values():
        writer.string(member.member_id).nullable_string(member.group_instance_id)
        writer.string(member.client_id).string("")
        writer.int32(member.rebalance_timeout_ms).int32(member.session_timeout_ms)
        writer.nullable_bytes(member.metadata(group.protocol_name)).nullable_bytes(member.assignment)
    return writer.finish()


def read_key(data: bytes) -> LogKey | None:
    """Return what a key stands for; None for kinds this version does not know."""
    reader = Reader(data)
    version = reader.int16()
    if version in (0, OFFSET_KEY_VERSION):
        return reader.string(), TopicPartition(reader.string(), reader.int32())
    if version == GROUP_KEY_VERSION:
        return reader.string(), None
    return None


def read_offset(data: bytes) -> OffsetAndMetadata:
    """Return a committed offset from its bytes (v0 to v3)."""
    reader = Reader(data)
    version = reader.int16()
    offset = reader.int64()
    if version >= 3:
        reader.int32()
    return OffsetAndMetadata(offset, reader.string())


def read_group(group_id: str, data: bytes) -> Group:
    """Return a group from its bytes (v3 as written here); its state is the caller's business."""
    reader = Reader(data)
    version = reader.int16()
    if version != _VALUE_VERSION:
        raise struct.error(f"group metadata of {group_id!r}: version {version} is unknown, written by another program")
    group = Group(group_id, protocol_type=reader.string(), generation_id=reader.int32())
    group.protocol_name = reader.nullable_string() or ""
    leader = reader.nullable_string() or ""
    reader.int64()
    for _ in range(reader.int32()):
        member_id, instance, client_id = reader.string(), reader.nullable_string(), reader.string()
        reader.string()
        rebalance_timeout_ms, session_timeout_ms = reader.int32(), reader.int32()
        metadata, assignment = reader.nullable_bytes() or b"", reader.nullable_bytes() or b""
        group.add(
            GroupMember(
                member_id,
                instance,
                client_id,
                session_timeout_ms,
                rebalance_timeout_ms,
                ((group.protocol_name, metadata),),
                assignment,
                has_synced=True,
            )
        )
    group.leader = leader
    return group
