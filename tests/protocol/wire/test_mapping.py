"""Our messages in Kafka's words and back, as bytes in between: what was said is what is heard."""

import pytest
from attrs import evolve

from streams.core.blocks.records import Block, ProducerStamp, TopicPartition
from streams.core.http.address import Address
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    CreateGroup,
    DeleteGroup,
    DeleteGroupResponse,
    DescribedConsumer,
    DescribedMember,
    DescribeGroup,
    DescribeGroupResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupMember,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    ListGroups,
    ListGroupsResponse,
    NamedAssignment,
    NamedPartitions,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionsById,
    ResetOffsets,
    SyncGroup,
    SyncGroupResponse,
)
from streams.protocol.messages import (
    COORDINATOR_TRANSACTION,
    FINAL_EPOCH,
    READ_COMMITTED,
    AbortedTransaction,
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteRecords,
    DeleteRecordsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    EndTxn,
    EndTxnResponse,
    Fetch,
    FetchedPartition,
    FetchResponse,
    FindCoordinator,
    FindCoordinatorResponse,
    InitProducerId,
    InitProducerIdResponse,
    ListedOffset,
    ListOffsets,
    ListOffsetsResponse,
    Metadata,
    MetadataResponse,
    Produce,
    Produced,
    ProduceResponse,
    TopicMetadata,
    TopicSpec,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from streams.protocol.request import ClientInformation
from streams.protocol.streams_group_messages import (
    CopartitionGroup,
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTopology,
    Endpoint,
    EndpointPartitions,
    GroupStatus,
    GroupSubtopology,
    GroupTopology,
    StreamsAssignment,
    StreamsGroupDescribe,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsStatus,
    TaskOffset,
    TopicInfo,
)
from streams.protocol.wire import (
    APIS,
    EncodingError,
    MalformedError,
    UnsupportedVersionError,
    encoded,
    encoded_all,
    mapping,
)
from streams.protocol.wire.codec import request_coder, response_coder
from streams.protocol.wire.mapping import Serving

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SERVING = Serving("cluster", {1: ("::1", 9092), 2: ("host", 9093)}, 1)
_OFFSETS = {A0: OffsetAndMetadata(5, "note"), B0: OffsetAndMetadata(7)}
_ERRORS = {A0: ErrorCode.NONE, B0: ErrorCode.UNKNOWN_MEMBER_ID}

#: First version, request, response; each is tried in all versions from that on.
_ID = b"0123456789abcdef"
_NAMED = NamedAssignment((NamedPartitions(_ID, "a", (0, 1)),))
_SUBTOPOLOGY = GroupSubtopology(
    "0",
    ("a", "b"),
    ("c.*",),
    (TopicInfo("changelog", 0, 3, {"cleanup.policy": "compact"}),),
    ("sink",),
    (TopicInfo("repartition", 4),),
    (CopartitionGroup((0, 1), (0,), (0,)),),
)
#: The client that ``heard`` takes to have sent a request.
CLIENT = ClientInformation("client")

EXCHANGES = [
    (
        1,
        ListOffsets({A0: -1, A1: 1234, B0: -2}),
        ListOffsetsResponse({A0: ListedOffset(ErrorCode.NONE, -1, 9), B0: ListedOffset(ErrorCode.OFFSET_OUT_OF_RANGE)}),
    ),
    (2, ListOffsets({A0: -1}, READ_COMMITTED), ListOffsetsResponse({})),
    (0, DeleteRecords({A0: 3, B0: -1}), DeleteRecordsResponse({A0: (ErrorCode.NONE, 3)})),
    (
        1,
        Metadata(None),
        MetadataResponse(
            {1: "[::1]:9092", 2: "host:9093"},
            (
                TopicMetadata("a", ErrorCode.NONE, (1, -1, 2), is_internal=True),
                TopicMetadata("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ),
        ),
    ),
    (1, Metadata(()), MetadataResponse({1: "[::1]:9092", 2: "host:9093"}, ())),
    (0, Metadata(("a", "b")), MetadataResponse({1: "[::1]:9092", 2: "host:9093"}, ())),
    (4, Metadata(("a",), False), MetadataResponse({1: "[::1]:9092", 2: "host:9093"}, ())),
    (
        2,
        # Before version 4 the number of replicas has to be said.
        CreateTopics((TopicSpec("a", 3, {"cleanup.policy": "compact"}, 1), TopicSpec("b", 1, replicas=1))),
        CreateTopicsResponse({"a": (ErrorCode.NONE, ""), "b": (ErrorCode.TOPIC_ALREADY_EXISTS, "it is there")}),
    ),
    (4, CreateTopics((TopicSpec("a"),)), CreateTopicsResponse({"a": (ErrorCode.NONE, "")})),
    (0, CreatePartitions({"a": 3}), CreatePartitionsResponse({"a": (ErrorCode.INVALID_PARTITIONS, "why")})),
    (1, DeleteTopics(("a", "b")), DeleteTopicsResponse({"a": ErrorCode.NONE, "b": ErrorCode.INVALID_TOPIC})),
    (0, FindCoordinator("g"), FindCoordinatorResponse(ErrorCode.NONE, 2)),
    (
        1,
        FindCoordinator("t", COORDINATOR_TRANSACTION),
        FindCoordinatorResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1),
    ),
    (
        2,
        JoinGroup("g", "m", "consumer", (("range", b"1"), ("sticky", b"2")), 10_000, 60_000, client_id="client"),
        JoinGroupResponse(
            ErrorCode.NONE, 4, "range", "m", "m", (JoinGroupMember("m", None, b"1"),), protocol_type="consumer"
        ),
    ),
    (
        5,
        JoinGroup("g", "", "consumer", (), 10_000, 60_000, "instance", client_id="client"),
        JoinGroupResponse(
            ErrorCode.NONE, 1, "p", "m", "m", (JoinGroupMember("m", "instance", b""),), protocol_type="consumer"
        ),
    ),
    (0, SyncGroup("g", 3, "m", assignments={"m": b"x", "n": b""}), SyncGroupResponse(ErrorCode.NONE, b"x")),
    (3, SyncGroup("g", 3, "m", "instance"), SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS)),
    (0, Heartbeat("g", 3, "m"), HeartbeatResponse(ErrorCode.ILLEGAL_GENERATION)),
    (3, Heartbeat("g", 3, "m", "instance"), HeartbeatResponse(ErrorCode.NONE)),
    (0, LeaveGroup("g", "m"), LeaveGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID)),
    (3, LeaveGroup("g", "", "instance"), LeaveGroupResponse(ErrorCode.NOT_COORDINATOR)),
    (2, OffsetCommit("g", _OFFSETS, 3, "m"), OffsetCommitResponse(_ERRORS)),
    (7, OffsetCommit("g", _OFFSETS, 3, "m", "instance"), OffsetCommitResponse(_ERRORS)),
    (1, OffsetFetch("g", (A0, A1, B0)), OffsetFetchResponse(ErrorCode.NONE, _OFFSETS)),
    (2, OffsetFetch("g"), OffsetFetchResponse(ErrorCode.NONE, _OFFSETS)),
    (1, OffsetFetch("g", (A0,)), OffsetFetchResponse(ErrorCode.NOT_COORDINATOR, {})),
    (7, OffsetFetch("g", (A0,), True), OffsetFetchResponse(ErrorCode.UNSTABLE_OFFSET_COMMIT, {})),
    (0, ListGroups(), ListGroupsResponse((("g", "consumer", "", ""), ("h", "", "", "")))),
    (5, ListGroups(), ListGroupsResponse((("g", "consumer", "Stable", "Consumer"),))),
    (
        4,
        DescribeGroup("g"),
        DescribeGroupResponse(
            ErrorCode.NONE,
            "Stable",
            "consumer",
            "range",
            members=(DescribedMember("m", "instance", "client", b"1", b"2"),),
        ),
    ),
    (0, DescribeGroup("g"), DescribeGroupResponse(ErrorCode.NONE)),
    (0, DeleteGroup("g"), DeleteGroupResponse(ErrorCode.NON_EMPTY_GROUP)),
    (
        0,
        ConsumerGroupHeartbeat("g", "m", 3, "instance", "rack", 1_000, ("a",), None, "range", {_ID: (0, 1)}, "client"),
        ConsumerGroupHeartbeatResponse(ErrorCode.NONE, "", "m", 4, 5_000, PartitionsById({_ID: (0,)})),
    ),
    (
        0,
        ConsumerGroupHeartbeat("g", "m", 3, client_id="client"),
        ConsumerGroupHeartbeatResponse(ErrorCode.FENCED_MEMBER_EPOCH, "late"),
    ),
    (
        1,
        ConsumerGroupHeartbeat("g", "m", 0, topic_regex="a.*", client_id="client"),
        ConsumerGroupHeartbeatResponse(ErrorCode.NONE),
    ),
    (
        0,
        ConsumerGroupDescribe("g"),
        ConsumerGroupDescribeResponse(
            ErrorCode.NONE,
            "",
            "Reconciling",
            4,
            3,
            "uniform",
            (DescribedConsumer("m", None, "rack", 3, "client", "", ("a",), None, _NAMED, NamedAssignment()),),
        ),
    ),
    (
        0,
        StreamsGroupHeartbeat(
            "g",
            "m",
            0,
            2,
            "instance",
            "rack",
            1_000,
            GroupTopology(3, (_SUBTOPOLOGY,)),
            {"0": (0, 1)},
            {},
            None,
            "process",
            Endpoint("host", 65_535),
            {"zone": "a"},
            (TaskOffset("0", 1, 2**40),),
            (),
            True,
            "client",
        ),
        StreamsGroupHeartbeatResponse(
            ErrorCode.NONE,
            "",
            "m",
            4,
            5_000,
            60_000,
            status=(GroupStatus(StreamsStatus.STALE_TOPOLOGY, "old"),),
            active_tasks={"0": (1, 2)},
            standby_tasks={},
            endpoint_information_epoch=3,
            partitions_by_user_endpoint=(EndpointPartitions(Endpoint("host", 80), (A0, A1), (B0,)),),
        ),
    ),
    (
        0,
        StreamsGroupHeartbeat("g", "m", 3, client_id="client"),
        StreamsGroupHeartbeatResponse(ErrorCode.FENCED_MEMBER_EPOCH, "late"),
    ),
    (
        1,
        StreamsGroupHeartbeat("g", "m", -1, client_id="client"),
        StreamsGroupHeartbeatResponse(ErrorCode.NONE, acceptable_recovery_lag=10_000),
    ),
    (
        0,
        StreamsGroupDescribe("g", True),
        StreamsGroupDescribeResponse(
            ErrorCode.NONE,
            "",
            "Reconciling",
            4,
            3,
            DescribedTopology(3, (DescribedSubtopology("0", ("a",), ("r",), (TopicInfo("c", 2),), ()),)),
            (
                DescribedStreamsMember(
                    "m",
                    3,
                    None,
                    "rack",
                    "client",
                    "host",
                    3,
                    "process",
                    Endpoint("host", 80),
                    {"zone": "a"},
                    (TaskOffset("0", 1, 5),),
                    (),
                    StreamsAssignment({"0": (0,)}, {"0": (1,)}, {}),
                ),
            ),
        ),
    ),
    (
        1,
        StreamsGroupDescribe("g", False, True),
        StreamsGroupDescribeResponse(
            ErrorCode.NONE, topology=DescribedTopology(3), topology_description_status=1, assignor_name="sticky"
        ),
    ),
    (0, InitProducerId(), InitProducerIdResponse(ErrorCode.NONE, 7, 0)),
    (3, InitProducerId("t", 1000, 7, 2), InitProducerIdResponse(ErrorCode.INVALID_PRODUCER_EPOCH)),
    (4, InitProducerId("t", 1000, 7, 2), InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)),
    (
        0,
        AddPartitionsToTxn("t", 7, 2, (A0, A1, B0)),
        AddPartitionsToTxnResponse({A0: ErrorCode.NONE, B0: ErrorCode.OPERATION_NOT_ATTEMPTED}),
    ),
    (0, AddOffsetsToTxn("t", 7, 2, "g"), AddOffsetsToTxnResponse(ErrorCode.INVALID_TXN_STATE)),
    (0, TxnOffsetCommit("t", "g", 7, 2, _OFFSETS), TxnOffsetCommitResponse(_ERRORS)),
    (3, TxnOffsetCommit("t", "g", 7, 2, _OFFSETS, 4, "m", "instance"), TxnOffsetCommitResponse(_ERRORS)),
    (0, EndTxn("t", 7, 2, True, bumps_epoch=False), EndTxnResponse(ErrorCode.NONE)),
]
CASES = [
    pytest.param(version, request, response, id=f"{type(request).__name__}-{number}-{version}")
    for number, (first, request, response) in enumerate(EXCHANGES)
    for version in range(first, mapping.api_of_request(request).versions[1] + 1)
]


