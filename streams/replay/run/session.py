"""One replay from its inputs to its last slice: it yields calls for an executor and writes the manifests.

``steps`` is a generator of calls, so the caller decides how to execute them, and several replays can
share one job.  Finished work is not repeated: inputs are read once, and a slice with a manifest
is skipped.  Only the final pass, which processes the records that the slices deferred, is repeated when
history has grown, so that several runs have the same results as a single run over all history.

Of finished slices, the files of outputs are kept, and of the last states.  After a slice only the files of the state
that is no longer kept are looked at, so its cost does not depend on the number of slices before it.  The first slice of
a run looks at all files: an earlier run may have been killed before it deleted what it no longer needed.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from attrs import define, evolve, field

from streams.core.blocks.records import NO_TIMESTAMP, TaskId, TopicPartition
from streams.core.event_time.time_texts import time_ms, time_text
from streams.core.metrics import Tally
from streams.core.settings.config import StreamsConfig
from streams.dsl import build_topology
from streams.replay.calls.outputs import check_kept
from streams.replay.calls.schedule import BegunPass, CallSchedule, Pass
from streams.replay.calls.state import (
    MANIFEST,
    Outputs,
    ReplayState,
    identify,
    outputs_from_json,
    outputs_to_json,
    read_manifest,
    write_manifest,
)
from streams.replay.calls.work import (
    Application,
    ChainReport,
    StageReport,
    Steps,
    declared_topic,
    fingerprint,
    source_digest,
)
from streams.replay.errors import ReplayError
from streams.replay.handover.snapshot import Snapshot
from streams.replay.history.archive import read_archive
from streams.replay.history.inputs import Archive, Files, KafkaTopic, Table, input_of
from streams.replay.history.row_times import needs_time
from streams.replay.history.since import check_span
from streams.replay.history.slicing import Cut, Slicing, cut_until, cuts
from streams.replay.history.tables import since_given
from streams.replay.run.reading import Histories
from streams.replay.run.repair import Repair, cut_of, is_valid, touched_tasks, untouched
from streams.replay.run.request import Request
from streams.replay.storage.extents import SourceHistory
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments
from streams.runtime import ApplicationPlan, log_unmatched_patterns
from streams.topology import Topology, sub_topologies

#: The folder of the slices within that of a replay.
SLICES = "slices"
#: Folders of which at least one is in the folder of a replay that has begun.
WORK_FOLDERS = ("inputs", "tables", SLICES)


@define(eq=False)
class Pruning:
    """The files that finished slices need, and the deletion of all others."""

    root: Place
    #: Number of slices whose states are kept.
    keep_states: int
    #: The files of the states that are kept, the newest last.
    _kept: deque[Set[str]] = field(factory=deque)
    #: The files with outputs.
    _outputs: set[str] = field(factory=set)
    #: Whether all files have been looked at since the start of this run.
    _has_begun: bool = False

    def clear(self) -> None:
        """Forget all slices."""
        self._kept.clear()
        self._outputs.clear()

    def add_outputs(self, outputs: Outputs) -> None:
        """Note the files of outputs, which are never deleted."""
        self._outputs |= files_of(outputs)

    def add_state(self, state: ReplayState) -> Set[str]:
        """Note the state after a slice; return the files of older states of which none is kept any more."""
        self._kept.append(state.files())
        dropped: set[str] = set()
        while len(self._kept) > self.keep_states:
            dropped |= self._kept.popleft()
        return dropped.difference(self._outputs, *self._kept) if dropped else dropped

    def prune(self, dropped: Set[str], next_number: int) -> None:
        """Delete the files ``dropped`` of slices; the first time also all others that no finished slice needs.

        The files of slices from ``next_number`` on, which have begun, are kept.

        Raises:
            ReplayError: the folder cannot be accessed.
        """
        folder = self.root.child(SLICES)
        if self._has_begun:
            for file in sorted(dropped):
                if file.startswith(f"{SLICES}/"):
                    self.root.child(file).delete()
            return
        self._has_begun = True
        needed = self._needed()
        for file in folder.files():
            is_done = int(file.partition("/")[0]) < next_number
            if is_done and not file.endswith(f"/{MANIFEST}") and f"{SLICES}/{file}" not in needed:
                folder.child(file).delete()

    def _needed(self) -> set[str]:
        return self._outputs.union(*self._kept)


def files_of(outputs: Outputs) -> set[str]:
    """Return the names of the files of outputs."""
    return {extent.file for extents in outputs.values() for extent in extents}


@define(eq=False)
class _Group:
    """Neighbouring passes that have begun and share their calls, and the number of completed groups of stages."""

    passes: list[BegunPass]
    waves_done: int = 0


@define(eq=False, repr=False)
class ReplaySession:
    """The state of one replay, kept in the folder ``root``."""

    request: Request
    root: Place
    #: Identifies the replay by its arguments and its first history: the same replay in another folder has the same ID.
    id: str = field(init=False, default="")
    config: StreamsConfig = field(init=False)
    topology: Topology = field(init=False)
    state: ReplayState = field(factory=ReplayState)
    outputs: Outputs = field(factory=dict)
    #: The numbers of the slices that have a valid manifest, and how many of these are from earlier runs.
    numbers: list[int] = field(factory=list)
    slices_skipped: int = 0
    is_flushed: bool = False
    #: Counters of the global stores, which are filled again in each run.
    global_counters: dict[Tally, int] = field(factory=dict)
    schedule: CallSchedule | None = None
    passes: list[Pass] = field(factory=list)
    reports: list[tuple[Pass, int, StageReport]] = field(factory=list)
    inputs: Histories = field(init=False)
    #: The repair of this run, None if there were no late rows, or ``repair`` was not set.
    repaired: Repair | None = None
    _pruning: Pruning = field(init=False)
    _parent: Snapshot | None = None

    def __attrs_post_init__(self) -> None:
        request = self.request
        plan = request.plan
        self.config = StreamsConfig.of(**request.settings)
        self.topology = build_topology(request.topology, self.config)
        inputs = {name: input_of(value) for name, value in request.inputs.items()}
        if plan.since is not None:
            since_ms = time_ms(plan.since, "since")
            check_span(since_ms, plan.until)
            inputs = {
                name: since_given(value, declared_topic(self.topology, name), since_ms)
                for name, value in inputs.items()
            }
        needed = needs_time(self.topology, self.config, inputs, plan.until, plan.slices)
        self.inputs = Histories(self.root, self.topology, self.config, inputs, plan.order, needed, plan.repair)
        if plan.state_from is not None:
            self._parent = Snapshot.open(Place(os.fspath(plan.state_from)).absolute())
            self._parent.check_files()
            self._parent.check_topology(self.topology, self.config)
            self.inputs.parent = self._parent
        # A replay that is not resumed daily keeps its last state only.
        self._pruning = Pruning(self.root, plan.keep_states if plan.resume else 1)

    @property
    def segments(self) -> Segments:
        """The files with the records of the replay."""
        return Segments(self.root)

    @property
    def slices_done(self) -> int:
        """The number of slices that have a valid manifest."""
        return len(self.numbers)

    @property
    def next_number(self) -> int:
        """The number of the next slice."""
        return self.numbers[-1] + 1 if self.numbers else 0

    # --- the steps ------------------------------------------------------------------------

    def steps(self) -> Steps:
        """Yield lists of calls for the executor; the caller sends back their reports, in order.

        Raises:
            StreamsError: the replay cannot continue; finished slices are not changed.
        """
        yield from self._prepare()
        assert self.schedule is not None
        if self.schedule.plan.topology.global_stores:
            folder = f"globals-{self.next_number:05d}"
            self.root.child(folder).delete()
            self.global_counters = {}
            for report in (yield self.schedule.global_works(folder)):
                self.state.global_stores |= report.tasks[0].stores
                self.global_counters |= report.tasks[0].counters
                self.state.examples = {**report.tasks[0].examples, **self.state.examples}
        ends = [step for step in self.passes if step.is_end]
        yield from self._run_slices([step for step in self.passes if not step.is_end])
        for step in ends:
            yield from self._run_end(step)

    def _prepare(self) -> Steps:
        """Read the inputs and make the plan."""
        self._begin()
        yield from self.inputs.look_at_tables()
        yield from self.inputs.read_topics()
        application = self.application()
        yield from self.inputs.read(application)
        plan = application.plan()
        log_unmatched_patterns(plan, application.partitions)
        if self.request.plan.repair:
            yield from self._repair(plan)
        history = self._history(plan)
        rows = frozenset(topic for topic, source in self.inputs.sources.items() if isinstance(source, Files | Table))
        options = evolve(self.request.options, placed_by_rows=rows)
        self.schedule = CallSchedule(application, plan, history, options)
        self.inputs.check_positions(history.extents, self.state.positions)
        inputs = [(topic, history.content) for topic, history in sorted(self.inputs.histories.items())]
        self.id = identify(history, inputs)
        self.passes = self._passes(history)

    def _history(self, plan: ApplicationPlan) -> SourceHistory:
        extents = {
            plan.feed(TopicPartition(topic, number)): extents
            for topic, history in self.inputs.histories.items()
            for number, extents in history.extents.items()
        }
        return SourceHistory(extents, self.segments)

    def _run_slices(self, steps: Iterable[Pass]) -> Steps:
        """Run passes in groups that share their calls: each stage together with later stages of the previous groups."""
        assert self.schedule is not None
        waiting = deque(self.schedule.grouped(steps, self._last_cut()))
        running = deque[_Group]()
        while waiting or running:
            if waiting:
                running.append(self._begun(waiting.popleft(), running[-1].passes[-1].state if running else self.state))
            yield from self._run_waves(running)
            if running[0].waves_done == len(self.schedule.waves):
                for done in running.popleft().passes:
                    done.state.forget_read(self.schedule.reader_of)
                    self._commit(done)
                    if not done.step.is_end:
                        self._pruning.prune(self._pruning.add_state(done.state), self.next_number)

    def _begun(self, steps: Iterable[Pass], state: ReplayState) -> _Group:
        """Begin passes with the state so far of the pass before them."""
        assert self.schedule is not None
        # Otherwise each pass would pass on what the passes before it have read.
        state = state.copy()
        state.forget_read(self.schedule.reader_of)
        group = _Group([BegunPass(step, state.copy()) for step in steps])
        for begun in group.passes:
            self.root.child(begun.step.folder).delete()
        return group

    def _run_waves(self, running: Sequence[_Group]) -> Steps:
        """Run the next stages of each group that has begun; later passes begin with the resulting state."""
        assert self.schedule is not None
        calls = [
            (group, work)
            for group in running
            for number in self.schedule.waves[group.waves_done]
            for work in self.schedule.works(number, group.passes)
        ]
        reports = (yield [work for _, work in calls]) if calls else []
        for (group, work), report in zip(calls, reports, strict=True):
            reports_of_slices = report.reports if isinstance(report, ChainReport) else (report,)
            passes = deque(other for one in list(running)[running.index(group) :] for other in one.passes)
            for of_slice in reports_of_slices:
                own = passes.popleft()
                if of_slice is not None:
                    self.reports.append((own.step, work.stage, of_slice))
                    own.state.take(of_slice, own.outputs, self.schedule.plan)
                    for other in passes:
                        other.state.take(of_slice, Outputs(), self.schedule.plan)
        for group in running:
            group.waves_done += 1

    def _run_end(self, step: Pass) -> Steps:
        """Run the final pass, unless an earlier run has stored its results."""
        if self._take_end(step):
            return
        yield from self._run_slices([step])
        for file in self.root.child("end").files():
            if not f"end/{file}".startswith(f"{step.folder}/"):
                self.root.child("end", file).delete()  # Final passes of shorter history.

    def _take_end(self, step: Pass) -> bool:
        """Load the final pass of an earlier run; return False if there is none, or history has grown since."""
        manifest = read_manifest(self.root.child(step.folder))
        if manifest is None or not is_valid(step.number, manifest, self.inputs.repairs):
            return False
        if manifest["is_flushed"] != self.request.plan.final_flush or manifest["cut"] != _cut_json(step):
            return False
        self._take(manifest)
        return True

    def _take(self, manifest: Mapping[str, Any]) -> None:
        """Load the state and outputs from a manifest."""
        self.state = ReplayState.from_json(manifest["state"])
        self._take_outputs(outputs_from_json(manifest["outputs"]))
        self.is_flushed = manifest["is_flushed"]

    def _take_outputs(self, outputs: Outputs) -> None:
        """Add the outputs of a pass to those of the passes before it."""
        for lane, extents in outputs.items():
            self.outputs.setdefault(lane, []).extend(extents)
        self._pruning.add_outputs(outputs)

    def _commit(self, done: BegunPass) -> None:
        """Write the manifest of a pass and continue from its state."""
        step, state, outputs = done.step, done.state, done.outputs
        place = self.root.child(step.folder)
        named = state.files() | files_of(outputs)
        for file in place.files():
            if f"{step.folder}/{file}" not in named:
                place.child(file).delete()  # The file is from a failed attempt, or all its readers have read it.
        write_manifest(
            place,
            {
                "kind": "end" if step.is_end else "slice",
                "name": step.name,
                "cut": _cut_json(step),
                "state": state.to_json(),
                "outputs": outputs_to_json(outputs),
                "is_flushed": step.is_last and self.request.plan.final_flush,
                "repairs": len(self.inputs.repairs),
            },
        )
        self.state = state
        self._take_outputs(outputs)
        self.is_flushed = step.is_last and self.request.plan.final_flush
        if not step.is_end:
            self.numbers.append(step.number)

    # --- beginning ------------------------------------------------------------------------

    def _begin(self) -> None:
        """Load the replay in the folder, or start a new replay.

        Raises:
            ReplayError: the folder belongs to another replay, or to a replay of another topology.
        """
        manifest = read_manifest(self.root)
        if manifest is not None and not self.request.plan.resume:
            raise ReplayError(
                f"{self.root}: has a replay of {manifest['application_id']!r} already; resume it, or choose "
                "another folder"
            )
        own: dict[str, Any] = {
            "id": "",
            "kind": "replay",
            "application_id": self.config.application_id,
            "topology": fingerprint(self.topology),
            "code": source_digest(self.request.topology),
            "partitions": self.request.plan.partitions,
            "settings": self._settings(),
            "parent": None if self._parent is None else self._parent.id,
            "of_files": {topic: isinstance(source, Files | Table) for topic, source in self.inputs.sources.items()},
        }
        if manifest is None:
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
            if manifest[name] != own[name]:
                raise ReplayError(
                    f"{self.root}: has a replay of {what} ({manifest[name]!r}, now {own[name]!r}); "
                    "its state is incompatible; start in another folder"
                )
        for topic, is_of_files in own["of_files"].items():
            if manifest["of_files"].get(topic, is_of_files) != is_of_files:
                raise ReplayError(
                    f"{self.root}: has read topic {topic!r} {'from offsets' if is_of_files else 'from files'} before: "
                    "row numbers are not offsets; start in another folder"
                )
        self._load()

    def _settings(self) -> dict[str, str]:
        """Return the settings that affect the results, as text; functions are represented by their names."""
        texts = {name: getattr(value, "__qualname__", str(value)) for name, value in self.request.settings.items()}
        return {**dict(sorted(texts.items())), "wall_clock": self.request.plan.wall_clock}

    def _start_new(self, own: dict[str, Any]) -> None:
        if self._parent is not None:
            self.state = self._parent.state_for_replay()
        write_manifest(self.root, own)

    def _load(self) -> None:
        self.inputs.load()
        written = list(self._written())
        for number, manifest in written:
            if manifest["repairs"] > len(self.inputs.repairs):
                self.root.child(f"slices/{number:05d}").delete()  # It is from a repair that did not take effect.
        self._take_slices([entry for entry in written if is_valid(*entry, self.inputs.repairs)])
        if self.is_flushed:
            raise ReplayError(
                f"{self.root}: its open windows were flushed at the end, so it cannot continue; replay in slices, "
                "which keeps the flush separate, or start in another folder"
            )

    def _written(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the manifest of each completed slice, also of those that a repair has made void."""
        number = 0
        while (manifest := read_manifest(self.root.child(f"slices/{number:05d}"))) is not None:
            yield number, manifest
            number += 1

    def all_numbers(self) -> range:
        """Return the numbers of all completed slices, also of those that a repair has made void."""
        return range(sum(1 for _ in self._written()))

    def _manifests(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the numbers and manifests of the completed slices that are still valid after all repairs."""
        return [entry for entry in self._written() if is_valid(*entry, self.inputs.repairs)]

    def _take_slices(self, slices: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """Load the state and outputs of valid slices from their manifests, and continue after these slices."""
        self.state = self._first_state()
        self.outputs.clear()
        self._pruning.clear()
        self.numbers[:] = [number for number, _ in slices]
        self.slices_skipped = len(slices)
        for _, manifest in slices:
            self._take_outputs(outputs_from_json(manifest["outputs"]))
            self.is_flushed = manifest["is_flushed"]
        for _, manifest in slices[-self._pruning.keep_states :]:
            self.state = ReplayState.from_json(manifest["state"])
            self._pruning.add_state(self.state)

    def _first_state(self) -> ReplayState:
        return ReplayState() if self._parent is None else self._parent.state_for_replay()

    def _repair(self, plan: ApplicationPlan) -> Steps:
        """Sort late rows into the history, and continue from the newest state that is older than all of them.

        Tasks that neither late rows nor the records of repartition topics connect with late rows keep their results.

        Raises:
            ReplayError: late rows are older than the snapshot that the replay continues from.
        """
        late = self.inputs.late_from_ms
        if not late:
            return
        valid = self._manifests()
        manifests = [manifest for _, manifest in valid]
        touched = touched_tasks(plan, late)
        oldest_ms = min(late.values())
        is_change = oldest_ms in self.inputs.differs_ms.values()
        number, reached_ms, because = self._base(plan, manifests, oldest_ms, touched)
        void = manifests[number:]
        yield from self.inputs.sort_late_rows()
        # Without a kept state, the wall clock would begin at another time.
        has_clock = number > 0 or self.request.plan.wall_clock != "append_time"
        is_part = bool(void) and len(touched) < len(plan.groups) and has_clock and _can_continue(plan, manifests)
        if is_part:
            state = self._first_state()
            cut = None
            if number:
                state = ReplayState.from_json(manifests[number - 1]["state"])
                cut = manifests[number - 1]["cut"]
            content = untouched(plan, touched, state, cut, void)
            place = self.root.child(f"slices/{len(self.all_numbers()):05d}")
            write_manifest(place, {**content, "repairs": len(self.inputs.repairs) + 1})
        # From here on the repair is in effect.
        self.inputs.keep_repair(valid[number - 1][0] + 1 if number else 0)
        self._take_slices(self._manifests())
        tasks = (len(touched), len(plan.groups)) if is_part else None
        self.repaired = Repair(oldest_ms, reached_ms, number, len(void), because, tasks, is_change)

    def _base(
        self, plan: ApplicationPlan, manifests: Sequence[Mapping[str, Any]], oldest_ms: int, touched: Set[TaskId]
    ) -> tuple[int, int, str]:
        """Return the number of slices that a repair keeps, the time of their newest record, and the limiting reason.

        Only the records count that the tasks ``touched`` have read.

        Raises:
            ReplayError: late rows are older than the snapshot that the replay continues from.
        """
        if self._parent is not None:
            reached_ms = max(map(self._parent.highest_ms, self.inputs.histories))
            if reached_ms >= oldest_ms:
                raise ReplayError(
                    f"{self.root}: cannot be repaired: rows of {time_text(oldest_ms)} are older than the end of "
                    f"snapshot {self._parent.root} ({time_text(reached_ms)}), from which this replay continues, and "
                    "whose history it does not have; replay from an older snapshot, or from the start, in another "
                    "folder"
                )
        because = ""
        if plan.topology.global_stores:
            names = ", ".join(sorted(plan.topology.global_stores))
            because = f"slices before were joined with global tables as they were then: {names}"
        elif manifests and manifests[0]["name"] == "all":
            because = "the first run was without resume"
        else:
            there = {f"slices/{file}" for file in self.root.child("slices").files()}
            history = self._history(plan)
            for number in range(len(manifests), 0, -1):
                state = ReplayState.from_json(manifests[number - 1]["state"])
                positions = [
                    positions_of_task for task, positions_of_task in state.positions.items() if task in touched
                ]
                reached_ms = history.reached_ms(positions)
                if reached_ms >= oldest_ms:
                    continue
                if all(file in there for file in state.files()):
                    return number, reached_ms, because
                because = f"states of the last {self._pruning.keep_states} slices are kept"
        return 0, NO_TIMESTAMP, because

    def application(self) -> Application:
        """Return the application with the partition counts of all topics.

        The count of a Kafka topic is only known when it has been read.

        Raises:
            ReplayError: the declared partition count of a topic differs from its history.
        """
        counts: dict[str, int] = {}
        for name in self._external_topics():
            declared = self.topology.topics.get(name)
            fixed = declared.partitions if declared is not None and declared.partitions else None
            source = self.inputs.sources.get(name)
            own = None
            if isinstance(source, Archive):
                own = read_archive(Place(source.path), source.topic or name).partitions
            elif isinstance(source, KafkaTopic):
                history = self.inputs.histories.get(name)
                own = source.partitions if history is None else history.partitions
            if fixed is not None and own is not None and fixed != own:
                raise ReplayError(f"topic {name!r} has {own} partitions in its history, but is declared with {fixed}")
            counts[name] = own or fixed or self.request.plan.partitions or 1
        if self._parent is not None:
            self._parent.check_partitions(counts)
        return Application.of(self.request.topology, self.request.settings, counts, self.request.plan.partitions or 1)

    def _external_topics(self) -> list[str]:
        names: dict[str, None] = {}
        for sub in sub_topologies(self.topology, list(self.inputs.sources)):
            names |= dict.fromkeys((*sub.source_topics, *sub.sink_topics))
        return [name for name in names if name not in self.topology.internal_topics]

    # --- passes ---------------------------------------------------------------------------

    def _passes(self, history: SourceHistory) -> list[Pass]:
        start: dict[TopicPartition, int] = {}
        for positions in self.state.positions.values():
            start |= positions
        plan = self.request.plan
        limit: Cut | None = None
        if plan.until is not None:
            counts = {topic: history.partitions for topic, history in self.inputs.histories.items()}
            limit = cut_until(history, plan.until, counts)
        if plan.slices is None and not self.slices_done and not plan.resume:
            return [Pass("all", 0, limit or {}, True)]  # Otherwise the state is one that later history can continue.
        done = self._last_cut()
        rest = {partition: offset for partition, offset in start.items() if partition in history.extents} | done
        if any(
            extents and extents[-1].last >= rest.get(partition, 0) for partition, extents in history.extents.items()
        ):
            ends = cuts(history, rest, plan.slices or Slicing())
        else:
            ends = []
        if limit is not None:
            ends = _limited(ends, limit)
        steps = [
            Pass(f"slice {self.slices_done + index + 1}", self.next_number + index, cut, False, index + 1 == len(ends))
            for index, cut in enumerate(ends)
        ]
        end = self.next_number + len(steps)
        return [*steps, Pass("end", end, (steps[-1].cut if steps else limit or done), True)]

    def _last_cut(self) -> Cut:
        if not self.slices_done:
            return {}
        manifest = read_manifest(self.root.child(f"slices/{self.numbers[-1]:05d}"))
        assert manifest is not None
        return cut_of(manifest["cut"])

    # --- results ----------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the current state.

        Raises:
            ReplayError: open windows were flushed, so no live application could continue from the snapshot, or the
                temporary folder of the replay was deleted.
        """
        if self.is_flushed:
            raise ReplayError(
                "the open windows were flushed at the end, which a live application would not have done; "
                "replay without final_flush to get a snapshot"
            )
        assert self.schedule is not None
        check_kept(self.root)
        result = Snapshot.of(self.schedule, self.state, self.outputs, self.inputs.histories, self._parent)
        read = sum(sum(result.ends(topic).values()) for topic in result.inputs)
        return evolve(result, replay=self.id, order=(len(self.inputs.repairs), read))


def _can_continue(plan: ApplicationPlan, manifests: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the states of earlier runs can be continued after a repair."""
    return not plan.topology.global_stores and manifests[0]["name"] != "all"


def _cut_json(step: Pass) -> list[list[Any]]:
    return [[*partition, offset] for partition, offset in sorted(step.cut.items())]


def _limited(cuts_before: Iterable[Cut], limit: Cut) -> list[Cut]:
    """Reduce the offsets of cuts to at most those of ``limit``, and drop cuts that are equal to their predecessor."""
    result: list[Cut] = []
    for cut in cuts_before:
        bounded = {partition: min(offset, limit.get(partition, offset)) for partition, offset in cut.items()}
        if not result or bounded != result[-1]:
            result.append(bounded)
    return result
