"""Tables of headers, ApiVersions, SASL, and cluster and topic metadata."""

from streams.protocol import admin_messages as messages
from streams.protocol.messages import Metadata
from streams.protocol.wire.fields import (
    BOOLEAN,
    BYTES,
    CLASSIC_STRING,
    ERROR,
    ERROR_MESSAGE,
    INDEX,
    INT16,
    INT32,
    INT64,
    NEVER,
    STRING,
    UUID,
    Api,
    Field,
    Message,
    array,
)

#: The value of authorized operations that were not requested (KIP-430).
NO_OPERATIONS = -(2**31)

THROTTLE = Field("throttle_time_ms", INT32, default=0)

REQUEST_HEADER = Message(
    "RequestHeader",
    2,
    (
        Field("api_key", INT16),
        Field("api_version", INT16),
        Field("correlation_id", INT32),
        # The length of this field is never compact, so that a broker can read the header of an unknown version.
        Field("client_id", CLASSIC_STRING, since=1, nullable=1, default=None, is_ignorable=True),
    ),
)
RESPONSE_HEADER = Message("ResponseHeader", 1, (Field("correlation_id", INT32),))

API_VERSIONS = Api(18, messages.ApiVersions, (0, 3), flexible=3).with_fields(
    (
        Field("client_software_name", STRING, since=3, default="", is_ignorable=True),
        Field("client_software_version", STRING, since=3, default="", is_ignorable=True),
    ),
    (
        ERROR,
        array("api_keys", Field("api_key", INT16), Field("min_version", INT16), Field("max_version", INT16)),
        Field("throttle_time_ms", INT32, since=1, default=0, is_ignorable=True),
        array(
            "supported_features",
            Field("name", STRING),
            Field("min_version", INT16),
            Field("max_version", INT16),
            since=3,
            tag=0,
            is_ignorable=True,
        ),
        Field("finalized_features_epoch", INT64, since=3, tag=1, default=-1, is_ignorable=True),
        array(
            "finalized_features",
            Field("name", STRING),
            Field("max_version_level", INT16),
            Field("min_version_level", INT16),
            since=3,
            tag=2,
            is_ignorable=True,
        ),
        Field("zk_migration_ready", BOOLEAN, since=3, tag=3, default=False, is_ignorable=True),
    ),
)

SASL_HANDSHAKE = Api(17, messages.SaslHandshake, (0, 1), flexible=NEVER).with_fields(
    (Field("mechanism", STRING),),
    (
        ERROR,
        array("mechanisms", STRING),
    ),
)

SASL_AUTHENTICATE = Api(36, messages.SaslAuthenticate, (0, 1), flexible=2).with_fields(
    (Field("auth_bytes", BYTES),),
    (
        ERROR,
        Field("error_message", STRING, nullable=0),
        Field("auth_bytes", BYTES),
        Field("session_lifetime_ms", INT64, since=1, default=0, is_ignorable=True),
    ),
)

METADATA = Api(3, Metadata, (0, 12), flexible=9).with_fields(
    (
        array(
            "topics",
            Field("topic_id", UUID, since=10, default=UUID.zero, is_ignorable=True),
            Field("name", STRING, nullable=10),
            nullable=1,
        ),
        Field("allow_auto_topic_creation", BOOLEAN, since=4, default=True),
        Field("include_cluster_authorized_operations", BOOLEAN, since=8, until=10, default=False),
        Field("include_topic_authorized_operations", BOOLEAN, since=8, default=False),
    ),
    (
        Field("throttle_time_ms", INT32, since=3, default=0, is_ignorable=True),
        array(
            "brokers",
            Field("node_id", INT32),
            Field("host", STRING),
            Field("port", INT32),
            Field("rack", STRING, since=1, nullable=1, default=None, is_ignorable=True),
        ),
        Field("cluster_id", STRING, since=2, nullable=2, default=None, is_ignorable=True),
        Field("controller_id", INT32, since=1, default=-1, is_ignorable=True),
        array(
            "topics",
            ERROR,
            Field("name", STRING, nullable=12),
            Field("topic_id", UUID, since=10, default=UUID.zero, is_ignorable=True),
            Field("is_internal", BOOLEAN, since=1, default=False, is_ignorable=True),
            array(
                "partitions",
                ERROR,
                INDEX,
                Field("leader_id", INT32),
                Field("leader_epoch", INT32, since=7, default=-1, is_ignorable=True),
                array("replica_nodes", INT32),
                array("isr_nodes", INT32),
                array("offline_replicas", INT32, since=5, default=(), is_ignorable=True),
            ),
            Field("topic_authorized_operations", INT32, since=8, default=NO_OPERATIONS),
        ),
        Field("cluster_authorized_operations", INT32, since=8, until=10, default=NO_OPERATIONS),
    ),
)

DESCRIBE_CLUSTER = Api(60, messages.DescribeCluster, (0, 0), flexible=0).with_fields(
    (Field("include_cluster_authorized_operations", BOOLEAN, default=False),),
    (
        THROTTLE,
        ERROR,
        ERROR_MESSAGE,
        Field("cluster_id", STRING),
        Field("controller_id", INT32, default=-1),
        array(
            "brokers",
            Field("broker_id", INT32),
            Field("host", STRING),
            Field("port", INT32),
            Field("rack", STRING, nullable=0, default=None),
        ),
        Field("cluster_authorized_operations", INT32, default=NO_OPERATIONS),
    ),
)

APIS = (METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE, DESCRIBE_CLUSTER)
