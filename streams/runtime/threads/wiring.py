"""Construction of stream threads and their parts.

The assignment and the task set use the thread through the protocols ``AssignedThread`` and ``TaskOwner``.  The thread
is built last, and registers itself with both.  The module imports only ``core`` and ``state`` from outside ``runtime``.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, evolve

from streams.core.metrics import table
from streams.runtime.assignment.assignment import TaskAssignment
from streams.runtime.in_step.backpressure import Backpressure
from streams.runtime.in_step.lane_waits import LaneWaits
from streams.runtime.in_step.thread_progress import ThreadProgress
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.stores.losses import LossGuard
from streams.runtime.stores.restore import RestoreListener, Restorer
from streams.runtime.tasks.refusals import Refusals
from streams.runtime.threads.committing import Committer
from streams.runtime.threads.environment import SharedParts, ThreadEvents
from streams.runtime.threads.instance_clients import InstanceClients
from streams.runtime.threads.task_set import TaskSet
from streams.runtime.threads.thread import StreamThread
from streams.state import RecordCache

#: Factor for the records per poll of a restorer: changelog batches are large, and it is slow to split them.
_RESTORED_RECORDS = 5


@define(eq=False)
class ThreadFactory:
    """Creates the threads of one instance; ``assignment`` creates what assigns the tasks of a thread."""

    _shared: SharedParts
    _clients: InstanceClients
    _plan: ApplicationPlan
    _assignment: Callable[[ApplicationPlan], TaskAssignment]
    _events: ThreadEvents
    _restore_listener: RestoreListener | None

    def make(self, number: int) -> StreamThread:
        """Create the stream thread with this number, subscribed to the topics of all tasks."""
        config = self._shared.config
        clients = self._clients
        name = clients.name(f"thread-{number}")
        shared = evolve(self._shared, metrics=self._shared.metrics.of_thread(name))
        assignment = self._assignment(self._plan)
        consumer = clients.consumer(name, number, assignment)
        committer = Committer(
            consumer,
            partial(clients.producer, name, number),
            self._plan,
            shared.metrics.stopwatch(table.COMMITTED),
            shared.environment.clock,
            config.is_exactly_once,
            Refusals(config.producer.max_request_bytes, config.is_exactly_once),
            clients.purger(name) if self._plan.repartition_topics() else None,
            ThreadProgress(name, shared.board, config.is_exactly_once) if shared.progress is not None else None,
        )
        restorer = Restorer(
            clients.reader(f"{name}-restore"),
            _RESTORED_RECORDS * config.consumer.max_poll_records,
            self._restore_listener,
            shared.metrics,
        )
        losses = LossGuard(name, config, restorer, partial(clients.producer, f"{name}-rebuild", None))
        restorer.on_ahead = losses.on_ahead
        cache = RecordCache(config.cache_max_bytes) if config.cache_max_bytes else None
        task_set = TaskSet(name, self._plan, shared, consumer, restorer, losses, cache)
        waits = LaneWaits(
            name,
            shared.board,
            restorer.ends,
            self._plan.patience_ms,
            shared.metrics.counter(table.PATIENCE_ENDED),
            shared.metrics.notices,
        )
        backpressure = Backpressure(shared.board, config.repartition_buffer_bytes)
        thread = StreamThread(name, shared, assignment, committer, task_set, self._events, waits, backpressure)
        shared.board.listen(name, thread.wake)
        consumer.reset_by_topic(self._plan.topology.offset_reset)
        consumer.subscribe(_subscription(self._plan), thread)
        return thread


def _subscription(plan: ApplicationPlan) -> Sequence[str] | re.Pattern[str]:
    """Return the topics of all tasks, or a single pattern if any source has a pattern."""
    topics = sorted({partition.topic for group in plan.partition_groups().values() for partition in group})
    patterns = [node.pattern.pattern for node in plan.topology.sources() if node.pattern is not None]
    if not patterns:
        return topics
    return re.compile("|".join([*(f"(?:{pattern})" for pattern in patterns), *map(re.escape, topics)]))
