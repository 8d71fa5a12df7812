"""SQL types of ksqlDB: the text of a schema, and the values of records as its columns."""

import base64
import csv
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Self

#: A row by column, a type (its name, and what is in it), and a column of a row.
Row = dict[str, Any]
Type = tuple[Any, ...]
Expression = Callable[[Row], Any]

TOKEN = re.compile(
    r"\s*(?:(?P<num>\d+\.?\d*(?:[eE][-+]?\d+)?)|'(?P<str>(?:[^']|'')*)'|`(?P<quoted>(?:[^`]|``)*)`"
    r"|(?P<word>[A-Za-z_@][\w@]*)|(?P<op>->|=>|:=|<>|!=|<=|>=|[-+*/%()\[\],<>=.]))"
)
SIMPLE = {"STRING", "INTEGER", "BIGINT", "DOUBLE", "BOOLEAN", "BYTES", "DATE", "TIME", "TIMESTAMP"}
DEFAULTS: dict[str, Any] = {
    "STRING": "",
    "INTEGER": 0,
    "BIGINT": 0,
    "DOUBLE": 0.0,
    "BOOLEAN": False,
    "ARRAY": [],
    "MAP": {},
}
#: What a value or an expression may raise. ksqlDB logs such errors, and goes on with null or without the record.
FAILURES = (ArithmeticError, ValueError, TypeError, LookupError, AttributeError)


class SkippedError(Exception):
    """The test needs something that is not translated."""


class Tokens:
    """The words, numbers, texts and signs of an expression, read one after the other."""

    def __init__(self, text: str) -> None:
        self.items: list[tuple[str | None, str]] = []
        self.at = at = 0
        while text[at:].strip():
            match = TOKEN.match(text, at)
            if match is None:
                raise SkippedError(f"cannot read {text[at:][:30]!r}")
            kind, value, at = match.lastgroup, match[match.lastgroup or 0], match.end()
            self.items.append((kind, value.replace("''", "'") if kind == "str" else value))

    def peek(self, ahead: int = 0) -> tuple[str | None, str]:
        return self.items[self.at + ahead] if self.at + ahead < len(self.items) else (None, "")

    def next(self) -> tuple[str | None, str]:
        self.at += 1
        return self.items[self.at - 1] if self.at <= len(self.items) else (None, "")

    def accept(self, *values: str) -> bool:
        """Take the operators or words (in upper case) if all of them follow."""
        ahead = [self.peek(number) for number in range(len(values))]
        fits = all(
            kind in ("op", "word") and text.upper() == value for (kind, text), value in zip(ahead, values, strict=True)
        )
        self.at += len(values) if fits else 0
        return fits

    def expect(self, value: str) -> None:
        if not self.accept(value):
            raise SkippedError(f"expected {value!r}, not {self.peek()[1]!r}")

    def name(self) -> str:
        kind, value = self.next()
        if kind not in ("word", "quoted"):
            raise SkippedError(f"expected a name, not {value!r}")
        return value


def read_type(tokens: Tokens) -> Type:
    """Return a type: its name, then the types in it, or precision and scale, or the fields' types by name."""
    name = tokens.name().upper()
    name = {"INT": "INTEGER", "VARCHAR": "STRING"}.get(name, name)
    if name in SIMPLE:
        return (name,)
    if name == "DECIMAL":
        _, precision, _, scale, _ = (tokens.next()[1] for _ in range(5))
        return name, int(precision), int(scale)
    if name not in ("ARRAY", "MAP", "STRUCT"):
        raise SkippedError(f"type {name}")
    tokens.expect("<")
    fields: dict[str, Type] = {}
    inner: list[Type] = []
    while not tokens.accept(">"):
        if name == "STRUCT":
            field = tokens.name()
            fields[field] = read_type(tokens)
        else:
            inner.append(read_type(tokens))
        tokens.accept(",")
    return (name, fields) if name == "STRUCT" else (name, *inner)


