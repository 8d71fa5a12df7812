"""Settings of single groups, as Kafka's tools set them for the resource type ``GROUP`` (KIP-848, KIP-1071).

They outlive the group.  A group without a setting has that of ``CoordinatorConfig``.  This module performs no I/O.
"""

from collections.abc import Mapping
from typing import ClassVar

from attrs import define, field

from streams.core.errors import BrokerError
from streams.core.settings.setting import Setting, kafka_table, texts_of, with_texts
from streams.group.state.coordinator_config import CoordinatorConfig
from streams.group.state.effects import Effect, Persist
from streams.group.state.offsets import configs_key, configs_value, read_configs
from streams.group.state.states import AnyEpochGroup
from streams.protocol.error_codes import ErrorCode


@define(eq=False)
class GroupConfigs:
    """The settings of all groups that have any."""

    #: What groups may set; the broker's settings of these names with ``group.`` before them are the defaults.
    table: ClassVar[Mapping[str, Setting]] = {
        name.removeprefix("group."): row
        for name, row in kafka_table(CoordinatorConfig).items()
        if name.startswith(("group.consumer.", "group.streams.")) and not {"min", "max"} & {*name.split(".")}
    }
    defaults: CoordinatorConfig
    effects: list[Effect]
    _texts: dict[str, Mapping[str, str]] = field(factory=dict)

    def of(self, group_id: str) -> CoordinatorConfig:
        """Return the settings of a group."""
        texts = self._texts.get(group_id)
        return self.defaults if texts is None else with_texts(self.defaults, texts, self.table, "groups")

    def assignment_delay_ms(self, kind: str, group_id: str, group: AnyEpochGroup, now_ms: int) -> int:
        """Return for how many milliseconds a group waits that has changed since it was assigned (KIP-1263), or 0.

        ``kind`` is ``consumer`` or ``streams``.
        """
        if group.assigned_ms is None or group.epoch == group.assignment_epoch:
            return 0
        interval_ms: int = getattr(self.of(group_id), f"{kind}_assignment_interval_ms")
        return max(0, group.assigned_ms + interval_ms - now_ms)

    def heartbeat_interval_ms(self, kind: str, group_id: str, delay_ms: int) -> int:
        """Return when a member has to send its next heartbeat: sooner, if the group is assigned in ``delay_ms``."""
        interval_ms: int = getattr(self.of(group_id), f"{kind}_heartbeat_interval_ms")
        return min(interval_ms, delay_ms) if delay_ms else interval_ms

    def session_timeout_ms(self, kind: str, group_id: str) -> int:
        """Return after how many milliseconds without a heartbeat a member is removed."""
        timeout_ms: int = getattr(self.of(group_id), f"{kind}_session_timeout_ms")
        return timeout_ms

    def groups(self) -> list[str]:
        """Return the IDs of the groups that have settings of their own."""
        return list(self._texts)

    def own(self, group_id: str) -> Mapping[str, str]:
        """Return the settings that were set for a group."""
        return self._texts.get(group_id, {})

    def shown(self, group_id: str) -> dict[str, str]:
        """Return all settings of a group as texts."""
        texts = texts_of(self.of(group_id))
        return {name: texts[row.kafka_name] for name, row in self.table.items()}

    def check(self, texts: Mapping[str, str]) -> None:
        """Check settings.

        Raises:
            ConfigError: a setting is unknown, or its value is invalid.
        """
        with_texts(self.defaults, texts, self.table, "groups")

    def alter(self, group_id: str, texts: Mapping[str, str]) -> None:
        """Replace the settings of a group, and append them to the ``__consumer_offsets`` log.

        Raises:
            BrokerError: the group ID is empty (``INVALID_REQUEST``).
            ConfigError: see ``check``.
        """
        if not group_id:
            raise BrokerError("Group name must not be empty.", code=ErrorCode.INVALID_REQUEST)
        self.check(texts)
        before = self.own(group_id)
        self._put(group_id, texts)
        value = configs_value(texts) if texts else None
        self.effects.append(Persist(configs_key(group_id), value, undo=lambda: self._put(group_id, before)))

    def load(self, group_id: str, value: bytes | None) -> None:
        """Apply a record of the log."""
        self._put(group_id, {} if value is None else read_configs(value))

    def _put(self, group_id: str, texts: Mapping[str, str]) -> None:
        if texts:
            self._texts[group_id] = dict(texts)
        else:
            self._texts.pop(group_id, None)
