"""Periodic samples of an instance: current rates, and the history of the last hour.

A sample is taken every five seconds while a server runs; it reads counters and never blocks on a thread.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import define, field, frozen

from streams.core.blocks.records import TaskId
from streams.core.concurrency.threads import copied
from streams.core.metrics import INTENDED_REASONS, Amounts, SensorSpec, Stat, table
from streams.runtime import Instance, State, StreamThread, Task, time_lag

#: Interval between two samples in milliseconds, and the number of samples that are kept (one hour).
SAMPLE_MS = 5_000
KEPT_SAMPLES = 720
_KEPT_EVENTS = 100
#: Columns of the history -> how the values of several instances are combined.
HISTORY: Mapping[str, str] = {
    "at_ms": "max",
    "in_rate": "sum",
    "out_rate": "sum",
    "lag": "sum",
    "time_lag_ms": "max",
    "busy": "mean",
    "lost_rate": "sum",
    "restoring": "sum",
    "tasks": "sum",
}

#: A row of the history: the wall-clock time in epoch milliseconds, and the other columns; None is unknown.
Sample: TypeAlias = tuple[int, *tuple[float | None, ...]]
#: Kind of a count, and its place: a task, a thread, or a node with a topic or drop reason.
Key: TypeAlias = tuple[str, Any]

_COUNTS: Mapping[SensorSpec, str] = {
    table.PROCESSED: "task",
    table.DROPPED_FOR: "drops",
    table.DEAD_LETTERS_FOR: "sent",
    table.CONSUMED: "consumed",
    table.PRODUCED: "produced",
    table.DEAD_LETTERS: "letters",
    table.LATE: "late",
}
_TIMES: Mapping[SensorSpec, str] = {
    table.PROCESS_LATENCY: "busy",
    table.THREAD_PROCESSED: "processing",
    table.POLLED: "polling",
    table.COMMITTED: "committing",
}


@frozen
class Totals:
    """Cumulative counts and durations (in nanoseconds) of an instance at one time of the monotonic clock (in ms)."""

    at_ms: int
    counts: dict[Key, int] = field(factory=dict)

    @classmethod
    def of(cls, instance: Instance) -> "Totals":
        """Return the current totals."""
        metrics = instance.metrics
        internal = instance.topology.internal_topics
        own_topics = {*internal, *(f"{instance.config.application_id}-{topic}" for topic in internal)}
        totals = cls(instance.environment.clock.monotonic_ms())
        counts = totals.counts
        for spec, place, sensor in metrics.sensors():
            word = _COUNTS.get(spec) or _TIMES.get(spec)
            if word is None:
                continue
            key: Any = place.task
            if word in ("processing", "polling", "committing"):
                key = place.thread
            elif word in ("drops", "sent", "late"):
                key = place.node, place.reason
            elif word in ("consumed", "produced"):
                key = place.node, place.topic
            amount = sensor.read(Stat.SUM if spec in _TIMES else Stat.TOTAL, 0) or 0
            counts[word, key] = counts.get((word, key), 0) + int(amount)
            if word == "sent" or (word == "drops" and place.reason not in INTENDED_REASONS):
                # What went to the dead letters is dropped, but not lost.
                sign = -1 if word == "sent" else 1
                counts["lost", place.task] = counts.get(("lost", place.task), 0) + sign * int(amount)
            elif word in ("consumed", "produced") and place.topic not in own_topics:
                end = "in" if word == "consumed" else "out"
                counts[end, place.topic] = counts.get((end, place.topic), 0) + int(amount)
            if word == "busy" and isinstance(sensor, Amounts):
                counts["timed", key] = counts.get(("timed", key), 0) + sensor.count
        return totals

    def of_word(self, word: str) -> Iterator[tuple[Any, int]]:
        """Yield the counts of one kind (``word``) as (place, count) pairs; a place is, for example, a task."""
        return ((place, count) for (counted_word, place), count in self.counts.items() if counted_word == word)


@frozen
class Rates:
    """The changes between two samples of an instance's totals."""

    now: Totals
    before: Totals

    @property
    def seconds(self) -> float:
        """The time in seconds between the two samples, at least 0.001."""
        return max(1, self.now.at_ms - self.before.at_ms) / 1000

    def change(self, word: str, place: Any) -> int:
        """Return the increase of a count between the two samples."""
        return self.now.counts.get((word, place), 0) - self.before.counts.get((word, place), 0)

    def rate(self, word: str, place: Any) -> float:
        """Return the increase of a count per second."""
        return round(self.change(word, place) / self.seconds, 1)

    def share(self, word: str, place: Any) -> float:
        """Return the increase of a duration as a share of the elapsed time, from 0 to 1."""
        return round(min(1.0, self.change(word, place) / (self.seconds * 1e9)), 3)

    def total(self, word: str) -> float:
        """Return the increase per second of all counts of one kind together."""
        return round(sum(self.change(word, place) for place, _ in self.now.of_word(word)) / self.seconds, 1)


