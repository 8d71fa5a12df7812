"""All metrics of an instance: sensors by declaration and place, and current values that are read on collection.

The thread that runs a task owns the sensors of the task and records without a lock; readers on other threads see
recent values. This module imports only other modules of ``core``.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from attrs import define, field, frozen

from streams.core.blocks.records import TaskId
from streams.core.clock import Clock, SystemClock
from streams.core.concurrency.threads import copied
from streams.core.metrics.declared import (
    ATTRIBUTES,
    MetricSpec,
    RecordingLevel,
    Scope,
    SensorSpec,
    Stat,
    telemetry_name,
)
from streams.core.metrics.drops import MISPLACED, Dropped, Tally, dropped
from streams.core.metrics.failures import LastFailures
from streams.core.metrics.reasons import DropReason
from streams.core.metrics.sensors import Amounts, Counter, Sensor, Stopwatch
from streams.core.metrics.table import (
    DEAD_LETTERS_FOR,
    DISORDER,
    DROPPED,
    DROPPED_FOR,
    KEYS_MISPLACED,
    KEYS_SAMPLED,
    LATE,
    PROCESSED,
    SENSORS,
)
from streams.core.notices import Notices

Value: TypeAlias = int | float | str


class MetricPlace(NamedTuple):
    """The values of a sensor's tags, such as thread, task and node; "" or None for tags that it does not have."""

    thread: str = ""
    task: TaskId | None = None
    node: str = ""
    reason: str = ""
    topic: str = ""
    partition: int | None = None
    store: str = ""
    #: The type of the store as in the name of its tag, such as ``rocksdb-window``.
    store_type: str = ""
    client: str = ""

    def tags(self, scope: Scope) -> dict[str, str]:
        """Return the tags of a scope with their values at this place."""
        prefix = f"{self.store_type}-" if scope is Scope.STORE and self.store_type else ""
        return {
            f"{prefix}{tag}" if tag == "state-id" else tag: str(getattr(self, ATTRIBUTES[tag])) for tag in scope.tags
        }


#: A current value, which is read when metrics are collected.
Reading: TypeAlias = tuple[SensorSpec, MetricPlace, Value | None]
#: Returns current values at a wall-clock time; it is called from any thread and must have no side effects.
Watch: TypeAlias = Callable[[int], Iterable[Reading]]


@frozen
class Metric:
    """A metric with its current value; ``name``, ``group`` and ``tags`` are those of Kafka Streams."""

    spec: MetricSpec
    scope: Scope
    tags: Mapping[str, str]
    value: Value

    @property
    def name(self) -> str:
        """The name of the metric, such as ``process-rate``."""
        return self.spec.name

    @property
    def group(self) -> str:
        """The group of the metric, such as ``stream-thread-metrics``."""
        return self.scope.group

    @property
    def telemetry_name(self) -> str:
        """The name under which the metric is exported, which is that of KIP-714."""
        return telemetry_name(self.scope, self.name)


@define(eq=False)
class _Shared:
    """The state shared by a registry and its views for single threads."""

    sensors: dict[tuple[SensorSpec, MetricPlace], Counter | Amounts] = field(factory=dict)
    watches: dict[str, Watch] = field(factory=dict)
    examples: dict[tuple[str, str], str] = field(factory=dict)
    failures: LastFailures = field(factory=LastFailures)
    notices: Notices = field(factory=Notices)
    #: Threads, and tasks of threads, that are closed: their totals are kept, but no longer exported.
    closed: set[tuple[str, TaskId | None]] = field(factory=set)
    next_roll_ms: int = 0
    lock: threading.Lock = field(factory=threading.Lock)


