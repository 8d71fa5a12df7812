"""Sorts the partitions of a topic by event time, whatever the order of its files.

The calls that read files write sorted runs (``ingest``).  The driver only compares their times: runs that do not
overlap are in order already and stay where they are, the others are merged by one call for each partition.  The order
is that of (event time, row number), however the files were divided.
"""

from collections.abc import Generator, Mapping, Sequence
from itertools import groupby

from attrs import define, field, frozen

from streams.core.records import TopicPartition
from streams.replay.calls.work import CallMeter
from streams.replay.history.ingest import IngestReport, safe_name
from streams.replay.storage.extents import Extents, FileNames, PartitionExtents
from streams.replay.storage.ordered import clusters, merged, write_rows
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent, GroupWriter

#: Rows from which a call that merges partitions takes no further one.
MERGE_CALL_ROWS = 500_000


@frozen
class MergeWork:
    """A call to an executor that merges the sorted runs of some partitions of a topic."""

    topic: str
    #: (partition, extents that overlap in time), by partition and time.
    groups: tuple[tuple[int, tuple[Extent, ...]], ...]
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
        return sum(extent.rows for _, group in self.groups for extent in group), 0


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


def sort_topics(
    topics: Sequence[SortedTopic], root: Place, folder: str, call_rows: int = MERGE_CALL_ROWS
) -> Generator[list[MergeWork], list[IngestReport], None]:
    """Yield the calls that merge the sorted runs of topics, if any overlap, and set the extents of ``topics``.

    Raises:
        ReplayError: a file is damaged, or nothing can be written.
    """
    found = [{number: list(clusters(extents)) for number, extents in topic.extents.items()} for topic in topics]
    works = [
        work
        for topic, groups in zip(topics, found, strict=True)
        for work in _merges(topic.topic, groups, root, folder, call_rows)
    ]
    reports = (yield works) if works else []
    names = FileNames()
    results: dict[TopicPartition, list[Extent]] = {}
    for work, report in zip(works, reports, strict=True):
        for number, extent in report.written:
            results.setdefault(TopicPartition(work.topic, number), []).append(extent)
    for topic, groups in zip(topics, found, strict=True):
        for number, own in list(groups.items()):
            rest = iter(results.get(TopicPartition(topic.topic, number), ()))
            end = topic.starts.get(number, 0)
            sorted_extents: list[Extent] = []
            for group in own:
                rows = sum(extent.rows for extent in group)
                # Groups are merged in their order, and the row groups of each have as many rows as the group.
                while rows:
                    extent = group[0] if len(group) == 1 else next(rest)
                    sorted_extents.append(extent.shifted(end - extent.first))
                    end += extent.rows
                    rows -= extent.rows
            topic.extents[number] = Extents.of(sorted_extents, names)
            groups[number] = []  # Objects need seven times the memory.


def _merges(
    topic: str, groups: Mapping[int, Sequence[Sequence[Extent]]], root: Place, folder: str, call_rows: int
) -> list[MergeWork]:
    """Return calls that merge overlapping extents of a topic; each partition is merged by one call."""
    overlapping = [
        (number, tuple(group)) for number, found in sorted(groups.items()) for group in found if len(group) > 1
    ]
    calls: list[list[tuple[int, tuple[Extent, ...]]]] = []
    size = call_rows
    for _, own in groupby(overlapping, lambda item: item[0]):
        if size >= call_rows:
            calls.append([])
            size = 0
        for item in own:
            calls[-1].append(item)
            size += sum(extent.rows for extent in item[1])
    return [MergeWork(topic, tuple(call), root, folder, number) for number, call in enumerate(calls)]
