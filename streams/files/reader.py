"""Conversion of an input file to the records of a topic.

This module is between the row formats and the source that appends blocks of records to partitions.  Every row becomes
exactly one record, so row i of a file is record i of its source.
Of the other packages, this module imports only ``core`` and ``values``.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from attrs import define, evolve, field, frozen
from msgspec import inspect

from streams.core.blocks.partitioning import partitions_for
from streams.core.blocks.records import Block, Headers
from streams.core.clock import Clock, SystemClock
from streams.core.collection import collection_paused
from streams.core.dead_letters import ROW_HEADER
from streams.core.errors import InputError, InvalidTimestampError, SerializationError
from streams.core.event_time.timestamps import FromRecord, FromValue
from streams.core.serdes.serde_json import json_fault
from streams.core.topic import Topic
from streams.files.formats import RecordReader, TableRows, format_of, is_record
from streams.files.kinds import WHOLE, FileKind, FileSource, Kind, Part, input_kind
from streams.files.rows import FileFormat, RowBatch, RowColumns
from streams.values import BAD_INPUT, Form, ValueReader, form_of, json_type, names_read, stand_in_decoder

logger = logging.getLogger(__name__)

#: Characters of a row in a message.
_SHOWN = 200

#: The end of the message of a bad row, for runs over files.
ADVICE = "fix the row, or skip such rows with --set deserialization_handler=continue"

#: Policies for rows that cannot be read.
OnBadRow: TypeAlias = Literal["fail", "continue"]


class RowReader(Protocol):
    """A function that yields the records of a source in batches.

    A batch is a list of (partition, block of records), with at most one block per partition.  The offsets in a block
    are row numbers.
    """

    def __call__(self, partitions: int, skip_rows: int) -> Iterator[list[tuple[int, Block]]]:
        """Yield the rows after the first ``skip_rows``, in file order."""
        ...


def open_input(
    topic: Topic[Any, Any],
    path: str | os.PathLike[str] | FileSource,
    *,
    part: Part = WHOLE,
    on_bad_row: OnBadRow = "fail",
    clock: Clock | None = None,
    needs_time: str = "",
    rows_before: int = 0,
    advice: str = ADVICE,
) -> "FileInput":
    """Return the reader for an input file, or for a part of the file; its suffix determines the kind.

    A record is written to the row's explicit partition, or else to the partition of its key, or else to partition (row
    number mod partition count).  The timestamp is the row's explicit timestamp, or else the result of
    ``Topic(timestamp=...)``, or else the wall-clock time; with ``needs_time``, which says what needs it, a row
    without a timestamp is a bad row.
    ``rows_before`` is the number of rows that the topic already has, from which row numbers continue.  ``advice`` is
    appended to the message about a bad row.

    With ``on_bad_row="fail"``, a bad row ends the input.  With "continue", its bytes become a value that the topic's
    serde cannot read, with the wall clock time, so that the task's deserialization exception handler counts the row;
    a serde that reads any bytes gets the bytes of the row unchanged.

    Raises:
        InputError: the file does not exist or cannot be read, or its kind is not known.
    """
    source = path if isinstance(path, FileSource) else FileSource.local(path)
    kind = input_kind(source)
    key = form_of(topic.key_serde)
    value = form_of(topic.value_serde)
    form = format_of(source, kind, key, value, RecordReader(topic, key, value))
    decode = None if kind.kind is Kind.PARQUET else _stand_ins(topic)
    clock = clock or SystemClock()
    return FileInput(
        source,
        kind,
        topic,
        form,
        value,
        on_bad_row,
        clock,
        needs_time,
        rows_before,
        part,
        decode=decode,
        advice=advice,
    )


def _stand_ins(topic: Topic[Any, Any]) -> Callable[[Sequence[bytes | None]], list[Any]] | None:
    """Return a decoder of JSON to partial objects for the topic's functions, or None if they need whole objects."""
    kind = json_type(topic.value_serde)
    info = None if kind is None else inspect.type_info(kind[0])
    functions = [function for function in (topic.key_from, topic.timestamp) if function is not None]
    names = names_read(info, functions)
    return None if names is None else stand_in_decoder(info, names)


