"""The HTTP server of an application: live page, health, metrics and queries (extra ``web``).

``serve`` runs it in a thread of its own; ``app`` is the ASGI application, for another server or to be mounted.
"""

from streams.core.errors import ConfigError
from streams.core.installation import pip_install

try:
    import httpx  # noqa: F401
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    raise ConfigError(
        f"an HTTP server needs Starlette, uvicorn and httpx ({error}); install them with: {pip_install('web')}"
    ) from None

from streams.web.application import Served, app
from streams.web.server import WebServer, serve

__all__ = ["Served", "WebServer", "app", "serve"]
