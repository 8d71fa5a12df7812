"""Tables of pyarrow, polars, pandas and DuckDB are inputs without Spark, in order of event time."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import msgspec
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from streams import StreamsBuilder, TimeWindows, Topic, time_windowed
from streams.core.errors import InputError
from streams.replay import Plan, ReplayError, replay
from tests.replay.table_cases import APPLICATION, PARTITIONS, live, orders, replayed, rows, table, topology

WAYS: dict[str, Callable[[Any], Any]] = {
    "pyarrow.Table": lambda table: table,
    "RecordBatch": lambda table: table.combine_chunks().to_batches()[0],
    "RecordBatchReader": lambda table: table.to_reader(max_chunksize=70),
    "dataset": pyarrow.dataset.dataset,
    "polars": polars.from_arrow,
    "duckdb": lambda shuffled: duckdb.sql("SELECT * EXCLUDE unread FROM shuffled"),
}


class Click(msgspec.Struct):
    """A value with numbers that may be missing."""

    at: int
    count: int | None
    size: int | None


def run(given: Any, **options: Any) -> Any:
    options = {"application_id": APPLICATION, "partitions": PARTITIONS, "plan": Plan(store="in_memory")} | options
    return replay(topology, {orders: given}, executor="local", **options)


@pytest.mark.case
@pytest.mark.parametrize("way", WAYS)
def test_tables_in_any_order_give_what_a_live_run_of_their_rows_in_order_gives(way: str, tmp_path: Path) -> None:
    shuffled = table(rows(300))
    if way == "polars":  # It has no maps.
        shuffled = shuffled.set_column(
            6, "counts", pa.array([{"x": int(row["number"])} for row in shuffled.to_pylist()])
        )
    with run(WAYS[way](shuffled)) as result:
        assert replayed(result) == live(rows(300), tmp_path)
        assert not result.late


def test_rows_keep_the_order_of_the_table_if_asked(tmp_path: Path) -> None:
    shuffled = table(rows(100))
    with run(shuffled, order="as_given") as result:
        given = [{**row, "number": int(row["number"])} for row in shuffled.to_pylist(maps_as_pydicts="strict")]
        assert replayed(result) == live(given, tmp_path)


def test_dictionaries_are_read(tmp_path: Path) -> None:
    column = polars.Series("product", [row["product"] for row in rows(50)], polars.Categorical)
    frame = polars.from_dicts(rows(50), schema_overrides={"price": polars.Decimal(9, 2)}).with_columns(column)
    with run(frame) as result:
        assert replayed(result) == live(rows(50), tmp_path)


words = Topic("words", key=str, value=str)
counts = Topic("counts", key=time_windowed(str, timedelta(seconds=3)), value=int)
doubled = Topic("doubled", key=time_windowed(str, timedelta(seconds=3)), value=int)


def counting(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of(timedelta(seconds=3))
    builder.stream(words).group_by_key().windowed_by(windows).count("counts").to_stream().to(counts)


def doubling(builder: StreamsBuilder) -> None:
    builder.stream(counts).map_values(lambda count: count * 2).to(doubled)


def records(count: int = 9) -> pa.Table:
    """Return a table of records: words without a time of their own, one each second."""
    keys = [("a", "b", None)[number % 3] for number in range(count)]
    return pa.table(
        {
            "timestamp": [number * 1000 for number in range(count)],
            "value": [f"w{number}" for number in range(count)],
            "key": keys,
            "headers": [[{"name": "n", "value": bytes([number])}] for number in range(count)],
            "unread": [0.5] * count,
        }
    )


def counted(given: Any) -> list[dict[str, Any]]:
    with replay(counting, {words: given}, executor="local", partitions=2) as result:
        rows: list[dict[str, Any]] = result.table(counts).to_arrow().to_pylist()
        return rows


def test_rows_of_values_without_a_time_are_records() -> None:
    plain = records()
    times = plain.set_column(
        0, "timestamp", plain["timestamp"].cast(pa.timestamp("ms")).cast(pa.timestamp("ns", "UTC"))
    )
    serialized = plain.set_column(1, "value", plain["value"].cast(pa.binary()))

    found = counted(plain)

    assert [
        (row["key"], row["value"], row["headers"]) for row in sorted(found, key=itemgetter("key", "timestamp"))
    ] == [
        ("a", 1, [{"name": "n", "value": b"\x00"}]),
        ("a", 1, [{"name": "n", "value": b"\x03"}]),
        ("a", 1, [{"name": "n", "value": b"\x06"}]),
        ("b", 1, [{"name": "n", "value": b"\x01"}]),
        ("b", 1, [{"name": "n", "value": b"\x04"}]),
        ("b", 1, [{"name": "n", "value": b"\x07"}]),
    ]
    assert counted(times) == counted(serialized) == found


def test_the_table_of_an_output_is_an_input_with_its_keys_headers_and_partitions() -> None:
    with replay(counting, {words: records()}, executor="local", partitions=2) as first:
        output = first.table(counts).to_arrow()
    with replay(doubling, {counts: output}, executor="local", partitions=2) as second:
        found = second.table(doubled).to_arrow().to_pylist()

    assert found == [{**row, "value": row["value"] * 2} for row in output.to_pylist()]


@pytest.mark.parametrize(
    ("column", "given", "message"),
    [
        ("timestamp", ["1"], "column 'timestamp' is string, but has to be a timestamp, or a bigint"),
        ("timestamp", [-1], "row 1: timestamp -1 is no time"),
        ("value", [1], "column 'value' is int64, but is declared as str"),
        ("partition", [2], r"row 1: partition 2, but topic 'words' has 2 \(0 to 1\)"),
        ("partition", [-1], "row 1: partition -1 is negative"),
        ("headers", ["a"], "column 'headers' is string, but has to be a list of structs"),
    ],
)
def test_misfits_of_records_are_named(column: str, given: list[Any], message: str) -> None:
    table = pa.table({"key": ["a"], "value": ["b"], "timestamp": [1]} | {column: given})

    with pytest.raises(InputError, match=message):
        counted(table)


def test_windowed_keys_without_a_window_are_named() -> None:
    table = pa.table({"key": ["a"], "value": [1], "timestamp": [1]})

    with pytest.raises(InputError, match="column 'key' has no window; give a struct of key, start and end"):
        replay(doubling, {counts: table}, executor="local")


def test_misfits_and_bad_rows_are_named() -> None:
    with pytest.raises(InputError, match=r"pyarrow Table as input of topic 'orders': column 'price' .* is missing"):
        run(table(rows(10)).rename_columns({"price": "prise"}))
    without = [{**row, "product": None if row["number"] == 7 else row["product"]} for row in rows(10)]
    with pytest.raises(InputError, match=r"row \d+: the row does not match topic 'orders': expected `str`, got `null`"):
        run(table(without))


def test_resume_takes_the_same_table_and_refuses_another(tmp_path: Path) -> None:
    run(table(rows(50)), directory=tmp_path / "work").close()
    assert not (tmp_path / "work" / "tables").exists()
    same = pa.concat_tables([table(rows(50))[:20], table(rows(50))[20:]])
    with run(same, directory=tmp_path / "work", resume=True) as result:
        assert result.records["totals"] == 50
    with pytest.raises(ReplayError, match=r"which of its rows are new is not known: give the new rows alone"):
        run(table(rows(60)), directory=tmp_path / "work", resume=True)


@pytest.mark.slow
def test_a_table_follows_a_snapshot(tmp_path: Path) -> None:
    with run(table(rows(50))) as result:
        saved = result.save(tmp_path / "saved")
    expected = live([*rows(50), *rows(50, 50)], tmp_path)
    with run(table(rows(50, 50)), state_from=saved.root.uri) as result:
        assert [found[-1][2:] for found in replayed(result)] == [found[-1][2:] for found in expected]


def test_a_row_with_a_time_after_the_year_9999_is_shown() -> None:
    late = table(rows(3))
    times = pa.array([0, 253_402_300_800_000_000, 0], pa.int64()).cast(late.schema.field("at").type)
    late = late.set_column(late.schema.get_field_index("at"), "at", times)
    with pytest.raises(
        InputError,
        match=r"^pyarrow Table: row 2: column 'at': date value out of range; a time is from the year 1 to 9999; fix",
    ):
        run(late)


def test_nullable_integers_of_pandas_are_integers_and_nulls() -> None:
    pandas = pytest.importorskip("pandas")
    clicks = Topic("clicks", value=Click, timestamp=lambda click: click.at)
    seen = Topic("seen", value=Click)

    def copy(builder: StreamsBuilder) -> None:
        builder.stream(clicks).to(seen)

    large = (1 << 53) + 1
    frame = pandas.DataFrame(
        {
            "at": [1, 2, 3],
            "count": pandas.array([large, None, 7], dtype="Int64"),
            "size": pandas.array([None, 1, 2], dtype="UInt8"),
        }
    )
    with replay(copy, {clicks: frame}, executor="local", application_id="clicks") as result:
        found = [record.value for record in result.rows(seen)]
    assert found == [Click(1, large, None), Click(2, None, 1), Click(3, 7, 2)]


def test_all_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    both = table(rows(3)).append_column("Number", pa.array([1, 2, 3])).append_column("price", pa.array([1, 2, 3]))
    message = r"columns 'Number' and 'number', which differ in case only; [^;]*; .* 'price' more than once; select"
    with pytest.raises(InputError, match=message):
        run(both)
    pyarrow.parquet.write_table(both, tmp_path / "both.parquet")
    untyped = Topic("untyped", value=dict, timestamp=lambda row: row["at"])
    with pytest.raises(InputError, match=message):
        replay(
            lambda builder: builder.stream(untyped).to("out"), {untyped: tmp_path / "both.parquet"}, executor="local"
        )


def test_reader_that_was_read_before_is_refused() -> None:
    reader = table(rows(3)).to_reader()
    reader.read_all()
    with pytest.raises(InputError, match="has no rows: a reader can be read only once"):
        run(reader)


def values_of(column: Any, declared: Any) -> list[Any]:
    """Return the values of a column of a table that is declared as a type."""
    kind = msgspec.defstruct("Row", [("at", int), ("c", declared)])
    given, out = Topic("given", value=kind, timestamp=lambda row: row.at), Topic("out", value=kind)

    def copy(builder: StreamsBuilder) -> None:
        builder.stream(given).to(out)

    with replay(copy, {given: pa.table({"at": range(len(column)), "c": column})}, executor="local") as result:
        return [row.value.c for row in sorted(result.rows(out), key=lambda row: row.value.at)]


ID = UUID("67e55044-10b1-426f-9247-bb680e5fe0c8")
IDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes, None], pa.binary(16)))
TICK = timedelta(microseconds=1)
INTERVALS = pa.array([pa.scalar((1, 2, 3), pa.month_day_nano_interval())])
WORDS = pa.array(["b", None, "b"]).dictionary_encode()
AT = [datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), None]


@pytest.mark.case(4)
@pytest.mark.parametrize(
    ("column", "declared", "expected"),
    [
        *(
            (pa.array([-2 * count, None], pa.duration(unit)), timedelta | None, [-2 * TICK * size, None])
            for unit, size, count in (("s", 10**6, 1), ("ms", 1000, 1), ("us", 1, 1), ("ns", 1, 1000))
        ),
        (pa.array([-1, 1999], pa.duration("ns")), timedelta, [-TICK, TICK]),
        (pa.array([[-1, None]], pa.large_list(pa.timestamp("ns", "UTC"))), list[datetime | None], [AT]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]), str, ["a", "a", "b"]),
        (pa.array([[1, 2], None, []], pa.list_view(pa.int64())), list[int] | None, [[1, 2], None, []]),
        (pa.array([None, [3]], pa.large_list_view(pa.int64())), list[int] | None, [None, [3]]),
        (pa.ListArray.from_arrays([0, 1, 3], WORDS), list[str | None], [["b"], [None, "b"]]),
        (pa.DictionaryArray.from_arrays([1, 0], pa.array([{"n": 1}, {"n": 2}])), dict[str, int], [{"n": 2}, {"n": 1}]),
        (IDS, UUID | None, [ID, None]),
        (pa.ListArray.from_arrays([0, 1, 2], IDS), list[UUID | None], [[ID], [None]]),
        (pa.StructArray.from_arrays([IDS], ["u"]), dict[str, UUID | None], [{"u": ID}, {"u": None}]),
        (pa.MapArray.from_arrays([0, 1], ["a"], IDS.slice(0, 1)), dict[str, UUID], [{"a": ID}]),
        (pa.array([Decimal("1.50")], pa.decimal32(5, 2)), Decimal, [Decimal("1.50")]),
        (polars.Series([["a"]], dtype=polars.List(polars.Enum(["a"]))).to_arrow(), list[str], [["a"]]),
        (polars.Series([1500], dtype=polars.Duration("ns")).to_arrow(), timedelta, [TICK]),
    ],
)
def test_columns_of_any_layout_and_unit_are_exact(column: Any, declared: Any, expected: list[Any]) -> None:
    assert values_of(column, declared) == expected


def test_columns_of_pandas_are_exact() -> None:
    """NaT and NA are None; pandas' own types are refused by column."""
    pandas = pytest.importorskip("pandas")
    for values, dtype, declared, expected in (
        ([pandas.Timedelta("1s"), pandas.NaT], None, timedelta | None, [timedelta(seconds=1), None]),
        ([pandas.Timestamp(AT[0]), pandas.NaT], None, datetime | None, AT),
        (["a", pandas.NA], "string", str | None, ["a", None]),
        (["a", None], None, str | None, ["a", None]),
        (["a", None], "category", str | None, ["a", None]),
        ([True, pandas.NA], "boolean", bool | None, [True, None]),
    ):
        assert values_of(pandas.Series(values, dtype=dtype), declared) == expected
    with pytest.raises(InputError, match=r"column 'c' is extension<pandas.period.*cast it, such as string\(c\) AS c"):
        values_of(pa.array(pandas.Series(pandas.period_range("2026-01", periods=2, freq="M"))), str)


