"""Aggregates for ``summarize``: each is the result over the values of a key, or of a key and window.

An aggregate of values that may be None passes over None, as SQL does.  ``where=`` is a condition of the records that
count, with ``&``, ``|`` and ``~`` for "and", "or" and "not".  Where no record counts, ``sum`` and ``count`` are 0, and
the others are None.  Equal calls share a state.

>>> class Spent(NamedTuple):
...     most: int
...     mean: float
...     orders: int
>>> spent = orders.group_by_key().summarize(
...     lambda amount: Spent(agg.max(amount), agg.mean(amount), agg.count(where=amount > 2))
... )
>>> play(spent, ("ann", 5), ("ann", 2))
[('ann', Spent(most=5, mean=5.0, orders=1)), ('ann', Spent(most=5, mean=3.5, orders=1))]
"""

import builtins
import math
import operator
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast, overload

from streams.core.errors import TopologyError
from streams.core.installation import pip_install
from streams.dsl.summaries import Aggregate as Aggregate
from streams.dsl.summaries import current, left, one, one_more, right, same

T = TypeVar("T")

__all__ = ["Aggregate", "count", "distinct", "first", "last", "max", "mean", "min", "quantile", "std", "sum", "var"]


_COUNT: Final = Aggregate[Any, int](one, one_more, operator.add, state=int, empty=0)
_FIRST: Final = Aggregate[Any, Any](same, left, left)
_LAST: Final = Aggregate[Any, Any](same, right, right)
_MAX: Final = Aggregate[Any, Any](same, builtins.max, builtins.max)
_MIN: Final = Aggregate[Any, Any](same, builtins.min, builtins.min)
_SUM: Final = Aggregate[Any, Any](same, operator.add, operator.add)
#: Sums of types that have a zero.
_SUMS: Final = {
    type(zero): Aggregate[Any, Any](same, operator.add, operator.add, state=type(zero), empty=zero)
    for zero in (0, 0.0, Decimal(0), timedelta(0))
} | {bool: Aggregate[Any, Any](operator.pos, operator.add, operator.add, state=int, empty=0)}


def count(value: object = True, *, where: bool = True) -> int:
    """Return the number of records, or of those whose ``value`` is not None."""
    return _COUNT(value, where=where)


@overload
def first(value: T) -> T: ...
@overload
def first(value: T, *, where: bool) -> T | None: ...
def first(value: T, *, where: bool = True) -> T | None:
    """Return the value that arrived first; of merged sessions, that of the earlier session."""
    return cast("T | None", _FIRST(value, where=where))


@overload
def last(value: T) -> T: ...
@overload
def last(value: T, *, where: bool) -> T | None: ...
def last(value: T, *, where: bool = True) -> T | None:
    """Return the value that arrived last; of merged sessions, that of the later session."""
    return cast("T | None", _LAST(value, where=where))


@overload
def max(value: T) -> T: ...  # noqa: A001 - the names of SQL and Python, in a module of their own.
@overload
def max(value: T, *, where: bool) -> T | None: ...  # noqa: A001
def max(value: T, *, where: bool = True) -> T | None:  # noqa: A001
    """Return the largest value, as Python's ``max`` compares: a NaN that is first stays."""
    return cast("T | None", _MAX(value, where=where))


@overload
def min(value: T) -> T: ...  # noqa: A001
@overload
def min(value: T, *, where: bool) -> T | None: ...  # noqa: A001
def min(value: T, *, where: bool = True) -> T | None:  # noqa: A001
    """Return the smallest value, as Python's ``min`` compares: a NaN that is first stays."""
    return cast("T | None", _MIN(value, where=where))


def sum(value: T | None, *, where: bool = True) -> T:  # noqa: A001
    """Return the sum of the values, added in the order in which they arrive."""
    return cast("T", _SUMS.get(current().type_of(value), _SUM)(value, where=where))


@overload
def mean(value: float | None, *, where: bool = True) -> float: ...
@overload
def mean(value: T | None, *, where: bool = True) -> T: ...
def mean(value: Any, *, where: bool = True) -> Any:
    """Return the sum of the values divided by their number: a float for numbers, else of their type."""
    return current().ratio(sum(value, where=where), count(value, where=where))


def var(value: float | None, *, where: bool = True, ddof: int = 1) -> float | None:
    """Return the variance of numbers, divided by their number minus ``ddof``; None of as few values as that.

    It is computed with each value from the mean so far (Welford's method), and merged by that of Chan.
    """
    return _spread(_variance, ddof)(value, where=where)


def std(value: float | None, *, where: bool = True, ddof: int = 1) -> float | None:
    """Return the standard deviation of numbers: the root of ``var``."""
    return _spread(_deviation, ddof)(value, where=where)


