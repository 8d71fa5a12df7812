"""Settings: defaults, parsing, mistakes."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streams.core.config import ALIASES, SETTINGS, StreamsConfig, describe_settings
from streams.core.errors import ConfigError


def _handler(context: Any, record: Any, error: Exception) -> str:
    return "continue"


def test_defaults_are_kafka_streams_own() -> None:
    config = StreamsConfig.of(application_id="app")

    assert config.commit_interval_ms == 30_000
    assert config.max_task_idle_ms == 0
    assert config.cache_max_bytes == 10 * 1024 * 1024
    assert config.processing_guarantee == "at_least_once"
    assert config.auto_offset_reset == "earliest"
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
        ("acks", "-1".replace("-1", "all"), "all"),
        ("acks", 1, "1"),
        ("sasl_mechanism", "scram-sha-256", "SCRAM-SHA-256"),
        ("security_protocol", "SASL_SSL", "sasl_ssl"),
        ("state_dir", Path("state"), "state"),
        ("bootstrap_servers", ["a:1", "b:2"], "a:1,b:2"),
        ("deserialization_handler", "continue", "continue"),
        ("default.deserialization.exception.handler", _handler, _handler),
        ("default_timestamp_extractor", "wall_clock", "wall_clock"),
    ],
)
def test_value_is_parsed(name: str, value: Any, parsed: object) -> None:
    config = StreamsConfig.of(**{name: value})
    ours = name.replace(".", "_")

    assert getattr(config, ALIASES.get(ours, ours)) == parsed


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


def test_password_is_not_shown() -> None:
    assert "secret" not in repr(StreamsConfig.of(sasl_password="secret"))


def test_table_describes_every_setting() -> None:
    table = describe_settings()

    assert [setting.name for setting in table] == list(SETTINGS)
    assert all(setting.doc.endswith(".") for setting in table)
    assert all(setting.unit for setting in table if setting.kind == "int")
    assert set(StreamsConfig.of().as_dict()) == set(SETTINGS)
    assert not set(ALIASES) & set(SETTINGS)
    assert set(ALIASES.values()) <= set(SETTINGS)


def test_every_default_passes_its_own_check() -> None:
    values = {s.name: s.default for s in describe_settings() if s.name != "application_id"}

    assert StreamsConfig.of(**values) == StreamsConfig()
