"""Values of columns as a database of SQLAlchemy holds them: nothing is rounded or becomes NULL without a word.

The types of an existing table are its own: what SQLAlchemy does not convert for them is converted here.
Of the other packages, this module imports only ``core``; SQLAlchemy is imported on use.
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from streams.connect.errors import ConnectError
from streams.values import ColumnType

#: Converts a value that is not None; returns it, or another form of it.
_Convert: TypeAlias = Callable[[Any], Any]
#: The length of columns in which SQLAlchemy keeps a UUID where the database has no such type.
_HEX_DIGITS = 32


def converter(kind: ColumnType, column: Any, dialect: str, sink: str) -> Callable[[Sequence[Any]], list[Any]] | None:
    """Return the conversion of values for a column of a table, None if they need none.

    ``column`` is the column of SQLAlchemy as it is in the database, ``dialect`` the name of the database, and ``sink``
    names the sink in messages.  The conversion raises ``ConnectError`` for a value that the column cannot hold.
    """
    convert = _conversion(kind, column, dialect, f"{sink}: column {column.name!r}")
    if convert is None:
        return None
    return lambda values: [None if value is None else convert(value) for value in values]


def _conversion(kind: ColumnType, column: Any, dialect: str, where: str) -> _Convert | None:
    from sqlalchemy import Float, Numeric, String
    from sqlalchemy.types import NullType

    is_text = isinstance(column.type, (String, NullType))
    is_sqlite = dialect == "sqlite"
    match kind:
        case ColumnType.UUID if is_text:
            return _hex if getattr(column.type, "length", None) == _HEX_DIGITS else str
        case ColumnType.DECIMAL if is_text:
            return str
        case ColumnType.TIMESTAMP | ColumnType.DATE | ColumnType.TIME if is_text:
            return _iso
        case ColumnType.DECIMAL if is_sqlite:
            return _as_float(where)
        case ColumnType.DECIMAL if isinstance(column.type, Numeric) and not isinstance(column.type, Float):
            return None if column.type.scale is None else _within_scale(where, column.type.scale)
        case ColumnType.FLOAT if is_sqlite:
            return _number(where)
        case _:
            return None


def _hex(value: UUID) -> str:
    return value.hex


def _iso(value: Any) -> str:
    text: str = value.isoformat()
    return text


def _as_float(where: str) -> _Convert:
    """SQLite holds a number as float, or as an integer."""

    def check(value: Decimal) -> Decimal:
        if not value.is_finite() or Decimal(repr(float(value))) != value:
            raise ConnectError(
                f"{where}: SQLite holds numbers as floats, which change {value}; give the table a column of type TEXT"
            )
        return value

    return check


def _within_scale(where: str, scale: int) -> _Convert:
    def check(value: Decimal) -> Decimal:
        if _decimals(value) > scale:
            raise ConnectError(f"{where}: {value} has more than the {scale} digits after the point of the column")
        return value

    return check


def _decimals(value: Decimal) -> int:
    """Return how many digits a number has after its point, without zeros at the end."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):  # NaN or infinity.
        return 0
    text = "".join(map(str, digits))
    return -exponent - (len(text) - len(text.rstrip("0")))


def _number(where: str) -> _Convert:
    def check(value: float) -> float:
        if math.isnan(value):
            raise ConnectError(f"{where}: SQLite has no NaN, and would store NULL; leave such records out")
        return value

    return check
