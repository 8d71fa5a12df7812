"""What all joins share: their kinds, and joiners of one settled arity."""

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias

#: A joiner as operators call it: (key, left, right).
KeyedJoiner: TypeAlias = Callable[[Any, Any, Any], Any]


class JoinKind(Enum):
    """Which sides of a join may be missing."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"


def two_value_joiner(joiner: Callable[..., Any], with_key: bool) -> KeyedJoiner:
    """Return the joiner as a function of (key, left, right)."""
    if with_key:
        return joiner

    def join(_: Any, left: Any, right: Any) -> Any:
        return joiner(left, right)

    return join


def joined_text(with_key: bool, left: str, right: str) -> str:
    """Return the call of the joiner, a template's ``$join``, with the values of the names given."""
    return f"$join({'{k}, ' if with_key else ''}{left}, {right})"


def reversed_joiner(joiner: Callable[..., Any], with_key: bool) -> KeyedJoiner:
    """Return the joiner as a function of (key, right, left)."""
    if with_key:

        def join_with_key(key: Any, right: Any, left: Any) -> Any:
            return joiner(key, left, right)

        return join_with_key

    def join(_: Any, right: Any, left: Any) -> Any:
        return joiner(left, right)

    return join
