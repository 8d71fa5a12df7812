"""Interactive queries over HTTP; the response is JSON or an Arrow stream."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

import msgspec
from attrs import evolve, field, frozen
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from streams.core.arguments import MAX_TIME_MS
from streams.core.errors import InvalidStateStoreError, UnknownStateStoreError
from streams.core.http.http_checks import whole_body
from streams.core.http.http_server import IDLE_S
from streams.core.serdes.serdes import BYTES, STRING
from streams.runtime import (
    CountQuery,
    FailureReason,
    Instance,
    KeyQueryMetadata,
    MultiVersionedKeyQuery,
    Page,
    Position,
    PrefixQuery,
    SessionKeyQuery,
    SessionRangeQuery,
    StateQueryResult,
    StoreChange,
    StoreChanges,
    StoreEntry,
    StoreQuery,
    StoreRequest,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
    arrow_stream,
    merged_entries,
    places_of,
    ranker,
    request_of,
    spec_of,
    table_of,
)
from streams.state import Family, StoreSpec
from streams.web.answers import Refused, answer
from streams.web.arguments import Arguments, cursor_of, rank_of, segments_of
from streams.web.changes import DROPPED, MAX_FOLLOWERS, Follower, event_stream, no_room
from streams.web.desk import Desk
from streams.web.guard import MAX_BODY_BYTES
from streams.web.texts import json_of, key_of, settled
from streams.web.wire import WireError, read_request, write_results

#: The media type of an Arrow stream.
ARROW_STREAM = "application/vnd.apache.arrow.stream"
#: Default and maximum of ``limit``, the number of entries of one response.
PAGE_ENTRIES = 1_000
MAX_PAGE_ENTRIES = 100_000

_STATUS = {
    FailureReason.UNKNOWN_QUERY_TYPE: 400,
    FailureReason.DOES_NOT_EXIST: 404,
    FailureReason.STORE_EXCEPTION: 500,
}
#: The queries of a key in a time range, by path.
_TIME_QUERIES: Mapping[bytes, Callable[[Any, int, int, bool], StoreQuery[Any]]] = {
    b"windows": WindowKeyQuery,
    b"sessions": SessionKeyQuery,
    b"versions": MultiVersionedKeyQuery,
}
_PATHS = (
    "there are /stores, /stores/S, and below it keys/K, range, windows/K, sessions/K, versions/K, count and changes"
)


@frozen(eq=False)
class StoresEndpoint:
    """The endpoint of ``/stores`` and ``/query``; it parses the encoded path, since a key may contain any character."""

    _instance: Instance
    _desk: Desk
    #: One object for each client that follows a store, or is about to.
    _followers: set[object] = field(factory=set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request for ``/stores`` or ``/query``."""
        try:
            response = await self._respond(scope, receive)
        except UnknownStateStoreError as error:
            raise Refused(404, "NO_SUCH_STORE", str(error)) from None
        except InvalidStateStoreError as error:
            raise _refused(error) from None
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        segments = segments_of(scope)
        if segments == [b"query"]:
            return await self._forwarded(scope, receive)
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(405, "METHOD_NOT_ALLOWED", "stores are read with GET")
        arguments = Arguments.of(scope)
        match segments:
            case [b"stores"] | [b"stores", b""]:
                arguments.check()
                return answer(200, {"stores": self._all()})
            case [b"stores", name]:
                arguments.check()
                return answer(200, self._one(unquote(name)))
            case [b"stores", name, b"keys" | b"windows" | b"sessions" | b"versions" as what, key]:
                return await self._of_key(unquote(name), what, unquote_to_bytes(key), arguments)
            case [b"stores", name, b"range"]:
                return await self._range(unquote(name), arguments, _wants_arrow(scope, arguments))
            case [b"stores", name, b"changes"]:
                return await self._follow(unquote(name), arguments)
            case [b"stores", name, b"count"]:
                arguments.check()
                request = self._request(unquote(name), CountQuery(), arguments)
                result = await self._ask(request)
                return answer(200, {"store": request.spec.name, "count": result.value, "is_approximate": True})
        raise Refused(404, "NO_SUCH_PATH", _PATHS)

    # --- descriptions ---------------------------------------------------------------------

    def _all(self) -> list[dict[str, Any]]:
        topology = self._instance.topology
        return [
            _described(spec_of(self._instance, name)) for name in sorted([*topology.stores, *topology.global_stores])
        ]

    def _one(self, name: str) -> dict[str, Any]:
        spec = spec_of(self._instance, name)
        own = self._instance.home.process_id
        places = places_of(self._instance, spec)
        partitions = [] if places is None else [_placed(str(task), places.owner_of(task, own)) for task in places.tasks]
        inputs = [] if places is None else sorted(places.inputs)
        is_global = name in self._instance.topology.global_stores
        return _described(spec) | {"is_global": is_global, "inputs": inputs, "partitions": partitions}

    # --- queries --------------------------------------------------------------------------

    def _request(self, name: str, query: StoreQuery[Any], arguments: Arguments) -> StoreRequest:
        text = arguments.text_by_name.get("position")
        try:
            bound = None if text is None else Position.parse(text)
        except ValueError as error:
            raise Refused(400, "BAD_POSITION", str(error)) from None
        stale_ms = arguments.number("stale_ms", 0) if "stale_ms" in arguments.text_by_name else None
        return request_of(self._instance, name, query, bound, stale_ms)

    async def _ask(self, request: StoreRequest, partitions: Collection[int] | None = None) -> StateQueryResult[Any]:
        """Query the partitions of a request, or only the given ones.

        Raises:
            Refused: the query of a partition failed.
        """
        results = await self._desk.ask(request, partitions)
        for result in results.partitions.values():
            if result.failure is not None:
                raise Refused(
                    _STATUS.get(result.failure, 503),
                    result.failure.name,
                    result.message,
                    position=result.position.text(),
                )
        return results

    async def _key(self, name: str, raw: bytes, arguments: Arguments) -> Any:
        """Return the key in a path; an undeclared key type is requested from other instances."""
        spec = spec_of(self._instance, name)
        if self._desk.lacks_types(spec):
            await self._desk.learn_types(self._request(name, CountQuery(), arguments))
        return key_of(spec.key_serde, raw, arguments.text_by_name.get("key_format"))

    async def _of_key(self, name: str, what: bytes, raw: bytes, arguments: Arguments) -> Response:
        spec = spec_of(self._instance, name)
        _check_path(spec, what.decode())
        as_of = ("as_of",) if spec.kind.has_versions else ()
        arguments.check(*(as_of if what == b"keys" else ("from", "to", "reverse", "limit")), "partition")
        key = await self._key(name, raw, arguments)
        request = self._request(name, _key_query(spec, what, key, arguments), arguments)
        if what != b"keys":
            request = evolve(request, page=Page(arguments.number("limit", PAGE_ENTRIES, MAX_PAGE_ENTRIES, minimum=1)))
        return _told(request, key, what, await self._ask(request, arguments.partitions()))

    async def _range(self, name: str, arguments: Arguments, is_arrow: bool) -> Response:
        spec = spec_of(self._instance, name)
        arguments.check(
            "from", "to", "prefix", "from_time", "to_time", "reverse", "limit", "after", "format", "partition"
        )
        await self._desk.learn_types(self._request(name, CountQuery(), arguments))
        low = arguments.key("from", spec.key_serde)
        high = arguments.key("to", spec.key_serde)
        times = arguments.time("from_time", 0), arguments.time("to_time", MAX_TIME_MS)
        reverse = arguments.flag("reverse")
        limit = arguments.number("limit", PAGE_ENTRIES, MAX_PAGE_ENTRIES, minimum=1)
        after = rank_of(arguments.text_by_name.get("after"))
        query: StoreQuery[Any]
        if "prefix" in arguments.text_by_name:
            if reverse or low is not None or high is not None or spec.kind.family is not Family.KEYS:
                raise Refused(400, "BAD_REQUEST", "prefix is for key-value stores, without from, to and reverse")
            query = PrefixQuery(_prefix(spec, arguments))
        elif spec.kind.family is Family.WINDOWS:
            query = WindowRangeQuery(*times, low, high, reverse)
        elif spec.kind.family is Family.SESSIONS:
            query = SessionRangeQuery(*times, low, high, reverse)
        else:
            # The page begins at the last key of the previous page.
            at = None if after is None else spec.key_serde.deserialize(after[0])
            bounds = (low, at) if reverse and at is not None else (low if at is None else at, high)
            query = TimestampedRangeQuery(*bounds, reverse)
        request = evolve(self._request(name, query, arguments), page=Page(limit, after))
        results = await self._ask(request, arguments.partitions())
        entries = merged_entries(results.partitions.values(), query, spec)
        has_more = len(entries) > limit or any(result.has_more for result in results.partitions.values())
        entries = entries[:limit]
        following = cursor_of(ranker(spec)(entries[-1])) if entries and has_more else None
        position = results.position.text()
        if is_arrow:
            headers = {"streams-position": position} | ({"streams-next": following} if following else {})
            return Response(arrow_stream(table_of(spec, entries)), 200, headers, ARROW_STREAM)
        shown = [{"key": json_of(spec.key_serde, entry.key)} | _shown(spec, entry) for entry in entries]
        return answer(200, {"store": name, "entries": shown, "next": following, "position": position})

    async def _follow(self, name: str, arguments: Arguments) -> Response:
        """Return a stream of the future changes of a store, or only those of the key in the argument ``key``."""
        arguments.check("key")
        if len(self._followers) >= MAX_FOLLOWERS:
            raise no_room()
        spec = spec_of(self._instance, name)
        place = object()
        self._followers.add(place)  # Before the first await, during which others ask.
        try:
            await self._desk.learn_types(self._request(name, CountQuery(), arguments))
            key = arguments.key("key", spec.key_serde)
            changes = await run_in_threadpool(StoreChanges.of, self._instance, name)
            follower = Follower(self._instance, asyncio.get_running_loop(), changes, key)
            follower.start()
        except BaseException:
            self._followers.discard(place)
            raise

        async def events() -> AsyncIterator[bytes]:
            try:
                yield b": follows\n\n"
                async for change in follower.events():
                    yield b": quiet\n\n" if change is None else _event(spec, change)
                if follower.is_slow:
                    yield DROPPED
            finally:
                self._followers.discard(place)

        return event_stream(events())

    # --- other instances ------------------------------------------------------------------

    async def _forwarded(self, scope: Scope, receive: Receive) -> Response:
        """Answer a request forwarded by another instance, from this instance only."""
        if scope["method"] != "POST":
            raise Refused(405, "METHOD_NOT_ALLOWED", "instances ask each other with POST")
        body = await whole_body(receive, MAX_BODY_BYTES, IDLE_S)
        try:
            request, tasks = read_request(self._instance, body)
        except WireError as error:
            raise Refused(400, "BAD_REQUEST", str(error)) from None
        answers = await self._desk.answer_here(request, tasks)
        return Response(write_results(request, answers), 200, media_type="application/msgpack")