def heard(request, version):
    """What the broker hears, the request sent as bytes."""
    api_key, message = mapping.build_request(request, version)
    data = request_coder(api_key, version).to_bytes(message)
    return mapping.parse_request(
        api_key, version, request_coder(api_key, version).whole(data), ClientInformation("client")
    )


def told(request, incoming, responses):
    """What the client is told, the answer sent as bytes."""
    message = mapping.build_response(incoming, responses, SERVING)
    coder = response_coder(incoming.api_key, incoming.version)
    return mapping.parse_response(request, incoming.version, coder.whole(coder.to_bytes(message)))


@pytest.mark.case(4)
@pytest.mark.parametrize(("version", "request_", "response"), CASES)
def test_what_is_said_is_what_is_heard(version, request_, response):
    # What these mean follows from the version (KIP-890).
    if isinstance(request_, EndTxn):
        request_ = evolve(request_, bumps_epoch=version >= 5)
    elif isinstance(request_, TxnOffsetCommit):
        request_ = evolve(request_, adds_group=version >= 5)
    incoming = heard(request_, version)

    (found,) = incoming.requests
    if isinstance(request_, JoinGroup):
        assert found.takes_member_id == (version >= 4)
        object.__setattr__(found, "takes_member_id", False)
    assert found == request_
    if isinstance(response, MetadataResponse) and version >= 1:
        # The controller is the broker's, not the response's.
        response = evolve(response, controller_id=SERVING.controller_id)
    if isinstance(response, JoinGroupResponse) and version < 7:
        response = evolve(response, protocol_type="")
    assert told(request_, incoming, [response]) == response
    assert incoming.is_answered


