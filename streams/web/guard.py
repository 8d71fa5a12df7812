"""Checks of a request before it reaches a handler: host, origin, token, and the size of the body.

- On a loopback address, the Host header must name a loopback host.  This prevents DNS rebinding, where another site
  resolves its own name to 127.0.0.1.
- A request that a browser marks as cross-site is refused.
- Requests that change something need the token; on addresses other than loopback, all requests need it.

Of its own package, this module imports only ``answers``.
"""

import hmac
import logging
from collections.abc import Collection

from attrs import frozen
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streams.core.http.address import is_loopback
from streams.web.answers import Refused

log = logging.getLogger(__name__)

#: Largest body of a request in bytes.
MAX_BODY_BYTES = 1 << 20
#: Largest path with its query in bytes.
MAX_PATH_BYTES = 16 << 10

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
#: Paths that only read although the method is POST: their arguments are in the body.
_READING_PATHS = ("/query",)
#: Content security policy: the page loads only its own files, and has no inline script or style.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
#: Headers of everything but data: only a page has links and scripts.
_PAGE_HEADERS = (*_HEADERS, (b"referrer-policy", b"no-referrer"), (b"content-security-policy", _POLICY))
_DATA_TYPES = ((b"content-type", b"application/json"), (b"content-type", b"application/msgpack"))


def _is_local(host: str) -> bool:
    """Return whether a host is loopback, or a name below ``localhost``, which browsers resolve to it (RFC 6761)."""
    return is_loopback(host) or host.endswith(".localhost")


def host_of(authority: str) -> str:
    """Return the host of ``host:port``, in lower case; an IPv6 address without its brackets."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower()


@frozen(eq=False)
class Guard:
    """Passes allowed requests to the inner application, and refuses the others.

    If ``token`` is None, all requests that change something are refused.  ``hosts`` are further host names that are
    allowed on a loopback address, such as the host of ``application_server``.
    """

    _inner: ASGIApp
    _token: str | None = None
    _reads_need_token: bool = False
    _hosts: Collection[str] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it to the inner application or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._inner(scope, receive, send)
            return
        is_started = False

        async def send_safely(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                sent_headers = message.get("headers", ())
                is_data = any(kind in sent_headers for kind in _DATA_TYPES)
                message["headers"] = [*sent_headers, *(_HEADERS if is_data else _PAGE_HEADERS)]
            await send(message)

        try:
            headers = _headers(scope)
            self._check(scope, headers)
            await self._inner(scope, _bounded(receive), send_safely)
        except Refused as refusal:
            await refusal(scope, receive, send_safely)
        except Exception:
            # The reason is logged but not sent: it may contain keys, values and paths.
            log.exception("%s %s failed", scope["method"], scope["path"][:200])
            if is_started:
                raise
            failure = Refused(500, "INTERNAL", "the request failed; the log of the application says why")
            await failure(scope, receive, send_safely)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Check a request before its body is read.

        Raises:
            Refused: the request is not allowed.
        """
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_PATH_BYTES:
            raise Refused(414, "TOO_LONG", f"the path and query have more than {MAX_PATH_BYTES} bytes")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            raise _too_large()
        authority = headers.get(b"host", b"").decode("latin-1")
        self._check_host(scope, host_of(authority))
        _check_origin(scope, headers, authority)
        self._check_token(scope, headers)

    def _check_host(self, scope: Scope, host: str) -> None:
        server = scope.get("server")
        if server is None or not _is_local(server[0]) or _is_local(host) or host in self._hosts:
            return
        raise Refused(
            421,
            "WRONG_HOST",
            f"this server listens on a loopback address, and answers to localhost and 127.0.0.1, not to {host[:80]!r}",
        )

    def _check_token(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        is_read = scope["method"] in _SAFE_METHODS or path in _READING_PATHS
        if is_read and not self._reads_need_token:
            return
        if is_read and (path == "/" or path.startswith("/page/")):
            # The page has no data and prompts for the token; its own requests for data need the token.
            scope["streams.lacks_token"] = True
            return
        if self._token is None:
            raise Refused(
                403, "NO_TOKEN", "this server has no token, and changes nothing without one; give it one with token="
            )
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token.encode()):
            raise Refused(401, "UNAUTHORIZED", "give the token of this server: Authorization: Bearer TOKEN")


def _check_origin(scope: Scope, headers: dict[bytes, bytes], authority: str) -> None:
    """Check that a request does not come from the page of another site.

    Raises:
        Refused: the request comes from another site.
    """
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site", b"none")
    is_own = origin is None or origin.decode("latin-1") == f"{scope['scheme']}://{authority}"
    # Links from other sites may be followed; scripts of these sites cannot read the response.
    is_navigation = headers.get(b"sec-fetch-mode") == b"navigate" and scope["method"] == "GET"
    if not is_own or (site not in (b"none", b"same-origin") and not is_navigation):
        raise Refused(403, "OTHER_ORIGIN", "requests from pages of other sites are refused")


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers of a request by name.

    Raises:
        Refused: a header that access depends on is given twice.
    """
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in headers and name in (b"host", b"origin", b"authorization", b"content-length"):
            raise Refused(400, "BAD_REQUEST", f"the header {name.decode('latin-1')} is given twice")
        headers[name] = value
    return headers


def _bounded(receive: Receive) -> Receive:
    """Return a ``receive`` that refuses a body without a declared length once it is too large."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY_BYTES:
            raise _too_large()
        return message

    return bounded


def _too_large() -> Refused:
    return Refused(413, "TOO_LARGE", f"the body has more than {MAX_BODY_BYTES} bytes")
