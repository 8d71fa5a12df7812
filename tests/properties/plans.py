"""Generated topologies as values: a list of steps, each one call on the builder.

A plan is read top down; step 3 is ``n3``, and whatever no later step takes is written to a topic
named after it.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from attrs import frozen

from streams import (
    EmitStrategy,
    JoinWindows,
    StreamsBuilder,
    Suppressed,
    Topic,
)
from tests.properties import functions

#: Topics that plans read, by what they read them as.
STREAM_TOPICS = ("a", "b", "c")
TABLE_TOPICS = ("t", "u")
GLOBAL_TOPICS = ("g",)
TOPICS: dict[str, Topic[Any, Any]] = {
    name: Topic(name, key=str, value=int) for name in (*STREAM_TOPICS, *TABLE_TOPICS, *GLOBAL_TOPICS)
}


@frozen
class Step:
    """One call: ``verb`` on the results of earlier steps, with windows, functions by name and numbers."""

    verb: str
    sources: tuple[int, ...]
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        words = [f"n{source}" for source in self.sources] + [str(argument) for argument in self.arguments]
        return f"{self.verb}({', '.join(words)})"


@frozen(repr=False)
class Plan:
    """A topology: a function of the builder, with a repr to be read."""

    steps: tuple[Step, ...]

    def __call__(self, builder: StreamsBuilder) -> None:
        made: list[Any] = []
        for number, step in enumerate(self.steps):
            sources = [made[source] for source in step.sources]
            made.append(VERBS[step.verb](builder, f"n{number}", *sources, *step.arguments))
        for number in self.leaves():
            result = made[number]
            (result if hasattr(result, "map") else result.to_stream()).to(f"out{number}", value=int)

    def leaves(self) -> list[int]:
        """Return the steps whose results no other step takes, global tables aside."""
        taken = {source for step in self.steps for source in step.sources}
        return [number for number, step in enumerate(self.steps) if number not in taken and step.verb != "global_table"]

    @property
    def outputs(self) -> list[str]:
        """Names of the topics written to."""
        return [f"out{number}" for number in self.leaves()]

    @property
    def inputs(self) -> list[str]:
        """Names of the topics read, in order of the steps."""
        return [step.arguments[0] for step in self.steps if not step.sources]

    def __repr__(self) -> str:
        lines = [f"    n{number} = {step}" for number, step in enumerate(self.steps)]
        return "\n".join(["Plan:", *lines, f"    written: {', '.join(self.outputs)}"])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the lines rather than the attributes in failing examples."""
        printer.text(repr(self))


def _function(name: str) -> Any:
    return getattr(functions, name)


def _milliseconds(number: int) -> timedelta:
    return timedelta(milliseconds=number)


# Sources.


def _stream(builder: StreamsBuilder, name: str, topic: str, idle_ms: int = 0) -> Any:
    return builder.stream(TOPICS[topic], idle_close=_milliseconds(idle_ms))


def _table(builder: StreamsBuilder, name: str, topic: str, history_ms: int | None) -> Any:
    if history_ms is None:
        return builder.table(TOPICS[topic], name)
    return builder.table(TOPICS[topic], name, history=_milliseconds(history_ms))


def _global_table(builder: StreamsBuilder, name: str, topic: str) -> Any:
    return builder.global_table(TOPICS[topic], name)


# Record by record.


def _with_function(method: str) -> Callable[..., Any]:
    def call(builder: StreamsBuilder, name: str, source: Any, function: str) -> Any:
        return getattr(source, method)(_function(function))

    return call


def _split(builder: StreamsBuilder, name: str, source: Any, predicate: str, mapper: str) -> Any:
    branches = source.split()
    first, rest = branches.branch(_function(predicate)), branches.default_branch()
    return first.map_values(_function(mapper)).merge(rest)


def _merge(builder: StreamsBuilder, name: str, left: Any, right: Any) -> Any:
    return left.merge(right)


def _repartition(builder: StreamsBuilder, name: str, source: Any) -> Any:
    return source.repartition(key=str, value=int)


def _process(builder: StreamsBuilder, name: str, source: Any, processor: str) -> Any:
    return source.process(_function(processor)(f"store-{name}"), key=str, value=int)


def _process_values(builder: StreamsBuilder, name: str, source: Any) -> Any:
    return source.process_values(functions.running_total(f"store-{name}"), value=int)


