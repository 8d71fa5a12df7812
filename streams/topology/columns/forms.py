"""What an operator does with its users' functions, as far as columns may do the same."""

from collections.abc import Callable
from typing import Any, TypeAlias

from attrs import frozen


@frozen(eq=False)
class Condition:
    """Forwards the records for which ``function(key, value)`` is true."""

    function: Callable[..., Any]


@frozen(eq=False)
class NewValue:
    """Replaces the value with ``function(value)``, or ``function(key, value)``."""

    function: Callable[..., Any]
    with_key: bool


@frozen(eq=False)
class NewKey:
    """Replaces the key with ``function(key, value)``."""

    function: Callable[..., Any]


@frozen(eq=False)
class Aggregation:
    """Folds the values of a key, or of a key and window, with ``aggregator(key, value, aggregate)``."""

    initializer: Callable[[], Any]
    aggregator: Callable[..., Any]


ColumnForm: TypeAlias = Condition | NewValue | NewKey | Aggregation
