"""Settings: defaults, parsing, mistakes."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streams.core.errors import ConfigError
from streams.core.settings.client_settings import ConsumerSettings, ProducerSettings, Security
from streams.core.settings.config import SETTINGS, StreamsConfig, setting_name
from streams.core.settings.setting import table_of


def _handler(context: Any, record: Any, error: Exception) -> str:
    return "continue"


def test_defaults_are_those_of_kafka_streams_but_for_the_record_cache() -> None:
    config = StreamsConfig.of(application_id="app")

    assert config.commit_interval_ms == 30_000
    assert config.max_task_idle_ms == 0
    assert config.cache_max_bytes == 0
    assert config.processing_guarantee == "at_least_once"
    assert config.consumer.auto_offset_reset == "earliest"
    assert config.default_store == "rocksdb"
    assert not config.is_exactly_once


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        ("commit_interval_ms", "100", 100),
        ("commit_interval_ms", timedelta(seconds=1), 1000),
        ("commit.interval.ms", 5, 5),
        ("max_task_idle_ms", -1, -1),
        ("default.dsl.store", "IN_MEMORY", "in_memory"),
        ("statestore.cache.max.bytes", "0", 0),
        ("processing_guarantee", "exactly_once_v2", "exactly_once_v2"),
        ("acks", -1, "all"),
        ("batch.size", 5, 5),
        ("request_timeout_ms", 5, 5),
        ("acks", 1, "1"),
        ("group_instance_id", None, ""),
        ("state_dir", Path("state"), "state"),
        ("bootstrap_servers", ["a:1", "b:2"], "a:1,b:2"),
        ("deserialization_handler", "continue", "continue"),
        ("default.deserialization.exception.handler", _handler, _handler),
        ("default_timestamp_extractor", "wall_clock", "wall_clock"),
    ],
)
def test_value_is_parsed(name: str, value: Any, parsed: object) -> None:
    config, ours = StreamsConfig.of(**{name: value}), setting_name(name)
    groups = (config, config.consumer, config.producer, config.connection, config.client)

    assert {getattr(part, ours) for part in groups if hasattr(part, ours)} == {parsed}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("commit_intervall_ms", 1, "did you mean 'commit_interval_ms'"),
        ("cache_max_byte", 1, "did you mean 'cache_max_bytes'"),
        ("xyzzy", 1, "unknown setting 'xyzzy'"),
        ("commit_interval_ms", "soon", "expected a whole number of ms, at least 0, not 'soon' of type str"),
        ("commit_interval_ms", 1.5, "expected a whole number of ms"),
        ("commit_interval_ms", True, "expected a whole number of ms"),
        ("commit_interval_ms", None, "expected a whole number of ms"),
        ("commit_interval_ms", -1, "at least 0"),
        ("max_task_idle_ms", -2, "at least -1"),
        ("num_stream_threads", 0, "at least 1"),
        ("poll_ms", timedelta(milliseconds=-5), "at least 0"),
        ("idle_close_ms", timedelta(microseconds=5), "whole number of ms"),
        ("processing_guarantee", "exactly_once", "expected at_least_once or exactly_once_v2"),
        ("deserialization_handler", "skip", "expected fail or continue, or a function"),
        ("default_store", len, "expected rocksdb or in_memory"),
        ("application_id", "a b", "cannot begin a topic name"),
        ("application_id", "", "cannot begin a topic name"),
        ("application_id", 5, "expected text"),
        ("heartbeat_interval_ms", 45_000, "must be less than"),
    ],
)
def test_mistake_is_explained(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.of(**{name: value})

    assert message in str(caught.value)


def test_setting_given_under_two_names_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        StreamsConfig.of(cache_max_bytes=1, statestore_cache_max_bytes=2)


def test_exactly_once_commits_every_100_ms_unless_told() -> None:
    assert StreamsConfig.of(processing_guarantee="exactly_once_v2").commit_interval_ms == 100
    assert StreamsConfig.of(processing_guarantee="exactly_once_v2", commit_interval_ms=7).commit_interval_ms == 7
    told = StreamsConfig.of(commit_interval_ms=7)
    assert told.replace(processing_guarantee="exactly_once_v2").commit_interval_ms == 7


def test_security_is_parsed_and_its_password_is_not_shown() -> None:
    config = StreamsConfig.of(
        security_protocol="SASL_SSL", sasl_mechanism="scram-sha-256", sasl_username="a", sasl_password="secret"
    )

    assert config.security == Security("sasl_ssl", "SCRAM-SHA-256", "a", "secret")
    assert "secret" not in repr(config)
    with pytest.raises(ConfigError, match="not the given value"):
        StreamsConfig.of(sasl_password=5)


def test_table_describes_every_setting() -> None:
    tables = [SETTINGS, table_of(ConsumerSettings), table_of(ProducerSettings)]
    for setting in [setting for table in tables for setting in table.values()]:
        assert setting.doc.endswith(".")
        assert setting.unit or setting.kind != "int"


def test_no_name_stands_for_two_settings() -> None:
    names = [name for setting in SETTINGS.values() for name in (setting.name, *setting.aliases)]

    assert len(names) == len(set(names))


def test_every_default_passes_its_own_check() -> None:
    values = {name: setting.default for name, setting in SETTINGS.items() if name != "application_id"}

    assert StreamsConfig.of(**values) == StreamsConfig()


def test_settings_of_clients_are_those_of_kafka_alone_and_of_kafka_streams_in_an_application() -> None:
    config = StreamsConfig.of()

    assert (ConsumerSettings.of().auto_offset_reset, config.consumer.auto_offset_reset) == ("latest", "earliest")
    assert (ProducerSettings.of().transaction_timeout_ms, config.producer.transaction_timeout_ms) == (60_000, 10_000)


def test_setting_of_all_clients_reaches_each() -> None:
    config = StreamsConfig.of(request_timeout_ms=7)

    assert config.consumer.client == config.producer.client == config.client
    assert config.client.request_timeout_ms == 7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"enable_auto_commit": True}, "unknown setting 'enable_auto_commit'"),
        ({"transactional_id": "x"}, "unknown setting 'transactional_id'"),
    ],
)
def test_setting_that_only_a_client_has_is_unknown_to_an_application(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StreamsConfig.of(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_poll_record": 1}, "did you mean 'max_poll_records'"),
        ({"linger_ms": 1}, "unknown setting 'linger_ms'"),
        ({"max_poll_records": 0}, "at least 1, not 0"),
        (
            {"auto_offset_reset": "begin"},
            "expected earliest or latest or none, or a text such as by_duration:PT1H, not 'begin'",
        ),
        ({"isolation_level": "committed"}, "expected read_uncommitted or read_committed"),
    ],
)
def test_mistake_in_a_clients_settings_is_explained(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ConsumerSettings.of(**settings)


@pytest.mark.parametrize("tags", ["zone=a, cluster=k8s=1", {"zone": "a", "cluster": "k8s=1"}])
def test_tags_are_a_mapping_or_text(tags: Any) -> None:
    config = StreamsConfig.of(client_tags=tags, rack_aware_assignment_tags=["zone", "cluster"])

    assert config.tags == {"zone": "a", "cluster": "k8s=1"}
    assert config.assignment_tags == ("zone", "cluster")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"client_tags": "zone"}, "expected NAME=VALUE, comma-separated: 'zone' is not NAME=VALUE"),
        ({"client_tags": "zone=a,zone=b"}, "'zone' is given twice"),
        ({"client_tags": {"zone": "a,b"}}, "'zone': 'a,b': must be text, without ','"),
        ({"client_tags": {"zone": 1}}, "'zone': 1: must be text"),
        ({"client_tags": "a=1,b=1,c=1,d=1,e=1,f=1"}, "6 tags; at most 5 are possible"),
        ({"client_tags": f"{'z' * 21}=a"}, "z=a is too long; a name has at most 20 characters, a value 30"),
        ({"client_tags": f"z={'a' * 31}"}, "is too long"),
        ({"client.tag.zone": "a"}, "unknown setting 'client.tag.zone': did you mean 'client_tags'"),
        ({"rack_aware_assignment_tags": "zone"}, "this instance has no tag 'zone'; give it one, such as client_tags="),
    ],
)
def test_mistake_in_tags_is_explained(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StreamsConfig.of(**settings)


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("num_standby_replicas", 1, "streams.num.standby.replicas of the group"),
        ("acceptable_recovery_lag", 1, "streams.acceptable.recovery.lag of the group"),
        ("max_warmup_replicas", 1, "streams.num.warmup.replicas of the group"),
        ("probing_rebalance_interval_ms", 60_000, "the broker sees which warm-up replicas have caught up"),
        ("session_timeout_ms", 50_000, "streams.session.timeout.ms of the group"),
        ("heartbeat_interval_ms", 300, "streams.heartbeat.interval.ms of the group"),
    ],
)
def test_setting_that_the_broker_of_a_streams_group_sets_is_refused(name: str, value: int, instead: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value} and group_protocol=streams exclude each other: .*{instead}"):
        StreamsConfig.of(group_protocol="streams", **{name: value})


def test_tags_by_which_the_leader_assigns_are_refused_in_streams_groups() -> None:
    with pytest.raises(ConfigError, match="rack_aware_assignment_tags=zone and group_protocol=streams exclude"):
        StreamsConfig.of(group_protocol="streams", client_tags="zone=a", rack_aware_assignment_tags="zone")
