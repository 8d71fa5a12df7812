"""Random topologies and records for columns: functions of a grammar, and JSON that is mostly, not always, accepted."""

import json
import random
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
from attrs import define, frozen

from streams import EmitStrategy, TimeWindows, Topic, time_windowed
from streams.core.blocks.records import NO_TIMESTAMP, Block, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import StreamsError
from streams.core.metrics import Metrics
from streams.core.settings.config import StreamsConfig
from streams.dsl import build_topology
from streams.runtime import ApplicationPlan, Checkpoint, TaskState
from streams.state import open_store

INPUT = TopicPartition("in", 0)


class Value(msgspec.Struct, frozen=True):
    a: int
    b: int
    x: float
    y: float
    ok: bool
    name: str
    fee: float | None = 0.5


class Total(msgspec.Struct, frozen=True):
    n: int = 0
    s: int = 1
    low: float = -0.0
    high: float = 0.0
    up: bool = False


class Changed(msgspec.Struct):
    """As ``Total``, and changed in place."""

    n: int = 0
    s: int = 1
    low: float = -0.0
    high: float = 0.0
    up: bool = False


class Numbers(msgspec.Struct, frozen=True):
    """Values that can be reduced."""

    a: int
    x: float
    ok: bool


FIELDS = {int: ("n", "s"), float: ("low", "high"), bool: ("up",)}
INPUTS = {int: ("v.a", "v.b"), float: ("v.x", "v.y", "v.fee"), bool: ("v.ok",)}


