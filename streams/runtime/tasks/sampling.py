"""Sampled traces: each sampled record is processed alone, within a span, and its outputs carry the span's ID.

The ID is in the ``traceparent`` header of W3C Trace Context.

``telemetry.otel`` creates the spans. The ``traceparent`` header of a record determines whether it is sampled; of the
records without this header, every n-th is sampled. Results that are emitted
later, from a cache, a store or a punctuation, do not get the header, since they may depend on many records. The module
is pure: it does not read the clock.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from attrs import define

from streams.core.blocks.records import Headers, TaskId, TopicPartition
from streams.runtime.tasks.outbox import Outbox
from streams.runtime.tasks.queues import Run
from streams.runtime.tasks.sources import TaskInput

#: The W3C header, and the bit of its flags that marks the trace as sampled.
TRACEPARENT = "traceparent"
_SAMPLED = 0x01
_LENGTH = 55


class RecordSpan(Protocol):
    """The span of one record."""

    @property
    def traceparent(self) -> bytes:
        """The value of the ``traceparent`` header that identifies this span."""
        ...

    def end(self, error: BaseException | None = None) -> None:
        """End the span; ``error`` is the exception raised by the processing of the record, or None."""
        ...


class SpanSource(Protocol):
    """Creates the spans of records."""

    #: One of this many records without a traceparent is sampled; 0 = none.
    every: int

    def start(self, task_id: TaskId, topic: str, partition: int, offset: int, parent: bytes | None) -> RecordSpan:
        """Start a span for a record; ``parent`` is the value of the record's ``traceparent`` header, or None."""
        ...


def _parent_of(headers: Headers) -> bytes | None:
    """Return the value of the ``traceparent`` header if it is well-formed, otherwise None."""
    found = next((value for name, value in headers if name == TRACEPARENT), None)
    return found if found is not None and len(found) >= _LENGTH and found[2:3] == b"-" else None


def _is_sampled(parent: bytes) -> bool:
    try:
        return bool(int(parent[53:55], 16) & _SAMPLED)
    except ValueError:
        return False


@define(eq=False)
class TaskSampling:
    """Selects the sampled records of one task, and processes them within spans."""

    _spans: SpanSource
    _task_id: TaskId
    _outbox: Outbox
    _inputs: Mapping[TopicPartition, TaskInput]
    #: Number of records without a traceparent since the last one of them that was sampled.
    _count: int = 0

    def run(self, run: Run, execute: Callable[[Run], int]) -> int:
        """Process a run of records up to its first sampled record, and return how many records were processed.

        A sampled record at the start of the run is processed alone.
        """
        index, parent = self._next(run)
        if index:
            return execute(run if index == len(run) else run.head(index))
        before = self._outbox.sizes()
        item = self._inputs[run.queue_of(0).partition]
        span = self._spans.start(self._task_id, item.name, item.number, run.offsets[0], parent)
        try:
            count = execute(run.head(1))
        except BaseException as error:
            span.end(error)
            raise
        span.end()
        self._outbox.set_header(TRACEPARENT, span.traceparent, before)
        return count

    def _next(self, run: Run) -> tuple[int, bytes | None]:
        """Return index and ``traceparent`` of the first sampled record; if there is none, the length of the run."""
        every = self._spans.every
        rows = len(run)
        if run.headers is None:
            left = every - self._count - 1 if every else rows
            self._count = 0 if left < rows and not left else self._count + min(left, rows)
            return min(left, rows), None
        return self._next_of(run.headers)

    def _next_of(self, column: Sequence[Headers]) -> tuple[int, bytes | None]:
        every = self._spans.every
        for index, headers in enumerate(column):
            parent = _parent_of(headers)
            if parent is not None:
                if _is_sampled(parent):
                    return index, parent
            elif every and self._count + 1 >= every:
                if not index:
                    self._count = 0
                return index, None
            else:
                self._count += 1
        return len(column), None
