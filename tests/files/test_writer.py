"""Output files: what is written is read again as it was."""

import json
import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks.records import Block, Headers, Window, Windowed
from streams.core.serdes.serdes import PinnedSerde, session_windowed, time_windowed
from streams.core.topic import Topic
from streams.files import OutputError, open_input, open_output

SECOND = timedelta(seconds=1)


@frozen
class Order:
    """A typed value."""

    product: str
    prices: list[float]
    at: datetime
    note: str | None = None
    extra: dict[str, int] | None = None


def block(topic: Topic[Any, Any], *rows: tuple[Any, Any, int], headers: list[Headers] | None = None) -> Block:
    return Block(
        topic.key_serde.serialize_all([row[0] for row in rows]),
        topic.value_serde.serialize_all([row[1] for row in rows]),
        [row[2] for row in rows],
        headers,
        range(len(rows)),
    )


def written(topic: Topic[Any, Any] | None, path: Path, *blocks: tuple[int, Block]) -> str:
    open_output(topic, path).write(blocks)
    return path.read_text()


def test_records_are_one_json_object_a_line(tmp_path: Path) -> None:
    topic = Topic("t", key=time_windowed(str, SECOND), value=dict[str, int])
    key = Windowed("a", Window(0, 1000))

    text = written(topic, tmp_path / "a.records.jsonl", (3, block(topic, (key, {"b": 1, "a": 2}, 7), (key, None, 8))))

    assert [json.loads(line) for line in text.splitlines()] == [
        {
            "key": {"key": "a", "start": 0, "end": 1000},
            "value": {"b": 1, "a": 2},
            "timestamp": 7,
            "headers": [],
            "partition": 3,
        },
        {"key": {"key": "a", "start": 0, "end": 1000}, "value": None, "timestamp": 8, "headers": [], "partition": 3},
    ]


def test_json_lines_are_the_values_only_if_asked_or_without_keys(tmp_path: Path) -> None:
    topic = Topic("t", key=str, value=int)

    blocks = [(0, block(topic, ("a", 1, 0))), (1, block(topic, ("b", 2, 0)))]

    open_output(topic, tmp_path / "a.jsonl", "value").write(blocks)
    open_output(Topic("t", value=int), tmp_path / "b.jsonl").write(blocks)

    assert (tmp_path / "a.jsonl").read_text() == (tmp_path / "b.jsonl").read_text() == "1\n2\n"


def test_json_lines_of_a_topic_with_keys_are_whole_records(tmp_path: Path) -> None:
    topic = Topic("t", key=str, value=int)
    records = (0, block(topic, ("a", 1, 0)))

    assert written(topic, tmp_path / "a.jsonl", records) == written(topic, tmp_path / "a.records.jsonl", records)


def test_topics_that_nobody_declared_are_text_or_hex(tmp_path: Path) -> None:
    raw = Block([b"k", None], ["é".encode(), b"\xff"], [1, 2], [(("h", b"\xfe"), ("n", None)), ()], range(2))

    lines = written(None, tmp_path / "a.records.jsonl", (0, raw)).splitlines()

    assert json.loads(lines[0])["value"] == "é"
    assert json.loads(lines[0])["headers"] == [["h", {"$hex": "fe"}], ["n", None]]
    assert json.loads(lines[1])["value"] == {"$hex": "ff"}


def test_bytes_that_the_serde_does_not_read_are_hex(tmp_path: Path) -> None:
    raw = Block([None], [b"\x00"], [1], None, range(1))

    assert json.loads(written(Topic("t", value=int), tmp_path / "a.records.jsonl", (0, raw)))["value"] == {"$hex": "00"}


def test_objects_of_types_that_nobody_declared_look_like_declared_ones(tmp_path: Path) -> None:
    topic: Topic[Any, Any] = Topic("t", key=PinnedSerde("count"), value=PinnedSerde("count"))
    rows = block(topic, (Windowed("a", Window(0, 1000)), b"\x00\xff", 7))

    record = json.loads(written(topic, tmp_path / "a.records.jsonl", (0, rows)))

    assert record["key"] == {"key": "a", "start": 0, "end": 1000}
    assert record["value"] == {"$hex": "00ff"}


def test_parquet_has_columns_of_the_topics_types(tmp_path: Path) -> None:
    topic = Topic("t", key=session_windowed(str), value=Order)
    at = datetime(2024, 1, 1, tzinfo=UTC)
    key = Windowed("a", Window(5, 9))
    order = Order("tea", [1.5], at, extra={"x": 1})

    open_output(topic, tmp_path / "a.parquet").write(
        [(1, block(topic, (key, order, 7), headers=[(("h", b"x"),)])), (2, block(topic, (key, None, 8)))]
    )

    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == [
        {
            "key": {"key": "a", "start": 5, "end": 9},
            "value": {"product": "tea", "prices": [1.5], "at": at, "note": None, "extra": [("x", 1)]},
            "timestamp": 7,
            "headers": [{"name": "h", "value": b"x"}],
            "partition": 1,
            "offset": 0,
        },
        {
            "key": {"key": "a", "start": 5, "end": 9},
            "value": None,
            "timestamp": 8,
            "headers": [],
            "partition": 2,
            "offset": 0,
        },
    ]


