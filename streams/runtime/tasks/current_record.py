"""The record that a task processes: its place, its raw bytes, and the stream time with it.

The task sets the run of records before it calls the program.  The place within the run is determined only when it is
asked for, so that a record costs nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import define

from streams.core.blocks.records import NO_TIMESTAMP, Headers, RecordContext, RecordMetadata, TopicPartition
from streams.core.inlining import inlined
from streams.runtime.tasks.queues import Run, TaskQueues
from streams.runtime.tasks.sources import SourceReader, TaskInput
from streams.topology import RawRecord

_NO_ORIGIN = ("", -1, -1)
_NO_RAW_RECORD: RawRecord = (None, None)


@define(eq=False)
class CurrentRecord:
    """The current record of one task: one of a run, one that was buffered, or none within a punctuation."""

    _inputs: Mapping[TopicPartition, TaskInput]
    _readers: Mapping[TopicPartition, SourceReader]
    _queues: TaskQueues
    #: The run that is being processed, and the iterator of the program over its values.
    _run: Run | None = None
    _values: Any = None
    #: The input of all records in the run, or None if there are several inputs.
    _item: TaskInput | None = None
    #: The metadata of a buffered record that is being forwarded, and its raw bytes if they are known.
    _override: RecordContext | None = None
    _raw: RawRecord = _NO_RAW_RECORD
    #: Number of records of the run that are part of the time after it: the highest timestamp up to there.
    _time_memo: tuple[int, int] = (0, NO_TIMESTAMP)
    #: Time of the current or last punctuation, in epoch milliseconds.
    punctuated_ms: int = NO_TIMESTAMP

    def begin(self, run: Run, values: Any, item: TaskInput | None) -> None:
        """Set the run to process; ``values`` is an iterator with a length hint, ``item`` the only input of the run."""
        self._run = run
        self._values = values
        self._item = item
        self._time_memo = (0, self._queues.stream_time_ms)

    def end(self) -> None:
        """Forget the run, after all of its records or the one that failed."""
        self._run = self._values = None

    @property
    def index(self) -> int:
        """The index of the current record in the run."""
        assert self._run is not None
        return len(self._run) - int(self._values.__length_hint__()) - 1

    @inlined
    def origin(self) -> tuple[str, int, int]:
        if self._override is not None:
            return self._override[:3]
        run = self._run
        if run is None:
            return _NO_ORIGIN
        index = len(run.timestamps) - self._values.__length_hint__() - 1
        item = self._item
        if item is None:
            item = self._inputs[run.queue_of(index).partition]
        return (item.name, item.number, run.offsets[index])

    def position(self) -> tuple[TaskInput, int] | None:
        """Return the broker partition and offset that identify the record of the run, or None if there is none."""
        if self._run is None:
            return None
        return self._inputs[self._run.queue_of(self.index).partition], self._run.offsets[self.index]

    def metadata(self) -> RecordMetadata | None:
        if self._override is None and self._run is None:
            return None
        return RecordMetadata(*self.origin())

    def context(self, timestamp_ms: int, headers: Headers | None) -> RecordContext:
        """Return the record context: the origin of the current record, with the given timestamp and headers."""
        return RecordContext(*self.origin(), timestamp_ms, headers or ())

    def source_record(self) -> tuple[int, Headers, bytes | None, bytes | None]:
        """Return timestamp, headers, raw key and raw value of the current record; raw data that is not kept is None."""
        if self._override is not None:
            return self._override.timestamp_ms, self._override.headers, *self._raw
        run = self._run
        if run is None:
            return self.punctuated_ms, (), None, None
        index = self.index
        headers = () if run.headers is None else run.headers[index]
        raw = self._readers[run.queue_of(index).partition].raw_record(run.offsets[index])
        return run.timestamps[index], headers, *raw

    def raw_record(self) -> RawRecord:
        """Return the serialized key and value of the current record, each None if it is not kept."""
        return self.source_record()[2:]

    def stream_time_ms(self) -> int:
        """Return the highest timestamp among the records processed so far, including the current record."""
        if self._run is None:
            return self._queues.stream_time_ms
        start, time = self._time_memo
        stop = self.index + 1
        if stop > start:
            time = max(time, max(self._run.timestamps[start:stop]))
            self._time_memo = (stop, time)
        return time

    def within(self, context: RecordContext, forward: Callable[[], None], raw: RawRecord | None = None) -> None:
        """Call ``forward`` for a buffered record, with ``context`` as its metadata, and its raw bytes if not None."""
        before = self._override, self._raw
        self._override = context
        if raw is not None:
            self._raw = raw
        try:
            forward()
        finally:
            self._override, self._raw = before
