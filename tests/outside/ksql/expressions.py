"""Expressions of ksqlDB, compiled to Python functions of a row (a dict of columns)."""

import contextlib
import itertools
import math
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

from tests.outside.ksql.schemas import FAILURES, Expression, Row, SkippedError, Tokens, coerce, read_type

T = TypeVar("T")
Binary = Callable[[Expression, Expression], Expression]


def compiled(text: str) -> Expression:
    """Return the function of the row that an expression is."""
    return _whole(text, Parser.expression)


def selected(text: str) -> tuple[Expression, str]:
    """Return the function and the name of an item ``expression AS name``."""

    def item(parser: "Parser") -> tuple[Expression, str]:
        expression = parser.expression()
        parser.tokens.expect("AS")
        return expression, parser.tokens.name()

    return _whole(text, item)


def call(text: str) -> tuple[str, list[Expression]]:
    """Return the name of a call, such as ``TOPK(F0, 2)``, and the functions of its arguments."""
    return _whole(text, lambda parser: (parser.tokens.name().upper(), parser.arguments("(", ")")))


def column_name(text: str) -> str | None:
    """Return the name of the column if the expression is only that, else None."""
    items = Tokens(text).items
    is_column = len(items) == 1 and items[0][0] in ("word", "quoted") and text.upper() not in CONSTANTS
    return items[0][1] if is_column else None


def tried(function: Expression, otherwise: Any = None) -> Expression:
    """Return the function with a result if it fails."""

    def attempt(row: Row) -> Any:
        with contextlib.suppress(*FAILURES):
            return function(row)
        return otherwise

    return attempt


def _whole(text: str, read: "Callable[[Parser], T]") -> T:
    parser = Parser(text)
    result = read(parser)
    if parser.tokens.peek()[0]:
        raise SkippedError(f"expression ends before {parser.tokens.peek()[1]!r}")
    return result


def _numbers(one: Any, two: Any) -> tuple[Any, Any]:
    if {type(one), type(two)} == {Decimal, float}:
        return float(one), float(two)
    return one, two


def _comparison(compare: Callable[[Any, Any], bool]) -> Binary:
    def compare_rows(left: Expression, right: Expression) -> Expression:
        def compared(row: Row) -> bool:
            one, two = _numbers(left(row), right(row))
            return one is not None and two is not None and compare(one, two)

        return compared

    return compare_rows


def _arithmetic(compute: Callable[[Any, Any], Any]) -> Binary:
    # A null is an error, so that the column of the whole expression is null.
    return lambda left, right: lambda row: compute(*_numbers(left(row), right(row)))


def _distinct(left: Expression, right: Expression) -> Expression:
    return lambda row: operator.ne(*_numbers(left(row), right(row)))


def _divide(a: Any, b: Any) -> Any:
    if not isinstance(a, int) or not isinstance(b, int):
        return a / b
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: Any, b: Any) -> Any:
    return a - b * _divide(a, b) if isinstance(a, int) and isinstance(b, int) else math.fmod(a, b)


#: Binding strength and function of binary operators.
BINARY: Mapping[str, tuple[int, Binary]] = {
    "OR": (1, lambda left, right: lambda row: bool(left(row) or right(row))),
    "AND": (2, lambda left, right: lambda row: bool(left(row) and right(row))),
    "<=": (4, _comparison(operator.le)),
    ">=": (4, _comparison(operator.ge)),
    "<>": (4, _comparison(operator.ne)),
    "!=": (4, _comparison(operator.ne)),
    "=": (4, _comparison(operator.eq)),
    "<": (4, _comparison(operator.lt)),
    ">": (4, _comparison(operator.gt)),
    "+": (5, _arithmetic(operator.add)),
    "-": (5, _arithmetic(operator.sub)),
    "*": (6, _arithmetic(operator.mul)),
    "/": (6, _arithmetic(_divide)),
    "%": (6, _arithmetic(_remainder)),
}
PREDICATE, SUM, SIGNED = 4, 5, 7
CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