#: The number of values, their mean, and the sum of squared distances from it.
_Spread: TypeAlias = tuple[int, float, float]


def _spread_of(value: float) -> _Spread:
    return 1, value / 1, 0.0


def _spread_more(state: _Spread, value: float) -> _Spread:
    number, mean, squares = state
    far = value - mean
    mean += far / (number + 1)
    return number + 1, mean, squares + far * (value - mean)


def _spread_both(left: _Spread, right: _Spread) -> _Spread:
    number = left[0] + right[0]
    far = right[1] - left[1]
    return number, left[1] + far * right[0] / number, left[2] + right[2] + far * far * left[0] * right[0] / number


def _variance(ddof: int, state: _Spread) -> float | None:
    number, _, squares = state
    return squares / (number - ddof) if number > ddof else None


def _deviation(ddof: int, state: _Spread) -> float | None:
    variance = _variance(ddof, state)
    return None if variance is None else math.sqrt(variance)


def _spread(result: Callable[[int, _Spread], float | None], ddof: int) -> Aggregate[Any, float | None]:
    shown = partial(result, ddof)
    return Aggregate(_spread_of, _spread_more, _spread_both, shown, state=_Spread, value=float | None)


def distinct(value: object, *, where: bool = True) -> int:
    """Return about how many different texts, whole numbers or floats there are, with a standard error of 1.6 %.

    The state is a HyperLogLog sketch of Apache DataSketches with 4,096 buckets, at most 4 KB.  It needs the extra
    ``sketches``.

    Raises:
        TopologyError: the extra is not installed.
    """
    empty = _sketches().hll_sketch(_BUCKETS).serialize_compact()
    counted = Aggregate[Any, int](_seen_first, _seen, _seen_both, _seen_number, state=bytes, empty=empty, value=int)
    return counted(value, where=where)


_BUCKETS: Final = 12  # 2 to the power of it.


def _seen_first(value: Any) -> bytes:
    return _seen(None, value)


def _seen(state: bytes | None, value: Any) -> bytes:
    if type(value) not in (str, int, float):
        raise TypeError(f"agg.distinct counts str, int and float, not {type(value).__qualname__}: {value!r:.60}")
    kind = _sketches().hll_sketch
    sketch = kind(_BUCKETS) if state is None else kind.deserialize(state)
    sketch.update(value)
    return cast(bytes, sketch.serialize_compact())


def _seen_both(left: bytes, right: bytes) -> bytes:
    sketches = _sketches()
    union = sketches.hll_union(_BUCKETS)
    for state in (left, right):
        union.update(sketches.hll_sketch.deserialize(state))
    return cast(bytes, union.get_result().serialize_compact())


def _seen_number(state: bytes) -> int:
    return round(cast(float, _sketches().hll_sketch.deserialize(state).get_estimate()))


def quantile(value: float | None, q: float, *, where: bool = True) -> float | None:
    """Return about the number below which a share ``q`` of the values is, from 0 to 1: 0.99 is the 99th percentile.

    The state is a t-digest of Apache DataSketches, at most 4 KB, whose error is least at both ends; quantiles of the
    same values share it.  NaN is passed over; without a number the result is None.  It needs the extra ``sketches``.

    Raises:
        TopologyError: the extra is not installed, or ``q`` is not from 0 to 1.
    """
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise TopologyError(f"q of agg.quantile is a share from 0 to 1, such as 0.99, not {q!r}")
    _sketches()
    shown = partial(_digest_at, float(q))
    digested = Aggregate[Any, "float | None"](
        _digest_first, _digest, _digest_both, shown, state=bytes, value=float | None
    )
    return digested(value, where=where)


_CENTROIDS: Final = 200


def _digest_first(value: float) -> bytes:
    return _digest(None, value)


def _digest(state: bytes | None, value: float) -> bytes:
    kind = _sketches().tdigest_double
    digest = kind(_CENTROIDS) if state is None else kind.deserialize(state)
    digest.update(value)
    return cast(bytes, digest.serialize())


def _digest_both(left: bytes, right: bytes) -> bytes:
    kind = _sketches().tdigest_double
    digest = kind.deserialize(left)
    digest.merge(kind.deserialize(right))
    return cast(bytes, digest.serialize())


def _digest_at(q: float, state: bytes) -> float | None:
    digest = _sketches().tdigest_double.deserialize(state)
    return None if digest.is_empty() else cast(float, digest.get_quantile(q))


def _sketches() -> Any:
    try:
        import datasketches
    except ImportError:
        raise TopologyError(f"agg.distinct and agg.quantile need datasketches: {pip_install('sketches')}") from None
    return datasketches
