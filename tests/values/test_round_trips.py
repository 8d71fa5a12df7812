"""A value that is written is read back as the same value of its type, or it is refused when it is written."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints
from uuid import UUID

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Topic
from streams.connect import DeltaSink, IcebergSink, ParquetSink, SinkBlock, SinkConnector, SqlSink
from streams.core.blocks.records import Block
from streams.core.errors import StreamsError
from streams.files import open_output
from streams.formats import avro, json_schema, precision
from streams.lookup import FileLookUp, SqlLookUp
from streams.replay import Plan, replay
from streams.values import arrow_table
from tests.values.drawn import Drawn, plain, types
from tests.values.media import rows_of_file
from tests.values.rule import Colour, Level

#: Writes a value of a type, and returns the function that reads it back.
Writer = Callable[[Any, Any, Path], Callable[[], Any]]


def _serde(make: Callable[[Any], Any]) -> Writer:
    def write(declared: Any, value: Any, folder: Path) -> Callable[[], Any]:
        serde = make(declared)
        data = serde.serialize(value)
        return lambda: serde.deserialize(data)

    return write


def _file(name: str) -> Writer:
    def write(declared: Any, value: Any, folder: Path) -> Callable[[], Any]:
        topic: Topic[Any, Any] = Topic("t", value=declared)
        block = Block([None] * 2, [topic.value_serde.serialize(value)] * 2, [0, 1], None, range(2))
        open_output(topic, folder / name).write([(0, block)])
        return lambda: _both(rows_of_file(declared, folder / name))

    return write


def _table(declared: Any, value: Any, folder: Path) -> Callable[[], Any]:
    pq.write_table(arrow_table(Topic("t", value=declared).value_serde, [value] * 2), folder / "table.parquet")
    return lambda: _both(rows_of_file(declared, folder / "table.parquet"))


def _both(rows: list[Any]) -> Any:
    first, second = rows
    if isinstance(first, StreamsError):
        raise first
    assert plain(first) == plain(second)
    return first


_NUMBERS = count()


def _sink(
    make: Callable[[Path], SinkConnector[Any, Any]],
    read: Callable[[Any, Path], list[Any]],
    serde: Callable[[Any], Any] = lambda declared: declared,
) -> Writer:
    """Return the writer by a sink, each time to a table of its own, given the reader of a declared type from it."""

    def write(declared: Any, value: Any, folder: Path) -> Callable[[], Any]:
        topic: Topic[Any, Any] = Topic("t", value=serde(declared))
        received = topic.value_serde.deserialize(topic.value_serde.serialize(value))
        place = folder / f"t{next(_NUMBERS)}"
        sink = make(place)
        try:
            sink.open("sink", topic, [0])
            sink.write(SinkBlock(topic, 0, [0, 1], [None] * 2, [received] * 2, [0, 1], None, 2))
            sink.commit()
        finally:
            sink.close()
        return lambda: _both(read(declared, place))

    return write


def _replayed(declared: Any, source: str) -> list[Any]:
    rows: Topic[Any, Any] = Topic("rows", value=declared)
    out: Topic[Any, Any] = Topic("out", value=declared)
    options: dict[str, Any] = {"partitions": 1, "plan": Plan(store="in_memory"), "executor": "local"}
    with replay(lambda builder: builder.stream(rows).to(out), {rows: source}, **options) as result:
        return [out.value_serde.deserialize(value) for _, block in result.read(out) for value in block.values]


def _sqlite(place: Path) -> SqlSink:
    return SqlSink(f"sqlite:///{place}", "t", mode="append", create=True)


def _parquet_sink(place: Path) -> ParquetSink:
    return ParquetSink(str(place))


def _parquet_files(declared: Any, folder: Path) -> list[Any]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in rows_of_file(declared, path)]


#: What becomes of what SQLite, which has no types, stores; the columns of all other types are JSON.
_FROM_SQLITE: dict[Any, Callable[[Any], Any]] = {
    **{kind: kind for kind in (str, int, float, bool, Colour, Level)},
    bytes: lambda raw: raw.encode() if isinstance(raw, str) else raw,
    Annotated[Decimal, precision(38, 18)]: lambda raw: Decimal(str(raw)),
    **{kind: kind.fromisoformat for kind in (datetime, date, time)},
    timedelta: partial(msgspec.convert, type=timedelta),
    UUID: UUID,
    Literal["red", "blue"]: str,
}


def _from_sqlite(kind: Any, raw: Any) -> Any:
    (plain_kind,) = [it for it in get_args(kind) if it is not type(None)] if type(None) in get_args(kind) else [kind]
    if raw is None or plain_kind in _FROM_SQLITE:
        return None if raw is None else _FROM_SQLITE[plain_kind](raw)
    return Topic("t", value=kind).value_serde.deserialize(raw.encode())


def _looked_up(declared: Any, path: Path) -> list[Any]:
    kinds = get_type_hints(declared, include_extras=True)

    def row(*raws: Any) -> Any:
        return declared(**{name: _from_sqlite(kinds[name], raw) for name, raw in zip(kinds, raws, strict=True)})

    query = f"select {', '.join(kinds)} from t limit 1 offset ?"
    look_up: SqlLookUp[int, Any] = SqlLookUp(query, lambda: sqlite3.connect(path), row=row)
    return [look_up(0), look_up(1)]


def _file_look_up(name: str) -> Writer:
    def write(declared: Any, value: Any, folder: Path) -> Callable[[], Any]:
        keyed = make_dataclass("Keyed", [("n", int), ("value", declared)])
        topic: Topic[Any, Any] = Topic("t", value=keyed)
        values = [topic.value_serde.serialize(keyed(number, value)) for number in range(2)]
        open_output(topic, folder / name).write([(0, Block([None] * 2, values, [0, 1], None, range(2)))])

        def row(n: int, value: Any) -> Any:
            return value

        row.__annotations__["value"] = declared
        look_up = FileLookUp(folder / name, key="n", row=row)
        return lambda: _both([look_up(0), look_up(1)])

    return write


WRITERS: dict[str, Writer] = {
    "topic": _serde(lambda declared: Topic("t", value=declared).value_serde),
    "avro": _serde(avro),
    "json schema": _serde(json_schema),
    "json lines": _file("out.jsonl"),
    "records": _file("out.records.jsonl"),
    "parquet": _file("out.parquet"),
    "table": _table,
    "look-up in json lines": _file_look_up("table.jsonl"),
    "look-up in parquet": _file_look_up("looked-up.parquet"),
    "sqlite": _sink(_sqlite, _looked_up),
    "sqlite of avro": _sink(_sqlite, _looked_up, avro),
    "parquet sink": _sink(_parquet_sink, _parquet_files),
    "parquet sink of avro": _sink(_parquet_sink, lambda declared, place: _parquet_files(avro(declared), place), avro),
    "delta": _sink(lambda place: DeltaSink(str(place)), lambda declared, place: _replayed(declared, f"delta:{place}")),
    "iceberg": _sink(
        lambda place: IcebergSink(f"shop.values.{place.name}"),
        lambda declared, place: _replayed(declared, f"iceberg:shop.values.{place.name}"),
    ),
}


#: Writers that take seconds.
SLOW = ("delta", "iceberg")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in WRITERS]
)
def test_a_value_is_read_back_as_it_was_written_or_not_written(name: str, iceberg: None, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()

    @given(st.data())
    def holds(data: st.DataObject) -> None:
        drawn: Drawn = data.draw(types())
        value = data.draw(drawn.values)
        try:
            read = WRITERS[name](drawn.type, value, tmp_path)
        except StreamsError:
            seen["refused"] += 1
            return
        seen["written"] += 1
        assert plain(read()) == plain(value)

    holds()
    assert seen["written"], seen