def _key_query(spec: StoreSpec, what: bytes, key: Any, arguments: Arguments) -> StoreQuery[Any]:
    if what != b"keys":
        times = arguments.time("from", 0), arguments.time("to", MAX_TIME_MS)
        return _TIME_QUERIES[what](key, *times, arguments.flag("reverse"))
    if spec.kind.has_versions:
        return VersionedKeyQuery(key, arguments.time("as_of", 0) if "as_of" in arguments.text_by_name else None)
    return TimestampedKeyQuery(key)


def _told(request: StoreRequest, key: Any, what: bytes, result: StateQueryResult[Any]) -> Response:
    """Return the response with the entries of a key.

    Raises:
        Refused: the store has no such key.
    """
    only = result.only
    spec = request.spec
    shown = {"store": spec.name, "key": json_of(spec.key_serde, key), "partition": only.partition}
    shown |= {"position": only.position.text()} | ({} if only.stale_ms is None else {"stale_ms": only.stale_ms})
    if what != b"keys":
        entries = [_shown(spec, entry) for entry in only.entries]
        return answer(200, shown | {"entries": entries, "has_more": only.has_more})
    if not only.entries:
        raise Refused(404, "NO_SUCH_KEY", f"store {spec.name!r} has no such key", **shown)
    return answer(200, shown | _shown(spec, only.entries[0]))


