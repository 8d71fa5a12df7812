"""Tables of the record and offset APIs: Produce, Fetch, ListOffsets and others."""

from streams.protocol import messages
from streams.protocol.admin_messages import OffsetForLeaderEpoch
from streams.protocol.wire.fields import (
    ERROR,
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
from streams.protocol.wire.tables.session import THROTTLE

_LEADER = (Field("leader_id", INT32, default=-1), Field("leader_epoch", INT32, default=-1))

PRODUCE = Api(0, messages.Produce, (3, 12), flexible=9).with_fields(
    (
        Field("transactional_id", STRING, nullable=3, default=None),
        Field("acks", INT16),
        Field("timeout_ms", INT32),
        by_topic(
            "topic_data", Field("index", INT32), Field("records", RECORDS, nullable=0), partitions="partition_data"
        ),
    ),
    (
        by_topic(
            "responses",
            Field("index", INT32),
            ERROR,
            Field("base_offset", INT64),
            Field("log_append_time_ms", INT64, default=-1),
            Field("log_start_offset", INT64, since=5, default=-1, is_ignorable=True),
            array(
                "record_errors",
                Field("batch_index", INT32),
                Field("batch_index_error_message", STRING, nullable=8, default=None),
                since=8,
                default=(),
                is_ignorable=True,
            ),
            Field("error_message", STRING, since=8, nullable=8, default=None, is_ignorable=True),
            struct("current_leader", *_LEADER, since=10, tag=0, is_ignorable=True),
            partitions="partition_responses",
            attribute="partitions",
        ),
        THROTTLE,
        array(
            "node_endpoints",
            Field("node_id", INT32),
            Field("host", STRING),
            Field("port", INT32),
            Field("rack", STRING, nullable=10, default=None),
            since=10,
            tag=0,
            default=(),
            is_ignorable=True,
        ),
    ),
)

FETCH = Api(1, messages.Fetch, (4, 13), flexible=12, served=(4, 11)).with_fields(
    (
        Field("cluster_id", STRING, since=12, nullable=12, default=None, tag=0, is_ignorable=True),
        Field("replica_id", INT32, default=-1),
        Field("max_wait_ms", INT32),
        Field("min_bytes", INT32),
        Field("max_bytes", INT32, default=0x7FFF_FFFF),
        Field("isolation_level", INT8, default=0),
        Field("session_id", INT32, since=7, default=0, is_ignorable=True),
        Field("session_epoch", INT32, since=7, default=-1, is_ignorable=True),
        array(
            "topics",
            Field("topic", STRING, until=12, is_ignorable=True),
            Field("topic_id", UUID, since=13, is_ignorable=True),
            array(
                "partitions",
                Field("partition", INT32),
                Field("current_leader_epoch", INT32, since=9, default=-1, is_ignorable=True),
                Field("fetch_offset", INT64),
                Field("last_fetched_epoch", INT32, since=12, default=-1),
                Field("log_start_offset", INT64, since=5, default=-1, is_ignorable=True),
                Field("partition_max_bytes", INT32),
            ),
        ),
        array(
            "forgotten_topics_data",
            Field("topic", STRING, until=12, is_ignorable=True),
            Field("topic_id", UUID, since=13, is_ignorable=True),
            array("partitions", INT32),
            since=7,
            default=(),
        ),
        Field("rack_id", STRING, since=11, default="", is_ignorable=True),
    ),
    (
        THROTTLE,
        Field("error_code", INT16, since=7, default=0, is_ignorable=True),
        Field("session_id", INT32, since=7, default=0),
        array(
            "responses",
            Field("topic", STRING, until=12, is_ignorable=True),
            Field("topic_id", UUID, since=13, is_ignorable=True),
            array(
                "partitions",
                INDEX,
                ERROR,
                Field("high_watermark", INT64),
                Field("last_stable_offset", INT64, default=-1),
                Field("log_start_offset", INT64, since=5, default=-1, is_ignorable=True),
                struct(
                    "diverging_epoch",
                    Field("epoch", INT32, default=-1),
                    Field("end_offset", INT64, default=-1),
                    since=12,
                    tag=0,
                ),
                struct("current_leader", *_LEADER, since=12, tag=1),
                struct(
                    "snapshot_id",
                    Field("end_offset", INT64, default=-1),
                    Field("epoch", INT32, default=-1),
                    since=12,
                    tag=2,
                ),
                array(
                    "aborted_transactions",
                    Field("producer_id", INT64),
                    Field("first_offset", INT64),
                    nullable=4,
                    default=None,
                ),
                Field("preferred_read_replica", INT32, since=11, default=-1),
                Field("records", RECORDS, nullable=0),
            ),
        ),
    ),
)

LIST_OFFSETS = Api(2, messages.ListOffsets, (1, 9), flexible=6).with_fields(
    (
        Field("replica_id", INT32, default=-1),
        Field("isolation_level", INT8, since=2, default=0),
        by_topic(
            "topics",
            INDEX,
            Field("current_leader_epoch", INT32, since=4, default=-1, is_ignorable=True),
            Field("timestamp", INT64),
            attribute="timestamps",
        ),
    ),
    (
        Field("throttle_time_ms", INT32, since=2, default=0, is_ignorable=True),
        by_topic(
            "topics",
            INDEX,
            ERROR,
            Field("timestamp", INT64, default=-1),
            Field("offset", INT64, default=-1),
            Field("leader_epoch", INT32, since=4, default=-1, is_ignorable=True),
            attribute="partitions",
        ),
    ),
)

DELETE_RECORDS = Api(21, messages.DeleteRecords, (0, 1), flexible=2).with_fields(
    (
        by_topic("topics", INDEX, Field("offset", INT64), attribute="offsets"),
        Field("timeout_ms", INT32),
    ),
    (
        THROTTLE,
        by_topic("topics", INDEX, Field("low_watermark", INT64), ERROR, attribute="partitions"),
    ),
)

OFFSET_FOR_LEADER_EPOCH = Api(23, OffsetForLeaderEpoch, (2, 3), flexible=4).with_fields(
    (
        Field("replica_id", INT32, since=3, default=-2, is_ignorable=True),
        by_topic(
            "topics",
            Field("partition", INT32),
            Field("current_leader_epoch", INT32, default=-1),
            Field("leader_epoch", INT32),
            topic="topic",
            attribute="partitions",
        ),
    ),
    (
        THROTTLE,
        by_topic(
            "topics",
            ERROR,
            Field("partition", INT32),
            Field("leader_epoch", INT32, default=-1),
            Field("end_offset", INT64, default=-1),
            topic="topic",
            attribute="partitions",
        ),
    ),
)

APIS = (PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH)
