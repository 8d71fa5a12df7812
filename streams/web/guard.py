"""Checks of a request before it reaches a handler: those of all servers (``http_checks``), the path, and the token.

Requests that change something need the token; on addresses other than loopback, all requests need it.
Of its own package, this module imports only ``answers``.
"""

import hmac
import logging
from collections.abc import Collection

from attrs import frozen
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streams.core.http.http_checks import HttpRefusal, bounded, checked_headers
from streams.web.answers import Refused, error_response

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
            self._check(scope)
            await self._inner(scope, bounded(receive, MAX_BODY_BYTES), send_safely)
        except HttpRefusal as refusal:
            await error_response(refusal)(scope, receive, send_safely)
        except Exception:
            # The reason is logged but not sent: it may contain keys, values and paths.
            log.exception("%s %s failed", scope["method"], scope["path"][:200])
            if is_started:
                raise
            failure = Refused(500, "INTERNAL", "the request failed; the log of the application says why")
            await error_response(failure)(scope, receive, send_safely)

    def _check(self, scope: Scope) -> None:
        """Check a request before its body is read.

        Raises:
            HttpRefusal: the request is not allowed.
        """
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_PATH_BYTES:
            raise Refused(414, "TOO_LONG", f"the path and query have more than {MAX_PATH_BYTES} bytes")
        self._check_token(scope, checked_headers(scope, MAX_BODY_BYTES, self._hosts))

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
