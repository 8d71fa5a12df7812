"""Writes output topics to folders of Parquet files and tables, and each slice exactly once.

The calls of an executor write files into the folder of the table; file names are derived from the replay, the slice and
its records.  Then commits add the files with the digests of their slices.  A slice whose digest the table has is not
written again.  Until the commit, the files belong to no version of the table.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal
from uuid import uuid4

from attrs import define, field, frozen

from streams.core.blocks.records import TopicPartition
from streams.lakes import Commit, DataFile, LakePosition, TableLog
from streams.replay.calls.outputs import OutputPart, lanes_of, output_partitions, output_parts
from streams.replay.calls.state import Outputs, outputs_from_json, read_manifest
from streams.replay.errors import ReplayError
from streams.replay.run.session import ReplaySession
from streams.replay.run.writing import WriteReport, WriteWork
from streams.replay.storage.places import Place
from streams.values import PartitionColumn

#: The file, in the folder of a replay, with the name of its run.
_RUN = "run"
#: Maximum number of calls whose slices are written together, if a commit need not have all.
_CALLS = 2_000
#: The end of the name of a file that a replay writes: its slice, digest, and partition.
_WRITTEN = r"([0-9]{5}|end)-[0-9a-f]+-p[0-9-]+\.parquet"
#: Executes calls and returns their reports.
Run = Callable[[list[Any]], list[Any]]
Mode = Literal["append", "overwrite", "last"]


@frozen
class SliceOutput:
    """The records that one slice of a replay has written to a topic."""

    name: str
    parts: tuple[OutputPart, ...]
    #: For each partition (number, number of records of earlier slices, number of records); slices with equal extents
    #: of one run have equal records.  If repairs came before the slice, the first entry is (-1, number of repairs, 0).
    extent: tuple[tuple[int, int, int], ...]
    #: The name of the run; another run of the same replay may have other records, if the user's functions have changed.
    run: str

    def digest(self, columns: Sequence[PartitionColumn] | None) -> int:
        """Return a number from 0 to 2**63 that identifies the records and the columns that partition them.

        ``columns`` is None for a table, which has the same partition columns as long as it exists.
        """
        identity: tuple[Any, ...] = (self.run, self.extent)
        if columns is not None:
            identity = (*identity, [column.path for column in columns])
        return int.from_bytes(blake2b(repr(identity).encode(), digest_size=8).digest()) >> 1


def slice_outputs(session: ReplaySession, topic: str) -> Iterator[SliceOutput]:
    """Yield the output of each slice of a replay, oldest first.

    If one task writes a partition, it assigns the offsets; otherwise records are merged slice by slice.
    """
    run = _run_name(session.root)
    producers: dict[TopicPartition, set[str]] = {}
    rows: dict[TopicPartition, int] = {}
    for name, repairs, outputs in outputs_by_slice(session):
        parts: list[OutputPart] = []
        extent = [(-1, repairs, 0)] if repairs else []
        for number in output_partitions(outputs, topic):
            at = TopicPartition(topic, number)
            writers = producers.setdefault(at, set())
            writers |= {producer for place, producer in outputs if place == at}
            part = OutputPart(number, lanes_of(outputs, at), None if len(writers) == 1 else rows.get(at, 0))
            extent.append((number, rows.get(at, 0), part.rows))
            rows[at] = rows.get(at, 0) + part.rows
            parts.append(part)
        yield SliceOutput(name, tuple(parts), tuple(extent), run)


def last_output(session: ReplaySession, topic: str) -> SliceOutput:
    """Return the output of all slices as one, which takes the place of that of the run before."""
    parts = tuple(output_parts(session.outputs, topic))
    extent = [(part.partition, len(session.inputs.repairs), part.rows) for part in parts]
    # No slice has these numbers.
    return SliceOutput("end", parts, ((-2, 0, 0), *extent), _run_name(session.root))


def _run_name(root: Place) -> str:
    """Return the name of the run in a folder of a replay, which no other folder has; the first call creates it."""
    place = root.child(_RUN)
    name = place.read_if_exists()
    if name is None:
        name = uuid4().hex.encode()
        place.write(name)
    return name.decode()


def outputs_by_slice(session: ReplaySession) -> Iterator[tuple[str, int, Outputs]]:
    """Yield (name, number of repairs before it, output) for each slice of all runs, oldest first."""
    folders = {f"{number:05d}": f"slices/{number:05d}" for number in session.numbers}
    folders["end"] = f"end/{session.next_number:05d}"
    for name, folder in folders.items():
        manifest = read_manifest(session.root.child(folder))
        if manifest is not None:
            yield name, manifest["repairs"], outputs_from_json(manifest["outputs"])


@define(eq=False)
class SliceWriter:
    """Writes the output of a replay to a table or folder, to whose log it commits slices."""

    _session: ReplaySession
    _topic: str
    _log: TableLog
    _mode: Mode = "append"
    #: The digest of each slice.
    _digests: dict[str, int] = field(factory=dict, init=False)

    def write(self, run: Run) -> int:
        """Write the slices that the table does not have, and return the number of records written.

        A table gets them in one commit; a folder in several, and then loses the files that they replace.

        Raises:
            ReplayError: rows that have to be replaced are in files that were rewritten, or another job has changed the
                table meanwhile.
            StreamsError: a record cannot be read, or a file cannot be written.
        """
        log = self._log
        if self._mode == "last":
            self._check_other_keys()
            outputs = [last_output(self._session, self._topic)]
        else:
            outputs = list(slice_outputs(self._session, self._topic))
        self._digests = {output.name: output.digest(None if log.is_atomic else log.columns) for output in outputs}
        # A repair may have made slices void that the table has.
        names = self._digests.keys() | {f"{number:05d}" for number in self._session.all_numbers()}
        positions = log.positions(sorted(names))
        committed = {name: position for name, position in positions.items() if position.number >= 0}
        new = [it for it in outputs if it.name not in committed or committed[it.name].number != self._digests[it.name]]
        if not new and log.is_atomic:
            return 0
        files = log.files()
        void = [name for name in names - self._digests.keys() if name in committed]
        removed = self._replaced([*void, *(output.name for output in new)], committed, files)
        moves = {name: LakePosition(-1, 0) for name in void}
        added: dict[str, list[DataFile]] = {}
        for batch in self._batches(new):
            written = self._written(batch, run)
            added |= written
            for name, parts in written.items():
                moves[name] = LakePosition(self._digests[name], sum(file.rows for file in parts))
            if not log.is_atomic:
                self._commit(moves, written)
                moves = {}
        if self._mode == "overwrite":
            removed += self._overwritten(files, added)
        if moves or removed:
            self._commit(moves, added if log.is_atomic else {}, removed)
        return sum(file.rows for parts in added.values() for file in parts)

    def _check_other_keys(self) -> None:
        """Check that the table has no rows of the topic by another replay, whose keys would be there twice.

        Raises:
            ReplayError: it has some.
        """
        pattern = re.compile(rf"([0-9a-f]{{12}})-{re.escape(self._topic)}-{_WRITTEN}")
        for file in self._log.files():
            match = pattern.fullmatch(file.name)
            if match and match[1] != self._session.id:
                raise ReplayError(
                    f"{self._log}: has rows of {self._topic!r} by another replay, such as one from before functions or "
                    "files were changed: their keys would be there twice; delete these rows, or write to another place"
                )

    def _commit(
        self,
        moves: Mapping[str, LakePosition],
        added: Mapping[str, Sequence[DataFile]],
        removed: Sequence[DataFile] = (),
    ) -> None:
        properties = {
            "streams.application-id": self._session.config.application_id,
            "streams.replay": self._session.id,
            "streams.topic": self._topic,
            "streams.slices": " ".join(added),
        }
        try:
            self._log.commit(Commit(moves, properties, added=added, removed=removed))
        except self._log.errors().all as error:
            raise ReplayError(
                f"{self._log}: cannot be committed: {error}; if another job has changed the table meanwhile, "
                "write again"
            ) from error

    def _batches(self, outputs: Sequence[SliceOutput]) -> Iterator[list[SliceOutput]]:
        batch: list[SliceOutput] = []
        for output in outputs:
            batch.append(output)
            if not self._log.is_atomic and sum(len(it.parts) for it in batch) > _CALLS:
                yield batch
                batch = []
        yield batch

    def _written(self, outputs: Sequence[SliceOutput], run: Run) -> dict[str, list[DataFile]]:
        """Write the files of slices, and return them by slice."""
        works = [self._work(output, part) for output in outputs for part in output.parts]
        reports: Iterator[WriteReport] = iter(run(works) if works else [])
        return {
            output.name: [self._file(*item) for _ in output.parts for item in next(reports).written.items()]
            for output in outputs
        }

    def _work(self, output: SliceOutput, part: OutputPart) -> WriteWork:
        assert self._session.schedule is not None
        return WriteWork(
            self._session.schedule.application,
            self._topic,
            part,
            self._session.segments,
            Place(self._log.folder),
            self._file_prefix(output.name),
            tuple(self._log.columns),
            self._log.has_json,
            is_last=self._mode == "last",
        )

    def _file(self, path: str, rows: int) -> DataFile:
        log = self._log
        size_bytes = Place(log.folder).child(path).size() if log.is_atomic else 0
        return DataFile(path, log.partition_of(path), rows, size_bytes)

    @property
    def _prefix(self) -> str:
        return f"{self._session.id}-{self._topic}-"

    def _slice_of(self, file: DataFile) -> str | None:
        """Return the name of the slice that wrote a file, or None if the file is not one of this replay."""
        match = re.fullmatch(f"{re.escape(self._prefix)}{_WRITTEN}", file.name)
        return match and match[1]

    def _file_prefix(self, name: str) -> str:
        """Return the prefix of the file names of a slice, which contains the digest of its records."""
        return f"{self._prefix}{name}-{self._digests[name]:x}"

    def _is_current(self, file: DataFile) -> bool:
        """Whether a file has records of a slice as they are now."""
        name = self._slice_of(file)
        return name in self._digests and file.name.startswith(f"{self._file_prefix(name)}-")

    def _overwritten(self, files: Sequence[DataFile], added: Mapping[str, Sequence[DataFile]]) -> list[DataFile]:
        """Return the files of others in the partitions that get rows, or have got some of a folder's write before."""
        touched = {file.partition for parts in added.values() for file in parts}
        if not self._log.is_atomic:
            touched |= {file.partition for file in files if self._is_current(file)}
        return [file for file in files if file.partition in touched and self._slice_of(file) is None]

    def _replaced(
        self, names: Collection[str], committed: Mapping[str, LakePosition], files: Sequence[DataFile]
    ) -> list[DataFile]:
        """Return the files of this replay that are replaced, of slices with these names or of killed writes.

        Raises:
            ReplayError: the rows to replace are now in files with other rows, for example after a compaction.
        """
        stale = [file for file in files if self._slice_of(file) and not self._is_current(file)]
        for name in names if self._log.is_atomic else ():
            rows = (committed[name].rows or 0) if name in committed else 0
            there = sum(file.rows for file in stale if self._slice_of(file) == name)
            if rows != there:
                raise ReplayError(
                    f"{self._log}: has {rows:,} rows of {self._topic!r} from the end of a shorter history, from "
                    "before a repair, or from another run of the same replay, which have to be replaced, but "
                    f"{rows - there:,} of them were moved to other files (compacted) or deleted; write to another "
                    "table, or delete them there and give another directory"
                )
        return stale
