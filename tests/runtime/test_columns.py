"""What columns compute is what rows compute: results, times, order, state, drops and errors, to the last bit."""

import itertools
import json
import math
import random
import struct
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from streams import EmitStrategy, StreamsBuilder, TimeWindows, Topic, time_windowed
from streams.core.blocks.records import Block
from streams.runtime.tasks.columns.reader import MIN_ROWS
from streams.runtime.tasks.columns.runs import ColumnRuns
from tests.runtime.column_cases import Case, Value, run

compiled = pytest.importorskip("streams.core.blocks.compiled_columns", reason="installed without a C compiler")
KINDS = {"a": 0, "x": 1, "ok": 2, "name": 3}


class Plain(msgspec.Struct):
    a: int
    x: float
    ok: bool
    name: str


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many records columns have taken in each run."""
    counts: list[int] = []
    original = ColumnRuns._run

    def counted(self: ColumnRuns, *arguments: Any) -> int:
        counts.append(original(self, *arguments))
        return counts[-1]

    monkeypatch.setattr(ColumnRuns, "_run", counted)
    return counts


def compared(first: int, count: int, columns: str = "auto") -> None:
    for seed in range(first, first + count):
        case = Case.of(seed)
        assert run(case, columns) == run(case, "off"), f"Case.of({seed})"


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_functions_give_what_rows_give(taken: list[int], first: int) -> None:
    compared(first, 20)
    assert sum(taken) > 500


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_many_random_functions_give_what_rows_give(taken: list[int], first: int) -> None:
    compared(first, 100)
    assert sum(taken) > 2500


@pytest.mark.parametrize("first", [200, 220])
def test_random_functions_pass_the_check(first: int) -> None:
    compared(first, 20, "check")


# --- JSON -----------------------------------------------------------------------------------


def sliced(*rows: bytes | None) -> list[list[int]] | None:
    columns = compiled.JsonColumns(list(KINDS), list(KINDS.values()), [0, 1, 2, -1]).slice(list(rows))
    return None if columns is None else [column.tolist() for column in columns]


def bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def json_row(**fields: str) -> bytes:
    texts = {"a": "1", "x": "1.5", "ok": "true", "name": '"n"'} | fields
    return ("{" + ",".join(f'"{name}":{text}' for name, text in texts.items()) + "}").encode()


NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "0.0",
    "1.",
    ".5",
    "01",
    "-01",
    "00",
    "1e5",
    "1E+5",
    "1e",
    "1e+",
    "-1.5e-7",
    "1e400",
    "1e-400",
    "5e-324",
    "NaN",
    "Infinity",
    "1_0",
    "+1",
    "0x1",
    "-",
    "9007199254740993.0",
    "0.1",
    "123456789012345678",
    "1234567890123456789",
    "9223372036854775808",
    "1e22",
    "1e23",
    "0.30000000000000004",
    "12345678901234567.25",
    "null",
    '"1"',
    "1.0",
    "true",
    '1,"b":2',
    "1}",
    "2.2250738585072011e-308",
    "1.7976931348623157e308",
    "1.7976931348623159e308",
    "00.5",
    "1.5.5",
    "1e5.5",
    "1e0",
]


@pytest.mark.parametrize("text", NUMBERS)
@pytest.mark.parametrize("name", ["a", "x"])
def test_a_number_is_what_the_decoder_makes_of_it_or_is_not_taken(name: str, text: str) -> None:
    row = json_row(**{name: text})
    columns = sliced(row)
    if columns is not None:
        value = msgspec.json.decode(row, type=Plain)
        assert columns == [[value.a], [bits(value.x)], [int(value.ok)]]


def test_usual_numbers_are_taken() -> None:
    rows = [json_row(a=a, x=x) for a, x in [("-5", "-0.0"), ("0", "3"), ("12", "1e-7"), ("9", "0.1")]]
    rows = [*rows[:2], rows[2].replace(b":", b": ").replace(b",", b", "), rows[3]]
    assert sliced(*rows) == [[-5, 0, 12, 9], [bits(x) for x in (-0.0, 3.0, 1e-7, 0.1)], [1] * 4]


def test_random_floats_are_read_exactly() -> None:
    rng = random.Random(5)
    floats = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(2000)]
    floats = [number for number in floats if math.isfinite(number)] + [
        round(rng.uniform(-999, 999), 3) for _ in range(999)
    ]
    texts = [rng.choice([repr(number), f"{number:.17g}"]) for number in floats]
    rows = [json_row(x=text) for text in texts if text.lstrip("-0") or "." in text]
    columns = sliced(*rows)
    assert columns is not None
    assert columns[1] == [bits(msgspec.json.decode(row, type=Plain).x) for row in rows]


@pytest.mark.parametrize(
    "row",
    [
        None,
        b"",
        b"{}",
        b"{",
        json_row()[:-1],
        json_row() + b" ",
        b" " + json_row(),
        json_row().replace(b":", b":  "),
        json_row().replace(b",", b" ,"),
        json_row(name='"\\x"'),
        json_row(name='"\\u12g4"'),
        json_row(name='"\\ud800"'),
        json_row(name='"\\"'),
        json_row(name='"'),
        json_row(name='"\x01"'),
        json_row(name="1"),
        json_row(ok="tru"),
        json_row(ok="1"),
        json_row(ok="null"),
        json_row(b="2"),
        json_row().replace(b'"n"', b'"\xff"'),
        json_row().replace(b'"n"', b'"\xed\xa0\x80"'),
        json_row().replace(b'"a"', b'"c"'),
        json_row().replace(b'"a":1,', b""),
        b"[1]",
    ],
)
def test_what_may_mean_something_else_is_left_to_the_decoder(row: bytes | None) -> None:
    assert sliced(row) is None
    assert sliced(json_row(), row) is None


def test_broken_json_is_taken_only_if_it_means_the_same() -> None:
    rng = random.Random(3)
    whole = json_row(name='"é\\n\\u00e9\\""', x="-12.5e3").replace(b":", b": ")
    for _ in range(3000):
        row = bytearray(whole)
        for _ in range(rng.randrange(1, 3)):
            row[rng.randrange(len(row))] = rng.choice(b'{}":,.0159-+eEtfalsrudDnx \\\xc3\xa9')
        columns = sliced(bytes(row))
        if columns is not None:
            value = msgspec.json.decode(bytes(row), type=Plain)
            assert columns == [[value.a], [bits(value.x)], [int(value.ok)]]


# --- what is left to rows -------------------------------------------------------------------

LIMIT = 5
TOTALS = Topic("out", key=str, value=int)


def block(count: int = 4 * MIN_ROWS, **fields: Any) -> Block:
    value = {"a": 1, "b": 2, "x": 1.5, "y": 2.0, "ok": True, "name": "n", "fee": 0.5} | fields
    data: bytes = json.dumps(value, separators=(",", ":")).encode()
    return Block([b"k"] * count, [data] * count, list(range(count)), None, range(count))


def case(topology: Any, *blocks: Block) -> Case:
    parts = []
    for each in blocks or (block(),):
        start = sum(map(len, parts))
        parts.append(Block(each.keys, each.values, each.timestamps, None, range(start, start + len(each))))
    return Case(topology, parts, {}, [True] * len(parts))


def totals(add: Any, initial: Any = int) -> Any:
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(Topic("in", key=str, value=Value))
        stream.group_by_key().aggregate(initial, add, "totals", value=int).to_stream().to(TOTALS)

    return topology


def test_a_name_that_is_bound_anew_is_seen(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [1]

    def outer() -> Any:
        step = 1

        def add(_: str, value: Value, total: int) -> int:
            return total + step + LIMIT

        def change() -> None:
            nonlocal step
            step = 10

        return add, change

    add, change = outer()
    given = case(totals(add), block(), block())
    assert run(given, "auto") == run(given, "off")
    assert sum(taken) == 8 * MIN_ROWS
    path_of: list[Any] = []
    original = ColumnRuns.takes

    def changing(self: ColumnRuns, part: Any) -> bool:
        path_of.append(self.path)
        return original(self, part)

    monkeypatch.setattr(ColumnRuns, "takes", changing)
    taken.clear()
    run(given, "auto")
    assert all(path.is_bound for path in path_of)
    monkeypatch.setitem(globals(), "LIMIT", 6)
    assert not any(path.is_bound for path in path_of)
    monkeypatch.setitem(globals(), "LIMIT", 5)
    assert numbers
    change()
    assert not any(path.is_bound for path in path_of)


def test_a_quotient_that_nobody_uses_is_an_error_too(taken: list[int]) -> None:
    def add(_: str, value: Value, total: int) -> int:
        value.a / value.b
        return total + 1 if value.b == 0 else total + 2

    given = case(totals(add), block(), block(b=0))
    outcome = run(given, "auto")
    assert outcome == run(given, "off")
    assert "ZeroDivisionError" in str(outcome.error)
    assert sum(taken) == 4 * MIN_ROWS


def test_a_whole_number_of_more_than_64_bits_is_left_to_python(taken: list[int]) -> None:
    given = case(
        totals(lambda _, value, total: (total + value.a) * 40 % 1_000_003), block(a=10**17), block(a=10**18 - 1)
    )
    outcome = run(given, "auto")
    assert outcome == run(given, "off")
    assert outcome.error is None
    assert 0 < sum(taken) < 8 * MIN_ROWS


def test_a_whole_number_that_no_float_is_equal_to_is_compared_exactly() -> None:
    given = case(totals(lambda _, value, total: total + (value.a > value.x)), block(a=2**53 + 1, x=float(2**53)))
    outcome = run(given, "auto")
    assert outcome == run(given, "off")
    assert f"value={4 * MIN_ROWS}" in str(outcome.stores)


def test_headers_and_records_without_a_key_are_left_to_rows(taken: list[int]) -> None:
    plain = block()
    some = Block([b"k", None] * MIN_ROWS, plain.values[: 2 * MIN_ROWS], range(2 * MIN_ROWS), None)  # type: ignore[arg-type]
    given = case(totals(lambda _, value, total: total + value.a), plain, some)
    assert run(given, "auto") == run(given, "off")
    headed = Case(
        given.topology,
        [Block(plain.keys, plain.values, plain.timestamps, [(("h", b""),)] * len(plain), plain.offsets)],
        {},
        [True],
    )
    taken.clear()
    assert run(headed, "auto") == run(headed, "off")
    assert not taken


def test_a_record_without_a_key_is_filtered_by_its_key_as_by_rows(taken: list[int]) -> None:
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(Topic("in", key=str, value=Value)).filter(lambda key, _: key is None)
        stream.group_by_key().count("totals").to_stream().to(TOTALS)

    plain = block()
    plain.keys = [*[b"k"] * (len(plain) - 1), None]
    outcome = run(case(topology, plain), "auto")
    assert outcome == run(case(topology, plain), "off")
    assert "null key" in str(outcome.counts)
    assert sum(taken) == len(plain) - 1


class CheckedValue(Value, frozen=True):
    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("below 0")


def test_records_that_are_checked_when_they_are_created_are_left_to_rows(taken: list[int]) -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(Topic("in", key=str, value=CheckedValue)).group_by_key().count("totals").to_stream().to(TOTALS)

    wrong = Case(topology, [block(a=-1)], {"deserialization_handler": "continue"}, [True])
    outcome = run(wrong, "auto")
    assert outcome == run(wrong, "off")
    assert "unreadable" in str(outcome.counts)
    assert not taken


@dataclass(slots=True)
class SlotsValue:
    a: int
    b: int
    x: float
    y: float
    ok: bool
    name: str
    fee: float


def test_a_value_that_a_filter_changes_is_left_to_rows(taken: list[int]) -> None:
    def changes(_: str, value: SlotsValue) -> bool:
        value.a += 1
        return True

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(Topic("in", key=str, value=SlotsValue)).filter(changes)
        stream.group_by_key().aggregate(int, lambda _, value, total: total + value.a, "totals", value=int)

    outcome = run(case(topology), "auto")
    assert outcome == run(case(topology), "off")
    assert f"value={8 * MIN_ROWS}," in str(outcome.stores)
    assert not taken


class Rates:
    rate = 1


def rate_of(settings: Any) -> Any:
    return lambda number: number * settings.rate


def changing_rate() -> tuple[Any, Any]:
    rate = 1

    def rated(number: int) -> int:
        return number * rate

    def set_rate() -> None:
        nonlocal rate
        rate = 5

    return rated, set_rate


rated, set_rate = changing_rate()
of_rates = rate_of(Rates())


def test_what_a_function_that_is_called_uses_from_outside_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Rates

    def attribute_of_an_object(_: str, value: Value, total: int) -> int:
        return total + of_rates(value.a)

    def attribute_of_a_class(_: str, value: Value, total: int) -> int:
        return total + value.a * settings.rate

    def attribute_of_a_function(_: str, value: Value, total: int) -> int:
        return total + value.a * rated.rate  # type: ignore[attr-defined]

    def variable(_: str, value: Value, total: int) -> int:
        return total + rated(value.a)

    monkeypatch.setattr(rated, "rate", 1, raising=False)

    def after_two_blocks(add: Any, change: Any) -> str:
        count = 0

        def seen(*_: Any) -> None:
            nonlocal count
            count += 1
            if count == 4 * MIN_ROWS:
                change()

        def topology(builder: StreamsBuilder) -> None:
            stream = builder.stream(Topic("in", key=str, value=Value)).group_by_key()
            stream.aggregate(int, add, "totals", value=int).to_stream().peek(seen).to(TOTALS)

        return str(run(case(topology, block(), block()), "auto").stores)

    changes = {
        attribute_of_an_object: lambda: setattr(Rates, "rate", 5),
        attribute_of_a_class: lambda: setattr(Rates, "rate", 5),
        attribute_of_a_function: lambda: setattr(rated, "rate", 5),
        variable: set_rate,
    }
    for add, change in changes.items():
        monkeypatch.setattr(Rates, "rate", 1)
        assert f"value={24 * MIN_ROWS}," in after_two_blocks(add, change), add.__name__


def test_a_function_that_sets_an_attribute_of_a_class_is_left_to_rows(taken: list[int]) -> None:
    def notes(_: str, value: Value) -> bool:
        Rates.last = value.a  # type: ignore[attr-defined]
        return True

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(Topic("in", key=str, value=Value)).filter(notes)
        stream.group_by_key().count("totals")

    run(case(topology, block(a=7)), "auto")
    assert Rates.last == 7  # type: ignore[attr-defined]
    assert not taken


class Numbered(msgspec.Struct, frozen=True):
    n: int = 0
    at: int = msgspec.field(default_factory=itertools.count().__next__)


def test_an_aggregate_with_a_factory_is_left_to_rows(taken: list[int]) -> None:
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(Topic("in", key=str, value=Value)).group_by_key()
        stream.aggregate(Numbered, lambda _, value, total: Numbered(total.n + value.a), "totals", value=Numbered)

    run(case(topology), "auto")
    assert not taken


def test_an_aggregate_that_keys_share_is_refused_as_by_rows() -> None:
    from tests.runtime.column_cases import Changed

    shared = Changed()

    def add(_: str, value: Value, total: Changed) -> Changed:
        total.n += 1
        return total

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(Topic("in", key=str, value=Value))
        stream.group_by_key().aggregate(lambda: shared, add, "totals", value=Changed).to_stream().to(
            Topic("out", key=str, value=Changed)
        )

    two = block()
    two.keys = [b"k", b"l"] * (len(two) // 2)
    by_rows = run(case(topology, two), "off")
    shared.n = 0
    assert run(case(topology, two), "auto").error == by_rows.error
    assert "keys would share it" in str(by_rows.error)


def test_a_store_that_is_ahead_of_stream_time_is_left_to_rows(taken: list[int]) -> None:
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(Topic("in", key=str, value=Value, timestamp=lambda value: value.a))
        windows = TimeWindows.of(timedelta(seconds=1))
        grouped = stream.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        grouped.count("totals")

    given = case(topology, block(a=5000), block(a=500))
    assert run(given, "auto") == run(given, "off")
    assert sum(taken) == 8 * MIN_ROWS - 1


def test_a_window_closes_with_the_record_at_its_end(taken: list[int]) -> None:
    def topology(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of(timedelta(seconds=1))
        grouped = builder.stream(Topic("in", key=str, value=Value)).group_by_key().windowed_by(windows)
        grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count("totals").to_stream().to(
            Topic("out", key=time_windowed(str, timedelta(seconds=1)), value=int)
        )

    at_the_end = block()
    at_the_end.timestamps = [1000] * len(at_the_end)
    given = case(topology, block(), at_the_end)
    outcome = run(given, "auto")
    assert outcome == run(given, "off")
    assert [len(columns[0]) for _, columns in outcome.outputs[1:2]] == [1]
    assert sum(taken) == 8 * MIN_ROWS - 1


def test_the_check_names_the_record_and_both_results(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ColumnRuns._run

    def wrong(self: ColumnRuns, part: Any, updates: list[Any]) -> int:
        count = original(self, part, updates)
        row, code, start_ms, time_ms, (total,) = updates[20]
        updates[20] = (row, code, start_ms, time_ms, (total + 1,))
        return count

    monkeypatch.setattr(ColumnRuns, "_run", wrong)
    error = str(run(case(totals(lambda _, value, total: total + value.a)), "check").error)
    assert "in-0 at offset 20, node 'totals', window 0: columns give ((22,), 20), and rows give ((21,), 20)" in error


class Sparse(msgspec.Struct, frozen=True, omit_defaults=True):
    n: int = 0
    low: float = -0.5


def test_an_aggregate_that_is_written_without_its_defaults_is_left_to_rows(taken: list[int]) -> None:
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(Topic("in", key=str, value=Value)).group_by_key()
        totals = stream.aggregate(Sparse, lambda _, value, total: Sparse(total.n + value.a), "totals", value=Sparse)
        totals.to_stream().to(Topic("out", key=str, value=Sparse))

    assert run(case(topology), "auto") == run(case(topology), "off")
    assert not taken


def test_records_after_one_whose_result_fails_are_not_counted_as_late() -> None:
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream(Topic("in", key=str, value=Value)).group_by_key()
        totals = stream.windowed_by(TimeWindows.of(timedelta(milliseconds=10))).count("totals")
        totals.to_stream().select_key(lambda key, _: str(key)).map_values(lambda _: "no number").to(TOTALS)

    rows = block()
    rows.timestamps = [1000, *[0] * (len(rows) - 1)]
    outcome = run(case(topology, rows), "auto")
    assert outcome == run(case(topology, rows), "off")
    assert "offset 0" in str(outcome.error)
