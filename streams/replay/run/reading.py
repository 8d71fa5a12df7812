"""The history of a replay's topics: the inputs that earlier runs have read, and the calls that read new input."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from streams.core.blocks.records import NO_TIMESTAMP, TaskId, TopicPartition
from streams.core.errors import ConfigError, InputError
from streams.core.event_time.timestamps import FromRecord, FromValue
from streams.core.settings.config import StreamsConfig
from streams.replay.calls.state import MANIFEST, read_manifest, write_manifest
from streams.replay.calls.work import Application, Steps, declared_topic, source_of_topic
from streams.replay.errors import ReplayError
from streams.replay.handover.cutover import check_history
from streams.replay.handover.snapshot import Snapshot
from streams.replay.history.archive import read_archive
from streams.replay.history.growth import ArchiveMark, History, archive_mark, check_archive, first_difference_ms
from streams.replay.history.ingest import IngestWork, SortedTopic, safe_name, sort_topics
from streams.replay.history.inputs import Archive, FileMark, Files, Input, KafkaTopic, Table
from streams.replay.history.intake import TopicFiles, read_files
from streams.replay.history.late_rows import LateRows, find_late_rows, late_extents
from streams.replay.history.row_times import say_row_times
from streams.replay.history.tables import (
    TablePlace,
    is_continued,
    lake_rows,
    look_at_lake,
    new_rows,
    with_changes,
    write_rows,
)
from streams.replay.run.through_spark import (
    ReadTable,
    find_files,
    look_at_tables,
    read_found,
    read_new_rows,
    read_topic,
)
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent, Segments
from streams.topology import Topology


@define(eq=False)
class Histories:
    """The history of each input topic of a replay, stored in the folder ``inputs`` of ``root``."""

    root: Place
    topology: Topology
    config: StreamsConfig
    sources: Mapping[str, Input]
    #: Order of records from files: "event_time", "as_given", or None for the default of each input.
    order: str | None = None
    #: What needs the event times of rows; if it is empty, rows without one are 1 ms apart.
    needs_time: str = ""
    #: Whether changed rows of tables are repaired.
    is_repair: bool = False
    #: Snapshot that the replay continues from.
    parent: Snapshot | None = None
    histories: dict[str, History] = field(factory=dict)
    archives: dict[str, ArchiveMark] = field(factory=dict)
    #: The number of slices that each repair has kept.
    repairs: list[int] = field(factory=list)
    #: The locations of the rows of tables, by topic.
    _tables: dict[str, TablePlace] = field(factory=dict, init=False)
    #: The new histories of tables whose rows were changed, until the repair takes effect, and from when on they differ.
    _again: dict[str, History] = field(factory=dict, init=False)
    differs_ms: dict[TopicPartition, int] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for name in self.sources:
            source_of_topic(self.topology, name)
        if self.order is not None and not any(isinstance(source, Files | Table) for source in self.sources.values()):
            raise ConfigError(
                f"order={self.order!r} is for inputs of files and tables: archives and topics keep the order of their "
                "offsets; leave it out"
            )

    @property
    def segments(self) -> Segments:
        """The files with the records of the replay."""
        return Segments(self.root)

    def load(self) -> None:
        """Load the history that earlier runs have read."""
        inputs = read_manifest(self.root.child("inputs"))
        if inputs is not None:
            self.histories = {topic: History.from_json(data) for topic, data in inputs["topics"].items()}
            self.archives = dict(inputs["archives"])
            self.repairs = list(inputs["repairs"])

    def look_at_tables(self) -> Steps:
        """Check the columns of tables, and determine the locations of their rows.

        Raises:
            InputError: a column is missing or has another type, or there is no such table.
        """
        self._tables = yield from look_at_tables(self.sources, self.topology)
        for topic, source in self.sources.items():
            if isinstance(source, Table) and source.is_lake:
                self._tables[topic] = look_at_lake(source)
            elif isinstance(source, Table) and source.is_arrow:
                self._tables[topic] = write_rows(source, declared_topic(self.topology, topic), self._file_of(topic))

    def _file_of(self, topic: str) -> Place:
        """Return the temporary file for the rows of a table that is given as Arrow data."""
        return self.root.child("tables", f"{safe_name(topic)}.parquet")

    def _named(self, text: str) -> str:
        """Replace the temporary files for Arrow data in a message by the names of the tables."""
        for topic, source in self.sources.items():
            if isinstance(source, Table) and source.is_arrow:
                text = text.replace(self._file_of(topic).uri, source.name)
        return text

    def read_topics(self) -> Steps:
        """Read new records of Kafka topics, and determine the partition counts of these topics.

        Raises:
            ReplayError: a topic cannot be read, or the next records were deleted.
        """
        for topic, source in self.sources.items():
            if not isinstance(source, KafkaTopic):
                continue
            declared = self.topology.topics.get(topic)
            history = self.histories.setdefault(
                topic, History(source.partitions or (declared and declared.partitions) or 0)
            )
            ends = dict.fromkeys(range(history.partitions), 0) | self._next_offsets(topic)
            yield from read_topic(source, self.segments, "inputs", ends, history)
            self._keep_history()

    def read(self, application: Application) -> Steps:
        """Read the new records of all inputs.

        Raises:
            InputError: a file or row cannot be read.
            ReplayError: a part of a file that was read before has changed.
        """
        unread = []
        on_bad_row = "continue" if self.config.deserialization_handler != "fail" else "fail"
        for topic, source in self.sources.items():
            partitions = application.partitions[topic]
            if isinstance(source, Archive):
                archive = read_archive(Place(source.path), source.topic or topic)
                check_archive(topic, self.archives.get(topic, {}), archive.extents)
                self.archives[topic] = archive_mark(archive.extents)
                self.histories[topic] = History(partitions)
                self.histories[topic].add(archive.extents)
            elif isinstance(source, Table) and source.is_arrow:
                unread += self._new_arrow_rows(topic, source, partitions)
            elif isinstance(source, Table):
                history = self._history_of(topic, source, partitions)
                starts = self._next_offsets(topic)
                call = ReadTable(
                    source, application, topic, partitions, self.segments, "inputs", starts, (), on_bad_row
                )
                if (yield from read_new_rows(call, self._tables[topic], history)):
                    self._keep_history()
            elif isinstance(source, Files) and source.through_spark:
                history = self._history_of(topic, source, partitions)
                unread_files = yield from find_files(source.paths, history.marks, topic)
                if unread_files:
                    by_time = history.order == "event_time"
                    files = TopicFiles(topic, (), (), partitions, history.rows, 0, self._next_offsets(topic), by_time)
                    files.location = source.location
                    work = IngestWork(
                        application,
                        topic,
                        (),
                        partitions,
                        self.segments,
                        "inputs",
                        0,
                        history.rows,
                        on_bad_row=on_bad_row,
                        needs_time=self.needs_time,
                        by_time=by_time,
                        location=source.location,
                    )
                    yield from read_found(work, unread_files, files)
                    say_row_times([files])
                    yield from self._sort([files])
                    self._take_files(files, [file.mark for file in unread_files])
                    self._keep_history()
            elif isinstance(source, Files):
                files, marks = self._new_files(topic, source, partitions)
                unread += [(files, marks)] if marks else []
        if not unread:
            if self.archives:
                self._keep_history()
            return
        new = [files for files, _ in unread]
        try:
            yield from read_files(
                application, new, self.segments, "inputs", on_bad_row=on_bad_row, needs_time=self.needs_time
            )
        except InputError as error:
            raise InputError(self._named(str(error))) from error
        say_row_times(new)
        yield from self._sort(new)
        for files, marks in unread:
            self._take_files(files, marks)
        self._compare()
        self._keep_history()
        self.root.child("tables").delete()

    def _compare(self) -> None:
        """Determine from when on the histories of changed tables differ; one without a difference is taken at once."""
        for topic, again in list(self._again.items()):
            for number in range(again.partitions):
                both = (self.segments.blocks(it.extents.get(number, ())) for it in (self.histories[topic], again))
                if (differs_ms := first_difference_ms(*both)) is not None:
                    self.differs_ms[TopicPartition(topic, number)] = differs_ms
            if not any(at.topic == topic for at in self.differs_ms):
                self.histories[topic] = self._again.pop(topic)

    def _sort(self, read: Sequence[TopicFiles]) -> Steps:
        """Sort the new records of topics by event time, for the topics that have this order."""
        orders = [SortedTopic(files.topic, files.extents, files.starts) for files in read if files.by_time]
        yield from sort_topics(orders, self.segments, "inputs")

    def sort_late_rows(self) -> Steps:
        """Sort the late rows of all topics into their histories; ``keep_repair`` makes this permanent.

        The histories of changed tables, which are sorted, take the place of those before.
        """
        self.histories |= self._again
        self._again.clear()
        orders = [
            SortedTopic(topic, dict(history.extents), self._starts(topic))
            for topic, history in self.histories.items()
            if history.order == "event_time"
        ]
        yield from sort_topics(orders, self.segments, "inputs")
        for order in orders:
            self.histories[order.topic].replace(order.extents)

    def keep_repair(self, slices_kept: int) -> None:
        """Keep the sorted histories; of the slices before, only those below number ``slices_kept`` remain valid."""
        self.repairs.append(slices_kept)
        self._keep_history()

    @property
    def late_from_ms(self) -> dict[TopicPartition, int]:
        """The time of the oldest late row or changed row of each partition that has some."""
        times_ms = dict(self.differs_ms)
        for topic, history in self.histories.items():
            if topic in self._again:
                continue
            for number, extents in history.extents.items() if history.order == "event_time" else ():
                times = [extent.lowest_ms for extent, _ in late_extents(extents, self._before_ms(topic))]
                if times:
                    times_ms[TopicPartition(topic, number)] = min(times)
        return times_ms

    def late_rows(self) -> list[LateRows]:
        """Return the late rows of each sorted input that has late rows.

        Raises:
            ReplayError: a file is missing or damaged.
        """
        late_rows = []
        for topic, history in self.histories.items():
            if history.order == "event_time":
                late = find_late_rows(self.segments, topic, history, self._before_ms(topic), self.topology)
                late_rows += [] if late is None else [late]
        return late_rows

    def _before_ms(self, topic: str) -> int:
        """Return the time of the newest record of a topic in the snapshot, or -1 without a snapshot.

        At the end of a replay, the last records of each partition are processed without waiting for other partitions.
        So rows of any partition that are older than this time are late.
        """
        return NO_TIMESTAMP if self.parent is None else self.parent.highest_ms(topic)

    def order_of(self, topic: str, content: Files | Table) -> str:
        """Return the order of the records of an input of files or of a table.

        Raises:
            ReplayError: the source determines event times itself, so that the records cannot be sorted by them, or the
                order of a table is "as_given", although its rows have no order.
        """
        source = source_of_topic(self.topology, topic)
        policy: Any = source.extractor or self.config.default_timestamp_extractor
        if isinstance(content, Table) and not content.is_arrow and self.order == "as_given":
            raise ReplayError(f"topic {topic!r}: the rows of {content.name} have no order; leave order='as_given' out")
        if isinstance(policy, str | FromValue | FromRecord):
            is_unordered = isinstance(content, Table) or content.is_folder
            return self.order or ("event_time" if is_unordered else "as_given")
        if self.order == "event_time" or (isinstance(content, Table) and not content.is_arrow):
            raise ReplayError(
                f"topic {topic!r} cannot be sorted by event time: source {source.name!r} has a timestamp extractor, "
                f"which is called later; declare Topic({topic!r}, timestamp=...), or give files and order='as_given'"
            )
        return "as_given"

    def _take_files(self, files: TopicFiles, marks: Sequence[FileMark]) -> None:
        """Add the files that have been read, with their marks and records, to the history of their topic."""
        history = self._again.get(files.topic) or self.histories[files.topic]
        if files.skip_rows:
            history.marks.pop()
        # The rows of a lake table come from many of its files, and are counted with the last one.
        # One that was emptied has none.
        counts = [0] * (len(marks) - len(files.rows)) + list(files.rows) if marks else []
        history.marks += [evolve(mark, rows=rows) for mark, rows in zip(marks, counts, strict=True)]
        history.add(files.extents)

    @property
    def paths(self) -> set[str]:
        """The files that were read."""
        return {mark.path for history in self.histories.values() for mark in history.marks}

    @property
    def times(self) -> tuple[int, int] | None:
        """The lowest and the highest event time of the history, None if there are no records."""
        parts = [extents for history in self.histories.values() for extents in history.extents.values() if len(extents)]
        if not parts:
            return None
        lowest, highest = ([getattr(extents, name) for extents in parts] for name in ("lowest_ms", "highest_ms"))
        return min(int(times.min()) for times in lowest), max(int(times.max()) for times in highest)

    def _keep_history(self) -> None:
        """Write the manifest of the inputs, which lists the history that was read."""
        histories = {
            name: entry for name, entry in self.histories.items() if not isinstance(self.sources.get(name), Archive)
        }
        place = self.root.child("inputs")
        topics = {topic: history.to_json() for topic, history in histories.items()}
        write_manifest(place, {"kind": "inputs", "topics": topics, "archives": self.archives, "repairs": self.repairs})
        named = set().union(*(history.file_names for history in (*histories.values(), *self._again.values())))
        for file in place.files():
            if f"inputs/{file}" not in named and file != MANIFEST:
                place.child(file).delete()  # The file is from a failed attempt.

    def _next_offsets(self, topic: str) -> dict[int, int]:
        extents = self.histories[topic].extents
        return self._starts(topic) | {number: ranges[-1].last + 1 for number, ranges in extents.items() if ranges}

    def _new_arrow_rows(self, topic: str, source: Table, partitions: int) -> list[tuple[TopicFiles, list[FileMark]]]:
        """Return the file with the new rows of a table with Arrow data and its marks, nothing if there are none.

        Raises:
            ReplayError: it is not known which rows are new, or rows that were read are no longer there.
        """
        history = self._history_of(topic, source, partitions)
        self._tables[topic] = with_changes(source, self._tables[topic], history.marks)
        may_repair = self.is_repair and self.parent is None
        rows = new_rows(topic, source, self._tables[topic], history, may_repair=may_repair)
        if rows is None:
            return []
        file = self._file_of(topic)
        starts = self._next_offsets(topic)
        if rows.is_again:
            starts = {}
            history = self._again[topic] = History(partitions, order=history.order)
        if source.is_lake:
            content = lake_rows(source, self._tables[topic], rows.files)
            write_rows(content, declared_topic(self.topology, topic), file)
        by_time = history.order == "event_time"
        files = TopicFiles(topic, [file.uri], [file.size()], partitions, history.rows, 0, starts, by_time)
        return [(files, list(rows.marks))]

    def _new_files(self, topic: str, source: Files, partitions: int) -> tuple[TopicFiles, list[FileMark]]:
        """Return the files of a topic that are new or have grown, with their current sizes and digests.

        Raises:
            ReplayError: a file that was read before is missing, has changed, or has grown although files follow it.
        """
        history = self._history_of(topic, source, partitions)
        paths = history.in_order(source.paths)
        skip = 0
        for mark in history.marks:
            if not paths or not mark.is_in(paths[0]):
                raise ReplayError(
                    f"topic {topic!r}: {mark.path} was read before, but "
                    + (f"now {paths[0]} is in its place" if paths and paths[0] != mark.path else "has changed since")
                    + "; history may only grow at its end; else start in another folder"
                )
            if Place(paths[0]).size() > mark.size:
                if mark is not history.marks[-1]:
                    raise ReplayError(f"topic {topic!r}: {mark.path} has grown, but files after it were read already")
                mark.check_growth(paths[0], source.location.kind_of(paths[0]))
                skip = mark.rows
                break
            paths.pop(0)
        # Read up to the current ends; later rows are left to the next run.
        marks = [FileMark.of(path) for path in paths]
        sizes = [mark.size for mark in marks]
        starts = self._next_offsets(topic)
        by_time = history.order == "event_time"
        return TopicFiles(
            topic, paths, sizes, partitions, history.rows - skip, skip, starts, by_time, source.location
        ), marks

    def _history_of(self, topic: str, source: Files | Table, partitions: int) -> History:
        """Return the history of a topic as it was read before.

        Raises:
            ReplayError: the history was read in another order before.
        """
        history = self.histories.get(topic)
        if history is None:
            history = self.histories[topic] = self._first_history(topic, source, partitions)
        if self.order not in (None, history.order):
            raise ReplayError(
                f"{self.root}: has read topic {topic!r} with order {history.order!r} before, which cannot become "
                f"{self.order!r}; leave the order out, or start in another folder"
            )
        return history

    def _first_history(self, topic: str, source: Files | Table, partitions: int) -> History:
        """Return the initial history of a topic: empty, or the history in the snapshot."""
        history = History(partitions, order=self.order_of(topic, source))
        if self.parent is not None:
            marks = self.parent.marks(topic)
            if isinstance(source, Table):
                is_same = is_continued(source, with_changes(source, self._tables[topic], marks), marks)
                history.marks = marks if is_same else []
                history.rows_before = self.parent.rows_before(topic) if is_same else self.parent.rows(topic)
            elif (
                source.paths
                and marks
                and all(mark.path == path or mark.is_in(path) for mark, path in zip(marks, source.paths, strict=False))
                and len(source.paths) >= len(marks)
            ):
                # The files are the same, but may have grown: rows that the replay of the snapshot has read are skipped.
                history.marks = [evolve(mark, path=path) for mark, path in zip(marks, source.paths, strict=False)]
                history.rows_before = self.parent.rows_before(topic)
            else:
                history.rows_before = self.parent.rows(topic)
        return history

    def _starts(self, topic: str) -> dict[int, int]:
        """Return the first offsets of the topic history after the snapshot."""
        return {} if self.parent is None else self.parent.ends(topic)

    def check_positions(
        self,
        sources: Mapping[TopicPartition, Sequence[Extent]],
        positions_of_tasks: Mapping[TaskId, Mapping[TopicPartition, int]],
    ) -> None:
        """Check that there is no gap between the positions of tasks and the history.

        Raises:
            ReplayError: the history begins after the position of a task, or is a different history.
        """
        for positions in positions_of_tasks.values():
            for partition, position in positions.items():
                extents = sources.get(partition, ())
                if isinstance(self.sources.get(partition.topic), KafkaTopic):
                    continue  # Spark has already checked this, including offsets without records.
                if extents and extents[0].first > position:
                    raise ReplayError(
                        f"{partition}: its history begins at offset {extents[0].first}, but the snapshot continues at "
                        f"{position}: a gap of {extents[0].first - position} records; give the missing history"
                    )
        for topic, source in self.sources.items() if self.parent is not None else ():
            if not isinstance(source, Files | Table):
                assert self.parent is not None
                extents_of = self.histories[topic].extents if isinstance(source, Archive) else None
                check_history(self.parent, topic, extents_of, self.segments)

    def origin(self, partition: TopicPartition, offset: int) -> tuple[str, int] | None:
        """Return the file and the row number (from 1) of a source record, or None if they are not known."""
        history = self.histories.get(partition.topic)
        for extent in () if history is None else history.extents.get(partition.partition, ()):
            if extent.first <= offset <= extent.last:
                row = self.segments.reader().origin(extent, offset)
                return None if row is None or history is None else history.file_of(row)
        return None
