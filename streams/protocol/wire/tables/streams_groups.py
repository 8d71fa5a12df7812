"""Tables of the APIs of streams groups (KIP-1071)."""

from typing import Any

from streams.protocol.streams_group_messages import (
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
)
from streams.protocol.wire.fields import (
    BOOLEAN,
    ERROR,
    ERROR_MESSAGE,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    Api,
    Field,
    array,
    by_topic,
    struct,
)
from streams.protocol.wire.tables.session import NO_OPERATIONS, THROTTLE


def _tasks(name: str, **settings: Any) -> Field:
    return array(name, Field("subtopology_id", STRING), array("partitions", INT32), **settings)


def _topics(name: str) -> Field:
    """Return the array of a sub-topology's internal topics of one kind."""
    return array(
        name,
        Field("name", STRING),
        Field("partitions", INT32),
        Field("replication_factor", INT16),
        array("topic_configs", Field("key", STRING), Field("value", STRING), attribute="configs"),
    )


def _offsets(name: str, **settings: Any) -> Field:
    return array(name, Field("subtopology_id", STRING), Field("partition", INT32), Field("offset", INT64), **settings)


#: An endpoint for interactive queries.
ENDPOINT = (Field("host", STRING), Field("port", UINT16))
_TAG = (Field("key", STRING), Field("value", STRING))
#: A topology, as in the heartbeat of a member and in the record of a group's topology.
TOPOLOGY = (
    Field("epoch", INT32),
    array(
        "subtopologies",
        Field("subtopology_id", STRING),
        array("source_topics", STRING),
        array("source_topic_regex", STRING),
        _topics("state_changelog_topics"),
        array("repartition_sink_topics", STRING),
        _topics("repartition_source_topics"),
        array(
            "copartition_groups",
            array("source_topics", INT16),
            array("source_topic_regex", INT16),
            array("repartition_source_topics", INT16),
        ),
    ),
)

STREAMS_GROUP_HEARTBEAT = Api(88, StreamsGroupHeartbeat, (0, 1), flexible=0).with_fields(
    (
        Field("group_id", STRING),
        Field("member_id", STRING),
        Field("member_epoch", INT32),
        Field("endpoint_information_epoch", INT32),
        Field("instance_id", STRING, nullable=0, default=None, attribute="group_instance_id"),
        Field("rack_id", STRING, nullable=0, default=None),
        Field("rebalance_timeout_ms", INT32, default=-1),
        struct("topology", *TOPOLOGY, nullable=0, default=None),
        _tasks("active_tasks", nullable=0, default=None),
        _tasks("standby_tasks", nullable=0, default=None),
        _tasks("warmup_tasks", nullable=0, default=None),
        Field("process_id", STRING, nullable=0, default=None),
        struct("user_endpoint", *ENDPOINT, nullable=0, default=None),
        array("client_tags", *_TAG, nullable=0, default=None),
        _offsets("task_offsets", nullable=0, default=None),
        _offsets("task_end_offsets", nullable=0, default=None),
        Field("shutdown_application", BOOLEAN, default=False),
    ),
    (
        THROTTLE,
        ERROR,
        ERROR_MESSAGE,
        Field("member_id", STRING),
        Field("member_epoch", INT32),
        Field("heartbeat_interval_ms", INT32),
        # The lag in version 0, which no client reads any more.
        Field("acceptable_recovery_lag_legacy", INT32, until=0, default=0, is_ignorable=True),
        Field("task_offset_interval_ms", INT32),
        Field("acceptable_recovery_lag", INT64, since=1, default=-1, is_ignorable=True),
        array(
            "status",
            Field("status_code", INT8, attribute="code"),
            Field("status_detail", STRING, attribute="detail"),
            nullable=0,
            default=None,
        ),
        _tasks("active_tasks", nullable=0, default=None),
        _tasks("standby_tasks", nullable=0, default=None),
        _tasks("warmup_tasks", nullable=0, default=None),
        # Members here do not describe their topology to brokers (KIP-1331).
        Field("topology_description_required", BOOLEAN, since=1, default=False, is_ignorable=True),
        Field("endpoint_information_epoch", INT32),
        array(
            "partitions_by_user_endpoint",
            struct("user_endpoint", *ENDPOINT),
            by_topic("active_partitions", INT32, topic="topic"),
            by_topic("standby_partitions", INT32, topic="topic"),
            nullable=0,
            default=None,
        ),
    ),
)


def _assignment(name: str) -> Field:
    return struct(name, _tasks("active_tasks"), _tasks("standby_tasks"), _tasks("warmup_tasks"))


# The description of a topology (KIP-1331), which no message here has.
_NODE = (
    Field("name", STRING),
    Field("node_type", INT8),
    array("source_topics", STRING),
    Field("sink_topic", STRING, nullable=0, default=None),
    array("stores", STRING),
    array("successors", STRING),
)
_DESCRIPTION = (
    array("subtopologies", Field("subtopology_id", STRING), array("nodes", *_NODE)),
    array("global_stores", struct("source", *_NODE), struct("processor", *_NODE)),
)

#: One group of the StreamsGroupDescribe response.
DESCRIBED_STREAMS_GROUP = (
    ERROR,
    ERROR_MESSAGE,
    Field("group_id", STRING),
    Field("group_state", STRING, attribute="state"),
    Field("group_epoch", INT32),
    Field("assignment_epoch", INT32),
    struct(
        "topology",
        Field("epoch", INT32),
        array(
            "subtopologies",
            Field("subtopology_id", STRING),
            array("source_topics", STRING),
            array("repartition_sink_topics", STRING),
            _topics("state_changelog_topics"),
            _topics("repartition_source_topics"),
            nullable=0,
            default=None,
        ),
        nullable=0,
        default=None,
    ),
    array(
        "members",
        Field("member_id", STRING),
        Field("member_epoch", INT32),
        Field("instance_id", STRING, nullable=0, default=None, attribute="group_instance_id"),
        Field("rack_id", STRING, nullable=0, default=None),
        Field("client_id", STRING),
        Field("client_host", STRING),
        Field("topology_epoch", INT32),
        Field("process_id", STRING),
        struct("user_endpoint", *ENDPOINT, nullable=0, default=None),
        array("client_tags", *_TAG),
        _offsets("task_offsets"),
        _offsets("task_end_offsets"),
        _assignment("assignment"),
        _assignment("target_assignment"),
        Field("is_classic", BOOLEAN, default=False),
    ),
    Field("authorized_operations", INT32, default=NO_OPERATIONS),
    struct("topology_description", *_DESCRIPTION, since=1, nullable=1, default=None, is_ignorable=True),
    Field("topology_description_status", INT8, since=1, default=0, is_ignorable=True),
    Field("assignor_name", STRING, since=1, nullable=1, default=None, is_ignorable=True),
)

STREAMS_GROUP_DESCRIBE = Api(89, StreamsGroupDescribe, (0, 1), flexible=0).with_fields(
    (
        array("group_ids", STRING),
        Field("include_authorized_operations", BOOLEAN, default=False),
        Field("include_topology_description", BOOLEAN, since=1, default=False, is_ignorable=True),
    ),
    (
        THROTTLE,
        array("groups", *DESCRIBED_STREAMS_GROUP),
    ),
)

APIS = (STREAMS_GROUP_HEARTBEAT, STREAMS_GROUP_DESCRIBE)
