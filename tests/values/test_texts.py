"""Times and decimals of texts are what they say, whatever brings them: JSON, cells of CSV, columns, keys."""

from collections.abc import Callable
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from pydantic import BaseModel

from streams import Topic
from streams.core.clock import VirtualClock
from streams.core.errors import StreamsError
from streams.core.serdes.serdes import serde_for
from streams.files import open_input
from streams.values import form_of
from streams.values.cells import cell_converter

#: Texts with nanoseconds, and their times: the last digits are cut off, so that a time is never a later one.
TIMES = {
    "2026-01-01T23:59:59.9999996Z": datetime(2026, 1, 1, 23, 59, 59, 999999, tzinfo=UTC),
    "1969-12-31T23:59:59.9999996Z": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "1969-12-31T23:59:59.000000001Z": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
    "2026-06-01T00:00:00.123456789+02:00": datetime(2026, 5, 31, 22, 0, 0, 123456, tzinfo=UTC),
}


@frozen
class Event:
    at: datetime
    name: str = ""
    lat: float = 0.0


class Validated(BaseModel):
    at: datetime


@frozen
class Deep:
    event: Event
    times: list[datetime] | None = None
    pairs: tuple[str, time] | None = None
    by_time: dict[datetime, Decimal] | None = None


def read(path: Path, kind: Any = Event) -> list[tuple[Any, int]]:
    # Event times are from 1970.
    topic: Topic[Any, Any] = Topic("in", value=kind, timestamp=lambda event: event.at.replace(year=2026))
    reader = open_input(topic, path, clock=VirtualClock(0))
    blocks = [block for batch in reader(1, 0) for _, block in batch]
    return [
        (topic.value_serde.deserialize(value), time_ms)
        for block in blocks
        for value, time_ms in zip(block.values, block.timestamps, strict=True)
    ]


def jsonl(folder: Path, text: str) -> Path:
    (folder / "in.jsonl").write_text(f'{{"at":"{text}","name":"{text}"}}\n')
    return folder / "in.jsonl"


def csv(folder: Path, text: str) -> Path:
    (folder / "in.csv").write_text(f"at,name\n{text},{text}\n")
    return folder / "in.csv"


def parquet_of_texts(folder: Path, text: str) -> Path:
    pq.write_table(pa.table({"at": [text] * 2, "name": [text] * 2}), folder / "in.parquet")
    return folder / "in.parquet"


def parquet(folder: Path, text: str) -> Path:
    times = pa.array([text] * 2).cast(pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"at": times, "name": [text] * 2}), folder / "in.parquet")
    return folder / "in.parquet"


@pytest.mark.parametrize("write", [jsonl, csv, parquet_of_texts, parquet])
@pytest.mark.parametrize("text", TIMES)
def test_nanoseconds_are_cut_in_every_kind_of_file_and_in_event_times(
    tmp_path: Path, write: Callable[[Path, str], Path], text: str
) -> None:
    at = TIMES[text]
    values = read(write(tmp_path, text))

    assert {value for value, _ in values} == {Event(at, text)}
    assert {time_ms % 1000 for _, time_ms in values} == {at.microsecond // 1000}


@pytest.mark.parametrize("text", TIMES)
def test_nanoseconds_are_cut_in_columns_within_columns(tmp_path: Path, text: str) -> None:
    ns = pa.timestamp("ns", "UTC")
    times = pa.array([text, None]).cast(ns)
    event = pa.StructArray.from_arrays([times.fill_null(0)], ["at"])
    by_time = pa.MapArray.from_arrays([0, 1, 2], times.fill_null(0), [Decimal("1.50"), Decimal(2)])
    columns = {"event": event, "times": pa.ListArray.from_arrays([0, 1, 2], times.fill_null(0)), "by_time": by_time}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    topic: Topic[Any, Any] = Topic("in", value=Deep)

    reader = open_input(topic, tmp_path / "in.parquet", clock=VirtualClock(0))
    deep = next(topic.value_serde.deserialize(block.values[0]) for batch in reader(1, 0) for _, block in batch)

    at = TIMES[text]
    assert deep == Deep(Event(at), [at], None, {at: Decimal("1.50")})


@pytest.mark.parametrize("text", TIMES)
def test_nanoseconds_are_cut_at_each_place_of_a_value_that_is_a_time_and_at_no_other(text: str) -> None:
    at = TIMES[text]
    row = {
        "event": {"at": text, "name": text, "lat": 12.3456789012},
        "times": [text],
        "pairs": [text, "23:59:59.9999996"],
        "by_time": {text: "1.50"},
    }
    deep = Deep(Event(at, text, 12.3456789012), [at], (text, time(23, 59, 59, 999999)), {at: Decimal("1.50")})
    data = msgspec.json.encode(row)

    assert serde_for(Deep).deserialize(data) == deep
    assert serde_for(Deep).deserialize_all([None, data]) == [None, deep]
    assert cell_converter(Deep)(row) == deep
    assert cell_converter(Deep, strict=True)(row) == deep
    assert cell_converter(datetime | int)(text) == at
    assert serde_for(datetime).deserialize(msgspec.json.encode(text)) == at
    assert serde_for(datetime).deserialize_all([msgspec.json.encode(text)]) == [at]
    assert serde_for(Validated).deserialize(msgspec.json.encode({"at": text})) == Validated(at=at)
    assert serde_for(dict[str, datetime | None]).deserialize(b'{"a":null,"b":"%b"}' % text.encode()) == {
        "a": None,
        "b": at,
    }


@frozen
class Payment:
    amount: Decimal
    note: str = ""


@pytest.mark.parametrize("text", ["1_0", "nan", "-Infinity", "inf", "sNaN1", "\u0661\u0662", "1\uff12"])
@pytest.mark.parametrize("way", ["csv", "jsonl", "serde", "column", "cell", "query", "key"])
def test_decimals_are_finite_and_have_the_digits_0_to_9(tmp_path: Path, way: str, text: str) -> None:
    """As integers: ``int`` refuses ``1_0`` in a cell too."""
    data = msgspec.json.encode({"amount": text, "note": text})
    (tmp_path / "in.csv").write_text(f"amount,note\n{text},{text}\n")
    (tmp_path / "in.jsonl").write_bytes(data + b"\n")
    ways: dict[str, Callable[[], object]] = {
        "csv": lambda: read(tmp_path / "in.csv", Payment),
        "jsonl": lambda: read(tmp_path / "in.jsonl", Payment),
        "serde": lambda: serde_for(Payment).deserialize(data),
        "column": lambda: serde_for(Payment).deserialize_all([data, None]),
        "cell": lambda: cell_converter(Payment)({"amount": text}),
        "query": lambda: form_of(serde_for(Decimal)).from_object(text),
        "key": lambda: serde_for(dict[Decimal, int]).deserialize(msgspec.json.encode({text: 1})),
    }

    with pytest.raises((StreamsError, ValueError), match="expected a decimal, got"):
        ways[way]()


@pytest.mark.parametrize("text", ["1.50", "-0", "+.5", "1E+3", "12345678901234567890.123456789"])
def test_decimals_are_read_exactly(text: str) -> None:
    data = msgspec.json.encode({"amount": text, "note": "1_0 nan \u0661"})

    assert serde_for(Payment).deserialize(data) == Payment(Decimal(text), "1_0 nan \u0661")
    assert cell_converter(Payment)({"amount": text}) == Payment(Decimal(text))


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("-Infinity")])
def test_decimals_without_a_value_are_not_written(value: Decimal) -> None:
    """They could not be read."""
    serde = serde_for(Payment)
    with pytest.raises(StreamsError, match=r"expected a decimal, got '-?(NaN|Infinity)' - at `\$.amount`"):
        serde.serialize(Payment(value))
    with pytest.raises(StreamsError, match="expected a decimal, got"):
        serde.serialize_all([Payment(value)])


