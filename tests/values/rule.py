"""What may become of a value, for each thing that a medium may say: written down beside the product, to check it.

A medium says what it has: JSON has booleans, two kinds of numbers, and text; a CSV file has cells; Arrow, Avro and
databases have types for times, decimals and UUIDs.  A row of ``RULE`` is such an arrival, an entry is a declared type
that takes it, with the value that results.  What is not in the table is refused, by every reader.

Times are integers here, in nanoseconds, as no Python type has all of them.
"""

import base64
import binascii
import re
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum, IntEnum
from fractions import Fraction
from math import isfinite
from typing import Any, Literal

from hypothesis import strategies as st


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    ZERO = 0
    HIGH = 2**53 + 1


#: Declared types by name.
TARGETS: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "bytes": bytes,
    "Decimal": Decimal,
    "datetime": datetime,
    "date": date,
    "time": time,
    "timedelta": timedelta,
    "UUID": uuid.UUID,
    "enum of str": Colour,
    "enum of int": Level,
    "literals of str": Literal["red", "blue"],
    "literals of int": Literal[0, 9007199254740993],
    "Any": Any,
}


class Refused(Exception):
    """The value has no exact counterpart in the declared type."""


EPOCH = datetime(1970, 1, 1)
DAY_NS = 86_400 * 10**9


def same(value: Any) -> Any:
    return value


def _if(condition: bool, value: Any) -> Any:
    if not condition:
        raise Refused
    return value


