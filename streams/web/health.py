"""Health checks of an instance, read from its threads without blocking.

``live``: the poll loops are running.  ``ready``: all assigned tasks are open and restored.  ``progress``: the positions
of the tasks advance, or there is nothing to read.
"""

from collections.abc import Iterator
from typing import Any

from attrs import define, field

from streams.core.blocks.records import TaskId
from streams.runtime import Instance, State, Task

#: Default of the maximum time, in milliseconds, without progress of a task that has unread records.
PROGRESS_MS = 60_000

_FAILED = (State.PENDING_ERROR, State.ERROR)
_ENDED = (State.NOT_RUNNING, *_FAILED)

#: Whether the check passes, and its details.
Finding = tuple[bool, dict[str, Any]]


@define(eq=False)
class Health:
    """The health checks of one instance; ``progress`` compares positions with those of its earlier calls."""

    _instance: Instance
    #: For each task, the positions at a call, and the monotonic time of the first call with these positions.
    _seen: dict[TaskId, tuple[int, int]] = field(factory=dict)

    def live(self, limit_ms: int | None = None) -> Finding:
        """Return whether each thread has begun a poll iteration within ``limit_ms`` (default: max_poll_interval_ms).

        An instance that has failed or ended is not live; one that has not been started yet is live.
        """
        instance = self._instance
        limit_ms = limit_ms or instance.config.consumer.max_poll_interval_ms
        now_ms = instance.environment.clock.monotonic_ms()
        threads = {name: now_ms - began_ms for name, began_ms in instance.iterations_ms().items()}
        is_live = instance.state not in _ENDED and all(age_ms <= limit_ms for age_ms in threads.values())
        return is_live, self._summary() | {"limit_ms": limit_ms, "threads": threads}

    def ready(self) -> Finding:
        """Return whether the instance is RUNNING, with all tasks assigned, open and restored, and has a thread.

        It is not ready while no broker can be reached, or one cannot write what it sends, because its disk is full.
        """
        waiting = [str(task.task_id) for task in self._tasks() if not task.is_initialized]
        threads = len(self._instance.stream_threads)
        producers = (thread.committer.producer for thread in self._instance.stream_threads)
        failures = [text for producer in producers for text in producer.storage_failures]
        told = {"storage": failures[0]} if failures else {}
        outages = [thread.consumer.outage for thread in self._instance.stream_threads]
        if outage := next(filter(None, outages), None):
            away_ms = self._instance.environment.clock.monotonic_ms() - outage.since_ms
            told["broker"] = f"no broker for {away_ms / 1000:,.0f} s: {outage.reason}"
        is_ready = self._instance.state is State.RUNNING and threads > 0 and not told
        return is_ready, self._summary() | {"restoring": sorted(waiting), "threads": threads} | told

    def progress(self, limit_ms: int = PROGRESS_MS) -> Finding:
        """Return whether each task with unread records has advanced within ``limit_ms``.

        A task is stuck if calls at least ``limit_ms`` apart find it at the same position with unread records; tasks
        that are restoring or paused are not checked.
        """
        instance = self._instance
        now_ms = instance.environment.clock.monotonic_ms()
        stuck: dict[str, dict[str, int]] = {}
        seen: dict[TaskId, tuple[int, int]] = {}
        for task in self._tasks():
            lag = sum(queue.lag for queue in task.queues)
            position = sum(task.positions().values())
            before = self._seen.get(task.task_id)
            since_ms = before[1] if before is not None and before[0] == position else now_ms
            if not lag or not task.is_initialized or instance.is_paused:
                since_ms = now_ms
            seen[task.task_id] = (position, since_ms)
            if now_ms - since_ms >= limit_ms:
                stuck[str(task.task_id)] = {"lag": lag, "for_ms": now_ms - since_ms}
        self._seen = seen
        return instance.state not in _ENDED and not stuck, self._summary() | {"limit_ms": limit_ms, "stuck": stuck}

    def _tasks(self) -> Iterator[Task]:
        for thread in self._instance.stream_threads:
            yield from list(thread.tasks.values())

    def _summary(self) -> dict[str, Any]:
        instance = self._instance
        summary: dict[str, Any] = {"application_id": instance.config.application_id, "state": instance.state.name}
        if instance.failure is not None:
            summary["failure"] = type(instance.failure).__name__
        return summary
