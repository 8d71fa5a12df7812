"""Lanes of a repartition topic: written together by tasks, read as one input in the order of a task."""

import random
from pathlib import Path

import pytest

from streams.core.records import Block, TopicPartition
from streams.replay.storage.lanes import merged_lanes
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Extent, ExtentReader, SegmentWriter
from streams.runtime import merge_lanes

TOPIC = "lanes"


def _written(root: Place, rng: random.Random, lanes: int, tasks: int) -> dict[int, list[Extent]]:
    """Write records of tasks to lanes, of which each belongs to one task, in two files; return the extents by lane."""
    ends: dict[int, int] = {}
    extents: dict[int, list[Extent]] = {}
    for number in range(2):
        with SegmentWriter(root, f"file-{number}.parquet") as writer:
            for task in range(tasks):
                own = range(task, lanes, tasks)
                for lane in own:
                    writer.start_at("repartition", TopicPartition(TOPIC, lane), ends.get(lane, 0), str(task))
                for _ in range(3):
                    numbers = [rng.choice(own) for _ in range(rng.choice((1, 20, 400)))]
                    size = len(numbers)
                    keys = [b"%d" % rng.randrange(1000) for _ in numbers]
                    times = [rng.randrange(50) for _ in numbers]
                    headers = [(("h", b"1"),)] * size if rng.random() < 0.3 else None
                    writer.scatter("repartition", TOPIC, numbers, Block(keys, keys, times, headers), str(task))
        for _, partition, extent in writer.written:
            extents.setdefault(partition.partition, []).append(extent)
            ends[partition.partition] = extent.last + 1
    return extents


def _rows(blocks: list[Block]) -> list[object]:
    return [row[1:] for block in blocks for row in block.rows()]


@pytest.mark.parametrize("seed", range(5))
def test_lanes_are_merged_in_the_order_of_a_task(seed: int, tmp_path: Path) -> None:
    """Reading goes on from any position in each lane."""
    rng = random.Random(seed)
    root = Place(str(tmp_path))
    extents = _written(root, rng, lanes=rng.choice((2, 12, 100)), tasks=2)
    lanes = [(found, rng.randrange(found[-1].last + 2)) for _, found in sorted(extents.items())]

    merged = list(merged_lanes(ExtentReader(root), lanes))
    expected = list(merge_lanes([ExtentReader(root).blocks(found, position) for found, position in lanes]))

    assert _rows(merged) == _rows(expected)


def test_scattered_records_get_the_offsets_of_their_lanes(tmp_path: Path) -> None:
    root = Place(str(tmp_path))
    extents = _written(root, random.Random(7), lanes=30, tasks=3)

    for found in extents.values():
        offsets = [offset for block in ExtentReader(root).blocks(found) for offset in block.offsets]
        in_files = [offset for extent in found for offset in ExtentReader(root).rows(extent).offsets]
        assert offsets == in_files == list(range(len(offsets)))
