"""Queries run as topologies: what they write, beside what ksqlDB recorded.

Each query has a driver of its own, and reads what those before it wrote, as in ksqlDB's own executor of tests.
"""

import base64
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

from streams import Record, Windowed
from streams.testing import TopologyTestDriver
from tests.outside.ksql.schemas import FAILURES, Columns, Format, Row, Schema, SkippedError, Type
from tests.outside.ksql.topologies import Query
from tests.outside.ways import Piped

#: Groups of tests of types, formats and functions, which are ksqlDB's own, and not of Kafka Streams.
EXPRESSIONS = ["cast", "concat", "create_map", "date", "in", "instr", "protobuf", "string", "time", "timestamp"]
_GROUP_END = "_-_"


def header_pairs(record: Mapping[str, Any]) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record of a test."""
    headers = record.get("headers") or ()
    return [(item["KEY"], None if item["VALUE"] is None else base64.b64decode(item["VALUE"])) for item in headers]


def run_queries(commands: list[Any], case: Mapping[str, Any], use: Callable[[Piped], Any] | None = None) -> Any:
    """Run the queries of a plan one after another, and return the records of each topic.

    Each query is shown to ``use`` before it is run.
    """
    topics: dict[str, list[Any]] = defaultdict(list)
    inputs = [{**record, "headers": header_pairs(record)} for record in case["inputs"]]
    for record in inputs:
        topics[record["topic"]].append(record)
    outside = set(topics)
    for command in commands:
        if not command.get("queryPlan"):
            continue
        query = Query(command["queryPlan"]["physicalPlan"])
        # Its sources are known when it has been built once.
        TopologyTestDriver(query.build).close()
        records = [record for record in inputs if record["topic"] in query.sources]
        for name in query.sources.keys() - outside:
            records += topics[name]
        sources = [source.topic for source in query.sources.values()]
        # Their states have numbers of the records of a process (``aggregates.py``).
        has_numbers = "_BY_OFFSET" in str(query.plan)
        piped = Piped(query.build, sources, query.sink, list(_read(query, records)), not has_numbers)
        if use is not None:
            use(piped)
        topics[query.sink.name] += [_as_input(query, record) for record in piped.written()]
    return topics


def _read(query: Query, records: list[Any]) -> Iterator[Any]:
    for record in records:
        source = query.sources[record["topic"]]
        try:
            key, row, time, headers = source.read(record)
        except FAILURES:
            continue
        yield source.topic, key, row, time, headers


def _as_input(query: Query, record: Record[Any, Any]) -> dict[str, Any]:
    key, window = (record.key.key, record.key.window) if isinstance(record.key, Windowed) else (record.key, None)
    return {
        "topic": query.sink.name,
        "key": Columns(zip(query.keys, key, strict=True)) if key and len(key) > 1 else key,
        "value": None if record.value is None else Columns(record.value),
        "timestamp": record.timestamp_ms,
        "window": window and {"start": window.start_ms, "end": window.end_ms},
        "headers": list(record.headers),
    }


def _are_equal(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-9) or (math.isnan(one) and math.isnan(two))
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_are_equal(value, two[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(map(_are_equal, one, two))
    return type(one) is type(two) and bool(one == two)


@frozen
class Sink:
    """How the records of a topic are read, so that outputs and what a test expects have the same form."""

    schema: Schema
    formats: Mapping[str, Any]
    is_session: bool

    def canonical(self, record: Mapping[str, Any], headers: Any) -> list[Any]:
        """Return key, row, window, headers and time of a record."""
        window = record.get("window") or {}
        bounds = window.get("start"), window.get("end") if self.is_session else None
        key, row = (
            self._columns(record.get("key"), self.schema.keys, "key"),
            self._columns(record["value"], self.schema.values, "value"),
        )
        return [key, row, bounds, headers, record.get("timestamp")]

    def _columns(self, raw: Any, forms: Mapping[str, Type], side: str) -> Row | None:
        form = Format(self.formats, side)
        row = form.columns(raw, forms)
        is_null = row is None or all(value is None for value in row.values())
        return None if is_null and (row is None or side == "key" or (len(forms) == 1 and form.unwraps)) else row


def difference(topics: Mapping[str, list[Any]], outputs: list[Any], sinks: Mapping[str, Sink]) -> str | None:
    """Return the first difference, or None. Times and windows are compared if a test has them."""
    for topic in dict.fromkeys(record["topic"] for record in outputs):
        if topic not in sinks:
            raise SkippedError("outputs of an internal topic")
        sink = sinks[topic]
        seen = [sink.canonical(record, record["headers"]) for record in topics[topic]]
        due = [sink.canonical(record, header_pairs(record)) for record in outputs if record["topic"] == topic]
        for at in range(max(len(seen), len(due))):
            one, two = (records[at] if at < len(records) else None for records in (seen, due))
            if one and two:
                shown = zip(one[2:], two[2:], strict=True)
                one = one[:2] + [b if b in (None, (None, None)) else a for a, b in shown]
            if one is None or two is None or not _are_equal(one, two):
                return f"{topic}[{at}]: expected {two}, seen {one} ({len(due)} expected, {len(seen)} seen)"
    return None


def why_not(name: str, case: Mapping[str, Any]) -> str | None:
    """Return why a test is not translated at all, or None."""
    if name.split(_GROUP_END)[0] in EXPRESSIONS:
        return "a test of ksqlDB's own types, formats or functions"
    if not case["inputs"] or not case.get("outputs"):
        return "the test has no inputs or no outputs"
    if any(setting.startswith("ksql.functions.") for setting in case.get("properties", ())):
        return "settings of ksqlDB's own functions"
    return None


def sinks_of(commands: list[Any]) -> dict[str, Sink]:
    """Return all topics of a plan; one that is written counts as it is written."""
    read: dict[str, Sink] = {}
    written: dict[str, Sink] = {}
    for command in commands:
        ddl = command.get("ddlCommand") or {}
        if "topicName" in ddl:
            is_session = (ddl.get("windowInfo") or {}).get("type") == "SESSION"
            sink = Sink(Schema.of(ddl["schema"]), ddl["formats"], is_session)
            (written if command.get("queryPlan") else read).setdefault(ddl["topicName"], sink)
    return read | written
