"""Input files: each row one record, and a bad row said with its place."""

import bz2
import gzip
import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen

from streams.core.blocks.partitioning import partition_for
from streams.core.clock import VirtualClock
from streams.core.errors import InputError
from streams.core.topic import Topic
from streams.files import open_input
from streams.files.lines import BATCH_ROWS

NOW = 1_700_000_000_000


@frozen
class Reading:
    """A typed row."""

    station: str
    at: datetime
    celsius: float | None
    gust: int = 0


def records(topic: Topic[Any, Any], path: Path, partitions: int = 1, skip: int = 0, **more: Any) -> list[Any]:
    """(partition, key, value, timestamp_ms) of all records, in row order."""
    reader = open_input(topic, path, clock=VirtualClock(NOW), **more)
    rows = []
    for batch in reader(partitions, skip):
        for partition, block in batch:
            for row, key, value, timestamp, _ in block.rows():
                rows.append((row, partition, key, value, timestamp))
    return [row[1:] for row in sorted(rows, key=lambda row: row[0])]


def values(topic: Topic[Any, Any], path: Path, **more: Any) -> list[Any]:
    return [topic.value_serde.deserialize(value) for _, _, value, _ in records(topic, path, **more)]


#: What other programs compress, by suffix.
PACKED: dict[str, Any] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(name: str, content: str | bytes) -> Path:
        data = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.write_bytes(PACKED.get(path.suffix, bytes)(data))
        return path

    return write


@pytest.mark.parametrize("suffix", PACKED)
def test_lines_of_text_are_string_values(write: Any, suffix: str) -> None:
    path = write(f"a.log{suffix}", "one\r\n\ntwo é")

    assert values(Topic("t", value=str), path) == ["one", "", "two é"]


@pytest.mark.parametrize(
    ("kind", "lines", "expected"),
    [
        (int, "1\n-2\nnull\n", [1, -2, None]),
        (str, '"a"\n\n  "b"  \n', ["a", "b"]),
        (float, "1\n2.5\n", [1.0, 2.5]),
        (bytes, '{"$hex": "00ff"}\n"text"', [b"\x00\xff", b"text"]),
        (dict, '{"b": 1, "a": [2]}', [{"b": 1, "a": [2]}]),
        (Any, '1\n"x"\nnull\n', [1, "x", None]),
        (
            Reading,
            '{"station": "A", "at": "2024-01-01T00:00:00Z", "celsius": null}',
            [Reading("A", datetime(2024, 1, 1, tzinfo=UTC), None)],
        ),
    ],
)
def test_json_lines_have_the_topics_type(write: Any, kind: Any, lines: str, expected: list[Any]) -> None:
    assert values(Topic("t", value=kind), write("a.jsonl", lines)) == expected


def test_cells_of_csv_are_strings_or_converted_to_the_topics_type(write: Any) -> None:
    path = write("a.csv", '\ufeffstation,at,celsius,gust\nA,2024-01-01T00:00:00Z,1.5,7\n"B ""x""\ny",2024-01-02,,\n')

    assert values(Topic("t", value=dict[str, str]), path)[1]["station"] == 'B "x"\ny'
    with pytest.raises(InputError, match=r"a\.csv:3: .*datetime"):
        values(Topic("t", value=Reading), path)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("inside", ["\n", "\r\n", "\r", "\r\r\n"])
def test_line_ends_within_cells_of_csv_are_read_as_they_are(tmp_path: Path, line_end: bytes, inside: str) -> None:
    path = tmp_path / "a.csv"
    rows = ["a,b", f'"1{inside}2",x', f'y,"{inside}"', "z,3"]
    path.write_bytes(line_end.join(row.encode() for row in rows) + line_end)

    found = values(Topic("t", value=dict[str, str]), path)

    assert found == [{"a": f"1{inside}2", "b": "x"}, {"a": "y", "b": inside}, {"a": "z", "b": "3"}]


@pytest.mark.parametrize("before", [b"z\n", b"x" * ((1 << 19) - 2)])
def test_line_ends_of_windows_are_none_of_a_text_wherever_they_are(tmp_path: Path, before: bytes) -> None:
    """Also if the first and last line of a chunk have others, and if a chunk ends between return and line feed."""
    path = tmp_path / "a.log"
    path.write_bytes(before + b"a\r\nb\r\nc\rd\ne\n")

    assert values(Topic("t", value=str), path) == [*f"{before.decode()}a".split("\n"), "b", "c\rd", "e"]


def test_empty_cells_are_missing_where_the_type_is_no_text(write: Any) -> None:
    path = write("a.csv", "station,at,celsius,gust\n,2024-01-01T00:00:00Z,,\n")

    assert values(Topic("t", value=Reading), path) == [Reading("", datetime(2024, 1, 1, tzinfo=UTC), None, 0)]