def _deduplicate(builder: StreamsBuilder, name: str, source: Any, by: str | None, within_ms: int, grace_ms: int) -> Any:
    return source.deduplicate(
        None if by is None else _function(by),
        name,
        within=_milliseconds(within_ms),
        grace=_milliseconds(grace_ms),
        key=str,
        value=int,
    )


# Calls and batches.


def _map_async(builder: StreamsBuilder, name: str, source: Any, order: str, concurrency: int) -> Any:
    options = {"order": order, "concurrency": concurrency}
    return source.map_values_async(functions.scrambled_later, name=f"calls-{name}", **options)


def _flat_map_async(builder: StreamsBuilder, name: str, source: Any, order: str, concurrency: int) -> Any:
    options = {"order": order, "concurrency": concurrency}
    return source.flat_map_async(functions.both_keys_later, name=f"calls-{name}", **options)


def _look_up(builder: StreamsBuilder, name: str, source: Any, by: str | None, entries: int, negative: Any) -> Any:
    asked = {} if by is None else {"by": _function(by), "asked": str}
    found = source.look_up(
        functions.weight_of,
        cache=entries,
        ttl=None,
        negative=None if negative is None else _milliseconds(negative),
        concurrency=4,
        answer=int,
        name=f"look-up-{name}",
        **asked,
    )
    return found.map_pairs(functions.joined)


def _map_batches(builder: StreamsBuilder, name: str, source: Any, max_records: int) -> Any:
    return source.map_values_batches(functions.all_scrambled, max_records=max_records)


# Aggregations of streams.


def _grouped(source: Any, key: str | None, name: str | None = None) -> Any:
    if key is None:
        return source.group_by_key(name, key=str, value=int)
    return source.group_by(_function(key), key=str, value=int)


def _aggregated(grouped: Any, how: str, name: str, *, is_session: bool = False) -> Any:
    match how:
        case "count":
            return grouped.count(name)
        case "chained" | "highest":
            return grouped.reduce(_function(how), name, value=int)
    merger = [functions.followed_merger] if is_session else []
    return grouped.aggregate(functions.zero, functions.followed, *merger, name, value=int)


def _group(builder: StreamsBuilder, name: str, source: Any, key: str | None, how: str) -> Any:
    return _aggregated(_grouped(source, key), how, name)


def _group_expiring(builder: StreamsBuilder, name: str, source: Any, key: str | None, ttl_ms: int) -> Any:
    return _grouped(source, key).count(name, ttl=_milliseconds(ttl_ms))


def _windows(
    builder: StreamsBuilder, name: str, source: Any, key: str | None, windows: Any, how: str, emits: str
) -> Any:
    windowed = _grouped(source, key).windowed_by(windows)
    if emits == "on_close":
        windowed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    elif emits != "on_update":
        windowed = windowed.emit(early_every=2 if emits == "early_by_count" else _milliseconds(15))
    return _aggregated(windowed, how, name, is_session=hasattr(windows, "gap_ms"))


def _cogroup(builder: StreamsBuilder, name: str, left: Any, right: Any, windows: Any) -> Any:
    both = (
        _grouped(left, None, f"{name}-left")
        .cogroup(functions.followed, value=int)
        .cogroup(_grouped(right, None, f"{name}-right"), functions.member_added)
    )
    if windows is None:
        return both.aggregate(functions.zero, name, value=int)
    merger = [functions.followed_merger] if hasattr(windows, "gap_ms") else []
    return both.windowed_by(windows).aggregate(functions.zero, *merger, name, value=int)


# Joins.


def _joined(kind: str, left: Any, right: Any, *arguments: Any, **options: Any) -> Any:
    return getattr(left, kind)(right, functions.joined, *arguments, **options)


def _join_streams(builder: StreamsBuilder, name: str, left: Any, right: Any, kind: str, windows: JoinWindows) -> Any:
    return _joined(kind, left, right, windows, name, key=str, value=int, other_value=int)


def _join_latest(
    builder: StreamsBuilder,
    name: str,
    left: Any,
    right: Any,
    kind: str,
    tolerance_ms: int,
    direction: str,
    grace_ms: int,
) -> Any:
    times = {"tolerance": _milliseconds(tolerance_ms), "grace": _milliseconds(grace_ms)}
    return _joined(kind, left, right, name=name, direction=direction, key=str, value=int, other_value=int, **times)


