"""Tables of the operations APIs: log directories, reassignments, transactions, ACLs and quotas."""

from streams.protocol import operations_messages as messages
from streams.protocol.admin_messages import ListConfigResources
from streams.protocol.wire.fields import (
    BOOLEAN,
    ERROR,
    ERROR_MESSAGE,
    FLOAT64,
    INDEX,
    INT8,
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

_ERROR = (ERROR, ERROR_MESSAGE)

# --- partitions -------------------------------------------------------------------------

DESCRIBE_LOG_DIRS = Api(35, messages.DescribeLogDirs, (1, 4), flexible=2).with_fields(
    (by_topic("topics", INT32, topic="topic", nullable=0, attribute="partitions"),),
    (
        THROTTLE,
        Field("error_code", INT16, since=3, default=0, is_ignorable=True),
        array(
            "results",
            ERROR,
            Field("log_dir", STRING),
            by_topic(
                "topics",
                INDEX,
                Field("partition_size", INT64),
                Field("offset_lag", INT64),
                Field("is_future_key", BOOLEAN),
                attribute="partitions",
            ),
            Field("total_bytes", INT64, since=4, default=-1, is_ignorable=True),
            Field("usable_bytes", INT64, since=4, default=-1, is_ignorable=True),
        ),
    ),
)

ELECT_LEADERS = Api(43, messages.ElectLeaders, (0, 2), flexible=2).with_fields(
    (
        Field("election_type", INT8, since=1, default=0),
        by_topic("topic_partitions", INT32, topic="topic", nullable=0, attribute="partitions"),
        Field("timeout_ms", INT32, default=60_000),
    ),
    (
        THROTTLE,
        Field("error_code", INT16, since=1, default=0),
        by_topic(
            "replica_election_results",
            Field("partition_id", INT32),
            *_ERROR,
            topic="topic",
            partitions="partition_result",
            attribute="results",
        ),
    ),
)

ALTER_PARTITION_REASSIGNMENTS = Api(45, messages.AlterPartitionReassignments, (0, 0), flexible=0).with_fields(
    (
        Field("timeout_ms", INT32, default=60_000),
        by_topic("topics", INDEX, array("replicas", INT32, nullable=0, default=None), attribute="replicas"),
    ),
    (
        THROTTLE,
        *_ERROR,
        by_topic("responses", INDEX, *_ERROR, attribute="results"),
    ),
)

LIST_PARTITION_REASSIGNMENTS = Api(46, messages.ListPartitionReassignments, (0, 0), flexible=0).with_fields(
    (
        Field("timeout_ms", INT32, default=60_000),
        by_topic("topics", INT32, partitions="partition_indexes", nullable=0, default=None, attribute="partitions"),
    ),
    (
        THROTTLE,
        *_ERROR,
        by_topic(
            "topics",
            INDEX,
            array("replicas", INT32),
            array("adding_replicas", INT32),
            array("removing_replicas", INT32),
            attribute="reassignments",
        ),
    ),
)

# --- producers and transactions ---------------------------------------------------------

WRITE_TXN_MARKERS = Api(27, messages.WriteTxnMarkers, (1, 1), flexible=1).with_fields(
    (
        array(
            "markers",
            Field("producer_id", INT64),
            Field("producer_epoch", INT16),
            Field("transaction_result", BOOLEAN, attribute="is_commit"),
            by_topic("topics", INT32, partitions="partition_indexes", attribute="partitions"),
            Field("coordinator_epoch", INT32),
        ),
    ),
    (array("markers", Field("producer_id", INT64), by_topic("topics", INDEX, ERROR, attribute="errors")),),
)

DESCRIBE_PRODUCERS = Api(61, messages.DescribeProducers, (0, 0), flexible=0).with_fields(
    (by_topic("topics", INT32, partitions="partition_indexes", attribute="partitions"),),
    (
        THROTTLE,
        by_topic(
            "topics",
            INDEX,
            *_ERROR,
            array(
                "active_producers",
                Field("producer_id", INT64),
                Field("producer_epoch", INT32),
                Field("last_sequence", INT32, default=-1),
                Field("last_timestamp", INT64, default=-1),
                Field("coordinator_epoch", INT32),
                Field("current_txn_start_offset", INT64, default=-1),
            ),
            attribute="partitions",
        ),
    ),
)

DESCRIBE_TRANSACTIONS = Api(65, messages.DescribeTransactions, (0, 0), flexible=0).with_fields(
    (array("transactional_ids", STRING),),
    (
        THROTTLE,
        array(
            "transaction_states",
            ERROR,
            Field("transactional_id", STRING),
            Field("transaction_state", STRING),
            Field("transaction_timeout_ms", INT32),
            Field("transaction_start_time_ms", INT64),
            Field("producer_id", INT64),
            Field("producer_epoch", INT16),
            by_topic("topics", INT32, topic="topic", attribute="partitions"),
        ),
    ),
)

LIST_TRANSACTIONS = Api(66, messages.ListTransactions, (0, 1), flexible=0).with_fields(
    (
        array("state_filters", STRING),
        array("producer_id_filters", INT64),
        Field("duration_filter", INT64, since=1, default=-1),
    ),
    (
        THROTTLE,
        ERROR,
        array("unknown_state_filters", STRING),
        array(
            "transaction_states",
            Field("transactional_id", STRING),
            Field("producer_id", INT64),
            Field("transaction_state", STRING),
        ),
    ),
)

# --- access control and quotas ----------------------------------------------------------

_FILTER = (
    Field("resource_type_filter", INT8),
    Field("resource_name_filter", STRING, nullable=0),
    Field("pattern_type_filter", INT8, default=3),
    Field("principal_filter", STRING, nullable=0),
    Field("host_filter", STRING, nullable=0),
    Field("operation", INT8),
    Field("permission_type", INT8),
)
_RULE = (
    Field("principal", STRING),
    Field("host", STRING),
    Field("operation", INT8),
    Field("permission_type", INT8),
)

DESCRIBE_ACLS = Api(29, messages.DescribeAcls, (1, 3), flexible=2).with_fields(
    _FILTER,
    (
        THROTTLE,
        *_ERROR,
        array(
            "resources",
            Field("resource_type", INT8),
            Field("resource_name", STRING),
            Field("pattern_type", INT8, default=3),
            array("acls", *_RULE),
        ),
    ),
)

CREATE_ACLS = Api(30, messages.CreateAcls, (1, 3), flexible=2).with_fields(
    (
        array(
            "creations",
            Field("resource_type", INT8),
            Field("resource_name", STRING),
            Field("resource_pattern_type", INT8, default=3),
            *_RULE,
        ),
    ),
    (
        THROTTLE,
        array("results", *_ERROR),
    ),
)

DELETE_ACLS = Api(31, messages.DeleteAcls, (1, 3), flexible=2).with_fields(
    (array("filters", *_FILTER),),
    (
        THROTTLE,
        array(
            "filter_results",
            *_ERROR,
            array(
                "matching_acls",
                *_ERROR,
                Field("resource_type", INT8),
                Field("resource_name", STRING),
                Field("pattern_type", INT8, default=3),
                *_RULE,
            ),
        ),
    ),
)

DESCRIBE_CLIENT_QUOTAS = Api(48, messages.DescribeClientQuotas, (0, 1), flexible=1).with_fields(
    (
        array(
            "components", Field("entity_type", STRING), Field("match_type", INT8), Field("match", STRING, nullable=0)
        ),
        Field("strict", BOOLEAN),
    ),
    (
        THROTTLE,
        *_ERROR,
        array(
            "entries",
            array("entity", Field("entity_type", STRING), Field("entity_name", STRING, nullable=0)),
            array("values", Field("key", STRING), Field("value", FLOAT64)),
            nullable=0,
        ),
    ),
)

LIST_CONFIG_RESOURCES = Api(74, ListConfigResources, (0, 1), flexible=0).with_fields(
    (array("resource_types", INT8, since=1, default=()),),
    (
        THROTTLE,
        ERROR,
        array(
            "config_resources",
            Field("resource_name", STRING),
            Field("resource_type", INT8, since=1, default=16, is_ignorable=True),
        ),
    ),
)

APIS = (
    WRITE_TXN_MARKERS,
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    LIST_CONFIG_RESOURCES,
)
