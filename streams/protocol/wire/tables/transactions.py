"""Tables of the APIs for idempotent producers and transactions (KIP-98, KIP-447)."""

from streams.protocol import messages
from streams.protocol.wire.fields import (
    BOOLEAN,
    ERROR,
    INDEX,
    INT16,
    INT32,
    INT64,
    STRING,
    Api,
    Field,
    array,
    by_topic,
)
from streams.protocol.wire.tables.session import THROTTLE

_TRANSACTION = (Field("transactional_id", STRING), Field("producer_id", INT64), Field("producer_epoch", INT16))

INIT_PRODUCER_ID = Api(22, messages.InitProducerId, (0, 4), flexible=2).with_fields(
    (
        Field("transactional_id", STRING, nullable=0),
        Field("transaction_timeout_ms", INT32),
        Field("producer_id", INT64, since=3, default=-1),
        Field("producer_epoch", INT16, since=3, default=-1),
    ),
    (
        THROTTLE,
        ERROR,
        Field("producer_id", INT64, default=-1),
        Field("producer_epoch", INT16),
    ),
)

ADD_PARTITIONS_TO_TXN = Api(24, messages.AddPartitionsToTxn, (0, 2), flexible=3).with_fields(
    (
        *_TRANSACTION,
        by_topic("topics", INT32, attribute="partitions"),
    ),
    (
        THROTTLE,
        array(
            "results",
            Field("name", STRING),
            array("results_by_partition", INDEX, Field("partition_error_code", INT16)),
            attribute="errors",
        ),
    ),
)

ADD_OFFSETS_TO_TXN = Api(25, messages.AddOffsetsToTxn, (0, 2), flexible=3).with_fields(
    (
        *_TRANSACTION,
        Field("group_id", STRING),
    ),
    (
        THROTTLE,
        ERROR,
    ),
)

END_TXN = Api(26, messages.EndTxn, (0, 5), flexible=3).with_fields(
    (
        *_TRANSACTION,
        Field("committed", BOOLEAN, attribute="is_commit"),
    ),
    (
        THROTTLE,
        ERROR,
        Field("producer_id", INT64, since=5, default=-1, is_ignorable=True),
        Field("producer_epoch", INT16, since=5, default=-1, is_ignorable=True),
    ),
)

TXN_OFFSET_COMMIT = Api(28, messages.TxnOffsetCommit, (0, 5), flexible=3).with_fields(
    (
        Field("transactional_id", STRING),
        Field("group_id", STRING),
        Field("producer_id", INT64),
        Field("producer_epoch", INT16),
        Field("generation_id", INT32, since=3, default=-1),
        Field("member_id", STRING, since=3, default=""),
        Field("group_instance_id", STRING, since=3, nullable=3, default=None),
        by_topic(
            "topics",
            INDEX,
            Field("committed_offset", INT64, attribute="offset"),
            Field("committed_leader_epoch", INT32, since=2, default=-1, is_ignorable=True, attribute="leader_epoch"),
            Field("committed_metadata", STRING, nullable=0, attribute="metadata"),
            attribute="offsets",
        ),
    ),
    (
        THROTTLE,
        by_topic("topics", INDEX, ERROR, attribute="errors"),
    ),
)

APIS = (INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT)
