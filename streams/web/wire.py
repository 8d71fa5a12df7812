"""Wire format of queries and results between instances: msgpack, with keys and values serialized by their serdes.

Of the other packages, this module imports only ``core``, ``runtime`` and ``state``.
"""

from typing import Any

import msgspec
from attrs import fields

from streams.core.blocks.records import Headers, TaskId, TopicPartition
from streams.core.errors import InvalidStateStoreError, SerializationError, StreamsError
from streams.core.serdes.serdes import LONG, PinnedSerde, Serde
from streams.runtime import (
    QUERIES,
    Answers,
    CountQuery,
    FailureReason,
    Instance,
    Page,
    Position,
    QueryResult,
    StoreEntry,
    StoreRequest,
    request_of,
)
from streams.state import StoreSpec

#: Fields of queries that are keys of the store.
_KEYS = ("key", "low", "high")

_Offsets = list[tuple[str, int, int]]
_Entry = tuple[bytes | None, bytes | None, int | None, int | None, int | None, int | None, Headers | None]


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    store: str
    query: str
    fields: dict[str, bytes | int | bool | None]
    tasks: list[tuple[int, int]]
    bound: _Offsets
    stale_ms: int | None
    limit: int | None
    after: tuple[bytes, int, int] | None


class _Result(msgspec.Struct):
    task: tuple[int, int]
    position: _Offsets
    entries: list[_Entry]
    has_more: bool
    failure: str | None
    message: str
    stale_ms: int | None


class _Response(msgspec.Struct):
    results: list[_Result]
    #: Names of the types that the instance has pinned for a store without declared types.
    key_type: str | None
    value_type: str | None


_write = msgspec.msgpack.encode
_read_request = msgspec.msgpack.Decoder(_Request).decode
_read_response = msgspec.msgpack.Decoder(_Response).decode


class WireError(StreamsError):
    """An instance has sent a query or a result that this version cannot read."""


def write_request(request: StoreRequest, tasks: list[TaskId]) -> bytes:
    """Serialize a store query, and the tasks to send it to."""
    query, spec, page = request.query, request.spec, request.page
    values = {item.name: getattr(query, item.name) for item in fields(type(query))}
    for name in values.keys() & set(_KEYS):
        values[name] = spec.key_serde.serialize(values[name])
    return _write(
        _Request(
            spec.name,
            type(query).__name__,
            values,
            [(task.sub_topology, task.partition) for task in tasks],
            _offsets(request.bound),
            request.stale_ms,
            page.limit,
            page.after,
        )
    )


def read_request(instance: Instance, data: bytes) -> tuple[StoreRequest, list[TaskId]]:
    """Return the store query and the task IDs that ``write_request`` has serialized.

    Raises:
        WireError: the bytes are not a request of this version.
        InvalidStateStoreError: there is no such store, or the application is not running.
    """
    try:
        read = _read_request(data)
        query = QUERIES[read.query]
        values: dict[str, Any] = dict(read.fields)
        request = request_of(instance, read.store, query(**dict.fromkeys(values)))
        for name in values.keys() & set(_KEYS):
            values[name] = request.spec.key_serde.deserialize(values[name])
        bound = _position(read.bound)
        page = Page(read.limit, read.after)
        full = StoreRequest(request.spec, query(**values), bound, read.stale_ms, page)
    except InvalidStateStoreError:
        raise
    except (msgspec.MsgspecError, KeyError, TypeError, SerializationError) as error:
        raise WireError(f"this is no query of this version of streams ({type(error).__name__}: {error})") from None
    return full, [TaskId(*task) for task in read.tasks]


def write_results(request: StoreRequest, answers: Answers) -> bytes:
    """Serialize the results of a store query, by task."""
    spec = request.spec
    key = spec.key_serde.serialize
    value = _value_serde(request).serialize
    results = [
        _Result(
            (task.sub_topology, task.partition),
            _offsets(result.position),
            [(key(entry.key), value(entry.value), *entry[2:]) for entry in result.entries],
            result.has_more,
            result.failure and result.failure.name,
            result.message,
            result.stale_ms,
        )
        for task, result in answers.items()
    ]
    return _write(_Response(results, _type_of(spec.key_serde), _type_of(spec.shown_serde)))


def read_results(request: StoreRequest, data: bytes) -> Answers:
    """Return the results that ``write_results`` has serialized.

    Key and value types of an undeclared store that the other instance reports are set for this store too.

    Raises:
        WireError: the bytes are not results of this version.
    """
    spec = request.spec
    try:
        read = _read_response(data)
        _take_over(spec, read)
        return {TaskId(*result.task): _result(request, result) for result in read.results}
    except (msgspec.MsgspecError, KeyError, TypeError, SerializationError) as error:
        raise WireError(f"this is no answer of this version of streams ({type(error).__name__}: {error})") from None


def _take_over(spec: StoreSpec, read: _Response) -> None:
    for serde, name in ((spec.key_serde, read.key_type), (spec.shown_serde, read.value_type)):
        if isinstance(serde, PinnedSerde) and name is not None:
            serde.pin(name)


def _result(request: StoreRequest, read: _Result) -> QueryResult[Any]:
    position = _position(read.position)
    if read.failure is not None:
        # The message names the store and the partition already.
        return QueryResult(read.task[1], position, failure=FailureReason[read.failure], message=read.message)
    key = request.spec.key_serde.deserialize
    value = _value_serde(request).deserialize
    entries = [StoreEntry(key(entry[0]), value(entry[1]), *entry[2:]) for entry in read.entries]
    return request.answered(read.task[1], position, entries, has_more=read.has_more, stale_ms=read.stale_ms)


def _value_serde(request: StoreRequest) -> Serde[Any]:
    return LONG if isinstance(request.query, CountQuery) else request.spec.shown_serde


def _type_of(serde: Serde[Any]) -> str | None:
    return serde.type_name if isinstance(serde, PinnedSerde) else None


def _offsets(position: Position) -> _Offsets:
    return [(topic, partition, offset) for (topic, partition), offset in position.offsets.items()]


def _position(offsets: _Offsets) -> Position:
    return Position({TopicPartition(topic, partition): offset for topic, partition, offset in offsets})
