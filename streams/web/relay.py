"""Queries by key that the HTTP process sends to another instance itself: it passes the response on to the client.

The application only says where to.  It names the server of this in the ASGI extension ``streams.relay``, whose value is
the reason why the other instance has not answered this request before, or "".  Of its own package, this module imports
only ``front``.
"""

from attrs import frozen
from starlette.types import Receive, Scope, Send

from streams.web.front import FORWARDED, Place

#: The name of the extension, and the type of its message.
RELAY = "streams.relay"


def can_relay(scope: Scope) -> bool:
    """Return whether the server can send a request to another instance itself."""
    return RELAY in scope.get("extensions", ())


def failure_of(scope: Scope) -> str:
    """Return why another instance has not answered a request, or "" if it was not sent to one."""
    failure: str = scope.get("extensions", {}).get(RELAY, "")
    return failure


def forwarded_by(scope: Scope) -> str | None:
    """Return the application ID of the instance that has forwarded a request, or None if it comes from a client."""
    found = next((value for name, value in scope["headers"] if name == FORWARDED), None)
    return None if found is None else found.decode("latin-1")


@frozen
class Relay:
    """An ASGI response that the HTTP process fetches from the instance at ``endpoint``, whose address is ``place``."""

    endpoint: str
    place: Place
    application_id: str
    token: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell the server to send the request to the other instance."""
        path = scope["raw_path"]
        query = scope["query_string"]
        target = b"%b?%b" % (path, query) if query else path
        lines = [b"GET %b HTTP/1.1" % target, b"host: " + self.endpoint.encode()]
        if self.token is not None:
            lines.append(b"authorization: Bearer " + self.token.encode())
        lines += [b"%b: %b" % (FORWARDED, self.application_id.encode()), b"", b""]
        await send({"type": RELAY, "place": self.place, "request": b"\r\n".join(lines)})
