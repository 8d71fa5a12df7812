"""Writes output topics to a folder, each slice exactly once, and records the written slices.

A folder has the subfolder ``_streams``, which readers of Parquet skip.  It has one commit per slice: a JSON file
that names the replay, the slice and its files.  A slice with a commit is not written again.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal
from uuid import uuid4

from attrs import define, field, frozen

from streams.core.blocks.records import TopicPartition
from streams.core.errors import InputError
from streams.files import PartitionColumn, file_schema, is_hidden
from streams.lakes import column_problems
from streams.replay.calls.columns import output_schema
from streams.replay.calls.outputs import OutputPart, lanes_of, output_partitions
from streams.replay.calls.state import Outputs, outputs_from_json, read_manifest
from streams.replay.run.session import ReplaySession
from streams.replay.run.writing import WriteReport, WriteWork
from streams.replay.storage.places import Place

#: The folder of commits.
COMMITS = "_streams"
#: The file, in the folder of a replay, with the name of its run.
_RUN = "run"
#: Names of files that replays write: replay, topic, slice, partition and number.
_OWN_NAME = re.compile(r"[0-9a-f]{12}-.+-p\d{5}-\d+\.parquet")
#: Maximum number of calls whose slices are written together.
_CALLS = 2_000
#: Executes calls and returns their reports.
Run = Callable[[list[Any]], list[Any]]
Mode = Literal["append", "overwrite"]


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
            found = producers.setdefault(at, set())
            found |= {producer for place, producer in outputs if place == at}
            part = OutputPart(number, lanes_of(outputs, at), None if len(found) == 1 else rows.get(at, 0))
            extent.append((number, rows.get(at, 0), part.rows))
            rows[at] = rows.get(at, 0) + part.rows
            parts.append(part)
        yield SliceOutput(name, tuple(parts), tuple(extent), run)


def _run_name(root: Place) -> str:
    """Return the name of the run in a folder of a replay, which no other folder has; the first call creates it."""
    place = root.child(_RUN)
    if not place.exists():
        place.write(uuid4().hex.encode())
    return place.read().decode()


def outputs_by_slice(session: ReplaySession) -> Iterator[tuple[str, int, Outputs]]:
    """Yield (name, number of repairs before it, output) for each slice of all runs, oldest first."""
    folders = {f"{number:05d}": f"slices/{number:05d}" for number in session.numbers}
    folders["end"] = f"end/{session.next_number:05d}"
    for name, folder in folders.items():
        found = read_manifest(session.root.child(folder))
        if found is not None:
            yield name, found["repairs"], outputs_from_json(found["outputs"])


@define(eq=False)
class FolderTarget:
    """A folder of Parquet files to which the output of a replay is written."""

    _session: ReplaySession
    _topic: str
    _target: Place
    _partition_by: tuple[PartitionColumn, ...] = ()
    _mode: Mode = "append"
    #: Whether only replays write to the folder; a table of a catalog has other writers.
    _is_own: bool = True
    #: The files of this replay by slice, as its commits list them.
    _committed: dict[str, dict[str, int]] = field(factory=dict, init=False)
    #: The files that this replay has read, as its commits list them.
    _listed: set[str] = field(factory=set, init=False)

    def write(self, run: Run) -> int:
        """Write the slices that have no commit, and return the number of records written.

        Raises:
            InputError: the folder has files of another replay that are partitioned by other columns, or rows of another
                replay of the same history.
            StreamsError: a record cannot be read, or a file cannot be written.
        """
        self._target.check_target()
        self._check_columns()
        if self._mode == "append" and self._is_own:
            self._check_foreign()
        if self._mode == "append":
            self._check_overlap()
        slices = list(slice_outputs(self._session, self._topic))
        known = {found.name: (found.run, found.extent) for found in slices}
        for name in self._commits.files():
            commit = json.loads(self._commits.child(name).read())
            is_same = commit["partition_by"] == self._columns
            extent = tuple(map(tuple, commit["extent"]))
            if is_same and known.get(commit["slice"]) == (commit.get("run"), extent):
                self._committed[commit["slice"]] = commit["files"]
                self._listed.update(commit.get("inputs", ()))
            else:
                # The slice is of another run, has changed, or is the end of a shorter history.
                self._commits.child(name).delete()
        count = 0
        waiting: list[tuple[SliceOutput, list[WriteWork]]] = []
        for found in slices:
            if found.name not in self._committed:
                waiting.append((found, [self._work(found, part) for part in found.parts]))
            if sum(len(works) for _, works in waiting) > _CALLS:
                count += self._written(waiting, run)
                waiting = []
        count += self._written(waiting, run)
        self._clean()
        return count

    def _check_columns(self) -> None:
        """Check that other replays that have written to the folder used the same partition columns."""
        commits = self._target.child(COMMITS)
        others = {file.rpartition("/")[0]: file for file in commits.files()}
        others.pop(self._prefix, None)
        for file in others.values():
            found = json.loads(commits.child(file).read())["partition_by"]
            if found != self._columns:
                there, here = (", ".join(names) or "nothing" for names in (found, self._columns))
                raise InputError(
                    f"{self._target}: has files of another replay that are partitioned by {there}, partition_by is "
                    f"{here}; give the same, or another folder"
                )

    def _check_foreign(self) -> None:
        """Check that all files of the folder were written by replays, and have the columns of this output.

        Raises:
            InputError: the folder has a file that no commit lists, or files of an output with other columns.
        """
        import pyarrow.parquet as pq

        commits = self._target.child(COMMITS)
        found = self._target.files()
        schema = output_schema(self._session.topology, self._topic)
        names: set[str] = set()
        # The files of one replay have the same columns, so one of each is read.
        samples: dict[str, str] = {}
        for commit in commits.files():
            files = json.loads(commits.child(commit).read())["files"]
            names.update(files)
            if files:
                samples[commit.rpartition("/")[0]] = next(iter(files))
        samples.pop(self._prefix, None)
        for sample in samples.values():
            with self._target.child(sample).open_input() as stream:
                problems = list(column_problems(pq.read_schema(stream), file_schema(schema, self._partition_by)))
            if problems:
                raise InputError(
                    f"{self._target}: has files of another output ({sample}): {', '.join(problems)}; choose another "
                    "folder, or replace them with mode='overwrite' (--overwrite TOPIC)"
                )
        # Files of a killed write have no commit yet, but the name of their replay and topic.
        foreign = (
            file
            for file in found
            if file not in names and not is_hidden(file) and not _OWN_NAME.fullmatch(file.rpartition("/")[2])
        )
        file = next(foreign, None)
        if file is not None:
            raise InputError(
                f"{self._target}: has files that no replay has written ({file}), whose columns may be others; choose "
                "another folder, or move them away; mode='overwrite' (--overwrite TOPIC) replaces those in the "
                "partitions that get rows"
            )

    def _check_overlap(self) -> None:
        """Check that no other replay of the application has written results of the same rows, or of their versions.

        A replay that continues from a snapshot writes results of later rows only.

        Raises:
            InputError: another replay has read one of the files, for times that this replay has, too.
        """
        inputs = self._session.inputs
        times = inputs.times
        if inputs.parent is not None or times is None:
            return
        commits = self._target.child(COMMITS)
        own = inputs.paths
        for name in commits.files():
            if name.startswith(f"{self._prefix}/"):
                continue
            commit = json.loads(commits.child(name).read())
            if (commit["application_id"], commit["topic"]) != (self._session.config.application_id, self._topic):
                continue
            same = own.intersection(commit.get("inputs", ()))
            then = commit.get("times")
            if same and then and then[0] <= times[1] and times[0] <= then[1]:
                raise InputError(
                    f"{self._target}: has the rows of another replay of {min(same)}, from before files or functions "
                    "were changed, or with fewer files: both would stand side by side; replace them with "
                    "mode='overwrite' (--overwrite TOPIC), write to another folder, or continue that replay (--resume)"
                )

    @property
    def _prefix(self) -> str:
        return f"{self._session.id}-{self._topic}"

    @property
    def _commits(self) -> Place:
        return self._target.child(COMMITS, self._prefix)

    @property
    def _columns(self) -> list[str]:
        return [".".join(column.path) or column.name for column in self._partition_by]

    def _work(self, found: SliceOutput, part: OutputPart) -> WriteWork:
        assert self._session.plan is not None
        return WriteWork(
            self._session.plan.application,
            self._topic,
            part,
            self._session.root,
            self._target,
            f"{self._prefix}-{found.name}",
            self._partition_by,
        )

    def _written(self, waiting: Sequence[tuple[SliceOutput, list[WriteWork]]], run: Run) -> int:
        """Write slices and their commits; return the number of records."""
        works = [work for _, each in waiting for work in each]
        reports: Iterator[WriteReport] = iter(run(works) if works else [])
        count = 0
        new = sorted(self._session.inputs.paths - self._listed)
        for found, each in waiting:
            files = {file: rows for _ in each for file, rows in next(reports).written.items()}
            content = {
                "application_id": self._session.config.application_id,
                "replay": self._session.id,
                "run": found.run,
                "topic": self._topic,
                "slice": found.name,
                "partition_by": self._columns,
                "extent": found.extent,
                "records": sum(files.values()),
                "files": files,
                # Each input once, since there may be many slices of many files.
                "inputs": new,
                "times": self._session.inputs.times,
            }
            self._listed.update(new)
            new = []
            self._commits.child(f"{found.name}.json").write(json.dumps(content, indent=1).encode())
            self._committed[found.name] = files
            count += sum(files.values())
        return count

    def _clean(self) -> None:
        """Delete files of this replay that no commit lists; in mode "overwrite", also the files that it replaces."""
        own = {file for files in self._committed.values() for file in files}
        touched = {file.rpartition("/")[0] for file in own}
        stale = set()
        for file in self._target.files():
            folder, _, name = file.rpartition("/")
            if file in own or folder.split("/")[0] == COMMITS or not name.endswith(".parquet"):
                continue
            if name.startswith(f"{self._prefix}-") or (self._mode == "overwrite" and folder in touched):
                stale.add(file)
        for file in sorted(stale):
            self._target.child(file).delete()
        if self._mode == "overwrite" and stale:
            self._forget(stale)

    def _forget(self, deleted: set[str]) -> None:
        """Delete the commits of other replays whose files were replaced."""
        commits = self._target.child(COMMITS)
        for file in commits.files():
            if not file.startswith(f"{self._prefix}/"):
                found = json.loads(commits.child(file).read())
                if deleted & found["files"].keys():
                    commits.child(file).delete()
