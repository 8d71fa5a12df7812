"""Tables of the record and offset APIs: Produce, Fetch, ListOffsets and others."""

from streams.protocol.admin_messages import (
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
)
from streams.protocol.messages import (
    DeleteRecords,
    DeleteRecordsResponse,
    Fetch,
    FetchResponse,
    ListOffsets,
    ListOffsetsResponse,
    Produce,
    ProduceResponse,
)
from streams.protocol.wire.fields import (
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
    struct,
)
from streams.protocol.wire.tables.session import THROTTLE

PRODUCE = Api(
    0,
    "Produce",
    (3, 9),
    9,
    (
        Field("transactional_id", STRING, nullable=3, default=None),
        Field("acks", INT16),
        Field("timeout_ms", INT32),
        array(
            "topic_data",
            Field("name", STRING),
            array(
                "partition_data",
                Field("index", INT32),
                Field("records", RECORDS, nullable=0),
            ),
        ),
    ),
    (
        array(
            "responses",
            Field("name", STRING),
            array(
                "partition_responses",
                Field("index", INT32),
                Field("error_code", INT16),
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
            ),
        ),
        THROTTLE,
    ),
    Produce,
    ProduceResponse,
    served=(3, 8),
)

FETCH = Api(
    1,
    "Fetch",
    (4, 13),
    12,
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
                Field("partition_index", INT32),
                Field("error_code", INT16),
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
                struct(
                    "current_leader",
                    Field("leader_id", INT32, default=-1),
                    Field("leader_epoch", INT32, default=-1),
                    since=12,
                    tag=1,
                ),
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
    Fetch,
    FetchResponse,
    served=(4, 11),
)

LIST_OFFSETS = Api(
    2,
    "ListOffsets",
    (1, 9),
    6,
    (
        Field("replica_id", INT32, default=-1),
        Field("isolation_level", INT8, since=2, default=0),
        array(
            "topics",
            Field("name", STRING),
            array(
                "partitions",
                Field("partition_index", INT32),
                Field("current_leader_epoch", INT32, since=4, default=-1, is_ignorable=True),
                Field("timestamp", INT64),
            ),
            attribute="timestamps",
        ),
    ),
    (
        Field("throttle_time_ms", INT32, since=2, default=0, is_ignorable=True),
        array(
            "topics",
            Field("name", STRING),
            array(
                "partitions",
                Field("partition_index", INT32),
                Field("error_code", INT16),
                Field("timestamp", INT64, default=-1),
                Field("offset", INT64, default=-1),
                Field("leader_epoch", INT32, since=4, default=-1, is_ignorable=True),
            ),
            attribute="partitions",
        ),
    ),
    ListOffsets,
    ListOffsetsResponse,
    served=(1, 9),
)

DELETE_RECORDS = Api(
    21,
    "DeleteRecords",
    (0, 1),
    2,
    (
        array(
            "topics",
            Field("name", STRING),
            array(
                "partitions",
                Field("partition_index", INT32),
                Field("offset", INT64),
            ),
            attribute="offsets",
        ),
        Field("timeout_ms", INT32),
    ),
    (
        THROTTLE,
        array(
            "topics",
            Field("name", STRING),
            array(
                "partitions",
                Field("partition_index", INT32),
                Field("low_watermark", INT64),
                Field("error_code", INT16),
            ),
            attribute="partitions",
        ),
    ),
    DeleteRecords,
    DeleteRecordsResponse,
    served=(0, 1),
)

OFFSET_FOR_LEADER_EPOCH = Api(
    23,
    "OffsetForLeaderEpoch",
    (2, 3),
    4,
    (
        Field("replica_id", INT32, since=3, default=-2, is_ignorable=True),
        array(
            "topics",
            Field("topic", STRING),
            array(
                "partitions",
                Field("partition", INT32),
                Field("current_leader_epoch", INT32, default=-1),
                Field("leader_epoch", INT32),
            ),
            attribute="partitions",
        ),
    ),
    (
        THROTTLE,
        array(
            "topics",
            Field("topic", STRING),
            array(
                "partitions",
                Field("error_code", INT16),
                Field("partition", INT32),
                Field("leader_epoch", INT32, default=-1),
                Field("end_offset", INT64, default=-1),
            ),
            attribute="partitions",
        ),
    ),
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResponse,
    served=(2, 3),
)

APIS = (PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH)
