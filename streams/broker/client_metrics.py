"""Metrics that clients push to the broker (KIP-714): who has to push which, and what is done with a push.

Subscriptions are the settings of resources of type CLIENT_METRICS; tools alter them, and a file keeps them.  Client
instances are kept in memory only, as in Kafka.  The caller passes the monotonic time.
"""

import json
import logging
import re
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

from streams.broker.files import write_atomically
from streams.broker.limits import CLIENT_INSTANCES, PUSHED_BYTES
from streams.core.errors import BrokerError, ConfigError
from streams.protocol.compression import CODECS, codec_number, decompress
from streams.protocol.error_codes import ErrorCode
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

_LOGGER = logging.getLogger(__name__)

#: The file in the data directory that has the subscriptions.
FILE: Final = "client-metrics.json"
_VERSION: Final = 1

#: The settings of a subscription, with Kafka's defaults.
DEFAULTS: Final[Mapping[str, str]] = {"interval.ms": "300000", "match": "", "metrics": ""}
#: Settings that are lists.
LISTS: Final = frozenset({"match", "metrics"})
_INTERVAL_MS: Final = range(100, 3_600_001)
#: A client instance is forgotten when it has not asked for this time, or for three push intervals.
_FORGOTTEN_MS: Final = 60_000
#: The accepted codecs, in Kafka's order of preference.
_CODECS: Final = tuple(map(codec_number, ("zstd", "lz4", "gzip", "snappy")))
#: After these errors a client asks for its subscriptions at once.
_ASKS_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})


@frozen
class PushedMetrics:
    """Metrics that a client has pushed.

    - ``client_instance_id``: the ID of the client instance, in Kafka's format.
    - ``client``: the client: its ID, address, port and software.
    - ``is_terminating``: whether the client is closing, so that these are its last metrics.
    - ``metrics``: OpenTelemetry's ``MetricsData`` (protobuf), not compressed.
    """

    client_instance_id: str
    client: ClientInformation
    is_terminating: bool
    metrics: bytes


#: Takes the metrics of one push.  It is called under the lock of the broker, and must not wait.
MetricsReceiver: TypeAlias = Callable[[PushedMetrics], object]