@pytest.mark.parametrize(
    ("request_", "low", "high"),
    [
        (Produce({}, transactional_id="t"), 11, None),
        (Produce({}, transactional_id="t", adds_partitions=True), None, 12),
        (Produce({}), 11, 12),
        (EndTxn("t", 7, 2, True, bumps_epoch=False), 11, None),
        (EndTxn("t", 7, 2, True), None, 12),
        (TxnOffsetCommit("t", "g", 7, 2, {}), 11, None),
        (TxnOffsetCommit("t", "g", 7, 2, {}, adds_group=True), None, 12),
    ],
)
def test_version_of_a_request_says_the_version_of_its_transaction(request_, low, high):
    """Produce has the second from version 12 on, the others from 5 on (KIP-890); ``low`` is the highest before."""
    first = 12 if isinstance(request_, Produce) else 5
    before = mapping.version_for(request_, first - 1) if low else None

    assert before == (first - 1 if low else None)
    assert mapping.version_for(request_, first) == (first if high else first - 1)
    if not low:
        with pytest.raises(UnsupportedVersionError, match="finalized transaction"):
            mapping.version_for(request_, first - 1)


def test_records_of_the_second_version_add_their_partitions():
    blocks = {A0: [block()]}

    assert heard(Produce(blocks, -1, "t", True), 12).requests[0].adds_partitions
    assert not heard(Produce(blocks, -1, "t"), 11).requests[0].adds_partitions
    assert not heard(Produce(blocks), 12).requests[0].adds_partitions


