"""Tables of the group APIs: membership, committed offsets and administration."""

from streams.protocol import group_messages, messages
from streams.protocol.admin_messages import OffsetDelete
from streams.protocol.wire.fields import (
    BOOLEAN,
    BYTES,
    ERROR,
    ERROR_MESSAGE,
    INDEX,
    INT8,
    INT16,
    INT32,
    INT64,
    NEVER,
    STRING,
    UUID,
    Api,
    Field,
    array,
    by_topic,
    struct,
)
from streams.protocol.wire.tables.session import NO_OPERATIONS, THROTTLE

_MEMBER = (
    Field("group_id", STRING),
    Field("generation_id", INT32),
    Field("member_id", STRING),
    Field("group_instance_id", STRING, since=3, nullable=3, default=None),
)

FIND_COORDINATOR = Api(10, messages.FindCoordinator, (0, 4), flexible=3, served=(0, 2)).with_fields(
    (
        Field("key", STRING, until=3),
        Field("key_type", INT8, since=1, default=0),
        array("coordinator_keys", STRING, since=4),
    ),
    (
        Field("throttle_time_ms", INT32, since=1, default=0, is_ignorable=True),
        Field("error_code", INT16, until=3),
        Field("error_message", STRING, since=1, until=3, nullable=1, default=None, is_ignorable=True),
        Field("node_id", INT32, until=3),
        Field("host", STRING, until=3),
        Field("port", INT32, until=3),
        array(
            "coordinators",
            Field("key", STRING),
            Field("node_id", INT32),
            Field("host", STRING),
            Field("port", INT32),
            ERROR,
            Field("error_message", STRING, nullable=4, default=None),
            since=4,
        ),
    ),
)

JOIN_GROUP = Api(11, group_messages.JoinGroup, (2, 5), flexible=6).with_fields(
    (
        Field("group_id", STRING),
        Field("session_timeout_ms", INT32),
        Field("rebalance_timeout_ms", INT32),
        Field("member_id", STRING),
        Field("group_instance_id", STRING, since=5, nullable=5, default=None),
        Field("protocol_type", STRING),
        array("protocols", Field("name", STRING), Field("metadata", BYTES)),
    ),
    (
        THROTTLE,
        ERROR,
        Field("generation_id", INT32, default=-1),
        Field("protocol_name", STRING),
        Field("leader", STRING),
        Field("member_id", STRING),
        array(
            "members",
            Field("member_id", STRING),
            Field("group_instance_id", STRING, since=5, nullable=5, default=None, is_ignorable=True),
            Field("metadata", BYTES),
        ),
    ),
)

HEARTBEAT = Api(12, group_messages.Heartbeat, (0, 3), flexible=4).with_fields(
    (*_MEMBER,),
    (
        Field("throttle_time_ms", INT32, since=1, default=0, is_ignorable=True),
        ERROR,
    ),
)

LEAVE_GROUP = Api(13, group_messages.LeaveGroup, (0, 3), flexible=4).with_fields(
    (
        Field("group_id", STRING),
        Field("member_id", STRING, until=2),
        array(
            "members", Field("member_id", STRING), Field("group_instance_id", STRING, nullable=3, default=None), since=3
        ),
    ),
    (
        Field("throttle_time_ms", INT32, since=1, default=0, is_ignorable=True),
        ERROR,
        array("members", Field("member_id", STRING), Field("group_instance_id", STRING, nullable=3), ERROR, since=3),
    ),
)

SYNC_GROUP = Api(14, group_messages.SyncGroup, (0, 3), flexible=4).with_fields(
    (
        *_MEMBER,
        array("assignments", Field("member_id", STRING), Field("assignment", BYTES)),
    ),
    (
        Field("throttle_time_ms", INT32, since=1, default=0, is_ignorable=True),
        ERROR,
        Field("assignment", BYTES),
    ),
)

