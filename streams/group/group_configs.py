"""Settings of single groups, as Kafka's tools set them for the resource type ``GROUP`` (KIP-848, KIP-1071).

They outlive the group.  A group without a setting has that of ``CoordinatorConfig``.  This module performs no I/O.
"""

from collections.abc import Mapping
from typing import Final

from attrs import define, field

from streams.core.errors import BrokerError, ConfigError
from streams.group.coordinator_config import NUMBERS, CoordinatorConfig, WholeNumber, number
from streams.group.effects import Effect, Persist
from streams.group.offsets import configs_key, configs_value, read_configs
from streams.group.states import ModernGroup
from streams.protocol.error_codes import ErrorCode

#: What groups may set: the broker's settings of these names with ``group.`` before them are the defaults.
_NAMES: Final = (
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "streams.acceptable.recovery.lag",
    "streams.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
    "streams.session.timeout.ms",
    "streams.task.offset.interval.ms",
)


@define(eq=False)
class GroupConfigs:
    """The settings of all groups that have any."""

    defaults: CoordinatorConfig
    effects: list[Effect]
    _given: dict[str, Mapping[str, str]] = field(factory=dict)

    def value(self, group_id: str, name: str) -> int:
        """Return a setting of a group that is a whole number."""
        given = self._given.get(group_id, {}).get(name)
        return self._default(name) if given is None else int(given)

    def assignment_delay_ms(self, kind: str, group_id: str, group: ModernGroup, now_ms: int) -> int:
        """Return for how many milliseconds a group waits that has changed since it was assigned (KIP-1263), or 0.

        ``kind`` is ``consumer`` or ``streams``.
        """
        if group.assigned_ms is None or group.epoch == group.assignment_epoch:
            return 0
        return max(0, group.assigned_ms + self.value(group_id, f"{kind}.assignment.interval.ms") - now_ms)

    def heartbeat_interval_ms(self, kind: str, group_id: str, delay_ms: int) -> int:
        """Return when a member has to send its next heartbeat: sooner, if the group is assigned in ``delay_ms``."""
        interval_ms = self.value(group_id, f"{kind}.heartbeat.interval.ms")
        return min(interval_ms, delay_ms) if delay_ms else interval_ms

    def groups(self) -> list[str]:
        """Return the IDs of the groups that have settings of their own."""
        return list(self._given)

    def given(self, group_id: str) -> Mapping[str, str]:
        """Return the settings that were set for a group."""
        return self._given.get(group_id, {})

    def shown(self, group_id: str) -> dict[str, str]:
        """Return all settings of a group."""
        return {name: str(self.value(group_id, name)) for name in _NAMES}

    @staticmethod
    def check(given: Mapping[str, str]) -> None:
        """Check settings.

        Raises:
            BrokerError: a setting is unknown, or its value is invalid (``INVALID_CONFIG``).
        """
        for name, value in given.items():
            if name not in _NAMES:
                raise BrokerError(
                    f"groups have no setting {name}: they have {', '.join(_NAMES)}",
                    code=ErrorCode.INVALID_CONFIG,
                )
            try:
                number(name, value, _setting(name))
            except ConfigError as error:
                raise BrokerError(str(error), code=ErrorCode.INVALID_CONFIG) from error

    def alter(self, group_id: str, given: Mapping[str, str]) -> None:
        """Replace the settings of a group, and append them to the ``__consumer_offsets`` log.

        Raises:
            BrokerError: the group ID is empty (``INVALID_REQUEST``), or see ``check``.
        """
        if not group_id:
            raise BrokerError("Group name must not be empty.", code=ErrorCode.INVALID_REQUEST)
        self.check(given)
        before = self.given(group_id)
        self._put(group_id, given)
        value = configs_value(given) if given else None
        self.effects.append(Persist(configs_key(group_id), value, undo=lambda: self._put(group_id, before)))

    def load(self, group_id: str, value: bytes | None) -> None:
        """Apply a record of the log."""
        self._put(group_id, {} if value is None else read_configs(value))

    def _put(self, group_id: str, given: Mapping[str, str]) -> None:
        if given:
            self._given[group_id] = dict(given)
        else:
            self._given.pop(group_id, None)

    def _default(self, name: str) -> int:
        default: int = getattr(self.defaults, _setting(name).attribute)
        return default


def _setting(name: str) -> WholeNumber:
    return NUMBERS[f"group.{name}"]
