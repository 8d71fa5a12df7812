"""Writes output topics to Delta Lake and Iceberg tables, in the calls of an executor.

The calls write Parquet files into the folder of the table; file names are derived from the replay, the slice and its
records.  Then one atomic commit adds the files of all new slices, and lists the slices.  A slice that is listed in a
commit is not written again.  Until the commit, the files belong to no version of the table.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from attrs import define, field

from streams.core.errors import InputError
from streams.files import NULL_FOLDER, PartitionColumn
from streams.lakes import (
    Commit,
    DataFile,
    DeltaLog,
    IcebergLog,
    LakeName,
    LakePosition,
    LakeWriter,
    TableLog,
    partition_of,
)
from streams.replay.calls.columns import output_schema
from streams.replay.errors import ReplayError
from streams.replay.run.commits import Mode, Run, SliceOutput, slice_outputs
from streams.replay.run.session import ReplaySession
from streams.replay.run.writing import WriteReport, WriteWork
from streams.replay.storage.places import Place


def lake_log(target: str, session: ReplaySession, topic: str, columns: Sequence[PartitionColumn]) -> TableLog:
    """Open the table ``delta:FOLDER`` or ``iceberg:NAME`` for an output, and create it if it does not exist.

    Raises:
        InputError: the table has other columns or partitions, or the folder has files but no table.
        ConfigError: the library of the format is not installed.
    """
    name = LakeName.of(target)
    if name.version is not None or name.time is not None:
        raise InputError(f"{target}: a version is for inputs; an output is written to the newest one")
    writer = LakeWriter(session.id, topic, is_connector=False)
    schema = output_schema(session.topology, topic)
    if name.format == "iceberg":
        return IcebergLog.opened(name, writer, schema, columns)
    place = Place(name.table).absolute()
    if not place.child("_delta_log").exists() and place.files():
        raise InputError(f"delta:{place}: has files, but is no Delta table; give another folder")
    return DeltaLog.opened(name, writer, schema, columns)


@define(eq=False)
class LakeTarget:
    """A lake table to which the output of a replay is written."""

    _session: ReplaySession
    _topic: str
    _log: TableLog
    _columns: tuple[PartitionColumn, ...] = ()
    _mode: Mode = "append"
    _slices: list[SliceOutput] = field(factory=list, init=False)

    def write(self, run: Run) -> int:
        """Write the slices that the table does not have, in one commit, and return the number of records written.

        Raises:
            ReplayError: rows that have to be replaced are in files that were rewritten, or another job has changed the
                table meanwhile.
            StreamsError: a record cannot be read, or a file cannot be written.
        """
        self._slices = list(slice_outputs(self._session, self._topic))
        current = {output.name for output in self._slices}
        # A repair may have made slices void that the table has.
        names = current.union(f"{number:05d}" for number in self._session.all_numbers())
        positions = self._log.positions(sorted(names))
        committed = {name: position for name, position in positions.items() if position.number >= 0}
        new = [
            output
            for output in self._slices
            if output.name not in committed or committed[output.name].number != _digest(output)
        ]
        if not new:
            return 0
        files = self._log.files()
        void = [name for name in names - current if name in committed]
        removed = self._replaced([*void, *(output.name for output in new)], committed, files)
        works = [self._work(output, part) for output in new for part in output.parts]
        reports: Iterator[WriteReport] = iter(run(works) if works else [])
        added: list[DataFile] = []
        slices = {name: LakePosition(-1, 0) for name in void}
        for output in new:
            own = [self._file(*item) for _ in output.parts for item in next(reports).written.items()]
            slices[output.name] = LakePosition(_digest(output), sum(file.rows for file in own))
            added += own
        if self._mode == "overwrite":
            touched = {file.partition for file in added}
            gone = [file for file in files if file.partition in touched and self._slice_of(file) is None]
            removed += gone
        try:
            self._log.commit(Commit(slices, self._properties(new), added=added, removed=removed))
        except self._log.errors() as error:
            raise ReplayError(
                f"{self._log}: cannot be committed: {error}; if another job has changed the table meanwhile, "
                "write again"
            ) from error
        return sum(file.rows for file in added)

    @property
    def _prefix(self) -> str:
        return f"{self._session.id}-{self._topic}-"

    def _slice_of(self, file: DataFile) -> str | None:
        """Return the name of the slice that wrote a file, or None if the file is not one of this replay."""
        match = re.fullmatch(rf"{re.escape(self._prefix)}([0-9]{{5}}|end)-[0-9a-f]+-p[0-9-]+\.parquet", file.name)
        return match and match[1]

    def _file_prefix(self, output: SliceOutput) -> str:
        """Return the prefix of the file names of a slice, which contains the digest of its records."""
        return f"{self._prefix}{output.name}-{_digest(output):x}"

    def _replaced(
        self, replaced: Iterable[str], committed: Mapping[str, LakePosition], files: Sequence[DataFile]
    ) -> list[DataFile]:
        """Return the files of this replay that the commit replaces, of a shorter history or another run.

        ``replaced`` has the names of their slices.

        Raises:
            ReplayError: the rows to replace are now in files with other rows, for example after a compaction.
        """
        current = tuple(f"{self._file_prefix(output)}-" for output in self._slices)
        stale = [file for file in files if self._slice_of(file) and not file.name.startswith(current)]
        for name in replaced:
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

    def _work(self, output: SliceOutput, part: Any) -> WriteWork:
        assert self._session.plan is not None
        return WriteWork(
            self._session.plan.application,
            self._topic,
            part,
            self._session.root,
            Place(self._log.folder),
            self._file_prefix(output),
            self._columns,
            keeps_columns=self._log.has_partition_columns,
        )

    def _file(self, path: str, rows: int) -> DataFile:
        partition = partition_of(path, [column.name for column in self._columns], NULL_FOLDER)
        return DataFile(path, partition, rows, Place(self._log.folder).child(path).size())

    def _properties(self, new: Sequence[SliceOutput]) -> dict[str, str]:
        return {
            "streams.application-id": self._session.config.application_id,
            "streams.replay": self._session.id,
            "streams.topic": self._topic,
            "streams.slices": " ".join(output.name for output in new),
        }


def _digest(output: SliceOutput) -> int:
    """Return a number that identifies the records of a slice, from 0 to 2**63."""
    return int.from_bytes(blake2b(repr((output.run, output.extent)).encode(), digest_size=8).digest()) >> 1
