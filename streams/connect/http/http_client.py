"""What the sink and the source over HTTP share: httpx, imported on use, and answers that may pass.

Of the other packages, this module imports only ``core``.
"""

from typing import Any, Final

from streams.connect.errors import ConnectError
from streams.core.errors import ConfigError
from streams.core.installation import pip_install

#: Answers after which the same request may succeed: it is in progress, there are too many, or the server has an error.
PASSING: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
#: Characters of an answer that a message quotes.
QUOTED: Final = 300


class HttpUnavailableError(ConnectError):
    """The server did not answer, or asked the client to try again later; the worker retries the request."""


def httpx_for(who: str) -> Any:
    """Import httpx.

    Raises:
        ConfigError: it is not installed; the message names ``who`` needs it.
    """
    try:
        import httpx
    except ImportError as error:
        raise ConfigError(f"{who} needs httpx ({error}): {pip_install('http')}") from None
    return httpx


def url_of(httpx: Any, url: str, who: str) -> Any:
    """Return a parsed URL.

    Raises:
        ConfigError: it is not one of HTTP with a host.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{who}: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        # A query can have a token.
        raise ConfigError(f"{who}(url={url.partition('?')[0]!r}): the URL begins with http:// or https:// and a host")
    return parsed
