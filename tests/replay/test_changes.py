"""State between slices as changes of earlier contents: what comes of it is what whole contents give."""

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streams import StreamsBuilder, TimeWindows, Topic
from streams.replay import Plan, replay
from streams.replay.calls import schedule, stores
from streams.replay.calls.state import read_manifest
from streams.replay.calls.work import StoreRef
from streams.replay.run.local import LocalExecutor
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent
from tests.replay.matrix import Expected, examples, named_cases
from tests.replay.outcomes import quick_folder

#: A row: a key, the minute of its time, and a number, or None for a deletion.
Given = tuple[str, int, int | None]
table = Topic("rows", key=str, value=int)
totals = Topic("totals", key=str, value=int)
LOCAL: dict[str, Any] = {"executor": "local", "processes": 1, "application_id": "app", "partitions": 2}


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes always cost less than contents."""
    monkeypatch.setattr(stores, "_CHANGES_ROWS", -1_000_000_000)


def topology(builder: StreamsBuilder) -> None:
    """A table with deletions, windows that expire, and a count behind a repartition topic."""
    builder.table(table, name="latest").to_stream().to("latest-out")
    stream = builder.stream(Topic("clicks", key=str, value=int))
    grouped = stream.group_by(lambda _, value: f"v{value % 40}", key=str)
    grouped.count("counts").to_stream().to(totals)
    windows = TimeWindows.of(timedelta(minutes=10), grace=timedelta(minutes=1))
    stream.group_by_key().windowed_by(windows).count("by-window").to_stream(lambda key, _: key.key).to("windows-out")


def write(file: Path, given: list[Given]) -> Path:
    lines = [json.dumps({"key": key, "value": value, "timestamp": minute * 60_000}) for key, minute, value in given]
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def history(folder: Path, count: int = 600) -> dict[str, Path]:
    """Return files with rows of 60 keys in the table, of which each is deleted from time to time."""
    rows: list[Given] = [(f"k{n * 7 % 60}", n, None if n % 11 == 0 else n) for n in range(count)]
    return {
        "rows": write(folder / "rows.records.jsonl", rows),
        "clicks": write(folder / "clicks.records.jsonl", [(f"c{n % 90}", n, n) for n in range(count)]),
    }


def told(result: Any) -> Any:
    with result:
        outputs = {name: result.outputs[name].to_pylist() for name in result.outputs}
        return outputs, {name: dict(store) for name, store in result.stores.items()}


def manifests(folder: Path) -> list[dict[str, Any]]:
    """Return the states of the slices in a folder."""
    slices = Place(str(folder / "slices"))
    found = [read_manifest(slices.child(f"{number:05d}")) for number in range(100)]
    return [manifest["state"] for manifest in found if manifest is not None]


def changes_of(state: dict[str, Any]) -> int:
    return sum(len(ref["changes"]) for task in state["tasks"].values() for ref in task["stores"].values())


@pytest.mark.slow
def test_changes_of_any_topology_give_what_contents_give(
    tmp_path_factory: pytest.TempPathFactory, folder: Path, always: None
) -> None:
    """All kinds of stores: tables, windows, joins, sessions, suppressed, versioned and own ones."""
    for subjects in (examples(tmp_path_factory.mktemp("examples")), named_cases(tmp_path_factory.mktemp("cases"))):
        Expected.of(subjects).check_replay(LocalExecutor(1), folder, slices=7)


@pytest.mark.slow
def test_changes_are_kept_until_the_state_is_handed_over(folder: Path, always: None) -> None:
    given = history(folder)
    expected = told(replay(topology, given, **LOCAL))

    assert told(replay(topology, given, directory=folder / "work", slices=6, **LOCAL)) == expected
    found = [changes_of(state) for state in manifests(folder / "work")]
    assert found[0] == found[-1] == 0
    assert sorted(set(found[:-1])) == found[:-1]


@pytest.mark.slow
def test_contents_are_written_again_after_as_many_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the slices write in all grows with what they change, not with the contents times the slices."""
    monkeypatch.setattr(stores, "_CHANGES_ROWS", 0)
    first = [(f"k{n:04d}", 0, n) for n in range(1_000)]
    later = [(f"k{n * 37 % 1_000:04d}", n + 1, n) for n in range(2_000)]
    given = {"rows": write(folder / "rows.records.jsonl", [*first, *later])}

    def only_table(builder: StreamsBuilder) -> None:
        builder.table(table, name="latest").to_stream().to("latest-out")

    expected = told(replay(only_table, given, **{**LOCAL, "partitions": 1}))
    options = {**LOCAL, "partitions": 1, "slices": 30, "directory": folder / "work"}
    assert told(replay(only_table, given, **options)) == expected
    written = [_rows_written(number, state) for number, state in enumerate(manifests(folder / "work"))]
    assert sum(rows for _, rows in written) < 3 * 3_000 + 1_000
    # Contents in the first slices, while they are few; and after every thousand changes; and at the end.
    assert [is_whole for is_whole, _ in written].count(True) <= 9


