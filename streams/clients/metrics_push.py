"""Pushes the metrics of a client to the brokers that subscribe to them (KIP-714).

The network of the client drives it from ``poll``; it has no thread, so an idle client pushes when it polls again.
Nothing is sent before a broker has announced that it takes metrics, and nothing is recorded before it asks for some.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import define, field

from streams.core.client_settings import ClientSettings
from streams.core.clock import Clock
from streams.core.metrics import Metric
from streams.protocol.admin_messages import SOFTWARE, SOFTWARE_VERSION
from streams.protocol.compression import CODECS, compress
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import Request, Response
from streams.protocol.telemetry_messages import (
    ALL_METRICS,
    NO_INSTANCE_ID,
    ClientInformation,
    GetTelemetrySubscriptions,
    GetTelemetrySubscriptionsResponse,
    PushTelemetry,
    PushTelemetryResponse,
)
from streams.protocol.uuids import uuid_text

if TYPE_CHECKING:
    from streams.clients.metrics_data import MetricsEncoder

_LOGGER = logging.getLogger(__name__)

#: The push interval in milliseconds while the brokers name none.
_INTERVAL_MS: Final = 300_000
#: How often to look whether a connected broker takes metrics, in milliseconds.
_LOOK_MS: Final = 1_000
#: The first push comes after a share of the interval that the ID of the client decides, so that clients that start
#: together push at other times.
_FIRST_PUSH: Final = (0.5, 1.5)
#: What the brokers are asked for again at once, at the next interval, or never; any other error ends it too.
_AT_ONCE: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_AT_INTERVAL: Final = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})

#: Returns the current metrics of a client; called from the thread of the client.
MetricsSource: TypeAlias = Callable[[], Iterable[Metric]]


@define(eq=False)
class MetricsPush:
    """What one client pushes, and when.

    - ``open_source``: starts to record the metrics of the client, and returns their source; called once.  If None, the
      client has an ID and no metrics.
    - ``labels``: describes the client by the names of KIP-714, such as ``group_id``.
    """

    _client: ClientInformation
    _clock: Clock
    _labels: Callable[[], Mapping[str, str]]
    open_source: Callable[[], MetricsSource] | None = None
    #: The ID that a broker has given to this client, or None.
    instance_id: bytes | None = None
    #: Why nothing is pushed any more, or "".
    why_ended: str = ""
    #: Monotonic time of the next request.
    due_ms: int = 0
    is_in_flight: bool = False
    #: Metrics of others that are pushed together with those of the client (KIP-1076).
    others: list[MetricsSource] = field(factory=list)
    _subscription: GetTelemetrySubscriptionsResponse | None = None
    _interval_ms: int = _INTERVAL_MS
    _source: MetricsSource | None = None
    _encoder: "MetricsEncoder | None" = None

    @property
    def client_instance_id(self) -> str | None:
        """The ID of this client in Kafka's format, or None before a broker has given it one."""
        return None if self.instance_id is None else uuid_text(self.instance_id)

    @property
    def client_id(self) -> str:
        """The client ID of the client."""
        return self._client.client_id

    @property
    def awaits_id(self) -> bool:
        """Whether a broker may still give an ID to this client."""
        return self.instance_id is None and not self.why_ended

    @property
    def is_idle(self) -> bool:
        """Whether nothing becomes due: a request is in flight, or nothing is pushed any more."""
        return self.is_in_flight or bool(self.why_ended)

    def look_again(self, now_ms: int) -> None:
        """Note that no connected broker takes metrics."""
        self.due_ms = now_ms + _LOOK_MS

    def due(self) -> Request:
        """Return the request that is due."""
        self.is_in_flight = True
        if self._subscription is None:
            return GetTelemetrySubscriptions(self.instance_id or NO_INSTANCE_ID, self._client)
        return self._pushed(self._subscription, is_terminating=False)

    def last(self) -> Request | None:
        """Return the last push of a client that closes, or None if no broker subscribes to its metrics."""
        if self._subscription is None or self.why_ended:
            return None
        return self._pushed(self._subscription, is_terminating=True)

    def take(self, response: Response | Exception, now_ms: int) -> None:
        """Process the response or the error of the request that ``due`` has returned."""
        self.is_in_flight = False
        match response:
            case GetTelemetrySubscriptionsResponse(error=ErrorCode.NONE):
                self._subscribe(response, now_ms)
            case PushTelemetryResponse(error=ErrorCode.NONE):
                assert self._encoder is not None
                self._encoder.note_taken()
                self.due_ms = now_ms + self._interval_ms
            case GetTelemetrySubscriptionsResponse() | PushTelemetryResponse():
                self._fail(response.error, now_ms)
            case _:
                # The connection was lost, or there was no response: the client may reach another broker.
                self._subscription = None
                self.due_ms = now_ms + self._interval_ms

    def close(self) -> None:
        """End the push, because the client is closed."""
        self.why_ended = "the client is closed"

    def _subscribe(self, response: GetTelemetrySubscriptionsResponse, now_ms: int) -> None:
        self.instance_id = response.client_instance_id
        self._interval_ms = response.push_interval_ms if response.push_interval_ms > 0 else _INTERVAL_MS
        self.due_ms = now_ms + self._interval_ms
        if not response.requested_metrics or self.open_source is None:
            return  # There is nothing to push: ask again after the interval.
        if self._encoder is None and not self._open(self.open_source):
            return
        self._subscription = response
        self.due_ms = now_ms + round(self._interval_ms * Random(response.client_instance_id).uniform(*_FIRST_PUSH))

    def _open(self, open_source: Callable[[], MetricsSource]) -> bool:
        """Start to record; return whether the metrics can be encoded."""
        try:
            from streams.clients.metrics_data import MetricsEncoder
        except ImportError as error:
            self._end(f"the brokers ask for metrics, which needs OpenTelemetry ({error}): pip install 'streams[otel]'")
            return False
        self._source = open_source()
        self._encoder = MetricsEncoder(self._clock.now_ms(), self._labels)
        return True

    def _pushed(self, subscription: GetTelemetrySubscriptionsResponse, *, is_terminating: bool) -> PushTelemetry:
        assert self._encoder is not None
        assert self._source is not None
        metrics = self._encoder.encoded(
            (
                metric
                for source in (self._source, *self.others)
                for metric in source()
                if _is_wanted(metric.telemetry_name, subscription.requested_metrics)
            ),
            self._clock.now_ms(),
            is_delta=subscription.delta_temporality,
        )
        codec = next((number for number in subscription.accepted_compression_types if 0 <= number < len(CODECS)), 0)
        return PushTelemetry(
            subscription.client_instance_id,
            subscription.subscription_id,
            is_terminating,
            codec,
            compress(codec, metrics),
            self._client,
        )

    def _fail(self, error: ErrorCode, now_ms: int) -> None:
        self._subscription = None
        if error in _AT_ONCE:
            self.due_ms = now_ms
        elif error in _AT_INTERVAL:
            self.due_ms = now_ms + self._interval_ms
        else:
            self._end(f"the broker rejects them: {error.name}")

    def _end(self, reason: str) -> None:
        self.why_ended = reason
        _LOGGER.warning("client %s: metrics are not pushed: %s", self._client.client_id, reason)


def metrics_push(
    client_id: str,
    clock: Clock,
    settings: ClientSettings,
    labels: Callable[[], Mapping[str, str]] = dict,
    open_source: Callable[[], MetricsSource] | None = None,
) -> MetricsPush | None:
    """Return what pushes the metrics of a client, or None if its settings exclude that; see ``MetricsPush``."""
    if not settings.enable_metrics_push:
        return None
    client = ClientInformation(client_id, software_name=SOFTWARE, software_version=SOFTWARE_VERSION)
    return MetricsPush(client, clock, labels, open_source)


def _is_wanted(name: str, requested: Sequence[str]) -> bool:
    return ALL_METRICS in requested or any(map(name.startswith, requested))
