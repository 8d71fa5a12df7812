"""What a replay has read of its topics, and whether what it reads next goes on with that.

Of files and topics of Kafka it keeps the records; an archive lies where it is, and is known by the
files at its ends, whose names tell their content.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from attrs import define, field

from streams.replay.errors import ReplayError
from streams.replay.history.inputs import FileMark
from streams.replay.storage import Extent

#: The last row group of each partition of an archive: the name of its file, and its number there.
ArchiveMark: TypeAlias = dict[str, list[Any]]


@define
class History:
    """What was read of one topic."""

    partitions: int
    marks: list[FileMark] = field(factory=list)
    #: Files as they are named to people, by the number of their first row.
    extents: dict[int, list[Extent]] = field(factory=dict)
    #: Rows that came before these files, where the replay goes on from a snapshot.
    rows_before: int = 0

    @property
    def rows(self) -> int:
        """Number of rows, those before included."""
        return self.rows_before + sum(mark.rows for mark in self.marks)

    def file_of(self, row: int) -> tuple[str, int] | None:
        """Return the file of a row of the topic, and its number there (from 1)."""
        before = self.rows_before
        for mark in self.marks:
            if row < before + mark.rows:
                return mark.path, row - before + 1
            before += mark.rows
        return None

    def to_json(self) -> dict[str, Any]:
        """Return everything as values that JSON knows."""
        return {
            "partitions": self.partitions,
            "files": [[mark.path, mark.size, mark.head, mark.tail, mark.rows] for mark in self.marks],
            "extents": {str(number): list(map(list, found)) for number, found in self.extents.items()},
            "rows_before": self.rows_before,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "History":
        """Read what ``to_json`` made."""
        extents = {int(number): [Extent(*extent) for extent in found] for number, found in data["extents"].items()}
        return cls(data["partitions"], [FileMark(*mark) for mark in data["files"]], extents, data["rows_before"])


def archive_mark(extents: Mapping[int, Sequence[Extent]]) -> ArchiveMark:
    """Return what an archive is known by."""
    return {str(number): _place(found[-1]) for number, found in sorted(extents.items()) if found}


def check_archive(topic: str, mark: ArchiveMark, extents: Mapping[int, Sequence[Extent]]) -> None:
    """Refuse an archive that does not go on with what was read of it, or of its copy elsewhere.

    Raises:
        ReplayError: it is another.
    """
    for number, place in mark.items():
        if place not in map(_place, reversed(extents.get(int(number), ()))):
            raise ReplayError(
                f"topic {topic!r}: another archive was read before; one may grow at its end only, else start anew in "
                "another folder"
            )


def _place(extent: Extent) -> list[Any]:
    return [extent.file.rpartition("/")[2], extent.group]


__all__ = ["ArchiveMark", "History", "archive_mark", "check_archive"]
