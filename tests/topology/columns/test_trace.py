"""What is traced gives to the last bit what the function gives; what running with symbols cannot see is refused."""

import enum
import functools
import math
import operator
import random
import re
import struct
import time
from typing import Any

import attrs
import msgspec
import pytest

from streams.topology.columns.symbols import TraceError
from streams.topology.columns.trace import RowShape, trace_condition, trace_fold, trace_value
from tests.topology.columns.evaluate import evaluate, parts


class Kind(enum.Enum):
    A = "a"


class Trade(msgspec.Struct, frozen=True):
    a: int
    b: int
    x: float
    y: float
    ok: bool
    venue: str
    kind: Kind = Kind.A
    fee: float | None = None
    LEVEL = 3

    @property
    def twice(self):
        return self.a * 2

    def is_large(self):
        return self.a > 10 and not self.ok


class Checked(msgspec.Struct):
    a: int

    def __post_init__(self):
        self.a += 1


@attrs.frozen
class Bar:
    open: float = 0.0
    high: float = 0.0
    low: float = 0.0
    n: int = 0


@attrs.define
class Total:
    n: int = 0
    sum: float = 0.0


LEVELS = [5]
LEVEL = 5
NAMES = set("ab")
calls = 0


def counts(_, trade):
    global calls
    calls += 1
    return trade.a > 1


def tries(_, trade):
    try:
        return trade.a / trade.b > 1
    except ZeroDivisionError:
        return False


def loops(_, trade):
    n = 0
    for number in (1, 2, 3):
        n += trade.a * number
    return n > 5


def raises(_, trade):
    if trade.a:
        raise ValueError(trade)
    return trade.ok


def helped(trade):
    return max(trade.a, 3) > 4


def timed(trade):
    return time.time() > trade.a


def yields(_, trade):
    yield trade.a


def bar(_, trade, before):
    if not before.n:
        return Bar(trade.x, trade.x, trade.x, 1)
    return Bar(before.open, max(before.high, trade.x), min(before.low, trade.x), before.n + 1)


def in_place(_, trade, total):
    total.n += 1
    total.sum += trade.x * trade.y
    return total


def evolved(_, trade, before):
    if trade.ok or (trade.a > 5 and trade.x <= trade.y):
        return attrs.evolve(before, n=before.n + trade.a)
    return before