class Opened(msgspec.Struct, tag="opened"):
    at: datetime
    total: Decimal = Decimal(0)


class Closed(msgspec.Struct, tag="closed"):
    at: datetime
    total: Decimal = Decimal(0)


class Noted(msgspec.Struct, tag="noted"):
    at: str
    total: str = ""


class Pair(msgspec.Struct, array_like=True, tag=True):
    name: str
    at: datetime


class Times(TypedDict):
    at: datetime


NS = "2026-01-01T23:59:59.9999999Z"
LAST = datetime(2026, 1, 1, 23, 59, 59, 999999, tzinfo=UTC)


@pytest.mark.parametrize("union", [Opened | Closed | Noted, Opened | Noted, Noted | Closed | Opened])
def test_times_and_decimals_of_classes_of_a_union_are_those_of_the_class_that_the_tag_names(union: Any) -> None:
    serde = Topic("t", value=union).value_serde
    assert serde.deserialize(b'{"type":"opened","at":"%b"}' % NS.encode()) == Opened(LAST)
    assert serde.deserialize(b'{"type":"noted","at":"%b","total":"1_0"}' % NS.encode()) == Noted(NS, "1_0")
    with pytest.raises(StreamsError, match=r"expected a decimal, got '1_0' - at `\$.total`"):
        serde.deserialize(b'{"type":"opened","at":"%b","total":"1_0"}' % NS.encode())
    with pytest.raises(StreamsError, match="expected a decimal, got 'NaN'"):
        serde.serialize(Opened(LAST, Decimal("NaN")))
    with pytest.raises(ValueError, match="a number has no unit"):
        form_of(serde).from_cells({"type": "opened", "at": "20260101"})


@pytest.mark.parametrize("tagged", [Pair, Pair | int, list[Pair]])
def test_times_of_classes_that_are_arrays_are_cut(tagged: Any) -> None:
    pair = ["Pair", NS, NS]
    read = Topic("t", value=tagged).value_serde.deserialize(
        msgspec.json.encode([pair] if tagged == list[Pair] else pair)
    )
    assert (read[0] if isinstance(read, list) else read) == Pair(NS, LAST)


def test_an_optional_typed_dict_is_read_and_written() -> None:
    serde: Any = serde_for(dict[str, Times | None])
    assert serde.deserialize(b'{"a":{"at":"%b"},"b":null}' % NS.encode()) == {"a": {"at": LAST}, "b": None}
    assert serde.deserialize(serde.serialize({"a": {"at": LAST}})) == {"a": {"at": LAST}}


@pytest.mark.parametrize("number", ["1.10", "0.12345678901234567890123", "1E+30"])
def test_a_decimal_beside_a_time_with_nanoseconds_has_all_of_its_digits(number: str) -> None:
    read: Any = serde_for(Opened).deserialize(
        b'{"at":"%b","total":%b,"type":"opened"}' % (NS.encode(), number.encode())
    )
    assert (read.at, str(read.total)) == (LAST, number)
