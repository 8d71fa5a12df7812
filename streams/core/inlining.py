"""The mark of functions whose body the program of a sub-topology may contain in place of a call.

Stores, the record cache and operators mark what they want on the hot path; ``topology.inliner`` reads
the source of marked functions.  A marked function runs the same without the compiler.
"""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "is_inlined"


def inlined(function: F) -> F:
    """Mark a function, closure or method as one to inline where it is called."""
    function.__dict__[_MARK] = True
    return function


def is_inlined(function: object) -> bool:
    """Whether a function is marked."""
    return bool(getattr(function, _MARK, False))
