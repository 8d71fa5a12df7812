"""Records of the ``__consumer_offsets`` log: committed offsets and group metadata.

The encoding is Kafka's (OffsetCommitKey v1, OffsetCommitValue v3, GroupMetadataKey v2,
GroupMetadataValue v3), so that tools for this topic can read the records.  This module performs no I/O.
"""

import struct
from collections.abc import Mapping
from typing import Literal, TypeAlias

from streams.core.blocks.records import TopicPartition
from streams.group.assignment.wire import Reader, Writer
from streams.group.state.states import Group, GroupMember, GroupSettings, GroupState
from streams.protocol.group_messages import OffsetAndMetadata

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
_VALUE_VERSION = 3
# Instead of the time of a group's state.  Kafka's default for the field, which it does not write.
_WITHIN_REBALANCE = -1

# An extension, far from Kafka's version numbers; Kafka's tools skip keys with unknown versions.
SETTINGS_KEY_VERSION = 1_000
_SETTINGS_VALUE_VERSION = 0

#: The configs of a group, which Kafka has in its metadata log.
CONFIGS_KEY_VERSION = 1_001
_CONFIGS_VALUE_VERSION = 0

#: A group ID and the kind of record: the partition of a committed offset, "group" (the members), "settings", or
#: "configs".
LogKey: TypeAlias = tuple[str, TopicPartition | Literal["group", "settings", "configs"]]


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """Return the record key of a group's committed offset for a partition."""
    return (
        Writer().int16(OFFSET_KEY_VERSION).string(group_id).string(partition.topic).int32(partition.partition).finish()
    )


def offset_value(committed: OffsetAndMetadata, now_ms: int) -> bytes:
    """Return the record value of a committed offset."""
    writer = Writer().int16(_VALUE_VERSION).int64(committed.offset).int32(committed.leader_epoch)
    return writer.string(committed.metadata).int64(now_ms).finish()


def settings_key(group_id: str) -> bytes:
    """Return the record key of the settings of an explicitly created group."""
    return Writer().int16(SETTINGS_KEY_VERSION).string(group_id).finish()


def settings_value(settings: GroupSettings) -> bytes:
    """Return the record value of group settings; a session timeout of -1 means None."""
    timeout_ms = -1 if settings.session_timeout_ms is None else settings.session_timeout_ms
    return Writer().int16(_SETTINGS_VALUE_VERSION).int8(settings.is_ephemeral).int32(timeout_ms).finish()


def read_settings(data: bytes) -> GroupSettings:
    """Decode group settings."""
    reader = Reader(data)
    version = reader.int16()
    if version != _SETTINGS_VALUE_VERSION:
        raise struct.error(f"settings of a group: version {version} is unknown, written by a later version")
    is_ephemeral = bool(reader.int8())
    timeout_ms = reader.int32()
    return GroupSettings(is_ephemeral, None if timeout_ms < 0 else timeout_ms)


def configs_key(group_id: str) -> bytes:
    """Return the record key of the configs of a group."""
    return Writer().int16(CONFIGS_KEY_VERSION).string(group_id).finish()


def configs_value(configs: Mapping[str, str]) -> bytes:
    """Return the record value of the configs of a group."""
    writer = Writer().int16(_CONFIGS_VALUE_VERSION).int32(len(configs))
    for name, value in sorted(configs.items()):
        writer.string(name).string(value)
    return writer.finish()


def read_configs(data: bytes) -> dict[str, str]:
    """Decode the configs of a group."""
    reader = Reader(data)
    version = reader.int16()
    if version != _CONFIGS_VALUE_VERSION:
        raise struct.error(f"configs of a group: version {version} is unknown, written by a later version")
    return {reader.string(): reader.string() for _ in range(reader.int32())}


def group_key(group_id: str) -> bytes:
    """Return the record key of a group's metadata."""
    return Writer().int16(GROUP_KEY_VERSION).string(group_id).finish()


def group_value(group: Group, now_ms: int, *, is_settled: bool = True) -> bytes:
    """Return the record value with a group's generation, protocol, leader, and members with their assignments.

    The time is -1 if the group is not settled, which means that it is within a rebalance: its members do not have the
    assignments of one generation.
    """
    protocol_name = group.protocol_name if is_settled else group.select_protocol()
    writer = Writer().int16(_VALUE_VERSION).string(group.protocol_type).int32(group.generation_id)
    writer.nullable_string(protocol_name or None).nullable_string(group.leader or None)
    writer.int64(now_ms if is_settled else _WITHIN_REBALANCE)
    writer.int32(len(group.members))
    for member in group.members.values():
        writer.string(member.member_id).nullable_string(member.group_instance_id)
        writer.string(member.client_id).string(member.client_host)
        writer.int32(member.rebalance_timeout_ms).int32(member.session_timeout_ms)
        writer.nullable_bytes(member.metadata(protocol_name)).nullable_bytes(member.assignment)
    return writer.finish()


def read_key(data: bytes) -> LogKey | None:
    """Decode a record key, or return None if its version is unknown."""
    reader = Reader(data)
    version = reader.int16()
    if version in (0, OFFSET_KEY_VERSION):
        return reader.string(), TopicPartition(reader.string(), reader.int32())
    if version == GROUP_KEY_VERSION:
        return reader.string(), "group"
    if version == SETTINGS_KEY_VERSION:
        return reader.string(), "settings"
    if version == CONFIGS_KEY_VERSION:
        return reader.string(), "configs"
    return None


def read_offset(data: bytes) -> OffsetAndMetadata:
    """Decode a committed offset (v0 to v3)."""
    reader = Reader(data)
    version = reader.int16()
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    return OffsetAndMetadata(offset, reader.string(), leader_epoch)


def read_group(group_id: str, data: bytes) -> Group:
    """Decode a group (v3, as written by ``group_value``); one within a rebalance waits for its members to rejoin."""
    reader = Reader(data)
    version = reader.int16()
    if version != _VALUE_VERSION:
        raise struct.error(f"group metadata of {group_id!r}: version {version} is unknown, written by another program")
    group = Group(group_id, protocol_type=reader.string(), generation_id=reader.int32())
    group.protocol_name = reader.nullable_string() or ""
    leader = reader.nullable_string() or ""
    is_settled = reader.int64() != _WITHIN_REBALANCE
    for _ in range(reader.int32()):
        member_id = reader.string()
        instance = reader.nullable_string()
        client_id = reader.string()
        client_host = reader.string()
        rebalance_timeout_ms = reader.int32()
        session_timeout_ms = reader.int32()
        metadata = reader.nullable_bytes() or b""
        assignment = reader.nullable_bytes() or b""
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
                client_host=client_host,
            )
        )
    group.leader = leader
    if group.members:
        group.state = GroupState.STABLE if is_settled else GroupState.PREPARING_REBALANCE
    return group
