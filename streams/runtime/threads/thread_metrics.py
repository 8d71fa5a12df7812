"""The sensors of a stream thread, which the thread records."""

from collections.abc import Mapping, Sequence

from attrs import define, field

from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import Clock
from streams.core.metrics import Amounts, Metrics, Stopwatch, table
from streams.runtime.tasks.task import Task


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