def test_every_translation_written_by_hand_is_tried():
    tried = {mapping.api_of_request(request).key for _, request, _ in EXCHANGES} | {0, 1, 60}

    assert tried >= {api.key for api in APIS.values() if is_by_hand(api)}


def is_by_hand(api):
    return api.request_type is not None and mapping.translation_of(api.key) in mapping.BY_HAND.values()


# --- records ----------------------------------------------------------------------------


def block(count=3, base=0, stamp=None, compression="none"):
    offsets = range(base, base + count)
    return Block([b"k"] * count, [None] * count, list(range(count)), None, offsets, stamp, compression)


def rows(blocks):
    return [row for found in blocks for row in found.rows()]


@pytest.mark.parametrize("version", range(3, 10))
def test_produced_blocks_arrive_as_they_were_made(version):
    stamp = ProducerStamp(7, 2, 40, is_transactional=True)
    request = Produce({A0: (block(stamp=stamp, compression="lz4"),), B0: (block(1),)}, -1, "t")

    incoming = heard(request, version)

    (found,) = incoming.requests
    assert (found.acks, found.transactional_id, list(found.blocks)) == (-1, "t", [A0, B0])
    assert rows(found.blocks[A0]) == rows(request.blocks[A0])
    assert (found.blocks[A0][0].producer, found.blocks[A0][0].compression) == (stamp, "lz4")
    response = ProduceResponse({A0: Produced(ErrorCode.NONE, 12), B0: Produced(ErrorCode.INVALID_TXN_STATE)})
    assert told(request, incoming, [response]) == response


