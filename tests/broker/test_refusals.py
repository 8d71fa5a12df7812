"""A group or transaction request whose log cannot be written gets its own response, with the error in it."""

from typing import get_args

import pytest

from streams.broker.refusals import refusal
from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
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
    ListGroupsResponse,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    ResetOffsets,
    SyncGroup,
)
from streams.protocol.group_requests import GroupRequest
from streams.protocol.messages import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, InitProducerId, TxnOffsetCommit
from streams.protocol.request import response_type
from streams.protocol.streams_group_messages import (
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
)

_A0 = TopicPartition("a", 0)
_OFFSETS = {_A0: OffsetAndMetadata(5)}
_REQUESTS = [
    JoinGroup("g", "m", 1, 1, "consumer", ()),
    SyncGroup("g", 1, "m"),
    Heartbeat("g", 1, "m"),
    LeaveGroup("g", "m"),
    OffsetCommit("g", _OFFSETS),
    OffsetFetch("g"),
    ListGroups(),
    DescribeGroup("g"),
    DeleteGroup("g"),
    CreateGroup("g"),
    ResetOffsets("g", {_A0: 5}, 1),
    ConsumerGroupHeartbeat("g", "m", 1),
    ConsumerGroupDescribe("g"),
    StreamsGroupHeartbeat("g", "m", 1),
    StreamsGroupDescribe("g"),
    InitProducerId("t", 1),
    AddPartitionsToTxn("t", 1, 0, (_A0,)),
    AddOffsetsToTxn("t", 1, 0, "g"),
    EndTxn("t", 1, 0, True),
    TxnOffsetCommit("t", "g", 1, 0, _OFFSETS),
]


def test_every_group_request_is_in_the_list():
    assert set(get_args(GroupRequest)) <= {type(request) for request in _REQUESTS}


@pytest.mark.parametrize("request_", _REQUESTS, ids=lambda request: type(request).__name__)
def test_a_refused_request_gets_its_own_response_with_the_error(request_):
    response = refusal(request_, ErrorCode.STORAGE_ERROR)

    assert type(response) is response_type(type(request_))
    if hasattr(response, "errors"):
        assert response.errors == {_A0: ErrorCode.STORAGE_ERROR}
    elif not isinstance(response, ListGroupsResponse):
        assert response.error is ErrorCode.STORAGE_ERROR
