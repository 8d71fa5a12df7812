"""A token endpoint on loopback, and the settings of a client that asks it."""

import json
import threading
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

from streams.clients import Security
from streams.core.clock import SystemClock

CLOCK = SystemClock()
SECRET = "p&ss wörd%"


def token_of(name: str, lifetime_ms: int = 3_600_000) -> str:
    """Return a JWT without a signature, as Kafka's unsecured validator takes."""
    claims = {"sub": name, "iat": CLOCK.now_ms() / 1000, "exp": (CLOCK.now_ms() + lifetime_ms) / 1000}
    parts = ({"alg": "none"}, claims)
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


class Endpoint:
    """A token endpoint on loopback, which knows one client."""

    def __init__(self, lifetime_ms: int = 3_600_000, issue: Callable[[str, int], str] = token_of) -> None:
        self.lifetime_ms, self.issue = lifetime_ms, issue
        self.forms: list[dict[str, list[str]]] = []
        self.status, self.url = 200, ""

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, Any]:
        self.forms.append(form)
        name, _, secret = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if self.status != 200:
            return self.status, {}
        if (unquote(name), unquote(secret)) != ("shop", SECRET):
            return 401, {"error": "invalid_client", "error_description": "no such client"}
        return 200, {"access_token": self.issue("shop", self.lifetime_ms), "token_type": "Bearer"}


@contextmanager
def served(endpoint: Endpoint) -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, body = endpoint.answer(self.headers["Authorization"], form)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        endpoint.url = f"http://127.0.0.1:{server.server_port}/token"
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()


def secured(endpoint: Endpoint, **changes: Any) -> Security:
    given = {
        "security_protocol": "sasl_plaintext",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": endpoint.url,
        "sasl_oauthbearer_client_id": "shop",
        "sasl_oauthbearer_client_secret": SECRET,
        "sasl_oauthbearer_scope": "kafka",
    }
    return Security(**{**given, **changes})
