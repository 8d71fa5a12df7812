"""The sensors of a stream thread, and metrics that are read from its tasks, restores and stores.

The sensors are recorded by the thread. ``readings`` is called by other threads, so it only reads single attributes and
never blocks.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from streams.core.blocks.records import NO_TIMESTAMP, Block, TopicPartition
from streams.core.clock import Clock
from streams.core.concurrency.threads import copied
from streams.core.metrics import Amounts, MetricPlace, Metrics, Reading, Stopwatch, table
from streams.runtime.tasks.queues import PartitionQueue
from streams.runtime.tasks.task import Task
from streams.runtime.tasks.waiting import wait_of

if TYPE_CHECKING:
    from streams.runtime.threads.thread import StreamThread

#: The ordinals of the thread states in Kafka Streams.
_STARTING = 1
_ASSIGNED = 3
_RUNNING = 4
_STOPPING = 5


@define(eq=False)
class ThreadMetrics:
    """The sensors of one stream thread."""

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

    def begin_iteration(self) -> int:
        """Start a new sample window if the last one has ended; return the start of the iteration."""
        now_ms = self._clock.monotonic_ms()
        self.metrics.roll(now_ms)
        return now_ms

    def note_polled(self, polled: Mapping[TopicPartition, Sequence[Block]]) -> None:
        """Record the number of records that a poll has returned."""
        if polled:
            self._polled.record(sum(len(block) for blocks in polled.values() for block in blocks))

    def note_run(self, task: Task, count: int, start_ns: int) -> int:
        """Record the processing of ``count`` records since ``start_ns``; return the current monotonic time in ns."""
        end_ns = self._clock.monotonic_ns()
        self.processed.record(end_ns - start_ns, count)
        task.sensors.latency.record(end_ns - start_ns, count)
        return end_ns

    def note_punctuated(self, start_ns: int) -> int:
        """Record the duration of a task's punctuations since ``start_ns``; return the current monotonic time in ns."""
        end_ns = self._clock.monotonic_ns()
        self._punctuated.record(end_ns - start_ns)
        return end_ns

    def note_iteration(self, count: int) -> None:
        """Record the number of records that an iteration of the loop has processed."""
        if count:
            self._at_once.record(count)


def readings(thread: "StreamThread", now_ms: int) -> Iterator[Reading]:
    """Yield the current values of a thread's metrics and its tasks' metrics."""
    sensors = thread.sensors
    restorer = thread.restorer
    copies = thread.task_set.copies
    place = MetricPlace(thread.name)
    state = _STOPPING if thread.stopping.is_set() else _RUNNING if thread.is_ready else _STARTING
    tasks = copied(thread.tasks)
    yield table.THREAD_STATE, place, _ASSIGNED if state == _STARTING and tasks else state
    yield table.START_TIME, place, sensors.started_ms
    if thread.iteration_ms is not None:
        yield table.LAST_POLL, place, (thread.clock.monotonic_ms() - thread.iteration_ms) // 1000
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
    for task_id, task in tasks.items():
        place = MetricPlace(thread.name, task_id)
        yield table.PROCESS_RATIO, place, task.sensors.latency.recent() / busy if busy else 0.0
        yield from of_task(task, place, now_ms)


def of_task(task: Task, place: MetricPlace, now_ms: int) -> Iterator[Reading]:
    """Yield the current values of a task's metrics."""
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
    for node in task.holding_nodes:
        at = place._replace(node=node.name)
        yield table.RECORDS_HELD, at, len(node.held)
    for node in () if task.calls is None else task.calls.nodes:
        yield table.CALLS_IN_FLIGHT, place._replace(node=node.name), node.in_flight
    wait = wait_of(task)
    for item in list(task.inputs.values()):
        queue = queues[item.partition]
        at = place._replace(topic=item.name, partition=item.number)
        yield table.INPUT_LAG, at, queue.lag
        yield table.INPUT_TIME_LAG, at, time_lag(queue, task.readers[item.partition].partition_time_ms, now_ms)
        is_awaited = wait is not None and wait.partition == item.partition
        yield table.INPUT_WAITED_FOR, at, wait.waited_ms if wait is not None and is_awaited else 0


def time_lag(queue: PartitionQueue, newest_ms: int, now_ms: int) -> int | None:
    """Return how far processing is behind the newest record, in milliseconds of event time, or None if unknown."""
    if not queue.lag:
        return 0
    if queue.partition_time_ms == NO_TIMESTAMP:
        return None
    return max(0, (newest_ms if queue.is_caught_up else now_ms) - queue.partition_time_ms)
