"""One replay from its inputs to its last slice: yields calls for an executor and writes the manifests.

``steps`` is a generator of calls, so the driver decides how to run them, and several replays can
share one job.  Finished work is not repeated: inputs are read once, and a slice with a manifest
is skipped.  Only the final pass, which processes the records that the slices deferred, is repeated when
history has grown, so that several runs have the same results as a single run over all history.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from attrs import define, evolve, field, frozen

from streams.core.clock import VirtualClock
from streams.core.config import StreamsConfig
from streams.core.metrics import Tally
from streams.core.records import NO_TIMESTAMP, TopicPartition
from streams.dsl import TopologySource, build_topology
from streams.replay.calls.application import Application, fingerprint, source_digest
from streams.replay.calls.plan import Pass, ReplayPlan, explained
from streams.replay.calls.state import (
    MANIFEST,
    Outputs,
    ReplayState,
    outputs_from_json,
    outputs_to_json,
    read_manifest,
    write_manifest,
)
from streams.replay.calls.work import Options, StageReport
from streams.replay.errors import ReplayError
from streams.replay.handover.cutover import check_history
from streams.replay.handover.snapshot import Snapshot
from streams.replay.history.archive import read_archive
from streams.replay.history.growth import ArchiveMark, History, archive_mark, check_archive
from streams.replay.history.ingest import IngestWork
from streams.replay.history.inputs import Archive, FileMark, Files, Input, KafkaTopic, declared_topic, input_of
from streams.replay.history.intake import TopicFiles, read_files
from streams.replay.history.slicing import Cut, cut_at, cuts
from streams.replay.run.through_spark import find_files, read_found, read_topic
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent
from streams.replay.times import time_ms
from streams.runtime import log_unmatched_patterns
from streams.topology import Topology, sub_topologies

#: A generator that yields calls and is sent the reports.
Steps: TypeAlias = Generator[list[Any], list[StageReport], None]


@frozen
class Request:
    """The arguments of a replay."""

    topology: TopologySource = field(repr=False)
    inputs: Mapping[str, Any]
    partitions: int | None = None
    settings: Mapping[str, Any] = field(factory=dict)
    slices: str | int | timedelta | None = None
    until: Any = None
    resume: bool = False
    state_from: Place | None = None
    options: Options = field(factory=Options)


@define(eq=False)
class ReplaySession:
    """The state of one replay, kept in the folder ``root``."""

    request: Request
    root: Place
    config: StreamsConfig = field(init=False)
    topology: Topology = field(init=False)
    state: ReplayState = field(factory=ReplayState)
    outputs: Outputs = field(factory=dict)
    #: Number of slices that have a manifest, and how many of these are from earlier runs.
    slices_done: int = 0
    slices_skipped: int = 0
    is_flushed: bool = False
    #: Counters of the global stores, which are filled again in each run.
    global_counters: dict[Tally, int] = field(factory=dict)
    plan: ReplayPlan | None = None
    passes: list[Pass] = field(factory=list)
    reports: list[tuple[Pass, int, StageReport]] = field(factory=list)
    _history: dict[str, History] = field(factory=dict)
    _archives: dict[str, ArchiveMark] = field(factory=dict)
    _inputs: dict[str, Input] = field(init=False)
    _parent: Snapshot | None = None

    def __attrs_post_init__(self) -> None:
        request = self.request
        settings = {"cache_max_bytes": 0, **request.settings}
        self.config = StreamsConfig.of(**settings)
        self.topology = build_topology(request.topology, self.config)
        self._inputs = {name: input_of(given) for name, given in request.inputs.items()}
        for name in self._inputs:
            declared_topic(self.topology, name)
        if request.state_from is not None:
            self._parent = Snapshot.open(request.state_from)
            self._parent.check_files()
            self._parent.check_topology(self.topology, self.config)
        self.request = evolve(request, settings=settings)

    # --- the steps ------------------------------------------------------------------------

    def steps(self) -> Steps:
        """Yield lists of calls; the caller sends their reports, in order.

        Raises:
            StreamsError: the replay cannot continue; finished slices are not changed.
        """
        yield from self.prepare()
        assert self.plan is not None
        if self.plan.plan.topology.global_stores:
            folder = f"globals-{self.slices_done:05d}"
            self.root.child(folder).delete()
            self.global_counters = {}
            for report in (yield self.plan.global_works(folder)):
                self.state.global_stores |= report.tasks[0].stores
                self.global_counters |= report.tasks[0].counters
                self.state.examples = {**report.tasks[0].examples, **self.state.examples}
        for step in self.passes:
            yield from self._run_pass(step)

    def prepare(self) -> Steps:
        """Read the inputs and make the plan, which is the part of ``steps`` that ``--explain`` needs."""
        self._begin()
        yield from self._read_topics()
        application = self._application()
        yield from self._read_inputs(application)
        plan = application.plan(VirtualClock(NO_TIMESTAMP))
        log_unmatched_patterns(plan, application.partitions)
        sources = {
            plan.feed(TopicPartition(topic, number)): extents
            for topic, history in self._history.items()
            for number, extents in history.extents.items()
        }
        self.plan = ReplayPlan(application, plan, sources, self.request.options, self.root)
        self._check_positions(sources)
        self.passes = self._passes(sources)

    def explain(self) -> list[str]:
        """Return the plan as lines of text."""
        assert self.plan is not None
        return list(explained(self.plan, self.passes))

    def _run_pass(self, step: Pass) -> Steps:
        assert self.plan is not None
        is_end = step.is_last and step.name != "all"
        folder = f"end/{step.number:05d}" if is_end else f"slices/{step.number:05d}"
        if is_end and self._take_end(step, folder):
            return
        self.root.child(folder).delete()
        state, outputs = self.state.copy(), Outputs()
        for wave in self.plan.waves:
            works = [work for number in wave for work in self.plan.works(number, step, state, folder)]
            if not works:
                continue
            for work, report in zip(works, (yield works), strict=True):
                self.reports.append((step, work.stage, report))
                state.take(report, outputs, self.plan.plan)
        state.forget_read(self.plan.readers)
        self._commit(step, folder, state, outputs)
        if is_end:
            for file in self.root.child("end").files():
                if not f"end/{file}".startswith(f"{folder}/"):
                    self.root.child("end", file).delete()  # Final passes of shorter history.
        else:
            self._prune()

    def _take_end(self, step: Pass, folder: str) -> bool:
        """Load the final pass of an earlier run; return False if there is none, or history has grown since then."""
        found = read_manifest(self.root.child(folder))
        if found is None or found["is_flushed"] != self.request.options.final_flush or found["cut"] != _cut_json(step):
            return False
        self._take(found)
        return True

    def _take(self, manifest: Mapping[str, Any]) -> None:
        """Load the state and outputs from a manifest."""
        self.state = ReplayState.from_json(manifest["state"])
        for lane, extents in outputs_from_json(manifest["outputs"]).items():
            self.outputs.setdefault(lane, []).extend(extents)
        self.is_flushed = manifest["is_flushed"]

    def _prune(self) -> None:
        """Delete files that only earlier slices needed: the contents of stores, and lanes that were read."""
        named = self.state.files() | {extent.file for extents in self.outputs.values() for extent in extents}
        folder = self.root.child("slices")
        for file in folder.files():
            if not file.endswith(f"/{MANIFEST}") and f"slices/{file}" not in named:
                folder.child(file).delete()

    def _commit(self, step: Pass, folder: str, state: ReplayState, outputs: Outputs) -> None:
        """Write the manifest of a pass and continue from its state."""
        place = self.root.child(folder)
        named = state.files() | {extent.file for extents in outputs.values() for extent in extents}
        for file in place.files():
            if f"{folder}/{file}" not in named:
                place.child(file).delete()  # The file is from a failed attempt, or all its readers have read it.
        write_manifest(
            place,
            {
                "kind": "end" if folder.startswith("end") else "slice",
                "name": step.name,
                "cut": _cut_json(step),
                "state": state.to_json(),
                "outputs": outputs_to_json(outputs),
                "is_flushed": step.is_last and self.request.options.final_flush,
            },
        )
        self.state = state
        for lane, extents in outputs.items():
            self.outputs.setdefault(lane, []).extend(extents)
        self.is_flushed = step.is_last and self.request.options.final_flush
        if not folder.startswith("end"):
            self.slices_done = step.number + 1

    # --- beginning ------------------------------------------------------------------------

    def _begin(self) -> None:
        """Load the replay in the folder, or start a new replay.

        Raises:
            ReplayError: the folder has another replay, or a replay of another topology.
        """
        known = read_manifest(self.root)
        if known is not None and not self.request.resume:
            raise ReplayError(
                f"{self.root}: has a replay of {known['application_id']!r} already; resume it, or choose another folder"
            )
        own: dict[str, Any] = {
            "kind": "replay",
            "application_id": self.config.application_id,
            "topology": fingerprint(self.topology),
            "code": source_digest(self.request.topology),
            "partitions": self.request.partitions,
            "settings": self._settings(),
            "parent": None if self._parent is None else self._parent.id,
            "of_files": {topic: isinstance(given, Files) for topic, given in self._inputs.items()},
        }
        if known is None:
            self._start_new(own)
            return
        for name, what in (
            ("application_id", "another application"),
            ("topology", "a topology that has changed since"),
            ("code", "a script that has changed since"),
            ("partitions", "another number of partitions"),
            ("settings", "other settings"),
            ("parent", "another snapshot"),
        ):
            if known[name] != own[name]:
                raise ReplayError(
                    f"{self.root}: has a replay of {what} ({known[name]!r}, now {own[name]!r}); "
                    "its state does not fit; start in another folder"
                )
        for topic, is_of_files in own["of_files"].items():
            if known["of_files"].get(topic, is_of_files) != is_of_files:
                raise ReplayError(
                    f"{self.root}: has read topic {topic!r} {'from offsets' if is_of_files else 'from files'} before: "
                    "row numbers are not offsets; start in another folder"
                )
        self._load()

    def _settings(self) -> dict[str, str]:
        """Return the settings that affect results as text; functions are represented by name."""
        given = {name: getattr(value, "__qualname__", str(value)) for name, value in self.request.settings.items()}
        return {**dict(sorted(given.items())), "wall_clock": self.request.options.wall_clock}

    def _start_new(self, own: dict[str, Any]) -> None:
        if self._parent is not None:
            self.state = self._parent.state_for_replay()
        write_manifest(self.root, own)

    def _load(self) -> None:
        inputs = read_manifest(self.root.child("inputs"))
        if inputs is not None:
            self._history = {topic: History.from_json(data) for topic, data in inputs["topics"].items()}
            self._archives = dict(inputs["archives"])
        if self._parent is not None:
            self.state = self._parent.state_for_replay()
        while (found := read_manifest(self.root.child(f"slices/{self.slices_done:05d}"))) is not None:
            self._take(found)
            self.slices_done += 1
        self.slices_skipped = self.slices_done
        if self.is_flushed:
            raise ReplayError(
                f"{self.root}: its open windows were flushed at the end, so it cannot continue; replay in slices, "
                "which keeps the flush separate, or start in another folder"
            )

    def _application(self) -> Application:
        """Determine the partition counts of all topics.

        Raises:
            ReplayError: the declared partition count of a topic differs from its history.
        """
        counts: dict[str, int] = {}
        for name in self._external_topics():
            declared = self.topology.topics.get(name)
            fixed = declared.partitions if declared is not None and declared.partitions else None
            given = self._inputs.get(name)
            own = None
            if isinstance(given, Archive):
                own = read_archive(Place(given.path), given.topic or name).partitions
            elif isinstance(given, KafkaTopic):
                own = self._history[name].partitions
            if fixed is not None and own is not None and fixed != own:
                raise ReplayError(f"topic {name!r} has {own} partitions in its history, but is declared with {fixed}")
            counts[name] = own or fixed or self.request.partitions or 1
        if self._parent is not None:
            self._parent.check_partitions(counts)
        return Application.of(self.request.topology, self.request.settings, counts, self.request.partitions or 1)

    def _external_topics(self) -> list[str]:
        names: dict[str, None] = {}
        for sub in sub_topologies(self.topology, list(self._inputs)):
            names |= dict.fromkeys((*sub.source_topics, *sub.sink_topics))
        return [name for name in names if name not in self.topology.internal_topics]

    # --- inputs ---------------------------------------------------------------------------

    def _read_topics(self) -> Steps:
        """Read new records of Kafka topics, which also gives their partition counts.

        Raises:
            ReplayError: a topic cannot be read, or the next records were deleted.
        """
        for topic, given in self._inputs.items():
            if not isinstance(given, KafkaTopic):
                continue
            declared = self.topology.topics.get(topic)
            history = self._history.setdefault(
                topic, History(given.partitions or (declared and declared.partitions) or 0)
            )
            ends = dict.fromkeys(range(history.partitions), 0) | self._next_offsets(topic)
            found = yield from read_topic(given, self.root, "inputs", ends, history.extents)
            history.partitions = found
            self._keep_history()

    def _read_inputs(self, application: Application) -> Steps:
        """Read the new records of all inputs.

        Raises:
            InputError: a file or row cannot be read.
            ReplayError: a part of a file that was read before has changed.
        """
        unread = []
        on_bad_row = "continue" if self.config.deserialization_handler != "fail" else "fail"
        for topic, given in self._inputs.items():
            partitions = application.partitions[topic]
            if isinstance(given, Archive):
                archive = read_archive(Place(given.path), given.topic or topic)
                check_archive(topic, self._archives.get(topic, {}), archive.extents)
                self._archives[topic] = archive_mark(archive.extents)
                self._history[topic] = History(partitions, extents=dict(archive.extents))
            elif isinstance(given, Files) and given.through_spark:
                history = self._history.setdefault(topic, self._first_history(topic, given, partitions))
                found = yield from find_files(given.paths, history.marks, topic)
                if found:
                    files = TopicFiles(topic, (), (), partitions, history.rows, 0, self._next_offsets(topic))
                    work = IngestWork(
                        application, topic, (), partitions, self.root, "inputs", 0, history.rows, 0, on_bad_row
                    )
                    yield from read_found(work, found, files)
                    self._take_files(files, [file.mark for file in found])
                    self._keep_history()
            elif isinstance(given, Files):
                files, marks = self._new_files(topic, given, partitions)
                unread += [(files, marks)] if marks else []
        if not unread:
            if self._archives:
                self._keep_history()
            return
        yield from read_files(application, [files for files, _ in unread], self.root, "inputs", on_bad_row=on_bad_row)
        for files, marks in unread:
            self._take_files(files, marks)
        self._keep_history()

    def _take_files(self, files: TopicFiles, marks: Sequence[FileMark]) -> None:
        """Add the marks and extents of ingested files to the history of their topic."""
        history = self._history[files.topic]
        if files.skip_rows:
            history.marks.pop()
        history.marks += [evolve(mark, rows=rows) for mark, rows in zip(marks, files.rows, strict=True)]
        for number, extents in files.extents.items():
            history.extents.setdefault(number, []).extend(extents)

    def _keep_history(self) -> None:
        """Write the manifest of the inputs."""
        kept = {name: found for name, found in self._history.items() if not isinstance(self._inputs.get(name), Archive)}
        place = self.root.child("inputs")
        topics = {topic: history.to_json() for topic, history in kept.items()}
        write_manifest(place, {"kind": "inputs", "topics": topics, "archives": self._archives})
        named = {extent.file for history in kept.values() for found in history.extents.values() for extent in found}
        for file in place.files():
            if f"inputs/{file}" not in named and file != MANIFEST:
                place.child(file).delete()  # The file is from a failed attempt.

    def _next_offsets(self, topic: str) -> dict[int, int]:
        """Return the next offset of each partition of a topic."""
        extents = self._history[topic].extents
        return self._starts(topic) | {number: found[-1].last + 1 for number, found in extents.items() if found}

    def _new_files(self, topic: str, given: Files, partitions: int) -> tuple[TopicFiles, list[FileMark]]:
        """Return the files of a topic that are new or have grown, with their current marks.

        Raises:
            ReplayError: a file that was read before is missing, has changed, or has grown although files follow it.
        """
        history = self._history.get(topic)
        if history is None:
            history = self._history[topic] = self._first_history(topic, given, partitions)
        paths = list(given.paths)
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
                mark.check_growth(paths[0])
                skip = mark.rows
                break
            paths.pop(0)
        # Read up to the current ends; later rows are left to the next run.
        marks = [FileMark.of(path) for path in paths]
        sizes = [mark.size for mark in marks]
        return TopicFiles(topic, paths, sizes, partitions, history.rows - skip, skip, self._next_offsets(topic)), marks

    def _first_history(self, topic: str, given: Files, partitions: int) -> History:
        """Return the initial history of a topic: empty, or the history in the snapshot."""
        history = History(partitions)
        if self._parent is not None:
            marks = self._parent.marks(topic)
            if (
                given.paths
                and marks
                and all(mark.path == path or mark.is_in(path) for mark, path in zip(marks, given.paths, strict=False))
                and len(given.paths) >= len(marks)
            ):
                # The files are the same, but may have grown: rows that the replay of the snapshot has read are skipped.
                history.marks = [evolve(mark, path=path) for mark, path in zip(marks, given.paths, strict=False)]
                history.rows_before = self._parent.rows_before(topic)
            else:
                history.rows_before = self._parent.rows(topic)
        return history

    def _starts(self, topic: str) -> dict[int, int]:
        """Return the first offsets of the topic history after the snapshot."""
        return {} if self._parent is None else self._parent.ends(topic)

    def _check_positions(self, sources: Mapping[TopicPartition, Sequence[Extent]]) -> None:
        """Check that there is no gap between a snapshot and the history.

        Raises:
            ReplayError: the history begins after the position of a task, or is a different history.
        """
        for positions in self.state.positions.values():
            for partition, position in positions.items():
                extents = sources.get(partition, ())
                if isinstance(self._inputs.get(partition.topic), KafkaTopic):
                    continue  # Spark has already checked this, including offsets without records.
                if extents and extents[0].first > position:
                    raise ReplayError(
                        f"{partition}: its history begins at offset {extents[0].first}, but the snapshot continues at "
                        f"{position}: a gap of {extents[0].first - position} records; give the missing history"
                    )
        for topic, given in self._inputs.items() if self._parent is not None else ():
            if not isinstance(given, Files):
                assert self._parent is not None
                extents_of = self._history[topic].extents if isinstance(given, Archive) else None
                check_history(self._parent, topic, extents_of, self.root)

    # --- passes ---------------------------------------------------------------------------

    def _passes(self, sources: Mapping[TopicPartition, Sequence[Extent]]) -> list[Pass]:
        start: dict[TopicPartition, int] = {}
        for positions in self.state.positions.values():
            start |= positions
        request = self.request
        limit: Cut | None = None
        if request.until is not None:
            limit = _until(sources, request.until, self.root)
        if request.slices is None and not self.slices_done:
            return [Pass("all", 0, limit or {}, True)]
        done = self._last_cut()
        rest = {partition: offset for partition, offset in start.items() if partition in sources} | done
        if any(extents and extents[-1].last >= rest.get(partition, 0) for partition, extents in sources.items()):
            found = cuts(sources, rest, 1 if request.slices is None else request.slices, self.root)
        else:
            found = []
        if limit is not None:
            found = _limited(found, limit)
        steps = [
            Pass(f"slice {self.slices_done + index + 1}", self.slices_done + index, cut, False)
            for index, cut in enumerate(found)
        ]
        end = self.slices_done + len(steps)
        return [*steps, Pass("end", end, (steps[-1].cut if steps else limit or done), True)]

    def _last_cut(self) -> Cut:
        if not self.slices_done:
            return {}
        found = read_manifest(self.root.child(f"slices/{self.slices_done - 1:05d}"))
        assert found is not None
        return {TopicPartition(topic, number): offset for topic, number, offset in found["cut"]}

    # --- results ----------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the current state.

        Raises:
            ReplayError: open windows were flushed, so no live application could continue from the snapshot.
        """
        if self.is_flushed:
            raise ReplayError(
                "the open windows were flushed at the end, which a live application would not have done; "
                "replay without final_flush to get a snapshot"
            )
        assert self.plan is not None
        marks = {topic: (history.rows_before, history.marks) for topic, history in self._history.items()}
        return Snapshot.of(self.plan, self.root, self.state, self.outputs, marks, self._parent)

    def origin(self, partition: TopicPartition, offset: int) -> tuple[str, int] | None:
        """Return the file and the row number (from 1) of a source record, None if they are not known."""
        from streams.replay.storage.segments import ExtentReader

        history = self._history.get(partition.topic)
        for extent in () if history is None else history.extents.get(partition.partition, ()):
            if extent.first <= offset <= extent.last:
                row = ExtentReader(self.root).origin(extent, offset)
                return None if row is None or history is None else history.file_of(row)
        return None


def _cut_json(step: Pass) -> list[list[Any]]:
    return [[*partition, offset] for partition, offset in sorted(step.cut.items())]


def _until(sources: Mapping[TopicPartition, Sequence[Extent]], until: Any, root: Place) -> Cut:
    """Return the offsets at which a replay ends.

    Raises:
        InputError: ``until`` is not a valid time.
    """
    if isinstance(until, Mapping):
        return {
            TopicPartition(str(getattr(topic, "name", topic)), number): offset
            for topic, offsets in until.items()
            for number, offset in offsets.items()
        }
    return cut_at(sources, {}, time_ms(until, "until"), root)


def _limited(found: Iterable[Cut], limit: Cut) -> list[Cut]:
    """Reduce the offsets of cuts to at most those of ``limit``, and drop cuts that become equal."""
    result: list[Cut] = []
    for cut in found:
        bounded = {partition: min(offset, limit.get(partition, offset)) for partition, offset in cut.items()}
        if not result or bounded != result[-1]:
            result.append(bounded)
    return result
