"""Rows of many partitions that wait to be written together, and their division into row groups.

A task of a topology with many partitions writes a few records to each partition of a repartition topic.  They are kept
in the order in which the task wrote them, and sorted by partition when they are written.
"""

from collections.abc import Callable, Iterator, Sequence

from attrs import define, field

from streams.core.records import Block, Headers

#: A range with fewer rows shares a row group with its neighbours, up to this number of rows in all.
_SHARED_BELOW = 250
_SHARED_ROWS = 2_500


def row_groups(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Divide ranges of rows, given by their sizes, among row groups; yield the indexes of the ranges of each group."""
    shared: list[int] = []
    rows = 0
    for index, size in enumerate(sizes):
        if size >= _SHARED_BELOW:
            yield [index]
            continue
        if rows + size > _SHARED_ROWS:
            yield shared
            shared, rows = [], 0
        shared.append(index)
        rows += size
    if shared:
        yield shared


@define(eq=False)
class Scattered:
    """Rows of many partitions of a topic, as columns."""

    numbers: list[int] = field(factory=list)
    offsets: list[int] = field(factory=list)
    keys: list[bytes | None] = field(factory=list)
    values: list[bytes | None] = field(factory=list)
    timestamps: list[int] = field(factory=list)
    #: None while no row has headers.
    headers: list[Headers] | None = None
    #: The producer of each partition, and the next offset.
    producers: dict[int, str] = field(factory=dict)
    _ends: dict[int, int] = field(factory=dict)

    def append(self, numbers: Sequence[int], block: Block, producer: str, start_of: Callable[[int], int]) -> None:
        """Append rows, which get the next offsets of their partitions; ``start_of`` returns the first offset of one."""
        ends = self._ends
        for number in numbers:
            offset = ends.get(number)
            if offset is None:
                offset = start_of(number)
                self.producers[number] = producer
            self.offsets.append(offset)
            ends[number] = offset + 1
        if block.headers is not None and self.headers is None:
            self.headers = [()] * len(self.keys)
        self.numbers += numbers
        self.keys += block.keys
        self.values += block.values
        self.timestamps += block.timestamps
        if self.headers is not None:
            self.headers += block.headers if block.headers is not None else [()] * len(numbers)

    def by_partition(self, most: int) -> tuple[list[int], list[int], list[int]]:
        """Return the row indexes sorted by partition, and the partition and the size of each range of rows.

        A range contains at most ``most`` rows of one partition.
        """
        import numpy as np

        numbers = np.array(self.numbers, dtype=np.int64)
        order = np.argsort(numbers, kind="stable")
        found, counts = np.unique(numbers, return_counts=True)
        ranges = [
            (number, min(most, count - start))
            for number, count in zip(found.tolist(), counts.tolist(), strict=True)
            for start in range(0, count, most)
        ]
        return order.tolist(), [number for number, _ in ranges], [size for _, size in ranges]

    def clear(self) -> None:
        """Remove all rows, which have been written, but keep the next offsets."""
        for column in (self.numbers, self.offsets, self.keys, self.values, self.timestamps):
            column.clear()
        self.headers = None
