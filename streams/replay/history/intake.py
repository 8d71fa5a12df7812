"""The driver's side of ``ingest``: splits files into calls to the executor, and concatenates the results.

Files are split by size only, so the same files give the same calls on any executor.  A call must
know the number of its first row, to name rows in messages and to assign rows without a key round-robin.
The rows of a topic with several calls are therefore counted first.  Records are not moved once they
are written: a partition is the list of extents that the calls wrote, in order.
"""

from collections.abc import Generator, Mapping, Sequence

from attrs import define, evolve, field, frozen

from streams.core.errors import InputError
from streams.files import BY_SUFFIX, WHOLE, FileKind, Kind, Location, cut_file, input_kind
from streams.replay.calls.work import Application
from streams.replay.history.ingest import IngestReport, IngestWork, Piece, source_of
from streams.replay.storage.extents import Extents, by_partition
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments

#: Approximate bytes that one call reads; measured in docs/decisions/0020-files-without-a-shuffle.md.
PART_BYTES = 32 << 20
#: Assumed ratio of compressed files.
PACKED_FACTOR = 5

#: A generator that yields calls and is sent the reports.
Calls = Generator[list[IngestWork], list[IngestReport], None]


@define
class TopicFiles:
    """The files of a topic that are to be read, and the results of reading them.

    ``sizes`` are in bytes.  ``rows_before`` is the number of rows of the topic before these files, and ``skip_rows`` is
    the number of rows of the first file that were read before.  ``starts`` has the next offset of each partition.
    """

    topic: str
    paths: Sequence[str]
    sizes: Sequence[int]
    partitions: int
    rows_before: int = 0
    skip_rows: int = 0
    starts: Mapping[int, int] = field(factory=dict)
    #: Whether each call sorts its records by event time.
    by_time: bool = False
    location: Location = BY_SUFFIX
    #: Rows of each file, including those that were read before.
    rows: list[int] = field(factory=list)
    extents: dict[int, Extents] = field(factory=dict)
    works: list[IngestWork] = field(factory=list)
    #: Number of records, and of those without a time of their own.
    records: int = 0
    untimed: int = 0

    def take(self, reports: Sequence[IngestReport]) -> None:
        """Add the results of the calls, in order, to those of the topic.

        Raises:
            InputError: a file or row cannot be read; only the first failure in file order is raised.
        """
        for report in reports:
            if report.failure is not None:
                raise InputError(report.failure)
            self.records += report.records_in
            self.untimed += report.untimed
        for number, extents in by_partition(report.written for report in reports).items():
            new = extents.numbered(self.starts.get(number, 0))
            before = self.extents.get(number)
            self.extents[number] = new if before is None else before.followed_by(new)
        for path, size in zip(self.paths, self.sizes, strict=True):
            if Place(path).size() != size and not _is_bounded(self.location.kind_of(path)):
                raise InputError(f"{path}: has changed while it was read; read it when it is complete")


@frozen
class _Cut:
    """The files, or the part of a file, that one call reads: pieces, file indexes, row counts, and sizes in bytes."""

    pieces: tuple[Piece, ...]
    files: tuple[int, ...]
    rows: tuple[int | None, ...]
    sizes: tuple[int, ...]


def read_files(
    application: Application,
    topics: Sequence[TopicFiles],
    segments: Segments,
    folder: str,
    *,
    on_bad_row: str = "fail",
    needs_time: str = "",
    part_bytes: int = PART_BYTES,
) -> Calls:
    """Yield the calls that read the files of topics, and add their results to ``topics``.

    Raises:
        InputError: a file or row cannot be read.
        ReplayError: nothing can be written.
    """
    cuts = [_cut(topic, part_bytes) for topic in topics]
    for topic, cuts_of in zip(topics, cuts, strict=True):
        topic.works = [
            IngestWork(
                application,
                topic.topic,
                cut.pieces,
                topic.partitions,
                segments,
                folder,
                number,
                topic.rows_before,
                topic.skip_rows if not number else 0,
                on_bad_row,
                needs_time,
                topic.by_time,
                size_bytes=sum(cut.sizes),
                location=topic.location,
            )
            for number, cut in enumerate(cuts_of)
        ]
        for work in topic.works[:1]:
            work.failures.delete()
    counted = yield from _counted(topics, cuts)
    for topic, cuts_of, counts in zip(topics, cuts, counted, strict=True):
        if len(cuts_of) > 1:
            _place(topic, cuts_of, counts)
    works = [work for topic in topics for work in topic.works]
    reports = yield works
    for topic in topics:
        own = reports[: len(topic.works)]
        reports = reports[len(topic.works) :]
        for work in topic.works[:1]:
            work.failures.delete()
        topic.take(own)
        if not topic.rows:
            topic.rows = [rows for report in own for rows, _ in report.counts]


