"""kio as the oracle: another codec of the same protocol, and how its values compare with ours."""

import datetime
import uuid
from dataclasses import fields as fields_of
from io import BytesIO

from kio.index import load_entity_schema, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from streams.protocol.schema import UUID, Array, Field, Struct

_NO_UUID = uuid.UUID(int=0)
#: Fields whose name in the protocol says which versions they are of; here that is in the table.
_RENAMED = {
    "v3_and_below_transactional_id": "transactional_id",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_producer_epoch": "producer_epoch",
    "v3_and_below_topics": "topics",
    "results_by_topic_v3_and_below": "results",
    "request_api_key": "api_key",
    "request_api_version": "api_version",
    "acceptable_recovery_lag": "acceptable_recovery_lag_legacy",
}
#: Versions of APIs that kio does not know yet; the Java clients of the tests use them.
_NEWER = {(88, 1), (89, 1), (93, 0)}


def knows(api_key, version):
    return (api_key, version) not in _NEWER


def schema_of(api_key, version, kind):
    return (load_request_schema if kind == "request" else load_response_schema)(api_key, version)


def header_schema(kind, version):
    return load_entity_schema(f"{kind}_header", version, EntityType.header)


def read(schema, data):
    """Return what kio makes of the bytes; all of them must be used."""
    entity, size = entity_reader(schema)(data, 0)
    assert size == len(data)
    return entity


def written(schema, entity):
    with BytesIO() as buffer:
        entity_writer(schema)(buffer, entity)
        return buffer.getvalue()


def plain(entity, fields, version):
    """Return kio's message as ours would be: same names, same order, same values."""
    result = {}
    theirs = {field.metadata.get("tag", -1 - place): field for place, field in enumerate(fields_of(entity))}
    names = iter([field for tag, field in theirs.items() if tag < 0])
    for field in fields:
        if not field.is_in(version):
            result[field.name] = field.absent
            continue
        found = next(names) if field.tag is None else theirs.pop(field.tag)
        name = _RENAMED.get(found.name, found.name)
        assert field.name in (name, f"{name}_ms"), f"{field.name} is {found.name} in the oracle"
        value = getattr(entity, found.name)
        is_default = field.tag is not None and isinstance(field.type, Struct) and value == found.default
        result[field.name] = None if is_default else _value(value, field, field.type, version)
    assert next(names, None) is None
    return result


def _value(value, field, type_, version):
    if isinstance(type_, Array):
        if value is None:
            return None
        return [_value(item, field, type_.of, version) for item in value] or field_empty(field)
    if type_ is UUID:
        return (value or _NO_UUID).bytes
    if isinstance(type_, Struct):
        return None if value is None else plain(value, type_.fields, version)
    if isinstance(value, datetime.datetime):
        value -= datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if value is None and field.name == "log_append_time_ms":
        return -1
    return value


def field_empty(field: Field):
    """Return what an empty array is read as: a tagged one is not written at all."""
    return () if field.tag is not None else []