@pytest.mark.parametrize("suffix", PACKED)
def test_rows_of_parquet_are_dicts(tmp_path: Path, suffix: str) -> None:
    at = datetime(2024, 1, 1, 12, tzinfo=UTC)
    table = pa.table(
        {
            "station": ["A", "B"],
            "at": pa.array([at, at], pa.timestamp("ns", "America/New_York")),
            "celsius": [1.5, None],
        }
    )
    plain = tmp_path / "a.parquet"
    pq.write_table(table, plain)
    path = tmp_path / f"a.parquet{suffix}"
    path.write_bytes(PACKED[suffix](plain.read_bytes()))

    assert values(Topic("t", value=Reading), path)[0] == Reading("A", at, 1.5)
    pq.write_table(table.drop(["at"]), plain)
    assert values(Topic("t", value=dict[str, Any]), plain) == [
        {"station": "A", "celsius": 1.5},
        {"station": "B", "celsius": None},
    ]


@frozen
class _Loose:
    anything: Any
    more: dict


@pytest.mark.parametrize(
    ("column", "part", "kind"),
    [
        (pa.array([Decimal("1.50")]), "", "decimal128(3, 2), which JSON has not"),
        (pa.array([datetime(2024, 1, 1)]), "", "timestamp[us], which JSON has not"),
        (pa.array([b"x"]), "", "binary, which JSON has not"),
        (pa.array([[date(2024, 1, 1)]]), "[]", "date32[day], which JSON has not"),
        (pa.array([{"b": timedelta(1)}]), ".b", "duration[us], which JSON has not"),
        (pa.array([[(1, "x")]], pa.map_(pa.int64(), pa.string())), " (keys)", "int64, but is declared as str"),
    ],
)
@pytest.mark.parametrize(("value", "name"), [(dict, "a"), (Any, "a"), (_Loose, "anything"), (_Loose, "more.a")])
def test_columns_that_json_has_not_are_refused_where_no_type_is_declared(
    tmp_path: Path, value: Any, name: str, column: Any, part: str, kind: str
) -> None:
    """They became text without a word: the sum of two decimals was their texts, joined."""
    columns = {"anything": pa.array([1]), "more": pa.array([{"x": 1}])}
    outer, _, inner = name.partition(".")
    columns[outer] = pa.StructArray.from_arrays([column], [inner]) if inner else column
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")

    with pytest.raises(InputError, match=re.escape(f"column '{name}{part}' is {kind}")):
        values(Topic("t", value=value), tmp_path / "a.parquet")


def test_whole_records_keep_key_time_headers_and_partition(write: Any) -> None:
    path = write(
        "a.records.jsonl",
        '{"key": "k", "value": 1, "timestamp": 5, "headers": [["h", "x"], ["n", null]], "partition": 2}\n'
        '{"value": null, "key": "k"}\n'
        '{"key": null, "value": 3, "headers": null}\n',
    )
    topic = Topic("t", key=str, value=int)

    ((_, second),) = [part for part in next(open_input(topic, path)(4, 0)) if part[0] == 2]
    assert second.headers == [(("h", b"x"), ("n", None)), ()]
    assert records(topic, path, partitions=4) == [
        (2, b"k", bytes(7) + b"\x01", 5),
        (partition_for(b"k", 4), b"k", None, NOW),
        (2, None, bytes(7) + b"\x03", NOW),
    ]


def test_keyless_rows_go_round_and_keys_of_the_value_are_hashed(write: Any) -> None:
    path = write("a.jsonl", "\n".join(json.dumps({"id": f"k{i % 5}"}) for i in range(20)))
    plain = Topic("t", value=dict[str, str])
    keyed = Topic("t", key=str, value=dict[str, str], key_from=lambda row: row["id"])

    assert [row[0] for row in records(plain, path, partitions=3)] == [i % 3 for i in range(20)]
    assert all(row[0] == partition_for(row[1], 3) for row in records(keyed, path, partitions=3))


def test_time_comes_from_the_value(write: Any) -> None:
    path = write("a.csv", "at\n1970-01-01T00:00:01\n")
    topic = Topic("t", value=dict[str, str], timestamp=lambda row: datetime.fromisoformat(row["at"]))

    assert records(topic, path)[0][3] == 1000