def open_table(
    topic: Topic[Any, Any], name: str, batches: Iterable[Any], *, on_bad_row: OnBadRow = "fail", clock: Clock
) -> "FileInput":
    """Return the reader for Arrow record batches of a table, whose rows have no order and therefore no numbers.

    The partition of a row without a key is determined by its value.  Each row needs an event time, as with
    ``needs_time`` of ``open_input``.  ``name`` is the name of the table in messages.
    """
    key = form_of(topic.key_serde)
    value = form_of(topic.value_serde)
    rows = TableRows(ValueReader(value), RecordReader(topic, key, value), record_batches=batches)
    source = FileSource(name, _no_file)
    kind = FileKind(Kind.PARQUET)
    return FileInput(source, kind, topic, rows, value, on_bad_row, clock, "a replay", has_row_numbers=False)


def _no_file() -> Any:
    raise OSError("its rows come as Arrow batches")


@define
class RowDigest:
    """The digest of the first rows of a file, regardless of how the rows are divided into batches."""

    rows: int = 0
    _hash: Any = field(factory=lambda: blake2b(digest_size=16))

    def add(self, rows: Collection[bytes], heading: bytes) -> None:
        """Add further rows; ``heading`` is the content above the first row."""
        if not self.rows:
            self._hash.update(heading)
        self.rows += len(rows)
        self._hash.update(b"".join(b"%b\n" % row for row in rows))

    @property
    def value(self) -> str:
        """The digest of the rows added so far, in hexadecimal."""
        return str(self._hash.hexdigest())


class _BadRow(Exception):
    """A row cannot be converted to a record; the message has the reason."""


class _NoTime(_BadRow):
    """No row of the file has a time."""


