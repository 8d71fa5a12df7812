"""The HTTP server of the registry, which processes one request at a time, on its event loop."""

import json
import logging
from collections.abc import MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl

from streams.broker.registry.routes import SchemaText, answer
from streams.broker.registry.subjects import SchemaLog, SchemaRegistry
from streams.core.closeable import Closeable
from streams.core.errors import StreamsError
from streams.core.http.address import WILDCARDS, Address, is_loopback, parse_address
from streams.core.http.http_checks import HttpRefusal, checked_headers, whole_body
from streams.core.http.http_server import IDLE_S, HttpServer
from streams.registry import RegistryError, invalid_schema

log = logging.getLogger(__name__)

_CONTENT_TYPE: Final = b"application/vnd.schemaregistry.v1+json"
_MAX_BODY_BYTES: Final = 16 << 20
_FAILED: Final = 50001


class RegistryServer(Closeable):
    """A schema registry that listens; a context manager, closed on exit. Created by ``EmbeddedBroker.serve_registry``.

    ``url`` is the address for clients, such as ``http://127.0.0.1:8081``.

    Raises:
        ConfigError: the address is invalid or taken.
    """

    def __init__(self, schemas: SchemaLog, listen: str) -> None:
        self._registry = SchemaRegistry(schemas)
        self._server = HttpServer(self._serve, parse_address(listen, needs_host=False), "registry")
        host, port = self._server.address
        self.is_loopback = is_loopback(host)
        self.url = f"http://{Address('127.0.0.1' if host in WILDCARDS else host, port)}"

    async def _serve(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answer a request: an ASGI application."""
        status, content = await self._answered(scope, receive)
        headers = [(b"content-type", _CONTENT_TYPE), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answered(self, scope: MutableMapping[str, Any], receive: Any) -> tuple[int, bytes]:
        """Return the status and the body of the response to a request."""
        method, path = scope["method"], scope["path"]
        try:
            checked_headers(scope, _MAX_BODY_BYTES)
            body = await whole_body(receive, _MAX_BODY_BYTES, IDLE_S)
            result = self._asked(method, scope["raw_path"].decode("latin-1"), scope["query_string"], body)
        except HttpRefusal as refusal:
            return refusal.status, _json({"error_code": refusal.status, "message": str(refusal)})
        except RegistryError as error:
            return error.status, _json({"error_code": error.code, "message": str(error)})
        except StreamsError as error:
            log.error("%s %s failed: %s", method, path[:200], error)
            return _FAILED // 100, _json({"error_code": _FAILED, "message": str(error)})
        return 200, result.text.encode() if isinstance(result, SchemaText) else _json(result)

    def _asked(self, method: str, path: str, query: bytes, body: bytes) -> Any:
        try:
            document = json.loads(body) if body else {}
        except (ValueError, RecursionError) as error:
            raise RegistryError(400, f"the body is no JSON: {error}") from error
        if document is not None and not isinstance(document, dict):
            raise invalid_schema("the body is no JSON object")
        try:
            return answer(self._registry, method, path, dict(parse_qsl(query.decode("latin-1"))), document or {})
        except RecursionError as error:
            raise invalid_schema("it is nested too deeply") from error

    def close(self) -> None:
        """Stop listening, and end open connections. A second call has no effect."""
        self._server.close()


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
