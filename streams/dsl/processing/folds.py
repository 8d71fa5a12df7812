"""Folds: the functions by which count, reduce and aggregate differ; all three use the same operators."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

from attrs import define, evolve, field, frozen

from streams.core.errors import TopologyError
from streams.core.inlining import inlined
from streams.core.serdes.serdes import Serde
from streams.core.user_code import located

#: Takes (key, value, aggregate).
_Function: TypeAlias = Callable[[Any, Any, Any], Any]
_Copied: TypeAlias = Callable[[Any], Any]


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
    #: Whether the aggregator gets None for an aggregate without values.
    starts_with_none: bool = False

    def with_copies(self, copied: _Copied) -> "Fold":
        """Return the fold whose functions get aggregates from ``copied``."""
        merger = self.merger
        return evolve(
            self,
            aggregator=_on_copy(self.aggregator, copied),
            merger=merger and (lambda key, left, right: merger(key, copied(left), copied(right))),
        )


@frozen
class TableFold:
    """A fold that can also remove a value from an aggregate: ``subtractor(key, value, aggregate)``."""

    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]

    def with_copies(self, copied: _Copied) -> "TableFold":
        """Return the fold whose functions get aggregates from ``copied``."""
        adder, subtractor = (_on_copy(function, copied) for function in (self.adder, self.subtractor))
        return evolve(self, adder=adder, subtractor=subtractor)


FoldT = TypeVar("FoldT", Fold, TableFold)


def on_copies(fold: FoldT, serde: Serde[Any]) -> FoldT:
    """Return a fold whose functions get copies of aggregates, so that they may change them in place.

    For operators that use an aggregate after they have passed it on, as the old value of a change.  Aggregates that
    ``serde`` knows as immutable are not copied.
    """
    return fold if serde.is_immutable else fold.with_copies(partial(_copied, serde))


def _copied(serde: Serde[Any], aggregate: Any) -> Any:
    # The serde of an undeclared type is open before the first aggregate.
    return aggregate if aggregate is None or serde.is_immutable else _copy_of(aggregate)


def _on_copy(function: _Function, copied: _Copied) -> _Function:
    return lambda key, value, aggregate: function(key, value, copied(aggregate))


@define(eq=False)
class OwnAggregates:
    """Calls a user's initializer, and rejects an aggregate that it returns for a second key after the first changed it.

    Which keys would share it depends on partitions, processes and restarts.  An object that is returned each time may
    be shared as long as no aggregator changes it, so its content is compared, not its identity.
    """

    initializer: Callable[[], Any]
    #: Whether each aggregate is a new object, or immutable, so that nothing is left to compare.
    _is_decided: bool = field(init=False, default=False)
    #: The first aggregate and its content.
    _first: tuple[Any, bytes] | None = field(init=False, default=None)

    def __call__(self) -> Any:
        """Return the initial aggregate of a key.

        Raises:
            TopologyError: it is an object that was the initial aggregate of another key, and has changed.
        """
        aggregate = self.initializer()
        if not self._is_decided:
            self._compare(aggregate)
        return aggregate

    def _compare(self, aggregate: Any) -> None:
        first = self._first
        if first is not None and first[0] is aggregate:
            if _content_of(aggregate) != first[1]:
                raise TopologyError(
                    f"initializer {located(self.initializer)} returned the {type(aggregate).__qualname__} that it had "
                    "returned before, which an aggregator has changed since: keys would share it; return a new one "
                    "each time"
                )
            return
        content = None if first is not None or _is_value(aggregate) else _content_of(aggregate)
        self._first = None if content is None else (aggregate, content)
        self._is_decided = content is None


def _is_value(aggregate: Any) -> bool:
    """Return whether an object is hashed by its content, which therefore cannot change."""
    try:
        hash(aggregate)
    except TypeError:
        return False
    by_identity: Any = object.__hash__
    return type(aggregate).__hash__ is not by_identity


def _copy_of(aggregate: Any) -> Any:
    """Return a copy of an object and of all within it."""
    import copy
    import pickle

    try:
        return pickle.loads(pickle.dumps(aggregate))
    except Exception:  # noqa: BLE001 - a class within a function, for example, cannot be pickled.
        return copy.deepcopy(aggregate)


def _content_of(aggregate: Any) -> bytes | None:
    """Return what an object contains, in an order of its own, or None if it cannot be told."""
    import pickle

    try:
        return pickle.dumps(aggregate)
    except Exception:  # noqa: BLE001 - classes decide what their pickling raises; such an object is not compared.
        return None


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


def state_fold(add: _Function, merge: _Function) -> Fold:
    """Return the fold of functions that take None for a state without values."""
    return Fold(_nothing, add, merge, starts_with_none=True)


def table_reduction(adder: Callable[[Any, Any], Any], subtractor: Callable[[Any, Any], Any]) -> TableFold:
    """Return the fold that combines table rows with ``adder(aggregate, new)`` and ``subtractor(aggregate, old)``."""

    @inlined
    def add(_: Any, value: Any, old: Any) -> Any:
        return value if old is None else adder(old, value)

    @inlined
    def subtract(_: Any, value: Any, old: Any) -> Any:
        return subtractor(old, value)

    return TableFold(_nothing, add, subtract)
