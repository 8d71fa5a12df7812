"""Writes output topics to folders of Parquet files, in the calls of an executor.

One call writes one partition of a topic for one slice.  File names are derived from the replay, the slice and the
partition, and the rows of a slice are always the same, so a repeated call replaces its own files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from typing import Any

from attrs import define, field, frozen

from streams.core.blocks.records import Block
from streams.core.errors import InputError
from streams.replay.calls.outputs import OutputPart
from streams.replay.calls.work import Application, CallMeter, StageReport
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments
from streams.values import ArrowRecords, PartitionColumn, file_schema, folders_of

#: Rows of one row group, and the maximum number of rows in memory.
_GROUP_ROWS = 100_000
_WAITING_ROWS = 400_000
#: Maximum number of files that one call has open.
_OPEN_FILES = 64


@frozen
class WriteWork:
    """A call to an executor that writes one partition of an output topic, for one slice, to a folder."""

    application: Application = field(repr=False)
    topic: str
    part: OutputPart
    segments: Segments
    target: Place
    #: The beginning of the names of the files: replay, topic and slice.
    prefix: str
    partition_by: tuple[PartitionColumn, ...] = ()
    #: Whether the files have Arrow's type of JSON.
    has_json: bool = True
    #: Whether only the last record of each key is written.
    is_last: bool = False
    folder: str = "writes"
    stage: int = -3

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages."""
        return f"{self.prefix}-{self.part.partition}"

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of records and bytes that the call has to read, as far as they are known."""
        return self.part.rows, 0


@frozen
class WriteReport(StageReport):
    """The result of a call that writes: the number of rows of each file, by path relative to the target."""

    written: Mapping[str, int] = field(factory=dict)

    @property
    def records_in(self) -> int:
        """The number of records that the call has written."""
        return sum(self.written.values())


def run_write(work: WriteWork) -> WriteReport:
    """Write the records of a call.

    Raises:
        StreamsError: a record cannot be read, or a file cannot be written.
    """
    columns = ArrowRecords(work.application.output_topic(work.topic), as_table=True, has_json=work.has_json)
    with CallMeter(work) as meter:
        name = f"{work.prefix}-p{work.part.partition:05d}"
        schema = file_schema(columns.schema, work.partition_by)
        with FolderWriter(work.target, name, schema, work.partition_by) as writer:
            blocks = work.segments.merged(work.part.lanes, work.part.first)
            for block in _last_by_key(blocks, work) if work.is_last else blocks:
                writer.write(columns.batch(work.part.partition, block))
        return meter.report(WriteReport, written=writer.rows)


def _last_by_key(blocks: Iterable[Block], work: WriteWork) -> Iterator[Block]:
    """Yield the last record of each key, in their order; a tombstone takes its key away.

    Raises:
        InputError: a record has no key.
    """
    last: dict[bytes, tuple[Any, ...]] = {}
    for block in blocks:
        for row in block.rows():
            offset, key, value = row[:3]
            if key is None:
                raise InputError(
                    f"{work.topic}-{work.part.partition}: the record at offset {offset} has no key, but the last "
                    "record of each key is to be written; give mode='append'"
                )
            last.pop(key, None)
            if value is not None:
                last[key] = row
    records = iter(last.values())
    while rows := list(islice(records, _GROUP_ROWS)):
        offsets, keys, values, times, headers = map(list, zip(*rows, strict=True))
        yield Block(keys, values, times, headers, offsets)


@define(eq=False)
class _OpenFile:
    """A file that is being written."""

    path: str
    context: AbstractContextManager[Any]
    writer: Any


@define(eq=False)
class FolderWriter:
    """Writes batches to Parquet files in the folders of their partitions; the same batches make the same files.

    The writer is a context manager: each file appears under its name when it is complete.
    """

    _target: Place
    _name: str
    #: The columns of the files.
    _schema: Any
    _partition_by: Sequence[PartitionColumn] = ()
    #: Number of rows of each file, by path relative to the target.
    rows: dict[str, int] = field(factory=dict)
    _waiting: dict[str, list[Any]] = field(factory=dict)
    #: Open files by folder, the least recently used one first.
    _open: dict[str, _OpenFile] = field(factory=dict)
    _files: dict[str, int] = field(factory=dict)

    def write(self, batch: Any) -> None:
        """Write a batch, whose rows may belong to several partitions.

        Raises:
            ReplayError: a file cannot be written.
        """
        for folder, rows in folders_of(batch, self._partition_by, self._schema):
            self._waiting.setdefault(folder, []).append(rows)
            if _count(self._waiting[folder]) >= _GROUP_ROWS:
                self._flush(folder)
        while sum(map(_count, self._waiting.values())) > _WAITING_ROWS:
            self._flush(max(self._waiting, key=lambda folder: _count(self._waiting[folder])))

    def _flush(self, folder: str) -> None:
        import pyarrow as pa

        batches = self._waiting.pop(folder)
        opened = self._open.pop(folder, None) or self._opened(folder)
        self._open[folder] = opened
        opened.writer.write_table(pa.Table.from_batches(batches, self._schema))
        self.rows[opened.path] += _count(batches)
        if len(self._open) > _OPEN_FILES:
            self._finish(next(iter(self._open)))

    def _opened(self, folder: str) -> _OpenFile:
        import pyarrow.parquet as pq

        number = self._files[folder] = self._files.get(folder, -1) + 1
        path = f"{folder}{self._name}-{number}.parquet"
        context = self._target.child(path).whole_file()
        stream = context.__enter__()
        self.rows[path] = 0
        return _OpenFile(path, context, pq.ParquetWriter(stream, self._schema, compression="snappy"))

    def _finish(self, folder: str) -> None:
        # The last one is the one that an error belongs to.
        opened = self._open[folder] = self._open.pop(folder)
        opened.writer.close()
        del self._open[folder]
        opened.context.__exit__(None, None, None)

    def __enter__(self) -> "FolderWriter":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        with ExitStack() as stack:
            stack.push(self._discard)
            if error is not None:
                raise error
            for folder in list(self._waiting):
                self._flush(folder)
            for folder in list(self._open):
                self._finish(folder)

    def _discard(self, kind: Any, error: Any, trace: Any) -> None:
        """Delete the files that are open; an error of the file system is raised with the name of its file."""
        with ExitStack() as stack:
            for opened in self._open.values():
                opened.writer.is_open = False  # Otherwise its finalizer would write to the closed file.
                stack.push(opened.context)
            if error is not None:
                raise error


def _count(batches: Sequence[Any]) -> int:
    return sum(batch.num_rows for batch in batches)