@define(eq=False, repr=False)
class Metrics:
    """All metrics of an instance, or of one of its threads.

    As a mapping, it maps each metric name to the result of ``get``.

    >>> metrics = Metrics()
    >>> metrics.counter(PROCESSED, task=TaskId(0, 0)).add(2)
    >>> metrics.drop(DropReason.NULL_KEY, task=TaskId(0, 0), node="filter")
    >>> metrics.get("process-total", task="0_0"), metrics.get("dropped-records", node="filter")
    (2, 1)
    """

    clock: Clock = field(factory=SystemClock)
    level: RecordingLevel = RecordingLevel.INFO
    #: Length of a sample window in milliseconds.
    window_ms: int = 30_000
    #: The thread whose sensors ``counter`` and ``amounts`` return, or "".
    thread: str = ""
    _shared: _Shared = field(factory=_Shared, repr=False)
    #: Called with task, node, reason and example of every drop, on the thread of the task; may be None.
    on_drop: Callable[[TaskId, str, DropReason, str], None] | None = None

    def of_thread(self, name: str) -> "Metrics":
        """Return a view of the same registry, through which a thread records its own metrics."""
        self._shared.closed.discard((name, None))
        return Metrics(self.clock, self.level, self.window_ms, name, self._shared)

    # --- recording ------------------------------------------------------------------------

    def records(self, spec: SensorSpec) -> bool:
        """Whether sensors with this declaration are recorded at the current recording level."""
        return spec.level <= self.level

    def counter(self, spec: SensorSpec, **place: Any) -> Counter:
        """Return a counter, which is created on first use. Look it up once and keep the reference.

        ``place`` has attributes of ``MetricPlace`` except the thread. A counter above the recording level is not
        registered.
        """
        key = spec, MetricPlace(self.thread, **place)
        counter = self._shared.sensors.get(key)
        if counter is None:
            counter = Counter.since(self.clock.monotonic_ms())
            if not self.records(spec):
                return counter
            # setdefault is atomic, in case two threads create the counter.
            counter = self._shared.sensors.setdefault(key, counter)
        assert isinstance(counter, Counter)
        return counter

    def amounts(self, spec: SensorSpec, **place: Any) -> Amounts:
        """Return a sensor of amounts, which is created on first use, in the same way as ``counter``."""
        key = spec, MetricPlace(self.thread, **place)
        amounts = self._shared.sensors.get(key)
        if amounts is None:
            amounts = Amounts.since(self.clock.monotonic_ms(), has_percentiles=spec.has_percentiles)
            if not self.records(spec):
                return amounts
            amounts = self._shared.sensors.setdefault(key, amounts)
        assert isinstance(amounts, Amounts)
        return amounts

    def stopwatch(self, spec: SensorSpec, **place: Any) -> Stopwatch:
        """Return a stopwatch for a sensor; each ``with`` block of the stopwatch records one duration."""
        return Stopwatch(self.amounts(spec, **place), self.clock.monotonic_ns)

    def drop(
        self,
        reason: DropReason,
        count: int = 1,
        *,
        task: TaskId,
        node: str,
        example: str = "",
        error: str = "",
        has_letter: bool = False,
    ) -> None:
        """Count dropped records; ``example`` describes a record, and only the first example is kept.

        ``error`` is the class of the error for which a handler dropped the records; each class is counted separately.
        With ``has_letter``, the records are counted as dead letters too.
        """
        tag = f"{reason}, {error}" if error else reason
        self.counter(DROPPED, task=task).value += count
        self.counter(DROPPED_FOR, task=task, node=node, reason=tag).value += count
        if has_letter:
            self.counter(DEAD_LETTERS_FOR, task=task, node=node, reason=tag).value += count
        if example:
            self._shared.examples.setdefault((node, tag), example)
        if self.on_drop is not None:
            self.on_drop(task, node, reason, example)

    def note_misplaced(self, topic: str, example: str) -> None:
        """Keep a text that tells of a misplaced key of a topic, and of what explains it; only the first is kept."""
        self._shared.examples.setdefault((topic, MISPLACED), example)

    def watch(self, watch: Watch) -> None:
        """Register the function that returns current values of this thread, or of the instance, at each collection."""
        self._shared.watches[self.thread] = watch

    def open(self, task: TaskId) -> None:
        """Export the metrics of a task of this thread again, if they were closed before."""
        self._shared.closed.discard((self.thread, task))

    def close(self, task: TaskId | None = None) -> None:
        """Stop exporting the metrics of a task of this thread, or of the thread itself; totals are kept."""
        self._shared.closed.add((self.thread, task))
        if task is None:
            self._shared.watches.pop(self.thread, None)

    def roll(self, now_ms: int) -> None:
        """End the current sample window if its time is over; ``now_ms`` is monotonic time."""
        shared = self._shared
        if now_ms < shared.next_roll_ms:
            return
        with shared.lock:
            if now_ms < shared.next_roll_ms:
                return
            is_first = not shared.next_roll_ms
            shared.next_roll_ms = now_ms + self.window_ms
            if not is_first:
                for sensor in list(shared.sensors.values()):
                    sensor.roll(now_ms)

    # --- reading --------------------------------------------------------------------------

    def collect(self) -> list[Metric]:
        """Return all metrics that currently have a value, except those of closed tasks and threads.

        This is thread-safe, and never waits for a thread of the application.
        """
        now_ms = self.clock.monotonic_ms()
        self.roll(now_ms)
        shared = self._shared
        result = []
        for (spec, place), sensor in copied(shared.sensors).items():
            if (place.thread, None) not in shared.closed and (place.thread, place.task) not in shared.closed:
                tags = place.tags(spec.scope)
                result += [
                    Metric(metric, spec.scope, tags, reading)
                    for metric in spec.metrics
                    if (reading := _read(metric, sensor, now_ms)) is not None
                ]
        result += [
            Metric(spec.metrics[0], spec.scope, place.tags(spec.scope), reading)
            for spec, place, reading in self._readings()
            if reading is not None
        ]
        return result

    @property
    def failures(self) -> LastFailures:
        """The last failures in user code and of stream threads."""
        return self._shared.failures

    @property
    def notices(self) -> Notices:
        """The lines of the log about what goes on in the instance."""
        return self._shared.notices

    def sensors(self) -> list[tuple[SensorSpec, MetricPlace, Counter | Amounts]]:
        """Return all sensors, including those of closed tasks and threads, so that totals never decrease."""
        return [(spec, place, sensor) for (spec, place), sensor in copied(self._shared.sensors).items()]

    def get(self, name: str, **place: Any) -> Any:
        """Return the value of a metric, given its name, such as ``process-total``, and optionally its place.

        The name of a sensor that counts, such as ``dropped-records``, is short for its total.
        ``place`` has attributes of ``MetricPlace``, for example ``task="0_0"``: ``thread``, ``task``, ``node``,
        ``reason``, ``topic``, ``partition``, ``store``, ``client``. If several places match, the result is the sum of
        their values; for averages, ratios, percentiles and maxima it is the largest value, for minima the smallest.
        The result is 0 if nothing was recorded. Totals include closed tasks.

        Some names are kept for several scopes: ``process-total`` for a thread, a task and a node.  The values are those
        of the scope with the fewest tags that has ``place``; those of the clients of an application are only taken if
        no other scope has the name.

        Raises:
            KeyError: no metric has this name, or its scopes do not have these attributes.
        """
        if name in _COUNTING:
            name = f"{name}-total"
        specs = _specs_of(name, place)
        now_ms = self.clock.monotonic_ms()
        self.roll(now_ms)
        for spec in specs:
            metric = next(metric for metric in spec.metrics if metric.name == name)
            values = list(self._values(spec, metric, place, now_ms))
            if values:
                if isinstance(values[0], str):
                    return values[0]
                is_peak = metric.stat in (Stat.AVG, Stat.MAX, Stat.P50, Stat.P99, Stat.RATIO)
                return max(values) if is_peak else min(values) if metric.stat is Stat.MIN else sum(values)
        return 0

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(metric.name for metric in self.collect()))

    def keys(self) -> list[str]:
        """Return the names of the metrics that have a value."""
        return list(self)

    def __repr__(self) -> str:
        rows = [
            (metric.name, " ".join(f"{tag}={text}" for tag, text in metric.tags.items()), _shown(metric.value))
            for metric in sorted(self.collect(), key=lambda metric: (metric.group, str(metric.tags), metric.name))
        ]
        widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 2)]
        return "\n".join(f"{name:{widths[0]}}  {reading:>{widths[1]}}  {tags}" for name, tags, reading in rows)

    def drops(self) -> list[Dropped]:
        """Return the numbers of dropped records by node and reason."""
        return dropped(self.tallies(), self.examples())

    def examples(self) -> dict[tuple[str, str], str]:
        """Return a description of the first dropped record by (node, reason), and of misplaced keys by topic."""
        return copied(self._shared.examples)

    def tallies(self) -> dict[Tally, int]:
        """Return the counts that a run reports: processed, dropped and late records, misplaced keys, disorder."""
        result: dict[Tally, int] = {}
        for (spec, place), sensor in copied(self._shared.sensors).items():
            if spec is DROPPED_FOR or spec is LATE:
                tally = Tally(spec.metric(Stat.TOTAL).name, place.node, place.reason)
            elif spec is DISORDER:
                tally = Tally(DISORDER.metric(Stat.VALUE).name, place.topic)
            elif spec is KEYS_MISPLACED or spec is KEYS_SAMPLED:
                tally = Tally(spec.metric(Stat.TOTAL).name, place.topic, place.reason)
            elif spec is PROCESSED and place.task is not None:
                tally = Tally(PROCESSED.metric(Stat.TOTAL).name, str(place.task.sub_topology))
            else:
                continue
            assert isinstance(sensor, Counter)
            if sensor.value:
                result[tally] = tally.merged(result.get(tally, 0), sensor.value)
        return result

    def processed(self) -> dict[TaskId, int]:
        """Return the numbers of records that tasks have processed."""
        result: dict[TaskId, int] = {}
        for (spec, place), sensor in copied(self._shared.sensors).items():
            if spec is PROCESSED and place.task is not None and isinstance(sensor, Counter):
                result[place.task] = result.get(place.task, 0) + sensor.value
        return result

    def _readings(self) -> Iterator[Reading]:
        now_ms = self.clock.now_ms()
        for watch in list(self._shared.watches.values()):
            for reading in watch(now_ms):
                if self.records(reading[0]):
                    yield reading

    def _values(self, spec: SensorSpec, metric: MetricSpec, tags: Mapping[str, Any], now_ms: int) -> Iterator[Value]:
        for (sensor_spec, place), sensor in copied(self._shared.sensors).items():
            if sensor_spec is spec and _fits(place, tags) and (read := _read(metric, sensor, now_ms)) is not None:
                yield read
        if metric.stat in (Stat.VALUE, Stat.TEXT):
            for sensor_spec, place, current in self._readings():
                if sensor_spec is spec and current is not None and _fits(place, tags):
                    yield current


