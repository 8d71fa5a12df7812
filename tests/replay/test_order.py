"""History in any order: sorted by event time, it gives what ordered history gives."""

import json
import logging
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import ConfigError, StreamsBuilder
from streams.files import Records
from streams.replay import ReplayError, archive_topic, explain, replay
from streams.replay.handover.snapshot import Snapshot
from streams.replay.history import ingest, intake
from streams.replay.history.ingest import PartitionWriter, SortedTopic, run_merge, sort_topics
from streams.replay.storage.extents import Extents, FileNames
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent, Segments
from tests.replay.disorder import DAY, hours, local, rows, topology

LOCAL = local(partitions=3)


def lake(folder: Path, *, shuffled: bool, days: int = 3, of_day: int = 300, files: int = 4) -> Path:
    """Days of records in files of a batch job, each day in time order or in no order; all times differ."""
    chance = random.Random(5)
    for day in range(days):
        times = sorted(chance.sample(range(day * DAY, (day + 1) * DAY), of_day))
        found = [{"n": chance.randrange(100), "at": at} for at in times]
        if shuffled:
            random.Random(day).shuffle(found)
        write(folder, day, found, files)
    return folder


def write(folder: Path, day: int, found: list[dict[str, int]], files: int = 1) -> None:
    place = folder / f"dt={day:03d}"
    place.mkdir(parents=True)
    (place / "_SUCCESS").touch()
    size = -(-len(found) // files)
    for number in range(files):
        part = found[number * size : (number + 1) * size]
        (place / f"part-{number:05d}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in part))


def told(result: Any) -> Any:
    """The outputs and stores of a replay."""
    with result:
        assert result.late == []
        return result.outputs[hours].to_pylist(), {name: dict(store) for name, store in result.stores.items()}


@pytest.fixture
def many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls, runs, row groups and merges of a few records."""
    monkeypatch.setattr(intake.read_files, "__kwdefaults__", {"on_bad_row": "fail", "part_bytes": 3000})
    monkeypatch.setattr(ingest, "RUN_BYTES", 1000)
    monkeypatch.setattr(ingest, "INPUT_GROUP_ROWS", 16)
    monkeypatch.setattr(ingest, "_MERGE_ROWS", 30)
    monkeypatch.setattr(ingest, "_OPEN_FILES", 2)


@pytest.mark.slow
@pytest.mark.parametrize("slices", [None, 4])
def test_folder_in_no_order_gives_what_the_ordered_one_gives(tmp_path: Path, many_runs: None, slices: int | None):
    in_order = told(replay(topology, {rows: lake(tmp_path / "one", shuffled=False)}, order="as_given", **LOCAL))
    path = lake(tmp_path / "two", shuffled=True)

    assert told(replay(topology, {rows: path}, slices=slices, **LOCAL)) == in_order
    with replay(topology, {rows: path}, order="as_given", **LOCAL) as result:
        assert result.late[0].share > 0.5


@pytest.mark.spark
def test_spark_sorts_as_local_processes_do(tmp_path: Path, spark: Any):
    path = lake(tmp_path / "rows", shuffled=True, of_day=100)
    expected, stores = told(replay(topology, {rows: path}, **LOCAL))
    with replay(topology, {rows: path}, application_id="app", partitions=3, spark=spark) as result:
        found = [row.asDict(recursive=True) for row in result.outputs[hours].orderBy("partition", "offset").collect()]
        assert [(row["key"], row["value"], row["timestamp"]) for row in found] == [
            (row["key"], row["value"], row["timestamp"]) for row in expected
        ]
        assert {name: dict(store) for name, store in result.stores.items()} == stores


def test_only_folders_are_sorted_unless_it_is_asked_for(tmp_path: Path):
    path = lake(tmp_path / "rows", shuffled=True, of_day=20)
    files = sorted(path.rglob("*.jsonl"))
    for source, order, is_sorted in [
        (path, None, True),
        (path, "as_given", False),
        (files, None, False),
        (files[0], None, False),
        (str(path / "*" / "*.jsonl"), None, False),
        (files, "event_time", True),
    ]:
        found = explain(topology, {rows: source}, order=order, **LOCAL)  # type: ignore[arg-type]
        assert ("rows, sorted by event time" in str(found)) == is_sorted


def test_order_is_noted_in_the_snapshot(tmp_path: Path):
    with replay(topology, {rows: lake(tmp_path / "rows", shuffled=True, of_day=20)}, **LOCAL) as result:
        result.save(tmp_path / "snapshot")

    assert Snapshot.open(Place(str(tmp_path / "snapshot"))).inputs["rows"]["order"] == "event_time"


@pytest.mark.slow
def test_next_day_continues_the_sorted_history(tmp_path: Path):
    whole = told(replay(topology, {rows: lake(tmp_path / "whole", shuffled=True, days=4)}, **LOCAL))
    path = lake(tmp_path / "rows", shuffled=True, days=3)
    with replay(topology, {rows: path}, directory=tmp_path / "work", **LOCAL):
        pass
    (tmp_path / "whole" / "dt=003").rename(path / "dt=003")

    assert told(replay(topology, {rows: path}, directory=tmp_path / "work", resume=True, **LOCAL)) == whole


@pytest.mark.slow
def test_day_before_the_end_of_sorted_history_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = lake(tmp_path / "rows", shuffled=True)
    with replay(topology, {rows: path}, directory=tmp_path / "work", **LOCAL):
        pass
    write(path, 3, [{"n": 1, "at": at} for at in (DAY, 4 * DAY, 2 * DAY)])

    with caplog.at_level(logging.WARNING):
        replay(topology, {rows: path}, directory=tmp_path / "work", resume=True, **LOCAL).outputs[hours]

    assert "topic 'rows': 2 rows are older than rows that were read before, which reach 1970-01-03T23:" in caplog.text


def test_order_is_kept_when_a_replay_is_resumed(tmp_path: Path):
    path = lake(tmp_path / "rows", shuffled=True, of_day=20)
    given: dict[str, Any] = {"directory": tmp_path / "work", **LOCAL}
    with replay(topology, {rows: path}, **given):
        pass

    with pytest.raises(ReplayError, match="'event_time' before, which cannot become 'as_given'"):
        replay(topology, {rows: path}, resume=True, order="as_given", **given)
    files = sorted(path.rglob("*.jsonl"))
    assert "sorted by event time" in str(explain(topology, {rows: files}, resume=True, **given))


def test_order_is_for_files_only(tmp_path: Path):
    from streams import EmbeddedBroker

    with EmbeddedBroker() as broker:
        broker.create_topic("rows", partitions=3)
        archive_topic(broker, "rows", tmp_path / "archive")

    with pytest.raises(ConfigError, match="archives and topics keep the order of their offsets"):
        replay(topology, {rows: tmp_path / "archive"}, order="event_time", **LOCAL)


def test_times_that_a_source_determines_itself_are_no_order(tmp_path: Path):
    path = lake(tmp_path / "rows", shuffled=True, of_day=20)

    def own(builder: StreamsBuilder) -> None:
        builder.stream(rows, timestamp=lambda key, value, time, last: value["n"]).to(hours)

    assert "sorted" not in str(explain(own, {rows: path}, **LOCAL))
    with pytest.raises(ReplayError, match=r"cannot be sorted by event time: source .* has a timestamp extractor"):
        replay(own, {rows: path}, order="event_time", **LOCAL)


def test_failed_record_of_sorted_history_is_named_by_its_file_and_row(tmp_path: Path):
    write(tmp_path / "rows", 0, [{"n": number % 7, "at": at} for number, at in enumerate([9, 5, 7, 1, 3, 8])], 2)

    def fails(builder: StreamsBuilder) -> None:
        builder.stream(rows).map_values(lambda row: 1 // (row["at"] - 3)).to(hours)

    with pytest.raises(ReplayError, match=r"row 2 of .*part-00001\.jsonl"):
        replay(fails, {rows: tmp_path / "rows"}, **LOCAL)


times = st.lists(st.integers(0, 40), max_size=60)


@settings(max_examples=60, deadline=None)
@given(st.lists(times, max_size=5), st.integers(1, 9), st.integers(1, 30), st.booleans())
def test_any_runs_are_merged_by_time_and_row(tmp_path_factory: Any, calls: Any, group: int, batch: int, small: bool):
    root = Place(str(tmp_path_factory.mktemp("runs")))
    extents: dict[int, list[Extent]] = {}
    expected: dict[int, list[tuple[int, int]]] = {}
    row = 0
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"INPUT_GROUP_ROWS": group, "RUN_BYTES": 100 * batch, "_MERGE_ROWS": batch}.items():
            patch.setattr(ingest, name, value)
        for number, found in enumerate(calls):
            file = Segments(root).group_writer(f"{number}.parquet")
            with PartitionWriter(file, "rows", by_time=True) as writer:
                for time in found:
                    at = row % 2
                    writer.append(Records([None], [b"%d" % row], [time], None, [at], row))
                    expected.setdefault(at, []).append((time, row))
                    row += 1
            for _, partition, extent in file.written:
                extents.setdefault(partition.partition, []).append(extent)
        names = FileNames()
        packed = {number: Extents.of(found, names) for number, found in extents.items()}
        topic = SortedTopic("rows", pickle.loads(pickle.dumps(packed)), {0: 5})
        steps = sort_topics([topic], Segments(root), "sorted", 1 if small else 1000)
        try:
            works = next(steps)
            steps.send([run_merge(work) for work in works])
        except StopIteration:
            pass
    for number, own in expected.items():
        blocks = list(Segments(root).blocks(topic.extents[number]))
        assert [int(value or b"") for block in blocks for value in block.values] == [at for _, at in sorted(own)]
        first = 5 if number == 0 else 0
        assert [at for block in blocks for at in block.offsets] == list(range(first, first + len(own)))
