"""Tables of the APIs of share groups: membership, records and offsets (KIP-932)."""

from streams.protocol import share_group_messages as messages
from streams.protocol.wire.fields import (
    BOOLEAN,
    ERROR,
    ERROR_MESSAGE,
    INDEX,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Api,
    Field,
    array,
    by_topic,
    struct,
)
from streams.protocol.wire.tables.groups import HEARTBEAT_RESPONSE, named_assignment
from streams.protocol.wire.tables.session import NO_OPERATIONS, THROTTLE

_TOPIC_ID = Field("topic_id", UUID, default=bytes(16))

SHARE_GROUP_HEARTBEAT = Api(76, messages.ShareGroupHeartbeat, (1, 1), flexible=0).with_fields(
    (
        Field("group_id", STRING),
        Field("member_id", STRING),
        Field("member_epoch", INT32),
        Field("rack_id", STRING, nullable=0, default=None),
        array("subscribed_topic_names", STRING, nullable=0, default=None, attribute="topics"),
    ),
    HEARTBEAT_RESPONSE,
)

#: One group of the ShareGroupDescribe response.
DESCRIBED_SHARE_GROUP = (
    ERROR,
    ERROR_MESSAGE,
    Field("group_id", STRING),
    Field("group_state", STRING, attribute="state"),
    Field("group_epoch", INT32),
    Field("assignment_epoch", INT32),
    Field("assignor_name", STRING),
    array(
        "members",
        Field("member_id", STRING),
        Field("rack_id", STRING, nullable=0, default=None),
        Field("member_epoch", INT32),
        Field("client_id", STRING),
        Field("client_host", STRING),
        array("subscribed_topic_names", STRING, attribute="topics"),
        named_assignment("assignment"),
    ),
    Field("authorized_operations", INT32, default=NO_OPERATIONS),
)

SHARE_GROUP_DESCRIBE = Api(77, messages.ShareGroupDescribe, (1, 1), flexible=0).with_fields(
    (
        array("group_ids", STRING),
        Field("include_authorized_operations", BOOLEAN, default=False),
    ),
    (
        THROTTLE,
        array("groups", *DESCRIBED_SHARE_GROUP),
    ),
)

_ACKNOWLEDGED = by_topic(
    "topics",
    INDEX,
    array(
        "acknowledgement_batches",
        Field("first_offset", INT64),
        Field("last_offset", INT64),
        array("acknowledge_types", INT8, attribute="types"),
    ),
    topic="topic_id",
    topic_type=UUID,
    attribute="partitions",
)
_LEADER = struct(
    "current_leader",
    Field("leader_id", INT32, default=-1),
    Field("leader_epoch", INT32, default=-1),
    default={"leader_id": -1, "leader_epoch": -1},
)
_ENDPOINTS = array(
    "node_endpoints",
    Field("node_id", INT32),
    Field("host", STRING),
    Field("port", INT32),
    Field("rack", STRING, nullable=0, default=None),
    default=(),
)

SHARE_FETCH = Api(78, messages.ShareFetch, (1, 2), flexible=0).with_fields(
    (
        Field("group_id", STRING, nullable=0, default=None),
        Field("member_id", STRING, nullable=0),
        Field("share_session_epoch", INT32, attribute="session_epoch"),
        Field("max_wait_ms", INT32),
        Field("min_bytes", INT32),
        Field("max_bytes", INT32, default=0x7FFF_FFFF),
        Field("max_records", INT32),
        Field("batch_size", INT32),
        Field("share_acquire_mode", INT8, since=2, default=0, is_ignorable=True, attribute="acquire_mode"),
        Field("is_renew_ack", BOOLEAN, since=2, default=False, attribute="is_renewal"),
        _ACKNOWLEDGED,
        by_topic("forgotten_topics_data", INT32, topic="topic_id", topic_type=UUID, attribute="forgotten"),
    ),
    (
        THROTTLE,
        ERROR,
        ERROR_MESSAGE,
        Field("acquisition_lock_timeout_ms", INT32, attribute="lock_timeout_ms"),
        by_topic(
            "responses",
            INDEX,
            ERROR,
            ERROR_MESSAGE,
            Field("acknowledge_error_code", INT16, attribute="acknowledge_error"),
            Field("acknowledge_error_message", STRING, nullable=0, default=None, attribute="acknowledge_message"),
            _LEADER,
            # Nullable in version 0 only, says Kafka's description; that version is not released.
            Field("records", RECORDS),
            array(
                "acquired_records",
                Field("first_offset", INT64),
                Field("last_offset", INT64),
                Field("delivery_count", INT16),
                attribute="acquired",
            ),
            topic="topic_id",
            topic_type=UUID,
            attribute="partitions",
        ),
        _ENDPOINTS,
    ),
)

