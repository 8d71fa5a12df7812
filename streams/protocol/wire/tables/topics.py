"""Tables of the APIs that administer topics and settings."""

from streams.protocol.admin_messages import (
    AlterConfigs,
    AlterConfigsResponse,
    DescribeConfigs,
    DescribeConfigsResponse,
    IncrementalAlterConfigs,
    IncrementalAlterConfigsResponse,
)
from streams.protocol.messages import (
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
)
from streams.protocol.wire.fields import BOOLEAN, INT8, INT16, INT32, STRING, UUID, Api, Field, array
from streams.protocol.wire.tables.session import THROTTLE

CREATE_TOPICS = Api(
    19,
    "CreateTopics",
    (2, 7),
    5,
    (
        array(
            "topics",
            Field("name", STRING),
            Field("num_partitions", INT32),
            Field("replication_factor", INT16),
            array(
                "assignments",
                Field("partition_index", INT32),
                array("broker_ids", INT32),
                default=(),
            ),
            array(
                "configs",
                Field("name", STRING),
                Field("value", STRING, nullable=0),
                default=(),
            ),
        ),
        Field("timeout_ms", INT32, default=60_000),
        Field("validate_only", BOOLEAN, default=False),
    ),
    (
        THROTTLE,
        array(
            "topics",
            Field("name", STRING),
            Field("topic_id", UUID, since=7, default=UUID.zero, is_ignorable=True),
            Field("error_code", INT16),
            Field("error_message", STRING, nullable=0, default=None),
            Field("topic_config_error_code", INT16, since=5, tag=0, default=0, is_ignorable=True),
            Field("num_partitions", INT32, since=5, default=-1, is_ignorable=True),
            Field("replication_factor", INT16, since=5, default=-1, is_ignorable=True),
            array(
                "configs",
                Field("name", STRING),
                Field("value", STRING, nullable=5),
                Field("read_only", BOOLEAN, default=False),
                Field("config_source", INT8, default=-1),
                Field("is_sensitive", BOOLEAN, default=False),
                since=5,
                nullable=5,
                default=None,
                is_ignorable=True,
            ),
        ),
    ),
    CreateTopics,
    CreateTopicsResponse,
    served=(2, 7),
)

DELETE_TOPICS = Api(
    20,
    "DeleteTopics",
    (1, 6),
    4,
    (
        array(
            "topics",
            Field("name", STRING, nullable=6, default=None),
            Field("topic_id", UUID, default=UUID.zero),
            since=6,
        ),
        array("topic_names", STRING, until=5),
        Field("timeout_ms", INT32),
    ),
    (
        THROTTLE,
        array(
            "responses",
            Field("name", STRING, nullable=6),
            Field("topic_id", UUID, since=6, default=UUID.zero, is_ignorable=True),
            Field("error_code", INT16),
            Field("error_message", STRING, since=5, nullable=5, default=None, is_ignorable=True),
        ),
    ),
    DeleteTopics,
    DeleteTopicsResponse,
    served=(1, 6),
)

CREATE_PARTITIONS = Api(
    37,
    "CreatePartitions",
    (0, 1),
    2,
    (
        array(
            "topics",
            Field("name", STRING),
            Field("count", INT32),
            array(
                "assignments",
                array("broker_ids", INT32),
                nullable=0,
                default=None,
            ),
            attribute="counts",
        ),
        Field("timeout_ms", INT32),
        Field("validate_only", BOOLEAN, default=False, attribute="is_trial"),
    ),
    (
        THROTTLE,
        array(
            "results",
            Field("name", STRING),
            Field("error_code", INT16),
            Field("error_message", STRING, nullable=0, default=None),
            attribute="errors",
        ),
    ),
    CreatePartitions,
    CreatePartitionsResponse,
    served=(0, 1),
)

DESCRIBE_CONFIGS = Api(
    32,
    "DescribeConfigs",
    (1, 3),
    4,
    (
        array(
            "resources",
            Field("resource_type", INT8),
            Field("resource_name", STRING),
            array("configuration_keys", STRING, nullable=0, default=None),
        ),
        Field("include_synonyms", BOOLEAN, default=False),
        Field("include_documentation", BOOLEAN, since=3, default=False),
    ),
    (
        THROTTLE,
        array(
            "results",
            Field("error_code", INT16),
            Field("error_message", STRING, nullable=0, default=None),
            Field("resource_type", INT8),
            Field("resource_name", STRING),
            array(
                "configs",
                Field("name", STRING),
                Field("value", STRING, nullable=0),
                Field("read_only", BOOLEAN, default=False),
                Field("config_source", INT8, default=-1),
                Field("is_sensitive", BOOLEAN, default=False),
                array(
                    "synonyms",
                    Field("name", STRING),
                    Field("value", STRING, nullable=0),
                    Field("source", INT8),
                    default=(),
                ),
                Field("config_type", INT8, since=3, default=0, is_ignorable=True),
                Field("documentation", STRING, since=3, nullable=0, default=None, is_ignorable=True),
                default=(),
            ),
        ),
    ),
    DescribeConfigs,
    DescribeConfigsResponse,
    served=(1, 3),
)

_ALTERED = (
    THROTTLE,
    array(
        "responses",
        Field("error_code", INT16),
        Field("error_message", STRING, nullable=0, default=None),
        Field("resource_type", INT8),
        Field("resource_name", STRING),
    ),
)

ALTER_CONFIGS = Api(
    33,
    "AlterConfigs",
    (0, 1),
    2,
    (
        array(
            "resources",
            Field("resource_type", INT8),
            Field("resource_name", STRING),
            array(
                "configs",
                Field("name", STRING),
                Field("value", STRING, nullable=0),
            ),
        ),
        Field("validate_only", BOOLEAN, default=False),
    ),
    _ALTERED,
    AlterConfigs,
    AlterConfigsResponse,
    served=(0, 1),
)

INCREMENTAL_ALTER_CONFIGS = Api(
    44,
    "IncrementalAlterConfigs",
    (0, 0),
    1,
    (
        array(
            "resources",
            Field("resource_type", INT8),
            Field("resource_name", STRING),
            array(
                "configs",
                Field("name", STRING),
                Field("config_operation", INT8),
                Field("value", STRING, nullable=0),
            ),
        ),
        Field("validate_only", BOOLEAN, default=False),
    ),
    _ALTERED,
    IncrementalAlterConfigs,
    IncrementalAlterConfigsResponse,
    served=(0, 0),
)

APIS = (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS)