def _refused(error: InvalidStateStoreError) -> Refused:
    """Return the error for a store that cannot be queried now (503), or for an invalid request (400)."""
    if error.state is None:
        return Refused(400, "BAD_REQUEST", str(error))
    return Refused(503, FailureReason.NOT_PRESENT.name, str(error))


def _event(spec: StoreSpec, change: StoreChange) -> bytes:
    shown = {"key": json_of(spec.key_serde, change.entry.key)} | _shown(spec, change.entry)
    data = msgspec.json.encode(shown | {"partition": change.partition, "offset": change.offset})
    return b"event: change\ndata: " + data + b"\n\n"


def _described(spec: StoreSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "kind": spec.kind.name,
        "key": settled(spec.key_serde).name,
        "value": settled(spec.shown_serde).name,
        "queries": sorted(spec.kind.queries),
    }


def _placed(task: str, owner: KeyQueryMetadata) -> dict[str, Any]:
    members = [owner.active, *owner.standbys]
    shown = [
        None
        if member is None
        else {"client_id": member.client_id, "endpoint": member.application_server, "is_local": member.is_local}
        for member in members
    ]
    return {"partition": owner.partition, "task": task, "active": shown[0], "standbys": shown[1:]}


def _shown(spec: StoreSpec, entry: StoreEntry) -> dict[str, Any]:
    """Return the value of a store entry, with its timestamp, window and end of validity if the store has them."""
    shown: dict[str, Any] = {"value": json_of(spec.shown_serde, entry.value)}
    if entry.timestamp_ms is not None:
        shown["timestamp"] = entry.timestamp_ms
    if entry.headers is not None:
        shown["headers"] = [
            [name, None if content is None else content.decode(errors="replace")] for name, content in entry.headers
        ]
    if entry.start_ms is not None:
        shown["window"] = {"start": entry.start_ms, "end": entry.end_ms}
    if spec.kind.has_versions:
        shown["valid_to"] = entry.valid_to_ms
    return shown


