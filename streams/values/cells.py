"""The values that cells of text, and objects from files and tables, may become: the one rule for all readers.

Numbers and booleans are read from text, as a CSV file has nothing else.  A number never becomes a time, as it has no
unit.  A fraction never becomes an integer.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias, get_args, get_type_hints

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


_LEFT_OUT: Any = object()


def null_cells(form: Any, null: str | None = None) -> Callable[[dict[str, str | None]], dict[str, str | None]]:
    """Return the function that sets the null cells in rows of text that become a class or type expression.

    A null cell is None where the type allows it, else it is left out if the field has a default.  Null are cells with
    the text ``null``, and empty cells of other types than text.  Without ``null``, empty cells are also None where the
    type is text or None.
    """
    info = inspect.type_info(form)
    fields = {
        part.encode_name: _null_cell(part.type, null, is_required=part.required) for part in getattr(info, "fields", ())
    }
    entry = info.value_type if isinstance(info, inspect.DictType) else inspect.AnyType()
    others = _null_cell(entry, null, is_required=True)

    def convert(row: dict[str, str | None]) -> dict[str, str | None]:
        result = {}
        for name, cell in row.items():
            if cell is None or cell == null or cell == "":
                empty_as, null_as = fields.get(name, others)
                cell = null_as if cell is None or cell == null else empty_as
            if cell is not _LEFT_OUT:
                result[name] = cell
        return result

    return convert


def declared_cells(form: Any, cells: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the cells of columns that a class or type expression declares, converted to their types.

    Raises:
        ValueError: a cell does not fit its type.
    """
    info = inspect.type_info(form)
    if fields := getattr(info, "fields", ()):
        hints = get_type_hints(getattr(info, "cls", None), include_extras=True)
        types = {part.encode_name: hints[part.name] for part in fields}
    elif isinstance(info, (inspect.DictType, inspect.AnyType)):
        types = dict.fromkeys(cells, get_args(form)[1] if get_args(form) else Any)
    else:
        return {}
    row = null_cells(form)({name: cell for name, cell in cells.items() if name in types})
    try:
        return {name: cell if cell is None else cell_converter(types[name])(cell) for name, cell in row.items()}
    except msgspec.ValidationError as error:
        raise ValueError(f"the name of its folder: {error}") from error


def _null_cell(kind: Any, null: str | None, *, is_required: bool) -> tuple[Any, Any]:
    """Return what an empty cell becomes, and a null cell."""
    types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    members = [member.type if isinstance(member, inspect.Metadata) else member for member in types]
    is_optional = any(isinstance(member, (inspect.NoneType, inspect.AnyType)) for member in members)
    null_as = None if is_optional or is_required else _LEFT_OUT
    if any(isinstance(member, inspect.AnyType) for member in members):
        return "", null_as
    if any(isinstance(member, inspect.StrType) for member in members):
        return None if is_optional and null is None else "", null_as
    return "" if is_required and not is_optional else null_as, null_as
