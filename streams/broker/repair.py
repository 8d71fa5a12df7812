"""Repair of damaged logs: damaged batches are removed, and all readable batches are kept.

Offsets never change: lost records are replaced by a gap that readers skip, even at the end of the log, so that
no offset is assigned twice.  The original of a rewritten file is kept, with ``.damaged`` in its name.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from attrs import define, field, frozen

from streams.broker.logs.batches import empty_batches
from streams.broker.logs.checkpoint import write_checkpoint
from streams.broker.logs.files import DIRECTORY_MODE, FILE_MODE, OpenFiles
from streams.broker.logs.recovery import (
    RECOVERY_FILE,
    START_FILE,
    find_batch,
    mapped,
    noted_offset,
    recovered,
    segment_paths,
    whole_batch,
)
from streams.broker.logs.segment import Segment
from streams.broker.offline import offline_topics
from streams.core.errors import DamagedLogError
from streams.core.folders import sync_to_disk
from streams.protocol import batch
from streams.protocol.batch import BatchHeader

_LAST: Final = 1 << 62


@frozen
class UnreadableSpan:
    """An unreadable part of a file: its byte range, and the lost offsets from ``offset`` up to ``next_offset``."""

    partition: str
    path: Path
    offset: int
    next_offset: int
    size: int
    reason: str

    @property
    def records(self) -> int:
        """The number of lost offsets; in a compacted log, fewer records may be lost."""
        return self.next_offset - self.offset

    def __str__(self) -> str:
        what = (
            f"offsets {self.offset} to {self.next_offset - 1} are lost" if self.records else "no known offset is lost"
        )
        return f"{self.partition}: {what} ({self.size} bytes of {self.path.name}: {self.reason})"


@define
class _Repair:
    """The repair of the log in one partition folder."""

    directory: Path
    losses: list[UnreadableSpan] = field(factory=list, init=False)
    start_offset: int = field(default=0, init=False)
    recovery_point: int = field(default=0, init=False)
    #: The new content of each changed file: byte ranges of the old file, and gaps as offset ranges.
    contents: dict[Path, list[tuple[str, int, int]]] = field(factory=dict, init=False)
    bad_notes: list[Path] = field(factory=list, init=False)

    def survey(self) -> None:
        paths = segment_paths(self.directory)
        first = int(paths[0].stem) if paths else 0
        self.start_offset = self._noted(START_FILE, first)
        self.recovery_point = self._noted(RECOVERY_FILE, 0)
        begin = self.start_offset
        if paths and first <= begin:
            # Segments that are entirely below the start offset are about to be deleted.
            paths = [path for path, end in zip(paths, [*map(_base, paths[1:]), _LAST], strict=True) if end > begin]
            begin = _base(paths[0])
        else:
            end = first if paths else max(self.recovery_point, begin)
            path = Segment.path_of(self.directory, begin)
            self.contents[path] = [("gap", begin, end)] if end > begin else []
            self._lose(path, begin, end, 0, "the file is missing")
            begin = end
        for index, path in enumerate(paths):
            following = _base(paths[index + 1]) if index + 1 < len(paths) else None
            begin = max(begin, self._survey(path, following))

    def _survey(self, path: Path, following: int | None) -> int:
        """Scan one segment file for damage, and return the offset after its last record.

        ``following`` is the base offset of the next segment, or None for the last one.
        """
        length = path.stat().st_size
        expected = _base(path)
        position = 0
        parts: list[tuple[str, int, int]] = []
        before = len(self.losses)
        with mapped(path) as data:
            for at, header, base in _batches(data, expected, following or self.recovery_point):
                next_offset = header.next_offset - header.base_offset + base
                if following is not None and next_offset > following:
                    break
                if at > position or base > expected:
                    parts.append(("gap", expected, base))
                    self._lose(path, expected, base, at - position, f"damaged at byte {position}")
                if base != header.base_offset:
                    self._lose(path, base, base, 0, f"the damaged offset of the batch at byte {at} is corrected")
                    parts.append(("moved", at, base))
                else:
                    parts.append(("bytes", at, header.size))
                position = at + header.size
                expected = next_offset
        end = following if following is not None else max(expected, self.recovery_point)
        if position < length or end > expected:
            if end > expected:
                parts.append(("gap", expected, end))
            self._lose(path, expected, end, length - position, f"damaged at byte {position}, or cut short there")
        if len(self.losses) > before:
            self.contents[path] = parts
        return end

    def _noted(self, name: str, otherwise: int) -> int:
        path = self.directory / name
        try:
            return noted_offset(path)
        except DamagedLogError:
            self.bad_notes.append(path)
            self._lose(path, otherwise, otherwise, path.stat().st_size, "it is no offset; taken from the segments")
            return otherwise

    def _lose(self, path: Path, offset: int, next_offset: int, size: int, reason: str) -> None:
        self.losses.append(UnreadableSpan(self.directory.name, path, offset, max(offset, next_offset), size, reason))

    def perform(self) -> None:
        self.directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        for path in self.bad_notes:
            os.replace(path, _aside(path))
        if self.start_offset:
            write_checkpoint(self.directory / START_FILE, self.start_offset, is_durable=True)
        for path, parts in self.contents.items():
            new = path.with_suffix(".cleaned")
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE), "wb") as target:
                _write(parts, path, target.write)
                target.flush()
                os.fsync(target.fileno())
            if path.exists():
                os.link(path, _aside(path))
            os.replace(new, path)
        sync_to_disk(self.directory)


def _base(path: Path) -> int:
    return int(path.stem)


def _aside(path: Path) -> Path:
    """Return an unused file name under which the original of a rewritten file can be kept."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return aside