@pytest.mark.case(6)
@pytest.mark.parametrize("name", ["a.log", "a.jsonl", "a.csv", "a.parquet", "a.records.jsonl"])
@pytest.mark.parametrize("skip", [0, 1, BATCH_ROWS - 1, BATCH_ROWS, 2 * BATCH_ROWS + 5, 9_000, 9_001])
def test_reading_goes_on_after_any_row(tmp_path: Path, name: str, skip: int) -> None:
    count = 9_000
    lines = {
        "a.log": (str(i) for i in range(count)),
        "a.jsonl": (f"{i}\n" if i % 3 else str(i) for i in range(count)),
        "a.csv": (str(i) for i in range(-1, count)),
        "a.records.jsonl": (f'{{"value": {i}}}' for i in range(count)),
    }
    if name == "a.parquet":
        pq.write_table(pa.table({"-1": list(range(count))}), tmp_path / name, row_group_size=2000)
    else:
        (tmp_path / name).write_text("\n".join(lines[name]))
    topic = Topic("t", value=Any)

    found = records(topic, tmp_path / name, partitions=3, skip=skip)

    assert [row[0] for row in found] == [i % 3 for i in range(skip, count)]
    numbers = [json.loads(row[2]) for row in found]
    assert [int(n["-1"] if isinstance(n, dict) else n) for n in numbers] == list(range(skip, count))


BAD = [
    (dict, "a.jsonl", '{}\n{"a\n{}\n', r"a\.jsonl:2: not JSON"),
    (int, "a.jsonl", "1\n\n2.5\n3\n", r"a\.jsonl:3: .*expected `int`, got `float`"),
    (str, "a.jsonl", '"a"\n5\n"b"\n', r"a\.jsonl:2: .*expected `str`"),
    (str, "a.jsonl", '"a"\n"abc\n"b"\n', r"a\.jsonl:2: not JSON"),
    (dict[str, int], "a.jsonl", '{}\n{"a": "x"}\n{}\n', r"a\.jsonl:2: .*`int`"),
    (str, "a.log", b"a\n\xff\xfe\nb\n", r"a\.log:2: not UTF-8"),
    (dict[str, str], "a.csv", "x,y\n1,2\n3\n4,5\n", r"a\.csv:3: the row has 1 cells, the header 2"),
    (int, "a.records.jsonl", '{"value": 1}\n{"valu": 2}\n{"value": 3}\n', r"a\.records\.jsonl:2: .*`valu`"),
    (int, "a.records.jsonl", '{"value": 1}\n{"value": {"$hex": "00"}}\n{"value": 3}\n', r"jsonl:2: serde 'long'"),
    (int, "a.records.jsonl", '{"value": 1}\n{"value": 1, "timestamp": null}\n{"value": 3}\n', r":2: .*epoch milli"),
    (int, "a.records.jsonl", '{"value": 1}\n{"value": 1, "timestamp": -5}\n{"value": 3}\n', r":2: timestamp -5"),
    (int, "a.records.jsonl", '{"value": 1}\n{"value": 1, "partition": 9}\n{"value": 3}\n', r":2: partition 9, but"),
]


@pytest.mark.parametrize(("kind", "name", "content", "message"), BAD)
def test_a_bad_row_ends_the_input_after_the_rows_before_it(
    write: Any, kind: Any, name: str, content: str, message: str
) -> None:
    topic = Topic("t", value=kind)
    reader = open_input(topic, write(name, content))(1, 0)

    ((_, before),) = next(reader)
    with pytest.raises(InputError, match=message) as caught:
        next(reader)

    assert len(before) == 1
    assert "deserialization_handler=continue" in str(caught.value)


@pytest.mark.parametrize(("kind", "name", "content", "message"), BAD)
def test_a_bad_row_is_handed_over_unreadable_and_keeps_its_number(
    write: Any, kind: Any, name: str, content: str, message: str
) -> None:
    serde = Topic("t", value=kind).value_serde

    found = records(Topic("t", value=kind), write(name, content), partitions=3, on_bad_row="continue")

    assert [row[0] for row in found] == [0, 1, 2]
    serde.deserialize(found[0][2])
    with pytest.raises(Exception, match="cannot read"):
        serde.deserialize(found[1][2])
    serde.deserialize(found[2][2])


@pytest.mark.parametrize(
    ("row", "has_hint"),
    [
        ('{"key": "a", "value": 1, "timestamp": 5}', True),
        ('{"value": 1, "timestamp": 5}', True),
        ('{"key": "a", "value": 1, "at": 5}', False),
        ('{"key": "a", "value": 1}', False),
        ('"a"', False),
    ],
)
def test_a_record_in_a_file_of_values_is_refused_with_the_suffix_of_files_of_records(
    write: Any, row: str, has_hint: bool
) -> None:
    path = write("a.jsonl", f"1\n{row}\n")

    with pytest.raises(InputError, match=r"a\.jsonl:2: .*expected `int`") as caught:
        list(open_input(Topic("t", value=int), path)(1, 0))

    assert ("its name ends with .records.jsonl;" in str(caught.value)) == has_hint


@pytest.mark.parametrize("time", [lambda row: row["at"], lambda row: row["missing"]])
def test_a_row_without_valid_time_is_a_bad_row(write: Any, time: Any) -> None:
    path = write("a.jsonl", '{"at": null}\n')

    with pytest.raises(InputError, match=r"a\.jsonl:1: topic 't': the timestamp extractor failed"):
        records(Topic("t", value=dict[str, Any], timestamp=time), path)


