"""The values that cells of text, and objects from files and tables, may become: the one rule for all readers.

Numbers and booleans are read from text, as a CSV file has nothing else.  A number never becomes a time, as it has no
unit.  A fraction never becomes an integer.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import msgspec
from attrs import define, field
from msgspec import inspect

_TIME_TYPES = (inspect.DateTimeType, inspect.TimeDeltaType)


def cell_converter(form: Any, hook: Callable[[type, Any], Any] | None = None) -> Callable[[Any], Any]:
    """Return the function that converts a cell, or a dict of cells, to a class or type expression.

    ``hook`` creates instances of classes that ``msgspec`` does not know.  The function raises ``ValueError`` and
    ``msgspec.ValidationError``, which name the place.
    """
    searches = _Searches()
    search = searches.of(inspect.type_info(form))
    find = search if searches.has_times else None

    def convert(value: Any) -> Any:
        if find is not None and (number := find(value)) is not None:
            place, text = number
            raise ValueError(
                f"expected a time, got {text!r} - at `${place}`; a number has no unit: write times as ISO 8601, "
                "such as 2026-01-31T00:00:00Z, or declare an int and convert it"
            )
        return msgspec.convert(value, form, strict=False, dec_hook=hook)

    return convert


#: Returns a number that stands for a time within a value, with its place below it, such as ``.at``; None without one.
_NumberSearch: TypeAlias = Callable[[Any], tuple[str, Any] | None]


@define
class _Searches:
    """The searches for numbers within one type; types may contain themselves."""

    #: The searches of the fields of each type with fields, by the identity of its description.
    fields: dict[int, dict[str, _NumberSearch]] = field(factory=dict)
    #: Whether any type within the type is a time.
    has_times: bool = False

    def of(self, info: Any) -> _NumberSearch | None:
        """Return a function that finds a number, or a text of digits, where a type has a time; None without times.

        A number has no unit: ``msgspec`` would take it for seconds since 1970.
        """
        if isinstance(info, inspect.Metadata):
            return self.of(info.type)
        types = info.types if isinstance(info, inspect.UnionType) else (info,)
        members = [member.type if isinstance(member, inspect.Metadata) else member for member in types]
        if any(isinstance(member, _TIME_TYPES) for member in members):
            if any(isinstance(member, (inspect.IntType, inspect.FloatType, inspect.AnyType)) for member in members):
                return None
            self.has_times = True
            return partial(_number, takes_text=any(isinstance(member, inspect.StrType) for member in members))
        for member in members:
            if id(member) in self.fields:  # It may be incomplete now: the type contains itself.
                return partial(_number_in_fields, self.fields[id(member)])
            if (fields := getattr(member, "fields", ())) and (parts := self._of_fields(member, fields)):
                return partial(_number_in_fields, parts)
            entry = getattr(member, "item_type", None) or getattr(member, "value_type", None)
            search = None if entry is None else self.of(entry)
            if search is not None:
                return partial(_number_in_entries, search)
        return None

    def _of_fields(self, info: Any, fields: Any) -> dict[str, _NumberSearch]:
        parts = self.fields[id(info)] = {}
        for part in fields:
            search = self.of(part.type)
            if search is not None:
                parts[part.encode_name] = search
        return parts


def _number(value: Any, *, takes_text: bool) -> tuple[str, Any] | None:
    if isinstance(value, str) and not takes_text:
        try:
            float(value)
        except ValueError:
            return None
        return "", value
    return ("", value) if isinstance(value, (int, float, Decimal)) else None


def _number_in_fields(parts: dict[str, _NumberSearch], value: Any) -> tuple[str, Any] | None:
    if type(value) is dict:
        for name, search in parts.items():
            if (entry := value.get(name)) is not None and (number := search(entry)) is not None:
                return f".{name}{number[0]}", number[1]
    return None


def _number_in_entries(search: _NumberSearch, value: Any) -> tuple[str, Any] | None:
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for entry in entries:
        if (number := search(entry)) is not None:
            return f"[...]{number[0]}", number[1]
    return None


def whole_or_same(value: Decimal) -> int | Decimal:
    """Return a decimal without a fraction as an int, and any other unchanged, which no integer field takes."""
    return int(value) if value == value.to_integral_value() else value
