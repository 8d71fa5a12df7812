"""Tables of the APIs that administer topics and settings."""

from streams.protocol import admin_messages, messages
from streams.protocol.wire.fields import (
    BOOLEAN,
    ERROR,
    ERROR_MESSAGE,
    INDEX,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    Api,
    Field,
    array,
)
from streams.protocol.wire.tables.session import THROTTLE

_RESOURCE = (Field("resource_type", INT8), Field("resource_name", STRING))
_SETTING = (Field("name", STRING), Field("value", STRING, nullable=0))

CREATE_TOPICS = Api(19, messages.CreateTopics, (2, 7), flexible=5).with_fields(
    (
        array(
            "topics",
            Field("name", STRING),
            Field("num_partitions", INT32),
            Field("replication_factor", INT16),
            array("assignments", INDEX, array("broker_ids", INT32), default=()),
            array("configs", *_SETTING, default=()),
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
            ERROR,
            ERROR_MESSAGE,
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
)

DELETE_TOPICS = Api(20, messages.DeleteTopics, (1, 6), flexible=4).with_fields(
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
            ERROR,
            Field("error_message", STRING, since=5, nullable=5, default=None, is_ignorable=True),
        ),
    ),
)

CREATE_PARTITIONS = Api(37, messages.CreatePartitions, (0, 1), flexible=2).with_fields(
    (
        array(
            "topics",
            Field("name", STRING),
            Field("count", INT32),
            array("assignments", array("broker_ids", INT32), nullable=0, default=None),
            attribute="counts",
        ),
        Field("timeout_ms", INT32),
        Field("validate_only", BOOLEAN, default=False, attribute="is_trial"),
    ),
    (
        THROTTLE,
        array("results", Field("name", STRING), ERROR, ERROR_MESSAGE, attribute="errors"),
    ),
)

DESCRIBE_CONFIGS = Api(32, admin_messages.DescribeConfigs, (1, 3), flexible=4).with_fields(
    (
        array(
            "resources",
            *_RESOURCE,
            array("configuration_keys", STRING, nullable=0, default=None),
        ),
        Field("include_synonyms", BOOLEAN, default=False),
        Field("include_documentation", BOOLEAN, since=3, default=False),
    ),
    (
        THROTTLE,
        array(
            "results",
            ERROR,
            ERROR_MESSAGE,
            *_RESOURCE,
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
)

_ALTERED = (
    THROTTLE,
    array(
        "responses",
        ERROR,
        ERROR_MESSAGE,
        *_RESOURCE,
    ),
)

ALTER_CONFIGS = Api(33, admin_messages.AlterConfigs, (0, 1), flexible=2).with_fields(
    (
        array(
            "resources",
            *_RESOURCE,
            array("configs", *_SETTING),
        ),
        Field("validate_only", BOOLEAN, default=False),
    ),
    _ALTERED,
)

INCREMENTAL_ALTER_CONFIGS = Api(44, admin_messages.IncrementalAlterConfigs, (0, 0), flexible=1).with_fields(
    (
        array(
            "resources",
            *_RESOURCE,
            array(
                "configs", Field("name", STRING), Field("config_operation", INT8), Field("value", STRING, nullable=0)
            ),
        ),
        Field("validate_only", BOOLEAN, default=False),
    ),
    _ALTERED,
)

APIS = (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS)
