"""Tables of the operations APIs: log directories, reassignments, transactions, ACLs and quotas."""

from streams.protocol.admin_messages import (
    ListConfigResources,
    ListConfigResourcesResponse,
)
from streams.protocol.operations_messages import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    CreateAcls,
    CreateAclsResponse,
    DeleteAcls,
    DeleteAclsResponse,
    DescribeAcls,
    DescribeAclsResponse,
    DescribeClientQuotas,
    DescribeClientQuotasResponse,
    DescribeLogDirs,
    DescribeLogDirsResponse,
    DescribeProducers,
    DescribeProducersResponse,
    DescribeTransactions,
    DescribeTransactionsResponse,
    ElectLeaders,
    ElectLeadersResponse,
    ListPartitionReassignments,
    ListPartitionReassignmentsResponse,
    ListTransactions,
    ListTransactionsResponse,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
)
from streams.protocol.wire.fields import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Api,
    Field,
    array,
)
from streams.protocol.wire.tables.session import THROTTLE

_ERROR = (Field("error_code", INT16), Field("error_message", STRING, nullable=0, default=None))

# --- partitions -------------------------------------------------------------------------

DESCRIBE_LOG_DIRS = Api(
    35,
    "DescribeLogDirs",
    (1, 4),
    2,
    (
        array(
            "topics",
            Field("topic", STRING),
            array("partitions", INT32),
            nullable=0,
            attribute="partitions",
        ),
    ),
    (
        THROTTLE,
        Field("error_code", INT16, since=3, default=0, is_ignorable=True),
        array(
            "results",
            Field("error_code", INT16),
            Field("log_dir", STRING),
            array(
                "topics",
                Field("name", STRING),
                array(
                    "partitions",
                    Field("partition_index", INT32),
                    Field("partition_size", INT64),
                    Field("offset_lag", INT64),
                    Field("is_future_key", BOOLEAN),
                ),
                attribute="partitions",
            ),
            Field("total_bytes", INT64, since=4, default=-1, is_ignorable=True),
            Field("usable_bytes", INT64, since=4, default=-1, is_ignorable=True),
        ),
    ),
    DescribeLogDirs,
    DescribeLogDirsResponse,
    served=(1, 4),
)

ELECT_LEADERS = Api(
    43,
    "ElectLeaders",
    (0, 2),
    2,
    (
        Field("election_type", INT8, since=1, default=0),
        array(
            "topic_partitions",
            Field("topic", STRING),
            array("partitions", INT32),
            nullable=0,
            attribute="partitions",
        ),
        Field("timeout_ms", INT32, default=60_000),
    ),
    (
        THROTTLE,
        Field("error_code", INT16, since=1, default=0),
        array(
            "replica_election_results",
            Field("topic", STRING),
            array("partition_result", Field("partition_id", INT32), *_ERROR),
            attribute="results",
        ),
    ),
    ElectLeaders,
    ElectLeadersResponse,
    served=(0, 2),
)

ALTER_PARTITION_REASSIGNMENTS = Api(
    45,
    "AlterPartitionReassignments",
    (0, 0),
    0,
    (
        Field("timeout_ms", INT32, default=60_000),
        array(
            "topics",
            Field("name", STRING),
            array(
                "partitions",
                Field("partition_index", INT32),
                array("replicas", INT32, nullable=0, default=None),
            ),
            attribute="replicas",
        ),
    ),
    (
        THROTTLE,
        *_ERROR,
        array(
            "responses",
            Field("name", STRING),
            array("partitions", Field("partition_index", INT32), *_ERROR),
            attribute="results",
        ),
    ),
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    served=(0, 0),
)

LIST_PARTITION_REASSIGNMENTS = Api(
    46,
    "ListPartitionReassignments",
    (0, 0),
    0,
    (
        Field("timeout_ms", INT32, default=60_000),
        array(
            "topics",
            Field("name", STRING),
            array("partition_indexes", INT32),
            nullable=0,
            default=None,
            attribute="partitions",
        ),
    ),
    (
        THROTTLE,
        *_ERROR,
        array(
            "topics",
            Field("name", STRING),
            array(
                "partitions",
                Field("partition_index", INT32),
                array("replicas", INT32),
                array("adding_replicas", INT32),
                array("removing_replicas", INT32),
            ),
            attribute="reassignments",
        ),
    ),
    ListPartitionReassignments,
    ListPartitionReassignmentsResponse,
    served=(0, 0),
)

# --- producers and transactions ---------------------------------------------------------

