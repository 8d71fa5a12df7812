"""The HTTP server of the registry, based on the standard library; the registry processes one request at a time.

It needs no extra. On a loopback address, the Host header must name a loopback host, so that no web page can
reach the registry by DNS rebinding, and requests of web pages of other sites are refused.
"""

import http.server
import json
import logging
import socket
import threading
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from streams.broker.registry.routes import SchemaText, answer
from streams.broker.registry.subjects import SchemaLog, SchemaRegistry
from streams.core.errors import ConfigError, StreamsError
from streams.core.http.address import WILDCARDS, Address, is_loopback, parse_address
from streams.registry import RegistryError, invalid_schema

log = logging.getLogger(__name__)

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_MAX_BODY_BYTES = 16 << 20
#: How often the server looks whether it shall close.
_POLL_S = 0.05
_FORBIDDEN = 403
_TOO_LARGE = 413
_FAILED = 50001


class RegistryServer:
    """A schema registry that listens; a context manager, closed on exit. Created by ``EmbeddedBroker.serve_registry``.

    ``url`` is the address for clients, such as ``http://127.0.0.1:8081``.

    Raises:
        ConfigError: the address is invalid or taken.
    """

    def __init__(self, schemas: SchemaLog, listen: str) -> None:
        place = parse_address(listen, needs_host=False)
        self._registry = SchemaRegistry(schemas)
        self._lock = threading.Lock()
        try:
            self._server = _Server((place.host, place.port), self)
        except OSError as error:
            raise ConfigError(f"cannot listen at {listen}: {error.strerror or error}") from None
        host, port = self._server.server_address[:2]
        self.is_loopback = is_loopback(str(host))
        self.url = f"http://{Address('127.0.0.1' if host in WILDCARDS else str(host), int(port))}"
        serve = partial(self._server.serve_forever, _POLL_S)
        self._thread = threading.Thread(target=serve, name="registry", daemon=True)
        self._thread.start()

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str, bytes]:
        """Return the status, content type and body of the response to a request."""
        try:
            self._check(headers)
            parts = urlsplit(target)
            result = self._asked(method, parts.path, dict(parse_qsl(parts.query)), body)
        except RegistryError as error:
            return error.status, _CONTENT_TYPE, _json({"error_code": error.code, "message": str(error)})
        except StreamsError as error:
            log.error("%s %s failed: %s", method, target[:200], error)
            return _FAILED // 100, _CONTENT_TYPE, _json({"error_code": _FAILED, "message": str(error)})
        if isinstance(result, SchemaText):
            return 200, _CONTENT_TYPE, result.text.encode()
        return 200, _CONTENT_TYPE, _json(result)

    def _asked(self, method: str, path: str, arguments: Mapping[str, str], body: bytes) -> Any:
        try:
            document = json.loads(body) if body else {}
        except (ValueError, RecursionError) as error:
            raise RegistryError(400, f"the body is no JSON: {error}") from error
        if document is not None and not isinstance(document, dict):
            raise invalid_schema("the body is no JSON object")
        with self._lock:
            return answer(self._registry, method, path, arguments, document or {})

    def _check(self, headers: Mapping[str, str]) -> None:
        """Reject requests from web pages of other sites."""
        host = urlsplit(f"//{headers.get('Host', '')}").hostname or ""
        if self.is_loopback and not is_loopback(host):
            raise RegistryError(_FORBIDDEN, f"this registry answers to localhost and 127.0.0.1, not to {host[:80]!r}")
        origin = headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("Host"):
            raise RegistryError(_FORBIDDEN, "requests from pages of other sites are refused")

    def close(self) -> None:
        """Stop listening, and end open connections. A second call has no effect."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, place: tuple[str, int], owner: RegistryServer) -> None:
        self.owner = owner
        self.address_family = _family(place[0])
        super().__init__(place, _Handler)


def _family(host: str) -> Any:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    #: Seconds until an idle connection is closed.
    timeout = 60
    server: _Server

    def _respond(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > _MAX_BODY_BYTES or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            self.send_error(_TOO_LARGE, f"a body needs a Content-Length of at most {_MAX_BODY_BYTES} bytes")
            return
        body = self.rfile.read(int(length))
        status, kind, content = self.server.owner.answer(self.command, self.path, dict(self.headers), body)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _respond  # noqa: N815 - names of http.server.

    def _note(self, format: str, *args: object) -> None:  # noqa: A002 - the names of http.server.
        log.debug(format, *args)

    # By default http.server writes every request to the standard error.
    log_message = _note