CONDITIONS = {
    "field": (lambda _, t: t.ok, ["ok"]),
    "number": (lambda _, t: t.a, ["a"]),
    "not": (lambda _, t: not t.ok, ["ok"]),
    "and or": (lambda _, t: (t.a and t.x) or t.ok, ["a", "x", "ok"]),
    "chained": (lambda _, t: 1 < t.a < 5, ["a"]),
    "walrus": (lambda _, t: (y := t.a * 2) > 3 and y < 9, ["a"]),
    "else": (lambda _, t: t.x > 1 if t.ok else t.y < 2, ["ok", "x", "y"]),
    "division": (lambda _, t: t.a // 3 > 1 or t.a % -7 == 2, ["a"]),
    "quotient": (lambda _, t: t.a / t.b > 1.5, ["a", "b"]),
    "bits": (lambda _, t: t.a & 255 | 3 ^ t.b, ["a", "b"]),
    "sum of bools": (lambda _, t: t.ok + 1 > 1, ["ok"]),
    "text": (lambda _, t: t.venue == "x" or t.venue != "y", ["venue"]),
    "key": (lambda key, _: key == "q", []),
    "constant": (lambda _, t: t.a > LEVEL, ["a"]),
    "pi": (lambda _, t: t.x > math.pi, ["x"]),
    "default": (lambda _, t, n=3: t.a > n, ["a"]),
    "property": (lambda _, t: t.twice > 4, ["a"]),
    "method": (lambda _, t: t.is_large(), ["a", "ok"]),
    "helper": (lambda _, t: helped(t), ["a"]),
    "tuples": (lambda _, t: (t.a, t.x) > (1, 2.0), ["a", "x"]),
    "is None": (lambda _, t: t.fee is None or t.fee > 1, ["fee"]),
    "max of three": (lambda _, t: max(t.a, t.b, 3) > min(t.a, 7), ["a", "b"]),
    "truth": (lambda _, t: bool(t.a) == t.ok, ["a", "ok"]),
    "operators": (lambda _, t: operator.mul(t.a, 2) > abs(t.b), ["a", "b"]),
    "folded": (lambda _, t: True, []),
}  # fmt: skip

REFUSED = {
    "is a constant": (lambda _, t: t.kind is Kind.A, "uses `is` with something other than None"),
    "isinstance": (lambda _, t: isinstance(t.x, float), "calls isinstance()"),
    "type": (lambda _, t: type(t.a) is int, "calls type()"),
    "global list": (lambda _, t: t.a > LEVELS[0], "uses LEVELS, a list that may change"),
    "global set": (lambda _, t: t.venue in NAMES, "uses NAMES, a set that may change"),
    "class attribute": (lambda _, t: t.LEVEL > 2, "uses Trade.LEVEL, which may change"),
    "clock": (lambda _, t: t.a > time.time(), "uses the module time"),
    "chance": (lambda _, t: random.random() < 0.5, "uses the module random"),
    "clock in a helper": (lambda _, t: timed(t), "uses the module time"),
    "global": (counts, "changes a global variable"),
    "try": (tries, "has a try or with"),
    "loop": (loops, "has a loop"),
    "error": (raises, "calls ValueError()"),
    "generator": (yields, "is a generator or async"),
    "comprehension": (lambda _, t: [t.a], "builds a list"),
    "inner function": (lambda _, t: max((t.a, 2), key=lambda n: n) > 3, "has a function or a comprehension within"),
    "round": (lambda _, t: round(t.x) > 1, "calls round()"),
    "int": (lambda _, t: int(t.x) > 1, "calls int()"),
    "sqrt": (lambda _, t: math.sqrt(t.x) > 1, "calls sqrt()"),
    "power": (lambda _, t: t.a**2 > 4, "computes ** of int"),
    "floor of floats": (lambda _, t: t.x // 2 > 1, "computes // of float and int"),
    "order of texts": (lambda _, t: t.venue < "b", "computes < of str"),
    "emptiness": (lambda _, t: t.venue and t.ok, "asks whether .venue is empty"),
    "method of text": (lambda _, t: t.venue.lower() == "x", "uses .lower of .venue"),
    "shift": (lambda _, t: t.a >> 2, "computes >> of int"),
    "invert": (lambda _, t: ~t.a, "inverts the bits of .a"),
    "text made": (lambda _, t: f"{t.a}" == "1", "makes text"),
    "large": (lambda _, t: t.a > 2**70, f"uses {2**70}, which has more than 64 bits"),
    "inexact": (lambda _, t: t.x > 2**53 + 1, f"uses {2**53 + 1} with a float, which has not all of its digits"),
    "mixed max": (lambda _, t: max(t.a, t.x) > 1, "takes the larger or smaller of a float and an int"),
    "None": (lambda _, t: t.x == None, "computes == of NoneType and float"),  # noqa: E711
    "mutable default": (lambda _, t, levels=[1]: t.a > 1, "uses a list from outside, which may change"),
    "text as condition": (lambda _, t: t.venue, "returns a str as a condition"),
    "enum as condition": (lambda _, t: t.kind == Kind.A, "computes == of Kind and object"),
    "partial": (functools.partial(lambda _, t: t.ok), "is a partial, no function of Python"),
    "object": (Trade, "is a StructMeta, no function of Python"),
    "too many": (
        lambda _, t: (t.a > 1) + (t.a > 2 or t.a > 3 or t.b > 1 or t.b > 2 or t.x > 1 or t.x > 2 or t.y > 1)
        and (t.a > 4 or t.a > 5 or t.b > 3 or t.b > 4 or t.x > 3 or t.x > 4 or t.y > 5)
        and (t.a > 6 or t.a > 7 or t.b > 5 or t.b > 6 or t.x > 5 or t.x > 6 or t.y > 7),
        "has more than 64 ways through its conditions",
    ),
}  # fmt: skip


def bits(value: Any) -> Any:
    """What tells results apart; the sign of NaN depends on the processor's order of operands."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return type(value), value


def trades(seed: int, count: int) -> list[Trade]:
    chosen = random.Random(seed)
    wholes = [0, 1, -1, 2, 3, 7, -9, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]
    floats = [0.0, -0.0, 1.5, -2.25, 1e16, 1e300, math.nan, math.inf, -math.inf, 0.1]
    pick = chosen.choice
    return [
        Trade(
            pick(wholes), pick(wholes), pick(floats), pick(floats), pick([True, False]), pick(["x", "y", ""]), fee=2.0
        )
        for _ in range(count)
    ]


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ArithmeticError as error:
        return type(error)


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_are_traced(name):
    function, fields = CONDITIONS[name]

    traced = trace_condition(function, RowShape.of(str), RowShape.of(Trade))

    assert set(traced.fields) == set(fields)
    for trade in trades(1, 200):
        expected = outcome(lambda row: bool(function("q", row)), trade)
        got = outcome(lambda row: bool(parts(None, evaluate(traced.tree, "q", row), "q", row)[0]), trade)
        assert got == expected, trade


@pytest.mark.parametrize("name", REFUSED)
def test_what_tracing_cannot_see_or_c_does_otherwise_is_refused(name):
    function, reason = REFUSED[name]

    with pytest.raises(TraceError) as refused:
        trace_condition(function, RowShape.of(str), RowShape.of(Trade))

    assert str(refused.value) == reason
    assert calls == 0


FOLDS = {
    "bars": (bar, Bar(), ["x"]),
    "in place": (in_place, Total(), ["x", "y"]),
    "evolve": (evolved, Bar(), ["ok", "a", "x", "y"]),
    "count": (lambda _, t, n: n + 1, 0, []),
    "sum": (lambda _, t, n: n + t.a * t.b, 0, ["a", "b"]),
}


@pytest.mark.parametrize("name", FOLDS)
def test_aggregators_are_traced(name):
    function, initial, fields = FOLDS[name]

    traced = trace_fold(function, initial, None, RowShape.of(Trade))

    assert set(traced.fields) == set(fields)
    assert traced.shape is not None
    state = initial
    for trade in trades(2, 200):
        got = outcome(
            lambda row, state: parts(traced.shape, evaluate(traced.tree, "", row, state), "", row, state), trade, state
        )
        # A copy, as an aggregator may change its aggregate.
        after = outcome(function, "", trade, state if isinstance(state, int) else attrs.evolve(state))
        if isinstance(after, type):
            assert got is after
            continue
        assert list(map(bits, got)) == list(map(bits, traced.shape.parts(after))), trade
        state = after


@pytest.mark.parametrize(
    ("function", "initial", "reason"),
    [
        (lambda _, t, n: n + t.x, 0, "returns a float, not an int"),
        (lambda _, t, n: None, 0, "returns None, not an int"),
        (lambda _, t, n: n, {}, "has values of dict, which is no class with fields"),
        (lambda _, t, n: n, "", "has an aggregate whose type is a str, which is no number"),
        (lambda _, t, n: n, Total(n=0, sum=0), "begins with an int in sum, which is a float"),
        (lambda _, t, n: Total(t.x, t.x), Total(), "gives n, which is an int, a float"),
        (lambda _, t, n: Bar(), Total(), "returns a Bar, not a Total"),
        (lambda _, t, n: n + 1, 2**63, f"uses {2**63}, which has more than 64 bits"),
        (lambda _, t, n: n, Checked(1), "has values of Checked, which does something when it is created"),
    ],
)
def test_aggregates_that_change_their_types_are_refused(function, initial, reason):
    with pytest.raises(TraceError) as refused:
        trace_fold(function, initial, None, RowShape.of(Trade))

    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda t: t.a if t.ok else t.x, "returns a float or an int"),
        (lambda t: t if t.ok else None, "returns None or a Trade"),
        (lambda t: (t.a, t.x), "has values of tuple, which is no class with fields"),
        (lambda t: Bar(t.a), "gives open, which is a float, an int"),
    ],
)
def test_values_without_one_type_are_refused(function, reason):
    with pytest.raises(TraceError) as refused:
        trace_value(function, None, RowShape.of(Trade), with_key=False)

    assert str(refused.value) == reason


class Grammar:
    """Writes random functions of a trade."""

    def __init__(self, seed: int) -> None:
        self.chosen = random.Random(seed)

    def pick(self, *choices: str) -> str:
        return self.chosen.choice(choices)

    def number(self, depth: int, kind: str) -> str:
        if depth <= 0 or self.chosen.random() < 0.2:
            wholes, floats = ("t.a", "t.b", "3", "-7", "0", "(2**40)"), ("t.x", "t.y", "1.5", "-0.0", "1e16")
            return self.pick(*(wholes if kind == "int" else floats))
        left, right = self.number(depth - 1, kind), self.number(depth - 1, kind)
        match self.chosen.randrange(7):
            case 0:
                return f"({left} if {self.test(depth - 1)} else {right})"
            case 1:
                return f"{self.pick('max', 'min')}({left}, {right})"
            case 2:
                return f"{self.pick('abs', '-')}({left})"
            case 3 if kind == "float":
                return f"({self.number(depth - 1, 'int')} / {right})"
        signs = ("+", "-", "*", "//", "%", "&", "|", "^") if kind == "int" else ("+", "-", "*", "/")
        return f"({left} {self.pick(*signs)} {right})"

    def test(self, depth: int) -> str:
        if depth <= 0 or self.chosen.random() < 0.2:
            return self.pick("t.ok", "t.a", "t.x", "t.venue == 'x'", "t.venue != ''")
        match self.chosen.randrange(4):
            case 0:
                return f"({self.test(depth - 1)} {self.pick('and', 'or')} {self.test(depth - 1)})"
            case 1:
                return f"(not {self.test(depth - 1)})"
        left, right = (self.number(depth - 1, self.pick("int", "float")) for _ in range(2))
        return f"({left} {self.pick('<', '<=', '>', '>=', '==', '!=')} {right})"


#: What random functions may be refused for.
ALLOWED = "has more than 64 ways|returns |raises |takes the larger|uses "


def result(trace: Any, function: Any) -> Any:
    """Return the tree of a function, or why it is refused."""
    try:
        return trace(function, None, RowShape.of(Trade)).tree
    except TraceError as refusal:
        return str(refusal)


@pytest.mark.parametrize("kind", ["int", "float", "test"])
def test_random_functions_are_what_they_are_in_python(kind, seeds):
    count, traced_count = 150 * seeds, 0
    for seed in range(count):
        grammar = Grammar(seed)
        text = grammar.test(4) if kind == "test" else grammar.number(4, kind)
        function = eval(f"lambda _, t: {text}", {})
        tree = result(trace_condition if kind == "test" else trace_value, function)
        if isinstance(tree, str):
            assert re.match(ALLOWED, tree), text
            continue
        traced_count += 1
        for trade in trades(seed, 20):
            expected = outcome(function, "", trade)
            got = outcome(lambda row, tree=tree: parts(None, evaluate(tree, "", row), "", row)[0], trade)
            if kind == "test" and not isinstance(expected, type):
                got, expected = bool(got), bool(expected)
            assert bits(got) == bits(expected), (text, trade)
    assert traced_count > count // 2
