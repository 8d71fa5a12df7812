"""Queries of stores over HTTP.  Imports runtime."""

from typing import Any
from urllib.parse import parse_qsl

from attrs import frozen
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from streams.core.errors import InvalidStateStoreError, UnknownStateStoreError
from streams.runtime import Instance, StoreView, spec_of
from streams.web.answers import Refused, answer
from streams.web.texts import json_of, key_of


def segments_of(scope: Scope) -> list[bytes]:
    """Return the segments of the path below the place where the application is mounted, still percent-encoded."""
    raw = scope.get("raw_path") or scope["path"].encode()
    return list(raw.partition(b"?")[0].split(b"/")[1 + scope.get("root_path", "").count("/") :])


def arguments_of(scope: Scope) -> dict[str, str]:
    """Return the arguments of the query string.

    Raises:
        Refused: an argument is given twice.
    """
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refused(400, "BAD_REQUEST", "an argument is given twice")
    return found


@frozen(eq=False)
class StoresEndpoint:
    """Everything below ``/stores``, from the encoded path: a key may contain any character."""

    _instance: Instance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(405, "METHOD_NOT_ALLOWED", "stores are read with GET")
        arguments = arguments_of(scope)
        match segments_of(scope):
            case [b"stores"] | [b"stores", b""]:
                found = self._list()
            case [b"stores", name, b"keys", key]:
                found = await self._key(name.decode("latin-1"), key, arguments)
            case _:
                raise Refused(404, "NO_SUCH_PATH", "there are /stores and /stores/S/keys/K")
        await answer(200, found)(scope, receive, send)

    def _list(self) -> dict[str, Any]:
        topology = self._instance.topology
        return {"stores": sorted([*topology.stores, *topology.global_stores])}

    async def _key(self, name: str, raw: bytes, arguments: dict[str, str]) -> dict[str, Any]:
        try:
            spec = spec_of(self._instance, name)
            key = key_of(spec.key_serde, raw, arguments.get("key_format"))
            found = await run_in_threadpool(StoreView(self._instance, name).get, key)
        except UnknownStateStoreError as error:
            raise Refused(404, "NO_SUCH_STORE", str(error)) from None
        except InvalidStateStoreError as error:
            raise Refused(503, "NOT_NOW", str(error)) from None
        if found is None:
            raise Refused(404, "NO_SUCH_KEY", f"store {name!r} has no such key")
        body = {"store": name, "key": json_of(spec.key_serde, key)}
        if isinstance(found, tuple):
            return body | {"value": json_of(spec.value_serde, found[0]), "timestamp": found[1]}
        return body | {"value": json_of(spec.value_serde, found)}
