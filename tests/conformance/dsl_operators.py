"""Interpreter of the DSL operators: each object of a topology is one call on the builder.

Says what the call's arguments are and nothing else; what they mean is the project's.
"""

import asyncio
import copy
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

from streams import (
    CountWindows,
    EmitStrategy,
    JoinWindows,
    KTable,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
)
from tests.conformance.functions import (
    aggregator,
    extractor,
    flat_function,
    flat_value_function,
    joiner,
    keyless_joiner,
    merger,
    pair_function,
    predicate,
    reducer,
    topic_function,
    value_function,
)
from tests.conformance.processors import processor
from tests.conformance.stores import KeepGlobal, declared_store
from tests.conformance.values import ANYTHING, milliseconds, serde
from tests.conformance.windower import Gapped

Op: TypeAlias = dict[str, Any]
#: What ``peek`` and ``foreach`` do: label, key, value.
Peeked: TypeAlias = Callable[[str, Any, Any], None]

#: Fields with serdes, and the arguments that take them.
_SERDE_FIELDS = ("key", "value", "other_value")
#: Fields with durations of stores, and the arguments that take them.
_DURATION_FIELDS = {"retention_ms": "retention", "history_ms": "history", "ttl_ms": "ttl"}


def windows_of(spec: Op) -> Gapped | CountWindows | TimeWindows | SlidingWindows | SessionWindows | UnlimitedWindows:
    """Return the windows of ``windowed_by``."""
    grace = milliseconds(spec.get("grace", 0))
    match spec["type"]:
        case "tumbling":
            return TimeWindows.of(milliseconds(spec["size"]), grace=grace)
        case "hopping":
            return TimeWindows.of(milliseconds(spec["size"]), milliseconds(spec["advance"]), grace)
        case "sliding":
            return SlidingWindows.of(milliseconds(spec["diff"]), grace=grace)
        case "session":
            return SessionWindows.of(milliseconds(spec["gap"]), grace=grace)
        case "gapped":
            return Gapped(spec.get("grace", 0), spec.get("retention", 1000))
        case "count":
            return CountWindows.of(spec["size"], spec.get("advance"))
        case "unlimited":
            return UnlimitedWindows.of(start=spec.get("start", 0))
    raise KeyError(spec["type"])


def join_windows_of(spec: Op) -> JoinWindows:
    """Return the windows of ``join_stream``."""
    difference = milliseconds(spec["diff"] if "diff" in spec else max(spec["before"], spec["after"], 0))
    grace = milliseconds(spec.get("grace", 0))
    sides: dict[str, timedelta] = {}
    eager = spec.get("eager", False)
    windows = JoinWindows.of(difference, grace=grace, eager=eager)
    # One side after the other, each of which may be refused.
    for side in ("before", "after"):
        if side in spec:
            sides[side] = milliseconds(spec[side])
            windows = JoinWindows.of(difference, grace=grace, eager=eager, **sides)
    return windows


def _serdes(op: Op, *fields: str) -> dict[str, Any]:
    return {field: serde(op[field]) for field in fields or _SERDE_FIELDS if field in op}


def _kept(op: Op, *fields: str) -> dict[str, Any]:
    """Return the arguments that say how a result is stored."""
    options: dict[str, Any] = {"store": op.get("store"), **_serdes(op, *(fields or ("key", "value")))}
    options |= {name: op[name] for name in ("caching", "logging") if name in op}
    options |= {argument: milliseconds(op[field]) for field, argument in _DURATION_FIELDS.items() if field in op}
    return options


