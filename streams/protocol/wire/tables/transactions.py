"""Tables of the APIs for idempotent producers and transactions (KIP-98, KIP-447)."""

from streams.protocol.messages import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from streams.protocol.wire.fields import BOOLEAN, INT16, INT32, INT64, STRING, Api, Field, array
from streams.protocol.wire.tables.session import THROTTLE

INIT_PRODUCER_ID = Api(
    22,
    "InitProducerId",
    (0, 4),
    2,
    (
        Field("transactional_id", STRING, nullable=0),
        Field("transaction_timeout_ms", INT32),
        Field("producer_id", INT64, since=3, default=-1),
        Field("producer_epoch", INT16, since=3, default=-1),
    ),
    (
        THROTTLE,
        Field("error_code", INT16),
        Field("producer_id", INT64, default=-1),
        Field("producer_epoch", INT16),
    ),
    InitProducerId,
    InitProducerIdResponse,
    served=(0, 4),
)

ADD_PARTITIONS_TO_TXN = Api(
    24,
    "AddPartitionsToTxn",
    (0, 2),
    3,
    (
        Field("transactional_id", STRING),
        Field("producer_id", INT64),
        Field("producer_epoch", INT16),
        array(
            "topics",
            Field("name", STRING),
            array("partitions", INT32),
            attribute="partitions",
        ),
    ),
    (
        THROTTLE,
        array(
            "results",
            Field("name", STRING),
            array(
                "results_by_partition",
                Field("partition_index", INT32),
                Field("partition_error_code", INT16),
            ),
            attribute="errors",
        ),
    ),
    AddPartitionsToTxn,
    AddPartitionsToTxnResponse,
    served=(0, 2),
)

ADD_OFFSETS_TO_TXN = Api(
    25,
    "AddOffsetsToTxn",
    (0, 2),
    3,
    (
        Field("transactional_id", STRING),
        Field("producer_id", INT64),
        Field("producer_epoch", INT16),
        Field("group_id", STRING),
    ),
    (
        THROTTLE,
        Field("error_code", INT16),
    ),
    AddOffsetsToTxn,
    AddOffsetsToTxnResponse,
    served=(0, 2),
)

END_TXN = Api(
    26,
    "EndTxn",
    (0, 2),
    3,
    (
        Field("transactional_id", STRING),
        Field("producer_id", INT64),
        Field("producer_epoch", INT16),
        Field("committed", BOOLEAN, attribute="is_commit"),
    ),
    (
        THROTTLE,
        Field("error_code", INT16),
    ),
    EndTxn,
    EndTxnResponse,
    served=(0, 2),
)

TXN_OFFSET_COMMIT = Api(
    28,
    "TxnOffsetCommit",
    (0, 3),
    3,
    (
        Field("transactional_id", STRING),
        Field("group_id", STRING),
        Field("producer_id", INT64),
        Field("producer_epoch", INT16),
        Field("generation_id", INT32, since=3, default=-1),
        Field("member_id", STRING, since=3, default=""),
        Field("group_instance_id", STRING, since=3, nullable=3, default=None),
        array(
            "topics",
            Field("name", STRING),
            array(
                "partitions",
                Field("partition_index", INT32),
                Field("committed_offset", INT64, attribute="offset"),
                Field(
                    "committed_leader_epoch", INT32, since=2, default=-1, is_ignorable=True, attribute="leader_epoch"
                ),
                Field("committed_metadata", STRING, nullable=0, attribute="metadata"),
            ),
            attribute="offsets",
        ),
    ),
    (
        THROTTLE,
        array(
            "topics",
            Field("name", STRING),
            array(
                "partitions",
                Field("partition_index", INT32),
                Field("error_code", INT16),
            ),
            attribute="errors",
        ),
    ),
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
    served=(0, 3),
)

APIS = (INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT)
