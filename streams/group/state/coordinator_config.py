"""The settings of a broker that concern groups, under the names of Kafka.

Of the other packages, this module imports only ``core``.
"""

from collections.abc import Mapping
from itertools import product
from typing import Final

from attrs import frozen

from streams.core.errors import ConfigError
from streams.core.settings.setting import INT_MAX, check, number

#: The settings of groups that brokers bound, by protocol.
_BOUNDED: Final = tuple(product(("consumer", "streams"), ("session_timeout_ms", "heartbeat_interval_ms")))


@frozen
class CoordinatorConfig:
    """Bounds and delays for groups, with defaults for an in-process coordinator.

    Those that begin with ``consumer`` concern groups of KIP-848, those with ``streams`` groups of KIP-1071; a single
    group may have others.  Each attribute is a setting of Kafka's brokers: ``consumer_session_timeout_ms`` is
    ``group.consumer.session.timeout.ms``, ``min_session_timeout_ms`` is ``group.min.session.timeout.ms``.  Kafka's
    default of the delays before a rebalance is 3000, that of the intervals between assignments 1000 (KIP-1263); other
    defaults are Kafka's.

    Raises:
        ConfigError: a value is too low or too high.
    """

    min_session_timeout_ms: int = number(
        "group.min.session.timeout.ms", 6_000, "ms", "Shortest session that a member may ask for."
    )
    max_session_timeout_ms: int = number(
        "group.max.session.timeout.ms", 1_800_000, "ms", "Longest session that a member may ask for.", minimum=1
    )
    initial_rebalance_delay_ms: int = number(
        "group.initial.rebalance.delay.ms",
        0,
        "ms",
        "How long the first join phase lasts, so that more members can join.",
    )
    offset_metadata_max_bytes: int = number(
        "offset.metadata.max.bytes", 4096, "bytes", "Largest text that may be committed with an offset."
    )
    consumer_session_timeout_ms: int = number(
        "group.consumer.session.timeout.ms", 45_000, "ms", "Time without heartbeats that removes a member.", minimum=1
    )
    consumer_heartbeat_interval_ms: int = number(
        "group.consumer.heartbeat.interval.ms", 5_000, "ms", "How often members send heartbeats.", minimum=1
    )
    consumer_min_session_timeout_ms: int = number(
        "group.consumer.min.session.timeout.ms", 45_000, "ms", "Shortest session of a group.", minimum=1
    )
    consumer_max_session_timeout_ms: int = number(
        "group.consumer.max.session.timeout.ms", 60_000, "ms", "Longest session of a group.", minimum=1
    )
    consumer_min_heartbeat_interval_ms: int = number(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        "ms",
        "Shortest interval of heartbeats of a group.",
        minimum=1,
    )
    consumer_max_heartbeat_interval_ms: int = number(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "ms",
        "Longest interval of heartbeats of a group.",
        minimum=1,
    )
    consumer_assignment_interval_ms: int = number(
        "group.consumer.assignment.interval.ms", 0, "ms", "Least time between assignments (KIP-1263)."
    )
    streams_session_timeout_ms: int = number(
        "group.streams.session.timeout.ms", 45_000, "ms", "Time without heartbeats that removes a member.", minimum=1
    )
    streams_heartbeat_interval_ms: int = number(
        "group.streams.heartbeat.interval.ms", 5_000, "ms", "How often members send heartbeats.", minimum=1
    )
    streams_min_session_timeout_ms: int = number(
        "group.streams.min.session.timeout.ms", 45_000, "ms", "Shortest session of a group.", minimum=1
    )
    streams_max_session_timeout_ms: int = number(
        "group.streams.max.session.timeout.ms", 60_000, "ms", "Longest session of a group.", minimum=1
    )
    streams_min_heartbeat_interval_ms: int = number(
        "group.streams.min.heartbeat.interval.ms", 5_000, "ms", "Shortest interval of heartbeats of a group.", minimum=1
    )
    streams_max_heartbeat_interval_ms: int = number(
        "group.streams.max.heartbeat.interval.ms", 15_000, "ms", "Longest interval of heartbeats of a group.", minimum=1
    )
    streams_assignment_interval_ms: int = number(
        "group.streams.assignment.interval.ms", 0, "ms", "Least time between assignments (KIP-1263)."
    )
    streams_initial_rebalance_delay_ms: int = number(
        "group.streams.initial.rebalance.delay.ms", 0, "ms", "How long the first assignment waits."
    )
    streams_num_standby_replicas: int = number(
        "group.streams.num.standby.replicas", 0, "replicas", "Standby replicas of each store."
    )
    streams_task_offset_interval_ms: int = number(
        "group.streams.task.offset.interval.ms", 60_000, "ms", "How often offsets are reported.", minimum=1
    )
    streams_acceptable_recovery_lag: int = number(
        "group.streams.acceptable.recovery.lag", 10_000, "records", "Lag at which a task has caught up."
    )

    def __attrs_post_init__(self) -> None:
        check(self)
        self._check_order("min_session_timeout_ms", "max_session_timeout_ms")
        for kind, name in _BOUNDED:
            self._check_order(f"{kind}_min_{name}", f"{kind}_{name}")
            self._check_order(f"{kind}_{name}", f"{kind}_max_{name}")

    def _check_order(self, lower: str, upper: str) -> None:
        if getattr(self, lower) > getattr(self, upper):
            low, high = (f"group.{name.replace('_', '.')}" for name in (lower, upper))
            raise ConfigError(f"{low}={getattr(self, lower)}: expected at most {high}, which is {getattr(self, upper)}")

    def allows_session(self, timeout_ms: int) -> bool:
        """Whether a session timeout is within the bounds."""
        return self.min_session_timeout_ms <= timeout_ms <= self.max_session_timeout_ms


#: Bounds for tests and simulations, which have sessions and heartbeats of any length.
ANY_LENGTH: Final[Mapping[str, int]] = {"min_session_timeout_ms": 1} | {
    f"{kind}_{bound}_{name}": limit for kind, name in _BOUNDED for bound, limit in (("min", 1), ("max", INT_MAX))
}
