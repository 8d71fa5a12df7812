"""Look-ups over HTTP with httpx (extra ``http``).

This module imports only ``core``; httpx is imported when an ``HttpLookUp`` is created.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from functools import partial
from inspect import signature
from typing import Any, Generic
from urllib.parse import quote, urlsplit
from weakref import WeakKeyDictionary

from typing_extensions import TypeVar

from streams.core.arguments import checked_count
from streams.core.errors import ConfigError, StreamsError
from streams.core.installation import pip_install
from streams.core.user_code import refuse_unawaited

#: The type of keys; without an annotation, a key may be any object.
L = TypeVar("L", default=object)
A = TypeVar("A", default=object)

_KEY = "{key}"
#: Statuses of a resource that does not exist.
_NOT_FOUND = (404, 410)
#: Headers that describe the transferred body, and are wrong for the decompressed body.
_OF_TRANSFER = ("content-encoding", "content-length", "transfer-encoding")
#: Keys that cannot be a path segment: clients and servers remove them from the path.
_NO_SEGMENTS = ("", ".", "..", b"", b".", b"..")


class HttpLookUp(Generic[L, A]):
    """Looks a key up with a GET request; the answer is None for status 404 (Not Found) or 410 (Gone).

    ``url`` contains ``{key}`` once, in its path or query.  It is replaced with ``str(key)``, percent-encoded.  In a
    path, the keys "", "." and ".." cannot name a resource: the answer is None without a request.  ``read`` converts an
    ``httpx.Response`` to the answer, for example ``lambda response: response.json()``.  ``timeout`` (default: 10
    seconds) applies separately to connecting, and to each read and write.  ``max_bytes`` is the maximum size of a
    response after decompression (default: 8 MiB); reading a larger response is stopped with an error.  ``headers`` are
    sent with each request.  ``client`` has further arguments of ``httpx.AsyncClient``, such as ``verify`` or ``auth``.

    Each event loop has its own client, which keeps connections open.  Redirects are followed only if ``client`` has
    ``follow_redirects``; otherwise they raise ``httpx.HTTPStatusError``, as do all statuses outside 200 to 299.

    Raises:
        ConfigError: httpx is not installed, the URL has no ``{key}``, ``read`` is async, ``timeout`` or ``max_bytes``
            is not above 0, or ``client`` has an argument that httpx does not know.
    """

    def __init__(
        self,
        url: str,
        *,
        read: Callable[[Any], A],
        timeout: timedelta = timedelta(seconds=10),
        max_bytes: int = 8 << 20,
        headers: Mapping[str, str] | None = None,
        client: Mapping[str, Any] | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc or url.count(_KEY) != 1:
            raise ConfigError(f"HttpLookUp: {url!r} must be a whole URL with {_KEY} once, in its path or query")
        if _KEY not in parts.path + parts.query:
            raise ConfigError(f"HttpLookUp: {_KEY} must be in the path or query of {url!r}")
        self._is_in_path = _KEY in parts.path
        self._recipe = partial(
            type(self), url, read=read, timeout=timeout, max_bytes=max_bytes, headers=headers, client=client
        )
        self._url = url
        self._read = read
        self._httpx = _httpx()
        # The operator limits the number of requests at a time.
        limits = self._httpx.Limits(max_connections=None)
        if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
            raise ConfigError(f"{self!r}: timeout must be a timedelta above 0, not {timeout!r}")
        self._max_bytes = checked_count(max_bytes, f"{self!r}: max_bytes", ConfigError)
        refuse_unawaited(read, f"read= of {self!r}", error=ConfigError)
        self._options: Mapping[str, Any] = self._checked(
            {"timeout": timeout.total_seconds(), "headers": headers, "limits": limits, **(client or {})}
        )
        self._clients: WeakKeyDictionary[Any, tuple[AsyncIterator[Any], Any]] = WeakKeyDictionary()

    def _checked(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a client.

        Raises:
            ConfigError: httpx does not know one of them.
        """
        try:
            signature(self._httpx.AsyncClient).bind(**options)
        except TypeError as error:
            raise ConfigError(f"client= of {self!r}: httpx.AsyncClient {error}") from None
        return options

    def __repr__(self) -> str:
        return f"HttpLookUp({self._url!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._recipe, ()

    async def __call__(self, key: L) -> A | None:
        """Return the answer for a key, or None if there is none.

        Raises:
            httpx.HTTPError: the request failed, or the server refused it.
            StreamsError: the response is too large.
        """
        text = key if isinstance(key, bytes) else str(key)
        if self._is_in_path and text in _NO_SEGMENTS:
            return None
        client = await self._client()
        url = self._url.replace(_KEY, quote(text, safe=""))
        async with client.stream("GET", url) as streamed:
            body = await self._body(streamed, url)
        response = self._with_body(streamed, body)
        if response.status_code in _NOT_FOUND:
            return None
        if not response.is_success:
            response.raise_for_status()
        return self._read(response)

    async def _body(self, response: Any, url: str) -> bytes:
        """Read the body of a response, decompressed, up to the maximum size."""
        parts = []
        size = 0
        async for part in response.aiter_bytes():
            size += len(part)
            if size > self._max_bytes:
                raise StreamsError(
                    f"{self!r}: the response to {url:.100} has more than {self._max_bytes:,} bytes; ask for less, or "
                    "raise max_bytes"
                )
            parts.append(part)
        return b"".join(parts)

    def _with_body(self, response: Any, body: bytes) -> Any:
        """Return a copy of a response with the given body, without the transfer headers."""
        headers = [(name, text) for name, text in response.headers.multi_items() if name not in _OF_TRANSFER]
        return self._httpx.Response(
            response.status_code,
            headers=headers,
            content=body,
            request=response.request,
            extensions=response.extensions,
            history=response.history,
            default_encoding=response.default_encoding,
        )

    async def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        owned = self._clients.get(loop)
        if owned is None:
            owner = self._owner()
            owned = self._clients.setdefault(loop, (owner, await anext(owner)))
        return owned[1]

    async def _owner(self) -> AsyncIterator[Any]:
        """Yield a client, which is closed with the generator: when its event loop shuts down."""
        loop = asyncio.get_running_loop()
        try:
            async with self._httpx.AsyncClient(**self._options) as client:
                yield client
        finally:
            self._clients.pop(loop, None)


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise ConfigError(f"HttpLookUp needs httpx ({error}): {pip_install('http')}") from None
    return httpx