OFFSET_COMMIT = Api(8, group_messages.OffsetCommit, (2, 9), flexible=8).with_fields(
    (
        Field("group_id", STRING),
        Field("generation_id_or_member_epoch", INT32, default=-1, attribute="generation_id"),
        Field("member_id", STRING, default=""),
        Field("group_instance_id", STRING, since=7, nullable=7, default=None),
        Field("retention_time_ms", INT64, until=4, default=-1, is_ignorable=True),
        by_topic(
            "topics",
            INDEX,
            Field("committed_offset", INT64, attribute="offset"),
            Field("committed_leader_epoch", INT32, since=6, default=-1, is_ignorable=True, attribute="leader_epoch"),
            Field("committed_metadata", STRING, nullable=0, attribute="metadata"),
            attribute="offsets",
        ),
    ),
    (
        Field("throttle_time_ms", INT32, since=3, default=0, is_ignorable=True),
        by_topic("topics", INDEX, ERROR, attribute="errors"),
    ),
)

_FETCHED_PARTITIONS = array(
    "partitions",
    INDEX,
    Field("committed_offset", INT64),
    Field("committed_leader_epoch", INT32, since=5, default=-1, is_ignorable=True),
    Field("metadata", STRING, nullable=0),
    ERROR,
)

OFFSET_FETCH = Api(9, group_messages.OffsetFetch, (1, 9), flexible=6).with_fields(
    (
        Field("group_id", STRING, until=7),
        by_topic("topics", INT32, partitions="partition_indexes", until=7, nullable=2),
        array(
            "groups",
            Field("group_id", STRING),
            Field("member_id", STRING, since=9, nullable=9, default=None, is_ignorable=True),
            Field("member_epoch", INT32, since=9, default=-1, is_ignorable=True),
            by_topic("topics", INT32, partitions="partition_indexes", nullable=8),
            since=8,
        ),
        Field("require_stable", BOOLEAN, since=7, default=False),
    ),
    (
        Field("throttle_time_ms", INT32, since=3, default=0, is_ignorable=True),
        array("topics", Field("name", STRING), _FETCHED_PARTITIONS, until=7),
        Field("error_code", INT16, since=2, until=7, default=0, is_ignorable=True),
        array(
            "groups",
            Field("group_id", STRING),
            array("topics", Field("name", STRING), _FETCHED_PARTITIONS),
            Field("error_code", INT16, default=0),
            since=8,
        ),
    ),
)

#: One group of the DescribeGroups response.
DESCRIBED_GROUP = (
    ERROR,
    Field("group_id", STRING),
    Field("group_state", STRING, attribute="state"),
    Field("protocol_type", STRING),
    Field("protocol_data", STRING, attribute="protocol_name"),
    array(
        "members",
        Field("member_id", STRING),
        Field("group_instance_id", STRING, since=4, nullable=4, default=None, is_ignorable=True),
        Field("client_id", STRING),
        Field("client_host", STRING),
        Field("member_metadata", BYTES, attribute="metadata"),
        Field("member_assignment", BYTES, attribute="assignment"),
    ),
    Field("authorized_operations", INT32, since=3, default=NO_OPERATIONS),
)

DESCRIBE_GROUPS = Api(15, group_messages.DescribeGroup, (0, 4), flexible=5, name="DescribeGroups").with_fields(
    (
        array("groups", STRING),
        Field("include_authorized_operations", BOOLEAN, since=3, default=False),
    ),
    (
        Field("throttle_time_ms", INT32, since=1, default=0, is_ignorable=True),
        array("groups", *DESCRIBED_GROUP),
    ),
)

LIST_GROUPS = Api(16, group_messages.ListGroups, (0, 5), flexible=3).with_fields(
    (
        array("states_filter", STRING, since=4, default=()),
        array("types_filter", STRING, since=5, default=()),
    ),
    (
        Field("throttle_time_ms", INT32, since=1, default=0, is_ignorable=True),
        ERROR,
        array(
            "groups",
            Field("group_id", STRING),
            Field("protocol_type", STRING),
            Field("group_state", STRING, since=4, default="", is_ignorable=True),
            Field("group_type", STRING, since=5, default="", is_ignorable=True),
        ),
    ),
)