def test_a_damaged_batch_is_refused_and_the_others_are_written():
    api_key, message = mapping.build_request(Produce({A0: (block(),), A1: (block(),), B0: (block(),)}), 8)
    data = bytearray(request_coder(0, 8).to_bytes(message))
    data[-1] ^= 1
    request = Produce({A0: (block(),), A1: (block(),), B0: (block(),)})

    incoming = mapping.parse_request(api_key, 8, request_coder(0, 8).whole(bytes(data)))
    accepted = ProduceResponse(dict.fromkeys(incoming.requests[0].blocks, Produced(ErrorCode.NONE, 5)))
    response = told(request, incoming, [accepted])

    assert list(incoming.requests[0].blocks) == [A0, A1]
    assert [result.error for result in response.partitions.values()] == [0, 0, ErrorCode.CORRUPT_MESSAGE]
    assert "checksum" in response.partitions[B0].message


def test_a_request_that_is_refused_whole_needs_no_response_of_the_broker():
    message = {
        "acks": 1,
        "transactional_id": None,
        "timeout_ms": 1,
        "topic_data": [{"name": "a", "partition_data": [{"index": 0, "records": None}]}],
    }

    incoming = mapping.parse_request(0, 8, message)

    assert incoming.requests == ()
    response = told(Produce({A0: (block(),)}), incoming, [])
    refusal = response.partitions[A0]
    assert (refusal.error, refusal.base_offset) == (ErrorCode.INVALID_RECORD, -1)


def test_with_acks_0_nobody_waits():
    request = Produce({A0: (block(),)}, acks=0)

    assert not heard(request, 8).is_answered
    assert not mapping.is_answered(request)
    assert mapping.is_answered(Heartbeat("g", 1, "m"))