@frozen
class FileInput:
    """A ``RowReader`` for one file or a part of a file, which may be called more than once."""

    source: FileSource
    kind: FileKind
    topic: Topic[Any, Any]
    format: FileFormat
    value: Form
    on_bad_row: OnBadRow
    clock: Clock
    needs_time: str = ""
    rows_before: int = 0
    part: Part = WHOLE
    has_row_numbers: bool = True
    #: Whether row n is n milliseconds after 1970 if it has no timestamp.
    has_row_times: bool = False
    #: Decodes a column of JSON to partial objects (``stand_ins``); None if complete values are needed.
    decode: Callable[[Sequence[bytes | None]], list[Any]] | None = None
    #: The end of the message of a bad row.
    advice: str = ADVICE
    #: Has an item once a row has named its partition.
    _named: list[bool] = field(factory=list, eq=False, repr=False)

    @property
    def path(self) -> str:
        """The file name, for messages."""
        return self.source.name

    @property
    def names_partitions(self) -> bool:
        """Whether a row that was read has named its partition."""
        return bool(self._named)

    def __call__(self, partitions: int, skip_rows: int = 0) -> Iterator[list[tuple[int, Block]]]:
        """Yield the rows after the first ``skip_rows`` of the file, in file order.

        Raises:
            InputError: a row is bad and bad rows are not allowed, or the file cannot be read further; raised
                after the preceding rows.
        """
        return self.read(partitions, None, skip_rows)

    def read(self, partitions: int, digest: RowDigest | None, skip_rows: int = 0) -> Iterator[list[tuple[int, Block]]]:
        """Yield the rows like ``__call__``, and add rows to ``digest``, if given, before they are yielded.

        Raises:
            InputError: see ``__call__``.
        """
        for batch in self.format.batches(self.source, self.kind, skip_rows, self.part):
            with collection_paused():
                columns, failure = self._records(batch, partitions)
            if columns.timestamps:
                if digest is not None:
                    self._digest(digest, batch.rows[: len(columns.timestamps)])
                yield _blocks(columns, partitions)
            if failure is not None:
                raise failure

    def records(self, partitions: int, skip_rows: int = 0) -> Iterator["Records"]:
        """Yield the rows in batches that are not divided by partition; only declared columns are read.

        Raises:
            InputError: see ``__call__``; the preceding rows of the batch are lost.
        """
        declared = self.format.declared()
        for batch in declared.batches(self.source, self.kind, skip_rows, self.part):
            with collection_paused():
                try:
                    columns = self._whole(batch, partitions)
                    failure = None
                except _BadRow:
                    if declared is not self.format:
                        # From here on read all columns, since a bad row is reported and kept with all of them.
                        yield from self._records_of_all_columns(partitions, batch.first_row)
                        return
                    columns, failure = self._one_by_one(batch, partitions)
            if failure is not None:
                raise failure
            yield columns

    def _records_of_all_columns(self, partitions: int, skip_rows: int) -> Iterator["Records"]:
        for batch in self.format.batches(self.source, self.kind, skip_rows, self.part):
            with collection_paused():
                columns, failure = self._records(batch, partitions)
            if failure is not None:
                raise failure
            yield columns

    def digests(self, counts: Iterable[int]) -> dict[int, str]:
        """Return the digest of the first ``count`` rows for each count that does not exceed the file's row count.

        Raises:
            InputError: the file cannot be read further.
        """
        result: dict[int, str] = {}
        digest = RowDigest()
        remaining = sorted(counts, reverse=True)
        batches = self.format.batches(self.source, self.kind, 0, self.part) if remaining else iter(())
        for batch in batches:
            rows = batch.rows
            while remaining and digest.rows + len(rows) >= remaining[-1]:
                count = remaining.pop()
                taken = count - digest.rows
                self._digest(digest, rows[:taken])
                rows = rows[taken:]
                result[count] = digest.value
            if not remaining:
                break
            self._digest(digest, rows)
        return result

    def has_rows(self, count: int) -> bool:
        """Whether the file has more than ``count`` rows."""
        return next(iter(self.format.batches(self.source, self.kind, count, self.part)), None) is not None

    def after(self, rows: int) -> "FileInput":
        """Return a reader for the same file and a topic that already has ``rows`` rows."""
        return evolve(self, rows_before=rows)

    def _digest(self, digest: RowDigest, rows: Sequence[Any]) -> None:
        digest.add(list(map(self.format.raw, rows)), self.format.heading)

    def _records(self, batch: RowBatch, partitions: int) -> tuple["Records", InputError | None]:
        """Convert a batch to records, up to the first bad row if bad rows end the input."""
        try:
            return self._whole(batch, partitions), None
        except _BadRow:
            return self._one_by_one(batch, partitions)

    def _whole(self, batch: RowBatch, partitions: int) -> "Records":
        return self._columns(batch.rows, self.rows_before + batch.first_row, partitions, self.clock.now_ms())

    def _one_by_one(self, batch: RowBatch, partitions: int) -> tuple["Records", InputError | None]:
        """Convert the rows of a batch one by one, to find bad rows."""
        now_ms = self.clock.now_ms()
        records = Records([], [], [], [], [], self.rows_before + batch.first_row)
        for index, row in enumerate(batch.rows):
            number = self.rows_before + batch.first_row + index
            try:
                records.extend(self._columns(batch.rows[index : index + 1], number, partitions, now_ms))
            except _BadRow as error:
                message = f"{self._place(batch.lines[index], row)}: {error}"
                if isinstance(error, _NoTime):
                    return records, InputError(message)
                if self.on_bad_row == "fail":
                    return records, InputError(f"{message}; {self.advice}")
                raw, is_refused = self._unreadable(self.format.raw(row))
                headers: Headers = ()
                if is_refused:
                    # The exception handler that drops the record reports this message once.
                    headers = ((ROW_HEADER, message.encode()),)
                else:
                    logger.warning("%s; the row is taken as it is", message)
                placed = number % partitions if self.has_row_numbers else partitions_for([raw], partitions)[0]
                records.extend(Records([None], [raw], [now_ms], [headers], [placed], number))
        return records, None

    def _columns(self, rows: Sequence[Any], first_row: int, partitions: int, now_ms: int) -> "Records":
        try:
            columns = self.format.columns(rows)
            values = self._checked(columns.values) if columns.fields is None else None
        except BAD_INPUT as error:
            reason = _reason(error, self.topic.name, self.kind.kind, self.format.raw(rows[0]) if rows else b"")
            raise _BadRow(reason + self._hint(rows)) from error
        if columns.keys is None:
            columns.keys = self._keys(columns, values)
        timestamps, untimed = self._timestamps(columns, values, first_row, now_ms)
        placed = self._partitions(columns, first_row, partitions)
        return Records(columns.keys, columns.values, timestamps, columns.headers, placed, first_row, untimed)

    def _checked(self, values: list[bytes | None]) -> list[Any] | None:
        """Deserialize the values if the topic needs objects or if the bytes are unchecked JSON; else return None."""
        topic = self.topic
        if not self.value.is_json and topic.timestamp is None and topic.key_from is None:
            return None
        if self.decode is not None:
            try:
                return self.decode(values)
            except (msgspec.MsgspecError, *BAD_INPUT):
                pass  # The serde raises the error.
        return self.value.check(values)

    def _keys(self, columns: RowColumns, values: list[Any] | None) -> Any:
        key_from = self.topic.key_from
        serde = self.topic.key_serde
        if columns.fields is not None and key_from is not None:
            read_keys = columns.fields.keys(key_from, serde)
            if read_keys is not None:
                return read_keys
            values = columns.fields.objects(key_from)
        if key_from is None or values is None:
            return [None] * len(columns.values)
        try:
            keys = list(map(self.topic.key_of, values))
        except SerializationError as error:
            raise _BadRow(str(error)) from error
        try:
            return serde.serialize_all(keys)
        except SerializationError as error:
            raise _BadRow(f"key_from of topic {self.topic.name!r}: {error}") from error

    def _timestamps(
        self, columns: RowColumns, values: list[Any] | None, first_row: int, now_ms: int
    ) -> tuple[list[int], int]:
        """Return the times of rows, and how many rows have none of their own."""
        own_times: Sequence[int | None] | None = columns.timestamps
        count = len(columns.values)
        times = list(range(first_row, first_row + count)) if self.has_row_times else [now_ms] * count
        event_time = self.topic.event_time
        has_values = values is not None or columns.fields is not None
        lacks_time = own_times is None or None in own_times
        if event_time is not None and has_values and (lacks_time or isinstance(event_time, FromValue)):
            read_times = None if columns.fields is None else columns.fields.times(event_time.function)
            called = self._called(event_time, columns, values, times) if read_times is None else read_times
            lowest = min(filter(None, called), default=0)
            if lowest < 0:
                raise _BadRow(f"topic {self.topic.name!r}: the timestamp {lowest} of the value is before 1970")
            if own_times is not None:
                called = [time if own is None else own for own, time in zip(own_times, called, strict=True)]
            own_times = called
        untimed = count if own_times is None else own_times.count(None)
        if self.needs_time and untimed:
            # A file in which no row can have a time would be skipped whole.
            kind = _NoTime if event_time is None and columns.timestamps is None else _BadRow
            raise kind(
                f"the row has no time, which {self.needs_time} needs; declare "
                f"Topic({self.topic.name!r}, timestamp=...) or give records with a timestamp"
            )
        if own_times is not None:
            times = [time if own is None else own for own, time in zip(own_times, times, strict=True)]
        return times, untimed

    def _called(
        self,
        event_time: FromValue | FromRecord,
        columns: RowColumns,
        values: list[Any] | None,
        times: Sequence[int],
    ) -> Sequence[int | None]:
        """Return the results of the topic's ``timestamp`` function; a tombstone gets its time from ``times``.

        A function of the record sees that a row has no time of its own, and may have none for it.
        """
        objects = columns.fields.objects(event_time.function) if columns.fields is not None else values or []
        try:
            if isinstance(event_time, FromValue):
                block = event_time.block(objects, times)
                if block is not None:
                    return block
                return [event_time.one(None, value, time, -1) for value, time in zip(objects, times, strict=True)]
            keys = self.topic.key_serde.deserialize_all(as_list(columns.keys))
            own_times = columns.timestamps or [None] * len(times)
            headers = columns.headers or [()] * len(times)
            rows = zip(own_times, keys, objects, headers, strict=True)
            return [event_time.of_row(*row) if own is None else own for own, *row in rows]
        except InvalidTimestampError as error:
            raise _BadRow(str(error)) from error

    def _partitions(self, columns: RowColumns, first_row: int, partitions: int) -> list[int]:
        own_partitions = columns.partitions
        keys = as_list(columns.keys)
        if own_partitions is not None:
            highest = max((partition for partition in own_partitions if partition is not None), default=0)
            if highest >= partitions:
                raise _BadRow(
                    f"partition {highest}, but topic {self.topic.name!r} has {partitions} (0 to {partitions - 1}); "
                    "use --partitions"
                )
        placed = partitions_for([key or b"" for key in keys], partitions, self.topic.key_serde.key_suffix)
        if None in keys:
            keyless = [index for index, key in enumerate(keys) if key is None]
            for index, partition in zip(keyless, self._keyless(columns, keys, first_row, partitions), strict=True):
                placed[index] = partition
        if own_partitions is None or not any(partition is not None for partition in own_partitions):
            return placed
        self._named[:] = [True]
        return [at if own is None else own for own, at in zip(own_partitions, placed, strict=True)]

    def _keyless(
        self, columns: RowColumns, keys: Sequence[bytes | None], first_row: int, partitions: int
    ) -> Iterator[int]:
        """Yield the partition of each row without a key."""
        if self.has_row_numbers:
            return ((first_row + index) % partitions for index, key in enumerate(keys) if key is None)
        values = as_list(columns.values)
        own = [value or b"" for key, value in zip(keys, values, strict=True) if key is None]
        return iter(partitions_for(own, partitions))

    def _place(self, line: int, row: Any) -> str:
        if not self.has_row_numbers:
            return f"{self.source}: row {self.format.raw(row).decode(errors='replace')[:_SHOWN]}"
        return f"{self.source}:{line}" if self.format.unit == "line" else f"{self.source}: {self.format.unit} {line}"

    def _hint(self, rows: Sequence[Any]) -> str:
        """Return advice if a row is a whole record although the file's rows are values; otherwise an empty text."""
        if self.kind.kind is not Kind.JSON_LINES or len(rows) != 1 or not is_record(rows[0]):
            return ""
        suffix = f"{Kind.RECORDS.value}{self.kind.compression}"
        return (
            "; the row is a record with value and timestamp, but each row of this file is read as a value: rename the "
            f"file so that its name ends with {suffix}"
        )

    def _unreadable(self, raw: bytes) -> tuple[bytes, bool]:
        """Return (bytes that the serde rejects, True), or (``raw``, False) if the serde accepts any bytes."""
        for data in (raw, b"\xff" + raw, b""):
            try:
                self.topic.value_serde.deserialize(data)
            except Exception:  # noqa: BLE001 - a user serde may raise anything.
                return data, True
        return raw, False


