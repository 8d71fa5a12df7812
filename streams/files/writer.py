"""Writes the records of a topic to an output file.

A file is written under a temporary name and renamed when complete, so it is complete or absent.
Of the other packages, this module imports only ``core`` and ``values``.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from attrs import frozen

from streams.core.blocks.records import NO_TIMESTAMP, Block, Headers
from streams.core.errors import StreamsError
from streams.core.folders import sync_to_disk
from streams.core.serdes.display import RecordTable, reader
from streams.core.serdes.serdes import NULL
from streams.core.topic import Topic
from streams.files.compression import COMPRESSED, COMPRESSIONS
from streams.files.kinds import STANDARD_OUTPUT, WRITTEN, FileKind, Kind, kind_of, listed
from streams.files.lake import table_around
from streams.values import ArrowRecords, form_of, text_or_hex_json

#: The records to write as (partition, block), ordered by partition and offset.
Blocks = Iterable[tuple[int, Block]]


class OutputError(StreamsError):
    """An output file cannot be written; the message names the file."""

    is_mistake = True


@frozen
class FileOutput:
    """An output file whose path and kind have been checked; ``write`` writes the records."""

    path: str
    kind: FileKind
    topic: Topic[Any, Any] | None
    #: Whole records as ``json``, or in columns as a ``table``, or each ``value`` alone; Parquet has whole records.
    form: str = "json"
    #: Name of the topic for each line, filled up to one width, where several topics go to standard output.
    title: str = ""

    def write(self, blocks: Blocks) -> int:
        """Write all records, and return the number of records written.

        Raises:
            OutputError: the file cannot be written; an existing file is unchanged.
        """
        if self.path == STANDARD_OUTPUT:
            return self._write(sys.stdout.buffer, blocks)
        with _whole_file(Path(self.path), self.kind.compression) as stream:
            return self._write(stream, blocks)

    def _write(self, stream: IO[bytes], blocks: Blocks) -> int:
        if self.kind.kind is Kind.PARQUET:
            return _write_parquet(stream, self.topic, blocks)
        lines = self._lines()
        count = 0
        for partition, block in blocks:
            if len(block):
                stream.write(b"\n".join(lines(partition, block)) + b"\n")
            count += len(block)
        stream.flush()
        return count

    def _lines(self) -> Callable[[int, Block], Iterable[bytes]]:
        if self.form == "table":
            key_serde, value_serde = (self.topic.key_serde, self.topic.value_serde) if self.topic else (None, None)
            key, value = reader(key_serde), reader(value_serde)
            table = RecordTable(key_serde, self.title)
            return lambda _, block: (
                line.encode() for line in table.lines(zip(map(key, block.keys), map(value, block.values), strict=True))
            )
        return _value_lines(self.topic) if self.form == "value" else _record_lines(self.topic, self.title)


def standard_form(form: str, piped: str) -> str:
    """Return the form of what goes to standard output: by default a table on a terminal, and ``piped`` elsewhere."""
    return form if form != "auto" else "table" if sys.stdout.isatty() else piped


def open_output(
    topic: Topic[Any, Any] | None, path: str | os.PathLike[str], form: str = "auto", title: str = ""
) -> FileOutput:
    """Return the writer for an output file; the suffix determines the kind, and ``-`` is standard output.

    ``form`` is one of ``FORMS``.  By default a terminal gets a table, and everything else whole records, but for files
    of ``.jsonl`` of topics without keys, whose lines are values.  ``title`` is a name for each line of standard output.

    Without ``topic``, the types of keys and values are not known: they are written as text if they are
    UTF-8, and otherwise as ``{"$hex": ...}``.  An existing file is overwritten.

    Raises:
        OutputError: the kind is not known, or the path cannot be written to.
    """
    path = os.fspath(path)
    if path == STANDARD_OUTPUT:
        return FileOutput(path, FileKind(Kind.RECORDS), topic, standard_form(form, "json"), title)
    kind = kind_of(path)
    if kind is None or kind.kind not in WRITTEN:
        what = "its suffix is not of a known kind of file" if kind is None else f"{kind.kind.value} files are read only"
        raise OutputError(
            f"{path}: {what}; outputs are {listed(WRITTEN)}, each also with {COMPRESSED}, or - for standard output"
        )
    folder = Path(path).parent
    table = table_around(path)
    if table is not None:
        raise OutputError(f"{path}: cannot be written: {table}; give a file outside of it")
    if Path(path).is_dir():
        raise OutputError(f"{path}: is a directory; give a file in it")
    if not folder.is_dir():
        raise OutputError(f"{path}: there is no folder {str(folder)!r}; make it first")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{path}: folder {str(folder)!r} cannot be written to; choose another")
    if form == "table" or (form == "value" and kind.kind is not Kind.JSON_LINES):
        here = "standard output" if form == "table" else "files that end with .jsonl, and standard output,"
        raise OutputError(f"{path}: only {here} can have the format {form!r}; leave it out, or give another output")
    if form == "auto":
        has_keys = topic is None or topic.key_serde is not NULL
        form = "json" if has_keys or kind.kind is not Kind.JSON_LINES else "value"
    return FileOutput(path, kind, topic, form)


@contextmanager
def _whole_file(path: Path, compression: str) -> Iterator[IO[bytes]]:
    """Open a temporary file that is renamed to ``path`` only when it is complete and on disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            with temporary.open("wb") as stream:
                if compression:
                    with COMPRESSIONS[compression].writer(stream) as packed:
                        yield packed
                else:
                    yield stream
            sync_to_disk(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written: {error.strerror or error}; make room or choose another place"
        ) from error


def _value_lines(topic: Topic[Any, Any] | None) -> Callable[[int, Block], Iterable[bytes]]:
    to_json = form_of(topic.value_serde if topic else None).to_json

    def lines(partition: int, block: Block) -> Iterable[bytes]:
        return map(to_json, block.values)

    return lines


def _record_lines(topic: Topic[Any, Any] | None, title: str) -> Callable[[int, Block], Iterable[bytes]]:
    # Of a topic's name, nothing is escaped in JSON.
    head = b'{"topic":"%b",' % title.rstrip().encode() if title else b"{"
    key_json = form_of(topic.key_serde if topic else None).to_json
    value_json = form_of(topic.value_serde if topic else None).to_json

    def lines(partition: int, block: Block) -> Iterable[bytes]:
        headers = [b"[]"] * len(block) if block.headers is None else map(_headers_json, block.headers)
        columns = zip(map(key_json, block.keys), map(value_json, block.values), block.timestamps, headers, strict=True)
        for key, value, timestamp, header in columns:
            # The timestamp is omitted if there is none; the reader then uses the wall clock time.
            time = b"" if timestamp == NO_TIMESTAMP else b',"timestamp":%d' % timestamp
            record = b'"key":%b,"value":%b%b,"headers":%b,"partition":%d}' % (key, value, time, header, partition)
            yield head + record

    return lines


def _headers_json(headers: Headers) -> bytes:
    return b"[%b]" % b",".join(
        b"[%b,%b]" % (text_or_hex_json(name.encode()), b"null" if value is None else text_or_hex_json(value))
        for name, value in headers
    )


def _write_parquet(stream: IO[bytes], topic: Topic[Any, Any] | None, blocks: Blocks) -> int:
    import pyarrow.parquet as pq

    columns = ArrowRecords(topic)
    count = 0
    with pq.ParquetWriter(stream, columns.schema) as writer:
        for partition, block in blocks:
            if not len(block):
                continue
            writer.write_batch(columns.batch(partition, block))
            count += len(block)
    return count
