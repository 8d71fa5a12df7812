"""The answer that says no: one per group request, when its log cannot be written."""

from streams.protocol.messages import (
    DeleteGroup,
    DeleteGroupResponse,
    DescribeGroup,
    DescribeGroupResponse,
    ErrorCode,
    GroupRequest,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    ListGroupsResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    Response,
    SyncGroup,
    SyncGroupResponse,
)


def refusal(request: GroupRequest, error: ErrorCode) -> Response:
    """Return the response to a group request that carries nothing but an error."""
    match request:
        case JoinGroup():
            return JoinGroupResponse(error, member_id=request.member_id)
        case SyncGroup():
            return SyncGroupResponse(error)
        case Heartbeat():
            return HeartbeatResponse(error)
        case LeaveGroup():
            return LeaveGroupResponse(error)
        case OffsetCommit():
            return OffsetCommitResponse(dict.fromkeys(request.offsets, error))
        case OffsetFetch():
            return OffsetFetchResponse(error, {})
        case DescribeGroup():
            return DescribeGroupResponse(error)
        case DeleteGroup():
            return DeleteGroupResponse(error)
        case _:
            return ListGroupsResponse(())
