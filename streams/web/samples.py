"""Samples of an instance in time: rates since a few seconds ago, and the history of the last hour.

A sample is taken each five seconds while a server runs; it reads counters and waits for no thread.  Imports runtime.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from attrs import define, field, frozen

from streams.core.metrics import Amounts, SensorSpec, Stat, table
from streams.core.records import TaskId
from streams.runtime import Instance, Task, time_lag

#: Time between two samples, and the number that is kept: one hour.
SAMPLE_MS = 5_000
KEPT_SAMPLES = 720
#: The columns of the history, with how the values of instances are combined.
HISTORY: Mapping[str, str] = {
    "at_ms": "max",
    "in_rate": "sum",
    "out_rate": "sum",
    "lag": "sum",
    "time_lag_ms": "max",
    "busy": "mean",
    "dropped_rate": "sum",
    "restoring": "sum",
    "tasks": "sum",
}

#: What is counted, and where: a word, and a task, a node with a topic or reason, or a thread.
Key: TypeAlias = tuple[str, Any]

_COUNTS: Mapping[SensorSpec, str] = {
    table.PROCESSED: "task",
    table.DROPPED: "dropped",
    table.DROPPED_FOR: "drops",
    table.CONSUMED: "consumed",
    table.PRODUCED: "produced",
    table.DEAD_LETTERS: "letters",
}
_TIMES: Mapping[SensorSpec, str] = {
    table.PROCESS_LATENCY: "busy",
    table.THREAD_PROCESSED: "processing",
    table.POLLED: "polling",
    table.COMMITTED: "committing",
}


@frozen
class Totals:
    """Counts and nanoseconds since the start, at a monotonic time."""

    at_ms: int
    counts: dict[Key, int] = field(factory=dict)

    @classmethod
    def of(cls, instance: Instance) -> "Totals":
        """Return the current totals."""
        metrics = instance.metrics
        made = cls(instance.environment.clock.monotonic_ms())
        counts = made.counts
        for spec, place, sensor in metrics.sensors():
            word = _COUNTS.get(spec) or _TIMES.get(spec)
            if word is None:
                continue
            key: Any = place.task
            if word in ("processing", "polling", "committing"):
                key = place.thread
            elif word == "drops":
                key = place.node, place.reason
            elif word in ("consumed", "produced"):
                key = place.node, place.topic
            amount = sensor.read(Stat.SUM if spec in _TIMES else Stat.TOTAL, 0) or 0
            counts[word, key] = counts.get((word, key), 0) + int(amount)
            if word == "busy" and isinstance(sensor, Amounts):
                counts["timed", key] = counts.get(("timed", key), 0) + sensor.count
        return made

    def of_word(self, word: str) -> Iterator[tuple[Any, int]]:
        """Return the counts of one kind by place."""
        return ((place, count) for (found, place), count in self.counts.items() if found == word)


@frozen
class Rates:
    """What has changed between two totals."""

    now: Totals
    before: Totals

    @property
    def seconds(self) -> float:
        """The time between them; not less than a millisecond."""
        return max(1, self.now.at_ms - self.before.at_ms) / 1000

    def change(self, word: str, place: Any) -> int:
        """Return how much a count has increased."""
        return self.now.counts.get((word, place), 0) - self.before.counts.get((word, place), 0)

    def rate(self, word: str, place: Any) -> float:
        """Return the increase per second."""
        return round(self.change(word, place) / self.seconds, 1)

    def share(self, word: str, place: Any) -> float:
        """Return the share of the time, of a count of nanoseconds."""
        return round(min(1.0, self.change(word, place) / (self.seconds * 1e9)), 3)

    def total(self, word: str) -> float:
        """Return the increase per second over all places."""
        return round(sum(self.change(word, place) for place, _ in self.now.of_word(word)) / self.seconds, 1)


def tasks_of(instance: Instance) -> Iterator[tuple[int, TaskId, Task]]:
    """Return the active tasks with the index of their thread."""
    for index, thread in enumerate(instance.stream_threads):
        for task_id, task in sorted(thread.tasks.items()):
            yield index, task_id, task


def time_lag_of(task: Task, now_ms: int) -> int | None:
    """Return the largest event time by which an input of a task is behind, or None if that is not known."""
    lags = [
        time_lag(task.queues[partition], task.readers[partition].partition_time_ms, now_ms)
        for partition in list(task.inputs)
    ]
    return max((lag for lag in lags if lag is not None), default=None)


@define(eq=False)
class Samples:
    """The samples of one instance; used by one thread."""

    _instance: Instance
    #: The last two totals: rates are over five to ten seconds.
    _marks: deque[Totals] = field(factory=lambda: deque(maxlen=2))
    _history: deque[tuple[float, ...]] = field(factory=lambda: deque(maxlen=KEPT_SAMPLES))

    def take_if_due(self) -> None:
        """Take a sample, unless the last one is younger than five seconds."""
        now_ms = self._instance.environment.clock.monotonic_ms()
        if not self._marks or now_ms - self._marks[-1].at_ms >= SAMPLE_MS:
            self._take(Totals.of(self._instance))

    def rates(self) -> Rates:
        """Return the rates until now."""
        self.take_if_due()
        return Rates(Totals.of(self._instance), self._marks[0])

    def since(self, at_ms: int) -> list[tuple[float, ...]]:
        """Return the samples after a wall-clock time, the oldest first; columns are those of ``HISTORY``."""
        return [row for row in self._history if row[0] > at_ms]

    def _take(self, now: Totals) -> None:
        if self._marks:
            self._history.append(self._row(Rates(now, self._marks[-1])))
        self._marks.append(now)

    def _row(self, rates: Rates) -> tuple[float, ...]:
        instance = self._instance
        now_ms = instance.environment.clock.now_ms()
        tasks = [task for _, _, task in tasks_of(instance)]
        threads = instance.stream_threads
        busy = sum(rates.share("processing", thread.name) for thread in threads)
        return (
            now_ms,
            rates.total("task"),
            rates.total("produced"),
            sum(queue.lag for task in tasks for queue in task.queues),
            max((lag for task in tasks if (lag := time_lag_of(task, now_ms)) is not None), default=0),
            round(busy / len(threads), 3) if threads else 0.0,
            rates.total("dropped"),
            sum(not task.is_initialized for task in tasks),
            len(tasks),
        )