def test_parquet_values_without_fixed_columns_are_json_text(tmp_path: Path) -> None:
    topic = Topic("t", key=int, value=dict[str, Any])

    open_output(topic, tmp_path / "a.parquet.gz").write([(0, block(topic, (1, {"a": [1]}, 7)))])

    assert pq.read_table(open_unpacked(tmp_path / "a.parquet.gz")).to_pylist()[0]["value"] == '{"a":[1]}'


def open_unpacked(path: Path) -> Path:
    import gzip

    target = path.with_suffix("")
    target.write_bytes(gzip.decompress(path.read_bytes()))
    return target


@pytest.mark.parametrize("name", ["a.records.jsonl", "a.jsonl", "a.parquet", "a.jsonl.gz"])
def test_a_failing_run_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    topic = Topic("t", value=int)
    (tmp_path / name).write_text("old")

    def failing() -> Iterator[tuple[int, Block]]:
        yield 0, block(topic, (None, 1, 0))
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        open_output(topic, tmp_path / name).write(failing())

    assert (tmp_path / name).read_text() == "old"
    assert os.listdir(tmp_path) == [name]


def test_an_output_that_cannot_be_written_is_said_before_the_run(tmp_path: Path) -> None:
    topic = Topic("t", value=int)
    (tmp_path / "folder.jsonl").mkdir()

    with pytest.raises(OutputError, match=r"there is no folder '.*nowhere'"):
        open_output(topic, tmp_path / "nowhere" / "a.jsonl")
    with pytest.raises(OutputError, match="is a directory"):
        open_output(topic, tmp_path / "folder.jsonl")
    with pytest.raises(OutputError, match=r"\.csv files are read only; outputs are \.records\.jsonl, \.jsonl"):
        open_output(topic, tmp_path / "a.csv")
    with pytest.raises(OutputError, match="its suffix is not of a known kind of file"):
        open_output(topic, tmp_path / "a.out")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    topic = Topic("t", value=int)
    output = open_output(topic, tmp_path / "a.jsonl")
    (tmp_path / f".a.jsonl.{os.getpid()}.part").symlink_to("/dev/full")

    with pytest.raises(OutputError, match=r"a\.jsonl: cannot be written: No space left on device"):
        output.write([(0, block(topic, (None, 1, 0)))])

    assert os.listdir(tmp_path) == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS_AND_VALUES = [
    (str, st.text()),
    (int, st.integers(-(2**63), 2**63 - 1)),
    (float, st.floats(allow_nan=False)),
    (bool, st.booleans()),
    (bytes, st.binary()),
    (uuid.UUID, st.uuids()),
    (datetime, st.datetimes(timezones=st.just(UTC))),
    (Any, JSON.filter(lambda value: value is not None)),
    (dict[str, int], st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1))),
    (
        time_windowed(int, SECOND),
        st.builds(
            lambda key, start: Windowed(key, Window(start, start + 1000)),
            st.integers(-100, 100),
            st.integers(0, 10**13),
        ),
    ),
    (
        session_windowed(str),
        st.builds(
            lambda key, start, length: Windowed(key, Window(start, start + length)),
            st.text(),
            st.integers(0, 10**13),
            st.integers(0, 10**9),
        ),
    ),
]
HEADERS = st.lists(st.tuples(st.text(), st.none() | st.binary()), max_size=3).map(tuple)


@st.composite
def topics_with_blocks(draw: st.DrawFn) -> tuple[Topic[Any, Any], list[tuple[int, Block]]]:
    key, keys = draw(st.sampled_from(KEYS_AND_VALUES))
    value, values = draw(st.sampled_from(KEYS_AND_VALUES))
    topic = Topic("t", key=key, value=value)
    blocks = []
    for partition in range(draw(st.integers(1, 3))):
        rows = draw(
            st.lists(st.tuples(st.none() | keys, st.none() | values, st.integers(0, 2**62)), min_size=1, max_size=5)
        )
        headers = draw(st.none() | st.lists(HEADERS, min_size=len(rows), max_size=len(rows)))
        blocks.append((partition, block(topic, *rows, headers=headers)))
    return topic, blocks


@given(topics_with_blocks(), st.sampled_from(["", ".gz", ".bz2", ".zst"]))
def test_whole_records_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, topic_and_blocks: Any, suffix: str
) -> None:
    topic, blocks = topic_and_blocks
    path = tmp_path_factory.mktemp("round") / f"a.records.jsonl{suffix}"

    open_output(topic, path).write(blocks)

    read = [
        (partition, *row[1:])
        for batch in open_input(topic, path)(len(blocks), 0)
        for partition, found in batch
        for row in found.rows()
    ]
    assert read == [(partition, *row[1:]) for partition, part in blocks for row in part.rows()]


@given(topics_with_blocks())
def test_values_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, topic_and_blocks: Any) -> None:
    topic, blocks = topic_and_blocks
    path = tmp_path_factory.mktemp("round") / "a.jsonl"

    open_output(topic, path, "value").write(blocks)

    read = [value for batch in open_input(topic, path)(1, 0) for _, found in batch for value in found.values]
    assert read == [value for _, part in blocks for value in part.values]
