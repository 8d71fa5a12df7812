"""The metric sensors of one task.

They are recorded once per block of records or per run of consecutive records. In large blocks, sizes and end-to-end
latencies are measured on a sample of the records, since measuring all records would cost as much as some operators. The
module is pure: it reads no clock.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import sub
from typing import Any

from attrs import define, field

from streams.core.blocks.records import NO_TIMESTAMP, Block, TaskId
from streams.core.metrics import Amounts, Counter, Metrics, SensorSpec, Stopwatch, bytes_in, sample, table
from streams.runtime.tasks.outbox import TopicColumns
from streams.state import MeasuredStore, Statistic, Store
from streams.topology import Topology

_NONE = Statistic(0)


@define(eq=False)
class _Flow:
    """The sensors of one topic that a task reads or writes."""

    #: Records and bytes read or written.
    traffic: Amounts
    #: End-to-end latency: from event time to processing, in milliseconds.
    latency: Amounts
    #: Records processed from a source.
    processed: Counter = field(factory=Counter)

    def note(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Record a block of records, given its keys and values."""
        self.traffic.record(bytes_in(keys, values), len(keys))

    def note_times(self, timestamps: Sequence[int], now_ms: int) -> None:
        """Record the end-to-end latency of records (KIP-613)."""
        if len(timestamps) == 1:
            self.latency.record(now_ms - timestamps[0])
            return
        some = sample(timestamps)
        count = len(some)
        self.latency.record_spread(count * now_ms - sum(some), count, now_ms - max(some), now_ms - min(some))


@define(eq=False)
class EngineMetrics:
    """The sensors of one storage engine, fed from RocksDB's statistics, which count from its opening (KIP-471).

    ``_place`` has the metric tags: task, store and store type.
    """

    _metrics: Metrics
    _place: Mapping[str, Any]
    _last: Mapping[str, Statistic] = field(factory=dict)

    def note(self, now: Mapping[str, Statistic]) -> None:
        """Record the increase of the statistics since the last call, or since the database was opened again."""
        metrics = self._metrics
        place = self._place
        for name, spec in table.COUNTED_STATISTICS.items():
            metrics.counter(spec, **place).value += self._since(now, name).count
        for name, spec in table.HIT_STATISTICS.items():
            hits = self._since(now, f"{name}.hit").count
            misses = self._since(now, f"{name}.miss").count
            if hits + misses:
                metrics.amounts(spec, **place).record(hits, hits + misses)
        for name, spec in table.TIME_STATISTICS.items():
            sensor = metrics.amounts(spec, **place)
            grown = self._since(now, name)
            if grown.count:
                average = grown.total // grown.count
                # The largest time is known only since the database was opened.
                highest = int(grown.highest) if grown.highest > self._last.get(name, _NONE).highest else average
                sensor.record_spread(grown.total * 1000, grown.count, average * 1000, highest * 1000)
        self._last = now

    def _since(self, now: Mapping[str, Statistic], name: str) -> Statistic:
        current = now.get(name, _NONE)
        last = self._last.get(name, _NONE)
        if current.count < last.count:
            return current
        return Statistic(current.count - last.count, current.total - last.total, current.highest)


