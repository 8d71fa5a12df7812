"""Responses of the HTTP server: JSON, and errors with a code and a message."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from streams.core.http.http_checks import HttpRefusal

#: Retry-After of responses with status 503, in seconds.
RETRY_AFTER_S = 1

_encode = msgspec.json.encode


def answer(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response; ``body`` may contain ``msgspec.Raw`` for parts that are JSON already."""
    return Response(_encode(body), status, headers, "application/json")


class Refused(HttpRefusal):
    """An error response: ``reason`` is a code for programs, the message is for people, ``more`` are JSON fields."""

    def __init__(self, status: int, reason: str, message: str, **more: Any) -> None:
        super().__init__(status, reason, message)
        self.more = more


def error_response(refusal: HttpRefusal) -> Response:
    """Return the response for a refusal: JSON with ``error`` and ``message``; with Retry-After for status 503."""
    headers = {"retry-after": str(RETRY_AFTER_S)} if refusal.status == 503 else {}
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    if refusal.status == 413:
        # The connection is closed, since the rest of the request body is not read.
        headers["connection"] = "close"
    more = refusal.more if isinstance(refusal, Refused) else {}
    return answer(refusal.status, {"error": refusal.reason, "message": str(refusal), **more}, headers)