def _rows_written(number: int, state: dict[str, Any]) -> tuple[bool, int]:
    """Return whether a slice has written contents, and the number of entries in its own files."""
    (ref,) = state["tasks"]["0_0"]["stores"].values()
    parts = [ref, *ref["changes"]]
    own = [Extent(*extent) for part in parts for extent in part["extents"]]
    rows = sum(extent.rows for extent in own if extent.file.startswith(f"slices/{number:05d}/"))
    return any(Extent(*extent).file.startswith(f"slices/{number:05d}/") for extent in ref["extents"]), rows


def killed_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an executor execute a number of calls, and be killed when the next one has written its files."""
    run, left = LocalExecutor.run, [calls]

    def some(self: LocalExecutor, works: list[Any], *rest: Any) -> list[Any]:
        reports: list[Any] = []
        for work in works:
            reports += run(self, [work], *rest)
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        return reports

    monkeypatch.setattr(LocalExecutor, "run", some)


@pytest.mark.slow
def test_killed_at_any_call_another_process_goes_on_from_the_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, always: None
) -> None:
    monkeypatch.setattr(schedule, "CHAIN_SLICES", 1)
    given = history(folder)
    expected = told(replay(topology, given, **LOCAL))
    run = LocalExecutor.run
    for calls in (11, 13, 15):
        options = {**LOCAL, "directory": folder / "work", "slices": 5, "resume": True}
        killed_after(calls, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            replay(topology, given, **options)
        assert any(map(changes_of, manifests(folder / "work")))
        monkeypatch.setattr(LocalExecutor, "run", run)
        # Files are named by the folder alone: it may lie elsewhere by now.
        (folder / "work").rename(folder / "moved")
        assert told(replay(topology, given, **{**options, "directory": folder / "moved"})) == expected
        shutil.rmtree(folder / "moved")


@pytest.mark.slow
def test_repair_continues_from_a_state_of_changes(folder: Path, always: None) -> None:
    """A late row in the middle: the files of contents and changes before it are still there."""
    day = 24 * 60
    clicks = Topic(
        "clicks",
        key=str,
        value=dict[str, int],
        timestamp=lambda row: row["at"],
        key_from=lambda row: f"k{row['n'] % 97}",
    )

    def counted(builder: StreamsBuilder) -> None:
        stream = builder.stream(clicks).group_by(lambda _, row: f"v{row['n'] % 7}", key=str)
        stream.aggregate(lambda: 0, lambda _, row, total: total + row["n"], name="sums").to_stream().to(totals)

    def rows(file: str, minutes: list[int]) -> Path:
        place = folder / "in" / file
        place.parent.mkdir(exist_ok=True)
        place.write_text("".join(json.dumps({"n": minute, "at": minute * 60_000}) + "\n" for minute in minutes))
        return place

    files = [rows(f"{number}.jsonl", [number * day + minute for minute in range(0, day, 40)]) for number in range(6)]
    options: dict[str, Any] = {**LOCAL, "directory": folder / "work", "slices": "1d", "resume": True}
    told(replay(counted, {clicks: folder / "in"}, **options))
    files.append(rows("late.jsonl", [3 * day + 5]))

    with replay(counted, {clicks: folder / "in"}, plan=Plan(repair=True), **options) as result:
        assert result.repaired is not None
        assert result.repaired.slices_kept == 3
        assert changes_of(manifests(folder / "work")[2])
        found = told(result)
    assert found == told(replay(counted, {clicks: files}, order="event_time", **LOCAL))


@pytest.mark.slow
def test_state_of_a_snapshot_is_copied_by_the_first_slice(folder: Path, always: None) -> None:
    """The files of the snapshot may be gone when the replay is resumed."""
    given = history(folder)
    lines = {topic: file.read_text().splitlines(keepends=True) for topic, file in given.items()}
    parts = [{topic: folder / f"{topic}{number}.records.jsonl" for topic in given} for number in range(2)]
    for topic, found in lines.items():
        parts[0][topic].write_text("".join(found[:200]))
        parts[1][topic].write_text("".join(found[200:]))
    with replay(topology, parts[0], **LOCAL) as result:
        result.save(folder / "snapshot")
    expected = told(replay(topology, parts[1], state_from=folder / "snapshot", **LOCAL))
    options = {**LOCAL, "state_from": folder / "snapshot", "slices": 4}

    assert told(replay(topology, parts[1], directory=folder / "work", **options)) == expected
    files = {
        Extent(*extent).file
        for state in manifests(folder / "work")
        for task in state["tasks"].values()
        for ref in task["stores"].values()
        for part in (ref, *ref["changes"])
        for extent in part["extents"]
    }
    assert files
    assert not [file for file in files if not file.startswith("slices/")]


def test_a_slice_that_changes_nothing_adds_no_changes() -> None:
    extent = Extent("slices/00000/a.parquet", 0, 0, 9, 10, 0, 9)
    whole = StoreRef((extent,), {"time": b"1"})
    changed = whole.changed((extent,), {"time": b"2"})

    assert whole.changed((), {"time": b"3"}) == StoreRef((extent,), {"time": b"3"})
    assert changed.changed((), {"time": b"3"}) == whole.changed((extent,), {"time": b"3"})
    assert [part.carried["time"] for part in changed.changed((extent,), {"time": b"4"}).parts] == [b"1", b"2", b"4"]
    assert changed.rows == 20
