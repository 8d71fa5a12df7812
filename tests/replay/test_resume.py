"""A replay that goes on: after it was killed, with more history, and from a snapshot."""

import shutil
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from streams import StreamsBuilder, Topic
from streams.replay.calls import schedule
from streams.replay.calls.progress import reported_records
from streams.replay.calls.state import ReplayState, read_manifest, write_manifest
from streams.replay.calls.work import ChainWork
from streams.replay.run import session as session_module
from streams.replay.run.drive import run_chain, run_stage, run_work
from streams.replay.run.local import LocalExecutor
from streams.replay.run.request import KEPT_STATES
from streams.replay.run.session import files_of
from streams.replay.storage.places import Place
from tests.replay.corpus import PARTITIONS, Subject, written_subjects
from tests.replay.outcomes import (
    Outcome,
    archived,
    drive,
    lived,
    packed_run,
    quick_folder,
    record_files,
    replayed_outcome,
    result_of,
    session_of,
)


def subject_named(name: str) -> Subject:
    return next(subject for subject in written_subjects() if subject.name == name)


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


@pytest.fixture(scope="module")
def windows() -> tuple[Subject, Outcome]:
    """Return a topology of three stages, and what a live run gives of it."""
    subject = subject_named("windows")
    return subject, lived(subject.topology, subject.inputs, partitions=PARTITIONS, **subject.settings)


class KilledError(Exception):
    """Stands for whatever ends a replay before its time."""


@define
class Counting:
    """An executor that counts its calls, and is killed in the one with the number ``kills``."""

    kills: int | None = None
    is_done_first: bool = False
    calls: list[str] = field(factory=list)
    name: str = "counting"

    def run(self, works: list[Any], on_done: Any, on_look: Any = None) -> list[Any]:
        """Run all; with ``is_done_first`` the last call before the end has written its files."""
        reports = []
        for work in works:
            is_last = self.kills is not None and len(self.calls) == self.kills
            if is_last and not self.is_done_first:
                raise KilledError
            reports += LocalExecutor(1).run([work], on_done)
            if is_last:
                raise KilledError
            self.calls.append(f"{getattr(work, 'folder', '')} {work.name}")
        return reports


def session(subject: Subject, root: Path, **options: Any) -> Any:
    places = archived(root / "archives", subject.inputs, dict.fromkeys(subject.inputs, PARTITIONS))
    return session_of(
        subject.topology, places, root / "replay", partitions=PARTITIONS, resume=True, **{**subject.settings, **options}
    )


@pytest.mark.case
@pytest.mark.parametrize(("slices", "chain"), [(None, 1), ("500ms", 1), ("500ms", 2)])
@pytest.mark.parametrize("is_done_first", [False, True])
def test_killed_at_any_call_and_resumed(
    windows: tuple[Subject, Outcome],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    slices: str | None,
    chain: int,
    is_done_first: bool,
) -> None:
    """Each slice with a manifest is done once; slices without one, of which several may have begun, anew."""
    monkeypatch.setattr(schedule, "CHAIN_SLICES", chain)
    subject, live = windows
    whole = Counting()
    packed_run([session(subject, folder / "whole", slices=slices).steps()], whole)
    # Of the calls of one stage one will do, another one each time.
    for number in range(0, len(whole.calls), 7):
        root = folder / str(number)
        first = Counting(number, is_done_first)
        with pytest.raises(KilledError):
            packed_run([session(subject, root, slices=slices).steps()], first)
        again = Counting()
        resumed = session(subject, root, slices=slices)
        packed_run([resumed.steps()], again)

        assert live.difference(replayed_outcome(result_of(resumed))) is None, number
        done = {f"slices/{place:05d}" for place in range(resumed.slices_skipped)}
        left = [call for call in whole.calls if call.split()[0] not in done]
        assert sorted(again.calls) == sorted(left), number
        shutil.rmtree(root)


