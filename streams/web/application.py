"""The ASGI application of an instance: routes behind the guard.

A new page or endpoint is a route in ``app``.  Of the other packages, this module imports only ``core`` and
``runtime``.
"""

from collections.abc import Callable, Collection
from typing import Protocol
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from streams.core.errors import ConfigError
from streams.core.http.http_checks import HttpRefusal
from streams.core.metrics import Metrics
from streams.runtime import Instance
from streams.web.answers import Refused, answer, error_response
from streams.web.arguments import Arguments
from streams.web.desk import QUERY_PATH, Desk
from streams.web.guard import Guard
from streams.web.health import Finding, Health
from streams.web.letters import LETTERS_PATH, REDRIVE_PATH, LettersEndpoint
from streams.web.pages import page_routes
from streams.web.peers import PeerError, Peers
from streams.web.questions import WHY_PATH, WhyEndpoint
from streams.web.status import STATUS_PATH, Status
from streams.web.stores import StoresEndpoint

_THREADS_PATH = "/threads"
_PATHS = (
    "there are /, /live, /ready, /progress, /status, /threads/NAME, /topology.svg, /stores, /metrics, /why and "
    "/dead-letters"
)


class Served(Protocol):
    """An application that can be served: ``Streams``."""

    @property
    def instance(self) -> Instance:
        """The runtime of the application."""
        ...


def app(
    streams: Served,
    *,
    token: str | None = None,
    reads_need_token: bool = False,
    hosts: Collection[str] = (),
    desk: Desk | None = None,
    status: Status | None = None,
) -> ASGIApp:
    """Return the ASGI application that serves a ``Streams``, started or not; another application may mount it.

    Requests that change something need ``Authorization: Bearer`` with the ``token``, and are refused without one;
    with ``reads_need_token`` all requests need it.  Through a loopback address, requests must name a loopback host
    or one of ``hosts``.  Other instances are queried through ``desk``, by default one with this token.  The server
    takes the samples of ``status``; without a server, they are taken when the status is requested.
    """
    desk = desk or Desk(streams.instance, Peers(token))
    status = status or Status(streams.instance, desk.peers)
    stores = StoresEndpoint(streams.instance, desk)
    health = Health(streams.instance)
    letters = LettersEndpoint(streams.instance)
    routes: list[BaseRoute] = [
        Route("/live", _checked(health.live, "limit_ms")),
        Route("/ready", _checked(health.ready)),
        Route("/progress", _checked(health.progress, "limit_ms")),
        Route(STATUS_PATH, _status(status)),
        Route(f"{_THREADS_PATH}/{{name:path}}", _thread(status, desk.peers)),
        Route("/topology.svg", _drawing(status)),
        *page_routes(),
        Route("/metrics", _metrics(streams.instance.metrics)),
        Route(WHY_PATH, WhyEndpoint(streams.instance, desk.peers).respond, methods=["POST", "DELETE"]),
        Route(LETTERS_PATH, letters.respond),
        Route(REDRIVE_PATH, letters.redrive, methods=["POST"]),
        Route(f"{LETTERS_PATH}/{{place}}", letters.show),
    ]
    inner = Starlette(routes=routes, exception_handlers={HttpRefusal: _refused, 404: _no_such_path, 405: _wrong_method})
    inner.router.redirect_slashes = False

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        """Pass store queries to their endpoint, which reads the encoded path, and all other requests to the routes."""
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        is_query = scope["type"] == "http" and (path.startswith("/stores") or path == QUERY_PATH)
        await (stores if is_query else inner)(scope, receive, send)

    return Guard(dispatch, token, reads_need_token, tuple(host.lower() for host in hosts))


def _checked(check: Callable[..., Finding], *numbers: str) -> Callable[[Request], Response]:
    """Return a handler that responds with 200 if a health check passes, else 503.

    ``numbers`` are the names of the query parameters that the check takes as arguments.
    """

    async def handle(request: Request) -> Response:
        limits = {name: _number(request, name) for name in numbers if name in request.query_params}
        holds, details = check(**limits)
        return answer(200 if holds else 503, {"ok": holds} | details)

    return handle  # type: ignore[return-value]


def _metrics(metrics: Metrics) -> Callable[[Request], Response]:
    """Return the handler that answers with all metrics as Prometheus text."""

    async def handle(request: Request) -> Response:
        try:
            # Imported here, since the extra is not needed for anything else.
            from streams.telemetry import prometheus
        except ConfigError as error:
            raise Refused(501, "NOT_INSTALLED", str(error)) from None
        return Response(prometheus.render(metrics), media_type=prometheus.CONTENT_TYPE)

    return handle  # type: ignore[return-value]


def _status(status: Status) -> Callable[[Request], Response]:
    """Return the handler that answers with the status of the instance, or of its group."""

    async def handle(request: Request) -> Response:
        arguments = Arguments.of(request.scope)
        arguments.check("scope", "since", "graph")
        scope = arguments.text_by_name.get("scope", "instance")
        since_ms = arguments.number("since", 0)
        if scope not in ("instance", "group"):
            raise Refused(400, "BAD_REQUEST", f"scope={scope[:20]} is neither instance nor group")
        graph_id = arguments.text_by_name.get("graph", "")
        return answer(
            200,
            await status.of_group(since_ms, graph_id) if scope == "group" else status.of_instance(since_ms, graph_id),
        )

    return handle  # type: ignore[return-value]


def _thread(status: Status, peers: Peers) -> Callable[[Request], Response]:
    """Return the handler that answers with the stack and tasks of a thread, of this instance or another."""

    async def handle(request: Request) -> Response:
        name = request.path_params["name"]
        shown = status.of_thread(name)
        if shown is not None:
            return answer(200, shown)
        endpoint = status.endpoint_of(name)
        if not endpoint:
            raise Refused(404, "NO_SUCH_THREAD", f"there is no thread {name[:200]!r}; /status has their names")
        try:
            code, body = await peers.send("GET", endpoint, f"{_THREADS_PATH}/{quote(name, safe='')}")
        except PeerError as error:
            raise Refused(502, "NO_ANSWER", str(error)) from None
        return Response(body, code, media_type="application/json")

    return handle  # type: ignore[return-value]


def _drawing(status: Status) -> Callable[[Request], Response]:
    """Return the handler that answers with the drawing of the topology, to which the page adds numbers."""

    async def handle(request: Request) -> Response:
        arguments = Arguments.of(request.scope)
        arguments.check("nodes", "layout")
        nodes, layout = (arguments.text_by_name.get(name, "") for name in ("nodes", "layout"))
        if nodes not in ("", "all") or layout not in ("", "list"):
            raise Refused(400, "BAD_REQUEST", "nodes is all or left out, layout is list or left out")
        return Response(status.drawing(not nodes, bool(layout)), media_type="image/svg+xml")

    return handle  # type: ignore[return-value]


def _number(request: Request, name: str) -> int:
    text = request.query_params[name]
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 16):
        raise Refused(400, "BAD_REQUEST", f"{name}={text[:20]} is no number of milliseconds")
    return int(text)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpRefusal)
    return error_response(error)


async def _no_such_path(request: Request, error: Exception) -> Response:
    return error_response(Refused(404, "NO_SUCH_PATH", _PATHS))


async def _wrong_method(request: Request, error: Exception) -> Response:
    return error_response(Refused(405, "METHOD_NOT_ALLOWED", f"this path does not take {request.method}"))
