"""What a cell or a column holds is read as it is, or refused with its place: never as another value."""

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from msgspec import ValidationError

from streams import Topic
from streams.core.clock import VirtualClock
from streams.core.errors import InputError, StreamsError
from streams.files import open_input
from streams.values import arrow_table, form_of
from streams.values.cells import cell_converter

NO_END_MS = 2**63 - 1


@frozen
class Payment:
    amount: int


@frozen
class Nested:
    payment: Payment
    amounts: list[int] | None = None


@frozen
class Counted:
    counts: dict[str, int]


@frozen
class Hours:
    opens: time


@frozen
class Event:
    at: datetime


@frozen
class Spans:
    at: datetime | None = None
    took: timedelta | None = None
    times: list[datetime] | None = None


@frozen
class Noted:
    id: int
    note: str | None = None


@frozen
class Either:
    at: datetime | int


@frozen
class Named:
    id: UUID


def read(path: Path, kind: Any) -> list[Any]:
    topic: Topic[Any, Any] = Topic("in", value=kind)
    reader = open_input(topic, path, clock=VirtualClock(0))
    blocks = [block for batch in reader(1, 0) for _, block in batch]
    return [topic.value_serde.deserialize(value) for block in blocks for value in block.values]


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path / "in.parquet")
    return path / "in.parquet"


PRICE = pa.array([Decimal("1.50")], pa.decimal128(10, 2))


@pytest.mark.parametrize(
    ("kind", "columns", "message"),
    [
        (Payment, {"amount": PRICE}, r"column 'amount' is decimal128\(10, 2\), but is declared as int; cast it"),
        (
            Nested,
            {"payment": pa.StructArray.from_arrays([PRICE], ["amount"])},
            r"column 'payment.amount' is decimal128\(10, 2\), but is declared as int",
        ),
        (
            Nested,
            {
                "payment": pa.array([{"amount": 1}]),
                "amounts": pa.array([[Decimal("1.5")]], pa.list_(pa.decimal128(10, 2))),
            },
            r"column 'amounts\[\]' is decimal128\(10, 2\), but is declared as int",
        ),
        (
            Event,
            {"at": pa.array([20260101])},
            "is int64, but is declared as datetime; cast it, such as timestamp_millis",
        ),
        (Event, {"at": pa.array([20260101.0])}, "column 'at' is double, but is declared as datetime"),
        (Event, {"at": pa.array(["20260101"])}, r"expected a time, got '20260101' - at `\$.at`; a number has no unit"),
        (Event, {"at": pa.array([NO_END_MS], pa.timestamp("ms", "UTC"))}, "column 'at': .*out of bounds"),
        (Event, {"at": pa.array([18448511299309551], pa.timestamp("ms"))}, "column 'at': .*out of bounds"),
        (Spans, {"times": pa.array([[NO_END_MS]], pa.list_(pa.timestamp("ms")))}, "column 'times': .*out of bounds"),
        (Noted, {"id": pa.array([1]), "Note": pa.array(["a"])}, "column 'note' .* is missing; rename 'Note'"),
        (Payment, {"amount": pa.array(["1"])}, "column 'amount' is string, but is declared as int"),
        (Either, {"at": pa.array([b"a"])}, r"column 'at' is binary, but is declared as .* \| "),
        (Counted, {"counts": pa.array([{"a": "1"}])}, "column 'counts.a' is string, but is declared as int"),
    ],
)
def test_columns_of_parquet_files_that_do_not_fit_are_refused(
    tmp_path: Path, kind: Any, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(parquet(tmp_path, **columns), kind)
    assert "in.parquet" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("in.csv", "id,Note\n1,a\n", "in.csv:1: column 'note' is missing; rename 'Note'$"),
        ("in.csv", "id, note\n1, a\n", "in.csv:1: column 'note' is missing; rename ' note'$"),
        ("in.csv", "id,note,Note\n1,a,b\n", "in.csv:1: .* columns 'Note' and 'note', which differ in case only"),
        ("Note=a/in.csv", "id\n1\n", "in.csv: column 'note' is missing; rename 'Note'$"),
        ("Note=a/in.jsonl", '{"id":1}\n', "in.jsonl: column 'note' is missing; rename 'Note'$"),
    ],
)
def test_columns_of_csv_and_of_folders_in_another_case_or_with_spaces_are_refused(
    tmp_path: Path, path: str, text: str, message: str
) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(text)
    with pytest.raises(InputError, match=message):
        read(tmp_path / path, Noted)
    assert read(tmp_path / path, dict)


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1.0", 1),
        ("1e3", 1000),
        ("-007", -7),
        ("9007199254740993.0", 2**53 + 1),
        ("1e19", 10**19),
        ("9007199254740992.5", None),
        ("0.99999999999999999999", None),
        ("1e999999999", None),
    ],
)
def test_a_cell_of_an_int_is_its_exact_value_or_refused(tmp_path: Path, cell: str, number: int | None) -> None:
    (tmp_path / "in.csv").write_text(f"amount\n{cell}\n")
    if number is not None:
        assert read(tmp_path / "in.csv", Payment) == [Payment(number)]
    else:
        with pytest.raises(InputError, match=f"in.csv:2: expected an integer, got '{cell}' - at `.{{1,2}}amount`"):
            read(tmp_path / "in.csv", Payment)


