"""The parts from which a task is constructed, and its initial state.

The module contains no logic.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from streams.core.calls import CallLoop
from streams.core.metrics import Metrics
from streams.core.records import TaskId, TopicPartition
from streams.runtime.checkpoint import Checkpoint
from streams.runtime.handling import Handlers
from streams.runtime.idle import IdleLimits
from streams.runtime.outbox import Outbox
from streams.runtime.punctuation import TimerHeap
from streams.runtime.queues import TaskQueues
from streams.runtime.sources import SourceReader, TaskInput
from streams.runtime.watching import TaskWatch
from streams.state import RecordCache, Store
from streams.topology import CompiledSubTopology, Topology


@define
class TaskState:
    """The initial state of a task: its stores by name, and the checkpoint of its last commit.

    If ``is_complete`` is False, the stores have yet to be restored, and the driver calls ``initialize`` later.

    Stream-time punctuations continue from the checkpoint.  Wall-clock punctuations do so only with
    ``carries_wall_clock``, for a wall clock that follows the records; otherwise they are rescheduled, as in Kafka
    Streams.  With ``carries_cancelled``, cancelled punctuations stay cancelled; this is for runs that continue an
    earlier run.  It must be False if processors are recreated within a run, since a new processor schedules its
    punctuations again.
    """

    stores: Mapping[str, Store]
    global_stores: Mapping[str, Any] = field(factory=dict)
    checkpoint: Checkpoint = field(factory=Checkpoint)
    is_complete: bool = True
    carries_wall_clock: bool = False
    carries_cancelled: bool = False
    #: Whether wall-clock time passes: the driver calls ``close_idle``, so that the stream time of idle operators
    #: advances, and answers of look-ups age.
    is_timed: bool = True
    #: The event loop for calls of async functions; with None the task waits for them, on a loop of its own.
    call_loop: CallLoop | None = None


@frozen
class TaskParts:
    """The parts of a task, as assembled by its plan.

    Args:
        regroups: Whether the outputs of this task and of others of its sub-topology are merged in a repartition topic.
        timer_heap: The heap that orders punctuations with the same due time.
        cache: The record cache, or None without caching.
        watch: The observer of the task, which is notified once the task's program is bound, or None.
        now_ms: Wall-clock time, in epoch milliseconds.
        idle_limits: The idle limits of the sources, or None if stream time is advanced by records only.
    """

    task_id: TaskId
    application_id: str
    topology: Topology
    compiled: CompiledSubTopology
    inputs: Sequence[TaskInput]
    readers: Mapping[TopicPartition, SourceReader]
    queues: TaskQueues
    state: TaskState
    outbox: Outbox
    metrics: Metrics
    handlers: Handlers
    now_ms: int
    regroups: bool = False
    timer_heap: TimerHeap = field(factory=TimerHeap)
    cache: RecordCache | None = None
    watch: TaskWatch | None = None
    idle_limits: IdleLimits | None = None