def tasks_of(threads: Sequence[StreamThread]) -> Iterator[tuple[int, TaskId, Task]]:
    """Yield the active tasks as (index of the thread, task id, task)."""
    for index, thread in enumerate(threads):
        for task_id, task in sorted(copied(thread.tasks).items()):
            yield index, task_id, task


def time_lag_of(task: Task, now_ms: int) -> int | None:
    """Return the largest event-time lag of a task's inputs in milliseconds, None if no lag is known."""
    lags = [
        time_lag(task.queues[partition], task.readers[partition].partition_time_ms, now_ms)
        for partition in list(task.inputs)
    ]
    return max((lag for lag in lags if lag is not None), default=None)


@define(eq=False)
class Samples:
    """The samples of one instance; may only be used by one thread."""

    _instance: Instance
    #: The last two totals; rates cover five to ten seconds.
    _marks: deque[Totals] = field(factory=lambda: deque(maxlen=2))
    #: What has changed: wall-clock times in epoch milliseconds, and texts.
    events: deque[tuple[int, str]] = field(factory=lambda: deque(maxlen=_KEPT_EVENTS))
    _before: tuple[str, frozenset[TaskId], bool] = ("", frozenset(), False)
    _history: deque[Sample] = field(factory=lambda: deque(maxlen=KEPT_SAMPLES))

    def take_if_due(self) -> None:
        """Take a sample if the last one is at least five seconds old."""
        self.note_events()
        now_ms = self._instance.environment.clock.monotonic_ms()
        if not self._marks or now_ms - self._marks[-1].at_ms >= SAMPLE_MS:
            self._take(Totals.of(self._instance))

    def note_events(self) -> None:
        """Note changes of the state and of the tasks since the last call."""
        instance = self._instance
        tasks = [task for _, _, task in tasks_of(instance.stream_threads)]
        is_restoring = any(not task.is_initialized for task in tasks)
        now = instance.state.name, frozenset(task.task_id for task in tasks), is_restoring
        state, before, was_restoring = self._before
        if now == self._before:
            return
        self._before = now
        texts = [
            f"{len(now[1] - before)} tasks assigned" if now[1] - before else "",
            f"{len(before - now[1])} tasks given away" if before - now[1] else "",
            "" if is_restoring == was_restoring else "stores are restored" if was_restoring else "restores stores",
            now[0] if now[0] != state else "",
        ]
        now_ms = instance.environment.clock.now_ms()
        self.events.extend((now_ms, text) for text in texts if text)

    def rates(self) -> Rates:
        """Return the current rates, which cover the time since the sample before the last one."""
        self.take_if_due()
        return Rates(Totals.of(self._instance), self._marks[0])

    def since(self, at_ms: int) -> list[Sample]:
        """Return the samples after a wall-clock time (epoch milliseconds), oldest first, as rows of ``HISTORY``."""
        return [row for row in self._history if row[0] > at_ms]

    def _take(self, now: Totals) -> None:
        if self._marks:
            self._history.append(self._row(Rates(now, self._marks[-1])))
        self._marks.append(now)

    def _row(self, rates: Rates) -> Sample:
        instance = self._instance
        # Before its tasks are restored, or after a failure, an instance does not know what is left to read.
        is_running = instance.state is State.RUNNING
        is_counted = instance.metrics.records(table.CONSUMED)
        now_ms = instance.environment.clock.now_ms()
        tasks = [task for _, _, task in tasks_of(instance.stream_threads)]
        threads = instance.stream_threads
        busy = sum(rates.share("processing", thread.name) for thread in threads)
        return (
            now_ms,
            rates.total("in") if is_counted else None,
            rates.total("out") if is_counted else None,
            sum(queue.lag for task in tasks for queue in task.queues) if is_running else None,
            max((lag for task in tasks if (lag := time_lag_of(task, now_ms)) is not None), default=0)
            if is_running
            else None,
            round(busy / len(threads), 3) if threads else 0.0,
            rates.total("lost"),
            sum(not task.is_initialized for task in tasks),
            len(tasks),
        )