@define(eq=False)
class TaskMetrics:
    """The sensors of a task; ``sink_of`` returns the sink that writes to a topic of the topology."""

    metrics: Metrics
    task_id: TaskId
    _application_id: str
    _topology: Topology
    _sink_of: Callable[[str], str]
    processed: Counter = field(init=False)
    punctuated: Stopwatch = field(init=False)
    enforced: Counter = field(init=False)
    #: Processing time in nanoseconds, as measured by the driver.
    latency: Amounts = field(init=False)
    _is_on: bool = field(init=False)
    _has_statistics: bool = field(init=False)
    _engines: dict[str, EngineMetrics] = field(init=False, factory=dict)
    _lateness: Amounts | None = field(init=False)
    _sources: dict[tuple[str, str], _Flow] = field(init=False, factory=dict)
    _sinks: dict[str, _Flow] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        metrics = self.metrics
        task_id = self.task_id
        metrics.open(task_id)
        self.processed = metrics.counter(table.PROCESSED, task=task_id)
        self.punctuated = metrics.stopwatch(table.PUNCTUATED, task=task_id)
        self.enforced = metrics.counter(table.ENFORCED, task=task_id)
        self.latency = metrics.amounts(table.PROCESS_LATENCY, task=task_id)
        self._is_on = metrics.records(table.CONSUMED)
        self._has_statistics = metrics.records(table.HIT_STATISTICS["memtable"])
        self._lateness = metrics.amounts(table.LATENESS, task=task_id) if metrics.records(table.LATENESS) else None
        # As in Kafka Streams, this metric exists even if the task has dropped nothing.
        metrics.counter(table.DROPPED, task=task_id)

    def consumed(self, source: str, topic: str, block: Block) -> None:
        """Record a block of records that was read from a topic."""
        if self._is_on:
            self._source(source, topic).note(block.keys, block.values)

    def ran(self, source: str, topic: str, timestamps: Sequence[int], now_ms: int, stream_time_ms: int) -> None:
        """Record the processing of records from one source; ``stream_time_ms`` is the previous stream time."""
        self.processed.value += len(timestamps)
        if self._is_on:
            flow = self._source(source, topic)
            flow.processed.value += len(timestamps)
            if now_ms != NO_TIMESTAMP:
                flow.note_times(timestamps, now_ms)
        if self._lateness is not None:
            reached = accumulate(timestamps, max, initial=stream_time_ms)
            next(reached)
            late = list(map(sub, reached, timestamps))
            self._lateness.record_spread(sum(late), len(late), min(late), max(late))

    def produced(self, columns: TopicColumns, now_ms: int) -> None:
        """Record the task's outputs to one topic."""
        if self._is_on:
            topic = columns.topic
            flow = self._sinks.get(topic)
            if flow is None:
                name = f"{self._application_id}-{topic}" if topic in self._topology.internal_topics else topic
                flow = self._sinks[topic] = self._flow(table.PRODUCED, self._sink_of(topic), name)
            flow.note(columns.keys, columns.values)
            if now_ms != NO_TIMESTAMP:
                flow.note_times(columns.timestamps, now_ms)

    def flushing(self, store: str, store_type: str) -> Stopwatch:
        """Return the sensor of the duration of a store's flushes."""
        return self.metrics.stopwatch(table.FLUSHED, task=self.task_id, store=store, store_type=store_type)

    def hit_ratio(self, store: str) -> Amounts | None:
        """Return the sensor of the hit ratio of a store's record cache, or None if it is not recorded."""
        if not self.metrics.records(table.HIT_RATIO):
            return None
        return self.metrics.amounts(table.HIT_RATIO, task=self.task_id, store=store)

    def measured(self, store: str, store_type: str, view: Any) -> Any:
        """Return a wrapper of ``view`` that measures the store's methods, or ``view`` if they are not measured."""
        if not self.metrics.records(table.CALLS["get"]):
            return view
        place = {"task": self.task_id, "store": store, "store_type": store_type}
        return MeasuredStore(view, lambda call: self.metrics.stopwatch(table.CALLS[call], **place))

    def note_statistics(self, name: str, store: Store) -> None:
        """Record the change in the statistics of a store's engine since the last call."""
        if self._has_statistics and (statistics := store.statistics()):
            if name not in self._engines:
                place = {"task": self.task_id, "store": name, "store_type": store.type_name}
                self._engines[name] = EngineMetrics(self.metrics, place)
            self._engines[name].note(statistics)

    def _source(self, source: str, topic: str) -> _Flow:
        flow = self._sources.get((source, topic))
        if flow is None:
            flow = self._sources[source, topic] = self._flow(table.CONSUMED, source, topic)
            flow.processed = self.metrics.counter(table.SOURCE_PROCESSED, task=self.task_id, node=source)
        return flow

    def _flow(self, spec: SensorSpec, node: str, topic: str) -> _Flow:
        return _Flow(
            self.metrics.amounts(spec, task=self.task_id, node=node, topic=topic),
            self.metrics.amounts(table.E2E_LATENCY, task=self.task_id, node=node),
        )