@define
class Grammar:
    """Writes expressions of Python."""

    rng: random.Random
    has_state: bool

    def of(self, kind: type, depth: int) -> str:
        """Return an expression whose values have a type."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return self.leaf(kind)
        if kind is bool:
            return self.condition(depth)
        below = depth - 1
        same = [self.of(kind, below), self.of(kind, below)]
        choice = rng.randrange(7)
        if choice < 3:
            signs = "+-*" if kind is float else "+-*&|^"
            other = self.of(rng.choice([int, float]), below) if kind is float else same[1]
            return f"({same[0]} {rng.choice(signs)} {other})"
        if choice == 3:
            return f"({same[0]} if {self.condition(below)} else {same[1]})"
        if choice == 4:
            return f"{rng.choice(['max', 'min'])}({', '.join(same)})"
        if choice == 5:
            return f"{rng.choice(['abs', '-', '+'])}({same[0]})"
        if kind is float:
            return f"({self.of(rng.choice([int, float]), below)} / {self.of(rng.choice([int, float]), below)})"
        return f"({same[0]} {rng.choice(['//', '%'])} {same[1]})"

    def leaf(self, kind: type) -> str:
        rng = self.rng
        names = list(INPUTS[kind])
        if kind is float:
            names.remove("v.fee")
            names += ["v.fee"] if rng.random() < 0.1 else []
        if self.has_state:
            names += [f"s.{name}" for name in FIELDS[kind]]
        constants = {
            int: ["0", "1", "-3", "7", "2", str(2**53), str(2**62)],
            float: ["0.0", "-0.0", "1.5", "0.1", "1e16", "-2.0", "3.0"],
            bool: ["True", "False"],
        }
        return rng.choice(names) if rng.random() < 0.75 else rng.choice(constants[kind])

    def condition(self, depth: int) -> str:
        rng = self.rng
        below = depth - 1
        if depth <= 0:
            return self.leaf(bool)
        kinds = [rng.choice([int, float]), rng.choice([int, float])]
        signs = [rng.choice(["<", "<=", ">", ">=", "==", "!="]) for _ in range(2)]
        match rng.randrange(6):
            case 0:
                return f"({self.condition(below)} {rng.choice(['and', 'or'])} {self.condition(below)})"
            case 1:
                return f"(not {self.condition(below)})"
            case 2:
                parts = [self.of(kind, below) for kind in (kinds[0], kinds[1], kinds[0])]
                return f"({parts[0]} {signs[0]} {parts[1]} {signs[1]} {parts[2]})"
            case 3:
                return f"bool({self.of(rng.choice([int, float]), below)})"
            case _:
                return f"({self.of(kinds[0], below)} {signs[0]} {self.of(kinds[1], below)})"


def function(text: str) -> Callable[..., Any]:
    """Return a function that is written as text."""
    names: dict[str, Any] = {"Total": Total, "Changed": Changed, "Numbers": Numbers, "Value": Value}
    exec(text, names)
    return names["f"]


def predicate(rng: random.Random) -> Callable[..., Any]:
    return function(f"def f(k, v):\n    return {Grammar(rng, False).condition(2)}")


def mapper(rng: random.Random) -> Callable[..., Any]:
    grammar = Grammar(rng, False)
    parts = ", ".join(grammar.of(kind, 2) for kind in (int, int, float, float, bool))
    return function(f"def f(v):\n    return Value({parts}, v.name)")


def numbers(rng: random.Random) -> Callable[..., Any]:
    grammar = Grammar(rng, False)
    return function(
        f"def f(v):\n    return Numbers({grammar.of(int, 1)}, {grammar.of(float, 1)}, {grammar.condition(1)})"
    )


def adder(rng: random.Random, form: str) -> Callable[..., Any]:
    grammar = Grammar(rng, True)
    kinds = {name: kind for kind, names in FIELDS.items() for name in names}
    parts = {name: grammar.of(kinds[name], 2) for name in ("n", "s", "low", "high", "up")}
    lines = [f"    unused = {grammar.of(float, 2)}"] if rng.random() < 0.2 else []
    if form == "Changed":
        lines += [f"    s.{name} = {part}" for name, part in parts.items()] + ["    return s"]
    else:
        if rng.random() < 0.5:
            lines += [f"    if {grammar.condition(2)}:", f"        return {rng.choice(['s', 'Total()'])}"]
        lines += [f"    return {form}({', '.join(parts.values())})"]
    return function("\n".join(["def f(k, v, s):", *lines]))


def json_of(rng: random.Random, *, is_wild: bool, is_large: bool) -> bytes | None:
    """Return a value in JSON: large ones are at the limits of programs, and wild ones at those of the slicer."""
    a = rng.choice([0, 1, -1, rng.randrange(-9, 20), rng.randrange(-(10**6), 10**6)])
    x = rng.choice([0.0, -0.0, 1.5, rng.uniform(-100, 100), 1e16, 0.1, 1e-7, 3.0, rng.random()])
    fields: dict[str, Any] = {"a": a, "b": rng.choice([1, 2, 7, -3, rng.randrange(1, 99)]), "x": x}
    fields |= {"y": rng.choice([2.0, rng.uniform(1, 9), 0.3]), "ok": rng.random() < 0.6}
    fields |= {"name": rng.choice(["n", "é", ""]), "fee": 0.25}
    if is_large:
        fields["a"] = rng.choice([10**18 - 1, 1 - 10**18, 2**53 + 1, -(2**53), a])
        fields["b"] = rng.choice([0, 10**17, 5])
        fields["y"] = rng.choice([0.0, -0.0, 1e308, 5e-324, 2.5])
    if is_wild:
        match rng.randrange(12):
            case 0:
                fields["a"] = rng.choice([2**62, -(2**63), 2**53 + 1, 2**63 - 1, 10**18])
            case 1:
                fields["b"] = 0
            case 2:
                fields["y"] = rng.choice([0.0, -0.0, 1e308, 5e-324, 1.7976931348623157e308, 1e22, 1e23])
            case 3:
                fields["fee"] = None
            case 4:
                fields["name"] = rng.choice(['"', "\\", "\n", "\x7f", "\U0001f600"])
            case 5:
                fields["x"] = rng.choice([1, -5, 12345678901234567890])
            case 6:
                return None
            case 7:
                return b" " + json.dumps(fields).encode()
            case 8:
                fields = dict(sorted(fields.items()))
            case 9:
                del fields["fee"]
            case _:
                pass
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=is_wild).encode()


@frozen
class Case:
    """A topology, and the blocks of its input."""

    topology: Callable[..., Any]
    blocks: list[Block]
    settings: dict[str, Any]
    commits: list[bool]

    @classmethod
    def of(cls, seed: int) -> "Case":
        rng = random.Random(seed)
        return cls(_topology(rng), *_blocks(rng))


def _topology(rng: random.Random) -> Callable[..., Any]:
    size_ms = rng.choice([1000, 60_000])
    advance_ms = rng.choice([size_ms, size_ms, size_ms // 4, size_ms // 2, 999])
    grace_ms = rng.choice([0, 500, 5000])
    windows = TimeWindows.of(*(timedelta(milliseconds=each) for each in (size_ms, min(advance_ms, size_ms), grace_ms)))
    windowed, on_close = rng.random() < 0.8, rng.random() < 0.5
    steps = [
        (rng.choice(["filter", "filter_not", "map"]), predicate(rng), mapper(rng)) for _ in range(rng.randrange(3))
    ]
    fold = rng.choice(["count", "reduce", "total", "total", "total", "changed", "int", "float"])
    add = {form: adder(rng, form) for form in ("Total", "Changed")}
    mapped = numbers(rng)
    grammar = Grammar(rng, False)
    of_int = function(f"def f(k, v, s):\n    return s + {grammar.of(int, 2)}")
    of_float = function(f"def f(k, v, s):\n    return max(s, {grammar.of(float, 2)})")
    reduced = function(
        f"def f(o, n):\n    return Numbers(o.a + n.a, {rng.choice(['max', 'min'])}(o.x, n.x), o.ok or n.ok)"
    )
    kind: Any = {"count": int, "int": int, "float": float, "total": Total, "changed": Changed, "reduce": Numbers}[fold]
    timed = rng.random() < 0.3

    def topology(builder: Any) -> None:
        time: Any = {"timestamp": lambda value: 1000 * abs(value.a)} if timed else {}
        stream = builder.stream(Topic("in", key=str, value=Value, **time))
        for step, predicate, mapper in steps:
            if step == "map":
                stream = stream.map_values(mapper)
            else:
                stream = getattr(stream, step)(predicate)
        if fold == "reduce":
            stream = stream.map_values(mapped)
        grouped = stream.group_by_key()
        if windowed:
            grouped = grouped.windowed_by(windows)
            grouped = grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) if on_close else grouped
        match fold:
            case "count":
                table = grouped.count("totals")
            case "reduce":
                table = grouped.reduce(reduced, "totals", value=Numbers)
            case "total" | "changed":
                table = grouped.aggregate(kind, add[kind.__name__], "totals", value=kind)
            case _:
                table = grouped.aggregate(kind, of_int if kind is int else of_float, "totals", value=kind)
        key: Any = time_windowed(str, timedelta(milliseconds=size_ms)) if windowed else str
        table.to_stream().to(Topic("out", key=key, value=kind))

    return topology


def _blocks(rng: random.Random) -> tuple[list[Block], dict[str, Any], list[bool]]:
    wild = rng.choice([0.0, 0.0, 0.0, 0.01, 0.2])
    large = rng.choice([0.0, 0.01, 0.1])
    blocks, commits = [], []
    time = offset = 0
    for _ in range(rng.choice([1, 3, 6])):
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        timestamps: list[int] = []
        for _ in range(rng.choice([5, 40, 300])):
            time += rng.choice([0, 1, 50, 300, 2000])
            timestamps.append(max(0, time - rng.choice([0, 0, 0, 10, 1500, 7000])))
            keys.append(None if rng.random() < wild / 20 else rng.choice("abcdé").encode())
            values.append(json_of(rng, is_wild=rng.random() < wild, is_large=rng.random() < large))
        blocks.append(Block(keys, values, timestamps, None, range(offset, offset + len(keys))))
        offset += len(keys)
        commits.append(rng.random() < 0.5)
    handler = rng.choice(["fail", "continue"])
    return blocks, {"deserialization_handler": handler, "processing_handler": handler}, commits


@frozen
class Outcome:
    """All that a task does, and how many records columns took."""

    outputs: list[Any]
    stores: Any
    counts: Any
    checkpoint: Any
    error: str | None


def run(case: Case, columns: str) -> Outcome:
    """Run a case."""
    config = StreamsConfig.of(application_id="app", columns=columns, **case.settings)
    topology = build_topology(case.topology, config)
    plan = ApplicationPlan.make(topology, config, VirtualClock(NO_TIMESTAMP), {"in": 1, "out": 1}, has_lanes=True)
    plan.may_use_columns = True
    (task_id,) = plan.groups
    stores = {spec.name: open_store(spec, None, default_engine="in_memory") for spec in plan.stores_of(task_id)}
    metrics = Metrics()
    state = TaskState(stores, is_timed=False, checkpoint=Checkpoint())
    task = plan.open_task(task_id, state, metrics, is_bounded=True)
    outputs: list[Any] = []
    contents: dict[str, Any] = {}
    error = None
    try:
        for block, commits in zip(case.blocks, case.commits, strict=True):
            task.add(INPUT, block)
            while task.process(NO_TIMESTAMP, 10_000):
                pass
            outputs += _drained(task)
            if commits:
                task.prepare_commit()
                outputs.append([(name, _columns(changes)) for name, changes in task.take_changes()])
                task.write_state({})
        task.note_end(INPUT, case.blocks[-1].offsets[-1] + 1, is_ended=True)
        while task.process(NO_TIMESTAMP, 10_000):
            pass
        task.final_flush()
        contents = {name: sorted(map(repr, store.all())) for name, store in stores.items()}
    except StreamsError as failure:
        error = re.sub("0x[0-9a-f]+", "", f"{type(failure).__name__}: {failure}")
    outputs += _drained(task)
    checkpoint = {} if error else task.checkpoint().to_json()
    task.close()
    return Outcome(outputs, contents, sorted(map(repr, metrics.tallies().items())), checkpoint, error)


def _drained(task: Any) -> list[Any]:
    return [(partition, _columns(block)) for partition, block in task.take_outputs()]


def _columns(block: Block) -> Any:
    lanes = block.lanes and (list(block.lanes.lanes), list(block.lanes.places))
    keys = [None if key is None else bytes(key) for key in block.keys]
    values = [None if value is None else bytes(value) for value in block.values]
    return keys, values, list(block.timestamps), block.headers, lanes