def _check_path(spec: StoreSpec, what: str) -> None:
    """Check that ``what`` is the path segment for reading the entries of a key in a store of this kind.

    Raises:
        Refused: stores of this kind use another path segment.
    """
    own = [{Family.WINDOWS: "windows", Family.SESSIONS: "sessions"}.get(spec.kind.family, "keys")]
    own += ["versions"] if spec.kind.has_versions else []
    if what not in own:
        paths = " and ".join(f"/stores/{spec.name}/{name}/K" for name in own)
        text = f"store {spec.name!r} is of kind {spec.kind.shown}, which has no {what}: read {paths}"
        raise Refused(400, FailureReason.UNKNOWN_QUERY_TYPE.name, text)


def _wants_arrow(scope: Scope, arguments: Arguments) -> bool:
    name = arguments.text_by_name.get("format")
    if name not in (None, "json", "arrow"):
        raise Refused(400, "BAD_REQUEST", f"format={name[:20]} is neither json nor arrow")
    accepted = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
    return name == "arrow" or (name is None and ARROW_STREAM in accepted)


def _prefix(spec: StoreSpec, arguments: Arguments) -> bytes:
    """Return the argument ``prefix`` as bytes: text and bytes as given, other keys serialized by their serde."""
    text = arguments.text_by_name["prefix"].encode("latin-1")
    key_format = arguments.text_by_name.get("key_format")
    serde = settled(spec.key_serde)
    if serde in (STRING, BYTES) or key_format in ("hex", "base64"):
        return key_of(BYTES, text, key_format) or b""
    return serde.serialize(key_of(serde, text, key_format)) or b""
