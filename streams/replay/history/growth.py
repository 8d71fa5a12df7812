"""The history that a replay has read, and the check that new history continues from there.

The records of files and Kafka topics are copied.  An archive is read in place, and identified by its
last row groups, whose file names contain a digest of the content.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any, TypeAlias

from attrs import define, field

from streams.core.blocks.records import Block
from streams.replay.errors import ReplayError
from streams.replay.history.inputs import FileMark
from streams.replay.storage.extents import Extents, FileNames
from streams.replay.storage.segments import Extent

#: Partition -> (file name, row group) of the last row group of an archive.
ArchiveMark: TypeAlias = dict[str, list[Any]]


@define
class History:
    """The files, and the records (as extents), that a replay has read of one topic."""

    partitions: int
    marks: list[FileMark] = field(factory=list)
    #: Extents of the records, by partition.
    extents: dict[int, Extents] = field(factory=dict, init=False)
    #: Number of rows before these files, if the replay continues from a snapshot.
    rows_before: int = 0
    #: "event_time" if the records of each partition are sorted by it, otherwise "as_given".
    order: str = "as_given"
    _names: FileNames = field(factory=FileNames, init=False)

    def add(self, extents: Mapping[int, Iterable[Extent]]) -> None:
        """Add extents, given by partition, after those of the same partitions."""
        for number, ranges in extents.items():
            new = ranges.renamed(self._names) if isinstance(ranges, Extents) else Extents.of(ranges, self._names)
            before = self.extents.get(number)
            self.extents[number] = new if before is None else before.followed_by(new)

    def replace(self, extents: Mapping[int, Iterable[Extent]]) -> None:
        """Replace all extents by others."""
        self.extents = {}
        self._names = FileNames()
        self.add(extents)

    @property
    def file_names(self) -> set[str]:
        """The names of the files of the extents."""
        return set().union(*(extents.file_names for extents in self.extents.values()))

    @property
    def content(self) -> list[Any]:
        """What identifies the rows of these files: names without folders, sizes and digests."""
        return [(mark.path.rpartition("/")[2], mark.size, mark.head, mark.tail, mark.rows) for mark in self.marks]

    @property
    def rows(self) -> int:
        """The number of rows of the topic, including rows before these files."""
        return self.rows_before + sum(mark.rows for mark in self.marks)

    def in_order(self, paths: Sequence[str]) -> list[str]:
        """Return the paths of files in the order in which they are read.

        If the history is sorted by event time, files that were read before come first; otherwise the order is kept.
        """
        read = {mark.path for mark in self.marks}
        if self.order != "event_time" or not read.issubset(paths):
            return list(paths)
        return [mark.path for mark in self.marks] + [path for path in paths if path not in read]

    def file_of(self, row: int) -> tuple[str, int] | None:
        """Return the file of a row and the row number in it (from 1), or None if the row is not in these files."""
        before = self.rows_before
        for mark in self.marks:
            if row < before + mark.rows:
                return mark.path, row - before + 1
            before += mark.rows
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the history as JSON-compatible values."""
        return {
            "partitions": self.partitions,
            "files": [[mark.path, mark.size, mark.head, mark.tail, mark.rows] for mark in self.marks],
            "segments": self._names.names,
            "extents": {str(number): ranges.to_json() for number, ranges in self.extents.items()},
            "rows_before": self.rows_before,
            "order": self.order,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "History":
        """Return the history from the values of ``to_json``."""
        marks = [FileMark(*mark) for mark in data["files"]]
        history = cls(data["partitions"], marks, data["rows_before"], data["order"])
        history._names = FileNames(data["segments"])
        for number, extents in data["extents"].items():
            history.extents[int(number)] = Extents.from_json(extents, history._names)
        return history


def first_difference_ms(one: Iterable[Block], other: Iterable[Block]) -> int | None:
    """Return the time from which on two sorted histories of a partition differ, or None if they do not.

    Records with the same time have no order.
    """
    for pair in zip_longest(_by_time(one), _by_time(other)):
        if pair[0] != pair[1]:
            return min(part[0] for part in pair if part is not None)
    return None


def _by_time(blocks: Iterable[Block]) -> Iterator[tuple[int, Counter[tuple[Any, Any]]]]:
    rows = ((time_ms, key, value) for block in blocks for _, key, value, time_ms, _ in block.rows())
    for time_ms, group in groupby(rows, itemgetter(0)):
        yield time_ms, Counter((key, value) for _, key, value in group)


def archive_mark(extents: Mapping[int, Sequence[Extent]]) -> ArchiveMark:
    """Return the last row group of each partition, which identifies an archive."""
    return {str(number): _place(ranges[-1]) for number, ranges in sorted(extents.items()) if ranges}


def check_archive(topic: str, mark: ArchiveMark, extents: Mapping[int, Sequence[Extent]]) -> None:
    """Check that an archive, or a copy of it, still has the row groups that were read before.

    Raises:
        ReplayError: the folder is a different archive.
    """
    for number, place in mark.items():
        if place not in map(_place, reversed(extents.get(int(number), ()))):
            raise ReplayError(
                f"topic {topic!r}: another archive was read before; an archive may only grow at its end; else start in "
                "another folder"
            )


def _place(extent: Extent) -> list[Any]:
    return [extent.file.rpartition("/")[2], extent.group]
