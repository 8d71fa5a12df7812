"""Receivers of the metrics that clients push to a broker (KIP-714): a file of JSON lines, and an OTLP collector.

Needs the extra ``otel``.  What the broker knows of a client is added as attributes of the resource, as KIP-714 says.
"""

import json
import logging
import queue
from collections.abc import Callable
from typing import IO, Any, Final
from urllib.error import URLError
from urllib.request import Request, urlopen

from attrs import define, field

from streams.broker import PushedMetrics
from streams.core.clock import Clock, SystemClock
from streams.core.errors import ConfigError, StreamsError
from streams.core.threads import SystemThreads, Worker

try:
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
except ImportError as error:
    raise ConfigError(f"metrics of clients need OpenTelemetry ({error}): pip install 'streams[otel]'") from None

_LOGGER = logging.getLogger(__name__)

#: Pushes that wait to be sent to the collector.
_QUEUED: Final = 1_000
_TIMEOUT_S: Final = 10.0


def with_attributes(pushed: PushedMetrics) -> MetricsData:
    """Return the pushed metrics; their resources have what the broker knows of the client.

    Raises:
        google.protobuf.message.DecodeError: the client has not sent ``MetricsData``.
    """
    client = pushed.client
    known = {
        "client_instance_id": pushed.client_instance_id,
        "client_id": client.client_id,
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": client.host.removeprefix("/"),
        "client_source_port": str(client.port),
    }
    data = MetricsData()
    data.ParseFromString(pushed.metrics)
    for of_client in data.resource_metrics:
        of_client.resource.attributes.extend(
            KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in known.items()
        )
    return data


@define(eq=False)
class MetricsLines:
    """Writes each push as a line of JSON: the time, and OpenTelemetry's ``MetricsData`` in its JSON form."""

    _file: IO[str]
    _clock: Clock = field(factory=SystemClock)

    def __call__(self, pushed: PushedMetrics) -> None:
        """Write a push, and flush."""
        row: dict[str, Any] = {"time_ms": self._clock.now_ms(), "is_terminating": pushed.is_terminating}
        self._file.write(json.dumps(row | MessageToDict(with_attributes(pushed))) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Do nothing: the file is the caller's."""


def _post(url: str, body: bytes) -> None:
    request = Request(url, body, {"Content-Type": "application/x-protobuf"})
    with urlopen(request, timeout=_TIMEOUT_S):
        pass


@define(eq=False)
class CollectorForward:
    """Sends each push to an OTLP collector, on a thread of its own.

    ``endpoint`` is the base URL of the collector, such as ``http://localhost:4318``.  A push that the collector does
    not take is logged and lost; its client pushes newer ones.
    """

    endpoint: str
    _send: Callable[[str, bytes], None] = _post
    _waiting: "queue.Queue[bytes | None]" = field(factory=lambda: queue.Queue(_QUEUED))
    _worker: Worker = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._worker = SystemThreads().start("client-metrics", self._run)

    def __call__(self, pushed: PushedMetrics) -> None:
        """Queue a push.

        Raises:
            StreamsError: the collector is too slow, so that too many pushes wait.
        """
        try:
            self._waiting.put_nowait(with_attributes(pushed).SerializeToString())
        except queue.Full:
            raise StreamsError(f"{_QUEUED} pushes wait for {self.endpoint}: the collector is too slow") from None

    def close(self) -> None:
        """Send the pushes that wait, and end the thread."""
        self._waiting.put(None)
        self._worker.join(None)

    def _run(self) -> None:
        url = f"{self.endpoint.rstrip('/')}/v1/metrics"
        while (body := self._waiting.get()) is not None:
            try:
                self._send(url, body)
            except (URLError, OSError) as error:
                _LOGGER.warning("metrics of a client were not sent to %s: %s", url, error)