def _cut(topic: TopicFiles, part_bytes: int) -> list[_Cut]:
    """Return the input of each call that reads a topic: adjacent small files, or a part of a large file."""
    result: list[_Cut] = []
    pieces: list[tuple[Piece, int, int | None, int]] = []
    size = 0

    def close() -> None:
        if pieces:
            result.append(_Cut(*map(tuple, zip(*pieces, strict=True))))
        pieces.clear()

    for index, (path, size_bytes) in enumerate(zip(topic.paths, topic.sizes, strict=True)):
        source = source_of(path, topic.location)
        kind = input_kind(source)
        parts = list(cut_file(source, kind, size_bytes, part_bytes))
        weight = size_bytes * (PACKED_FACTOR if kind.compression else 1)
        if len(parts) > 1 or size + weight > part_bytes:
            close()
            size = 0
        for part, rows, about in parts or [(WHOLE, 0, 0)]:
            pieces.append((Piece(path, part), index, rows, about))
            if len(parts) > 1:
                close()
        size += weight
    close()
    return result


def _counted(
    topics: Sequence[TopicFiles], cuts: Sequence[Sequence[_Cut]]
) -> Generator[list[IngestWork], list[IngestReport], list[list[tuple[tuple[int, int], ...]]]]:
    """Yield calls that count rows, for topics with several calls and unknown row counts; return all row counts."""
    asked: list[IngestWork] = []
    for topic, own in zip(topics, cuts, strict=True):
        if len(own) > 1:
            asked += [
                evolve(work, counts_only=True) for work, cut in zip(topic.works, own, strict=True) if None in cut.rows
            ]
    reports = iter((yield asked)) if asked else iter(())
    result = []
    for own in cuts:
        counts: list[tuple[tuple[int, int], ...]] = []
        for cut in own if len(own) > 1 else ():
            if None in cut.rows:
                report = next(reports)
                if report.failure is not None:
                    raise InputError(report.failure)
                counts.append(report.counts)
            else:
                counts.append(tuple((rows, rows) for rows in cut.rows if rows is not None))
        result.append(counts)
    return result


def _place(topic: TopicFiles, cuts: Sequence[_Cut], counts: Sequence[tuple[tuple[int, int], ...]]) -> None:
    """Set the first row of each call of a topic, and drop calls whose rows were all read before."""
    topic.rows = [0] * len(topic.paths)
    lines = [0] * len(topic.paths)
    works = []
    for work, cut, rows_of in zip(topic.works, cuts, counts, strict=True):
        first = cut.files[0]
        part = evolve(cut.pieces[0].part, first_row=topic.rows[first], first_line=lines[first] + 1)
        before = topic.rows_before + sum(topic.rows[:first])
        for index, (rows, line_count) in zip(cut.files, rows_of, strict=True):
            topic.rows[index] += rows
            lines[index] += line_count
        skip = topic.skip_rows if not first else 0
        if len(cut.pieces) > 1 or topic.rows[first] > skip:
            pieces = (evolve(cut.pieces[0], part=part), *cut.pieces[1:])
            works.append(evolve(work, pieces=pieces, rows_before=before, skip_rows=skip))
    topic.works = works


def _is_bounded(kind: FileKind | None) -> bool:
    """Return whether readers of a file stop at its initial size even if the file grows."""
    return kind is not None and not kind.compression and kind.kind is not Kind.PARQUET