class Parser:
    """A parser of expressions, by the strength of their operators."""

    def __init__(self, text: str) -> None:
        self.tokens = Tokens(text)

    def arguments(self, opening: str, closing: str) -> list[Expression]:
        """Read what stands between brackets."""
        self.tokens.expect(opening)
        arguments = []
        while not self.tokens.accept(closing):
            arguments.append(self.expression())
            self.tokens.accept(",")
        return arguments

    def expression(self, least: int = 0) -> Expression:
        """Parse an expression of operators that bind at least as strongly."""
        accept = self.tokens.accept
        if accept("NOT"):
            left = _mapped(self.expression(PREDICATE), operator.not_)
        elif accept("-"):
            left = _mapped(self.expression(SIGNED), operator.neg)
        else:
            left = self.postfix(self.primary())
        while True:
            kind, text = self.tokens.peek()
            strength, combine = BINARY.get(text.upper() if kind in ("op", "word") else "", (-1, _distinct))
            if strength >= least:
                self.tokens.next()
                left = combine(left, self.expression(strength + 1))
            elif least > PREDICATE or (predicate := self.predicate(left)) is None:
                return left
            else:
                left = predicate

    def predicate(self, left: Expression) -> Expression | None:
        """Read what may follow a value that is asked about, such as IS NULL, or return None."""
        accept = self.tokens.accept
        if accept("IS", "NULL"):
            return _mapped(left, lambda value: value is None)
        if accept("IS", "NOT", "NULL"):
            return _mapped(left, lambda value: value is not None)
        if accept("IS", "DISTINCT", "FROM"):
            return _distinct(left, self.expression(SUM))
        if accept("IS", "NOT", "DISTINCT", "FROM"):
            return _mapped(_distinct(left, self.expression(SUM)), operator.not_)
        if accept("BETWEEN"):
            low = self.expression(SUM)
            self.tokens.expect("AND")
            return BINARY["AND"][1](BINARY[">="][1](left, low), BINARY["<="][1](left, self.expression(SUM)))
        if accept("LIKE"):
            pattern = self.expression(SUM)
            return lambda row: _like(left(row), pattern(row))
        if accept("IN"):
            options = self.arguments("(", ")")
            return lambda row: (value := left(row)) is not None and any(value == option(row) for option in options)
        return None

    def postfix(self, value: Expression) -> Expression:
        """Read the subscripts and fields behind a value."""
        while True:
            if self.tokens.accept("["):
                value = _subscript(value, self.expression())
                self.tokens.expect("]")
            elif self.tokens.accept("->"):
                value = _subscript(value, _constant(self.tokens.name()))
            else:
                return value

    def primary(self) -> Expression:
        """Read a value: a literal, a column, a call, or what stands in brackets."""
        tokens = self.tokens
        kind, text = tokens.next()
        if kind == "num":
            return _constant(int(text) if text.isdigit() else float(text) if "e" in text.lower() else Decimal(text))
        if kind == "str":
            return _constant(text)
        if text == "(":
            inner = self.expression()
            tokens.expect(")")
            return inner
        if kind == "quoted":
            return lambda row: row.get(text)
        if kind != "word":
            raise SkippedError(f"unexpected {text!r}")
        word = text.upper()
        if word in CONSTANTS:
            return _constant(CONSTANTS[word])
        if word == "CASE":
            return self.case()
        if word == "ARRAY" and tokens.peek()[1] == "[":
            items = self.arguments("[", "]")
            return lambda row: [item(row) for item in items]
        if tokens.peek() != ("op", "("):
            return lambda row: row.get(text)
        if word in ("STRUCT", "MAP"):
            return self.pairs(word)
        if word == "CAST":
            tokens.expect("(")
            inner = self.expression()
            tokens.expect("AS")
            form = read_type(tokens)
            tokens.expect(")")
            return _mapped(inner, lambda value: coerce(value, form))
        return self.called(word)

    def called(self, word: str) -> Expression:
        """Read the arguments of a function."""
        function, takes_nulls = (_bad_udf(), False) if word == "BAD_UDF" else FUNCTIONS.get(word, (None, False))
        if function is None:
            raise SkippedError(f"ksqlDB's function {word} has no evaluator here")
        arguments = self.arguments("(", ")")

        def result(row: Row) -> Any:
            values = [argument(row) for argument in arguments]
            return function(*values) if takes_nulls or not any(value is None for value in values) else None

        return result

    def case(self) -> Expression:
        """Read CASE WHEN ... END."""
        tokens, branches = self.tokens, list[tuple[Expression, Expression]]()
        while tokens.accept("WHEN"):
            condition = self.expression()
            tokens.expect("THEN")
            branches.append((condition, self.expression()))
        otherwise = self.expression() if tokens.accept("ELSE") else _constant(None)
        tokens.expect("END")
        return lambda row: next((result for condition, result in branches if condition(row)), otherwise)(row)

    def pairs(self, word: str) -> Expression:
        """Read the pairs of a struct, or of a map."""
        self.tokens.expect("(")
        pairs: list[tuple[Expression, Expression]] = []
        while not self.tokens.accept(")"):
            key = _constant(self.tokens.name()) if word == "STRUCT" else self.expression()
            self.tokens.expect(":=")
            pairs.append((key, self.expression()))
            self.tokens.accept(",")
        return lambda row: {key(row): value(row) for key, value in pairs}


