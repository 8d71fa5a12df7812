"""Conversion of an input file to the records of a topic.

This module is between the row formats and the source that appends blocks to partitions.  Every row becomes
exactly one record, so row i of a file is record i of its source.  Imports core and files only.
"""

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from attrs import define, evolve, field, frozen

from streams.core.clock import Clock, SystemClock
from streams.core.dead_letters import ROW_HEADER
from streams.core.errors import InputError, InvalidTimestampError, SerializationError
from streams.core.partitioning import partitions_for
from streams.core.records import Block, Headers
from streams.core.timestamps import FromValue
from streams.core.topic import Topic
from streams.files.formats import FileFormat, RowBatch, RowColumns, format_of, is_record
from streams.files.forms import BAD_INPUT, Form, form_of
from streams.files.kinds import WHOLE, FileKind, FileSource, Kind, Part, input_kind

logger = logging.getLogger(__name__)

#: Policies for rows that cannot be read.
OnBadRow: TypeAlias = Literal["fail", "continue"]


class RowReader(Protocol):
    """A function that yields the records of a source in batches.

    A batch has at most one block per partition; the offsets in a block are row numbers.
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
    needs_time: bool = False,
    rows_before: int = 0,
) -> "FileInput":
    """Return the reader for an input file, or for a part of the file; its suffix determines the kind.

    A row goes to its explicit partition, or else to the partition of its key, or else to partition (row number mod
    partition count).  The timestamp is the row's explicit timestamp, or else the result of ``Topic(timestamp=...)``, or
    else the wall clock time; with ``needs_time``, a row without a timestamp is a bad row instead.  ``rows_before``
    is the number of rows that the topic already has, from which row numbers continue.

    With ``on_bad_row="fail"``, a bad row ends the input.  With "continue", its bytes become a value that the topic's
    serde cannot read, with the wall clock time, so that the task's deserialization exception handler counts the row;
    a serde that reads any bytes gets the bytes of the row unchanged.

    Raises:
        InputError: the file does not exist or cannot be read, or its kind is not known.
    """
    source = path if isinstance(path, FileSource) else FileSource.local(path)
    kind = input_kind(source)
    key, value = form_of(topic.key_serde), form_of(topic.value_serde)
    form = format_of(kind.kind, key, value)
    return FileInput(
        source, kind, topic, form, value, on_bad_row, clock or SystemClock(), needs_time, rows_before, part
    )


@define
class RowDigest:
    """The digest of the first rows of a file, which does not depend on the division into batches."""

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
        """The digest of the rows so far, in hexadecimal."""
        return str(self._hash.hexdigest())


class _BadRow(Exception):
    """A row cannot be converted to a record; the message has the reason."""


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
    needs_time: bool = False
    rows_before: int = 0
    part: Part = WHOLE

    @property
    def path(self) -> str:
        """The file name for messages."""
        return self.source.name

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
            columns, failure = self._records(batch, partitions)
            if columns.timestamps:
                if digest is not None:
                    self._digest(digest, batch.rows[: len(columns.timestamps)])
                yield _blocks(columns, self.rows_before + batch.first_row, partitions)
            if failure is not None:
                raise failure

    def digests(self, counts: Iterable[int]) -> dict[int, str]:
        """Return the digest of the first ``count`` rows for each count that does not exceed the file's row count.

        Raises:
            InputError: the file cannot be read further.
        """
        result: dict[int, str] = {}
        digest = RowDigest()
        wanted = sorted(counts, reverse=True)
        batches = self.format.batches(self.source, self.kind, 0, self.part) if wanted else iter(())
        for batch in batches:
            rows = batch.rows
            while wanted and digest.rows + len(rows) >= wanted[-1]:
                count = wanted.pop()
                taken = count - digest.rows
                self._digest(digest, rows[:taken])
                rows = rows[taken:]
                result[count] = digest.value
            if not wanted:
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

    def _records(self, batch: RowBatch, partitions: int) -> tuple["_Records", InputError | None]:
        """Convert a batch to records, up to the first bad row if bad rows end the input."""
        now_ms = self.clock.now_ms()
        try:
            return self._columns(batch.rows, self.rows_before + batch.first_row, partitions, now_ms), None
        except _BadRow:
            pass  # Convert the rows one by one to find the bad row.
        records = _Records([], [], [], [], [])
        for index, row in enumerate(batch.rows):
            number = self.rows_before + batch.first_row + index
            try:
                records.extend(self._columns([row], number, partitions, now_ms))
            except _BadRow as error:
                message = f"{self._place(batch.lines[index])}: {error}"
                if self.on_bad_row == "fail":
                    hint = "fix the row, or skip such rows with --set deserialization_handler=continue"
                    return records, InputError(f"{message}; {hint}")
                raw, is_refused = self._unreadable(self.format.raw(row))
                headers: Headers = ()
                if is_refused:
                    # The exception handler that drops the record reports this message once.
                    headers = ((ROW_HEADER, message.encode()),)
                else:
                    logger.warning("%s; the row is taken as it is", message)
                records.extend(_Records([None], [raw], [now_ms], [headers], [number % partitions]))
        return records, None

    def _columns(self, rows: Sequence[Any], first_row: int, partitions: int, now_ms: int) -> "_Records":
        try:
            columns = self.format.columns(rows)
            values = self._checked(columns.values)
        except BAD_INPUT as error:
            reason = _reason(error, self.topic.name, self.kind.kind)
            raise _BadRow(reason + self._hint(rows)) from error
        if columns.keys is None:
            columns.keys = self._keys(values, len(rows))
        timestamps = self._timestamps(columns, values, now_ms)
        placed = self._partitions(columns.keys, columns.partitions, first_row, partitions)
        headers = columns.headers or [()] * len(rows)
        return _Records(columns.keys, columns.values, timestamps, headers, placed)

    def _checked(self, values: list[bytes | None]) -> list[Any] | None:
        """Deserialize the values if they are needed or have not been checked yet, else return None."""
        topic = self.topic
        if self.value.is_json or topic.timestamp is not None or topic.key_from is not None:
            return self.value.check(values)
        return None

    def _keys(self, values: list[Any] | None, count: int) -> list[bytes | None]:
        key_from = self.topic.key_from
        if key_from is None or values is None:
            return [None] * count
        keys: list[Any] = []
        for value in values:
            try:
                keys.append(None if value is None else key_from(value))
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise _BadRow(f"key_from of topic {self.topic.name!r} failed: {reason}") from error
        try:
            return self.topic.key_serde.serialize_all(keys)
        except SerializationError as error:
            raise _BadRow(f"key_from of topic {self.topic.name!r}: {error}") from error

    def _timestamps(self, columns: RowColumns, values: list[Any] | None, now_ms: int) -> list[int]:
        given = columns.timestamps
        times = [now_ms] * len(columns.values)
        function = self.topic.timestamp
        if self.needs_time and (function is None or values is None) and (given is None or None in given):
            raise _BadRow(
                f"the row has no time, which a replay needs; declare Topic({self.topic.name!r}, timestamp=...) "
                "or give records with a timestamp"
            )
        if function is not None and values is not None:
            extractor = FromValue(self.topic.name, function)
            try:
                block = extractor.block(values, times)
                if block is None:
                    block = [extractor.one(None, value, now_ms, -1) for value in values]
            except InvalidTimestampError as error:
                raise _BadRow(str(error)) from error
            if min(block, default=0) < 0:
                raise _BadRow(f"topic {self.topic.name!r}: the timestamp {min(block)} of the value is before 1970")
            times = list(block)
        if given is None:
            return times
        return [time if own is None else own for own, time in zip(given, times, strict=True)]

    def _partitions(
        self, keys: list[bytes | None], given: list[int | None] | None, first_row: int, partitions: int
    ) -> list[int]:
        if given is not None:
            highest = max((partition for partition in given if partition is not None), default=0)
            if highest >= partitions:
                raise _BadRow(
                    f"partition {highest}, but topic {self.topic.name!r} has {partitions} (0 to {partitions - 1}); "
                    "use --partitions"
                )
        suffix = self.topic.key_serde.key_suffix
        hashed = [key[:-suffix] if suffix else key for key in keys if key is not None]
        by_key = iter(partitions_for(hashed, partitions))
        placed = [(first_row + index) % partitions if key is None else next(by_key) for index, key in enumerate(keys)]
        if given is None:
            return placed
        return [at if own is None else own for own, at in zip(given, placed, strict=True)]

    def _place(self, line: int) -> str:
        return f"{self.source}:{line}" if self.format.unit == "line" else f"{self.source}: {self.format.unit} {line}"

    def _hint(self, rows: Sequence[Any]) -> str:
        """Return what to do about a row that is a whole record in a file whose rows are values, or an empty text."""
        if self.kind.kind is not Kind.JSON_LINES or len(rows) != 1 or not is_record(rows[0]):
            return ""
        suffix = f"{Kind.RECORDS.value}{'.gz' if self.kind.is_gzip else ''}"
        return (
            "; the row is a record with value and timestamp, but each row of this file is read as a value: rename the "
            f"file so that its name ends with {suffix}"
        )

    def _unreadable(self, raw: bytes) -> tuple[bytes, bool]:
        """Return (bytes that the serde rejects, True), or (``raw``, False) if the serde accepts any bytes."""
        for data in (raw, b"\xff" + raw):
            try:
                self.topic.value_serde.deserialize(data)
            except Exception:  # noqa: BLE001 - a user serde may raise anything.
                return data, True
        return raw, False


@define
class _Records:
    """The columns of complete records, before they are split by partition."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers]
    partitions: list[int]

    def extend(self, other: "_Records") -> None:
        self.keys += other.keys
        self.values += other.values
        self.timestamps += other.timestamps
        self.headers += other.headers
        self.partitions += other.partitions


