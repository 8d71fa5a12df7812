"""The settings of a broker that concern groups, under the names of Kafka.

Of the other packages, this module imports only ``core``.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

from attrs import field, frozen
from attrs.validators import instance_of

from streams.core.errors import ConfigError


class MigrationPolicy(Enum):
    """Which groups with members change their protocol, with Kafka's words (``group.consumer.migration.policy``).

    An upgrade makes a classic group a consumer group when the first member of the consumer protocol joins; a downgrade
    makes it a classic group again when the last one has left.
    """

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """Whether classic groups with members become consumer groups."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """Whether consumer groups with members become classic groups."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@frozen
class WholeNumber:
    """A whole number: its attribute of ``CoordinatorConfig``, and its bounds."""

    attribute: str
    lowest: int
    highest: int = 2**31 - 1


#: The settings with a choice of words: their attributes of ``CoordinatorConfig``, and the words.
_CHOICES: Final[Mapping[str, tuple[str, type[Enum]]]] = {
    "group.consumer.migration.policy": ("consumer_migration_policy", MigrationPolicy),
}
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
    ``consumer_migration_policy`` decides about groups with members of both protocols.  Other defaults are Kafka's,
    except that of ``min_session_timeout_ms`` (6000).

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
    consumer_migration_policy: MigrationPolicy = field(
        default=MigrationPolicy.BIDIRECTIONAL, validator=instance_of(MigrationPolicy)
    )
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
            if name in _CHOICES:
                attribute, words = _CHOICES[name]
                values[attribute] = _chosen(name, text, words)
            elif name in NUMBERS:
                values[NUMBERS[name].attribute] = number(name, text, NUMBERS[name])
            else:
                known = [*NUMBERS, *_CHOICES]
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise ConfigError(f"groups have no setting {name}: {hint}")
        return cls(**values)

    def shown(self) -> dict[str, str]:
        """Return the configuration under the names of Kafka."""
        numbers = {name: str(getattr(self, setting.attribute)) for name, setting in NUMBERS.items()}
        return numbers | {name: getattr(self, attribute).value for name, (attribute, _) in _CHOICES.items()}

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


def _chosen(name: str, text: str, words: type[Enum]) -> Enum:
    try:
        return words(text.lower())
    except ValueError:
        known = ", ".join(word.value or "''" for word in words)
        raise ConfigError(f"Invalid value {text} for configuration {name}: must be one of {known}") from None