SHARE_ACKNOWLEDGE = Api(79, messages.ShareAcknowledge, (1, 2), flexible=0).with_fields(
    (
        Field("group_id", STRING, nullable=0, default=None),
        Field("member_id", STRING, nullable=0),
        Field("share_session_epoch", INT32, attribute="session_epoch"),
        Field("is_renew_ack", BOOLEAN, since=2, default=False, attribute="is_renewal"),
        _ACKNOWLEDGED,
    ),
    (
        THROTTLE,
        ERROR,
        ERROR_MESSAGE,
        Field("acquisition_lock_timeout_ms", INT32, since=2, default=0, is_ignorable=True, attribute="lock_timeout_ms"),
        by_topic(
            "responses", INDEX, ERROR, ERROR_MESSAGE, _LEADER, topic="topic_id", topic_type=UUID, attribute="errors"
        ),
        _ENDPOINTS,
    ),
)

#: One group of the DescribeShareGroupOffsets response.
DESCRIBED_OFFSETS = (
    Field("group_id", STRING),
    array(
        "topics",
        Field("topic_name", STRING),
        _TOPIC_ID,
        array(
            "partitions",
            INDEX,
            Field("start_offset", INT64),
            Field("leader_epoch", INT32),
            Field("lag", INT64, since=1, default=-1, is_ignorable=True),
            ERROR,
            ERROR_MESSAGE,
        ),
        attribute="offsets",
    ),
    ERROR,
    ERROR_MESSAGE,
)

#: One group of the DescribeShareGroupOffsets request.
ASKED_OFFSETS = (
    Field("group_id", STRING),
    by_topic("topics", INT32, topic="topic_name", nullable=0, attribute="partitions"),
)

DESCRIBE_SHARE_GROUP_OFFSETS = Api(90, messages.DescribeShareGroupOffsets, (0, 1), flexible=0).with_fields(
    (array("groups", *ASKED_OFFSETS),), (THROTTLE, array("groups", *DESCRIBED_OFFSETS))
)

ALTER_SHARE_GROUP_OFFSETS = Api(91, messages.AlterShareGroupOffsets, (0, 0), flexible=0).with_fields(
    (
        Field("group_id", STRING),
        by_topic("topics", INDEX, Field("start_offset", INT64), topic="topic_name", attribute="offsets"),
    ),
    (
        THROTTLE,
        ERROR,
        ERROR_MESSAGE,
        array(
            "responses",
            Field("topic_name", STRING),
            _TOPIC_ID,
            array("partitions", INDEX, ERROR, ERROR_MESSAGE),
            attribute="errors",
        ),
    ),
)

DELETE_SHARE_GROUP_OFFSETS = Api(92, messages.DeleteShareGroupOffsets, (0, 0), flexible=0).with_fields(
    (Field("group_id", STRING), array("topics", Field("topic_name", STRING))),
    (
        THROTTLE,
        ERROR,
        ERROR_MESSAGE,
        array(
            "responses",
            Field("topic_name", STRING),
            _TOPIC_ID,
            ERROR,
            ERROR_MESSAGE,
            attribute="errors",
        ),
    ),
)

APIS = (
    SHARE_GROUP_HEARTBEAT,
    SHARE_GROUP_DESCRIBE,
    SHARE_FETCH,
    SHARE_ACKNOWLEDGE,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
)
