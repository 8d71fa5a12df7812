"""Log recovery on open: a torn write at the end is cut off, and all other damage is an error.

The recovery point is stored when a log is closed or synced to disk.  The end of a log may be cut off if no offset
below the recovery point is missing and no whole batch follows, because those bytes were never acknowledged as
durable.  The cut bytes are kept in the folder.  Other damage raises ``DamagedLogError`` and changes nothing; see
``repair``.
"""

import logging
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from attrs import define, field

from streams.broker.logs.checkpoint import CheckpointError, read_checkpoint
from streams.broker.logs.files import OpenFiles, write_atomically
from streams.broker.logs.segment import Damage, Segment
from streams.core.errors import DamagedLogError
from streams.protocol import batch
from streams.protocol.batch import BatchHeader, CorruptBatchError

_LOGGER = logging.getLogger(__name__)

#: Checkpoint files for the start offset and the recovery point.
START_FILE: Final = "log-start-offset"
RECOVERY_FILE: Final = "recovery-point"

_SEGMENT_NAME: Final = re.compile(r"\d{20}\.log", re.ASCII)
# How the start of a batch is recognized: an offset below 2^48, a length, and magic 2.
_LIKE_A_BATCH: Final = re.compile(rb"(?=\0\0.{6}[\0-\x7f].{7}\x02)", re.DOTALL)


class Recovered(NamedTuple):
    """The segments of a recovered log (at least one), with the start and end offsets of the log."""

    segments: list[Segment]
    start_offset: int
    end_offset: int


def damaged(folder: Path, reason: str, path: Path, *, position: int = -1, offset: int = -1) -> DamagedLogError:
    """Return the error for a damaged partition folder or a damaged file in it."""
    place = f"{path}, byte {position}" if position >= 0 else f"{path}"
    at = f" at offset {offset}" if offset >= 0 else ""
    return DamagedLogError(
        f"the log of {folder.name} is damaged{at}: {place}: {reason}; nothing was changed. Put the folder back from a "
        f"copy, or see what can be saved: streams broker --data {folder.parent.parent} --repair",
        partition=folder.name,
        path=str(path),
        position=position,
        offset=offset,
    )


def segment_paths(directory: Path) -> list[Path]:
    """Return the segment files of a log, ordered by base offset; other ``.log`` files are ignored with a warning."""
    paths = []
    for path in sorted(directory.glob("*.log")):
        if _SEGMENT_NAME.fullmatch(path.name):
            paths.append(path)
        else:
            _LOGGER.warning("%s: not the name of a log segment; the file is left alone", path)
    return paths


def noted_offset(path: Path) -> int:
    """Return the offset in a checkpoint file of a log, or 0 if the file does not exist.

    Raises:
        DamagedLogError: the file is invalid, or it is an empty start offset: deleted records would come back.
    """
    try:
        offset = read_checkpoint(path)
    except CheckpointError as error:
        raise damaged(path.parent, str(error), path) from error
    if offset is None and path.exists():
        if path.name == START_FILE:
            raise damaged(path.parent, "it is empty, and deleted records must not come back", path)
        _LOGGER.warning("%s: empty, as after a power failure; taken as offset 0", path)
    return offset or 0


def find_batch(data: bytes | mmap.mmap, position: int, lowest: int = 0) -> tuple[int, BatchHeader] | None:
    """Return the position and header of the first whole batch at or after ``position``, or None.

    Batches with a base offset below ``lowest`` are skipped.
    """
    for match in _LIKE_A_BATCH.finditer(data, position):
        header = whole_batch(data, match.start())
        if header is not None and header.base_offset >= lowest:
            return match.start(), header
    return None


def whole_batch(data: bytes | mmap.mmap, position: int) -> BatchHeader | None:
    """Return the header of the batch at a position, or None if it is incomplete or its checksum does not match."""
    try:
        header = batch.read_header(data[position : position + batch.HEADER_SIZE])
        if position + header.size > len(data):
            return None
        return batch.check(data[position : position + header.size], 0, header)
    except CorruptBatchError:
        return None


@contextmanager
def mapped(path: Path) -> Iterator[bytes | mmap.mmap]:
    """Map a file into memory for reading; an empty file yields empty bytes."""
    with open(path, "rb") as file:
        if not path.stat().st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _has_batch(path: Path, position: int) -> bool:
    with mapped(path) as data:
        return find_batch(data, position) is not None