def _constant(value: Any) -> Expression:
    return lambda row: value


def _mapped(inner: Expression, function: Callable[[Any], Any]) -> Expression:
    return lambda row: function(inner(row))


def _subscript(value: Expression, index: Expression) -> Expression:
    def subscript(row: Row) -> Any:
        container, at = value(row), index(row)
        if container is None or at is None:
            return None
        if isinstance(container, dict):
            return container.get(at)
        at -= at > 0
        return container[at] if -len(container) <= at < len(container) else None

    return subscript


def _like(value: str | None, pattern: str | None) -> bool:
    if value is None or pattern is None:
        return False
    return re.fullmatch(re.escape(pattern).replace("%", ".*").replace("_", "."), value, re.DOTALL) is not None


def _substring(text: str, start: int, length: int | None = None) -> str:
    begin = max(len(text) + start, 0) if start < 0 else max(min(start - 1, len(text)), 0)
    return text[begin:] if length is None else text[begin : begin + max(length, 0)]


def _bad_udf() -> Callable[[Any], Any]:
    """The UDF of the tests that fails for an int and for true, and returns null for every other text."""
    calls = itertools.count()

    def bad_udf(value: Any) -> Any:
        if isinstance(value, str):
            return value if next(calls) % 2 else None
        if value is False:
            return 0
        raise ValueError("BAD_UDF")

    return bad_udf


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _cube(items: list[Any]) -> list[Any]:
    """Return all lists in which some of the items are null, in the order of a counter; null is null only."""
    choices = [[item] if item is None else [None, item] for item in items]
    return [list(choice) for choice in itertools.product(*choices)]


def _series(first: int, last: int, step: int | None = None) -> list[int]:
    step = step or (1 if last >= first else -1)
    return list(range(first, last + (1 if step > 0 else -1), step))


#: Functions, and whether they see null arguments (otherwise their result is null).
FUNCTIONS: Mapping[str, tuple[Callable[..., Any] | None, bool]] = {
    "AS_VALUE": (lambda value: value, True),
    "COALESCE": (_first, True),
    "CONCAT": (lambda *values: "".join(value for value in values if value is not None), True),
    "EXPLODE": (lambda items: items, True),
    "CUBE_EXPLODE": (_cube, True),
    "GENERATE_SERIES": (_series, False),
    "UCASE": (str.upper, False),
    "LCASE": (str.lower, False),
    "LEN": (len, False),
    "TRIM": (str.strip, False),
    "SUBSTRING": (_substring, False),
    "INITCAP": (lambda text: " ".join(word.capitalize() for word in text.split(" ")), False),
    "ABS": (abs, False),
}
