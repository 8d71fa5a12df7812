"""The HTTP server: uvicorn in a separate thread, with limits on connections, header size and idle time."""

import asyncio
import logging
import socket
from collections.abc import Collection
from functools import partial
from types import TracebackType
from typing import Any, Self

import uvicorn
from attrs import define

from streams.core.concurrency.threads import Signal, SystemThreads, Worker
from streams.core.errors import ClientClosedError, ConfigError
from streams.core.http.address import WILDCARDS, Address, is_loopback, parse_address
from streams.core.http.http_connections import LimitedConnection
from streams.core.http.http_servers import BACKLOG, IDLE_S, MAX_CONNECTIONS, server_config
from streams.runtime import Instance, KeyPartitioner, StateQueryResult, StoreRequest
from streams.web.application import Served, app
from streams.web.desk import Desk
from streams.web.guard import host_of
from streams.web.peers import Peers
from streams.web.samples import SAMPLE_MS, Samples
from streams.web.status import Status
from streams.web.switching import QUICK_SWITCHING

log = logging.getLogger(__name__)


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that sets a signal once it accepts requests, and takes samples while it runs."""

    def __init__(self, config: uvicorn.Config, desk: Desk, samples: Samples, is_up: Signal) -> None:
        super().__init__(config)
        self._desk = desk
        self._samples = samples
        self._is_up = is_up
        #: The event loop, once it runs.
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._sample()
        self._is_up.set()

    def _sample(self) -> None:
        """Take a sample of the metrics if one is due, and schedule the next one, until the server stops."""
        assert self.loop is not None
        if not self.should_exit:
            self.loop.call_later(SAMPLE_MS / 1000, self._sample)
            self._samples.take_if_due()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._desk.close()


@define(eq=False)
class WebServer:
    """A running HTTP server; a context manager, closed on exit.  Created by ``serve``."""

    #: The address with scheme and port, such as ``http://127.0.0.1:8080``.
    url: str
    _instance: Instance
    _desk: Desk
    _uvicorn: _Uvicorn
    _worker: Worker

    def ask(
        self, request: StoreRequest, partitions: Collection[int] | None, partitioner: KeyPartitioner | None
    ) -> StateQueryResult[Any]:
        """Query the stores of all instances; to be called from any thread except the server thread.

        Raises:
            InvalidStateStoreError: there is no assignment yet, or the store has no such partition.
            ClientClosedError: the server is closed.
        """
        loop = self._uvicorn.loop
        if loop is None or not self.is_open:
            raise ClientClosedError(f"the server at {self.url} is closed")
        return asyncio.run_coroutine_threadsafe(self._desk.ask(request, partitions, partitioner), loop).result()

    @property
    def is_open(self) -> bool:
        """Whether the server has not been closed."""
        return not self._uvicorn.should_exit

    def close(self) -> None:
        """Stop listening, and wait up to two seconds for open requests to complete.  A second call has no effect."""
        if self.is_open:
            self._instance.publish(self._instance.config.application_server)
        self._stop()

    def _stop(self) -> None:
        self._uvicorn.should_exit = True
        self._worker.join()
        QUICK_SWITCHING.end(self._uvicorn)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(streams: Served, address: str, *, token: str | None = None) -> WebServer:
    """Serve an application at ``host:port``; port 0 selects a free port.

    Until the server is closed, the interpreter switches threads after 0.3 ms instead of 5 ms, so that queries do not
    wait for busy stream threads.

    The group metadata publishes this instance with the setting ``application_server`` (default: this address, or the
    host name of this machine if it listens on all addresses).

    Raises:
        ConfigError: the address is invalid or taken, or is not loopback and there is no token.
    """
    listening = _listening(address)
    host, port = listening.getsockname()[:2]
    is_local = is_loopback(host)
    if not is_local and not token:
        listening.close()
        raise ConfigError(f"{address} can be reached from other machines: give a token, or listen on 127.0.0.1")
    instance = streams.instance
    endpoint = instance.config.application_server
    hosts = [host_of(endpoint)] if endpoint else []
    desk = Desk(instance, Peers(token))
    status = Status(instance, desk.peers)
    application = app(streams, token=token, reads_need_token=not is_local, hosts=hosts, desk=desk, status=status)
    threads = SystemThreads()
    is_up = threads.signal()
    connection = partial(LimitedConnection, max_connections=MAX_CONNECTIONS, idle_s=IDLE_S)
    server = _Uvicorn(server_config(application, connection), desk, status.samples, is_up)
    worker = threads.start(f"{instance.client_name}-http", lambda: server.run([listening]))
    is_up.wait()
    QUICK_SWITCHING.begin(server)
    place = str(Address(host, port))
    web_server = WebServer(f"http://{place}", instance, desk, server, worker)
    is_any = host in WILDCARDS
    try:
        instance.publish(endpoint or (f"{socket.gethostname()}:{port}" if is_any else place))
    except BaseException:
        web_server._stop()
        raise
    return web_server


def _listening(address: str) -> socket.socket:
    """Return a socket that listens at ``host:port``.

    Raises:
        ConfigError: the address is invalid or taken.
    """
    host, port = parse_address(address)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise ConfigError(f"cannot listen at {address}: {error.strerror or error}") from None
    return listening