@define
class _Recovery:
    """The recovery of the log in one partition folder."""

    directory: Path
    files: OpenFiles
    start_offset: int = field(default=0, init=False)
    recovery_point: int = field(default=0, init=False)
    segments: list[Segment] = field(factory=list, init=False)

    def run(self, *, is_known: bool) -> Recovered | None:
        directory = self.directory
        for leftover in [*directory.glob("*.cleaned"), *directory.glob("*.tmp")]:
            leftover.unlink()
        self.start_offset = noted_offset(directory / START_FILE)
        self.recovery_point = noted_offset(directory / RECOVERY_FILE)
        paths = segment_paths(directory)
        if not paths:
            if is_known or self.start_offset or self.recovery_point:
                raise damaged(directory, "there is no segment file", directory, offset=self.start_offset)
            return None
        bases = [int(path.stem) for path in paths]
        if bases[0] > self.start_offset:
            missing = f"the log begins at offset {self.start_offset}, its first segment at {bases[0]}"
            raise damaged(directory, missing, paths[0], offset=self.start_offset)
        # These files remain if a process was killed while it deleted segments.
        gone = max((index for index, base in enumerate(bases) if base <= self.start_offset), default=0)
        for path in paths[:gone]:
            path.unlink()
        self._open(paths[gone:])
        end = max(self.segments[-1].next_offset, self.start_offset)
        if end < self.recovery_point:
            last = self.segments[-1]
            raise self._ends_early(last.path, last.size, end)
        return Recovered(self.segments, self.start_offset, end)

    def _open(self, paths: list[Path]) -> None:
        while paths:
            path, *paths = paths
            segment, damage = Segment.open(path, self.files)
            self.segments.append(segment)
            following = int(paths[0].stem) if paths else None
            if damage is not None:
                if following == segment.next_offset:
                    self._keep_aside(damage, "no offset is missing after it")
                elif self._is_torn(damage, paths):
                    self._keep_aside(damage, "no whole batch follows")
                    self._drop_tail(paths)
                    return
                else:
                    raise damaged(self.directory, damage.reason, path, position=damage.position, offset=damage.offset)
            elif following is not None and following > segment.next_offset:
                if not self._is_torn(Damage(path, segment.size, segment.size, segment.next_offset, ""), paths):
                    missing = f"the offsets from there up to {following} are missing before segment {paths[0].name}"
                    raise damaged(self.directory, missing, path, position=segment.size, offset=segment.next_offset)
                self._drop_tail(paths)
                return
            paths = self._without_leftovers(segment, paths)
            if paths:
                self.files.drop(path)

    def _is_torn(self, damage: Damage, later: Sequence[Path]) -> bool:
        """Whether the damage is a torn write at the end of the log, above the recovery point."""
        if damage.offset < self.recovery_point:
            return False
        return not any(
            _has_batch(path, position)
            for path, position in [(damage.path, damage.position), *((path, 0) for path in later)]
        )

    def _keep_aside(self, damage: Damage, why: str) -> None:
        copy = damage.path.with_name(f"{damage.path.name}.cut-{damage.position}")
        data = os.pread(self.files.get(damage.path), damage.length - damage.position, damage.position)
        if data.strip(b"\0"):
            write_atomically(copy, data)
        _LOGGER.warning(
            "log segment %s: cut from %d to %d bytes, next offset %d (%s; %s); what was cut is kept as %s",
            damage.path,
            damage.length,
            damage.position,
            damage.offset,
            damage.reason,
            why,
            copy.name if data.strip(b"\0") else "nothing, being zeros",
        )
        os.ftruncate(self.files.get(damage.path), damage.position)

    def _drop_tail(self, paths: Sequence[Path]) -> None:
        """Rename or delete the segment files after a torn write; these files contain no batch."""
        for path in paths:
            self.files.drop(path)
            if path.stat().st_size:
                os.replace(path, path.with_name(f"{path.name}.cut-0"))
            else:
                path.unlink()

    def _without_leftovers(self, segment: Segment, paths: list[Path]) -> list[Path]:
        """Delete the segments whose records an interrupted compaction had already written to an earlier segment."""
        while paths and int(paths[0].stem) < segment.next_offset:
            leftover, damage = Segment.open(paths[0], self.files)
            self.files.drop(leftover.path)
            if damage is not None or leftover.next_offset > segment.next_offset:
                overlap = f"its offsets are also in {segment.path.name}, which ends at {segment.next_offset}"
                raise damaged(self.directory, overlap, leftover.path, position=0, offset=leftover.base_offset)
            leftover.path.unlink()
            paths = paths[1:]
        return paths

    def _ends_early(self, path: Path, position: int, end: int) -> DamagedLogError:
        why = f"the log ends there, though it was whole up to {self.recovery_point} before"
        return damaged(self.directory, why, path, position=position, offset=end)


def recovered(directory: Path, files: OpenFiles, *, is_known: bool) -> Recovered | None:
    """Open and recover the segments of a log; return None if the folder has no log.

    ``is_known`` is True for a partition that already existed.

    Raises:
        DamagedLogError: records of the log are damaged or missing.
    """
    return _Recovery(directory, files).run(is_known=is_known)
