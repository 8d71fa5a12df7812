"""The metric sensors of one task.

They are recorded once per block of records or per run of consecutive records. In large blocks, sizes and end-to-end
latencies are measured on a sample of the records, since measuring all records would cost as much as some operators. The
module is pure: it reads no clock.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import sub
from typing import Any

from attrs import define, field

from streams.core.blocks.records import NO_TIMESTAMP, Block, TaskId
from streams.core.metrics import Amounts, Counter, Metrics, SensorSpec, Stopwatch, bytes_in, sample, table
from streams.runtime.tasks.engine_metrics import EngineMetrics
from streams.runtime.tasks.outbox import TopicColumns
from streams.state import MeasuredStore, Store
from streams.topology import Topology


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
        metrics, task_id = self.metrics, self.task_id
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
        if self._has_statistics and (found := store.statistics()):
            if name not in self._engines:
                place = {"task": self.task_id, "store": name, "store_type": store.type_name}
                self._engines[name] = EngineMetrics(self.metrics, place)
            self._engines[name].note(found)

    def _source(self, source: str, topic: str) -> _Flow:
        found = self._sources.get((source, topic))
        if found is None:
            found = self._sources[source, topic] = self._flow(table.CONSUMED, source, topic)
            found.processed = self.metrics.counter(table.SOURCE_PROCESSED, task=self.task_id, node=source)
        return found

    def _flow(self, spec: SensorSpec, node: str, topic: str) -> _Flow:
        return _Flow(
            self.metrics.amounts(spec, task=self.task_id, node=node, topic=topic),
            self.metrics.amounts(table.E2E_LATENCY, task=self.task_id, node=node),
        )
