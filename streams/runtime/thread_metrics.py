"""The sensors of a thread, and the current values of its tasks, restores and stores.

The thread records. ``readings`` is called from other threads, so it reads single attributes and never blocks.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from streams.core.clock import Clock
from streams.core.metrics import Amounts, MetricPlace, Metrics, Reading, Stopwatch, table
from streams.core.records import NO_TIMESTAMP, Block, TopicPartition
from streams.runtime.queues import PartitionQueue
from streams.runtime.task import Task

if TYPE_CHECKING:
    from streams.runtime.thread import StreamThread

#: The ordinals of the thread states in Kafka Streams.
_STARTING, _ASSIGNED, _RUNNING, _STOPPING = 1, 3, 4, 5


@define(eq=False)
class ThreadMetrics:
    """The sensors of a thread."""

    metrics: Metrics
    _clock: Clock = field(init=False)
    poll: Stopwatch = field(init=False)
    processed: Amounts = field(init=False)
    _at_once: Amounts = field(init=False)
    _polled: Amounts = field(init=False)
    _punctuated: Amounts = field(init=False)
    started_ms: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        metrics = self.metrics
        self._clock = metrics.clock
        self.poll = metrics.stopwatch(table.POLLED)
        self.processed = metrics.amounts(table.THREAD_PROCESSED)
        self._at_once = metrics.amounts(table.PROCESSED_AT_ONCE)
        self._polled = metrics.amounts(table.POLLED_AT_ONCE)
        self._punctuated = metrics.amounts(table.THREAD_PUNCTUATED)
        for spec in (table.TASKS_RESTORED, table.TAKEN_OVER, table.FENCED, table.TASK_CREATED, table.TASK_CLOSED):
            metrics.counter(spec)
        self.started_ms = self._clock.now_ms()

    def turn(self) -> int:
        """Start a new sample window if the last one has ended; return the monotonic start time of an iteration."""
        now_ms = self._clock.monotonic_ms()
        self.metrics.roll(now_ms)
        return now_ms

    def note_polled(self, polled: Mapping[TopicPartition, Sequence[Block]]) -> None:
        """Record the result of a poll."""
        if polled:
            self._polled.record(sum(len(block) for blocks in polled.values() for block in blocks))

    def note_run(self, task: Task, count: int, start_ns: int) -> int:
        """Record a run that began at ``start_ns``; return its end time, in monotonic nanoseconds."""
        end_ns = self._clock.monotonic_ns()
        self.processed.record(end_ns - start_ns, count)
        task.sensors.latency.record(end_ns - start_ns, count)
        return end_ns

    def note_punctuated(self, start_ns: int) -> int:
        """Record the wall-clock punctuations of a task, as one; return their end time, in monotonic nanoseconds."""
        end_ns = self._clock.monotonic_ns()
        self._punctuated.record(end_ns - start_ns)
        return end_ns

    def note_iteration(self, count: int) -> None:
        """Record the number of records that an iteration of the loop has processed."""
        if count:
            self._at_once.record(count)


def readings(thread: "StreamThread", now_ms: int) -> Iterator[Reading]:
    """Return the current values of a thread and its tasks."""
    sensors, restorer, copies = thread.sensors, thread.restorer, thread.task_set.copies
    place = MetricPlace(thread.name)
    state = _STOPPING if thread.stopping.is_set() else _RUNNING if thread.is_ready else _STARTING
    tasks = list(thread.tasks.items())
    yield table.THREAD_STATE, place, _ASSIGNED if state == _STARTING and tasks else state
    yield table.START_TIME, place, sensors.started_ms
    if thread.turned_at_ms is not None:
        yield table.TURN_AGE, place, thread.clock.monotonic_ms() - thread.turned_at_ms
    restores = restorer.progress()
    yield table.RESTORING_TASKS, place, len({task_id for task_id, remaining, _ in restores})
    paused = thread.is_paused
    yield table.PAUSED_RESTORES, place, len(restores) if paused else 0
    yield table.UPDATING_TASKS, place, 0 if restores else len(copies)
    yield table.PAUSED_STANDBYS, place, len(copies) if restores else 0
    for task_id, remaining, eta_ms in restores:
        place = MetricPlace(thread.name, task_id)
        yield table.RESTORE_REMAINING, place, remaining
        yield table.RESTORE_ETA, place, eta_ms
    busy = sensors.processed.recent()
    for task_id, task in tasks:
        place = MetricPlace(thread.name, task_id)
        yield table.PROCESS_RATIO, place, task.sensors.latency.recent() / busy if busy else 0.0
        yield from of_task(task, place, now_ms)


def of_task(task: Task, place: MetricPlace, now_ms: int) -> Iterator[Reading]:
    """Return the current values of a task."""
    queues = task.queues
    yield table.BUFFERED, place, queues.size
    yield table.LAG, place, sum(queue.lag for queue in queues)
    if queues.stream_time_ms != NO_TIMESTAMP:
        yield table.STREAM_TIME, place, queues.stream_time_ms
        yield table.STREAM_TIME_AGE, place, now_ms - queues.stream_time_ms
    if task.cache is not None:
        yield table.CACHE_BYTES, place, task.cache.size_bytes
    for name, store in task.stores.items():
        at = place._replace(store=name, store_type=store.type_name)
        for property_name, found in store.properties().items():
            yield table.PROPERTIES[property_name], at, found
    awaited = queues.awaited
    for item in list(task.inputs.values()):
        queue = queues[item.partition]
        at = place._replace(topic=item.name, partition=item.number)
        yield table.INPUT_LAG, at, queue.lag
        yield table.INPUT_TIME_LAG, at, time_lag(queue, task.readers[item.partition].partition_time_ms, now_ms)
        waited_ms = now_ms - awaited[1] if awaited is not None and awaited[0] is queue else 0
        yield table.INPUT_WAITED_FOR, at, max(0, waited_ms)


def time_lag(queue: PartitionQueue, newest_ms: int, now_ms: int) -> int | None:
    """Return the lag of processing to the newest record in milliseconds of event time, or None if unknown."""
    if not queue.lag:
        return 0
    if queue.partition_time_ms == NO_TIMESTAMP:
        return None
    return max(0, (newest_ms if queue.is_caught_up else now_ms) - queue.partition_time_ms)