WRITE_TXN_MARKERS = Api(
    27,
    "WriteTxnMarkers",
    (1, 1),
    1,
    (
        array(
            "markers",
            Field("producer_id", INT64),
            Field("producer_epoch", INT16),
            Field("transaction_result", BOOLEAN, attribute="is_commit"),
            array(
                "topics",
                Field("name", STRING),
                array("partition_indexes", INT32),
                attribute="partitions",
            ),
            Field("coordinator_epoch", INT32),
        ),
    ),
    (
        array(
            "markers",
            Field("producer_id", INT64),
            array(
                "topics",
                Field("name", STRING),
                array("partitions", Field("partition_index", INT32), Field("error_code", INT16)),
                attribute="errors",
            ),
        ),
    ),
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
    served=(1, 1),
)

DESCRIBE_PRODUCERS = Api(
    61,
    "DescribeProducers",
    (0, 0),
    0,
    (
        array(
            "topics",
            Field("name", STRING),
            array("partition_indexes", INT32),
            attribute="partitions",
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
            ),
            attribute="partitions",
        ),
    ),
    DescribeProducers,
    DescribeProducersResponse,
    served=(0, 0),
)

DESCRIBE_TRANSACTIONS = Api(
    65,
    "DescribeTransactions",
    (0, 0),
    0,
    (array("transactional_ids", STRING),),
    (
        THROTTLE,
        array(
            "transaction_states",
            Field("error_code", INT16),
            Field("transactional_id", STRING),
            Field("transaction_state", STRING),
            Field("transaction_timeout_ms", INT32),
            Field("transaction_start_time_ms", INT64),
            Field("producer_id", INT64),
            Field("producer_epoch", INT16),
            array(
                "topics",
                Field("topic", STRING),
                array("partitions", INT32),
                attribute="partitions",
            ),
        ),
    ),
    DescribeTransactions,
    DescribeTransactionsResponse,
    served=(0, 0),
)

LIST_TRANSACTIONS = Api(
    66,
    "ListTransactions",
    (0, 1),
    0,
    (
        array("state_filters", STRING),
        array("producer_id_filters", INT64),
        Field("duration_filter", INT64, since=1, default=-1),
    ),
    (
        THROTTLE,
        Field("error_code", INT16),
        array("unknown_state_filters", STRING),
        array(
            "transaction_states",
            Field("transactional_id", STRING),
            Field("producer_id", INT64),
            Field("transaction_state", STRING),
        ),
    ),
    ListTransactions,
    ListTransactionsResponse,
    served=(0, 1),
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

DESCRIBE_ACLS = Api(
    29,
    "DescribeAcls",
    (1, 3),
    2,
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
    DescribeAcls,
    DescribeAclsResponse,
    served=(1, 3),
)

CREATE_ACLS = Api(
    30,
    "CreateAcls",
    (1, 3),
    2,
    (
        array(
            "creations",
            Field("resource_type", INT8),
            Field("resource_name", STRING),
            Field("resource_pattern_type", INT8, default=3),
            *_RULE,
        ),
    ),
    (THROTTLE, array("results", *_ERROR)),
    CreateAcls,
    CreateAclsResponse,
    served=(1, 3),
)

DELETE_ACLS = Api(
    31,
    "DeleteAcls",
    (1, 3),
    2,
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
    DeleteAcls,
    DeleteAclsResponse,
    served=(1, 3),
)

DESCRIBE_CLIENT_QUOTAS = Api(
    48,
    "DescribeClientQuotas",
    (0, 1),
    1,
    (
        array(
            "components",
            Field("entity_type", STRING),
            Field("match_type", INT8),
            Field("match", STRING, nullable=0),
        ),
        Field("strict", BOOLEAN),
    ),
    (
        THROTTLE,
        *_ERROR,
        array(
            "entries",
            array(
                "entity",
                Field("entity_type", STRING),
                Field("entity_name", STRING, nullable=0),
            ),
            array(
                "values",
                Field("key", STRING),
                Field("value", FLOAT64),
            ),
            nullable=0,
        ),
    ),
    DescribeClientQuotas,
    DescribeClientQuotasResponse,
    served=(0, 1),
)

LIST_CONFIG_RESOURCES = Api(
    74,
    "ListConfigResources",
    (0, 1),
    0,
    (array("resource_types", INT8, since=1, default=()),),
    (
        THROTTLE,
        Field("error_code", INT16),
        array(
            "config_resources",
            Field("resource_name", STRING),
            Field("resource_type", INT8, since=1, default=16, is_ignorable=True),
        ),
    ),
    ListConfigResources,
    ListConfigResourcesResponse,
    served=(0, 1),
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
