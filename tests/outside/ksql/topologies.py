"""Physical plans of ksqlDB as topologies: a key is a tuple of columns, a row a dict of columns."""

import pickle
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from streams import (
    EmitStrategy,
    JoinWindows,
    Processor,
    Record,
    Serde,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    ValueTransformer,
    Window,
    Windowed,
    session_windowed,
    time_windowed,
)
from tests.outside.ksql.aggregates import aggregate
from tests.outside.ksql.expressions import column_name, compiled, selected, tried
from tests.outside.ksql.schemas import FAILURES, Format, Row, Schema, SkippedError

Key = tuple[Any, ...]
Step = Mapping[str, Any]
DAY, MILLISECOND = timedelta(days=1), timedelta(milliseconds=1)
DATES = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "S": "%f", "X": "%z"}


def _key_bytes(key: Key) -> bytes:
    """Return bytes whose order is that of Kafka's serdes."""
    if len(key) == 1 and type(key[0]) in (str, int):
        return b"s" + key[0].encode() if type(key[0]) is str else b"i" + struct.pack(">q", key[0])
    return b"r" + repr(key).encode()


def _key_of(data: bytes) -> Key:
    kind, rest = data[:1], data[1:]
    if kind == b"r":
        key: Key = eval(rest, {"Decimal": Decimal, "nan": float("nan"), "inf": float("inf")})
        return key
    return (rest.decode(),) if kind == b"s" else struct.unpack(">q", rest)


KEY: Serde[Any] = Serde("ksql-key", _key_bytes, _key_of)
ROW: Serde[Any] = Serde("ksql-row", pickle.dumps, pickle.loads)


def as_key(*components: Any) -> Key | None:
    """Return a key of columns; that of one null is null."""
    return None if components in ((), (None,)) else components


def seconds(number: Any) -> timedelta:
    """Return a duration that a plan gives in seconds."""
    return timedelta(milliseconds=round(number * 1000))


def time_function(column: Step) -> Callable[[Any], int]:
    """Return the function from a value of a timestamp column to epoch milliseconds."""
    if column.get("format") is None:
        return int
    pattern = re.sub(r"'([^']*)'|([A-Za-z])\2*", lambda match: match[1] or DATES.get(match[0], "?"), column["format"])
    if "?" in pattern:
        raise SkippedError(f"date pattern {column['format']}")

    def time_of(text: str) -> int:
        time = datetime.strptime(text, pattern)
        return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)

    return time_of


def windows_of(expression: Any) -> tuple[Any, bool, Serde[Any]]:
    """Return the windows of a windowed aggregate, whether only final results are emitted, and the serde of keys."""
    if isinstance(expression, str):  # " HOPPING ( SIZE 30 SECONDS , ADVANCE BY 10 SECONDS ) "
        kind, grace, is_final = expression.split("(")[0].strip(), None, False
        sizes = [timedelta(**{unit.lower(): int(count)}) for count, unit in re.findall(r"(\d+) ([A-Z]+)", expression)]
        size, advance = sizes[0], sizes[1] if len(sizes) > 1 else None
    else:
        names = ("size", "gap", "advanceBy", "gracePeriod")
        clauses = [expression.get(name) for name in names]
        length, gap, advance, grace = (one and timedelta(**{one["timeUnit"].lower(): one["value"]}) for one in clauses)
        kind, size, is_final = expression["windowType"], length or gap, expression.get("emitStrategy") == "FINAL"
    grace = max(DAY - size, timedelta(0)) if grace is None else grace
    if kind == "SESSION":
        return SessionWindows.of(size, grace=grace), is_final, session_windowed(KEY)
    return TimeWindows.of(size, advance=advance, grace=grace), is_final, time_windowed(KEY, size)


def with_keys(key: Any, row: Row, names: Sequence[str]) -> Row:
    """Return the row with the columns of its key, and the bounds of the key's window."""
    window, key = (key.window, key.key) if isinstance(key, Windowed) else (None, key)
    bounds = {"WINDOWSTART": window.start_ms, "WINDOWEND": window.end_ms} if window else {}
    return {**row, **dict(zip(names, key or (None,) * len(names), strict=False)), **bounds}


def _origin(context: Any, version: int) -> Row:
    metadata = context.record_metadata
    return {"ROWPARTITION": metadata.partition, "ROWOFFSET": metadata.offset} if version else {}