def test_two_blocks_of_one_partition_have_no_place_in_a_produce_request():
    with pytest.raises(EncodingError, match=r"2 blocks for a-0.*one batch for each partition"):
        mapping.build_request(Produce({A0: (block(), block())}), 8)


@pytest.mark.parametrize("version", range(4, 19))
def test_fetched_blocks_arrive_as_they_were_stored(version):
    """From version 13 on topics have their IDs in place of their names."""
    by_id = version >= 13
    a0, a1, b0 = (TopicPartition(bytes([ord(name)] * 16) if by_id else name, n) for name, n in (A0, A1, B0))
    request = Fetch({a0: 5, a1: 0, b0: 9}, 250, isolation_level=READ_COMMITTED, by_id=by_id)
    stored = [block(base=5, stamp=ProducerStamp(7, 2, 40, is_transactional=True)), block(2, base=20)]
    aborted = (AbortedTransaction(7, 5),)

    incoming = heard(request, version)
    (found,) = incoming.requests
    response = told(
        request,
        incoming,
        [
            FetchResponse(
                {
                    a0: FetchedPartition(ErrorCode.NONE, 30, 2, (), 22, aborted, encoded_all(stored)),
                    a1: FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE, 30, 2),
                    b0: FetchedPartition(ErrorCode.NONE, 9, 0, (), 9),
                }
            )
        ],
    )

    assert (found.positions, found.max_wait_ms, found.isolation_level) == (request.positions, 250, READ_COMMITTED)
    assert (found.by_id, mapping.version_for(request, version)) == (by_id, version)
    first = response.partitions[a0]
    assert (first.high_watermark, first.last_stable_offset, first.aborted) == (30, 22, aborted)
    assert first.log_start_offset == (2 if version >= 5 else -1)
    assert rows(first.blocks) == rows(stored)
    assert [found.producer for found in first.blocks] == [stored[0].producer, None]
    assert response.partitions[a1].error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert response.partitions[b0].blocks == []


def test_a_fetch_over_the_wire_asks_for_bytes_and_keeps_the_limit_of_each_partition():
    request = Fetch({A0: 5, B0: 9}, 250, max_bytes=900, min_bytes=7, limits={A0: 100, B0: 200}, rack_id="b")

    (found,) = heard(request, 11).requests

    assert found == evolve(request, as_bytes=True, forgotten=[])


def test_a_fetch_session_is_carried_both_ways():
    request = Fetch({A0: 5}, 250, limits={A0: 100}, session_id=7, session_epoch=3, forgotten=[A1, B0])
    assert mapping.version_for(request, 18) == 12, "it has names"

    incoming = heard(request, 11)

    assert incoming.requests == (evolve(request, as_bytes=True),)
    answer = mapping.build_response(incoming, [FetchResponse({}, session_id=7)], SERVING)
    assert mapping.parse_response(request, 11, answer) == FetchResponse({}, session_id=7)


def test_a_fetch_before_sessions_says_all_it_wants():
    """Fetch has sessions from version 7 on."""
    request = Fetch({A0: 5}, 250, limits={A0: 100}, session_epoch=0)

    assert heard(request, 6).requests[0].session_epoch == FINAL_EPOCH


def test_damage_in_one_partition_leaves_the_others_readable(caplog):
    damaged = encoded(block())[:-1] + b"!"
    row = {"error_code": 0, "high_watermark": 3, "last_stable_offset": 3, "log_start_offset": 0}
    row |= {"aborted_transactions": None, "preferred_read_replica": 7}
    partitions = [row | {"partition_index": 0, "records": damaged}]
    partitions.append(row | {"partition_index": 1, "records": encoded(block())})
    message = {"error_code": 0, "session_id": 0, "responses": [{"topic": "a", "partitions": partitions}]}

    response = mapping.parse_response(Fetch({A0: 0, A1: 0}), 11, message)

    assert response.partitions[A0].error is ErrorCode.CORRUPT_MESSAGE
    assert rows(response.partitions[A1].blocks) == rows([block()])
    assert response.partitions[A1].preferred_read_replica == 7
    assert "fetch of a-0: record batch at byte 0" in caplog.text


