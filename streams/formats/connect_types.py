"""Values of Kafka Connect's and Debezium's types, by the schema in the record: decimals, times and dates.

Their converters write numbers, and bytes in base64; what they stand for is in the schema alone. A value is converted
where a class has such a type, and stays a number where it has an ``int``. Pure.
"""

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from msgspec import inspect

from streams.values import plain_member

#: A schema as Connect's JSON converter writes it.
ConnectSchema: TypeAlias = Mapping[str, Any]
_Read: TypeAlias = Callable[[Any, ConnectSchema], Any]

_CONNECT = "org.apache.kafka.connect.data."
_DEBEZIUM = "io.debezium.time."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _decimal(value: Any, schema: ConnectSchema) -> Decimal:
    if isinstance(value, Decimal | int | float):
        return Decimal(str(value))  # decimal.format=NUMERIC, or a logical type of Avro.
    return _unscaled(value, int(schema["parameters"]["scale"]))


def _variable_decimal(value: Any, schema: ConnectSchema) -> Decimal:
    return _unscaled(value["value"], value["scale"])


def _no_text(value: Any, schema: ConnectSchema) -> Any:
    if isinstance(value, str):
        kind = "a Decimal" if schema.get("name") == f"{_CONNECT}Decimal" else "bytes"
        raise ValueError(f"declare {kind}: the text is base64")
    return value


def _unscaled(data: str | bytes, scale: int) -> Decimal:
    raw = base64.b64decode(data, validate=True) if isinstance(data, str) else data
    sign, digits, _ = Decimal(int.from_bytes(raw, "big", signed=True)).as_tuple()
    # Exact, whatever the precision of the context.
    return Decimal((sign, digits, -scale))


def _ticks(value: Any, nanoseconds: int) -> timedelta:
    # Below microseconds the time is cut, also before 1970.
    return timedelta(microseconds=value * nanoseconds // 1_000)


def _datetime(nanoseconds: int) -> _Read:
    return lambda value, _: _EPOCH + _ticks(value, nanoseconds) if type(value) is int else value


def _time(nanoseconds: int) -> _Read:
    def read(value: Any, _: ConnectSchema) -> Any:
        if type(value) is not int:
            return value
        moment = _EPOCH + _ticks(value, nanoseconds)
        if moment.date() != _EPOCH.date():
            raise ValueError(f"{_ticks(value, nanoseconds)} is no time of day; declare a timedelta")
        return moment.time()

    return read


def _duration(nanoseconds: int) -> _Read:
    return lambda value, _: _ticks(value, nanoseconds) if type(value) is int else value


def _date(value: Any, _: ConnectSchema) -> Any:
    return date(1970, 1, 1) + timedelta(days=value) if type(value) is int else value


#: Nanoseconds of the units of each type.
_TIMES_OF_DAY: Mapping[str, int] = {
    f"{_CONNECT}Time": 10**6,
    f"{_DEBEZIUM}Time": 10**6,
    f"{_DEBEZIUM}MicroTime": 10**3,
    f"{_DEBEZIUM}NanoTime": 1,
}
_INSTANTS: Mapping[str, int] = {
    f"{_CONNECT}Timestamp": 10**6,
    f"{_DEBEZIUM}Timestamp": 10**6,
    f"{_DEBEZIUM}MicroTimestamp": 10**3,
    f"{_DEBEZIUM}NanoTimestamp": 1,
}
_DURATIONS: Mapping[str, int] = {**_TIMES_OF_DAY, f"{_DEBEZIUM}MicroDuration": 10**3, f"{_DEBEZIUM}NanoDuration": 1}

#: How values become a declared type, by the name of their schema, or by its type.
_READS: Mapping[type[inspect.Type], Mapping[str, _Read]] = {
    inspect.DecimalType: {f"{_CONNECT}Decimal": _decimal, "io.debezium.data.VariableScaleDecimal": _variable_decimal},
    inspect.StrType: {"bytes": _no_text},
    inspect.AnyType: {"bytes": _no_text},
    inspect.DateTimeType: {name: _datetime(unit) for name, unit in _INSTANTS.items()},
    inspect.TimeType: {name: _time(unit) for name, unit in _TIMES_OF_DAY.items()},
    inspect.TimeDeltaType: {name: _duration(unit) for name, unit in _DURATIONS.items()},
    inspect.DateType: {f"{_CONNECT}Date": _date, f"{_DEBEZIUM}Date": _date},
}


def read_row(declared: inspect.Type, schema: ConnectSchema | None, value: Any, where: str = "") -> Any:
    """Return a value with its decimals and times as a declared type has them; without a schema it stays as it is.

    Raises:
        ValueError: the schema says what the value is not; the message has its place.
    """
    declared = plain_member(declared)
    if schema is None or value is None:
        return value
    fields = getattr(declared, "fields", None)
    if fields is not None and isinstance(value, Mapping):
        schemas = {part.get("field"): part for part in schema.get("fields", ())}
        parts = ((part.encode_name, part.type) for part in fields if part.encode_name in value)
        return {
            **value,
            **{name: read_row(form, schemas.get(name), value[name], f"{where}.{name}") for name, form in parts},
        }
    is_any = isinstance(declared, inspect.AnyType)
    item = declared if is_any else getattr(declared, "item_type", None)
    if item is not None and isinstance(value, list):
        return [read_row(item, schema.get("items"), entry, f"{where}[]") for entry in value]
    of = declared if is_any else getattr(declared, "value_type", None)
    if of is not None and isinstance(value, Mapping):
        entries = {part.get("field"): part for part in schema.get("fields", ())}
        rest = schema.get("values")
        return {key: read_row(of, entries.get(key, rest), entry, f"{where}.{key}") for key, entry in value.items()}
    reads = _READS.get(type(declared), {})
    read = reads.get(schema.get("name") or "") or reads.get(schema.get("type") or "")
    try:
        return value if read is None else read(value, schema)
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise ValueError(
            f"{value!r} of type {schema.get('name') or schema['type']} is not read: {error!r} - at `${where}`"
        ) from error


def schema_of_avro(avro: Any, named: Mapping[str, Any]) -> ConnectSchema:
    """Return the schema that Connect's converter has written as a parsed Avro schema, with its ``connect.name``."""
    if isinstance(avro, list):
        avro = next((branch for branch in avro if branch != "null"), "null")
    if isinstance(avro, str):
        avro = named.get(avro, avro)
    if isinstance(avro, str):
        return {"type": avro}
    schema = {"type": avro["type"], "name": avro.get("connect.name"), "parameters": avro.get("connect.parameters")}
    for inner in ("items", "values"):
        if inner in avro:
            return {**schema, inner: schema_of_avro(avro[inner], named)}
    parts = avro.get("fields", ())
    return {**schema, "fields": [{**schema_of_avro(part["type"], named), "field": part["name"]} for part in parts]}
