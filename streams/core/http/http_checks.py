"""Checks of a request before it is answered, for all HTTP servers of this library: its host, its origin and its size.

- On a loopback address, the Host header must name a loopback host.  This prevents DNS rebinding, where another site
  resolves its own name to 127.0.0.1.
- A request that a browser marks as cross-site is refused.

Of its own package, this module imports only ``address``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any

from streams.core.http.address import is_loopback

_Scope = Mapping[str, Any]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]


class HttpRefusal(Exception):
    """A request that is refused: ``status`` is for HTTP, ``reason`` a code for programs, the message for people."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def checked_headers(scope: _Scope, max_body_bytes: int, hosts: Collection[str] = ()) -> dict[bytes, bytes]:
    """Return the headers of a request by name, after the checks of host, origin and length.

    ``hosts`` are further host names that are allowed on a loopback address.

    Raises:
        HttpRefusal: the request is not allowed.
    """
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in headers and name in (b"host", b"origin", b"authorization", b"content-length"):
            raise HttpRefusal(400, "BAD_REQUEST", f"the header {name.decode('latin-1')} is given twice")
        headers[name] = value
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > max_body_bytes:
        raise _too_large(max_body_bytes)
    authority = headers.get(b"host", b"").decode("latin-1")
    _check_host(scope, host_of(authority), hosts)
    _check_origin(scope, headers, authority)
    return headers


def host_of(authority: str) -> str:
    """Return the host of ``host:port``, in lower case; an IPv6 address without its brackets."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower()


def _check_host(scope: _Scope, host: str, hosts: Collection[str]) -> None:
    server = scope.get("server")
    if server is None or not _is_local(server[0]) or _is_local(host) or host in hosts:
        return
    raise HttpRefusal(
        421,
        "WRONG_HOST",
        f"this server listens on a loopback address, and answers to localhost and 127.0.0.1, not to {host[:80]!r}",
    )


def _is_local(host: str) -> bool:
    """Return whether a host is loopback, or a name below ``localhost``, which browsers resolve to it (RFC 6761)."""
    return is_loopback(host) or host.endswith(".localhost")


def _check_origin(scope: _Scope, headers: dict[bytes, bytes], authority: str) -> None:
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site", b"none")
    is_own = origin is None or origin.decode("latin-1") == f"{scope['scheme']}://{authority}"
    # Links from other sites may be followed; scripts of these sites cannot read the response.
    is_navigation = headers.get(b"sec-fetch-mode") == b"navigate" and scope["method"] == "GET"
    if not is_own or (site not in (b"none", b"same-origin") and not is_navigation):
        raise HttpRefusal(403, "OTHER_ORIGIN", "requests from pages of other sites are refused")


def bounded(receive: _Receive, max_bytes: int) -> _Receive:
    """Return a ``receive`` that refuses a body without a declared length once it is too large."""
    size = 0

    async def next_part() -> _Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > max_bytes:
            raise _too_large(max_bytes)
        return message

    return next_part


async def whole_body(receive: _Receive, max_bytes: int, within_s: float) -> bytes:
    """Return the body of a request.

    Raises:
        HttpRefusal: it is too large, or has not arrived within ``within_s`` seconds, or the client has gone.
    """
    body = bytearray()
    receive = bounded(receive, max_bytes)
    try:
        async with asyncio.timeout(within_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HttpRefusal(400, "BAD_REQUEST", "the connection was closed before the whole body had arrived")
                body += message.get("body", b"")
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise HttpRefusal(408, "TOO_SLOW", f"the body did not arrive within {within_s:g} s") from None


def _too_large(max_bytes: int) -> HttpRefusal:
    return HttpRefusal(413, "TOO_LARGE", f"the body has more than {max_bytes} bytes")