@dataclass
class StreamPseudoColumns(Processor[Any, Any, Any, Any]):
    """Adds the columns of a record that are not in its value."""

    keys: Sequence[str]
    version: int

    def process(self, record: Record[Any, Any]) -> None:
        row = record.value
        if row is not None:
            origin = {"ROWTIME": record.timestamp_ms, **_origin(self.context, self.version)}
            row = {**with_keys(record.key, row, self.keys), **origin}
        self.context.forward(record.key, row)


@dataclass
class TablePseudoColumns(ValueTransformer[Any, Any, Any]):
    """Adds what must be stored with a row. ROWTIME is in the rows of the driver: a transformer does not see times."""

    version: int

    def transform(self, key: Any, row: Row | None) -> Row | None:
        return None if row is None else {**row, **_origin(self.context, self.version)}


@dataclass
class Stamp(Processor[Any, Any, Any, Any]):
    """Gives a record the time in a column, for a sink of WITH (timestamp=...)."""

    column: Step
    keys: Sequence[str]

    def process(self, record: Record[Any, Any]) -> None:
        try:
            time = self.context.stream_time_ms
            if record.value is not None:
                row = with_keys(record.key, record.value, self.keys)
                time = time_function(self.column)(row[self.column["column"]])
        except FAILURES:
            return
        if time >= 0:
            self.context.forward(record.key, record.value, timestamp_ms=time)