def _write(parts: list[tuple[str, int, int]], path: Path, write: Callable[[bytes], object]) -> None:
    for kind, first, second in parts:
        if kind == "gap":
            write(empty_batches(first, second))
            continue
        with open(path, "rb") as source:
            source.seek(first)
            if kind == "bytes":
                write(source.read(second))
            else:
                header = batch.read_header(source.read(batch.HEADER_SIZE))
                source.seek(first)
                write(batch.moved(source.read(header.size), second))


def _batches(data: bytes | mmap.mmap, expected: int, end: int) -> Iterator[tuple[int, BatchHeader, int]]:
    """Yield the position, header and correct base offset of each whole batch in a file.

    ``expected`` is the offset at which the file should start, and ``end`` is the known end offset.
    """
    position = 0
    while position < len(data):
        header = whole_batch(data, position)
        if header is not None and header.base_offset != expected:
            # The checksum does not cover the base offset: a damaged one is detected by comparison with the next batch.
            true_next = expected + header.next_offset - header.base_offset
            after = whole_batch(data, position + header.size)
            if after is None or after.base_offset != true_next:
                header = None
        if header is not None:
            yield position, header, expected
            position = position + header.size
            expected = expected + header.next_offset - header.base_offset
            continue
        resumed = _resumed(data, position, expected, end)
        if resumed is None:
            return
        position, header = resumed
        yield position, header, header.base_offset
        position = position + header.size
        expected = header.next_offset


def _resumed(data: bytes | mmap.mmap, start: int, expected: int, end: int) -> tuple[int, BatchHeader] | None:
    """Return the position and header of the first whole batch after damaged bytes, or None.

    The base offset of the batch must be plausible, because the checksum does not cover it.
    """
    position = start
    while (batch := find_batch(data, position, expected)) is not None:
        at, header = batch
        after = whole_batch(data, at + header.size)
        if after is not None and after.base_offset == header.next_offset:
            return batch
        # No batch follows to confirm this offset: accept it if the damaged bytes had room for all missing records.
        is_near = header.base_offset - expected <= at - start
        if at + header.size == len(data) and (is_near or header.next_offset == end):
            return batch
        position = at + 1
    return None


def repair(directory: Path, *, is_trial: bool) -> list[UnreadableSpan]:
    """Rewrite the damaged files of a log without the damaged batches, and return the unreadable spans.

    With ``is_trial``, only return what would be lost.

    Raises:
        DamagedLogError: the rewritten log cannot be read.
        OSError: a file could not be written, for example because the disk is full; the current file is unchanged.
    """
    if _can_open(directory):
        return []
    work = _Repair(directory)
    work.survey()
    if not is_trial:
        work.perform()
        files = OpenFiles()
        try:
            recovered(directory, files, is_known=True)
        finally:
            files.close()
    return work.losses


def repair_data(data_dir: Path, *, is_trial: bool) -> Iterator[UnreadableSpan]:
    """Repair every damaged log in the data directory of a broker that is not running, and yield the unreadable spans.

    With ``is_trial``, only yield what would be lost.

    Raises:
        ConfigError: the directory is not the data directory of a broker, or its topics file cannot be read.
        StateLockedError: a broker uses the directory.
        OSError, DamagedLogError: a log could not be repaired; see ``repair``.
    """
    with offline_topics(data_dir) as topics:
        for folder in topics.folders():
            yield from repair(folder, is_trial=is_trial)


def _can_open(directory: Path) -> bool:
    files = OpenFiles()
    try:
        recovered(directory, files, is_known=True)
    except DamagedLogError:
        return False
    finally:
        files.close()
    return True
