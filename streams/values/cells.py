"""The values that cells of text, and objects from files and tables, may become: the one rule for all readers.

Numbers and booleans are read from text, as a CSV file has nothing else.  A number never becomes a time, as it has no
unit.  A fraction never becomes an integer.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import inspect

from streams.core.serdes.serdes import RefusedPart, Visit, exact_text, visit_of
from streams.values.rule import plain_member

_TIME_TYPES = (inspect.DateTimeType, inspect.TimeDeltaType)
_NUMBER_TYPES = (inspect.IntType, inspect.FloatType, inspect.AnyType)
#: Types of which a text may be read as a fraction, where a union has one.
_TAKE_FRACTIONS = frozenset((inspect.StrType, inspect.AnyType, inspect.FloatType, inspect.DecimalType))
_WHOLE = re.compile(r"-?(0\d+|\d+\.\d+|\d+(\.\d+)?[eE][-+]?\d+)", re.ASCII)
#: The most digits of an integer that has an exponent.
_MOST_DIGITS = 40
_DIGITS = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)


def cell_converter(
    form: Any, hook: Callable[[type, Any], Any] | None = None, *, strict: bool = False
) -> Callable[[Any], Any]:
    """Return the function that converts a cell, or a dict of cells, to a class or type expression.

    If ``strict``, no number is read from text, as in parsed JSON and in columns.  ``hook`` creates instances of
    classes that ``msgspec`` does not know.  The function raises ``ValueError`` and ``msgspec.ValidationError``, which
    name the place.
    """
    info = inspect.type_info(form)
    visit = visit_of(info, _exact_cell)
    convert: Callable[[Any], Any] = partial(msgspec.convert, type=form, strict=strict, dec_hook=hook)
    exact = convert if visit is None else lambda value: convert(visit(value))
    nulls = None if strict else visit_of(info, _null_text)
    if nulls is not None:
        exact = partial(_without_null_texts, nulls, exact)
    whole = None if strict else visit_of(info, _whole_texts)
    if whole is None:
        return exact
    names = [part.encode_name for part in getattr(info, "fields", ()) if visit_of(part.type, _whole_texts)]
    return _with_integers(whole, itemgetter(*names) if names else lambda _: "", exact)


#: Texts that msgspec takes for None.
_NULL_TEXTS = frozenset(("null", "Null", "NULL"))


def _null_text(members: Sequence[inspect.Type]) -> Visit | None:
    """Return the visit of a cell that may be None and no text, or None."""
    kinds = {type(member) for member in members}
    return _no_null if inspect.NoneType in kinds and not kinds & {inspect.StrType, inspect.AnyType} else None


def _no_null(value: Any) -> Any:
    if isinstance(value, str) and value in _NULL_TEXTS:
        raise RefusedPart(
            f"expected a value, got {value!r}", "say which text is a null: ?null=null, or null= in Python"
        )
    return value


def _without_null_texts(visit: Visit, convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        has_null = isinstance(value, dict) and not _NULL_TEXTS.isdisjoint(value.values())
    except TypeError:  # Lists and dicts, which no cell of text is.
        has_null = True
    if has_null:
        visit(value)
    return convert(value)


def _with_integers(visit: Visit, cells: Callable[[Any], Any], convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return ``convert`` for values whose integers are visited, unless ``cells`` returns only digits, which is fast."""

    def converted(value: Any) -> Any:
        try:
            if "".join(cells(value)).replace("-", "").isdigit():
                return convert(value)
        except (LookupError, TypeError, msgspec.ValidationError):  # A cell is missing, None, or has leading zeros.
            pass
        return convert(visit(value))

    return converted


def _whole_texts(members: Sequence[inspect.Type]) -> Visit | None:
    """Return the visit of a cell that may be an integer, and no fraction or text; or None."""
    kinds = {type(member) for member in members}
    return _whole_cell if inspect.IntType in kinds and not kinds & _TAKE_FRACTIONS else None


def _whole_cell(value: Any) -> Any:
    """Return the integer in a text that JSON has not as one, as ``01`` and ``1.0``: msgspec makes a float of it."""
    if not isinstance(value, str) or not _WHOLE.fullmatch(value):
        return value
    number = Decimal(value)
    if number.adjusted() < _MOST_DIGITS and number == number.to_integral_value():
        return int(number)
    raise RefusedPart(f"expected an integer, got {value!r}", "declare a Decimal or a float")


def _exact_cell(members: Sequence[inspect.Type]) -> Visit | None:
    """Return the visit of a cell that is a time or decimal, or None."""
    exact = exact_text(members)
    if not any(isinstance(member, _TIME_TYPES) for member in members):
        return exact
    return exact if any(isinstance(member, _NUMBER_TYPES) for member in members) else partial(_exact_time, exact)


def _exact_time(exact: Visit | None, value: Any) -> Any:
    _refuse_number(value)
    return value if exact is None else exact(value)


def _refuse_number(value: Any) -> None:
    """Refuse a number, or a text of digits, in place of a time: libraries take it for seconds since 1970."""
    if isinstance(value, (int, float, Decimal)) or (isinstance(value, str) and _DIGITS.fullmatch(value)):
        raise RefusedPart(
            f"expected a time, got {value!r}",
            "a number has no unit: write times as ISO 8601, such as 2026-01-31T00:00:00Z, "
            "or declare an int and convert it",
        )


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
    elif isinstance(plain_member(info), (inspect.DictType, inspect.AnyType)):
        types = dict.fromkeys(cells, get_args(form)[1] if get_args(form) else Any)
    else:
        return {}
    result: dict[str, Any] = {}
    for name, cell in null_cells(form)({name: cell for name, cell in cells.items() if name in types}).items():
        try:
            result[name] = cell if cell is None else cell_converter(types[name])(cell)
        except (msgspec.ValidationError, ValueError) as error:
            raise ValueError(f"column {name!r} is {cell!r} in the name of the folder: {error}") from error
    return result


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
