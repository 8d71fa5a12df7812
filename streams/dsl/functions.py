"""Checks of the signatures of user functions when the topology is built, and evaluation of their return annotations.

``inspect.signature`` determines whether a function accepts a number of positional arguments.  If two forms are allowed,
the shorter form is tried first.  The module is pure and imports only ``core``.
"""

import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

from streams.core.errors import TopologyError
from streams.core.user_code import form_taken, refuse_not_async, refuse_unawaited

F = TypeVar("F", bound=Callable[..., Any])

#: Operators with a counterpart for async functions, whose name ends in ``_async``.
_AWAITED = frozenset({"map", "map_values", "flat_map"})


class _Unknown:
    """The type of ``UNKNOWN``, which stands for a missing annotation, or for a type without a serde."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final[Any] = _Unknown()


def matching_form(
    function: Any, operator: str, forms: Sequence[str], *, may_yield: bool = False, sync: str | None = None
) -> int:
    """Return the index of the first form in ``forms`` with which the function can be called.

    A form such as ``(key, value)`` is shown in messages; the number of arguments follows from its commas.  With
    ``sync``, the function must be async; ``sync`` is the name of the operator for functions that are not async.

    Raises:
        TopologyError: the function is not callable, is (or is not) async, matches no form, or is a generator without
            ``may_yield``.
    """
    if not callable(function):
        raise TopologyError(f"{operator} needs a function of {' or '.join(forms)}, got {function!r}")
    if sync is None:
        awaited_by = f"{operator}_async() of a stream" if operator in _AWAITED else None
        refuse_unawaited(function, operator, may_yield=may_yield, awaited_by=awaited_by)
    else:
        refuse_not_async(function, operator, instead=sync)
    return form_taken(function, operator, forms)


def check_function(function: F, operator: str, form: str, *, may_yield: bool = False) -> F:
    """Return ``function`` if it can be called with the arguments in ``form``, the only form of the operator.

    Raises:
        TopologyError: the function cannot be called in this form; see ``matching_form``.
    """
    matching_form(function, operator, (form,), may_yield=may_yield)
    return function


def pair_of(result: Any, what: str) -> tuple[Any, Any]:
    """Return the key and value that a user function returned; ``what`` names it in the message.

    Raises:
        TypeError: the result is not a pair.
    """
    # Text of two characters, such as a country code, could be unpacked as a pair too.
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise TypeError(f"{what} returned {result!r:.60} where a pair (key, value) is needed")
    return result[0], result[1]


def pairs_of(result: Any, what: str) -> list[tuple[Any, Any]]:
    """Return the pairs of key and value that a user function returned; ``what`` names it in the message.

    Raises:
        TypeError: the result is not iterable, or one of its elements is not a pair.
    """
    if not isinstance(result, Iterable):
        raise TypeError(f"{what} returned {result!r:.60} where a list of pairs (key, value) is needed")
    return [pair_of(element, what) for element in result]


def refuse_unknown(operator: str, options: Mapping[str, Any], declared: type) -> None:
    """Check that the options are fields of a ``TypedDict``.

    Raises:
        TopologyError: an option is none of them.
    """
    if strange := options.keys() - declared.__annotations__.keys():
        option_names = ", ".join(sorted(declared.__annotations__))
        raise TopologyError(f"{operator}: unknown option {min(strange)!r}; there are {option_names}")


def result_type(function: Any) -> Any:
    """Return the return annotation of a function, or ``UNKNOWN`` without one; for a class, return the class itself."""
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
    """Return ``form``, or ``UNKNOWN`` if it is a type without a serde, such as ``Any`` or a type variable."""
    return UNKNOWN if _says_nothing(form) else form


def without_none(form: Any) -> Any:
    """Return ``X`` for ``X | None``, and any other type as it is."""
    if typing.get_origin(form) not in (typing.Union, types.UnionType):
        return form
    kinds = [kind for kind in get_args(form) if kind is not type(None)]
    return typing.Union[tuple(kinds)]  # noqa: UP007 - the members are only known here.


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
