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
import psycopg
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine

from streams import Topic
from streams.connect import (
    DeltaSink,
    IcebergSink,
    ParquetSink,
    PostgresPollingSource,
    PostgresSink,
    PostgresSource,
    SinkBlock,
    SinkConnector,
    SqlSink,
)
from streams.connect.http.json_records import JsonRecords
from streams.core.blocks.records import Block
from streams.core.errors import StreamsError
from streams.files import open_output
from streams.formats import avro, json_schema, precision
from streams.lookup import FileLookUp, SqlLookUp
from streams.replay import Plan, replay
from streams.values import arrow_table
from streams.web.texts import json_of
from tests.values.drawn import Drawn, plain, types
from tests.values.media import rows_of_file
from tests.values.rule import Colour, Level

#: Writes a value of a type to a folder, or to a server at its address; returns the function that reads it back.
Writer = Callable[[Any, Any, Any], Callable[[], Any]]


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
    make: Callable[[Any], SinkConnector[Any, Any]],
    read: Callable[[Any, Any], list[Any]],
    serde: Callable[[Any], Any] = lambda declared: declared,
) -> Writer:
    """Return the writer by a sink, each time to a table of its own, given the reader of a declared type from it."""

    def write(declared: Any, value: Any, folder: Path | str) -> Callable[[], Any]:
        name = f"t{next(_NUMBERS)}"
        is_server = isinstance(folder, str)
        place = (folder, name) if isinstance(folder, str) else folder / name
        topic: Topic[Any, Any] = Topic("t", key=int if is_server else None, value=serde(declared))
        received = topic.value_serde.deserialize(topic.value_serde.serialize(value))
        keys = [0, 1] if is_server else [None] * 2
        sink = make(place)
        try:
            sink.open(name, topic, [0])
            sink.write(SinkBlock(topic, 0, [0, 1], keys, [received] * 2, [0, 1], None, 2))
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


#: What becomes of what a database, such as SQLite without types, stores; the columns of all other types are JSON.
_FROM_SQL: dict[Any, Callable[[Any], Any]] = {
    **{kind: kind for kind in (str, int, float, bool, Colour, Level)},
    bytes: lambda raw: raw.encode() if isinstance(raw, str) else raw,
    Annotated[Decimal, precision(38, 18)]: lambda raw: Decimal(str(raw)),
    **{kind: kind.fromisoformat for kind in (datetime, date, time)},
    timedelta: partial(msgspec.convert, type=timedelta),
    UUID: UUID,
    Literal["red", "blue"]: str,
}


def _from_sql(kind: Any, raw: Any) -> Any:
    members = [it for it in get_args(kind) if it is not type(None)] if type(None) in get_args(kind) else [kind]
    plain_kind = members[0] if len(members) == 1 else kind
    if raw is None or type(raw) is plain_kind:
        return raw
    if plain_kind in _FROM_SQL:
        return _FROM_SQL[plain_kind](raw)
    return Topic("t", value=kind).value_serde.deserialize(raw.encode())


def _looked_up(declared: Any, place: Any) -> list[Any]:
    is_file = isinstance(place, Path)
    kinds = get_type_hints(declared, include_extras=True)

    def row(*raws: Any) -> Any:
        return declared(**{name: _from_sql(kinds[name], raw) for name, raw in zip(kinds, raws, strict=True)})

    def connect() -> Any:
        return sqlite3.connect(place) if is_file else psycopg.connect(place[0])

    table, sign = ("t", "?") if is_file else (place[1], "%s")
    look_up: SqlLookUp[int, Any] = SqlLookUp(
        f"select {', '.join(kinds)} from {table} limit 1 offset {sign}", connect, row=row
    )
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


def _sourced(make: Callable[..., Any]) -> Callable[[Any, tuple[str, str]], list[Any]]:
    """Return the reader of a table of Postgres by a source."""

    def read(declared: Any, place: tuple[str, str]) -> list[Any]:
        topic: Topic[Any, Any] = Topic("t", key=int, value=declared)
        source = make(*place, interval_ms=1)
        found: list[Any] = []
        try:
            source.open(place[1], topic, {})
            for _ in range(100):
                found += [value for block in source.poll(100) for value in block.values]
                if len(found) == 2:
                    break
        finally:
            source.close()
            with psycopg.connect(place[0], autocommit=True) as connection:
                connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
        return topic.value_serde.deserialize_all(found)

    return read