@dataclass
class Source:
    """A topic that a query reads: how the records of a test become keys and rows."""

    step: Step
    topic: Topic[Any, Any] = field(init=False)

    def __post_init__(self) -> None:
        info, self.column = (self.step.get(name) for name in ("windowInfo", "timestampColumn"))
        formats = self.step["formats"]
        self.is_windowed, self.size = info is not None, seconds(info["size"]) if info and info.get("size") else None
        serde: Serde[Any] = session_windowed(KEY) if self.size is None else time_windowed(KEY, self.size)
        times: dict[str, Any] = {"timestamp": lambda row: row["ROWTIME"]} if self.column else {}
        self.topic = Topic(self.step["topicName"], key=serde if self.is_windowed else KEY, value=ROW, **times)
        self.schema, self.version = Schema.of(self.step["sourceSchema"]), self.step.get("pseudoColumnVersion", 0)
        self.key_format, self.value_format = Format(formats, "key"), Format(formats, "value")

    def holder(self, node: Any) -> "Holder":
        """Return what the topic is read as, with all of its columns."""
        bounds = ["WINDOWSTART", "WINDOWEND"] if self.is_windowed else []
        pseudo = ["ROWTIME", *(["ROWPARTITION", "ROWOFFSET"] if self.version else []), *self.schema.headers, *bounds]
        keys = list(self.schema.keys)
        return Holder(node, keys, [*self.schema.values, *pseudo, *keys], self.topic.key_serde)

    def read(self, record: Step) -> tuple[Any, Row | None, int, Any]:
        """Return key, row, time and headers of a record; one of FAILURES if ksqlDB would skip it."""
        keys = self.key_format.columns(record.get("key"), self.schema.keys)
        row = self.value_format.columns(record["value"], self.schema.values)
        time, headers = record.get("timestamp") or 0, record["headers"]
        if row is not None:
            row |= {**(keys or {}), "ROWTIME": time}
            if self.column:
                row["ROWTIME"] = time_function(self.column)(row[self.column["column"]])
                if row["ROWTIME"] < 0:
                    raise ValueError("negative time")
            for name, header in self.schema.headers.items():
                last = [value for key, value in headers if key == header][-1:]
                everything = [{"KEY": key, "VALUE": value} for key, value in headers]
                row[name] = everything if header is None else last[0] if last else None
        key: Any = None if keys is None else as_key(*keys.values())
        if self.is_windowed and key is not None:
            start, end = record["window"]["start"], record["window"]["end"]
            key = Windowed(key, Window(start, start + self.size // MILLISECOND if self.size else end))
        return key, row, time, headers


@dataclass
class Holder:
    """A stream, table or group, with the names of its columns and the serde of its keys."""

    node: Any
    keys: Sequence[str]
    values: Sequence[str]
    serde: Serde[Any] = KEY

    def at(
        self,
        node: Any,
        keys: Sequence[str] | None = None,
        values: Sequence[str] | None = None,
        serde: Serde[Any] | None = None,
    ) -> "Holder":
        """Return the same with another node, and other columns if they are named."""
        return Holder(node, self.keys if keys is None else keys, values or self.values, serde or self.serde)


@dataclass
class Query:
    """A query of a plan. After ``build``, a topology function, ``sources``, ``sink`` and its ``keys`` are known."""

    plan: Step
    sources: dict[str, Source] = field(default_factory=dict)
    sink: Topic[Any, Any] = field(init=False)
    keys: Sequence[str] = ()
    builder: Any = field(init=False)
    stores: int = 0

    def build(self, builder: StreamsBuilder) -> None:
        """Build the topology."""
        self.builder, self.sources, self.stores = builder, {}, 0
        if "formats" not in self.plan:
            raise SkippedError("a query without sink")
        holder = self.holder(self.plan["source"])
        node = holder.node.to_stream() if self.plan["@type"].startswith("table") else holder.node
        if self.plan.get("timestampColumn"):
            node = node.process(lambda: Stamp(self.plan["timestampColumn"], holder.keys), value=ROW)
        if self.plan["formats"]["keyFormat"]["format"] == "NONE":
            node = node.select_key(lambda key, row: None)
        self.sink, self.keys = Topic(self.plan["topicName"], key=holder.serde, value=ROW), holder.keys
        node.to(self.sink)
        del self.builder  # So that a query can be sent to other processes.

    def holder(self, step: Step) -> Holder:
        """Return what a step of the plan makes of its sources."""
        kind = re.sub(r"V\d+$", "", step["@type"])
        method = getattr(self, re.sub("([A-Z])", lambda match: "_" + match[1].lower(), kind), None)
        if method is None:
            raise SkippedError(f"step {step['@type']}")
        holder: Holder = method(step)
        return holder

    def _store(self) -> str:
        self.stores += 1
        return f"store-{self.stores}"

    # Sources and rows.

    def stream_source(self, step: Step) -> Holder:
        source = self.sources.setdefault(step["topicName"], Source(step))
        columns = lambda: StreamPseudoColumns(list(source.schema.keys), source.version)  # noqa: E731
        return source.holder(self.builder.stream(source.topic).process_values(columns, value=ROW))

    windowed_stream_source = stream_source

    def table_source(self, step: Step) -> Holder:
        source = self.sources[step["topicName"]] = Source(step)
        keys, serde = list(source.schema.keys), source.topic.key_serde
        types, columns = {"key": serde, "value": ROW}, lambda: TablePseudoColumns(source.version)
        table = self.builder.table(source.topic).transform_values(columns, store=self._store(), **types)
        return source.holder(table.map_values(lambda key, row: row and with_keys(key, row, keys), value=ROW))

    def stream_select(self, step: Step) -> Holder:
        holder = self.holder(step["source"])
        items = {name: tried(function) for function, name in map(selected, step["selectExpressions"])}

        def select(key: Any, row: Row | None) -> Row | None:
            return None if row is None else {name: function(row) for name, function in items.items()}

        is_stream = step["@type"].startswith("stream")
        node = holder.node.map_values(select) if is_stream else holder.node.map_values(select, value=ROW)
        chosen = step.get("selectedKeys")
        if chosen is not None and not set(holder.keys) <= set(chosen):
            places = [holder.keys.index(name) for name in chosen]
            node = node.select_key(lambda key, row: as_key(*(key[place] for place in places)))
        return holder.at(node, step.get("keyColumnNames") or holder.keys, list(items))

    table_select = stream_select

    def stream_filter(self, step: Step) -> Holder:
        holder, accepts = self.holder(step["source"]), tried(compiled(step["filterExpression"]), False)
        return holder.at(holder.node.filter(lambda key, row: row is not None and accepts(row)))

    table_filter = stream_filter

    def stream_flat_map(self, step: Step) -> Holder:
        holder, functions = self.holder(step["source"]), [tried(compiled(text), []) for text in step["tableFunctions"]]
        names = [f"KSQL_SYNTH_{at}" for at in range(len(functions))]

        def explode(row: Row | None) -> Iterator[Row]:
            lists = [] if row is None else [function(row) or [] for function in functions]
            for at in range(max(map(len, lists), default=0)):
                yield {
                    **(row or {}),
                    **{name: items[at] if at < len(items) else None for name, items in zip(names, lists, strict=True)},
                }

        return holder.at(holder.node.flat_map_values(explode), values=[*holder.values, *names])

    # Keys.

    def stream_select_key(self, step: Step) -> Holder:
        holder = self.holder(step["source"])
        texts = step["keyExpression"] if isinstance(step["keyExpression"], list) else [step["keyExpression"]]
        if [text.upper() for text in texts] == ["NULL"]:
            return holder.at(holder.node.select_key(lambda key, row: None), [])
        names: list[str] = []
        added: list[str] = []
        for text in texts:
            names.append(column_name(text) or self._alias(text, [*holder.keys, *holder.values, *added]))
            added += [] if column_name(text) else names[-1:]
        functions, all_columns = [tried(compiled(text)) for text in texts], {*holder.keys, *holder.values}
        of_key = [set(re.findall(r"[A-Za-z_]\w*", text)) & all_columns <= set(holder.keys) for text in texts]

        def rekey(key: Any, row: Row | None) -> tuple[Any, Row | None]:
            """Return the new key, and the row with new key columns; a null row has columns of the key only."""
            window, old = (key.window, key.key) if isinstance(key, Windowed) else (None, key)
            columns = dict(zip(holder.keys, old or (), strict=False)) if row is None else row
            new = [
                function(columns) if row is not None or alone else None
                for function, alone in zip(functions, of_key, strict=True)
            ]
            fresh = {name: value for name, value in zip(names, new, strict=True) if name in added}
            return Windowed(as_key(*new), window) if window else as_key(*new), row and {**row, **fresh}

        if step["@type"].startswith("table"):
            node = holder.node.to_stream().map(rekey).to_table(key=holder.serde, value=ROW)
        elif step["@type"].endswith("V1"):
            present = holder.node.filter(lambda key, row: row is not None)
            node = present.map(rekey).filter(lambda key, row: key is not None)
        else:
            node = holder.node.map(rekey)
        return holder.at(node, names, [*holder.values, *added])

    table_select_key = stream_select_key

    def _alias(self, text: str, used: Sequence[str]) -> str:
        path = re.fullmatch(r"[\w`]+(?:->`?(\w+)`?)+", text)
        base, at = (path[1], -1) if path else ("KSQL_COL", 0)
        names = (base if number < 0 else f"{base}_{number}" for number in [at, *range(at + 1 or 1, 1000)])
        return next(name for name in names if name not in used)

    # Groups and aggregates.

    def stream_group_by_key(self, step: Step) -> Holder:
        holder = self.holder(step["source"])
        return holder.at(holder.node.group_by_key(key=holder.serde, value=ROW))

    def stream_group_by(self, step: Step) -> Holder:
        holder, functions = self.holder(step["source"]), [tried(compiled(text)) for text in step["groupByExpressions"]]
        is_text = step["@type"].endswith("V1") and len(functions) > 1

        def group(row: Row) -> Key | None:
            new = [function(row) for function in functions]
            is_null = any(value is None for value in new)
            return None if is_null else ("|+|".join(map(str, new)),) if is_text else tuple(new)

        present = holder.node.filter(lambda key, row: row is not None)
        if step["@type"].startswith("table"):
            return holder.at(present.group_by(lambda key, row: (group(row), row), key=KEY, value=ROW), serde=KEY)
        return holder.at(present.group_by(lambda key, row: group(row), key=KEY, value=ROW), serde=KEY)

    table_group_by = stream_group_by

    def stream_aggregate(self, step: Step) -> Holder:
        holder, columns = self.holder(step["source"]), step["nonAggregateColumns"]
        calls = [aggregate(text) for text in step["aggregationFunctions"]]

        def initial() -> Any:
            return {}, [udaf.initial() for udaf, _ in calls]

        def folded(verb: str) -> Callable[[Any, Row, Any], Any]:
            def fold(key: Any, row: Row, state: Any) -> Any:
                states = [
                    getattr(udaf, verb)(old, argument(row))
                    for (udaf, argument), old in zip(calls, state[1], strict=True)
                ]
                return {name: row.get(name) for name in columns}, states

            return fold

        def merge(key: Any, one: Any, two: Any) -> Any:
            row = {name: two[0].get(name) if one[0].get(name) is None else one[0][name] for name in columns}
            return row, [udaf.merge(a, b) for (udaf, _), a, b in zip(calls, one[1], two[1], strict=True)]

        def result(key: Any, state: Any) -> Row | None:
            if state is None:
                return None
            results = [udaf.result(old) for (udaf, _), old in zip(calls, state[1], strict=True)]
            return with_keys(key, {**state[0], **dict(zip(names, results, strict=True))}, [])

        names = [f"KSQL_AGG_VARIABLE_{at}" for at in range(len(calls))]
        if step["@type"].startswith("table"):
            if any(udaf.undo is None for udaf, _ in calls):
                raise SkippedError("aggregate of a table without undo")
            table = holder.node.aggregate(initial, folded("add"), folded("undo"), value=ROW)
        elif "windowExpression" in step:
            windows, is_final, serde = windows_of(step["windowExpression"])
            windowed = holder.node.windowed_by(windows)
            windowed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) if is_final else windowed
            mergers = [merge] if isinstance(windows, SessionWindows) else []
            table = windowed.aggregate(initial, folded("add"), *mergers, value=ROW)
            holder = holder.at(None, serde=serde)
        else:
            table = holder.node.aggregate(initial, folded("add"), value=ROW)
        return holder.at(table.map_values(result, value=ROW), values=[*columns, *names])

    stream_windowed_aggregate = table_aggregate = stream_aggregate

    def table_suppress(self, step: Step) -> Holder:
        holder = self.holder(step["source"])
        return holder.at(holder.node.suppress(Suppressed.until_window_closes()))

    # Joins.

    def _sides(self, step: Step) -> tuple[Holder, Holder, str, Callable[[Any, Any], Any], Holder]:
        """Return the sides in the order of the join, its method, its joiner, and the columns of the result."""
        left, right = self.holder(step["leftSource"]), self.holder(step["rightSource"])
        if left.serde.name != right.serde.name and not step["@type"].startswith("fk"):
            raise SkippedError("join of windows of different sizes")
        name = step.get("keyColName")
        values = [*dict.fromkeys([*left.values, *right.values, *([name] if name else [])])]
        verb = {"INNER": "join", "OUTER": "outer_join"}.get(step["joinType"], "left_join")
        nothing = dict.fromkeys(values)
        one, two = (right, left) if step["joinType"] == "RIGHT" else (left, right)

        def joiner(first: Row | None, second: Row | None) -> Row:
            return {**nothing, **(first or {}), **(second or {})}

        return one, two, verb, joiner, left.at(None, [name] if name else None, values)

    def stream_stream_join(self, step: Step) -> Holder:
        left, right, verb, joiner, result = self._sides(step)
        before, after, grace = seconds(step["beforeMillis"]), seconds(step["afterMillis"]), step.get("graceMillis")
        # Without GRACE PERIOD, ksqlDB joins with Java's deprecated JoinWindows.of (KAFKA-10847).
        is_eager = grace is None
        grace = max(DAY - before - after, timedelta(0)) if is_eager else seconds(grace)
        windows = JoinWindows.of(before=before, after=after, grace=grace, eager=is_eager)
        types: dict[str, Any] = {"key": left.serde, "value": ROW, "other_value": ROW}
        return result.at(getattr(left.node, verb)(right.node, joiner, windows, **types))

    def stream_table_join(self, step: Step) -> Holder:
        left, right, verb, joiner, result = self._sides(step)
        return result.at(getattr(left.node, verb)(right.node, joiner, key=left.serde, value=ROW, other_value=ROW))

    def table_table_join(self, step: Step) -> Holder:
        left, right, verb, joiner, result = self._sides(step)
        return result.at(getattr(left.node, verb)(right.node, joiner, key=left.serde, value=ROW))

    def fk_table_table_join(self, step: Step) -> Holder:
        left, right, verb, joiner, result = self._sides(step)
        foreign_key = tried(compiled(step.get("leftJoinExpression") or f"`{step['leftJoinColumnName']}`"))
        options: dict[str, Any] = {
            "foreign_key": lambda key, row: as_key(foreign_key(row)),
            "key": left.serde,
            "value": ROW,
        }
        return result.at(getattr(left.node, verb)(right.node, joiner, **options))