@frozen
class MetricsSubscription:
    """A subscription to metrics: what is pushed, how often, and by which clients (all patterns have to match)."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, re.Pattern[str]]

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "MetricsSubscription":
        """Return the subscription with these settings.

        Raises:
            BrokerError: a setting is unknown, or the interval is outside of its bounds (``INVALID_REQUEST``); a value
                cannot be read (``INVALID_CONFIG``).
        """
        for name in given:
            if name not in DEFAULTS:
                raise BrokerError(
                    f"client metrics have no setting {name}: they have {', '.join(DEFAULTS)}",
                    code=ErrorCode.INVALID_REQUEST,
                )
        settings = {**DEFAULTS, **given}
        text = settings["interval.ms"].strip()
        if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
            raise BrokerError(f"interval.ms={text!r}: expected a whole number", code=ErrorCode.INVALID_CONFIG)
        if int(text) not in _INTERVAL_MS:
            raise BrokerError(
                f"interval.ms={text}: the interval must be between {_INTERVAL_MS[0]} and {_INTERVAL_MS[-1]} (1 hour)",
                code=ErrorCode.INVALID_REQUEST,
            )
        return cls(_items(settings["metrics"]), int(text), dict(map(_pattern, _items(settings["match"]))))

    def matches(self, known: Mapping[str, str]) -> bool:
        """Whether a client, given what is known of it, has to push these metrics."""
        return all(pattern.fullmatch(known[name]) for name, pattern in self.patterns.items())


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _known_of(client_instance_id: bytes, client: ClientInformation) -> dict[str, str]:
    """Return what the patterns of subscriptions are matched with, by the names that they use."""
    return {
        "client_instance_id": uuid_text(client_instance_id),
        "client_id": client.client_id,
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": client.host.removeprefix("/"),
        "client_source_port": str(client.port),
    }


def _pattern(text: str) -> tuple[str, re.Pattern[str]]:
    name, _, expression = (part.strip() for part in text.partition("="))
    known = _known_of(NO_INSTANCE_ID, ClientInformation())
    if name not in known or not expression or "=" in expression:
        raise BrokerError(
            f"Illegal client matching pattern: {text}; write NAME=PATTERN, where NAME is one of {', '.join(known)}",
            code=ErrorCode.INVALID_CONFIG,
        )
    try:
        return name, re.compile(expression)
    except re.error as error:
        raise BrokerError(f"Illegal client matching pattern: {text}: {error}", code=ErrorCode.INVALID_CONFIG) from error


@define(eq=False)
class ClientInstance:
    """A client that pushes metrics, with the subscriptions that match it."""

    client_instance_id: bytes
    #: The version of all subscriptions for which these values were computed.
    version: int
    metrics: Sequence[str]
    interval_ms: int
    #: Monotonic time of the last accepted requests, or None.
    asked_ms: int | None = None
    pushed_ms: int | None = None
    #: Whether the last accepted request was one for subscriptions.
    has_asked: bool = False
    used_ms: int = 0
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    @property
    def subscription_id(self) -> int:
        """Identifies what the instance has to push."""
        text = f"{self.metrics} {self.interval_ms}".encode()
        unsigned = zlib.crc32(text, zlib.crc32(self.client_instance_id))
        return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned

    def may_ask(self, now_ms: int) -> bool:
        """Whether the instance may ask for its subscriptions: once in an interval, or after certain errors."""
        last_ms = max((at for at in (self.asked_ms, self.pushed_ms) if at is not None), default=None)
        return last_ms is None or now_ms - last_ms >= self.interval_ms or self.last_error in _ASKS_AGAIN

    def may_push(self, now_ms: int) -> bool:
        """Whether the instance may push: once in an interval, or first after it has asked, for clients draw a delay."""
        return self.has_asked or self.pushed_ms is None or now_ms - self.pushed_ms >= self.interval_ms


@define(eq=False)
class ClientMetrics:
    """The subscriptions of a broker, the clients that push, and the receiver of what they push, if there is any."""

    receiver: MetricsReceiver | None
    #: The data directory, or None if nothing is kept.
    data_dir: Path | None
    rng: Random
    _given: dict[str, Mapping[str, str]] = field(factory=dict, init=False)
    _subscriptions: dict[str, MetricsSubscription] = field(factory=dict, init=False)
    _version: int = field(default=0, init=False)
    #: The client instances; those that asked last are the last.
    _instances: "OrderedDict[bytes, ClientInstance]" = field(factory=OrderedDict, init=False)

    # --- settings -------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of the subscriptions."""
        return list(self._given)

    def given(self, name: str) -> Mapping[str, str]:
        """Return the settings that were set for a subscription."""
        return self._given.get(name, {})

    def shown(self, name: str) -> dict[str, str]:
        """Return all settings of a subscription."""
        return {**DEFAULTS, **self.given(name)}

    def alter(self, name: str, given: Mapping[str, str]) -> None:
        """Replace the settings of a subscription; without any, it is removed.

        Raises:
            BrokerError: the name is empty, or see ``MetricsSubscription.of``.
            OSError: the subscriptions cannot be written; nothing has changed.
        """
        if not name:
            raise BrokerError("MetricsSubscription name can't be empty", code=ErrorCode.INVALID_REQUEST)
        changed = {**self._given, name: dict(given)}
        subscription = MetricsSubscription.of(given)
        if not given:
            del changed[name]
        if self.data_dir is not None:
            document = {"version": _VERSION, "subscriptions": changed}
            write_atomically(self.data_dir / FILE, json.dumps(document, indent=1).encode(), is_durable=True)
        self._given = changed
        self._subscriptions.pop(name, None)
        if given:
            self._subscriptions[name] = subscription
        self._version += 1

    def load(self) -> None:
        """Read the subscriptions from the data directory.

        Raises:
            ConfigError: the file cannot be read.
        """
        if self.data_dir is None or not (path := self.data_dir / FILE).exists():
            return
        try:
            document: dict[str, Any] = json.loads(path.read_bytes())
            if document["version"] != _VERSION:
                raise ValueError(f"format version {document['version']}, this program reads {_VERSION}")
            self._given = {name: dict(given) for name, given in document["subscriptions"].items()}
            self._subscriptions = {name: MetricsSubscription.of(given) for name, given in self._given.items()}
        except (ValueError, KeyError, TypeError, AttributeError, BrokerError) as error:
            raise ConfigError(
                f"{path} cannot be read: {error}; restore it, or delete it: no client then pushes its metrics until "
                "they are subscribed to again"
            ) from error

    # --- requests -------------------------------------------------------------------------

    def subscriptions_of(self, request: GetTelemetrySubscriptions, now_ms: int) -> GetTelemetrySubscriptionsResponse:
        """Return what a client has to push; a new client gets an ID."""
        if self.receiver is None:
            return GetTelemetrySubscriptionsResponse(ErrorCode.UNSUPPORTED_VERSION)
        client_instance_id = request.client_instance_id
        while client_instance_id == NO_INSTANCE_ID or (
            request.client_instance_id == NO_INSTANCE_ID and client_instance_id in self._instances
        ):
            client_instance_id = self.rng.randbytes(16)
        instance = self._instance(client_instance_id, request.client, now_ms)
        if not instance.may_ask(now_ms):
            return GetTelemetrySubscriptionsResponse(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.asked_ms, instance.has_asked, instance.last_error = now_ms, True, ErrorCode.NONE
        return GetTelemetrySubscriptionsResponse(
            ErrorCode.NONE,
            client_instance_id,
            instance.subscription_id,
            _CODECS,
            instance.interval_ms,
            PUSHED_BYTES,
            delta_temporality=True,
            requested_metrics=instance.metrics,
        )

    def take(self, request: PushTelemetry, now_ms: int) -> PushTelemetryResponse:
        """Pass pushed metrics to the receiver."""
        if self.receiver is None:
            return PushTelemetryResponse(ErrorCode.UNSUPPORTED_VERSION)
        if request.client_instance_id == NO_INSTANCE_ID:
            return PushTelemetryResponse(ErrorCode.INVALID_REQUEST)
        instance = self._instance(request.client_instance_id, request.client, now_ms)
        instance.last_error = self._checked(request, instance, now_ms)
        instance.is_terminating = request.terminating
        if instance.last_error is ErrorCode.NONE and request.metrics:
            instance.last_error = self._received(request, self.receiver)
        return PushTelemetryResponse(instance.last_error)

    def _checked(self, request: PushTelemetry, instance: ClientInstance, now_ms: int) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(now_ms) and not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        instance.pushed_ms, instance.has_asked = now_ms, False
        if request.subscription_id != instance.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if not 0 <= request.compression_type < len(CODECS):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.TELEMETRY_TOO_LARGE if len(request.metrics) > PUSHED_BYTES else ErrorCode.NONE

    @staticmethod
    def _received(request: PushTelemetry, receiver: MetricsReceiver) -> ErrorCode:
        name = uuid_text(request.client_instance_id)
        try:
            metrics = decompress(request.compression_type, request.metrics)
            receiver(PushedMetrics(name, request.client, request.terminating, metrics))
        except Exception:
            # The receiver is the user's, and the bytes are the client's: neither must affect other clients.
            _LOGGER.exception("metrics of client %s (%r): not taken", name, request.client.client_id)
            return ErrorCode.INVALID_RECORD
        return ErrorCode.NONE

    # --- instances ------------------------------------------------------------------------

    def _instance(self, client_instance_id: bytes, client: ClientInformation, now_ms: int) -> ClientInstance:
        """Return the instance with this ID; it is made, or made anew if the subscriptions have changed."""
        self._forget(now_ms)
        found = self._instances.pop(client_instance_id, None)
        if found is None or found.version != self._version:
            found = self._matched(client_instance_id, client)
        found.used_ms = now_ms
        self._instances[client_instance_id] = found
        return found

    def _matched(self, client_instance_id: bytes, client: ClientInformation) -> ClientInstance:
        known = _known_of(client_instance_id, client)
        matching = [found for found in self._subscriptions.values() if found.matches(known)]
        metrics = sorted({name for found in matching for name in found.metrics})
        if ALL_METRICS in metrics:
            metrics = [ALL_METRICS]
        interval_ms = min((found.interval_ms for found in matching), default=int(DEFAULTS["interval.ms"]))
        return ClientInstance(client_instance_id, self._version, metrics, interval_ms)

    def _forget(self, now_ms: int) -> None:
        """Forget the instances that have asked least recently, if their time is over or there are too many."""
        while self._instances:
            oldest = next(iter(self._instances.values()))
            is_over = now_ms - oldest.used_ms > max(_FORGOTTEN_MS, 3 * oldest.interval_ms)
            if not is_over and len(self._instances) < CLIENT_INSTANCES:
                return
            del self._instances[oldest.client_instance_id]
