"""Records on disk: what a reader says of files that are not what they were."""

import pytest

from streams import TopicPartition
from streams.core.records import Block
from streams.replay.errors import ReplayError
from streams.replay.places import Place
from streams.replay.segments import ExtentReader, SegmentWriter

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def extents(tmp_path):
    with SegmentWriter(Place(str(tmp_path)), "orders.parquet") as writer:
        writer.append("source", ORDERS, Block([b"a", None], [b"1", None], [10, 20]))
    return [extent for _, _, extent in writer.written]


def test_records_are_read_as_they_were_written(tmp_path, extents):
    (block,) = ExtentReader(Place(str(tmp_path))).blocks(extents)

    assert list(block.rows()) == [(0, b"a", b"1", 10, ()), (1, None, None, 20, ())]


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"x" * len(data)]
)
def test_a_damaged_file_is_named(tmp_path, extents, damage):
    file = tmp_path / "orders.parquet"
    file.write_bytes(damage(file.read_bytes()))

    with pytest.raises(ReplayError, match=r"orders\.parquet: is damaged"):
        list(ExtentReader(Place(str(tmp_path))).blocks(extents))


def test_a_missing_file_is_named(tmp_path, extents):
    (tmp_path / "orders.parquet").unlink()

    with pytest.raises(ReplayError, match=r"orders\.parquet"):
        list(ExtentReader(Place(str(tmp_path))).blocks(extents))
