"""The ledger of the input files that earlier runs of an application have read, in its state directory.

This module is between the file readers and the source that appends rows to partitions.  The rows of each
file follow the rows of the topic's previous file.  The ledger stores the number of rows read from each file
and the digest of these rows.  Therefore a later run can distinguish a file that has grown from a changed file and from
another file.

The ledger is an append-only file with JSON lines.  A batch is recorded before it is appended to the
topic, so the ledger has every row that is in the topic's log.
Of the other packages, this module imports only ``core``.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from streams.core.blocks.records import Block
from streams.core.errors import InputError
from streams.files.reader import FileInput, RowDigest

#: The file name of the ledger in the state directory.
LEDGER = "inputs.jsonl"


@define
class ReadFile:
    """The part of a file that was read: its first ``rows`` rows, with the digest of these rows.

    ``rows_before`` is the number of rows that the topic had before this file.  ``begins`` has the offset of the
    file's first row in each partition, and is empty until the first rows are passed to the topic.
    """

    file: str
    rows_before: int = 0
    begins: list[int] = field(factory=list)
    rows: int = 0
    digest: str = ""
    #: Whether the file was read to its end.
    is_whole: bool = False


@frozen
class Continued:
    """A ``RowReader`` for a file whose rows follow the topic's existing rows; records its progress in the ledger."""

    ledger: "Ledger"
    topic: str
    input: FileInput
    read: ReadFile
    #: Whether the topic may have records before this file that do not come from files in the ledger.
    may_follow_others: bool = False
    #: The previous file, if its run ended before any row was read.
    abandoned: ReadFile | None = None

    @property
    def names_partitions(self) -> bool:
        """Whether a row that was read has named its partition."""
        return self.input.names_partitions

    def begins(self, ends: Sequence[int]) -> Sequence[int]:
        """Return the offset of the file's first row in each partition, given the end offsets of the partitions.

        Raises:
            InputError: the topic has records of unknown origin, or has lost records.
        """
        if not self.read.begins:
            self._check_origin(ends)
            if self.abandoned is not None and list(ends) != self.abandoned.begins:
                # The topic has rows of the abandoned file, but the ledger has lost the line written before them.
                raise _cannot_follow(self.input.path, self.abandoned)
            self.read.begins = list(ends)
            self.ledger.write(self.topic, self.read, is_new=True)
        if any(end < begin for end, begin in zip(ends, self.read.begins, strict=True)):
            raise InputError(
                f"{self.input.path}: its rows follow others in topic {self.topic!r}, which the state directory no "
                "longer has; give another --state-dir and begin with the first file"
            )
        return self.read.begins

    def __call__(self, partitions: int, skip_rows: int = 0) -> Iterator[list[tuple[int, Block]]]:
        """Yield the rows of the file; each batch is recorded before it is yielded.

        Raises:
            InputError: a row is bad and bad rows are not allowed, or the file cannot be read further.
        """
        digest = RowDigest()
        for batch in self.input.read(partitions, digest, skip_rows):
            if digest.rows > self.read.rows:
                self.read.rows = digest.rows
                self.read.digest = digest.value
                self.read.is_whole = False
                self.ledger.write(self.topic, self.read)
            yield batch
        if not self.read.is_whole:
            self.read.is_whole = True
            self.ledger.write(self.topic, self.read)

    def _check_origin(self, ends: Sequence[int]) -> None:
        if any(ends) and not self.read.rows_before and not self.may_follow_others:
            raise InputError(
                f"{self.input.path}: topic {self.topic!r} has {sum(ends):,} records in the state directory that no "
                f"file brought; --next {self.topic}={self.input.path} reads the file after them, another --state-dir "
                "starts over"
            )