def _blocks(records: _Records, first_row: int, partitions: int) -> list[tuple[int, Block]]:
    headers = records.headers if any(records.headers) else None
    count = len(records.values)
    if partitions == 1:
        rows = range(first_row, first_row + count)
        return [(0, Block(records.keys, records.values, records.timestamps, headers, rows))]
    members: dict[int, list[int]] = {}
    for index, partition in enumerate(records.partitions):
        members.setdefault(partition, []).append(index)
    return [
        (
            partition,
            Block(
                [records.keys[index] for index in indexes],
                [records.values[index] for index in indexes],
                [records.timestamps[index] for index in indexes],
                None if headers is None else [headers[index] for index in indexes],
                [first_row + index for index in indexes],
            ),
        )
        for partition, indexes in sorted(members.items())
    ]


def _reason(error: Exception, topic: str, kind: Kind) -> str:
    """Return a description of a bad row in the terms of its kind of file."""
    if isinstance(error, SerializationError) and isinstance(error.__cause__, msgspec.MsgspecError):
        error = error.__cause__
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start}"
    if isinstance(error, msgspec.ValidationError):
        text = str(error)
        text = text[:1].lower() + text[1:]
        if kind is Kind.RECORDS and "$.timestamp" in text:
            text += "; give epoch milliseconds, or leave timestamp out"
        return f"the row does not fit topic {topic!r}: {text}"
    if isinstance(error, msgspec.DecodeError):
        return f"not JSON: {error}"
    return str(error)
