"""Checks of the signatures of user functions when the topology is built, and their return annotations.

The number of positional arguments comes from ``inspect.signature``; if two forms are allowed, the
shorter form is tried first.  Pure; imports core only.
"""

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, get_args

from streams.core.errors import TopologyError
from streams.core.user_code import located, refuse_unawaited

F = TypeVar("F", bound=Callable[..., Any])


class _Unknown:
    """The type of ``UNKNOWN``, which stands for a missing or useless annotation."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final[Any] = _Unknown()


def matching_form(function: Any, operator: str, forms: Sequence[str], *, may_yield: bool = False) -> int:
    """Return the index of the first form in ``forms`` with which the function can be called.

    A form such as ``(key, value)`` is shown in messages; the number of arguments follows from its commas.

    Raises:
        TopologyError: the function is not callable, is async, matches no form, or is a generator without ``may_yield``.
    """
    allowed = " or ".join(forms)
    if not callable(function):
        raise TopologyError(f"{operator} needs a function of {allowed}, got {function!r}")
    refuse_unawaited(function, operator, may_yield=may_yield)
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return 0  # Built-in functions may have no signature: assume the first form, which is the usual one.
    for index, form in enumerate(forms):
        try:
            signature.bind(*[None] * count_of(form))
        except TypeError:
            continue
        return index
    raise TopologyError(f"{operator}: {located(function)} takes {signature}; give a function of {allowed}")


def check_function(function: F, operator: str, form: str, *, may_yield: bool = False) -> F:
    """Return the function if it can be called with the operator's only form.

    Raises:
        TopologyError: the function cannot be called in this form; see ``matching_form``.
    """
    matching_form(function, operator, (form,), may_yield=may_yield)
    return function


def count_of(form: str) -> int:
    """Return the number of arguments in a form such as ``(key, value)``, or 0 for ``()``."""
    return 0 if form == "()" else form.count(",") + 1


def result_type(function: Any) -> Any:
    """Return the return annotation of a function, or ``UNKNOWN``; for a class, return the class."""
    if isinstance(function, type):
        return function
    try:
        form = typing.get_type_hints(function).get("return", UNKNOWN)
    except Exception:  # noqa: BLE001 - annotations that cannot be evaluated are ignored: they are optional.
        return UNKNOWN
    return known_type(form)


def pair_types(form: Any) -> tuple[Any, Any]:
    """Return the two types in a ``tuple[K, V]``, or ``UNKNOWN`` twice for any other type."""
    arguments = get_args(form)
    if typing.get_origin(form) is tuple and len(arguments) == 2 and arguments[1] is not Ellipsis:
        return known_type(arguments[0]), known_type(arguments[1])
    return UNKNOWN, UNKNOWN


def known_type(form: Any) -> Any:
    """Return the type, or ``UNKNOWN`` for types without a serde such as ``Any`` or a type variable."""
    return UNKNOWN if _says_nothing(form) else form


def element_type(form: Any) -> Any:
    """Return the element type of ``Iterable[X]``, ``list[X]`` and similar types, or ``UNKNOWN``."""
    arguments = get_args(form)
    if typing.get_origin(form) is tuple:
        arguments = arguments[:1] if len(set(arguments) - {Ellipsis}) == 1 else ()
    if len(arguments) == 1 and not _says_nothing(arguments[0]):
        return arguments[0]
    return UNKNOWN


def _says_nothing(form: Any) -> bool:
    return form is UNKNOWN or form is Any or form is object or form is type(None) or _has_variable(form)


def _has_variable(form: Any) -> bool:
    return isinstance(form, TypeVar | str) or any(_has_variable(argument) for argument in get_args(form))