def _read(metric: MetricSpec, sensor: Sensor, now_ms: int) -> float | None:
    reading = sensor.read(metric.stat, now_ms)
    return reading if reading is None or metric.scale == 1 else reading * metric.scale


def _fits(place: MetricPlace, tags: Mapping[str, Any]) -> bool:
    return all(str(getattr(place, name)) == str(value) for name, value in tags.items())


#: Sensors that have a total and no metric of their own name.
_COUNTING = {
    metric.name.removesuffix("-total") for spec in SENSORS for metric in spec.metrics if metric.name.endswith("-total")
} - {metric.name for spec in SENSORS for metric in spec.metrics}


@lru_cache(maxsize=1_000)
def _specs_with(name: str) -> tuple[SensorSpec, ...]:
    return tuple(spec for spec in SENSORS if any(metric.name == name for metric in spec.metrics))


def _specs_of(name: str, place: Mapping[str, Any]) -> list[SensorSpec]:
    """Return the sensors that have a metric with this name and these attributes, those with the fewest tags first."""
    unknown = [each for each in place if each not in MetricPlace._fields]
    if unknown:
        raise KeyError(f"metrics have no place {unknown[0]!r}; use {', '.join(MetricPlace._fields)}")
    named = _specs_with(name)
    if not named:
        raise KeyError(f"there is no metric {name!r}; see the reference of metrics, or repr(streams.metrics)")
    specs = [spec for spec in named if all(tag in spec.scope.attributes for tag in place)]
    if not specs:
        scopes = " or ".join(sorted({", ".join(spec.scope.attributes) or "no place" for spec in named}))
        raise KeyError(f"metric {name!r} is not kept by {', '.join(place)}; it is kept by {scopes}")
    # Some metrics of clients have names of metrics of threads, such as ``commit-total``.
    ours = [spec for spec in specs if spec.scope.domain == "kafka.streams"]
    return sorted(ours or specs, key=lambda spec: len(spec.scope.tags))


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
