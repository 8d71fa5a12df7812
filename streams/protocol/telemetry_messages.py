"""Requests and responses by which clients push their metrics to brokers (KIP-714).

Of the other packages, this module imports only ``core``, ``protocol.error_codes`` and ``protocol.request``.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from attrs import frozen

from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import RequestFor, Response

#: The client instance ID of a client that has none yet.
NO_INSTANCE_ID: Final = bytes(16)
#: The only name in ``requested_metrics`` if all metrics are subscribed to.
ALL_METRICS: Final = "*"


class ClientInformation(NamedTuple):
    """The client that sent a request, as the broker knows it.

    - ``client_id``: the setting of the client.
    - ``host``: its address as written in Java ("/127.0.0.1"), or "" for a client in the broker process.
    - ``port``: the port from which it has connected, or 0 for a client in the broker process.
    - ``software_name``, ``software_version``: what it has said with its first request (KIP-511), or "".
    """

    client_id: str = ""
    host: str = ""
    port: int = 0
    software_name: str = ""
    software_version: str = ""


#: A client of which nothing is known.
UNKNOWN_CLIENT: Final = ClientInformation()


@frozen
class GetTelemetrySubscriptions(RequestFor["GetTelemetrySubscriptionsResponse"]):
    """Request which metrics a client has to push.

    ``client_instance_id`` is ``NO_INSTANCE_ID`` in the first request of a client; the broker then gives it one.
    ``client`` is not sent: the broker fills it in.
    """

    client_instance_id: bytes = NO_INSTANCE_ID
    client: ClientInformation = UNKNOWN_CLIENT


@frozen
class GetTelemetrySubscriptionsResponse(Response):
    """Which metrics a client has to push, and how.

    - ``client_instance_id``: the ID of the client instance, 16 bytes.
    - ``subscription_id``: identifies these subscriptions; a push has to name it.
    - ``accepted_compression_types``: the numbers of the accepted codecs, in order of preference.
    - ``push_interval_ms``: the time between two pushes, in milliseconds.
    - ``telemetry_max_bytes``: the largest accepted size of the compressed metrics, in bytes.
    - ``delta_temporality``: whether sums are those since the last push; otherwise they are those since the start.
    - ``requested_metrics``: prefixes of metric names; if empty, no metrics are subscribed to, and if it is only
      ``ALL_METRICS``, all are.
    """

    error: ErrorCode
    client_instance_id: bytes = NO_INSTANCE_ID
    subscription_id: int = 0
    accepted_compression_types: Sequence[int] = ()
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: Sequence[str] = ()


@frozen
class PushTelemetry(RequestFor["PushTelemetryResponse"]):
    """Push metrics: ``metrics`` is OpenTelemetry's ``MetricsData``, compressed by the codec ``compression_type``.

    ``terminating`` is True in the last request of a client, which is closing.  ``client`` is not sent: the broker fills
    it in.
    """

    client_instance_id: bytes
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes
    client: ClientInformation = UNKNOWN_CLIENT


@frozen
class PushTelemetryResponse(Response):
    """The result of a push."""

    error: ErrorCode