@define
class Ledger:
    """The files that were read into the topics in one state directory."""

    path: Path
    #: Called with messages about a file for the user.
    say: Callable[[str], None]
    _topics: dict[str, list[ReadFile]] = field(factory=dict)
    _is_rewritten: bool = False
    #: Topics for which this run has begun a file: further files are known to follow it.
    _begun: set[str] = field(factory=set)

    @classmethod
    def open(cls, folder: Path, say: Callable[[str], None]) -> "Ledger":
        """Read the ledger of a state directory.

        Raises:
            InputError: the ledger cannot be read.
        """
        ledger = cls(folder / LEDGER, say)
        lines = ledger.path.read_bytes().splitlines() if ledger.path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                ledger._take(json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError) as error:
                if number == len(lines):
                    break  # After a power failure the last line may be incomplete; its rows are compared with the log.
                raise InputError(
                    f"{ledger.path}:{number}: is damaged ({error}): it records what was read from the inputs; restore "
                    "it, or give another --state-dir and start over"
                ) from error
        return ledger

    def has(self, topic: str) -> bool:
        """Whether any files were read into a topic."""
        return bool(self._topics.get(topic))

    def knows(self, topic: str, file: FileInput) -> bool:
        """Whether a file was read into a topic before; the file may have grown since then."""
        return self._entry_of(self._topics.get(topic, ()), file) is not None

    def rows(self, topic: str) -> int:
        """Return the number of rows that were read from files into a topic."""
        return sum(read.rows for read in self._topics.get(topic, ()))

    def follow(
        self,
        topic: str,
        file: FileInput,
        *,
        is_next: bool = False,
        rows_before: int | None = None,
        by_name: bool = False,
    ) -> Continued:
        """Return a reader that continues a file, or reads another file after the previous files.

        A file that was read before continues after the rows that were read.  Any other file, and with ``is_next``
        every file, is read from its beginning.  ``rows_before`` is the number of rows from other sources in
        a topic without files.  ``by_name`` means that the run has several files, so that a file is identified by its
        name only, because other files may have the same rows.

        Raises:
            InputError: rows that were already read have changed, the previous file was not read to its end, or
                the file has grown since a later file was read.
        """
        files = self._topics.setdefault(topic, [])
        while files and not files[-1].rows and not files[-1].begins:
            files.pop()  # The run has ended before any row of the file was read.
        entry = None if is_next else self._entry_of(files, file, by_name=by_name)
        if entry is not None:
            return self._continued(topic, files, entry, file)
        if not is_next:
            self._check_changed(files, file)
        abandoned = None
        if files and not files[-1].is_whole:
            if files[-1].rows:
                raise _cannot_follow(file.path, files[-1])
            abandoned = files.pop()
        before = self.rows(topic) + (files[0].rows_before if files else rows_before or 0)
        if before and topic not in self._begun:
            self.say(f"{file.path}: follows on {before:,} {'row' if before == 1 else 'rows'} of topic {topic!r}")
        self._begun.add(topic)
        read = ReadFile(_absolute(file.path), before)
        files.append(read)
        reader = file.after(before)
        may_follow = is_next or rows_before is not None
        return Continued(self, topic, reader, read, may_follow_others=may_follow, abandoned=abandoned)

    def grown(self, topic: str, file: FileInput, partitions: int, rows: int) -> Continued:
        """Return a reader for a file whose first ``rows`` rows are already in the topic, for example from a snapshot.

        Raises:
            InputError: the file has grown since a later file was read.
        """
        files = self._topics.setdefault(topic, [])
        read = next((read for read in files if not read.rows_before), None)
        if read is None:
            read = ReadFile(_absolute(file.path), begins=[0] * partitions)
            if not files:
                files.append(read)
                self.write(topic, read, is_new=True)
            else:
                read.rows, read.is_whole = rows, True  # There is nothing to record, since all rows are in the topic.
        if read is not files[-1] and file.has_rows(max(rows, read.rows)):
            raise _grown_too_late(file.path, files[-1])
        return Continued(self, topic, file, read)

    def write(self, topic: str, read: ReadFile, *, is_new: bool = False) -> None:
        """Record how far a file has been read."""
        if not self._is_rewritten:
            self._rewrite()
            return
        with self.path.open("ab") as stream:
            stream.write(_line(topic, read, is_new=is_new))

    def _rewrite(self) -> None:
        """Rewrite the ledger with one line per file, without incomplete and superseded lines."""
        begun = [(topic, read) for topic, files in self._topics.items() for read in files if read.begins]
        lines = [_line(topic, read, is_new=True) for topic, read in begun]
        temporary = self.path.with_suffix(".new")
        temporary.write_bytes(b"".join(lines))
        temporary.replace(self.path)
        self._is_rewritten = True

    def _take(self, entry: dict[str, Any]) -> None:
        files = self._topics.setdefault(entry["topic"], [])
        if entry["is_new"]:
            files.append(ReadFile(entry["file"], int(entry["rows_before"]), [int(at) for at in entry["begins"]]))
        read = files[-1]
        read.rows = int(entry["rows"])
        read.digest = str(entry["digest"])
        read.is_whole = bool(entry["is_whole"])

    def _entry_of(self, files: Sequence[ReadFile], file: FileInput, *, by_name: bool = False) -> ReadFile | None:
        """Return the last entry of ``files`` for the given file, which may have grown, or None if there is none."""
        digests = file.digests({read.rows for read in files if read.rows})
        path = _absolute(file.path)
        for read in reversed(files):
            if by_name and read.file != path:
                continue
            if digests.get(read.rows) == read.digest if read.rows else read.file == path:
                return read
        return None

    def _continued(self, topic: str, files: Sequence[ReadFile], entry: ReadFile, file: FileInput) -> Continued:
        has_grown = file.has_rows(entry.rows)
        if entry.file != _absolute(file.path):
            which = "its first" if has_grown else "nothing new: its"
            self.say(
                f"{file.path}: {which} {entry.rows:,} rows are those that were read of {entry.file}; "
                f"--next {topic}={file.path} reads it as another file"
            )
        if entry is not files[-1] and has_grown:
            raise _grown_too_late(file.path, files[-1])
        return Continued(self, topic, file.after(entry.rows_before), entry)

    def _check_changed(self, files: Sequence[ReadFile], file: FileInput) -> None:
        path = _absolute(file.path)
        changed = next((read for read in files if read.file == path), None)
        if changed is not None:
            raise InputError(
                f"{file.path}: its first {changed.rows:,} rows are not the rows that were read from it before. If it "
                f"is another file under the same name, --next {file.topic.name}={file.path} reads it after all "
                "earlier rows; if rows were corrected, give another --state-dir and start over"
            )


def _grown_too_late(path: str, last: ReadFile) -> InputError:
    return InputError(f"{path}: has grown, but {last.file} was read after it; put its new rows into a separate file")


def _cannot_follow(path: str, read: ReadFile) -> InputError:
    rows = f"only {read.rows:,} rows" if read.rows else "not all rows"
    return InputError(
        f"{path}: cannot follow {read.file}, of which {rows} were read when its run was stopped; run with that file "
        "first, or give another --state-dir"
    )


def _line(topic: str, read: ReadFile, *, is_new: bool) -> bytes:
    entry: dict[str, Any] = {"topic": topic, "is_new": is_new}
    entry |= {"rows": read.rows, "digest": read.digest, "is_whole": read.is_whole}
    if is_new:
        entry |= {"file": read.file, "rows_before": read.rows_before, "begins": read.begins}
    return json.dumps(entry).encode() + b"\n"


def _absolute(path: str) -> str:
    return os.path.abspath(path)
