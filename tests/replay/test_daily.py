"""The daily job: a replay that is resumed each day, rows that come days later, and the repair of what they change."""

import json
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streams import (
    ConfigError,
    JoinWindows,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    time_windowed,
)
from streams.replay import Plan, ReplayError, replay
from streams.replay.run.local import LocalExecutor
from tests.replay.outcomes import quick_folder

HOUR = 3_600_000
DAY = 24 * HOUR
rows = Topic(
    "rows", key=str, value=dict[str, int], timestamp=lambda row: row["at"], key_from=lambda row: f"k{row['n']}"
)
hours = Topic("hours", key=time_windowed(str, timedelta(hours=1)), value=int)
totals = Topic("totals", key=str, value=int)
LOCAL: dict[str, Any] = {
    "executor": "local",
    "processes": 1,
    "application_id": "app",
    "partitions": 2,
    "plan": Plan(store="in_memory"),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        yield path


def topology(builder: StreamsBuilder) -> None:
    stream = builder.stream(rows).select_key(lambda _, row: f"k{row['n'] % 5}").repartition("by-key", partitions=2)
    grouped = stream.group_by_key()
    windows = TimeWindows.of(timedelta(hours=1), grace=timedelta(minutes=5))
    grouped.windowed_by(windows).count("by-hour").to_stream().to(hours)
    grouped.aggregate(lambda: 0, lambda _, row, total: total + row["n"], name="sums").to_stream().to(totals)


def write(folder: Path, day: int, times: list[int], seed: int = 0) -> Path:
    chance = random.Random(seed)
    place = folder / "rows" / f"day={day:03d}"
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"part-{len(list(place.iterdir())):05d}.jsonl"
    file.write_text("".join(f"{json.dumps({'n': chance.randrange(100), 'at': at})}\n" for at in times))
    return file


def day_of(folder: Path, day: int, count: int = 40) -> Path:
    return write(folder, day, random.Random(day).sample(range(day * DAY, (day + 1) * DAY), count), day)


def told(result: Any) -> Any:
    with result:
        return (
            {name: result.outputs[name].to_pylist() for name in result.outputs},
            {name: dict(store) for name, store in result.stores.items()},
            result.dropped,
        )


def planned(**fields: Any) -> dict[str, Any]:
    """What every replay here is given, and further fields of its plan."""
    return {**LOCAL, "plan": Plan(store="in_memory", **fields)}


def daily(folder: Path, source: Any = topology, *, repair: bool = False, keep_states: int = 7, **options: Any) -> Any:
    where: dict[str, Any] = {"directory": folder / "work", "resume": True, **options}
    return replay(source, {rows: folder / "rows"}, **planned(repair=repair, keep_states=keep_states), **where)


def scratch(files: list[Path], source: Any = topology) -> Any:
    """One replay over the rows of files, in the order in which they came."""
    return told(replay(source, {rows: files}, order="event_time", **LOCAL))


def test_late_rows_are_told_with_days_files_and_closed_windows(folder: Path, caplog: pytest.LogCaptureFixture):
    for day in range(3):
        day_of(folder, day)
    with daily(folder) as result:
        assert result.late_rows == []
    late = write(folder, 1, [DAY + HOUR // 2, DAY + HOUR // 3, 3 * HOUR])
    day_of(folder, 3)

    with daily(folder) as result:
        (found,) = result.late_rows
        report = json.loads(json.dumps(result.to_json()))

    assert (found.topic, found.count, found.lowest_ms, found.highest_ms) == ("rows", 3, 3 * HOUR, DAY + HOUR // 2)
    assert dict(found.days) == {"1970-01-01": 1, "1970-01-02": 2}
    assert dict(found.files) == {str(late): 3}
    windows = [(one.node, one.count, one.start_ms, one.end_ms) for one in found.windows]
    assert windows == [("by-hour", 2, 3 * HOUR, DAY + HOUR)]
    assert "topic 'rows': 3 rows are older than rows that were read before, which reach 1970-01-03T" in caplog.text
    assert f"1 of 1970-01-01, 2 of 1970-01-02; 3 in {late}; closed before: by-hour: 2 windows from" in caplog.text
    assert report["late_rows"][0]["days"] == {"1970-01-01": 1, "1970-01-02": 2}
    assert report["dropped"] == [{"node": "by-hour", "reason": "late", "count": 3}]
    assert "rows of topic 'rows' came in a later run than rows that are newer by up to" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(("slices", "is_told_first"), [(None, True), ("1d", False)])
def test_repair_gives_what_one_replay_over_all_gives(folder: Path, slices: str | None, is_told_first: bool):
    files = []
    for day in range(4):
        files.append(day_of(folder, day))
        told(daily(folder, slices=slices))
    files.append(write(folder, 2, [2 * DAY + HOUR, 3 * DAY + 5, 2 * DAY + 2 * HOUR]))
    if is_told_first:
        with daily(folder, slices=slices) as result:
            assert result.late_rows
            assert result.dropped

    with daily(folder, slices=slices, repair=True) as result:
        assert result.repaired is not None
        assert (result.repaired.slices_kept, result.repaired.because) == (2, "")
        assert result.late_rows == []
        assert told(result) == scratch(files)
    files.append(day_of(folder, 4))
    with daily(folder, slices=slices, repair=True) as result:
        assert result.repaired is None
        assert told(result) == scratch(files)


def counted(builder: StreamsBuilder) -> None:
    """Windows by the key of the input: each partition is a task of its own."""
    windows = TimeWindows.of(timedelta(hours=1), grace=timedelta(minutes=5))
    builder.stream(rows).group_by_key().windowed_by(windows).count("by-hour").to_stream().to(hours)


@pytest.mark.slow
def test_partitions_without_late_rows_are_not_computed_again(folder: Path):
    """One late row: the task of the other partition has nothing to do; another night repairs that one."""
    files, repaired = [], []
    for day in range(4):
        files.append(day_of(folder, day))
        told(daily(folder, counted))
    for seed, night in ((1, 4), (2, 5)):
        files.append(write(folder, 1, [DAY + seed * HOUR], seed))

        with daily(folder, counted, repair=True) as result:
            assert result.repaired is not None
            assert (result.repaired.slices_kept, result.repaired.tasks) == (1, (1, 2))
            assert str(result.repaired).startswith("repaired: all after 1970-01-01T2")
            assert "is computed again, by 1 of 2 tasks, since the oldest late row is of 1970-01-02T" in str(
                result.repaired
            )
            (task,) = {task.task_id for _, _, report in result.session.reports for task in report.tasks}
            repaired.append(task.partition)
            assert told(result) == scratch(files, counted)
        files.append(day_of(folder, night))
        with daily(folder, counted, repair=True) as result:
            assert result.repaired is None
            assert told(result) == scratch(files, counted)
    assert sorted(repaired) == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("source", [topology, counted])
@pytest.mark.parametrize("is_done_first", [False, True])
def test_repair_that_is_killed_at_any_call_is_done_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_done_first: bool, source: Any
):
    """Each attempt is killed one call later; what is written to a folder is exact at the end."""
    files = []
    for day in range(3):
        files.append(day_of(folder, day))
        with daily(folder, source) as result:
            result.write("hours", folder / "out", partition_by="day")
    files.append(write(folder, 1, [DAY + HOUR]))
    expected = scratch(files, source)
    run, calls, last = LocalExecutor.run, [0], [0]

    def killed(self: LocalExecutor, works: list[Any], *rest: Any) -> list[Any]:
        reports: list[Any] = []
        for work in works:
            calls[0] += 1
            if calls[0] > last[0] and not is_done_first:
                raise KeyboardInterrupt
            reports += run(self, [work], *rest)
            if calls[0] > last[0]:
                raise KeyboardInterrupt
        return reports

    monkeypatch.setattr(LocalExecutor, "run", killed)
    attempts = 0
    while True:
        calls[0], last[0] = 0, attempts % 7
        attempts += 1
        try:
            with daily(folder, source, repair=True) as result:
                result.write("hours", folder / "out", partition_by="day")
                assert told(result) == expected
            break
        except KeyboardInterrupt:
            assert attempts < 40
    assert attempts > 3
    assert written(folder) == sorted((row["timestamp"], row["value"]) for row in expected[0]["hours"])


def written(folder: Path) -> list[tuple[int, int]]:
    """The times and values of the rows in the folder of outputs."""
    import pyarrow.parquet as pq

    tables = [pq.ParquetFile(file).read() for file in (folder / "out").rglob("*.parquet")]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted((int(row["timestamp"].timestamp() * 1000), row["value"]) for row in rows)


@pytest.mark.slow
def test_without_a_kept_state_all_is_computed_again(folder: Path):
    files = []
    for day in range(3):
        files.append(day_of(folder, day, 10))
        told(daily(folder, keep_states=1))
    files.append(write(folder, 1, [DAY + HOUR]))

    with daily(folder, keep_states=1, repair=True) as result:
        assert result.repaired is not None
        assert (result.repaired.slices_kept, result.repaired.slices_void) == (0, 3)
        assert str(result.repaired) == (
            "repaired: the whole history is computed again, since the oldest late row is of 1970-01-02T01:00:00Z "
            "(states of the last 1 slices are kept)"
        )
        assert told(result) == scratch(files)


@pytest.mark.slow
def test_slices_that_were_joined_with_an_older_global_table_are_not_kept(folder: Path):
    names = Topic("names", key=str, value=str)

    def named(builder: StreamsBuilder) -> None:
        table = builder.global_table(names)
        builder.stream(rows).join(table, lambda row, name: row["at"], key=lambda _, row: str(row["n"] % 3)).to(totals)

    (folder / "names.records.jsonl").write_text('{"key":"1","value":"one","timestamp":5}\n')
    files = [day_of(folder, 0, 10)]
    given = {rows: folder / "rows", names: folder / "names.records.jsonl"}
    told(replay(named, given, directory=folder / "work", resume=True, **LOCAL))
    files.append(write(folder, 0, [5 * HOUR]))
    with replay(named, given, directory=folder / "work", resume=True, **planned(repair=True)) as result:
        assert result.repaired is not None
        assert "slices before were joined with global tables as they were then: names-" in result.repaired.because
        assert (
            told(result)[0]
            == told(replay(named, {rows: files, names: folder / "names.records.jsonl"}, order="event_time", **LOCAL))[0]
        )


@pytest.mark.slow
def test_rows_older_than_the_snapshot_a_replay_continues_are_told_and_cannot_be_repaired(folder: Path):
    first = day_of(folder, 5, 10)
    with replay(topology, {rows: [first]}, order="event_time", **LOCAL) as result:
        result.save(folder / "snapshot")
    first.unlink()
    write(folder, 3, [3 * DAY, 6 * DAY])

    with daily(folder, state_from=folder / "snapshot") as result:
        (found,) = result.late_rows
        assert found.count == 1
    with pytest.raises(ReplayError, match=r"rows of 1970-01-04T00:00:00Z are older than the end of snapshot .* replay"):
        daily(folder, state_from=folder / "snapshot", repair=True)


def test_repair_needs_the_folder_of_earlier_runs(folder: Path):
    day_of(folder, 0, 1)
    with pytest.raises(ConfigError, match="repair"):
        replay(topology, {rows: folder / "rows"}, directory=folder / "work", **planned(repair=True))
    with pytest.raises(ConfigError, match="keep_states"):
        Plan(keep_states=0)


clicks = Topic("clicks", key=str, value=dict[str, int], timestamp=lambda row: row["at"], key_from=lambda row: "k1")


def wide_topology(builder: StreamsBuilder) -> None:
    """A join of two streams, sessions, final results of windows, and a count of what they give, by another key."""
    stream = builder.stream(rows).repartition("by-key", partitions=2)
    joined = stream.join(
        builder.stream(clicks),
        lambda row, click: row["n"] - click["n"],
        JoinWindows.of(timedelta(hours=2)),
        name="joined",
    )
    joined.to("joins")
    stream.group_by_key().windowed_by(SessionWindows.of(timedelta(hours=1))).count("sessions").to_stream().map(
        lambda key, count: (key.key, count)
    ).to("ended")
    final = (
        stream.group_by_key()
        .windowed_by(TimeWindows.of(timedelta(hours=3)))
        .count("final")
        .suppress(Suppressed.until_window_closes())
    )
    final.to_stream().map(lambda key, count: (str(count), key.window.start_ms)).repartition(
        "by-count", key=str, value=int
    ).group_by_key().count("counts").to_stream().to(totals)


def apart_topology(builder: StreamsBuilder) -> None:
    """Sums and windows by the key of the input, and records by another key: no task reads what another one writes."""
    stream = builder.stream(rows)
    windows = TimeWindows.of(timedelta(hours=1), grace=timedelta(hours=1))
    stream.group_by_key().windowed_by(windows).count("by-hours").to_stream().to(hours)
    stream.select_key(lambda _, row: f"k{row['n'] % 3}").map_values(lambda row: row["n"]).to("moved")
    summed = (
        builder.stream(clicks).group_by_key().aggregate(lambda: 0, lambda _, row, total: total + row["n"], name="sums")
    )
    summed.to_stream().to(totals)


Night = tuple[list[tuple[int, int]], list[tuple[int, int]], bool]
ROWS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=8)


@pytest.mark.slow
@settings(
    max_examples=5, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(st.lists(st.tuples(ROWS, ROWS, st.booleans()), min_size=2, max_size=4))
@pytest.mark.parametrize("source", [wide_topology, apart_topology])
def test_repair_of_any_nights_gives_what_one_replay_gives(source: Any, nights: list[Night]):
    with quick_folder() as folder:
        files: dict[Any, list[Path]] = {rows: [], clicks: []}
        for night, (of_rows, of_clicks, is_repaired) in enumerate(nights):
            for topic, found in ((rows, of_rows), (clicks, of_clicks)):
                # Files are in folders of the first row's day, so that late ones come before others.
                place = folder / topic.name / f"{found[0][0] if found else 0:03d}"
                place.mkdir(parents=True, exist_ok=True)
                files[topic].append(place / f"{night}.jsonl")
                lines = [json.dumps({"n": number, "at": hour * HOUR}) for hour, number in found]
                files[topic][-1].write_text("".join(f"{line}\n" for line in lines))
            given = {topic: folder / topic.name for topic in files}
            options: dict[str, Any] = {"directory": folder / "work", "resume": True}
            repairs = is_repaired or night == len(nights) - 1
            result = replay(source, given, **options, **planned(repair=repairs))
            found_last = told(result)
        assert found_last == told(replay(source, dict(files), order="event_time", **LOCAL))