@define
class Records:
    """The columns of complete records, before they are split by partition.

    Keys and values are lists of bytes, or Arrow arrays.  ``headers`` is None if no record has any.
    """

    keys: Any
    values: Any
    timestamps: list[int]
    headers: list[Headers] | None
    partitions: list[int]
    #: Number of the first row in the topic.
    first_row: int
    #: Number of rows without a time of their own.
    untimed: int = 0

    def __len__(self) -> int:
        return len(self.timestamps)

    def extend(self, other: "Records") -> None:
        """Append the records of ``other``; all columns of these records are lists."""
        self.keys += as_list(other.keys)
        self.values += as_list(other.values)
        self.timestamps += other.timestamps
        self.headers = [*(self.headers or ()), *(other.headers or [()] * len(other))]
        self.partitions += other.partitions
        self.untimed += other.untimed


def as_list(column: Any) -> list[Any]:
    """Return the values of a column, which may be a list or an Arrow array; None for null."""
    return column if isinstance(column, list) else list(column.to_pylist())


def _blocks(records: Records, partitions: int) -> list[tuple[int, Block]]:
    headers = records.headers if any(records.headers or ()) else None
    keys = as_list(records.keys)
    values = as_list(records.values)
    first_row = records.first_row
    if partitions == 1:
        return [(0, Block(keys, values, records.timestamps, headers, range(first_row, first_row + len(records))))]
    members: dict[int, list[int]] = {}
    for index, partition in enumerate(records.partitions):
        members.setdefault(partition, []).append(index)
    return [
        (
            partition,
            Block(
                [keys[index] for index in indexes],
                [values[index] for index in indexes],
                [records.timestamps[index] for index in indexes],
                None if headers is None else [headers[index] for index in indexes],
                [first_row + index for index in indexes],
            ),
        )
        for partition, indexes in sorted(members.items())
    ]


def _reason(error: Exception, topic: str, kind: Kind, row: bytes) -> str:
    """Return why a row is bad, as a message that suits the kind of file."""
    if isinstance(error, SerializationError) and isinstance(error.__cause__, msgspec.MsgspecError):
        error = error.__cause__
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start}"
    if isinstance(error, msgspec.ValidationError):
        text = str(error)
        text = text[:1].lower() + text[1:]
        if kind is Kind.RECORDS and "$.timestamp" in text:
            text += "; give epoch milliseconds, or leave timestamp out"
        return f"the row does not match topic {topic!r}: {text}"
    return json_fault(row, error)
