"""The settings of a broker that concern groups."""

import pytest
from attrs import fields

from streams.broker.broker_settings import BrokerSettings
from streams.core.errors import ConfigError
from streams.core.settings.setting import texts_of
from streams.group import CoordinatorConfig


def test_each_setting_has_a_name_of_kafka():
    assert len(texts_of(CoordinatorConfig())) == len(fields(CoordinatorConfig))


def test_what_is_shown_makes_the_same_configuration():
    config = CoordinatorConfig(initial_rebalance_delay_ms=7, streams_num_standby_replicas=2)
    assert BrokerSettings().with_texts(texts_of(config)).groups == config


@pytest.mark.parametrize("text", ["-1", "1.5", "", "many", "٣", str(2**31)])
def test_invalid_values_are_rejected(text: str):
    with pytest.raises(ConfigError, match="expected a whole number of ms, at least 0, at most 2147483647"):
        BrokerSettings().with_texts({"group.initial.rebalance.delay.ms": text})


@pytest.mark.parametrize("kind", ["consumer", "streams"])
@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("session.timeout", 44_999, "min"),
        ("session.timeout", 60_001, "max"),
        ("heartbeat.interval", 4_999, "min"),
        ("heartbeat.interval", 15_001, "max"),
    ],
)
def test_sessions_and_heartbeats_are_within_the_bounds_of_kafka(kind: str, name: str, value: int, bound: str):
    texts = {f"group.{kind}.{name}.ms": str(value)}
    with pytest.raises(ConfigError, match=rf"group\.{kind}\.({bound}\.)?{name}\.ms=\d+: expected at most"):
        BrokerSettings().with_texts(texts)
    texts[f"group.{kind}.{bound}.{name}.ms"] = str(value)
    assert BrokerSettings().with_texts(texts).groups.allows_session(6_000)


def test_invalid_values_are_rejected_in_a_program_too():
    with pytest.raises(
        ConfigError, match="setting 'initial_rebalance_delay_ms': expected a whole number of ms, at least 0"
    ):
        CoordinatorConfig(initial_rebalance_delay_ms=-1)
