"""The settings of a broker that concern groups, under the names of Kafka.

Of the other packages, this module imports only ``core``.
"""

from itertools import pairwise

from attrs import frozen

from streams.core.errors import ConfigError
from streams.core.settings.setting import check, number


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
        for setting, *values in (
            ("group.{}session.timeout.ms", self.min_session_timeout_ms, self.max_session_timeout_ms),
            (
                "group.consumer.{}session.timeout.ms",
                self.consumer_min_session_timeout_ms,
                self.consumer_session_timeout_ms,
                self.consumer_max_session_timeout_ms,
            ),
            (
                "group.consumer.{}heartbeat.interval.ms",
                self.consumer_min_heartbeat_interval_ms,
                self.consumer_heartbeat_interval_ms,
                self.consumer_max_heartbeat_interval_ms,
            ),
            (
                "group.streams.{}session.timeout.ms",
                self.streams_min_session_timeout_ms,
                self.streams_session_timeout_ms,
                self.streams_max_session_timeout_ms,
            ),
            (
                "group.streams.{}heartbeat.interval.ms",
                self.streams_min_heartbeat_interval_ms,
                self.streams_heartbeat_interval_ms,
                self.streams_max_heartbeat_interval_ms,
            ),
        ):
            bounds = ("min.", "", "max.") if len(values) == 3 else ("min.", "max.")
            for (lower, low), (upper, high) in pairwise(zip(map(setting.format, bounds), values, strict=True)):
                if low > high:
                    raise ConfigError(f"{lower}={low}: expected at most {upper}, which is {high}")

    def allows_session(self, timeout_ms: int) -> bool:
        """Whether a session timeout is within the bounds."""
        return self.min_session_timeout_ms <= timeout_ms <= self.max_session_timeout_ms
