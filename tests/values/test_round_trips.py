"""A value that is written is read back as the same value of its type, or it is refused when it is written."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Topic
from streams.core.blocks.records import Block
from streams.core.errors import StreamsError
from streams.files import open_output
from streams.formats import avro, json_schema
from streams.values import arrow_table
from tests.values.drawn import Drawn, plain, types
from tests.values.media import rows_of_file

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


WRITERS: dict[str, Writer] = {
    "topic": _serde(lambda declared: Topic("t", value=declared).value_serde),
    "avro": _serde(avro),
    "json schema": _serde(json_schema),
    "json lines": _file("out.jsonl"),
    "records": _file("out.records.jsonl"),
    "parquet": _file("out.parquet"),
    "table": _table,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_value_is_read_back_as_it_was_written_or_not_written(name: str, tmp_path: Path) -> None:
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
