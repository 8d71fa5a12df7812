"""Following a key in a running application for a while.

The tracing program is put in and taken out by the threads that own the tasks, between two iterations of their loops.
Imports runtime; the application is an ``Instance``.
"""

from collections.abc import Callable
from contextlib import suppress

from attrs import frozen

from streams.core.errors import ClientClosedError, StreamsError
from streams.runtime import Instance, StreamThread
from streams.topology import Topology
from streams.why.ask import answer, notes_of, targets_of
from streams.why.question import Question
from streams.why.recorder import Recorder
from streams.why.story import End, Story
from streams.why.trace import Trace

#: Interval in milliseconds between two looks at the trace.
_LOOK_MS = 50
#: Episodes of other keys that are kept, for rows that they have written.
_RECENT = 2_000


class TraceRunningError(StreamsError):
    """The tasks are being traced for another question."""


def _never() -> bool:
    return False


@frozen
class FollowLimits:
    """How long a key is followed: until ``seconds`` have passed, or ``records`` of the key were seen."""

    seconds: float = 10.0
    records: int = 1_000


def follow(
    instance: Instance,
    topology: Topology,
    question: Question,
    limits: FollowLimits,
    is_over: Callable[[], bool] = _never,
) -> Story:
    """Trace the tasks of an instance within limits, and answer a question about what they did.

    Tracing ends early once ``is_over`` returns true.

    Raises:
        ClientClosedError: the instance does not run.
        UnknownTopicError: the topology writes no such topic, or has no such node.
        TraceRunningError: another trace is running.
    """
    targets_of(question, topology)
    if instance.metrics.on_drop is not None:
        raise TraceRunningError("the tasks are being traced for another question; ask again when it is answered")
    trace = Trace(question.follows, question.mentions, limits.records)
    trace.remember(_RECENT)
    recorder = Recorder(trace)

    def begin(thread: StreamThread) -> None:
        for task in thread.tasks.values():
            if not recorder.has(task):
                recorder.opened(task)

    def end(thread: StreamThread) -> list[End]:
        for task in thread.tasks.values():
            recorder.stop(task)
        return list(notes_of(question, trace, thread.tasks))

    clock, notes = instance.environment.clock, list[End]()
    instance.metrics.on_drop = recorder.dropped
    try:
        deadline_ms = clock.monotonic_ms() + int(limits.seconds * 1000)
        # Tasks may come to this instance meanwhile.
        while instance.ask(begin) is not None and len(trace.kept) < limits.records:
            if is_over() or clock.monotonic_ms() >= deadline_ms or instance.ended.wait(_LOOK_MS):
                break
    finally:
        instance.metrics.on_drop = None
        # An instance that has ended runs no task any more.
        with suppress(ClientClosedError):
            # What concerns the whole instance is noted by each thread.
            for found in instance.ask(end):
                notes += [note for note in found if note not in notes]
    return answer(question, trace, topology, recorder.open_tasks, notes)