def _confluent(serde: Callable[..., Any], kind: str, serializer: Any, deserializer: Any) -> Writer:
    """Return the writer of what Confluent's serializer makes of what its deserializer makes of our bytes."""

    def write(declared: Any, value: Any, registry: str) -> Callable[[], Any]:
        name = f"confluent-{next(_NUMBERS)}"
        own = Topic(name, value=serde(declared, registry=registry)).value_serde
        data = own.serialize(value)
        client, context = SchemaRegistryClient({"url": registry}), SerializationContext(name, MessageField.VALUE)
        schema = client.get_latest_version(f"{name}-value").schema.schema_str
        theirs = serializer(schema, client) if kind == "json" else serializer(client, schema)
        read = deserializer(None, schema_registry_client=client) if kind == "json" else deserializer(client)
        written = theirs(read(data, context), context)
        return lambda: own.deserialize(written)

    return write


def _web(declared: Any, value: Any, folder: Path) -> Callable[[], Any]:
    """Answer a query with a value, and send the answer to a webhook."""
    topic: Topic[Any, Any] = Topic("t", value=declared)
    text = bytes(json_of(topic.value_serde, topic.value_serde.deserialize(topic.value_serde.serialize(value))))
    _, data, _ = JsonRecords("webhook", topic, key="").record(text)
    return lambda: topic.value_serde.deserialize(data)


def _polling(*place: str, **options: Any) -> PostgresPollingSource:
    return PostgresPollingSource(*place, delay_ms=0, **options)


def _sql_on_postgres(place: tuple[str, str]) -> SqlSink:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(place[0]))
    return SqlSink(engine, place[1], create=True)


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
    "query and webhook": _web,
    "confluent's avro": _confluent(avro, "avro", AvroSerializer, AvroDeserializer),
    "confluent's json schema": _confluent(json_schema, "json", JSONSerializer, JSONDeserializer),
    "postgres, polled": _sink(lambda place: PostgresSink(*place, create=True), _sourced(_polling)),
    "postgres": _sink(lambda place: PostgresSink(*place, create=True), _sourced(PostgresSource)),
    "sql on postgres": _sink(_sql_on_postgres, _looked_up),
    "iceberg": _sink(
        lambda place: IcebergSink(f"shop.values.{place.name}"),
        lambda declared, place: _replayed(declared, f"iceberg:shop.values.{place.name}"),
    ),
}


#: What writers need that take seconds, by the beginning of their names.
SLOW = {
    "delta": "tmp_path",
    "iceberg": "iceberg",
    "confluent": "registry",
    "postgres": "database",
    "sql on": "database",
}


def _unsigned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unsigned(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return ("float", "0.0") if value == ("float", "-0.0") else type(value)(map(_unsigned, value))
    return value


def _need(name: str) -> str | None:
    return next((fixture for start, fixture in SLOW.items() if name.startswith(start)), None)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if _need(name) else ()) for name in WRITERS]
)
def test_a_value_is_read_back_as_it_was_written_or_not_written(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    need = _need(name)
    place = (request.getfixturevalue(need) if need else None) or tmp_path
    seen: Counter[str] = Counter()

    @given(st.data())
    def holds(data: st.DataObject) -> None:
        drawn: Drawn = data.draw(types())
        value = data.draw(drawn.values)
        try:
            read = WRITERS[name](drawn.type, value, place)
        except StreamsError:
            seen["refused"] += 1
            return
        seen["written"] += 1
        found, wanted = plain(read()), plain(value)
        if need == "database" or name.startswith("sqlite"):  # They have no negative zero.
            found, wanted = _unsigned(found), _unsigned(wanted)
        assert found == wanted

    holds()
    assert seen["written"], seen