@dataclass
class Schema:
    """The columns of a topic: types by name, and of headers the key, or None for all of them."""

    keys: dict[str, Type]
    values: dict[str, Type]
    headers: dict[str, str | None]

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a schema as plans have it."""
        tokens, schema = Tokens(text), cls({}, {}, {})
        while tokens.peek()[0]:
            name = tokens.name()
            form = read_type(tokens)
            if tokens.accept("KEY") or tokens.accept("PRIMARY", "KEY"):
                schema.keys[name] = form
            elif tokens.accept("HEADERS"):
                schema.headers[name] = None
            elif tokens.accept("HEADER", "("):
                schema.headers[name] = tokens.next()[1]
                tokens.expect(")")
            else:
                schema.values[name] = form
            tokens.accept(",")
        return schema


def _field(values: Mapping[str, Any], name: str) -> Any:
    return values[name] if name in values else {key.upper(): value for key, value in values.items()}.get(name.upper())


def coerce(value: Any, form: Type) -> Any:
    """Return a JSON value as a value of the SQL type; one of FAILURES if it is none."""
    kind = form[0]
    if value is None:
        return None
    if kind == "STRING":
        if isinstance(value, str):
            return value
        return json.dumps(value, default=str) if isinstance(value, bool | dict | list) else str(value)
    if kind == "BOOLEAN":
        return value if isinstance(value, bool) else {"true": True, "false": False}[value.lower()]
    if kind in ("INTEGER", "BIGINT", "DATE", "TIME", "TIMESTAMP"):
        return int(value)
    if kind == "DOUBLE":
        return float(value)
    if kind == "DECIMAL":
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-form[2]), ROUND_HALF_UP)
    if kind == "BYTES":
        return value if isinstance(value, bytes) else base64.b64decode(value)
    if kind == "ARRAY":
        return [coerce(item, form[1]) for item in value]
    if kind == "MAP":
        return {coerce(key, form[1]): coerce(item, form[2]) for key, item in value.items()}
    return {name: coerce(_field(value, name), inner) for name, inner in form[1].items()}


def _defaulted(value: Any, form: Type) -> Any:
    """Return a value as Protobuf reads it: scalars, lists and maps are never null."""
    if value is None:
        return DEFAULTS.get(form[0])
    if form[0] == "STRUCT":
        return {name: _defaulted(value[name], inner) for name, inner in form[1].items()}
    return [_defaulted(item, form[1]) for item in value] if form[0] == "ARRAY" else value


class Columns(Row):
    """A row or key that is already divided into columns."""


class Format:
    """Key or value format of a topic, by value: what the JSON of a record in a test means as columns."""

    def __init__(self, formats: Mapping[str, Any], side: str) -> None:
        info, features = formats[f"{side}Format"], formats.get(f"{side}Features") or formats.get("options") or ()
        self.name = info["format"]
        self.unwraps = any(feature.startswith("UNWRAP_SINGLE") for feature in features) or self.name == "KAFKA"
        self.wraps = "WRAP_SINGLES" in features
        delimiter = info.get("properties", {}).get("delimiter", ",")
        self.delimiter = {"TAB": "\t", "SPACE": " "}.get(delimiter, delimiter)

    def columns(self, raw: Any, forms: Mapping[str, Type]) -> Row | None:
        """Return the values of the columns, None for a null record; one of FAILURES if ksqlDB could not read it."""
        if raw is None or not forms:
            return None
        if isinstance(raw, tuple):  # The key of an output.
            raw = Columns(zip(forms, raw, strict=True))
        if self.name == "DELIMITED" and isinstance(raw, str):
            parts = next(csv.reader([raw], delimiter=self.delimiter), [""])
            if len(parts) != len(forms):
                raise ValueError(f"{len(parts)} fields, expected {len(forms)}")
            raw = {name: part if part or len(forms) == 1 else None for name, part in zip(forms, parts, strict=True)}
        elif len(forms) == 1 and not self._is_wrapped(raw, *forms.items()):
            raw = dict.fromkeys(forms, raw)
        row = {name: coerce(_field(raw, name), form) for name, form in forms.items()}
        if self.name.startswith("PROTOBUF"):
            row = {name: _defaulted(row[name], form) for name, form in forms.items()}
        return row

    def _is_wrapped(self, raw: Any, column: tuple[str, Type]) -> bool:
        if not isinstance(raw, dict) or isinstance(raw, Columns):
            return isinstance(raw, Columns)
        if self.wraps or column[1][0] not in ("STRUCT", "MAP"):
            return True
        return not self.unwraps and {key.upper() for key in raw} <= {column[0].upper()}