DELETE_GROUPS = Api(42, group_messages.DeleteGroup, (0, 1), flexible=2, name="DeleteGroups").with_fields(
    (array("groups_names", STRING),),
    (
        THROTTLE,
        array("results", Field("group_id", STRING), ERROR),
    ),
)

OFFSET_DELETE = Api(47, OffsetDelete, (0, 0), flexible=NEVER).with_fields(
    (
        Field("group_id", STRING),
        by_topic("topics", INDEX, attribute="partitions"),
    ),
    (
        ERROR,
        THROTTLE,
        by_topic("topics", INDEX, ERROR, attribute="errors"),
    ),
)

# --- the consumer groups of KIP-848 -----------------------------------------------------

CONSUMER_GROUP_HEARTBEAT = Api(68, group_messages.ConsumerGroupHeartbeat, (0, 1), flexible=0).with_fields(
    (
        Field("group_id", STRING),
        Field("member_id", STRING),
        Field("member_epoch", INT32),
        Field("instance_id", STRING, nullable=0, default=None, attribute="group_instance_id"),
        Field("rack_id", STRING, nullable=0, default=None),
        Field("rebalance_timeout_ms", INT32, default=-1),
        array("subscribed_topic_names", STRING, nullable=0, default=None, attribute="topics"),
        Field("subscribed_topic_regex", STRING, since=1, nullable=1, default=None, attribute="topic_regex"),
        Field("server_assignor", STRING, nullable=0, default=None),
        array(
            "topic_partitions",
            Field("topic_id", UUID),
            array("partitions", INT32),
            nullable=0,
            default=None,
            attribute="owned",
        ),
    ),
    (
        THROTTLE,
        ERROR,
        ERROR_MESSAGE,
        Field("member_id", STRING, nullable=0, default=None),
        Field("member_epoch", INT32),
        Field("heartbeat_interval_ms", INT32),
        struct(
            "assignment",
            array("topic_partitions", Field("topic_id", UUID), array("partitions", INT32), attribute="partitions"),
            nullable=0,
            default=None,
        ),
    ),
)


def named_assignment(name: str) -> Field:
    """Return the field of an assignment that a description of a group shows, with the names of topics."""
    return struct(
        name,
        array(
            "topic_partitions",
            Field("topic_id", UUID),
            Field("topic_name", STRING),
            array("partitions", INT32),
            attribute="topics",
        ),
    )


#: One group of the ConsumerGroupDescribe response.
DESCRIBED_CONSUMER_GROUP = (
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
        Field("instance_id", STRING, nullable=0, default=None, attribute="group_instance_id"),
        Field("rack_id", STRING, nullable=0, default=None),
        Field("member_epoch", INT32),
        Field("client_id", STRING),
        Field("client_host", STRING),
        array("subscribed_topic_names", STRING, attribute="topics"),
        Field("subscribed_topic_regex", STRING, nullable=0, default=None, attribute="topic_regex"),
        named_assignment("assignment"),
        named_assignment("target_assignment"),
        Field("member_type", INT8, since=1, default=group_messages.CONSUMER_MEMBER, is_ignorable=True),
    ),
    Field("authorized_operations", INT32, default=NO_OPERATIONS),
)

CONSUMER_GROUP_DESCRIBE = Api(69, group_messages.ConsumerGroupDescribe, (0, 1), flexible=0).with_fields(
    (
        array("group_ids", STRING),
        Field("include_authorized_operations", BOOLEAN, default=False),
    ),
    (
        THROTTLE,
        array("groups", *DESCRIBED_CONSUMER_GROUP),
    ),
)

APIS = (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    FIND_COORDINATOR,
    JOIN_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DELETE_GROUPS,
    OFFSET_DELETE,
    CONSUMER_GROUP_HEARTBEAT,
    CONSUMER_GROUP_DESCRIBE,
)
