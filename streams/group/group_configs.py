"""Settings of single groups, as Kafka's tools set them for the resource type ``GROUP`` (KIP-848, KIP-1071, KIP-932).

They outlive the group.  A group without a setting has that of ``CoordinatorConfig``.  This module performs no I/O.
"""

from collections.abc import Callable, Mapping
from typing import Final

from attrs import define, field, frozen

from streams.core.errors import BrokerError, ConfigError
from streams.core.offset_reset import EARLIEST, LATEST, is_duration
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
    "share.assignment.interval.ms",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.session.timeout.ms",
    "streams.acceptable.recovery.lag",
    "streams.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
    "streams.session.timeout.ms",
    "streams.task.offset.interval.ms",
)

READ_COMMITTED_WORD: Final = "read_committed"


def _reset(text: str) -> str:
    return text if text in (LATEST, EARLIEST) or is_duration(text) else ""


@frozen
class _Word:
    """A setting that is not a number: its default, what it may be, and a check that returns "" if it is not."""

    default: str
    expected: str
    check: Callable[[str], str]


def _one_of(*words: str) -> _Word:
    return _Word(words[0], f"one of {', '.join(words)}", lambda text: text if text in words else "")


#: Settings of groups that brokers do not have.
_WORDS: Final[Mapping[str, _Word]] = {
    "share.auto.offset.reset": _Word(
        LATEST, f"{LATEST}, {EARLIEST}, or by_duration: and a duration such as PT1H", _reset
    ),
    "share.isolation.level": _one_of("read_uncommitted", READ_COMMITTED_WORD),
    "share.renew.acknowledge.enable": _one_of("true", "false"),
}


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

    def word(self, group_id: str, name: str) -> str:
        """Return a setting of a group that is not a number."""
        return self._given.get(group_id, {}).get(name, _WORDS[name].default)

    def assignment_delay_ms(self, kind: str, group_id: str, group: ModernGroup, now_ms: int) -> int:
        """Return for how many milliseconds a group waits that has changed since it was assigned (KIP-1263), or 0.

        ``kind`` is ``consumer``, ``streams`` or ``share``.
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
        numbers = {name: str(self.value(group_id, name)) for name in _NAMES}
        return numbers | {name: self.word(group_id, name) for name in _WORDS}

    @staticmethod
    def check(given: Mapping[str, str]) -> None:
        """Check settings.

        Raises:
            BrokerError: a setting is unknown, or its value is invalid (``INVALID_CONFIG``).
        """
        for name, value in given.items():
            if name in _WORDS:
                if not _WORDS[name].check(value):
                    raise BrokerError(
                        f"Invalid value {value} for configuration {name}: must be {_WORDS[name].expected}",
                        code=ErrorCode.INVALID_CONFIG,
                    )
                continue
            if name not in _NAMES:
                raise BrokerError(
                    f"groups have no setting {name}: they have {', '.join([*_NAMES, *_WORDS])}",
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
