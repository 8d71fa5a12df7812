"""Responses of the HTTP server: JSON, and errors with a code and a message.  This module imports no other module."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

#: Retry-After of responses with status 503, in seconds.
RETRY_AFTER_S = 1

_encode = msgspec.json.encode


def answer(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response; ``body`` may contain ``msgspec.Raw`` for parts that are JSON already."""
    return Response(_encode(body), status, headers, "application/json")


class Refused(Exception):
    """An error response: ``reason`` is a code for programs, the message is for people, ``more`` are JSON fields."""

    def __init__(self, status: int, reason: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.more = more

    def response(self) -> Response:
        """Return the response: JSON with ``error`` and ``message``; with Retry-After for status 503."""
        headers = {"retry-after": str(RETRY_AFTER_S)} if self.status == 503 else {}
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.status == 413:
            # The connection is closed, since the rest of the request body is not read.
            headers["connection"] = "close"
        return answer(self.status, {"error": self.reason, "message": str(self), **self.more}, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the error response, as an ASGI application."""
        await self.response()(scope, receive, send)
