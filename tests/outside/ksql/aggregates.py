"""Aggregate functions of ksqlDB: an initial state, and functions that return new states."""

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.outside.ksql.expressions import call
from tests.outside.ksql.schemas import Expression, SkippedError

_numbers = itertools.count()
LIMIT = 1000  # Of lists, in the functional tests.


@dataclass
class Udaf:
    """An aggregate function; ``undo`` is there if a table can be aggregated with it."""

    initial: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    undo: Callable[[Any, Any], Any] | None = None
    result: Callable[[Any], Any] = lambda state: state


def _some(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the function, but with the unchanged state if the value is null."""
    return lambda state, value: state if value is None else function(state, value)


def _best(choose: Callable[[Any, Any], Any]) -> Udaf:
    pick = _some(lambda state, value: value if state is None else choose(state, value))
    return Udaf(lambda: None, pick, pick)


def _without_last(items: list[Any], value: Any) -> list[Any]:
    at = next((at for at in reversed(range(len(items))) if items[at] == value), None)
    return items if at is None else items[:at] + items[at + 1 :]


def _average(sign: int) -> Callable[[Any, Any], Any]:
    return _some(lambda state, value: (state[0] + sign * value, state[1] + sign))


def _offsets(latest: bool, count: int | None = None, skips_nulls: bool = True) -> Udaf:
    """Return the aggregate of first or last values; a state is a list of (number of the record, value)."""
    if isinstance(count, bool):
        return _offsets(latest, None, count)

    def cut(items: Sequence[Any]) -> Sequence[Any]:
        return items[-(count or 1) :] if latest else items[: count or 1]

    def add(state: list[Any], value: Any) -> Sequence[Any]:
        return state if value is None and skips_nulls else cut([*state, (next(_numbers), value)])

    def result(state: list[Any]) -> Any:
        return [value for _, value in state] if count is not None else state[0][1] if state else None

    return Udaf(list, add, lambda one, two: cut(sorted([*one, *two], key=lambda item: item[0])), None, result)


def _top(size: int, distinct: bool = False, fields: Sequence[str] = ()) -> Udaf:
    def merge(one: list[Any], two: Iterable[Any]) -> list[Any]:
        items = [*one, *(item for item in two if not distinct or item not in one)]
        return sorted(items, key=lambda item: item["sort_col"] if fields else item, reverse=True)[:size]

    def add(state: list[Any], value: Any) -> list[Any]:
        sorts_by = value[0] if fields else value
        return state if sorts_by is None else merge(state, [dict(zip(fields, value, strict=True)) if fields else value])

    return Udaf(list, add, merge)


def _pairwise(one: Any, two: Any) -> Any:
    return one[0] + two[0], one[1] + two[1]


#: Values and how often each is there, by their texts: a value may be a list.
Counts = dict[str, tuple[Any, int]]


def _counted(sign: int) -> Callable[[Counts, Any], Counts]:
    return lambda state, value: _counts(state, {repr(value): (value, sign)})


def _counts(one: Counts, two: Counts) -> Counts:
    values = {key: value for key, (value, _) in [*one.items(), *two.items()]}
    sums = {key: one.get(key, (None, 0))[1] + two.get(key, (None, 0))[1] for key in values}
    return {key: (values[key], number) for key, number in sums.items() if number > 0}


def _only_value(counts: Counts) -> Any:
    return next(iter(counts.values()))[0] if len(counts) == 1 else None


def _deviation(root: bool) -> Udaf:
    """Return the sample variance of values, of which a state has the number, the sum and the sum of squares."""

    def add(sign: int) -> Callable[[Any, Any], Any]:
        return _some(lambda s, v: (s[0] + sign, s[1] + sign * v, s[2] + sign * v * v))

    def result(state: Any) -> Any:
        number, total, squares = state
        variance = (squares - total * total / number) / (number - 1) if number > 1 else 0.0
        return float(variance) ** (0.5 if root else 1)

    def merge(one: Any, two: Any) -> Any:
        return tuple(map(operator.add, one, two))

    return Udaf(lambda: (0, 0, 0), add(1), merge, add(-1), result)


ONE_ARGUMENT = {
    "HISTOGRAM": Udaf(dict, _some(_counted(1)), _counts, _some(_counted(-1)), lambda counts: dict(counts.values())),
    "ATTR": Udaf(dict, _counted(1), _counts, _counted(-1), _only_value),
    "COUNT_DISTINCT": Udaf(dict, _some(_counted(1)), _counts, None, len),
    "SUM_LIST": Udaf(
        lambda: 0,
        _some(lambda n, items: n + sum(item for item in items if item is not None)),
        lambda a, b: a + b,
        _some(lambda n, items: n - sum(item for item in items if item is not None)),
    ),
    "STDDEV_SAMPLE": _deviation(root=True),
    "STDDEV_SAMP": _deviation(root=False),
    "COUNT": Udaf(lambda: 0, _some(lambda n, _: n + 1), lambda a, b: a + b, _some(lambda n, _: n - 1)),
    "SUM": Udaf(lambda: 0, _some(lambda n, v: n + v), lambda a, b: a + b, _some(lambda n, v: n - v)),
    "MIN": _best(min),
    "MAX": _best(max),
    "AVG": Udaf(lambda: (0, 0), _average(1), _pairwise, _average(-1), lambda s: s[0] / s[1] if s[1] else 0.0),
    "COLLECT_LIST": Udaf(list, lambda s, v: [*s, v][:LIMIT], lambda a, b: (a + b)[:LIMIT], _without_last),
    "COLLECT_SET": Udaf(list, lambda s, v: s if v in s else [*s, v], lambda a, b: a + [v for v in b if v not in a]),
}


def aggregate(text: str) -> tuple[Udaf, Expression]:
    """Return the Udaf of a call, and the function of a row that returns its argument."""
    name, arguments = call(text)
    if name in ONE_ARGUMENT and len(arguments) == 1:
        return ONE_ARGUMENT[name], arguments[0]
    if name in ("LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET"):
        return _offsets(name.startswith("LATEST"), *(literal({}) for literal in arguments[1:])), arguments[0]
    if name in ("TOPK", "TOPKDISTINCT") and len(arguments) == 2:
        return _top(arguments[1]({}), distinct=name != "TOPK"), arguments[0]
    if name == "TOPK":
        fields = ["sort_col", *(f"col{at}" for at in range(len(arguments) - 2))]
        return _top(arguments[-1]({}), fields=fields), lambda row: [argument(row) for argument in arguments[:-1]]
    raise SkippedError(f"ksqlDB's aggregate {name} has no evaluator here")
