"""The settings of a broker that concern groups."""

import pytest
from attrs import fields

from streams.core.errors import ConfigError
from streams.group import CoordinatorConfig


def test_each_setting_has_a_name_of_kafka():
    assert len(CoordinatorConfig().shown()) == len(fields(CoordinatorConfig))


def test_what_is_shown_makes_the_same_configuration():
    config = CoordinatorConfig(initial_rebalance_delay_ms=7, streams_num_standby_replicas=2)
    assert CoordinatorConfig.of(config.shown()) == config


@pytest.mark.parametrize("text", ["-1", "1.5", "", "many", "٣", str(2**31)])
def test_invalid_values_are_rejected(text: str):
    with pytest.raises(ConfigError, match="must be a whole number of at least 0, and at most 2147483647"):
        CoordinatorConfig.of({"group.initial.rebalance.delay.ms": text})


def test_invalid_values_are_rejected_in_a_program_too():
    with pytest.raises(ConfigError, match=r"Invalid value -1 for configuration group\.initial\.rebalance\.delay\.ms"):
        CoordinatorConfig(initial_rebalance_delay_ms=-1)
