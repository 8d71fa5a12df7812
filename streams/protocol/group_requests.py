"""All requests to the group coordinator.  This module imports only messages of ``protocol``."""

from typing import TypeAlias

from streams.protocol.group_messages import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    CreateGroup,
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    ResetOffsets,
    SyncGroup,
)
from streams.protocol.streams_group_messages import StreamsGroupDescribe, StreamsGroupHeartbeat

GroupRequest: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | ListGroups
    | DescribeGroup
    | DeleteGroup
    | CreateGroup
    | ResetOffsets
    | ConsumerGroupHeartbeat
    | ConsumerGroupDescribe
    | StreamsGroupHeartbeat
    | StreamsGroupDescribe
)
