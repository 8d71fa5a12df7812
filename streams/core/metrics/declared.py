"""Declarations of metrics: recording levels, scopes, statistics, and sensors.

A sensor records one quantity at one place, such as the commits of a thread; its metrics are statistics of that
quantity. ``table`` declares every sensor once.
This module contains only declarations, and imports no other module of the package.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum

from attrs import field, frozen


class RecordingLevel(IntEnum):
    """Recording levels, as in Kafka; a sensor is recorded if its level is not above the configured level.

    With ``OFF``, only sensors whose own level is OFF are recorded; this is for measuring the overhead of recording.
    """

    OFF = -1
    INFO = 0
    DEBUG = 1
    TRACE = 2

    @classmethod
    def of(cls, setting: str) -> "RecordingLevel":
        """Return the level of the setting ``metrics_recording_level``."""
        return cls[setting.upper()]


#: The tags, with the attributes of ``MetricPlace`` that have their values.
ATTRIBUTES: Mapping[str, str] = {
    "client-id": "client",
    "thread-id": "thread",
    "task-id": "task",
    "processor-node-id": "node",
    "reason": "reason",
    "less-than-ms": "reason",
    "topic": "topic",
    "partition": "partition",
    "record-cache-id": "store",
    "state-id": "store",
}


class Scope(Enum):
    """The scope of a sensor: the group and the tags of its metrics, named as in Kafka Streams (KIP-444)."""

    CLIENT = ("stream-metrics", ("client-id",))
    THREAD = ("stream-thread-metrics", ("thread-id",))
    #: The restores and standby tasks of a thread (KIP-869).
    UPDATER = ("stream-state-updater-metrics", ("thread-id",))
    TASK = ("stream-task-metrics", ("thread-id", "task-id"))
    #: One input partition of a task; Kafka Streams has no such scope.
    INPUT = ("stream-task-metrics", ("thread-id", "task-id", "topic", "partition"))
    #: Keys of one input partition that one partitioner explains; Kafka Streams has no such scope.
    KEYS = ("stream-task-metrics", ("thread-id", "task-id", "topic", "partition", "reason"))
    NODE = ("stream-processor-node-metrics", ("thread-id", "task-id", "processor-node-id"))
    #: Records dropped at one node for one reason; Kafka Streams has no such scope.
    DROPS = ("stream-processor-node-metrics", ("thread-id", "task-id", "processor-node-id", "reason"))
    #: Records that one node dropped as late by less than a time; Kafka Streams has no such scope.
    LATENESS = ("stream-processor-node-metrics", ("thread-id", "task-id", "processor-node-id", "less-than-ms"))
    TOPIC = ("stream-topic-metrics", ("thread-id", "task-id", "processor-node-id", "topic"))
    #: The name of the last tag is prefixed with the type of the store, such as ``rocksdb-state-id``.
    STORE = ("stream-state-metrics", ("thread-id", "task-id", "state-id"))
    #: A consumer, and its group membership; a producer.
    FETCH = ("consumer-fetch-manager-metrics", ("client-id",))
    COORDINATOR = ("consumer-coordinator-metrics", ("client-id",))
    PRODUCER = ("producer-metrics", ("client-id",))
    CACHE = ("stream-record-cache-metrics", ("thread-id", "task-id", "record-cache-id"))

    @property
    def group(self) -> str:
        """The metric group, such as ``stream-task-metrics``."""
        return str(self.value[0])

    @property
    def domain(self) -> str:
        """The JMX domain of the group in Kafka, such as ``kafka.streams`` or ``kafka.consumer``."""
        first = self.group.partition("-")[0]
        return f"kafka.{first}" if first in ("consumer", "producer") else "kafka.streams"

    @property
    def tags(self) -> tuple[str, ...]:
        """The names of the tags that metrics of this scope have."""
        return tuple(self.value[1])

    @property
    def attributes(self) -> list[str]:
        """The attributes of ``MetricPlace`` that contain the values of the tags, in the same order."""
        return [ATTRIBUTES[tag] for tag in self.tags]


def telemetry_name(scope: Scope, name: str) -> str:
    """Return the name under which a metric is pushed and exported: ``org.apache.kafka.`` + group + name (KIP-714)."""
    return f"org.apache.kafka.{scope.group.removesuffix('-metrics')}.{name}".replace("-", ".")


class Stat(Enum):
    """The statistic of the recorded quantity that a metric shows.

    TOTAL and SUM are since the start; RATE, AVG, MIN, MAX, RATIO and the percentiles are over the last one to two
    sample windows; VALUE and TEXT are current values.
    """

    TOTAL = "count of events"
    SUM = "sum of amounts"
    RATE = "events per second"
    AVG = "amount per event"
    MIN = "smallest amount"
    MAX = "largest amount"
    P50 = "median amount"
    P99 = "amount that 99 % of the events do not exceed"
    RATIO = "share of the time, if amounts are nanoseconds"
    VALUE = "current value"
    TEXT = "current value, a text"


@frozen(eq=False)
class MetricSpec:
    """One declared metric; ``unit`` is the unit of its value ("" for a count), and ``scale`` converts to that unit."""

    name: str
    stat: Stat
    description: str
    unit: str = ""
    scale: float = 1


@frozen(eq=False)
class SensorSpec:
    """A declared sensor with its metrics.

    ``origin`` is the KIP that defines the sensor, or "" if Kafka Streams does not have the sensor.
    """

    scope: Scope
    level: RecordingLevel
    metrics: tuple[MetricSpec, ...]
    origin: str = field(kw_only=True)

    def metric(self, stat: Stat) -> MetricSpec:
        """Return the metric of the sensor that shows a statistic."""
        return next(metric for metric in self.metrics if metric.stat is stat)

    @property
    def has_percentiles(self) -> bool:
        """Whether any metric of the sensor is a percentile."""
        return any(metric.stat in (Stat.P50, Stat.P99) for metric in self.metrics)


def counted(name: str, what: str) -> tuple[MetricSpec, ...]:
    """Declare the metrics of counted events: rate and total."""
    return (
        MetricSpec(f"{name}-rate", Stat.RATE, f"{what} per second", "1/s"),
        MetricSpec(f"{name}-total", Stat.TOTAL, f"{what} in total"),
    )


_WORDS = {
    Stat.AVG: ("avg", "average"),
    Stat.MIN: ("min", "smallest"),
    Stat.MAX: ("max", "largest"),
    Stat.P50: ("p50", "median"),
    Stat.P99: ("p99", "99th percentile of the"),
}


def spread(name: str, what: str, stats: Iterable[Stat], unit: str = "", scale: float = 1) -> tuple[MetricSpec, ...]:
    """Declare the metrics of a recorded amount, one for each of ``stats``, such as average and maximum."""
    return tuple(
        MetricSpec(f"{name}-{_WORDS[stat][0]}", stat, f"{_WORDS[stat][1]} {what}", unit, scale) for stat in stats
    )


def value(name: str, description: str, unit: str = "") -> tuple[MetricSpec]:
    """Declare the metric of a current value."""
    return (MetricSpec(name, Stat.VALUE, description, unit),)