def _join_table(builder: StreamsBuilder, name: str, left: Any, right: Any, kind: str, grace_ms: int | None) -> Any:
    if grace_ms is None:
        return _joined(kind, left, right, key=str, value=int)
    # Without a key a record cannot wait.
    kept = left.filter(functions.has_key)
    return _joined(kind, kept, right, key=str, value=int, grace=_milliseconds(grace_ms))


def _join_global(builder: StreamsBuilder, name: str, left: Any, right: Any, kind: str) -> Any:
    return _joined(kind, left, right, key=functions.global_key)


def _join_tables(builder: StreamsBuilder, name: str, left: Any, right: Any, kind: str, is_kept: bool) -> Any:
    return _joined(kind, left, right, value=int, **_kept(name, is_kept))


def _join_foreign(builder: StreamsBuilder, name: str, left: Any, right: Any, kind: str) -> Any:
    return _joined(kind, left, right, foreign_key=functions.foreign_key, store=f"store-{name}", value=int)


# Tables.


def _kept(name: str, is_kept: bool) -> dict[str, Any]:
    return {"store": f"store-{name}"} if is_kept else {}


def _to_table(builder: StreamsBuilder, name: str, source: Any, history_ms: int | None) -> Any:
    history = {} if history_ms is None else {"history": _milliseconds(history_ms)}
    return source.to_table(name, key=str, value=int, **history)


def _to_expiring_table(builder: StreamsBuilder, name: str, source: Any, ttl_ms: int) -> Any:
    return source.to_table(name, key=str, value=int, ttl=_milliseconds(ttl_ms))


def _of_table(method: str) -> Callable[..., Any]:
    def call(builder: StreamsBuilder, name: str, source: Any, function: str, is_kept: bool) -> Any:
        return getattr(source, method)(_function(function), **_kept(name, is_kept))

    return call


def _regroup(builder: StreamsBuilder, name: str, source: Any, how: str) -> Any:
    grouped = source.group_by(functions.table_row, key=str, value=int)
    match how:
        case "count":
            return grouped.count(name)
        case "sum":
            return grouped.reduce(functions.summed, functions.subtracted, name, value=int)
    return grouped.aggregate(functions.zero, functions.member_added, functions.member_removed, name, value=int)


def _to_stream(builder: StreamsBuilder, name: str, source: Any) -> Any:
    return source.to_stream()


def _rekeyed(builder: StreamsBuilder, name: str, source: Any, key: str) -> Any:
    return source.to_stream(_function(key)).repartition(key=str, value=int)


def _suppress_time(builder: StreamsBuilder, name: str, source: Any, limit_ms: int, max_records: int | None) -> Any:
    return source.suppress(Suppressed.until_time_limit(_milliseconds(limit_ms), max_records=max_records), name)


def _suppress_close(builder: StreamsBuilder, name: str, source: Any) -> Any:
    return source.suppress(Suppressed.until_window_closes(), name)


#: What each verb does: (builder, name of the step, sources ..., arguments ...) -> stream or table.
VERBS: dict[str, Callable[..., Any]] = {
    "stream": _stream,
    "table": _table,
    "global_table": _global_table,
    "filter": _with_function("filter"),
    "filter_not": _with_function("filter_not"),
    "map": _with_function("map"),
    "map_values": _with_function("map_values"),
    "flat_map": _with_function("flat_map"),
    "flat_map_values": _with_function("flat_map_values"),
    "select_key": _with_function("select_key"),
    "split": _split,
    "merge": _merge,
    "repartition": _repartition,
    "process": _process,
    "process_values": _process_values,
    "deduplicate": _deduplicate,
    "map_async": _map_async,
    "flat_map_async": _flat_map_async,
    "look_up": _look_up,
    "map_batches": _map_batches,
    "group": _group,
    "group_expiring": _group_expiring,
    "windows": _windows,
    "cogroup": _cogroup,
    "join_streams": _join_streams,
    "join_latest": _join_latest,
    "join_table": _join_table,
    "join_global": _join_global,
    "join_tables": _join_tables,
    "join_foreign": _join_foreign,
    "to_table": _to_table,
    "to_expiring_table": _to_expiring_table,
    "filter_table": _of_table("filter"),
    "map_table": _of_table("map_values"),
    "regroup": _regroup,
    "to_stream": _to_stream,
    "rekeyed": _rekeyed,
    "suppress_time": _suppress_time,
    "suppress_close": _suppress_close,
}
