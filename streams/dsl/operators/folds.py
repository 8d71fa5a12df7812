"""Folds: the functions by which count, reduce and aggregate differ; all three use the same operators."""

from collections.abc import Callable
from typing import Any

from attrs import frozen

from streams.core.inlining import inlined


@frozen
class Fold:
    """An initial aggregate, and a function that adds a value to an aggregate: ``aggregator(key, value, aggregate)``.

    ``merger(key, left, right)`` combines the aggregates of two sessions.
    """

    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any] | None = None
    #: Whether the aggregate is independent of the values, even of whether they are None.
    ignores_values: bool = False


@frozen
class TableFold:
    """A fold that can also remove a value from an aggregate: ``subtractor(key, value, aggregate)``."""

    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]


@inlined
def _zero() -> int:
    return 0


@inlined
def _one_more(_: Any, __: Any, count: int) -> int:
    return count + 1


@inlined
def _one_less(_: Any, __: Any, count: int) -> int:
    return count - 1


@inlined
def _sum(_: Any, left: int, right: int) -> int:
    return left + right


@inlined
def _nothing() -> None:
    return None


#: The number of records.
COUNT = Fold(_zero, _one_more, _sum, ignores_values=True)
#: The number of rows of a table.
TABLE_COUNT = TableFold(_zero, _one_more, _one_less)


def reduction(reducer: Callable[[Any, Any], Any]) -> Fold:
    """Return the fold that combines values with ``reducer(old, new)``; the first value is the initial aggregate."""

    @inlined
    def aggregate(_: Any, value: Any, old: Any) -> Any:
        return value if old is None else reducer(old, value)

    @inlined
    def merge(_: Any, left: Any, right: Any) -> Any:
        return right if left is None else reducer(left, right)

    return Fold(_nothing, aggregate, merge)


def table_reduction(adder: Callable[[Any, Any], Any], subtractor: Callable[[Any, Any], Any]) -> TableFold:
    """Return the fold that combines table rows with ``adder(aggregate, new)`` and ``subtractor(aggregate, old)``."""

    @inlined
    def add(_: Any, value: Any, old: Any) -> Any:
        return value if old is None else adder(old, value)

    @inlined
    def subtract(_: Any, value: Any, old: Any) -> Any:
        return subtractor(old, value)

    return TableFold(_nothing, add, subtract)
