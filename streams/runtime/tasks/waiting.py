"""What a task waits for, for those who look on: metrics, the status and explanations.

They may be other threads, so only single attributes are read.  The module imports only ``core`` from outside
``runtime``.
"""

from attrs import frozen

from streams.core.blocks.records import TaskId, TopicPartition, task_of
from streams.runtime.tasks.progress import Hold
from streams.runtime.tasks.queues import PartitionQueue
from streams.runtime.tasks.task import Task


@frozen
class Wait:
    """What a task waits for, and for how long it does."""

    #: The input for whose records it waits; None if it is ahead of another task, so that it must not write more.
    partition: TopicPartition | None
    waited_ms: int
    #: The task that does not come on, whose records may be earlier; None if the input is empty.
    task_id: TaskId | None = None


def wait_of(task: Task, output_hold: Hold | None = None) -> Wait | None:
    """Return what a task waits for, or None if it processes what it has.

    ``output_hold`` is the task for which its outputs are held back (``Backpressure.held_by``).
    """
    clock = task.sensors.metrics.clock
    inputs = ((queue.partition, queue.lanes.held_by) for queue in task.queues if queue.lanes is not None)
    for partition, hold in ((None, output_hold), *inputs):
        if hold is not None:
            return Wait(partition, max(0, clock.monotonic_ms() - hold.since_ms), task_of(hold.lane))
    awaited = task.queues.awaited
    if awaited is None:
        return None
    queue, since_ms = awaited
    return Wait(queue.partition, max(0, clock.now_ms() - since_ms))


def passed_over(queue: PartitionQueue) -> list[TaskId]:
    """Return the tasks upstream without whose records an input is read on, since they do not move."""
    return [] if queue.lanes is None else [task_of(lane) for lane in sorted(queue.lanes.passed_over)]
