"""The settings of a broker that concern groups, under the names of Kafka.

Of the other packages, this module imports only ``core``.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from attrs import frozen

from streams.core.errors import ConfigError


@frozen
class WholeNumber:
    """A whole number: its attribute of ``CoordinatorConfig``, and its bounds."""

    attribute: str
    lowest: int
    highest: int = 2**31 - 1


#: The whole numbers among Kafka's settings of a broker that concern groups.
NUMBERS: Final[Mapping[str, WholeNumber]] = {
    "group.consumer.assignment.interval.ms": WholeNumber("consumer_assignment_interval_ms", 0),
    "group.consumer.heartbeat.interval.ms": WholeNumber("consumer_heartbeat_interval_ms", 1),
    "group.consumer.session.timeout.ms": WholeNumber("consumer_session_timeout_ms", 1),
    "group.initial.rebalance.delay.ms": WholeNumber("initial_rebalance_delay_ms", 0),
    "group.max.session.timeout.ms": WholeNumber("max_session_timeout_ms", 1),
    "group.min.session.timeout.ms": WholeNumber("min_session_timeout_ms", 1),
    "group.streams.acceptable.recovery.lag": WholeNumber("streams_acceptable_recovery_lag", 0),
    "group.streams.assignment.interval.ms": WholeNumber("streams_assignment_interval_ms", 0),
    "group.streams.heartbeat.interval.ms": WholeNumber("streams_heartbeat_interval_ms", 1),
    "group.streams.initial.rebalance.delay.ms": WholeNumber("streams_initial_rebalance_delay_ms", 0),
    "group.streams.num.standby.replicas": WholeNumber("streams_num_standby_replicas", 0),
    "group.streams.session.timeout.ms": WholeNumber("streams_session_timeout_ms", 1),
    "group.streams.task.offset.interval.ms": WholeNumber("streams_task_offset_interval_ms", 1),
    "offset.metadata.max.bytes": WholeNumber("offset_metadata_max_bytes", 0),
}


@frozen
class CoordinatorConfig:
    """Bounds and delays for groups, with defaults for an in-process coordinator.

    Each attribute is a setting of Kafka's brokers, in milliseconds if its name ends with ``_ms``:
    ``consumer_session_timeout_ms`` is ``group.consumer.session.timeout.ms``, ``min_session_timeout_ms`` is
    ``group.min.session.timeout.ms``.  ``initial_rebalance_delay_ms`` is how long the join phase of the first generation
    lasts, so that more members can join; ``streams_initial_rebalance_delay_ms`` is that of streams groups (KIP-1071).
    Kafka's default of both is 3000.  A consumer or streams group is assigned at most once in
    ``consumer_assignment_interval_ms`` or ``streams_assignment_interval_ms`` (KIP-1263); Kafka's default is 1000.
    Members of streams groups are told to report their changelog offsets every ``streams_task_offset_interval_ms``, and
    that a warm-up task up to ``streams_acceptable_recovery_lag`` records behind has caught up.
    Other defaults are Kafka's, except that of ``min_session_timeout_ms`` (6000).

    Raises:
        ConfigError: a value is too low or too high.
    """

    min_session_timeout_ms: int = 1
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    offset_metadata_max_bytes: int = 4096
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 0
    streams_session_timeout_ms: int = 45_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_assignment_interval_ms: int = 0
    streams_initial_rebalance_delay_ms: int = 0
    streams_num_standby_replicas: int = 0
    streams_task_offset_interval_ms: int = 60_000
    streams_acceptable_recovery_lag: int = 10_000

    def __attrs_post_init__(self) -> None:
        for name, setting in NUMBERS.items():
            number(name, str(getattr(self, setting.attribute)), setting)
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise ConfigError(
                f"group.min.session.timeout.ms={self.min_session_timeout_ms}: expected at most "
                f"group.max.session.timeout.ms, which is {self.max_session_timeout_ms}"
            )

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "CoordinatorConfig":
        """Return the configuration of a broker with these settings, such as ``{"group.min.session.timeout.ms": "5"}``.

        Raises:
            ConfigError: a setting is unknown, or its value is invalid.
        """
        values: dict[str, Any] = {}
        for name, text in given.items():
            if name not in NUMBERS:
                near = get_close_matches(name, NUMBERS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(NUMBERS)}"
                raise ConfigError(f"groups have no setting {name}: {hint}")
            values[NUMBERS[name].attribute] = number(name, text, NUMBERS[name])
        return cls(**values)

    def shown(self) -> dict[str, str]:
        """Return the configuration under the names of Kafka."""
        return {name: str(getattr(self, setting.attribute)) for name, setting in NUMBERS.items()}

    def allows_session(self, timeout_ms: int) -> bool:
        """Whether a session timeout is within the bounds."""
        return self.min_session_timeout_ms <= timeout_ms <= self.max_session_timeout_ms


def number(name: str, text: str, bounds: WholeNumber) -> int:
    """Return the value of a setting.

    Raises:
        ConfigError: it is not a whole number within the bounds.
    """
    is_number = text.isascii() and text.isdigit()
    if not is_number or not bounds.lowest <= int(text) <= bounds.highest:
        raise ConfigError(
            f"Invalid value {text} for configuration {name}: must be a whole number of at least {bounds.lowest}, and "
            f"at most {bounds.highest}"
        )
    return int(text)