def test_a_blank_line_of_one_column_is_an_empty_cell(tmp_path: Path) -> None:
    arrow_csv.write_csv(pa.table({"amount": pa.array([1, None, 3])}), tmp_path / "in.csv")
    assert read(tmp_path / "in.csv", dict[str, int | None]) == [{"amount": 1}, {"amount": None}, {"amount": 3}]
    with pytest.raises(InputError, match=r"in.csv:3: .*amount"):
        read(tmp_path / "in.csv", Payment)
    (tmp_path / "in.csv").write_text("\nid,note\n\n1,a\n\n")
    assert read(tmp_path / "in.csv", Noted) == [Noted(1, "a")]


@pytest.mark.parametrize(
    ("folders", "message"),
    [("note=a/note=b", "two folders have column 'note'; rename one"), ("note=%FF", "folder 'note=%FF' is not UTF-8")],
)
def test_columns_of_folders_that_are_not_clear_are_refused(tmp_path: Path, folders: str, message: str) -> None:
    (tmp_path / folders).mkdir(parents=True)
    (tmp_path / folders / "in.csv").write_text("id\n1\n")
    with pytest.raises(InputError, match=message):
        read(tmp_path / folders / "in.csv", Noted)


def test_doubled_columns_of_a_parquet_file_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["amount", "amount"])
    pq.write_table(table, tmp_path / "in.parquet")
    for kind in (Payment, dict):
        with pytest.raises(InputError, match="column 'amount' more than once"):
            read(tmp_path / "in.parquet", kind)


def test_columns_of_parquet_files_that_fit_are_read_exactly(tmp_path: Path) -> None:
    whole = pa.array([Decimal(2)], pa.decimal128(10, 0))
    assert read(parquet(tmp_path, amount=whole), Payment) == [Payment(2)]
    nanoseconds = pa.array([1_999], pa.timestamp("ns", "UTC"))
    assert read(parquet(tmp_path, at=nanoseconds), Event) == [Event(datetime(1970, 1, 1, microsecond=1, tzinfo=UTC))]
    assert read(parquet(tmp_path, at=pa.array([7])), Either) == [Either(7)]
    id_of_row = UUID(int=5)
    assert read(parquet(tmp_path, id=pa.array([id_of_row.bytes], pa.uuid())), Named) == [Named(id_of_row)]


@pytest.mark.parametrize(
    ("header", "cell"),
    [("at", "20260101"), ("at", "1767225600000"), ("at", "1.5"), ("at", "1e9"), ("took", "5"), ("at", " 7")],
)
def test_digits_in_a_cell_are_no_time(tmp_path: Path, header: str, cell: str) -> None:
    (tmp_path / "in.csv").write_text(f"{header}\n{cell}\n")
    with pytest.raises(StreamsError, match=f"in.csv:2: .*expected a time, got '{cell}' - at `[$].{header}`"):
        read(tmp_path / "in.csv", Spans)


def test_times_of_iso_8601_and_empty_cells_are_read(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("at,took\n2026-01-01T00:00:00Z,PT5S\n,\n")
    assert read(tmp_path / "in.csv", Spans) == [
        Spans(datetime(2026, 1, 1, tzinfo=UTC), timedelta(seconds=5)),
        Spans(),
    ]


@frozen
class Reply:
    """It contains itself in several places, as a search for times in it must not be repeated for each way."""

    at: datetime
    first: "Reply | None" = None
    others: "list[Reply] | None" = None
    named: "dict[str, Reply] | None" = None


def test_a_number_is_no_time_at_any_depth_of_a_type_that_contains_itself() -> None:
    convert = cell_converter(Reply)
    row: Any = {"at": 5}
    for _ in range(20):
        row = {"at": "2026-01-01T00:00:00Z", "others": [{"at": "2026-01-01T00:00:00Z", "named": {"a": row}}]}

    with pytest.raises(ValueError, match=r"expected a time, got 5 - at .*others.*named.*at"):
        convert(row)


def test_a_zone_of_a_time_of_day_is_refused_where_a_column_has_none() -> None:
    opens = Topic("hours", value=Hours).value_serde

    with pytest.raises(StreamsError, match="no zones, and would change 09:00:00"):
        arrow_table(opens, [Hours(time(9, tzinfo=UTC))])


@pytest.mark.parametrize("form", [int, float, int | None, int | float, dict[str, int], Payment])
def test_text_is_a_number_in_cells_alone(form: Any) -> None:
    form_of_values = form_of(Topic("in", value=form).value_serde)
    text = {"amount": "12"} if form in (dict[str, int], Payment) else "12"

    assert form_of_values.from_cells(text) is not None
    with pytest.raises(ValidationError, match="got `str`"):
        form_of_values.from_object(text)
