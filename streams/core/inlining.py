"""Marks for functions whose bodies may replace calls in the generated program of a sub-topology.

Stores, the record cache and operators mark the functions that they need on the hot path; ``topology.inliner``
reads the source of marked functions. A marked function behaves the same when it is not inlined.
"""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "is_inlined"


def inlined(function: F) -> F:
    """Mark a function, closure or method to be inlined where it is called."""
    function.__dict__[_MARK] = True
    return function


def is_inlined(function: object) -> bool:
    """Whether a function is marked with ``inlined``."""
    return bool(getattr(function, _MARK, False))