def called(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a function of the catalogue as an async one, which gives way once before it answers."""

    async def call(key: Any, value: Any) -> Any:
        await asyncio.sleep(0)
        return function(key, value)

    return call


def _policy(op: Op) -> dict[str, Any]:
    """Return the options of a call; results of several keys have an order only by partition."""
    options = {name: op[name] for name in ("concurrency", "retries") if name in op}
    if "backoff" in op:
        options["backoff"] = milliseconds(op["backoff"])
    return {"order": op.get("order", "partition"), **options}


def _batch(op: Op) -> dict[str, Any]:
    options = {"max_records": op["max_records"]}
    return options | {"max_wait": milliseconds(op["max_wait"])} if "max_wait" in op else options


class DslInterpreter:
    """Builds a topology with the DSL, one operator after the other."""

    def __init__(self, builder: StreamsBuilder, peeked: Peeked) -> None:
        self._builder: Any = builder
        self._peeked = peeked
        #: Streams, tables and groups by id.
        self._nodes: dict[str, Any] = {}

    def add(self, op: Op) -> None:
        """Make the call of an operator.

        Raises:
            KeyError: the language has no such operator.
        """
        method = getattr(self, f"_{op['op']}", None)
        if method is None:
            raise KeyError(f"unknown operator {op['op']!r}")
        result = method(op)
        if result is not None and "id" in op:
            self._nodes[op["id"]] = result

    def _from(self, op: Op) -> Any:
        return self._nodes[op["from"]]

    def _with(self, op: Op) -> Any:
        return self._nodes[op["with"]]

    # Sources and stores.

    def _source_options(self, op: Op) -> dict[str, Any]:
        options = {"name": op.get("name"), **_serdes(op, "key", "value")}
        if "ts_extractor" in op:
            options["timestamp"] = extractor(op["ts_extractor"])
        return options

    def _idle(self, op: Op) -> dict[str, Any]:
        return {"idle_close": milliseconds(op["idle_close"])} if "idle_close" in op else {}

    def _stream(self, op: Op) -> Any:
        topics = [re.compile(op["pattern"])] if "pattern" in op else op["topics"]
        return self._builder.stream(*topics, **self._source_options(op), **self._idle(op))

    def _table(self, op: Op) -> Any:
        return self._builder.table(op["topic"], **self._source_options(op), **_kept(op, "none"))

    def _global_table(self, op: Op) -> Any:
        return self._builder.global_table(op["topic"], **self._source_options(op), **_kept(op, "none"))

    def _add_store(self, op: Op) -> None:
        self._builder.add_state_store(declared_store(op))

    def _add_global_store(self, op: Op) -> None:
        function = value_function(op["fn"]) if "fn" in op else None
        self._builder.add_global_store(
            declared_store(op),
            op["topic"],
            lambda: KeepGlobal(op["name"], op["type"], function),
            **_serdes(op, "key", "value"),
        )

    # Record by record.

    def _filter(self, op: Op, method: str = "filter") -> Any:
        source = self._from(op)
        options = _kept(op) if isinstance(source, KTable) else {}
        return getattr(source, method)(predicate(op["fn"]), op.get("name"), **options)

    def _filter_not(self, op: Op) -> Any:
        return self._filter(op, "filter_not")

    def _map(self, op: Op) -> Any:
        return self._from(op).map(pair_function(op["key_fn"], op["value_fn"]), op.get("name"))

    def _map_values(self, op: Op) -> Any:
        source = self._from(op)
        options = _kept(op) if isinstance(source, KTable) else {}
        return source.map_values(value_function(op["fn"]), op.get("name"), **options)

    def _flat_map(self, op: Op) -> Any:
        return self._from(op).flat_map(flat_function(op["fn"]), op.get("name"))

    def _flat_map_values(self, op: Op) -> Any:
        return self._from(op).flat_map_values(flat_value_function(op["fn"]), op.get("name"))

    def _select_key(self, op: Op) -> Any:
        return self._from(op).select_key(value_function(op["fn"]), op.get("name"))

    def _action(self, op: Op) -> Callable[[Any, Any], None]:
        label = op["label"]
        return lambda key, value: self._peeked(label, key, value)

    def _peek(self, op: Op) -> Any:
        return self._from(op).peek(self._action(op), op.get("name"))

    def _foreach(self, op: Op) -> None:
        self._from(op).for_each(self._action(op), op.get("name"))

    def _split(self, op: Op) -> None:
        split = self._from(op).split(op.get("name"))
        for branch in op["branches"]:
            self._nodes[branch["id"]] = split.branch(predicate(branch["fn"]), branch.get("name"))
        if op.get("default") is not None:
            self._nodes[op["default"]] = split.default_branch()

    def _merge(self, op: Op) -> Any:
        return self._from(op).merge(self._with(op), op.get("name"))

    def _process(self, op: Op) -> Any:
        return self._from(op).process(processor(op["fn"]), op.get("name"), stores=op.get("stores", ()))

    def _process_values(self, op: Op) -> Any:
        return self._from(op).process_values(processor(op["fn"]), op.get("name"), stores=op.get("stores", ()))

    def _deduplicate(self, op: Op) -> Any:
        by = value_function(op["fn"]) if "fn" in op else None
        grace = milliseconds(op["grace"]) if "grace" in op else None
        options = {"store": op.get("store"), **_serdes(op, "key", "value")}
        return self._from(op).deduplicate(by, op.get("name"), within=milliseconds(op["within"]), grace=grace, **options)

    def _look_up(self, op: Op) -> Any:
        answers = op["answers"]

        async def ask(key: Any) -> Any:
            return answers.get(key)

        by = {"by": value_function(op["fn"]), "asked": str} if "fn" in op else {}
        found = self._from(op).look_up(
            ask if op.get("is_async") else answers.get,
            **{"name": op.get("name"), "cache": op["cache"], "ttl": None, "order": "partition", "answer": str, **by},
        )
        return found.map_pairs(lambda value, answer: f"{value}:{answer}")

    def _map_values_async(self, op: Op) -> Any:
        return self._from(op).map_values_async(called(value_function(op["fn"])), op.get("name"), **_policy(op))

    def _map_async(self, op: Op) -> Any:
        function = called(pair_function(op["key_fn"], op["value_fn"]))
        return self._from(op).map_async(function, op.get("name"), **_policy(op))

    def _flat_map_async(self, op: Op) -> Any:
        return self._from(op).flat_map_async(called(flat_function(op["fn"])), op.get("name"), **_policy(op))

    def _map_values_batches(self, op: Op) -> Any:
        function = value_function(op["fn"])
        mapper = lambda values: [function(None, value) for value in values]  # noqa: E731
        return self._from(op).map_values_batches(mapper, op.get("name"), **_batch(op))

    def _flat_map_batches(self, op: Op) -> Any:
        function = flat_function(op["fn"])
        mapper = lambda rows: [pair for key, value in rows for pair in function(key, value)]  # noqa: E731
        return self._from(op).flat_map_batches(mapper, op.get("name"), **_batch(op))

    # Dropped records.

    def _late(self, op: Op) -> Any:
        return self._from(op).late(op.get("name"))

    def _dropped(self, op: Op) -> Any:
        return self._from(op).dropped(op.get("name"))

    # Topics.

    def _to(self, op: Op) -> None:
        topic = topic_function(op["topic_fn"]) if "topic_fn" in op else op["topic"]
        self._from(op).to(topic, op.get("name"), **_serdes(op, "key", "value"))

    def _repartition(self, op: Op) -> Any:
        return self._from(op).repartition(
            op.get("name"), partitions=op.get("partitions"), **_serdes(op, "key", "value")
        )

    # Groups and aggregations.

    def _group_by_key(self, op: Op) -> Any:
        return self._from(op).group_by_key(op.get("name"), **_serdes(op, "key", "value"))

    def _group_by(self, op: Op) -> Any:
        source = self._from(op)
        is_table = isinstance(source, KTable)
        function = pair_function(op["key_fn"], op["value_fn"]) if is_table else value_function(op["fn"])
        return source.group_by(function, op.get("name"), **_serdes(op, "key", "value"))

    def _cogroup(self, op: Op) -> Any:
        first, *others = op["inputs"]
        cogrouped = self._nodes[first["from"]].cogroup(aggregator(first["add"]))
        for other in others:
            cogrouped = cogrouped.cogroup(self._nodes[other["from"]], aggregator(other["add"]))
        return cogrouped

    def _windowed_by(self, op: Op) -> Any:
        windowed = self._from(op).windowed_by(windows_of(op["windows"]))
        if "early_every" in op:
            return windowed.emit(early_every=op["early_every"])
        if "early_every_ms" in op:
            return windowed.emit(early_every=milliseconds(op["early_every_ms"]))
        return windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) if op.get("emit") == "close" else windowed

    def _count(self, op: Op) -> Any:
        return self._from(op).count(op.get("name"), **_kept(op, "key"))

    def _reduce(self, op: Op) -> Any:
        functions = [reducer(op[field]) for field in ("add", "sub") if field in op]
        return self._from(op).reduce(*functions, op.get("name"), **_kept(op))

    def _aggregate(self, op: Op) -> Any:
        functions: list[Any] = [aggregator(op[field]) for field in ("add", "sub") if field in op]
        if "merge" in op:
            functions.append(merger(op["merge"]))
        # A store without a serde takes any value; the type of the first one would be its only one.
        options = {"value": ANYTHING} | _kept(op)
        return self._from(op).aggregate(lambda: copy.deepcopy(op["init"]), *functions, op.get("name"), **options)

    # Tables.

    def _to_stream(self, op: Op) -> Any:
        if "fn" in op:
            return self._from(op).to_stream(value_function(op["fn"]), op.get("name"))
        return self._from(op).to_stream(name=op.get("name"))

    def _to_table(self, op: Op) -> Any:
        return self._from(op).to_table(op.get("name"), **_kept(op))

    def _suppress(self, op: Op) -> Any:
        limit = op.get("max_records")
        if op["until"] == "window_close":
            suppressed = Suppressed.until_window_closes(max_records=limit)
        else:
            suppressed = Suppressed.until_time_limit(
                milliseconds(op["time_limit_ms"]),
                max_records=limit,
                shut_down_when_full=op.get("when_full") == "shutdown",
            )
        return self._from(op).suppress(suppressed, op.get("name"))

    # Joins.

    def _join(self, op: Op, *arguments: Any, **options: Any) -> Any:
        method = {"inner": "join", "left": "left_join", "outer": "outer_join"}[op["kind"]]
        return getattr(self._from(op), method)(self._with(op), *arguments, op.get("name"), **options)

    def _join_stream(self, op: Op) -> Any:
        windows = join_windows_of(op["windows"])
        return self._join(op, joiner(op["joiner"]), windows, store=op.get("store"), **_serdes(op))

    def _join_latest(self, op: Op) -> Any:
        method = {"inner": "join_latest", "left": "left_join_latest"}[op["kind"]]
        options = {name: op[name] for name in ("direction", "name", "store", "logging") if name in op}
        options |= {name: milliseconds(op[name]) for name in ("tolerance", "grace") if name in op} | _serdes(op)
        return getattr(self._from(op), method)(self._with(op), joiner(op["joiner"]), **options)

    def _join_table(self, op: Op) -> Any:
        options = _serdes(op)
        if "grace" in op:
            options["grace"] = milliseconds(op["grace"])
        return self._join(op, joiner(op["joiner"]), **options)

    def _join_global(self, op: Op) -> Any:
        return self._join(op, joiner(op["joiner"]), key=value_function(op["key_fn"]))

    def _join_tables(self, op: Op) -> Any:
        return self._join(op, keyless_joiner(op["joiner"]), **_kept(op))

    def _join_fk(self, op: Op) -> Any:
        return self._join(op, keyless_joiner(op["joiner"]), foreign_key=value_function(op["fk_fn"]), **_kept(op))
