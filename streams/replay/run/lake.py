"""The tables and folders to which a replay writes its outputs, with the slices that they have."""

import re
from collections.abc import Collection, Sequence

from attrs import define, field

from streams.core.errors import InputError
from streams.files import is_hidden
from streams.lakes import (
    Commit,
    DataFile,
    DeltaLog,
    IcebergLog,
    LakeName,
    LakePosition,
    LakeWriter,
    Manifest,
    ManifestEntry,
    Partition,
    TableLog,
    column_problems,
)
from streams.replay.calls.work import output_schema
from streams.replay.run.commits import Mode
from streams.replay.run.session import ReplaySession
from streams.replay.storage.places import Place
from streams.values import PartitionColumn, file_schema

#: The folder in which earlier versions had their commits, and the names of the files that they wrote.
_FORMER = "_streams"
_FORMER_NAME = re.compile(r"[0-9a-f]{12}-.+-(\d{5}|end)-p\d{5}-\d+\.parquet")
#: Names of files that replays and sinks write.
_OWN_NAME = re.compile(r"([0-9a-f]{12}-.+-(\d{5}|end)-[0-9a-f]+-p\d{5}-\d+|.+-\d{5}-\d{12}-[0-9a-f]{32})\.parquet")


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
class FolderLog(TableLog):
    """A folder of Parquet files, whose manifest has an entry for each slice of a replay."""

    _place: Place
    _session: ReplaySession
    _topic: str
    _manifest: Manifest = field(init=False)
    #: The entries of the replay and topic by slice, and those of all others.
    _own: dict[str, ManifestEntry] = field(factory=dict, init=False)
    _others: list[ManifestEntry] = field(factory=list, init=False)
    is_atomic = False

    def __attrs_post_init__(self) -> None:
        self._manifest = Manifest(self._place)
        self.refresh()

    @classmethod
    def opened(
        cls,
        place: Place,
        session: ReplaySession,
        topic: str,
        columns: Sequence[PartitionColumn],
        mode: Mode,
        *,
        is_own: bool = True,
    ) -> "FolderLog":
        """Open a folder; ``is_own`` says that only writers with entries write to it, unlike a table of a catalog.

        Raises:
            InputError: others have partitioned the folder by other columns; an earlier version has written to it; or to
                append, it has files of others with other columns or without an entry, or rows of another replay of the
                same history.
            ReplayError: the folder is within a table, or cannot be read.
        """
        place.check_target()
        log = cls(place.uri, columns, place, session, topic)
        log._check_others(columns_too=mode != "overwrite" and is_own)
        if mode != "overwrite":
            log._check_foreign(is_own=is_own)
            log._check_overlap()
        return log

    def __str__(self) -> str:
        return str(self._place)

    def refresh(self) -> None:
        """Read the manifest."""
        self._own = {}
        self._others = []
        for entry in self._manifest.entries():
            if entry.writer == (self._session.id, self._topic):
                self._own[entry.path.rpartition("/")[2]] = entry
            else:
                self._others.append(entry)

    def positions(self, keys: Collection[str]) -> dict[str, LakePosition]:
        """Return the digest and number of rows of each slice that has an entry."""
        entries = {key: self._own[key] for key in keys if key in self._own}
        return {key: LakePosition(it.properties["digest"], sum(it.files.values())) for key, it in entries.items()}

    def files(self) -> list[DataFile]:
        """Return all Parquet files of the folder."""
        paths = [path for path in self._place.files() if path.endswith(".parquet")]
        return [DataFile(path, self.partition_of(path), 0) for path in paths]

    def partition_of(self, path: str) -> Partition:
        """Return the folder of a file, which may be one of others."""
        return (path.rpartition("/")[0],)

    def _write(self, commit: Commit) -> None:
        """Write the entries of slices, then take removed files out of all entries, and then delete them."""
        for name in commit.positions:
            self._own.pop(name, None)
        # Each input once, since there may be many slices of many files.
        listed = {path for entry in self._own.values() for path in entry.properties["inputs"]}
        inputs = sorted(self._session.inputs.paths - listed)
        for name, position in commit.positions.items():
            path = f"{self._session.id}/{self._topic}/{name}"
            if position.number < 0:
                self._manifest.delete(path)
                continue
            properties = {
                "application_id": self._session.config.application_id,
                "digest": position.number,
                "inputs": inputs,
                "times": self._session.inputs.times,
            }
            files = {file.path: file.rows for file in commit.added[name]}
            self._own[name] = ManifestEntry(path, files, properties)
            self._manifest.write(self._own[name])
            inputs = []
        if commit.removed:
            removed = {file.path for file in commit.removed}
            self._unlist(removed)
            for path in sorted(removed):
                self._place.child(path).delete()

    def _unlist(self, removed: Collection[str]) -> None:
        """Take files out of the entries, of which those of connectors keep their positions.

        A slice that has lost rows is written again by its replay, and the rows that are left are still those of it.
        """
        entries = [*self._own.values(), *self._others]
        # A sink may have written further ones meanwhile.
        entries += map(self._manifest.read, set(self._manifest.paths()) - {entry.path for entry in entries})
        for entry in entries:
            files = {path: rows for path, rows in entry.files.items() if path not in removed}
            if len(files) < len(entry.files):
                lost = {"digest": -1} if "digest" in entry.properties else {}
                self._manifest.write(ManifestEntry(entry.path, files, {**entry.properties, **lost}))

    def _check_others(self, *, columns_too: bool) -> None:
        """Check that others have partitioned the folder by the same columns, and of a folder all columns."""
        import pyarrow.parquet as pq

        here = [column.name for column in self.columns]
        schema = file_schema(output_schema(self._session.topology, self._topic), self.columns)
        # The files of one writer have the same columns, so one of each is read.
        samples = {entry.writer: next(iter(entry.files)) for entry in self._others if entry.files}
        for file in samples.values():
            there = [folder.partition("=")[0] for folder in file.split("/")[:-1]]
            if there != here:
                raise InputError(
                    f"{self}: has files of another replay that are partitioned by {', '.join(there) or 'nothing'}, "
                    f"partition_by is {', '.join(here) or 'nothing'}; give the same, or another folder"
                )
            if not columns_too:
                continue
            with self._place.child(file).open_input() as stream:
                problems = list(column_problems(pq.read_schema(stream), schema))
            if problems:
                raise InputError(
                    f"{self}: has files of another output ({file}): {', '.join(problems)}; choose another "
                    "folder, or replace them with mode='overwrite' (--overwrite TOPIC)"
                )

    def _check_foreign(self, *, is_own: bool) -> None:
        """Check that no file is one of an earlier version, and of a folder that all files have an entry."""
        listed = {file for entry in (*self._own.values(), *self._others) for file in entry.files}
        paths = self._place.files()
        has_former = any(path.startswith(f"{_FORMER}/") for path in paths)
        for file in paths:
            name = file.rpartition("/")[2]
            # Files of a killed write have no entry yet, but the name of their writer.
            if file in listed or is_hidden(file) or _OWN_NAME.fullmatch(name):
                continue
            if has_former and _FORMER_NAME.fullmatch(name):
                raise InputError(
                    f"{self}: an earlier version has written it ({file}), with commits in {_FORMER} that are read no "
                    "longer, so that rows would be there twice; write all results again to another folder or table"
                )
            if is_own:
                raise InputError(
                    f"{self}: has files that no replay has written ({file}), whose columns may be others; choose "
                    "another folder, or move them away; mode='overwrite' (--overwrite TOPIC) replaces those in the "
                    "partitions that get rows"
                )

    def _check_overlap(self) -> None:
        """Check that no other replay of the application has written results of the same rows, or of their versions.

        A replay that continues from a snapshot writes results of later rows only.
        """
        inputs = self._session.inputs
        times = inputs.times
        if inputs.parent is not None or times is None:
            return
        # Of a replay all of whose rows were overwritten, nothing is there.
        writers = {entry.writer for entry in self._others if entry.files}
        for entry in self._others:
            about = entry.properties
            ids = (about.get("application_id"), entry.writer[1])
            if entry.writer not in writers or ids != (self._session.config.application_id, self._topic):
                continue
            same = inputs.paths.intersection(about["inputs"])
            then = about["times"]
            if same and then and then[0] <= times[1] and times[0] <= then[1]:
                raise InputError(
                    f"{self}: has the rows of another replay of {min(same)}, from before files or functions "
                    "were changed, or with fewer files: both would stand side by side; replace them with "
                    "mode='overwrite' (--overwrite TOPIC), write to another folder, or continue that replay (--resume)"
                )
