"""The HTTP server of an application."""

import asyncio
import socket
from collections.abc import Collection
from typing import Any

from attrs import define

from streams.core.closeable import Closeable
from streams.core.errors import ClientClosedError, ConfigError
from streams.core.http.address import WILDCARDS, is_loopback, parse_address
from streams.core.http.http_checks import host_of
from streams.core.http.http_server import HttpServer
from streams.runtime import Instance, KeyPartitioner, StateQueryResult, StoreRequest
from streams.web.application import Served, app
from streams.web.desk import Desk
from streams.web.peers import Peers
from streams.web.samples import SAMPLE_MS
from streams.web.status import Status
from streams.web.switching import QUICK_SWITCHING


@define(eq=False)
class WebServer(Closeable):
    """A running HTTP server; a context manager, closed on exit.  Created by ``serve``."""

    #: The address with scheme and port, such as ``http://127.0.0.1:8080``.
    url: str
    _instance: Instance
    _desk: Desk
    _server: HttpServer

    def ask(
        self, request: StoreRequest, partitions: Collection[int] | None, partitioner: KeyPartitioner | None
    ) -> StateQueryResult[Any]:
        """Query the stores of all instances; to be called from any thread except the server thread.

        Raises:
            InvalidStateStoreError: there is no assignment yet, or the store has no such partition.
            ClientClosedError: the server is closed.
        """
        if not self.is_open:
            raise ClientClosedError(f"the server at {self.url} is closed")
        asked = self._desk.ask(request, partitions, partitioner)
        return asyncio.run_coroutine_threadsafe(asked, self._server.loop).result()

    @property
    def is_open(self) -> bool:
        """Whether the server has not been closed."""
        return self._server.is_open

    def close(self) -> None:
        """Stop listening, and wait up to two seconds for open requests to complete.  A second call has no effect."""
        if self.is_open:
            self._instance.publish(self._instance.config.application_server)
        self._stop()

    def _stop(self) -> None:
        self._server.close()
        QUICK_SWITCHING.end(self._server)


def serve(streams: Served, address: str, *, token: str | None = None) -> WebServer:
    """Serve an application at ``host:port``; port 0 selects a free port.

    Until the server is closed, the interpreter switches threads after 0.3 ms instead of 5 ms, so that queries do not
    wait for busy stream threads.

    The group metadata publishes this instance with the setting ``application_server`` (default: this address, or the
    host name of this machine if it listens on all addresses).

    Raises:
        ConfigError: the address is invalid or taken, or is not loopback and there is no token.
    """
    place = parse_address(address)
    instance = streams.instance
    endpoint = instance.config.application_server
    hosts = [host_of(endpoint)] if endpoint else []
    is_local = is_loopback(place.host)
    if not is_local and not token:
        raise ConfigError(f"{address} can be reached from other machines: give a token, or listen on 127.0.0.1")
    desk = Desk(instance, Peers(token))
    status = Status(instance, desk.peers)
    application = app(streams, token=token, reads_need_token=not is_local, hosts=hosts, desk=desk, status=status)
    server: HttpServer

    def sample() -> None:
        """Take a sample of the metrics if one is due, and schedule the next one, until the server stops."""
        if server.is_open:
            server.loop.call_later(SAMPLE_MS / 1000, sample)
            status.samples.take_if_due()

    server = HttpServer(application, place, f"{instance.client_name}-http", on_stop=desk.close)
    server.loop.call_soon_threadsafe(sample)
    QUICK_SWITCHING.begin(server)
    web_server = WebServer(f"http://{server.address}", instance, desk, server)
    own = f"{socket.gethostname()}:{server.address.port}" if place.host in WILDCARDS else str(server.address)
    try:
        instance.publish(endpoint or own)
    except BaseException:
        web_server._stop()
        raise
    return web_server