def _only(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that refuses what another one cannot do."""

    def exact(value: Any) -> Any:
        try:
            return function(value)
        except (ValueError, KeyError, OverflowError, InvalidOperation, binascii.Error):
            raise Refused from None

    return exact


# --- texts ----------------------------------------------------------------------------------

_TIME = r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"


def _iso(kind: Any, pattern: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        _if(re.fullmatch(pattern, text, re.ASCII) is not None, None)
        return kind.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))

    return _only(read)


def _duration(text: str) -> timedelta:
    parts = re.fullmatch(r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", text, re.ASCII)
    _if(parts is not None and any(parts.groups()[1:]), None)
    assert parts is not None
    sign, days, hours, minutes, seconds = parts.groups()
    whole, _, fraction = (seconds or "0").partition(".")
    span = timedelta(int(days or 0), int(whole), int(fraction[:6].ljust(6, "0")), 0, int(minutes or 0), int(hours or 0))
    return -span if sign else span


def _decimal(text: str) -> Decimal:
    return Decimal(
        _if(re.fullmatch(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", text, re.ASCII) is not None, text)
    )


def _uuid(text: str) -> uuid.UUID:
    return uuid.UUID(_if(re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) is not None, text))


def _utf_8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused from None
    return text


def _choice(*choices: Any) -> Callable[[Any], Any]:
    return lambda value: _if(any(type(value) is type(other) and value == other for other in choices), value)


TEXT: dict[str, Callable[[Any], Any]] = {
    "str": _utf_8,
    "bytes": _only(lambda text: base64.b64decode(text, validate=True)),
    "Decimal": _only(_decimal),
    "datetime": _iso(datetime, r"\d{4}-\d\d-\d\d[T ]" + _TIME),
    "date": _iso(date, r"\d{4}-\d\d-\d\d"),
    "time": _iso(time, _TIME),
    "timedelta": _only(_duration),
    "UUID": _only(_uuid),
    "enum of str": _only(Colour),
    "literals of str": _choice("red", "blue"),
    "Any": _utf_8,
}


# --- numbers --------------------------------------------------------------------------------


def _as_float(value: int | Decimal) -> float:
    """A float is the nearest one, also of the digits of JSON and of cells."""
    return _if(isfinite(float(value)), float(value))


def _whole_cell(text: str) -> int:
    """Whole numbers may have a point or an exponent, as pandas writes them; an exponent has 40 digits at most."""
    number = _decimal(_if(text[:1] not in "+ ", text))
    is_plain = text.removeprefix("-").isdecimal()
    return int(_if(number == number.to_integral_value() and (is_plain or number.adjusted() < 40), number))


def _float_cell(text: str) -> float:
    return _as_float(_decimal(_if(text[:1] not in "+ ", text)))


_INT: dict[str, Callable[[Any], Any]] = {
    "int": same,
    "float": _only(_as_float),
    "Decimal": Decimal,
    "enum of int": _only(Level),
    "literals of int": _choice(0, 9007199254740993),
    "Any": same,
}


def _choice_cell(text: str) -> int:
    """Return the number of a cell that is a choice, which has digits only, and no leading zeros."""
    if re.fullmatch("-?(0|[1-9][0-9]*)", text) is None:
        raise Refused
    return int(text)


_CHOICES_OF_INT = ("enum of int", "literals of int")
_FINITE: Callable[[float], float] = lambda value: _if(isfinite(value), value)  # noqa: E731


# --- times ----------------------------------------------------------------------------------


def _instant(ns: int) -> datetime:
    return (EPOCH + timedelta(microseconds=ns // 1000)).replace(tzinfo=UTC)


def _clock(ns: int) -> time:
    return (EPOCH + timedelta(microseconds=ns // 1000)).time()


#: What a medium says, and what becomes of it.
RULE: dict[str, dict[str, Callable[[Any], Any]]] = {
    "bool": {"bool": same, "Any": same},
    "int": _INT,
    "float": {"float": _FINITE, "Decimal": lambda value: Decimal(repr(_FINITE(value))), "Any": _FINITE},
    # The shortest text of a float of less than 64 bits has other digits than that of the same float with 64 bits.
    "small float": {"float": _FINITE, "Any": _FINITE},
    "text": TEXT,
    # A number of JSON with a point or an exponent.
    "number": {"Decimal": same, "float": _only(_as_float), "Any": _only(_as_float)},
    # A file of text has nothing else: numbers and booleans are read from it.
    "cell": {
        **TEXT,
        "int": _only(_whole_cell),
        "float": _only(_float_cell),
        "bool": _only(lambda text: {"true": True, "false": False, "1": True, "0": False}[text.lower()]),
        "enum of int": _only(lambda text: Level(_choice_cell(text))),
        "literals of int": _only(lambda text: _INT["literals of int"](_choice_cell(text))),
    },
    "bytes": {"bytes": same, "UUID": lambda data: uuid.UUID(bytes=_if(len(data) == 16, data))},
    # A decimal without fraction digits, by its type, is a whole number.
    "decimal": {"Decimal": same, "float": _only(_as_float)},
    "whole decimal": {
        "int": int,
        "float": _only(_as_float),
        "Decimal": same,
        **{target: (lambda value, target=target: _INT[target](int(value))) for target in _CHOICES_OF_INT},
    },
    "instant": {"datetime": _only(_instant)},
    "local time": {"datetime": _only(lambda ns: _instant(ns).replace(tzinfo=None))},
    "date": {"date": _only(lambda days: EPOCH.date() + timedelta(days))},
    "time": {"time": _clock},
    "duration": {"timedelta": _only(lambda ns: timedelta(microseconds=ns // 1000))},
    "uuid": {"UUID": same},
}


ARRIVALS = tuple(RULE)
#: Where a medium says less, or other things, than its arrival: what becomes of values there, None if they are refused.
#: Avro's times, decimals and UUIDs are annotations of numbers, bytes and texts, which a class may declare instead, and
#: what is not annotated is none of them.  Its floats may be NaN.
EXCEPTIONS: dict[str, dict[tuple[str, str], Callable[[Any, Any], Any] | None]] = {
    "avro": {
        **{
            (arrival, "int"): (lambda value, form: form.raw(value))
            for arrival in ("instant", "local time", "date", "time")
        },
        **{
            (arrival, target): (lambda value, form, target=target: _INT[target](form.raw(value)))
            for arrival in ("instant", "local time", "date", "time")
            for target in _CHOICES_OF_INT
        },
        ("uuid", "str"): lambda value, form: str(value),
        **{
            (arrival, "bytes"): lambda value, form: _twos_complement(int(Fraction(value) * 10 ** form.type["scale"]))
            for arrival in ("decimal", "whole decimal")
        },
        ("float", "float"): lambda value, form: value,
        **dict.fromkeys(
            [
                *(("text", target) for target in ("bytes", "Decimal", "datetime", "date", "time", "enum of str")),
                *(("whole decimal", target) for target in ("int", "float", "enum of int", "literals of int")),
                *(("decimal", "float"), ("int", "Decimal"), ("float", "Decimal"), ("bytes", "UUID")),
                # No type of Avro.
                *((arrival, target) for arrival in ARRIVALS for target in ("Any", "timedelta")),
            ]
        ),
    },
}


#: The same for kinds of classes: the bytes of a pydantic model are text, by its settings UTF-8.
EXCEPTIONS["pydantic"] = {
    **{(arrival, "bytes"): (lambda value, form: _utf_8(value).encode()) for arrival in ("text", "cell")},
    ("bytes", "bytes"): None,
}


def _twos_complement(number: int) -> bytes:
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def expected(medium: str, cls: str, arrival: str, target: str, form: Any, value: Any) -> Any:
    """Return the value that a reader makes of a form of a value, for a kind of class.

    Raises:
        Refused: it makes none.
    """
    exceptions = EXCEPTIONS.get(medium) or EXCEPTIONS.get(cls, {})
    if (arrival, target) not in exceptions:
        return RULE[arrival].get(target, _never)(value)
    make = exceptions[arrival, target]
    return _never(value) if make is None else make(value, form)


def _never(value: Any) -> Any:
    raise Refused


# --- values ---------------------------------------------------------------------------------

_US = 1000
_TIMES_NS = (-62_135_596_800 * 10**9, 253_402_300_800 * 10**9 - _US)
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(lambda text: text + "§")
_aware = st.datetimes(timezones=st.timezones() | st.just(UTC)).map(datetime.isoformat)


def _nanoseconds(low: int, high: int) -> st.SearchStrategy[int]:
    """Microseconds, mostly."""
    return st.integers(low, high) | st.integers(low // _US, high // _US).map(lambda us: us * _US)


#: What is at the edge of a type.
_TEXTS = [
    *("", "red", "RED", "1969-12-31", "0", "1", "-1", "1.0", "1e3", "9007199254740993", "1_0", "١٢", "nan", "inf"),
    *("true", "True", "null", "None", "00ff", "AAECAw==", "AAECAw", '"', "\n", "\x00§", "\u2028", "'§", " 1", "1.50"),
    *("20260101", "2026-01-01", "2026-01-01T00:00:00.9999999Z", "1969-12-31T23:59:59.999999", "0001-01-01"),
    *("9999-12-31T23:59:59.999999Z", "2026-01-01 00:00:00+05:30", "23:59:59.999999", "P1DT1S", "-PT0.000001S", "1e400"),
    *("9007199254740993.0", "9007199254740992.5", "0.99999999999999999999", "1e19", "1e999999999"),
    *("00000000-0000-0000-0000-000000000001", "urn:uuid:00000000-0000-0000-0000-000000000001", "\ud83d"),
]
_DECIMALS = [Decimal("1.50"), Decimal("0.1"), Decimal(0), Decimal("-1234567890.123456789012345678")]
EXTREMES: dict[str, list[Any]] = {
    "bool": [False, True],
    "int": [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30, 20260101],
    "float": [0.0, -0.0, 1.0, 1.5, 0.1, 5e-324, 1e308, 2.0**53, float("nan"), float("inf")],
    "text": _TEXTS,
    "cell": _TEXTS,
    "bytes": [b"", b"red", b"\x00\xff", bytes(15) + b"\x01"],
    "number": _DECIMALS,
    "decimal": _DECIMALS,
    "whole decimal": [Decimal(0), Decimal(-1), Decimal(2**53 + 1), Decimal(2**64), Decimal(10**30)],
    "instant": [0, -1, -1000, -1001, 1_999, *_TIMES_NS, 2**63 - 1, -(2**63) + 1, 1_767_225_600_123_456_789],
    "date": [0, -1, -719_162, 2_932_896, 2_932_897],
    "time": [0, 1, 1_999, 10**9, DAY_NS - 1],
    "duration": [0, -1, 1_999, 10**9, -(2**63) + 1],
    "uuid": [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)],
}
EXTREMES["small float"] = EXTREMES["float"]
EXTREMES["local time"] = EXTREMES["instant"] = [*EXTREMES["instant"], (2**63 - 1) * 10**6]
_ANY: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int": st.integers(),
    "float": st.floats(),
    "text": _texts
    | st.decimals(allow_nan=False, allow_infinity=False).map(str)
    | st.integers().map(str)
    | st.floats().map(repr)
    | st.uuids().map(str)
    | st.binary(max_size=8).map(lambda data: base64.b64encode(data).decode())
    | st.datetimes().map(datetime.isoformat)
    | _aware
    | st.dates().map(date.isoformat)
    | st.times().map(time.isoformat),
    "bytes": st.binary(max_size=4) | st.binary(min_size=16, max_size=16),
    "decimal": st.decimals(-(10**18), 10**18, places=18),
    "whole decimal": st.integers(-(10**30), 10**30).map(Decimal),
    "instant": _nanoseconds(*_TIMES_NS),
    "date": st.integers(-719_162, 2_932_896),
    "time": _nanoseconds(0, DAY_NS - 1),
    "duration": _nanoseconds(-(10**18), 10**18),
    "uuid": st.uuids(),
}
_ANY |= {"small float": _ANY["float"], "cell": _ANY["text"], "number": _ANY["decimal"], "local time": _ANY["instant"]}
#: Values of each arrival.
VALUES = {arrival: st.sampled_from(EXTREMES[arrival]) | values for arrival, values in _ANY.items()}
