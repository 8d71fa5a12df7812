"""Settings of single groups, as Kafka's tools set them for the resource type ``GROUP`` (KIP-848, KIP-1071).

They outlive the group.  A group without a setting has that of ``CoordinatorConfig``.  This module performs no I/O.
"""

from collections.abc import Mapping
from typing import Final

from attrs import define, field, frozen

from streams.core.errors import BrokerError
from streams.group.effects import Effect, Persist
from streams.group.offsets import configs_key, configs_value, read_configs
from streams.group.states import CoordinatorConfig
from streams.protocol.error_codes import ErrorCode


@frozen
class _Setting:
    """A setting of a group: the attribute of ``CoordinatorConfig`` with its default, and its lowest value."""

    attribute: str
    lowest: int


_SETTINGS: Final[Mapping[str, _Setting]] = {
    "consumer.assignment.interval.ms": _Setting("consumer_assignment_interval_ms", 0),
    "consumer.heartbeat.interval.ms": _Setting("consumer_heartbeat_interval_ms", 1),
    "consumer.session.timeout.ms": _Setting("consumer_session_timeout_ms", 1),
    "streams.assignment.interval.ms": _Setting("streams_assignment_interval_ms", 0),
    "streams.heartbeat.interval.ms": _Setting("streams_heartbeat_interval_ms", 1),
    "streams.initial.rebalance.delay.ms": _Setting("streams_initial_rebalance_delay_ms", 0),
    "streams.num.standby.replicas": _Setting("streams_num_standby_replicas", 0),
    "streams.session.timeout.ms": _Setting("streams_session_timeout_ms", 1),
}
_HIGHEST: Final = 2**31 - 1


@define(eq=False)
class GroupConfigs:
    """The settings of all groups that have any."""

    defaults: CoordinatorConfig
    effects: list[Effect]
    _given: dict[str, Mapping[str, str]] = field(factory=dict)

    def value(self, group_id: str, name: str) -> int:
        """Return a setting of a group; all are whole numbers."""
        given = self._given.get(group_id, {}).get(name)
        return self._default(name) if given is None else int(given)

    def assignment_delay_ms(self, kind: str, group_id: str, assigned_ms: int | None, now_ms: int) -> int:
        """Return in how many milliseconds a group may be assigned again (KIP-1263).

        ``kind`` is ``consumer`` or ``streams``; ``assigned_ms`` is when the group was last assigned, if it was.
        """
        if assigned_ms is None:
            return 0
        return max(0, assigned_ms + self.value(group_id, f"{kind}.assignment.interval.ms") - now_ms)

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
        return {name: str(self.value(group_id, name)) for name in _SETTINGS}

    @staticmethod
    def check(given: Mapping[str, str]) -> None:
        """Check settings.

        Raises:
            BrokerError: a setting is unknown, or its value is invalid (``INVALID_CONFIG``).
        """
        for name, value in given.items():
            setting = _SETTINGS.get(name)
            if setting is None:
                raise BrokerError(
                    f"groups have no setting {name}: they have {', '.join(_SETTINGS)}", code=ErrorCode.INVALID_CONFIG
                )
            is_number = value.isascii() and value.isdigit()
            if not is_number or not setting.lowest <= int(value) <= _HIGHEST:
                raise BrokerError(
                    f"Invalid value {value} for configuration {name}: must be a whole number of at least "
                    f"{setting.lowest}, and at most {_HIGHEST}",
                    code=ErrorCode.INVALID_CONFIG,
                )

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
        default: int = getattr(self.defaults, _SETTINGS[name].attribute)
        return default