def test_an_error_of_a_whole_fetch_is_told():
    message = {"error_code": 71, "session_id": 0, "responses": []}

    response = mapping.parse_response(Fetch({A0: 0}), 11, message)

    assert response == FetchResponse({}, ErrorCode.INVALID_FETCH_SESSION_EPOCH)


# --- one of theirs, several of ours ---------------------------------------------------------


@pytest.mark.parametrize(
    ("api_key", "version", "message", "requests", "responses"),
    [
        (
            13,
            3,
            {
                "group_id": "g",
                "members": [
                    {"member_id": "m", "group_instance_id": None},
                    {"member_id": "", "group_instance_id": "i"},
                ],
            },
            [LeaveGroup("g", "m"), LeaveGroup("g", "", "i")],
            [LeaveGroupResponse(ErrorCode.NONE), LeaveGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID)],
        ),
        (
            15,
            4,
            {"groups": ["g", "h"]},
            [DescribeGroup("g"), DescribeGroup("h")],
            [DescribeGroupResponse(ErrorCode.NONE)] * 2,
        ),
        (
            42,
            1,
            {"groups_names": ["g", "h"]},
            [DeleteGroup("g"), DeleteGroup("h")],
            [DeleteGroupResponse(ErrorCode.NONE), DeleteGroupResponse(ErrorCode.NON_EMPTY_GROUP)],
        ),
        (
            10,
            4,
            {"key_type": 0, "coordinator_keys": ["g", "h"]},
            [FindCoordinator("g"), FindCoordinator("h")],
            [FindCoordinatorResponse(ErrorCode.NONE, 2)] * 2,
        ),
    ],
)
def test_a_request_about_several_is_answered_one_by_one(api_key, version, message, requests, responses):
    incoming = mapping.parse_request(
        api_key, version, request_coder(api_key, version).whole(request_coder(api_key, version).to_bytes(message))
    )

    answer = mapping.build_response(incoming, responses, SERVING)

    assert list(incoming.requests) == requests
    rows = next(value for value in answer.values() if isinstance(value, list))
    assert [row["error_code"] for row in rows] == [response.error for response in responses]
    response_coder(api_key, version).to_bytes(answer)


def test_a_coordinator_is_answered_with_its_address():
    incoming = heard(FindCoordinator("g"), 2)

    answer = mapping.build_response(incoming, [FindCoordinatorResponse(ErrorCode.NONE, 2)], SERVING)

    assert (answer["node_id"], answer["host"], answer["port"]) == (2, "host", 9093)


@pytest.mark.parametrize(("version", "name"), [(11, ""), (12, None)])
def test_a_topic_asked_for_by_an_id_that_is_not_known_has_no_name(version, name):
    message = {
        "topics": [{"topic_id": b"i" * 16, "name": None}, {"topic_id": bytes(16), "name": "b"}],
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }
    unknown = TopicMetadata("", ErrorCode.UNKNOWN_TOPIC_ID, topic_id=b"i" * 16)

    incoming = mapping.parse_request(3, version, message)
    answer = mapping.build_response(incoming, [MetadataResponse({}, (unknown,))], SERVING)

    assert incoming.requests == (Metadata(("b",), topic_ids=(b"i" * 16,)),)
    assert [(row["error_code"], row["name"]) for row in answer["topics"]] == [(ErrorCode.UNKNOWN_TOPIC_ID, name)]
    response_coder(3, version).to_bytes(answer)


@pytest.mark.parametrize("version", range(1, 10))
def test_the_leader_epoch_of_an_offset_is_left_out_of_versions_without(version):
    response = ListOffsetsResponse({A0: ListedOffset(ErrorCode.NONE, 5, 9, 0)})
    request = ListOffsets({A0: 5})

    (found,) = told(request, heard(request, version), [response]).partitions.values()

    assert found == ListedOffset(ErrorCode.NONE, 5, 9, 0 if version >= 4 else -1)


