"""Records on disk: what a reader says of files that are not what they were."""

import pytest

from streams import TopicPartition
from streams.core.blocks.records import Block
from streams.replay.errors import ReplayError
from streams.replay.storage.places import Place
from streams.replay.storage.segments import Segments

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def extents(tmp_path):
    with Segments(Place(str(tmp_path))).writer("orders.parquet") as writer:
        writer.append("source", ORDERS, Block([b"a", None], [b"1", None], [10, 20]))
    return [extent for _, _, extent in writer.written]


def test_records_are_read_as_they_were_written(tmp_path, extents):
    (block,) = Segments(Place(str(tmp_path))).blocks(extents)

    assert list(block.rows()) == [(0, b"a", b"1", 10, ()), (1, None, None, 20, ())]


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"x" * len(data)]
)
def test_a_damaged_file_is_named(tmp_path, extents, damage):
    file = tmp_path / "orders.parquet"
    file.write_bytes(damage(file.read_bytes()))

    with pytest.raises(ReplayError, match=r"orders\.parquet: is damaged"):
        list(Segments(Place(str(tmp_path))).blocks(extents))


def test_a_missing_file_is_named(tmp_path, extents):
    (tmp_path / "orders.parquet").unlink()

    with pytest.raises(ReplayError, match=r"orders\.parquet"):
        list(Segments(Place(str(tmp_path))).blocks(extents))


def test_a_long_partition_lies_in_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr("streams.replay.storage.segments.GROUP_ROWS", 2)
    monkeypatch.setattr("streams.replay.storage.segments.GROUPS_PER_FILE", 2)
    keys = [b"%d" % number for number in range(9)]

    with Segments(Place(str(tmp_path))).writer("orders.parquet") as writer:
        writer.append("source", ORDERS, Block(keys, keys, range(9)))

    extents = [extent for _, _, extent in writer.written]
    blocks = list(Segments(Place(str(tmp_path))).blocks(extents))
    assert [extent.file for extent in extents] == [
        *["orders.parquet"] * 2,
        *["orders-1.parquet"] * 2,
        "orders-2.parquet",
    ]
    assert [key for block in blocks for key in block.keys] == keys
    assert [offset for block in blocks for offset in block.offsets] == list(range(9))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "orders-1.parquet",
        "orders-2.parquet",
        "orders.parquet",
    ]


def test_whole_files_and_no_more_are_left_after_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr("streams.replay.storage.segments.GROUP_ROWS", 2)
    monkeypatch.setattr("streams.replay.storage.segments.GROUPS_PER_FILE", 2)
    keys = [b"%d" % number for number in range(7)]

    with pytest.raises(KeyError), Segments(Place(str(tmp_path))).writer("orders.parquet") as writer:
        writer.append("source", ORDERS, Block(keys, keys, range(7)))
        raise KeyError

    assert [file.name for file in tmp_path.iterdir()] == ["orders.parquet"]


def test_small_ranges_of_several_producers_share_a_row_group(tmp_path):
    others = [TopicPartition("orders", number) for number in range(3)]
    with Segments(Place(str(tmp_path))).writer("orders.parquet") as writer:
        for number, partition in enumerate(reversed(others)):
            for producer in ("0_1", "0_0"):
                writer.start_at("repartition", partition, 5, producer)
                keys = [f"{producer}-{number}".encode()] * (number + 1)
                writer.append("repartition", partition, Block(keys, keys, range(number + 1)), producer)
    extents = [extent for _, _, extent in writer.written]
    assert [extent.group for extent in extents] == [0] * 6
    assert [partition.partition for _, partition, _ in writer.written] == [0, 0, 1, 1, 2, 2]

    reader = Segments(Place(str(tmp_path))).reader(keeps_open=True)
    for _, partition, extent in writer.written_by("0_1"):
        (block,) = reader.blocks([extent])
        rows = 3 - partition.partition
        assert block.keys == [f"0_1-{rows - 1}".encode()] * rows
        assert list(block.offsets) == list(range(5, 5 + rows))
        assert list(block.timestamps) == list(range(rows))
        assert (extent.lowest_ms, extent.highest_ms) == (0, rows - 1)
    reader.close()
