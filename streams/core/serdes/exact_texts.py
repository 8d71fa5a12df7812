"""Texts that msgspec would read as another time or number than they say: the one rule for JSON, cells and rows.

Digits beyond microseconds are cut, as in Arrow and ``datetime.fromisoformat``, where msgspec rounds them to the next
second or year.  A decimal has the digits 0 to 9 and a value: ``1_0``, ``nan`` and digits of other scripts are refused,
as for int.  Whole columns are searched for such texts; only if there is one, their values are read twice.
"""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
from attrs import frozen
from msgspec import inspect

from streams.core.blocks.loops import is_inexact
from streams.core.serdes.parts import RefusedPart, Visit, parts_of, visit_of

_FRACTION = re.compile(r"(:\d\d\.\d{6})\d+")
_DECIMAL = re.compile(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_TIMES = (inspect.DateTimeType, inspect.TimeType)


def _exact_number(text: str) -> float | Decimal:
    """Return a float, unless it lacks digits or zeros; a ``Decimal`` with an exponent would be written as an int."""
    number, exact = float(text), Decimal(text)
    near, exponent = Decimal(repr(number)), exact.as_tuple().exponent
    has_digits = near == exact and (
        near.as_tuple().exponent == exponent or (isinstance(exponent, int) and exponent >= 0)
    )
    return number if has_digits else exact


#: Read JSON with all digits of its numbers, as ``_write`` writes it.
read_exactly = msgspec.json.Decoder(float_hook=_exact_number).decode
_write = msgspec.json.Encoder(decimal_format="number").encode


def exact_text(members: Sequence[inspect.Type]) -> Visit | None:
    """Return the visit of a part that may have any of these types; None if msgspec reads its text exactly."""
    kinds = {type(member) for member in members}
    if not kinds.isdisjoint(_TIMES):
        return _cut_time
    return _checked_decimal if inspect.DecimalType in kinds else None


def _cut_time(value: Any) -> Any:
    return _FRACTION.sub(r"\1", value) if isinstance(value, str) and len(value) > 15 else value


def _checked_decimal(value: Any) -> Any:
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        raise RefusedPart(f"expected a decimal, got {value[:80]!r}", "write it with the digits 0 to 9, such as 1.50")
    return value


@frozen
class JsonDecoder:
    """Decodes JSON of one type exactly; ``decode`` does so too unless the JSON is inexact (``is_inexact``)."""

    decode: Callable[[bytes], Any]
    #: Returns JSON with exact texts only, or raises ValueError; None if the type has neither times nor decimals.
    exact: Callable[[bytes], bytes] | None = None
    has_times: bool = False
    has_decimals: bool = False

    def check_decimals(self, data: bytes) -> None:
        """Raise ValueError for JSON that was written of a decimal that JSON has not, such as NaN."""
        if self.exact is not None and self.has_decimals and is_inexact(data, False, True):
            self.exact(data)

    def one(self, data: bytes) -> Any:
        """Return the value of JSON."""
        if self.exact is not None and is_inexact(data, self.has_times, self.has_decimals):
            data = self.exact(data)
        return self.decode(data)

    def all(self, column: Sequence[bytes | None]) -> list[Any]:
        """Return the values of a column of JSON, in which None stays None."""
        is_exact = self.exact is None or not is_inexact(column, self.has_times, self.has_decimals)
        decode = self.decode if is_exact else self.one
        return [None if data is None else decode(data) for data in column]


def exact_decoder(info: inspect.Type, decode: Callable[[bytes], Any]) -> JsonDecoder:
    """Return the exact decoder of a type for any decoder of it."""
    kinds = {type(part) for part in parts_of(info)}
    has_times, has_decimals = not kinds.isdisjoint(_TIMES), inspect.DecimalType in kinds
    visit = visit_of(info, exact_text) if has_times or has_decimals else None
    if visit is None:
        return JsonDecoder(decode)
    return JsonDecoder(decode, rewriter(visit), has_times, has_decimals)


def rewriter(visit: Visit) -> Callable[[bytes], bytes]:
    """Return the function that returns JSON with its parts as a visit leaves them, and all digits of its numbers."""
    return lambda data: _write(visit(read_exactly(data)))