@pytest.mark.slow
def test_killed_before_the_manifest_of_a_slice(
    windows: tuple[Subject, Outcome], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its calls are done and nothing says so: it is done again, and what they left behind is gone."""
    monkeypatch.setattr(schedule, "CHAIN_SLICES", 1)
    subject, live = windows
    first = session(subject, folder, slices=3)
    steps = first.steps()
    works = next(steps)
    while first.slices_done < 2 and (reports := LocalExecutor(1).run(works, lambda report: None)):
        works = steps.send(reports)
    LocalExecutor(1).run(works, lambda report: None)
    steps.close()

    resumed = session(subject, folder, slices=3)
    drive(resumed)

    assert resumed.slices_skipped == 2
    assert live.difference(replayed_outcome(result_of(resumed))) is None
    slice_folder = folder / "replay" / "slices" / "00002"
    manifest = (slice_folder / "MANIFEST.json").read_text()
    lying = [path.name for path in slice_folder.iterdir() if path.suffix == ".parquet"]
    assert lying
    assert all(name in manifest for name in lying)


@define
class KilledInGroup:
    """An executor that is killed in a call over neighbouring slices, after ``done`` of them."""

    folder: str
    stage: int
    done: int

    def run(self, works: list[Any], on_done: Any, on_look: Any = None) -> list[Any]:
        """Run all calls up to the one with this folder and stage."""
        return list(map(self._call, works))

    def _call(self, work: Any) -> Any:
        is_here = isinstance(work, ChainWork) and (work.folder, work.stage) == (self.folder, self.stage)
        return run_chain(work, partial(self._run, count())) if is_here else run_work(work)

    def _run(self, numbers: Iterator[int], work: Any) -> Any:
        if next(numbers) == self.done:
            raise KilledError
        return run_stage(work)


@pytest.mark.case
@pytest.mark.parametrize(
    ("first", "stage", "skipped"), [(0, 0, 0), (0, 2, 0), (0, 3, 0), (3, 0, 0), (3, 2, 0), (3, 3, 3)]
)
def test_killed_between_two_slices_of_a_call(
    windows: tuple[Subject, Outcome],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
    stage: int,
    skipped: int,
) -> None:
    """The groups that ran, of which the older one is one stage ahead, are done again; no file of theirs is left."""
    monkeypatch.setattr(schedule, "CHAIN_SLICES", 3)
    subject, live = windows
    killed = KilledInGroup(f"slices/{first:05d}", stage, 1)
    with pytest.raises(KilledError):
        packed_run([session(subject, folder, slices=6).steps()], killed)

    resumed = session(subject, folder, slices=6)
    drive(resumed)

    assert resumed.slices_skipped == skipped
    assert resumed.slices_done == 6
    assert live.difference(replayed_outcome(result_of(resumed))) is None
    root, needed = resumed.root, files_of(resumed.outputs)
    for number in resumed.all_numbers()[-KEPT_STATES:]:
        manifest = read_manifest(root.child(f"slices/{number:05d}"))
        assert manifest is not None
        needed |= ReplayState.from_json(manifest["state"]).files()
    written = {f"slices/{file}" for file in root.child("slices").files() if file.endswith(".parquet")}
    assert written <= needed


@pytest.mark.slow
def test_killed_between_the_manifests_of_a_group(
    windows: tuple[Subject, Outcome], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices of the group that have a manifest are not done again."""
    subject, live = windows
    written: list[str] = []

    def killed(place: Place, content: Any) -> None:
        if len(written) == 2:
            raise KilledError
        write_manifest(place, content)
        written.extend([content["name"]] if content["kind"] == "slice" else [])

    with monkeypatch.context() as patched, pytest.raises(KilledError):
        patched.setattr(session_module, "write_manifest", killed)
        drive(session(subject, folder, slices=4))
    assert written == ["slice 1", "slice 2"]

    resumed = session(subject, folder, slices=4)
    drive(resumed)

    assert resumed.slices_skipped == 2
    assert resumed.slices_done == 4
    assert live.difference(replayed_outcome(result_of(resumed))) is None


def test_progress_of_a_call_over_slices_never_goes_back(windows: tuple[Subject, Outcome], folder: Path) -> None:
    """Between two of its slices, its progress is what the slices before have read."""
    subject, _ = windows
    read: list[int] = []

    def watched(work: Any) -> Any:
        assert reported_records(work.segments.root) == sum(read)
        report = run_stage(work)
        read.append(report.records_in)
        return report

    steps = session(subject, folder, slices=6).steps()
    works = next(steps)
    while not isinstance(works[0], ChainWork):
        works = steps.send([run_work(work) for work in works])
    report = run_chain(works[0], watched)

    assert len(read) > 1
    assert report.records_in == sum(read)
    assert reported_records(works[0].segments.root) == 0


@pytest.mark.slow
def test_what_is_done_is_not_done_again(windows: tuple[Subject, Outcome], folder: Path) -> None:
    subject, live = windows
    drive(session(subject, folder, slices=3))
    again = Counting()
    resumed = session(subject, folder, slices=3)
    packed_run([resumed.steps()], again)

    assert resumed.slices_skipped == 3
    assert not [call for call in again.calls if call.startswith("slices/")]
    assert live.difference(replayed_outcome(result_of(resumed))) is None


# --- more history ---------------------------------------------------------------------------


def parts(subject: Subject, count: int) -> Iterator[Subject]:
    """Yield a subject with more and more of its history."""
    for number in range(1, count + 1):
        inputs = {topic: rows[: len(rows) * number // count] for topic, rows in subject.inputs.items()}
        yield Subject(subject.name, subject.topology, inputs, subject.settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["through", "skipping", "chosen_topics", "windows"])
def test_archives_that_grow(name: str, folder: Path) -> None:
    """In slices, history in three pieces gives what it gives in one."""
    subject = subject_named(name)
    done = 0
    for piece in parts(subject, 3):
        grown = session(piece, folder, slices=2)
        drive(grown)
        assert grown.slices_skipped == done
        done = grown.slices_done
        live = lived(piece.topology, piece.inputs, partitions=PARTITIONS, **piece.settings)
        assert live.difference(replayed_outcome(result_of(grown))) is None


@pytest.mark.slow
def test_files_that_grow_and_files_that_come(folder: Path) -> None:
    """The rows that were read are not read again.  All can be read: of a file that is said with its line."""
    given = subject_named("windows")
    readable = {topic: [row for row in rows if row.value != b"bad"] for topic, rows in given.inputs.items()}
    subject = Subject(given.name, given.topology, readable)
    topology = session(subject, folder / "other").topology
    rows = []
    for number, piece in enumerate(parts(subject, 3)):
        files = record_files(folder / "files", piece.inputs, topology)
        # The third piece is in a file of its own.
        if number == 2:
            for path in files.values():
                lines = path.read_text().splitlines(keepends=True)
                size = len((folder / f"{path.name}.second").read_text().splitlines())
                path.write_text("".join(lines[:size]))
                (folder / f"third-{path.name}").write_text("".join(lines[size:]))
        inputs = {
            topic: [path, folder / f"third-{path.name}"] if number == 2 else [path] for topic, path in files.items()
        }
        grown = session_of(
            subject.topology,
            inputs,
            folder / "replay",
            partitions=PARTITIONS,
            slices=2,
            resume=True,
            **subject.settings,
        )
        counted = Counting()
        packed_run([grown.steps()], counted)
        rows.append(sum(report.records_in for step, _, report in grown.reports if step.name != "end"))
        for path in files.values():
            (folder / f"{path.name}.second").write_text(path.read_text())
        live = lived(piece.topology, piece.inputs, partitions=PARTITIONS, **piece.settings)
        assert live.difference(replayed_outcome(result_of(grown))) is None

    assert max(rows) < 0.6 * sum(rows)


# --- from a snapshot ------------------------------------------------------------------------


def joined(before: Outcome, after: Outcome) -> Outcome:
    """Return the outputs of two replays as those of one, with the stores of the second."""
    outputs: dict[str, dict[int, list[Any]]] = {}
    for topic in {*before.outputs, *after.outputs}:
        for number in {*before.outputs.get(topic, {}), *after.outputs.get(topic, {})}:
            found = [*before.outputs.get(topic, {}).get(number, ()), *after.outputs.get(topic, {}).get(number, ())]
            outputs.setdefault(topic, {})[number] = [(offset, *record[1:]) for offset, record in enumerate(found)]
    return Outcome(outputs, after.stores)


def snapshot_and_rest(subject: Subject, root: Path, **options: Any) -> tuple[Outcome, Outcome]:
    """Return what two live runs give that follow one another, and what two replays do."""
    half, whole = parts(subject, 2)
    for piece in (half, whole):
        live = lived(
            piece.topology,
            piece.inputs,
            partitions=PARTITIONS,
            state_dir=root / "live",
            **{**piece.settings, **options},
        )
    first = session(half, root / "half", **options)
    drive(first)
    result_of(first).save(root / "snapshot")
    places = archived(root / "half" / "archives", whole.inputs, dict.fromkeys(whole.inputs, PARTITIONS))
    rest = session_of(
        whole.topology,
        places,
        root / "rest",
        partitions=PARTITIONS,
        state_from=root / "snapshot",
        **{**whole.settings, **options},
    )
    drive(rest)
    found = joined(replayed_outcome(result_of(first)), replayed_outcome(result_of(rest)))
    return Outcome(live.outputs, live.stores), found


@pytest.mark.case
@pytest.mark.parametrize("name", ["skipping", "chosen_topics", "windows"])
def test_snapshot_and_the_rest_of_history(name: str, folder: Path) -> None:
    """What tasks wrote for each other goes on where its readers are."""
    live, found = snapshot_and_rest(subject_named(name), folder)

    assert live.difference(found) is None


_events = Topic("events", key=str, value=int)
_mid = Topic("mid", key=str, value=int)
_out = Topic("out", key=str, value=int)


def _table_of_what_is_written(builder: StreamsBuilder) -> None:
    builder.stream(_events).select_key(lambda _, value: f"m{value % 5}").to(_mid)
    builder.table(_mid, name="last").to_stream().to(_out)


def test_table_whose_source_topic_is_its_changelog(folder: Path) -> None:
    """A topic that the application writes itself lies in lanes, which are no changelog; its snapshot fits still."""
    inputs = {"events": subject_named("skipping").inputs["events"]}
    subject = Subject("table", _table_of_what_is_written, inputs, {"deserialization_handler": "continue"})

    live, found = snapshot_and_rest(subject, folder, topology_optimization="all")

    assert live.difference(found) is None
