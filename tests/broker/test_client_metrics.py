"""Metrics that clients push (KIP-714): settings of subscriptions, who is asked for what, and what is rejected."""

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from streams import EmbeddedBroker
from streams.broker import PushedMetrics
from streams.broker.client_metrics import FILE
from streams.clients import Network
from streams.core.clock import VirtualClock
from streams.core.errors import ConfigError
from streams.protocol.admin_messages import (
    ChangedConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigType,
    DescribeConfigs,
    IncrementalAlterConfigs,
    ListConfigResources,
    ResourceType,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.telemetry_messages import ClientInformation, GetTelemetrySubscriptions, PushTelemetry
from streams.protocol.transport import ANY_NODE

JAVA = ClientInformation("app", "/10.0.0.7", 40_001, "apache-kafka-java", "4.4.0")


class Desk:
    """A broker on a virtual clock with its subscriptions, and what it has taken."""

    def __init__(self, **options):
        self.clock = VirtualClock(1_000_000)
        self.taken: list[PushedMetrics] = []
        self.broker = EmbeddedBroker(clock=self.clock, **{"metrics_receiver": self.taken.append, **options})
        self.network = Network(self.broker.connect("desk"), self.clock)

    def ask(self, request):
        return self.network.request(ANY_NODE, request)

    def alter(self, name, *changes):
        rows = [ConfigChange(setting, operation, value) for setting, operation, value in changes]
        (row,) = self.ask(IncrementalAlterConfigs([ChangedConfigs(ResourceType.CLIENT_METRICS, name, rows)])).responses
        return row

    def subscribe(self, name="all", **settings):
        changes = [(key.replace("_", "."), ConfigOperation.SET, value) for key, value in settings.items()]
        assert self.alter(name, *changes).error is ErrorCode.NONE

    def shown(self, name):
        (row,) = self.ask(DescribeConfigs([ConfigResource(ResourceType.CLIENT_METRICS, name)])).results
        return {config.name: (config.value, config.config_source, config.config_type) for config in row.configs}

    def names(self):
        rows = self.ask(ListConfigResources((ResourceType.CLIENT_METRICS,))).config_resources
        return [row.resource_name for row in rows]

    def subscription(self, client=JAVA, instance_id=bytes(16)):
        return self.ask(GetTelemetrySubscriptions(instance_id, client))

    def push(self, found, metrics=b"", *, terminating=False, codec=0, client=JAVA, **changes):
        named = {"instance": found.client_instance_id, "subscription": found.subscription_id, **changes}
        return self.ask(
            PushTelemetry(named["instance"], named["subscription"], terminating, codec, metrics, client)
        ).error


@pytest.fixture
def desk():
    found = Desk()
    with found.broker:
        yield found


def test_settings_are_listed_shown_and_removed(desk):
    desk.subscribe("java", metrics="org.apache.kafka.consumer.,org.apache.kafka.producer.", interval_ms="60000")

    assert desk.names() == ["java"]
    assert desk.shown("java") == {
        "interval.ms": ("60000", ConfigSource.CLIENT_METRICS, ConfigType.LONG),
        "match": ("", ConfigSource.DEFAULT, ConfigType.LIST),
        "metrics": (
            "org.apache.kafka.consumer.,org.apache.kafka.producer.",
            ConfigSource.CLIENT_METRICS,
            ConfigType.LIST,
        ),
    }
    desk.alter("java", ("metrics", ConfigOperation.SUBTRACT, "org.apache.kafka.producer."))
    desk.alter("java", ("match", ConfigOperation.APPEND, "client_id=a"))
    assert desk.shown("java")["metrics"][0] == "org.apache.kafka.consumer."
    assert desk.shown("java")["match"][0] == "client_id=a"
    for name in ("metrics", "match", "interval.ms"):
        desk.alter("java", (name, ConfigOperation.DELETE, None))
    assert desk.names() == []


@pytest.mark.parametrize(
    ("name", "setting", "value", "error", "text"),
    [
        ("a", "intervall", "5", ErrorCode.INVALID_REQUEST, "interval.ms, match, metrics"),
        ("a", "interval.ms", "99", ErrorCode.INVALID_REQUEST, "between 100 and 3600000"),
        ("a", "interval.ms", "3600001", ErrorCode.INVALID_REQUEST, "between 100 and 3600000"),
        ("a", "interval.ms", "soon", ErrorCode.INVALID_CONFIG, "whole number"),
        ("a", "match", "client=a", ErrorCode.INVALID_CONFIG, "client_software_name"),
        ("a", "match", "client_id", ErrorCode.INVALID_CONFIG, "NAME=PATTERN"),
        ("a", "match", "client_id=(", ErrorCode.INVALID_CONFIG, r"Illegal client matching pattern: client_id=\("),
        ("", "metrics", "*", ErrorCode.INVALID_REQUEST, "can't be empty"),
    ],
)
def test_wrong_settings_are_rejected_and_nothing_changes(desk, name, setting, value, error, text):
    row = desk.alter(name, (setting, ConfigOperation.SET, value))
    assert row.error is error
    with pytest.raises(AssertionError, match=text):
        raise AssertionError(row.message)
    assert desk.names() == []


def test_subscriptions_are_kept_in_the_data_directory(tmp_path):
    desk = Desk(data_dir=tmp_path)
    with desk.broker:
        desk.subscribe("all", metrics="*", interval_ms="500")
    again = Desk(data_dir=tmp_path)
    with again.broker:
        assert again.names() == ["all"]
        assert again.subscription().push_interval_ms == 500
    (tmp_path / FILE).write_text('{"version": 9}')
    with pytest.raises(ConfigError, match=r"client-metrics\.json cannot be read: format version 9"):
        Desk(data_dir=tmp_path)


def test_a_client_gets_what_all_subscriptions_that_match_it_ask_for(desk):
    desk.subscribe("one", metrics="org.apache.kafka.consumer.", interval_ms="60000")
    java = "client_software_name=apache-.*"
    desk.subscribe("two", metrics="org.apache.kafka.producer.", match=java, interval_ms="500")
    desk.subscribe("three", metrics="org.apache.kafka.admin.", match="client_id=app,client_source_port=9")
    desk.subscribe("four", metrics="org.apache.kafka.other.", match="client_source_address=10[.]0[.]0[.]7,client_id=a")

    found = desk.subscription()
    assert found.requested_metrics == ["org.apache.kafka.consumer.", "org.apache.kafka.producer."]
    assert found.push_interval_ms == 500
    assert found.accepted_compression_types == (4, 3, 1, 2)
    assert found.delta_temporality
    desk.subscribe("five", metrics="*", interval_ms="900")
    other = desk.subscription(JAVA._replace(software_name="librdkafka"))
    assert (other.requested_metrics, other.push_interval_ms) == (["*"], 900)
    assert other.client_instance_id not in (bytes(16), found.client_instance_id)


def test_nobody_is_asked_without_a_subscription(desk):
    found = desk.subscription()
    assert found.error is ErrorCode.NONE
    assert (found.requested_metrics, found.push_interval_ms) == ([], 300_000)


def test_requests_within_the_interval_are_throttled(desk):
    desk.subscribe(metrics="*", interval_ms="1000")
    found = desk.subscription()
    same = found.client_instance_id
    assert desk.push(found) is ErrorCode.NONE  # Clients draw when they push first.
    desk.clock.advance(999)
    assert desk.push(found) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert desk.subscription(instance_id=same).error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    desk.clock.advance(1)
    assert desk.push(found) is ErrorCode.NONE
    assert desk.push(found, terminating=True) is ErrorCode.NONE
    assert desk.push(found) is ErrorCode.INVALID_REQUEST  # It has said that it ends.


def test_changed_subscriptions_are_asked_for_at_once(desk):
    desk.subscribe(metrics="*", interval_ms="1000")
    found = desk.subscription()
    desk.subscribe("more", metrics="org.", interval_ms="300")
    assert desk.push(found) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = desk.subscription(instance_id=found.client_instance_id)
    assert again.error is ErrorCode.NONE
    assert again.client_instance_id == found.client_instance_id
    assert again.subscription_id != found.subscription_id
    assert again.push_interval_ms == 300
    assert desk.push(again) is ErrorCode.NONE


def test_a_push_that_cannot_be_taken_is_rejected(desk):
    desk.subscribe(metrics="*", interval_ms="100")
    found = desk.subscription()

    def error(metrics=b"x", **changes):
        desk.clock.advance(100)
        return desk.push(found, metrics, **changes)

    assert error(instance=bytes(16)) is ErrorCode.INVALID_REQUEST
    assert error(codec=5) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert error(subscription=found.subscription_id + 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert error(bytes((1 << 20) + 1)) is ErrorCode.TELEMETRY_TOO_LARGE
    assert error(b"not gzip", codec=1) is ErrorCode.INVALID_RECORD
    assert desk.taken == []
    assert error(MetricsData().SerializeToString() + b"anything") is ErrorCode.NONE
    assert [(taken.client, taken.is_terminating, taken.metrics) for taken in desk.taken] == [(JAVA, False, b"anything")]


def test_a_receiver_that_fails_is_logged_and_told_to_the_client(caplog):
    def fail(pushed):
        raise ValueError("full")

    desk = Desk(metrics_receiver=fail)
    with desk.broker:
        desk.subscribe(metrics="*")
        assert desk.push(desk.subscription(), b"x") is ErrorCode.INVALID_RECORD
    assert "ValueError: full" in caplog.text


def test_without_a_receiver_the_apis_are_not_announced():
    from streams.protocol.admin_messages import ApiVersions

    desk = Desk(metrics_receiver=None)
    with desk.broker:
        assert not {71, 72} & set(desk.ask(ApiVersions()).api_keys)
        assert desk.subscription().error is ErrorCode.UNSUPPORTED_VERSION
        desk.subscribe(metrics="*")  # Kafka takes the settings too.
    with Desk().broker as broker:
        network = Network(broker.connect("c"), VirtualClock())
        assert {71, 72} <= set(network.request(ANY_NODE, ApiVersions()).api_keys)


def test_a_receiver_is_a_function():
    with pytest.raises(ConfigError, match="metrics_receiver must be a function, not 'file' of type str"):
        EmbeddedBroker(metrics_receiver="file")  # type: ignore[arg-type]

    async def receive(pushed):
        pass

    with pytest.raises(ConfigError, match="metrics_receiver"):
        EmbeddedBroker(metrics_receiver=receive)


def test_instances_that_ask_no_more_are_forgotten(desk):
    desk.subscribe(metrics="*", interval_ms="100")
    found = desk.subscription()
    desk.clock.advance(60_001)
    desk.subscription()
    metrics = desk.broker._machine.client_metrics
    assert found.client_instance_id not in metrics._instances
    assert desk.push(found) is ErrorCode.NONE  # It is known again, with the same subscriptions.
