"""The values that cells of text, and objects from files and tables, may become: the one rule for all readers.

Numbers and booleans are read from text, as a CSV file has nothing else.  A number never becomes a time, as it has no
unit.  A fraction never becomes an integer.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

_TIME_TYPES = (inspect.DateTimeType, inspect.TimeDeltaType)
#: Types within a type that are checked; a deeper one is recursive.
_DEEPEST = 8


def cell_converter(form: Any, hook: Callable[[type, Any], Any] | None = None) -> Callable[[Any], Any]:
    """Return the function that converts a cell, or a dict of cells, to a class or type expression.

    ``hook`` creates instances of classes that ``msgspec`` does not know.  The function raises ``ValueError`` and
    ``msgspec.ValidationError``, which name the place.
    """
    check = _time_check(inspect.type_info(form))

    def convert(value: Any) -> Any:
        if check is not None:
            check(value, "$")
        return msgspec.convert(value, form, strict=False, dec_hook=hook)

    return convert


#: Checks one value; the second argument is its place, such as ``$.at``.
_TimeCheck: TypeAlias = Callable[[Any, str], None]


def _time_check(info: Any, depth: int = 0) -> _TimeCheck | None:
    """Return a function that refuses a number, or a text of digits, where a type has a time; None without times.

    A number has no unit: ``msgspec`` would take it for seconds since 1970.  The function raises ``ValueError``.
    """
    if isinstance(info, inspect.Metadata):
        return _time_check(info.type, depth)
    types = info.types if isinstance(info, inspect.UnionType) else (info,)
    members = [member.type if isinstance(member, inspect.Metadata) else member for member in types]
    if any(isinstance(member, _TIME_TYPES) for member in members):
        if any(isinstance(member, (inspect.IntType, inspect.FloatType, inspect.AnyType)) for member in members):
            return None
        takes_text = any(isinstance(member, inspect.StrType) for member in members)
        return partial(_refuse_number, takes_text=takes_text)
    if depth > _DEEPEST:  # The type is recursive.
        return None
    for member in members:
        checks = {part.encode_name: _time_check(part.type, depth + 1) for part in getattr(member, "fields", ())}
        parts = {name: check for name, check in checks.items() if check is not None}
        if parts:
            return partial(_check_fields, parts)
        entry = getattr(member, "item_type", None) or getattr(member, "value_type", None)
        check = None if entry is None else _time_check(entry, depth + 1)
        if check is not None:
            return partial(_check_entries, check)
    return None


def _refuse_number(value: Any, place: str, *, takes_text: bool) -> None:
    if isinstance(value, str) and not takes_text:
        try:
            float(value)
        except ValueError:
            return
    elif not isinstance(value, (int, float, Decimal)):
        return
    raise ValueError(
        f"expected a time, got {value!r} - at `{place}`; a number has no unit: write times as ISO 8601, such as "
        "2026-01-31T00:00:00Z, or declare an int and convert it"
    )


def _check_fields(parts: dict[str, _TimeCheck], value: Any, place: str) -> None:
    if type(value) is dict:
        for name, check in parts.items():
            if (entry := value.get(name)) is not None:
                check(entry, f"{place}.{name}")


def _check_entries(check: _TimeCheck, value: Any, place: str) -> None:
    if isinstance(value, (list, tuple)):
        for entry in value:
            check(entry, f"{place}[...]")
    elif isinstance(value, dict):
        for entry in value.values():
            check(entry, f"{place}[...]")


def whole_or_same(value: Decimal) -> int | Decimal:
    """Return a decimal without a fraction as an int, and any other unchanged, which no integer field takes."""
    return int(value) if value == value.to_integral_value() else value
