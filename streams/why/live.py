"""Traces a key in a running application (an ``Instance`` of ``runtime``) for a limited time.

The stream threads start and stop the tracing of their tasks, between two iterations of their poll loops.
"""

from collections.abc import Callable, Iterable, Set
from contextlib import suppress

from attrs import frozen

from streams.core.blocks.records import TaskId
from streams.core.errors import ClientClosedError, StreamsError
from streams.runtime import Instance, StreamThread, directive_of
from streams.topology import Topology
from streams.why.ask import notes_of, part_of, targets_of
from streams.why.parts import StoryPart
from streams.why.question import Question
from streams.why.recorder import Recorder
from streams.why.story import End
from streams.why.trace import Trace

#: Interval between two checks of the trace, in milliseconds.
_LOOK_MS = 50
#: Time for which the last record of the limit is followed through further topics, in milliseconds.
_REST_MS = 2_000
#: Number of recent episodes of other keys that are kept, since they may have written rows that the key reads.
_RECENT = 2_000


class TraceRunningError(StreamsError):
    """The tasks of the instance are already being traced for another question."""


def _never() -> bool:
    return False


@frozen
class FollowLimits:
    """The duration of a trace: until ``seconds`` have passed, or ``records`` records of the key have been processed."""

    seconds: float = 10.0
    records: int = 1_000

    def __attrs_post_init__(self) -> None:
        """Refuse limits within which nothing can be seen.

        Raises:
            StreamsError: they are not above 0.
        """
        if not self.seconds > 0 or self.records < 1:
            raise StreamsError(
                f"why() for {self.seconds} seconds and {self.records} records would see nothing: both must be above 0"
            )


def follow(
    instance: Instance,
    topology: Topology,
    question: Question,
    limits: FollowLimits,
    is_over: Callable[[], bool] = _never,
) -> StoryPart:
    """Trace the tasks of an instance within limits, and answer a question from the trace.

    Tracing ends early once ``is_over`` returns true.

    Raises:
        ClientClosedError: the instance is not running.
        UnknownTopicError: the topology writes no such topic, or has no such node.
        TraceRunningError: the tasks are already being traced for another question.
    """
    targets_of(question, topology)
    if not instance.tracing.acquire(blocking=False):
        raise TraceRunningError("the tasks are being traced for another question; ask again when it is answered")
    try:
        return _followed(instance, topology, question, limits, is_over)
    finally:
        instance.tracing.release()


def _followed(
    instance: Instance, topology: Topology, question: Question, limits: FollowLimits, is_over: Callable[[], bool]
) -> StoryPart:
    trace = Trace(question.follows, question.mentions, limits.records)
    trace.remember(_RECENT)
    directive = directive_of(instance)
    if directive is not None:
        trace.partition_counts = instance.plan_of(directive.layout).partitions
    recorder = Recorder(trace)

    def begin(thread: StreamThread) -> set[TaskId]:
        """Start to trace the tasks of a thread, and return these tasks."""
        open_tasks = [task for task in thread.tasks.values() if task.is_initialized]
        for task in open_tasks:
            if not recorder.has(task):
                recorder.attach(task)
        return {task.task_id for task in open_tasks}

    def end(thread: StreamThread) -> tuple[set[TaskId], list[End]]:
        """Stop tracing the tasks of a thread; return the tasks that were traced, and notes about them."""
        traced = {task.task_id for task in thread.tasks.values() if recorder.has(task)}
        for task in thread.tasks.values():
            recorder.stop(task)
        return traced, list(notes_of(question, trace, thread.tasks))

    clock = instance.environment.clock
    notes = list[End]()
    first = set[TaskId]()
    instance.metrics.on_drop = recorder.dropped
    try:
        deadline_ms = clock.monotonic_ms() + int(limits.seconds * 1000)
        first = _joined(instance.ask(begin))
        is_full = False
        while not is_full or trace.is_awaiting:
            if not is_full and trace.records >= limits.records:
                is_full = True
                deadline_ms = min(deadline_ms, clock.monotonic_ms() + _REST_MS)
                continue
            if is_over() or clock.monotonic_ms() >= deadline_ms or instance.supervisor.ended.wait(_LOOK_MS):
                break
            # Meanwhile, tasks may be assigned to this instance.
            instance.ask(begin)
    finally:
        instance.metrics.on_drop = None
        # An instance that has ended runs no task any more.
        with suppress(ClientClosedError):
            ended = instance.ask(end)
            notes += _moves(first, _joined(tasks for tasks, _ in ended), recorder.open_tasks.keys())
            # Each thread adds the notes that concern the whole instance, so duplicates are removed.
            for _, thread_notes in ended:
                notes += [note for note in thread_notes if note not in notes]
    return part_of(question, trace, topology, recorder.open_tasks, notes)


def _joined(tasks: Iterable[Set[TaskId]]) -> set[TaskId]:
    return {task_id for ids in tasks for task_id in ids}


def _moves(first: Set[TaskId], last: Set[TaskId], traced: Set[TaskId]) -> list[End]:
    """Return notes about the tasks that were moved from or to this instance during the trace.

    ``first`` contains its tasks at the beginning, ``last`` its tasks at the end, and ``traced`` all traced tasks.
    """
    notes = []
    if left := traced - last:
        text = f"left this instance while the key was followed: what {_they(left)} did since then is not in its part"
        notes.append(End("task moved", "", f"{_named(left)} {text}", {"tasks": len(left)}))
    if came := last - first:
        text = f"came to this instance while the key was followed: what {_they(came)} did before is not in its part"
        notes.append(End("task moved", "", f"{_named(came)} {text}", {"tasks": len(came)}))
    return notes


def _named(tasks: Set[TaskId]) -> str:
    return f"task{'s' if len(tasks) > 1 else ''} {', '.join(map(str, sorted(tasks)))}"


def _they(tasks: Set[TaskId]) -> str:
    return "they" if len(tasks) > 1 else "it"
