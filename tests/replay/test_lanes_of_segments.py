"""Lanes of a repartition topic: written together by tasks, read as one input in the order of a task."""

import json
import pickle
import random
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from streams import StreamsBuilder, Topic
from streams.core.blocks.records import NO_LANE, Block, Lanes
from streams.replay import replay
from streams.replay.run import drive
from streams.replay.storage.lanes import LaneRanges, LaneTable, packed, unpacked
from streams.replay.storage.places import Place
from streams.replay.storage.segments import MergedLanes, Segments, extents_of
from streams.runtime import merge_lanes

TOPIC = "lanes"


def _written(root: Place, rng: random.Random, lanes: int, tasks: int) -> LaneRanges:
    """Write records of tasks to lanes, of which each belongs to one task, in two files; return their ranges."""
    table = LaneTable()
    reached = [0] * tasks
    for number in range(2):
        with Segments(root).writer(f"file-{number}.parquet", has_places=True) as writer:
            ends = table.ends_of(0, 1)
            writer.start_lanes(TOPIC, lanes, tasks)[: len(ends)] = ends
            for task in range(tasks):
                for _ in range(3):
                    numbers = [rng.choice(range(task, lanes, tasks)) for _ in range(rng.choice((1, 20, 400)))]
                    size = len(numbers)
                    keys = [b"%d" % rng.randrange(1000) for _ in numbers]
                    times = [rng.randrange(50) for _ in numbers]
                    headers = [(("h", b"1"),)] * size if rng.random() < 0.3 else None
                    places = list(accumulate((rng.choice((0, 0, 1, 5)) for _ in numbers), initial=reached[task]))[1:]
                    reached[task] = places[-1]
                    rows = Lanes([NO_LANE] * size, places)
                    writer.scatter(TOPIC, np.array(numbers), Block(keys, keys, times, headers, lanes=rows))
        table.add(writer.lanes()[TOPIC])
    return LaneTable.from_json(json.loads(json.dumps(table.to_json()))).ranges


def _rows(blocks: list[Block]) -> list[object]:
    return [row[1:] for block in blocks for row in block.rows()]


@pytest.mark.parametrize("seed", range(5))
def test_lanes_are_merged_in_the_order_of_a_task(seed: int, tmp_path: Path) -> None:
    """Reading goes on from any position in each lane."""
    rng = random.Random(seed)
    root = Place(str(tmp_path))
    ranges = _written(root, rng, lanes=rng.choice((2, 12, 100)), tasks=2)
    extents = extents_of(pickle.loads(pickle.dumps(ranges)))
    positions = [rng.randrange(extents[lane][-1].last + 2) if lane in extents else 0 for lane in range(100)]
    lanes = [(found, positions[lane]) for lane, found in sorted(extents.items())]

    merged = list(MergedLanes.read(Segments(root).reader(), ranges, 0, np.array(positions)).blocks())
    expected = list(merge_lanes([Segments(root).blocks(found, position) for found, position in lanes]))

    assert _rows(merged) == _rows(expected)


@pytest.mark.parametrize("seed", range(5))
def test_lanes_are_read_as_far_as_their_order_is_certain(seed: int, tmp_path: Path) -> None:
    """Slices that go on from where earlier ones ended read all records in the order of a whole run."""
    rng = random.Random(seed)
    root = Place(str(tmp_path))
    count = rng.choice((2, 6, 12))
    ranges = _written(root, rng, lanes=count, tasks=2)
    reader = Segments(root).reader()
    whole = _rows(list(MergedLanes.read(reader, ranges, 0, np.zeros(count, dtype=np.int64)).blocks()))

    found: list[object] = []
    positions = np.zeros(count, dtype=np.int64)
    for slice_ in range(4):
        # The first slices know a part of each lane only.
        ends = [extents[-1].last + 1 for _, extents in sorted(extents_of(ranges).items())]
        known = [rng.randrange(end + 1) for end in ends] if slice_ < 3 else ends
        lanes = MergedLanes.read(reader, _up_to(ranges, known), 0, positions, is_ended=slice_ == 3)
        taken = rng.randrange(len(lanes) + 1) if slice_ < 3 else len(lanes)
        found += _rows(list(lanes.blocks()))[:taken]
        positions = lanes.positions_after(taken)

    assert found == whole
    assert positions.tolist() == ends


def _up_to(ranges: LaneRanges, ends: list[int]) -> LaneRanges:
    """Return the records of each lane before an offset."""
    columns = ranges.columns.copy()
    columns[2] = np.minimum(columns[2], np.array(ends)[columns[0]] - columns[1])
    return LaneRanges(ranges.files, columns[:, columns[2] > 0])


def test_scattered_records_get_the_offsets_of_their_lanes(tmp_path: Path) -> None:
    root = Place(str(tmp_path))
    extents = extents_of(_written(root, random.Random(7), lanes=30, tasks=3))

    for found in extents.values():
        offsets = [offset for block in Segments(root).blocks(found) for offset in block.offsets]
        in_files = [offset for extent in found for offset in Segments(root).reader().rows(extent).offsets]
        assert offsets == in_files == list(range(len(offsets)))


@pytest.mark.parametrize("seed", range(3))
def test_columns_are_packed_without_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for rows in (np.zeros((6, 0), dtype=np.int64), rng.integers(-(1 << 50), 1 << 50, (3, 40)), np.arange(10)[None, :]):
        assert np.array_equal(unpacked(packed(rows), len(rows)), rows)


def test_ranges_that_were_read_are_forgotten(tmp_path: Path) -> None:
    """A range that was read in part stays, with the file that has it."""
    table = LaneTable()
    table.add(LaneRanges(("a", "b"), np.array([[0, 1, 1], [0, 0, 5], [9, 5, 5], [0, 0, 1], [0, 0, 0], [0, 9, 0]])))
    table.read(0, np.array([9, 7]))

    table.forget_read()

    assert table.ranges.files == ("b",)
    assert table.ranges.columns.T.tolist() == [[1, 5, 5, 0, 0, 0]]
    assert table.ends.tolist() == [9, 10]
    assert table.moved({"b": "c"}).ranges.files == ("c",)


@pytest.mark.parametrize("lanes", [2, 40])
def test_records_that_a_task_has_in_memory_do_not_grow_with_the_lanes(
    lanes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All records have one key behind the repartition topic, so that its task reads many of each lane."""
    monkeypatch.setattr(drive, "_MERGED_ROWS", 200)
    monkeypatch.setattr(drive, "_BLOCK_RECORDS", 200)
    waiting: list[int] = []

    def feed(run: drive.TaskRun) -> bool:
        progressed = real(run)
        waiting.append(sum(queue.size for queue in run.queues))
        return progressed

    real = drive.TaskRun.feed
    monkeypatch.setattr(drive.TaskRun, "feed", feed)
    numbers = Topic("numbers", key=str, value=int)
    totals = Topic("totals", key=str, value=int)

    def topology(builder: StreamsBuilder) -> None:
        by_one = builder.stream(numbers).select_key(lambda _key, _value: "one").repartition("by-one").group_by_key()
        by_one.reduce(lambda one, other: one + other, name="sums").to_stream().to(totals)

    history = tmp_path / "numbers.records.jsonl"
    records = ({"key": f"k{number}", "value": number, "timestamp": number} for number in range(4000))
    history.write_text("".join(json.dumps(record) + "\n" for record in records))

    with replay(topology, {numbers: history}, executor="local", partitions=lanes, application_id="a") as result:
        assert [record.value for record in result.rows(totals)] == list(accumulate(range(4000)))
    assert max(waiting[lanes:]) <= 3 * 200
