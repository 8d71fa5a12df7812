"""The extents of a partition in columns.

The history of an input has an extent for each partition and each call that has read it.  One object for each would
need seven times the memory.
"""

from base64 import b85decode, b85encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from attrs import define, field, frozen

from streams.core.blocks.records import NO_TIMESTAMP, TopicPartition
from streams.replay.storage.lanes import packed, unpacked
from streams.replay.storage.segments import Extent, Segments


@frozen(eq=False)
class FileNames:
    """The names of the files of a topic's extents, which all partitions share."""

    names: list[str] = field(factory=list)
    _numbers: dict[str, int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_numbers", {name: number for number, name in enumerate(self.names)})

    def number(self, name: str) -> int:
        """Return the number of a file, whose name is added if it is new."""
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number


@define(eq=False)
class Extents(Sequence[Extent]):
    """Extents in columns; an extent is an object only while it is used.  A slice shares the memory of the whole."""

    _files: FileNames
    #: File, row group, number of rows, and index of the first row within the row group.
    _places: Any
    #: First and last offset, lowest and highest time.
    _bounds: Any

    @classmethod
    def of(cls, extents: Iterable[Extent], files: FileNames) -> "Extents":
        """Return extents in columns; the names of new files are added to ``files``."""
        import numpy as np

        rows = [
            (files.number(file), group, rows, start, first, last, lowest_ms, highest_ms)
            for file, group, first, last, rows, lowest_ms, highest_ms, start in extents
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 8).T
        return cls(files, columns[:4].astype(np.int32), columns[4:].copy())

    @classmethod
    def all_of(cls, parts: Sequence["Extents"], files: FileNames) -> "Extents":
        """Return the extents of all parts, one after the other; their files must have their numbers in ``files``."""
        import numpy as np

        places, bounds = (
            np.concatenate(columns, axis=1) for columns in zip(*(part._columns for part in parts), strict=True)
        )
        return cls(files, places, bounds)

    @property
    def _columns(self) -> tuple[Any, Any]:
        return self._places, self._bounds

    @property
    def highest_ms(self) -> Any:
        """The highest time of each extent, as an array."""
        return self._bounds[3]

    @property
    def rows(self) -> int:
        """The number of records."""
        return int(self._places[2].sum())

    @property
    def sizes(self) -> Any:
        """The number of records of each extent, as an array."""
        return self._places[2]

    @property
    def lowest_ms(self) -> Any:
        """The lowest time of each extent, as an array."""
        return self._bounds[2]

    @property
    def file_names(self) -> set[str]:
        """The names of the files of these extents."""
        import numpy as np

        return {self._files.names[number] for number in np.unique(self._places[0]).tolist()}

    def __len__(self) -> int:
        return int(self._places.shape[1])

    @overload
    def __getitem__(self, index: int) -> Extent: ...
    @overload
    def __getitem__(self, index: slice) -> "Extents": ...
    def __getitem__(self, index: int | slice) -> "Extent | Extents":
        if isinstance(index, slice):
            return Extents(self._files, self._places[:, index], self._bounds[:, index])
        return self._extent(self._places[:, index].tolist(), self._bounds[:, index].tolist())

    def __iter__(self) -> Iterator[Extent]:
        for start in range(0, len(self), 1000):
            places, bounds = (columns[:, start : start + 1000].T.tolist() for columns in (self._places, self._bounds))
            yield from map(self._extent, places, bounds)

    def _extent(self, place: Sequence[int], bounds: Sequence[int]) -> Extent:
        file, group, rows, start = place
        first, last, lowest_ms, highest_ms = bounds
        return Extent(self._files.names[file], group, first, last, rows, lowest_ms, highest_ms, start)

    def to_json(self) -> str:
        """Return the extents as text, without the names of the files."""
        import numpy as np

        return b85encode(packed(np.concatenate([self._places, self._bounds]))).decode()

    @classmethod
    def from_json(cls, text: str, files: FileNames) -> "Extents":
        """Read what ``to_json`` has written; ``files`` has the names of all extents of the topic."""
        import numpy as np

        columns = unpacked(b85decode(text), 8)
        return cls(files, columns[:4].astype(np.int32), columns[4:].copy())

    def numbered(self, first: int) -> "Extents":
        """Return the extents with consecutive offsets from ``first`` on; their offsets must have no gaps."""
        import numpy as np

        ends = first + np.cumsum(self._places[2], dtype=np.int64)
        bounds = np.stack([ends - self._places[2], ends - 1, *self._bounds[2:]])
        return Extents(self._files, self._places, bounds)

    def followed_by(self, other: "Extents") -> "Extents":
        """Return these extents and others of the same topic after them."""
        return Extents.all_of([self, other.renamed(self._files)], self._files)

    def taken(self, indexes: Any) -> "Extents":
        """Select by an array of indexes, in its order."""
        return Extents(self._files, self._places[:, indexes], self._bounds[:, indexes])

    def renamed(self, files: FileNames) -> "Extents":
        """Return the extents with the numbers that their files have in ``files``, to which missing names are added."""
        import numpy as np

        if files is self._files:
            return self
        numbers = np.array([files.number(name) for name in self._files.names], dtype=np.int32)
        places = self._places.copy()
        places[0] = numbers[places[0]] if len(numbers) else 0
        return Extents(files, places, self._bounds)

    def __reduce__(self) -> tuple[Any, ...]:
        import numpy as np

        # Only the names of the own files.
        used, numbers = np.unique(self._places[0], return_inverse=True)
        own = Extents(self._files, np.stack([numbers, *self._places[1:]]), self._bounds)
        return _of_packed, ([self._files.names[number] for number in used.tolist()], own.to_json())


def _of_packed(names: list[str], text: str) -> Extents:
    return Extents.from_json(text, FileNames(names))


@frozen(eq=False)
class PartitionExtents:
    """The extents of all partitions of a topic that a call has written, in their order."""

    partitions: Any
    extents: Extents

    @classmethod
    def of(cls, written: Iterable[tuple[TopicPartition, Extent]]) -> "PartitionExtents":
        """Return extents, given with their partitions."""
        import numpy as np

        rows = list(written)
        partitions = np.array([partition.partition for partition, _ in rows], dtype=np.int32)
        return cls(partitions, Extents.of((extent for _, extent in rows), FileNames()))

    def __iter__(self) -> Iterator[tuple[int, Extent]]:
        return zip(self.partitions.tolist(), self.extents, strict=True)


def by_partition(calls: Iterable[PartitionExtents]) -> dict[int, Extents]:
    """Return the extents of each partition that calls have written, in the order of the calls."""
    import numpy as np

    files = FileNames()
    parts = list(calls)
    if not parts:
        return {}
    partitions = np.concatenate([call.partitions for call in parts])
    places = [call.extents.renamed(files) for call in parts]
    extents = Extents.all_of(places, files)
    order = np.argsort(partitions, kind="stable")
    numbers, starts = np.unique(partitions[order], return_index=True)
    borders = [*starts.tolist(), len(order)]
    return {
        number: extents.taken(order[start:end])
        for number, start, end in zip(numbers.tolist(), borders[:-1], borders[1:], strict=True)
    }


@frozen(eq=False)
class SourceHistory:
    """The history of a replay: the extents of all source partitions, also of global tables, and their files."""

    extents: Mapping[TopicPartition, Extents]
    segments: Segments

    @property
    def started_ms(self) -> int:
        """The lowest timestamp in the first row groups of the partitions, in epoch milliseconds, else 0."""
        return min((extents[0].lowest_ms for extents in self.extents.values() if extents), default=0)

    @property
    def rows(self) -> int:
        """The number of records."""
        return sum(extents.rows for extents in self.extents.values())

    def reached_ms(self, positions_of_tasks: Iterable[Mapping[TopicPartition, int]]) -> int:
        """Return the time of the newest record that tasks with some positions have read, or -1 if there is none.

        Raises:
            ReplayError: a file is missing or damaged.
        """
        reader = self.segments.reader()
        highest_ms = NO_TIMESTAMP
        try:
            for positions in positions_of_tasks:
                for partition, position in positions.items():
                    for extent in self.extents.get(partition, ()):
                        if extent.last < position:
                            highest_ms = max(highest_ms, extent.highest_ms)
                        elif extent.first < position:
                            times = zip(*reader.timestamps(extent), strict=True)
                            highest_ms = max(highest_ms, *(time_ms for offset, time_ms in times if offset < position))
        finally:
            reader.close()
        return highest_ms