def test_a_key_that_cannot_be_made_is_a_bad_row(write: Any) -> None:
    path = write("a.jsonl", "{}\n")

    with pytest.raises(InputError, match=r"a\.jsonl:1: key_from of topic 't' failed: KeyError: 'id'"):
        records(Topic("t", key=str, value=dict[str, str], key_from=lambda row: row["id"]), path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.xml",
            b"",
            r"a\.xml: its suffix is not of a known kind of file; known are \.records\.jsonl, \.jsonl, \.ndjson, \.json",
        ),
        ("a.jsonl", gzip.compress(b"1", mtime=0), r"a\.jsonl: is compressed with gzip; rename it to a\.jsonl\.gz"),
        ("a.jsonl.gz", bz2.compress(b"1"), r"not compressed with gzip, as its name says; .* ends with \.bz2"),
        ("a.jsonl", b'1\n{"a":"\\ud83d"}\n', r"a\.jsonl:2: not JSON: \\ud83d is half of a pair of surrogates"),
        ("a.jsonl", b'1\n{"a":"\xe4b"}\n', r"a\.jsonl:2: not UTF-8: invalid continuation byte at byte 6"),
        ("a.json", b"[1, 2", r"a\.json: is not JSON as a whole: Input data was truncated; .* give it as jsonl"),
        ("a.parquet", b"", r"a\.parquet: row 1: not a whole Parquet file"),
        ("a.parquet", b"PAR1 nonsense", r"a\.parquet: row 1: not a whole Parquet file"),
        ("a.csv", b"a,a\n1,2\n", r"a\.csv:1: column 'a' stands twice in the header"),
        ("a.csv", b'a\n1\n"2\n3\n', r"a\.csv:3: the row that begins here is not CSV"),
    ],
)
def test_a_file_that_is_not_what_it_should_be(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InputError, match=message):
        records(Topic("t", value=Any), tmp_path / name)


def test_a_missing_file_is_said_with_a_similar_name(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").touch()
    (tmp_path / "folder.jsonl").mkdir()
    topic = Topic("t", value=Any)

    with pytest.raises(InputError, match=r"there is no such file; did you mean '.*orders\.jsonl'"):
        open_input(topic, tmp_path / "order.jsonl")
    with pytest.raises(InputError, match=r"its folder '.*nowhere' does not exist"):
        open_input(topic, tmp_path / "nowhere" / "a.jsonl")
    with pytest.raises(InputError, match="is a directory"):
        open_input(topic, tmp_path / "folder.jsonl")
    with pytest.raises(InputError, match="is a folder; give one of its files"):
        open_input(topic, tmp_path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
def test_a_compressed_file_that_is_none_or_cut_off(tmp_path: Path, suffix: str) -> None:
    topic = Topic("t", value=str)
    (tmp_path / f"a.log{suffix}").write_text("plain")
    whole = PACKED[suffix]("\n".join(str(i * i) for i in range(200_000)).encode())
    (tmp_path / f"b.log{suffix}").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(InputError, match="not compressed with"):
        open_input(topic, tmp_path / f"a.log{suffix}")
    with pytest.raises(InputError, match=r"b\.log\..*:\d+: the compressed file is damaged or cut off"):
        records(topic, tmp_path / f"b.log{suffix}")


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("content", ['\ufeff[1.50,\n "x"]\n', '1.50\n"x"\n'], ids=["array", "lines"])
def test_json_files_have_an_array_or_values(write: Any, content: str, suffix: str) -> None:
    path = write(f"a.json{suffix}", content)

    assert [row[2] for row in records(Topic("t", value=Any), path)] == [b"1.50", b'"x"']
    assert [row[2] for row in records(Topic("t", value=Any), path, skip=1)] == [b'"x"']


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.json.zst", "a.records.jsonl", "a.csv", "a.log", "a.log.gz"])
def test_an_empty_file_has_no_rows(write: Any, name: str) -> None:
    assert records(Topic("t", value=Any), write(name, "")) == []


def test_a_line_may_be_longer_than_a_chunk(write: Any) -> None:
    long = "x" * 3_000_000

    assert values(Topic("t", value=str), write("a.log", f"a\n{long}\nb")) == ["a", long, "b"]


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    from streams.files.kinds import FileKind, FileSource, Kind
    from streams.files.lines import line_chunks

    (tmp_path / "a.log").write_bytes(b"a\n" + bytes(2_000_000))

    with pytest.raises(InputError, match=r"a\.log:2: the line is longer than 1000000 bytes"):
        list(line_chunks(FileSource.local(tmp_path / "a.log"), FileKind(Kind.LOG), max_line_bytes=1_000_000))
