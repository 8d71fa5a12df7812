"""Sorts the partitions of a topic by event time, whatever the order of its files.

The calls that read files write sorted runs (``ingest``).  The driver only compares their times: runs that do not
overlap are in order already and stay where they are, the others are merged by one call for each partition.  The order
is that of (event time, row number), however the files were divided.
"""

from collections.abc import Generator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import define, field, frozen

from streams.core.blocks.records import TopicPartition
from streams.replay.calls.work import CallMeter
from streams.replay.history.ingest import IngestReport, safe_name
from streams.replay.storage.extents import Extents, FileNames, PartitionExtents, by_partition
from streams.replay.storage.ordered import merged, write_rows
from streams.replay.storage.places import Place
from streams.replay.storage.segments import GroupWriter

#: Rows from which a call that merges partitions takes no further one.
MERGE_CALL_ROWS = 500_000


@frozen
class MergeWork:
    """A call to an executor that merges the sorted runs of some partitions of a topic."""

    topic: str
    #: (partition, extents that overlap in time), by partition and time.
    groups: tuple[tuple[int, Extents], ...]
    root: Place
    folder: str
    number: int
    stage: int = -2

    @property
    def name(self) -> str:
        """The name of this call to an executor, for messages and file names."""
        return f"sorted-{safe_name(self.topic)}-{self.number:05d}"

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of records and bytes that the call has to read, as far as they are known."""
        return sum(group.rows for _, group in self.groups), 0


def run_merge(work: MergeWork) -> IngestReport:
    """Merge the runs of a call; the offsets of each partition start at 0.

    Raises:
        ReplayError: a file is damaged, or nothing can be written.
    """
    meter = CallMeter(work)
    name = f"{work.folder}/{work.name}-{meter.attempt}.parquet"
    done = 0
    ends: dict[int, int] = {}
    with GroupWriter(work.root, name) as file, meter:
        for number, group in work.groups:
            for table in merged(work.root, group):
                end = ends.get(number, 0)
                write_rows(file, TopicPartition(work.topic, number), end, table)
                ends[number] = end + table.num_rows
                done += table.num_rows
                meter.beat(done)
    written = PartitionExtents.of((partition, extent) for _, partition, extent in file.written)
    return meter.report(IngestReport, files=written.extents.file_names, written=written)


@define
class SortedTopic:
    """The new records of a topic, to be sorted by event time.

    Before sorting, ``extents`` has the sorted runs of each partition in the order of their rows; after sorting, it has
    the extents of the sorted partitions.  ``starts`` has the next offset of each partition.
    """

    topic: str
    extents: dict[int, Extents]
    starts: Mapping[int, int] = field(factory=dict)


@frozen(eq=False)
class _Groups:
    """The sorted runs of a partition by time, divided into groups whose times do not overlap.

    The rows of each run are sorted, so a group with one run need not be merged.
    """

    runs: Extents
    #: Index of the first run of each group, and the number of runs.
    borders: Any

    @classmethod
    def of(cls, extents: Extents) -> "_Groups":
        """Divide extents, which are given in the order of their rows."""
        import numpy as np

        size = len(extents)
        order = np.lexsort((np.arange(size), extents.lowest_ms))
        runs = extents.taken(order)
        # The places of the first and of the last possible record of each run in the order of (event time, run).
        times = np.concatenate([runs.lowest_ms, runs.highest_ms])
        number = np.concatenate([order, order])
        places = np.empty(2 * size, dtype=np.int64)
        places[np.lexsort((number, times))] = np.arange(2 * size)
        is_first = places[1:size] > np.maximum.accumulate(places[size:])[:-1]
        return cls(runs, np.concatenate([[0][:size], np.flatnonzero(is_first) + 1, [size]]))

    @property
    def _sizes(self) -> Any:
        """The number of runs of each group."""
        import numpy as np

        return np.diff(self.borders)

    @property
    def overlapping(self) -> list[Extents]:
        """The groups of several runs."""
        return [self.runs[start:end] for start, end in pairwise(self.borders.tolist()) if end - start > 1]

    def merged(self, results: Extents | None, names: FileNames) -> Extents:
        """Return the extents of the sorted partition, with ``results`` in place of the groups of several runs."""
        import numpy as np

        sizes = self._sizes
        group = np.repeat(np.arange(len(sizes)), sizes)
        is_alone = sizes[group] == 1
        alone = self.runs.taken(np.flatnonzero(is_alone)).renamed(names)
        if results is None:
            return alone
        # Groups are merged in their order, and the row groups of each have as many rows as the group.
        several = np.flatnonzero(sizes > 1)
        ends = np.cumsum(np.add.reduceat(self.runs.sizes, self.borders[:-1], dtype=np.int64)[several])
        places = several[np.searchsorted(ends, np.cumsum(results.sizes, dtype=np.int64))]
        order = np.argsort(np.concatenate([group[is_alone], places]), kind="stable")
        return Extents.all_of([alone, results.renamed(names)], names).taken(order)


def sort_topics(
    topics: Sequence[SortedTopic], root: Place, folder: str, call_rows: int = MERGE_CALL_ROWS
) -> Generator[list[MergeWork], list[IngestReport], None]:
    """Yield the calls that merge the sorted runs of topics, if any overlap, and set the extents of ``topics``.

    Raises:
        ReplayError: a file is damaged, or nothing can be written.
    """
    found = [{number: _Groups.of(extents) for number, extents in topic.extents.items()} for topic in topics]
    works = [
        work
        for topic, groups in zip(topics, found, strict=True)
        for work in _merges(topic.topic, groups, root, folder, call_rows)
    ]
    reports = (yield works) if works else []
    for topic, groups in zip(topics, found, strict=True):
        results = by_partition(
            report.written for work, report in zip(works, reports, strict=True) if work.topic == topic.topic
        )
        names = FileNames()
        for number, own in groups.items():
            extents = own.merged(results.get(number), names)
            topic.extents[number] = extents.numbered(topic.starts.get(number, 0))


def _merges(topic: str, groups: Mapping[int, _Groups], root: Place, folder: str, call_rows: int) -> list[MergeWork]:
    """Return calls that merge overlapping runs of a topic; each partition is merged by one call."""
    calls: list[list[tuple[int, Extents]]] = []
    size = call_rows
    for number, found in sorted(groups.items()):
        own = [(number, group) for group in found.overlapping]
        if own and size >= call_rows:
            calls.append([])
            size = 0
        for item in own:
            calls[-1].append(item)
            size += item[1].rows
    return [MergeWork(topic, tuple(call), root, folder, number) for number, call in enumerate(calls)]
