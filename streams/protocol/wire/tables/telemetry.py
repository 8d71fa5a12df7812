"""Tables of the APIs by which clients push their metrics (KIP-714)."""

from streams.protocol import telemetry_messages as messages
from streams.protocol.wire.fields import BOOLEAN, BYTES, ERROR, INT8, INT32, STRING, UUID, Api, Field, array
from streams.protocol.wire.tables.session import THROTTLE

GET_TELEMETRY_SUBSCRIPTIONS = Api(71, messages.GetTelemetrySubscriptions, (0, 0), flexible=0).with_fields(
    (Field("client_instance_id", UUID),),
    (
        THROTTLE,
        ERROR,
        Field("client_instance_id", UUID),
        Field("subscription_id", INT32),
        array("accepted_compression_types", INT8),
        Field("push_interval_ms", INT32),
        Field("telemetry_max_bytes", INT32),
        Field("delta_temporality", BOOLEAN),
        array("requested_metrics", STRING),
    ),
)

PUSH_TELEMETRY = Api(72, messages.PushTelemetry, (0, 0), flexible=0).with_fields(
    (
        Field("client_instance_id", UUID),
        Field("subscription_id", INT32),
        Field("terminating", BOOLEAN),
        Field("compression_type", INT8),
        Field("metrics", BYTES),
    ),
    (
        THROTTLE,
        ERROR,
    ),
)

TELEMETRY_APIS = (GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY)
