"""Descriptions of the topologies of streams groups: a member that is asked sends it, and it is kept (KIP-1331).

A group has one topology, so it is described once.  This module performs no I/O.
"""

from typing import Final

from attrs import evolve

from streams.core.errors import BrokerError
from streams.group.coordinator_config import TopologyDescriptions
from streams.group.effects import Persist
from streams.group.registry import Groups
from streams.group.streams_group import StreamsGroup
from streams.group.streams_log import description_record
from streams.protocol.error_codes import ErrorCode
from streams.protocol.streams_group_messages import (
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdate,
    StreamsGroupTopologyDescriptionUpdateResponse,
    StreamsStatus,
)

#: How long the coordinator waits for a description before it asks another member, as in Kafka.
_PATIENCE_MS: Final = 30_000


def asking(
    where: TopologyDescriptions, group: StreamsGroup, response: StreamsGroupHeartbeatResponse, now_ms: int
) -> StreamsGroupHeartbeatResponse:
    """Return a response that asks the member for the description, unless there is one or another member was asked."""
    is_kept = where is TopologyDescriptions.NONE or group.description is not None
    asked_ms = group.description_asked_ms
    is_stale = any(status.code == StreamsStatus.STALE_TOPOLOGY for status in response.status or ())
    if is_kept or is_stale or (asked_ms is not None and now_ms < asked_ms + _PATIENCE_MS):
        return response
    group.description_asked_ms = now_ms
    return evolve(response, topology_description_required=True)


def store(
    where: TopologyDescriptions, groups: Groups, request: StreamsGroupTopologyDescriptionUpdate
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Keep the description that a member has sent."""
    try:
        group = _checked(where, groups, request)
    except BrokerError as error:
        return StreamsGroupTopologyDescriptionUpdateResponse(ErrorCode(error.code), str(error))
    before, group.description = group.description, request.topology_description

    def undo() -> None:
        group.description = before

    groups.effects.append(Persist(*description_record(request.group_id, request.topology_description), undo=undo))
    return StreamsGroupTopologyDescriptionUpdateResponse(ErrorCode.NONE)


def _checked(
    where: TopologyDescriptions, groups: Groups, request: StreamsGroupTopologyDescriptionUpdate
) -> StreamsGroup:
    """Return the group that a description belongs to.

    Raises:
        BrokerError: it is not to be kept, or not from a member, or of another topology.
    """
    if where is TopologyDescriptions.NONE:
        raise BrokerError(
            "The broker keeps no descriptions: group.streams.topology.description.plugin.class is not set.",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
    shell = groups.get(request.group_id)
    if shell is None or shell.streams is None:
        raise BrokerError(f"Streams group {request.group_id} not found.", code=ErrorCode.GROUP_ID_NOT_FOUND)
    group = shell.streams
    if request.member_id not in group.members:
        raise BrokerError(
            f"Member {request.member_id} is not a member of group {request.group_id}.", code=ErrorCode.UNKNOWN_MEMBER_ID
        )
    epoch = -1 if group.topology is None else group.topology.epoch
    if request.topology_epoch != epoch:
        raise BrokerError(
            f"Topology epoch {request.topology_epoch} does not match the group's current topology epoch {epoch}.",
            code=ErrorCode.INVALID_REQUEST,
        )
    return group
