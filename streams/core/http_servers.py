"""Settings of the HTTP servers of this library, which uvicorn runs (extra ``web``).

This module imports no other module of the project; uvicorn is imported on use.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from uvicorn import Config

#: Maximum number of connections that wait to be accepted.
BACKLOG: Final = 2_048
#: Maximum number of open connections of a server; further ones get status 503.
MAX_CONNECTIONS: Final = 512
#: Time in which a connection must begin a request, in seconds.
IDLE_S: Final = 15
#: Time for open requests to complete when a server closes, in seconds.
GRACE_S: Final = 2
#: Largest size of a request line with its headers in bytes.
_MAX_HEAD_BYTES: Final = 32 << 10


def server_config(application: Any, http: Any = "h11") -> "Config":
    """Return the settings of a server within a program: it writes no logs.

    ``application`` is an ASGI application; ``http`` is uvicorn's implementation of HTTP/1.1, or a class of one's own.
    """
    from uvicorn import Config

    return Config(
        application,
        http=http,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
