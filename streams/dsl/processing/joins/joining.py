"""Code shared by all joins: the kinds of joins, and joiners with a uniform signature."""

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias

from streams.core.inlining import inlined

#: Signature of joiners inside operators: (key, left, right).
KeyedJoiner: TypeAlias = Callable[[Any, Any, Any], Any]


class JoinKind(Enum):
    """The kind of a join, which determines whether a side may have no match."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"


def two_value_joiner(joiner: Callable[..., Any], with_key: bool) -> KeyedJoiner:
    """Return the joiner as a function that takes (key, left, right)."""
    if with_key:
        return joiner

    @inlined
    def join(_: Any, left: Any, right: Any) -> Any:
        return joiner(left, right)

    return join


def row_joiner(joiner: Callable[..., Any], with_key: bool, with_row_key: bool) -> Callable[[Any, Any, Any, Any], Any]:
    """Return the joiner of records and looked-up rows as a function that takes (key, row key, left, right)."""
    if with_row_key:
        return joiner
    join = two_value_joiner(joiner, with_key)

    @inlined
    def join_values(key: Any, _: Any, left: Any, right: Any) -> Any:
        return join(key, left, right)

    return join_values


def reversed_joiner(joiner: Callable[..., Any], with_key: bool) -> KeyedJoiner:
    """Return the joiner as a function that takes (key, right, left)."""
    if with_key:

        @inlined
        def join_with_key(key: Any, right: Any, left: Any) -> Any:
            return joiner(key, left, right)

        return join_with_key

    @inlined
    def join(_: Any, right: Any, left: Any) -> Any:
        return joiner(left, right)

    return join