@pytest.mark.case(3)
@pytest.mark.parametrize(
    ("column", "declared", "message"),
    [
        (INTERVALS, timedelta, "column 'c' is month_day_nano_interval, but .* timedelta; give it as duration or text"),
        (INTERVALS, int | str, r"column 'c' is month_day_nano_interval, but is declared as int \| str; cast it"),
        (INTERVALS, Any, r"column 'c' is month_day_nano_interval, .* cast it, such as string\(c\) AS c"),
        (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), int | str, "column 'c' is sparse_union"),
        (pa.array([2**62], pa.duration("s")), timedelta, r"column 'c': Casting from duration\[s\] .* out of bounds"),
        (pa.array([[2**63 - 1]], pa.list_(pa.timestamp("ms"))), list[datetime], "column 'c': .* out of bounds"),
        (duckdb.sql("SELECT 'infinity'::TIMESTAMP_S AS c").to_arrow_table()["c"], datetime, "column 'c': .* of bounds"),
        (
            duckdb.sql("SELECT 'infinity'::DATE AS c").to_arrow_table()["c"],
            date,
            "row 1: column 'c': .* a time is from",
        ),
    ],
)
def test_columns_that_no_type_reads_are_named(column: Any, declared: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        values_of(column, declared)


class Part(msgspec.Struct):
    """A nested value with texts and times."""

    text: str
    at: datetime
    data: bytes


class Nested(msgspec.Struct):
    """A value whose columns have lists, structs and maps."""

    at: datetime
    parts: list[Part]
    times: list[datetime]
    counts: dict[str, int]


nested = Topic("nested", value=Nested, timestamp=lambda value: value.at)
seen = Topic("seen", value=Nested)


def seeing(builder: StreamsBuilder) -> None:
    builder.stream(nested).to(seen)


def nested_values(given: Any) -> list[Nested]:
    with replay(seeing, {nested: given}, executor="local", application_id="nested") as result:
        return [record.value for record in result.rows(seen)]


def test_columns_in_forms_that_arrow_cannot_cut_are_read() -> None:
    """Views of text and binary data in lists, as of polars, large and fixed lists, and times in nanoseconds."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {
            "at": start,
            "parts": [{"text": "a text of some length", "at": start, "data": b"x" * 20}],
            "times": [start],
        },
        {"at": start + timedelta(hours=1), "parts": [], "times": [start]},
    ]
    part = pa.struct({"text": pa.string_view(), "at": pa.timestamp("ns", "Europe/Berlin"), "data": pa.binary_view()})
    kinds = {
        "at": pa.timestamp("ns", "UTC"),
        "parts": pa.large_list(part),
        "times": pa.list_(pa.timestamp("ns", "UTC"), 1),
    }
    table = pa.Table.from_pylist(rows, pa.schema(kinds))
    counts = pa.array([[("n", 1)], []], pa.map_(pa.string_view(), pa.int64()))

    found = nested_values(table.append_column("counts", counts))

    assert found == [
        Nested(start, [Part("a text of some length", start, b"x" * 20)], [start], {"n": 1}),
        Nested(start + timedelta(hours=1), [], [start], {}),
    ]
    frame = polars.from_arrow(table).with_columns(counts=polars.struct(n=polars.lit(1)))
    assert [value.parts for value in nested_values(frame)] == [value.parts for value in found]


def test_a_map_with_a_key_twice_is_a_bad_row() -> None:
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)])
    empty = pa.array([[]], pa.list_(pa.null()))
    counts = pa.array([[("n", 1), ("n", 2)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(InputError, match="row 1: a map has the key 'n' more than once; fix the row"):
        nested_values(pa.table({"at": at, "parts": empty, "times": empty, "counts": counts}))


def test_times_of_spark_outside_of_the_range_of_nanoseconds_are_exact(tmp_path: Path) -> None:
    """Spark and Hive write times as INT96; in nanoseconds, 9999-12-31 is a time in 1816."""
    times = [datetime(9999, 12, 31, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]
    parts = pa.array([[]], pa.list_(pa.struct({"text": pa.string(), "at": pa.timestamp("us"), "data": pa.binary()})))
    counts = pa.array([[]], pa.map_(pa.string(), pa.int64()))
    table = pa.table({"at": times[1:], "parts": parts, "times": [times], "counts": counts})
    pyarrow.parquet.write_table(table, tmp_path / "history.parquet", use_deprecated_int96_timestamps=True)

    (found,) = nested_values(tmp_path / "history.parquet")

    assert [time.replace(tzinfo=UTC) for time in found.times] == times