def test_topics_are_deleted_by_name_and_by_id():
    request = DeleteTopics(("a",), (b"i" * 16,))
    response = DeleteTopicsResponse({"a": ErrorCode.NONE}, {b"i" * 16: (ErrorCode.UNKNOWN_TOPIC_ID, "")})

    incoming = heard(request, 6)

    assert incoming.requests == (request,)
    assert told(request, incoming, [response]) == response


def test_in_the_lowest_version_an_empty_list_of_topics_stands_for_all():
    assert heard(Metadata(None), 0).requests == (Metadata(None),)


@pytest.mark.parametrize(("api_key", "version"), [(19, 4), (37, 1)])
@pytest.mark.parametrize("is_trial", [True, False])
def test_what_is_only_to_be_validated_is_a_trial(api_key, version, is_trial):
    row = {"name": "a", "num_partitions": 1, "replication_factor": 1, "count": 2, "assignments": [], "configs": []}

    (request,) = mapping.parse_request(
        api_key, version, {"topics": [row], "validate_only": is_trial, "timeout_ms": 1}
    ).requests

    assert request.is_trial is is_trial
    assert request.timeout_ms == 1
    assert heard(request, version).requests == (request,)


def test_a_topic_named_twice_is_refused():
    row = {"num_partitions": 1, "replication_factor": -1, "assignments": [], "configs": []}
    topics = [{"name": "a", **row}, {"name": "b", **row}, {"name": "a", **row}]

    incoming = mapping.parse_request(19, 4, {"topics": topics, "validate_only": False, "timeout_ms": 30_000})

    assert incoming.requests == (CreateTopics((TopicSpec("b", 1),)),)
    answer = mapping.build_response(incoming, [CreateTopicsResponse({"b": (ErrorCode.NONE, "")})], SERVING)
    assert [(row["name"], row["error_code"]) for row in answer["topics"]] == [("a", 42), ("b", 0)]


# --- what has no place --------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [CreateGroup("g"), ResetOffsets("g", {})])
def test_requests_that_kafka_does_not_have_are_named(request_):
    with pytest.raises(UnsupportedVersionError, match=f"{type(request_).__name__} is not a Kafka request"):
        mapping.build_request(request_, 0)


@pytest.mark.parametrize(("api_key", "version"), [(76, 0), (999, 0), (1, 19)])
def test_what_our_messages_do_not_have_is_named(api_key, version):
    with pytest.raises(UnsupportedVersionError, match=f"API {api_key}"):
        mapping.parse_request(api_key, version, {})


@pytest.mark.parametrize(
    ("request_", "version", "reason"),
    [
        (LeaveGroup("g", "", "instance"), 2, "version 3 or later"),
        (CreateTopics((TopicSpec("a"),)), 3, "version 4 or later"),
        (Heartbeat("g", 1, "m", "instance"), 2, "version 3 or later"),
        (OffsetFetch("g", (A0,), True), 5, "version 7 or later"),
        (OffsetFetch("g"), 1, "topics"),
        (Metadata(("a",), False), 3, "version 4 or later"),
        (TxnOffsetCommit("t", "g", 7, 2, _OFFSETS, 4, "m"), 2, "version 3 or later"),
    ],
)
def test_what_a_version_cannot_say_is_not_left_out_silently(request_, version, reason):
    with pytest.raises(EncodingError, match=reason):
        heard(request_, version)


def test_an_answer_to_something_else_is_malformed():
    with pytest.raises(MalformedError, match="the response does not match"):
        mapping.parse_response(DeleteGroup("g"), 1, {"results": []})


@pytest.mark.parametrize(("host", "expected"), [("host", "host:1"), ("::1", "[::1]:1")])
def test_addresses(host, expected):
    assert str(Address(host, 1)) == expected
