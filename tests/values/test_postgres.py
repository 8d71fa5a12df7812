"""Columns of Postgres give the values of the rule, or are refused, in every type."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from streams import Topic
from streams.connect import PostgresPollingSource
from streams.core.errors import StreamsError
from tests.values.media import Form, attempt, is_same
from tests.values.rule import EXTREMES, TARGETS, Refused
from tests.values.shapes import row_class
from tests.values.test_matrix import verdict

_TYPES = {
    "bool": "boolean",
    "int": "bigint",
    "float": "double precision",
    "text": "text",
    "bytes": "bytea",
    "decimal": "numeric(38, 18)",
    "instant": "timestamptz",
    "local time": "timestamp",
    "date": "date",
    "time": "time",
    "uuid": "uuid",
}


def held(arrival: str) -> Iterator[tuple[Any, Any]]:
    """Yield the values that a column has, with what psycopg writes."""
    natural = {"instant": "datetime", "local time": "datetime", "date": "date", "time": "time"}.get(arrival)
    for value in EXTREMES[arrival]:
        raw = verdict("", arrival, natural, Form("", None, None), value) if natural else value  # type: ignore[arg-type]
        is_int = arrival == "int" and not -(2**63) <= value < 2**63
        is_text = arrival == "text" and ("\x00" in value or "\ud83d" in value)
        if raw is not Refused and not is_int and not is_text:
            yield value, raw


@pytest.mark.slow
@pytest.mark.parametrize("arrival", _TYPES)
def test_a_column_gives_the_value_of_the_rule_or_is_refused(database: str, arrival: str) -> None:
    differences = []
    with psycopg.connect(database, autocommit=True) as connection:
        for value, raw in held(arrival):
            connection.execute("drop table if exists t")
            connection.execute(f"create table t (id bigint primary key, x {_TYPES[arrival]})")
            connection.execute("insert into t values (1, %s)", [raw])
            for target, declared in TARGETS.items():
                topic: Topic[Any, Any] = Topic("t", value=row_class("attrs", "alone", declared))
                outcome = attempt(lambda topic=topic: _polled(database, topic))
                wanted = verdict("postgres", arrival, target, Form("", None, None), value)  # type: ignore[arg-type]
                is_refused = isinstance(outcome, StreamsError)
                if is_refused if wanted is Refused else not is_refused and is_same(outcome, wanted):
                    continue
                differences.append(
                    f"{arrival} as {target}: {outcome!r:.150} of {value!r:.40}, and the rule {wanted!r:.60}"
                )
    assert not differences, "\n".join(["", *differences])


def _polled(database: str, topic: Topic[Any, Any]) -> Any:
    source = PostgresPollingSource(database, "t", interval_ms=1, delay_ms=0)
    try:
        source.open("t-in", topic, {})
        for _ in range(20):
            for block in source.poll(0):
                for data in block.values:
                    return topic.value_serde.deserialize(data).x
        raise AssertionError("no row")
    finally:
        source.close()
