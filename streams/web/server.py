"""The HTTP server: uvicorn in a separate thread, with limits on connections, header size and idle time."""

import asyncio
import logging
import socket
from collections.abc import Collection
from types import TracebackType
from typing import Any, Self

import h11
import uvicorn
from attrs import define
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from streams.core.address import WILDCARDS, Address, is_loopback
from streams.core.errors import ClientClosedError, ConfigError
from streams.core.threads import Signal, SystemThreads, Worker
from streams.runtime import Instance, KeyPartitioner, StateQueryResult, StoreRequest
from streams.web.application import Served, app
from streams.web.desk import Desk
from streams.web.guard import host_of
from streams.web.peers import Peers
from streams.web.samples import SAMPLE_MS, Samples
from streams.web.status import Status

log = logging.getLogger(__name__)

#: Maximum number of open connections; further ones get status 503.
MAX_CONNECTIONS = 512
#: Largest size of a request line with its headers in bytes.
_MAX_HEAD_BYTES = 32 << 10
#: Time in which a connection must begin a request, in seconds.
_IDLE_S = 15
#: Time for open requests to complete when the server closes, in seconds.
_GRACE_S = 2


class _Connection(H11Protocol):
    """A uvicorn connection that is closed if there are too many, or if no request arrives in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._seen: object = None
        self._timer = self.loop.call_later(_IDLE_S, self._look)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.write(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\r\n")
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            # The rest of a refused request body is not read.
            self.transport.close()

    def _look(self) -> None:
        """Close the connection if no request has begun since the last check, and none is in progress."""
        cycle = self.cycle
        is_busy = cycle is not None and not cycle.response_complete
        if not is_busy and cycle is self._seen:
            self.transport.close()
            return
        self._seen = cycle
        self._timer = self.loop.call_later(_IDLE_S, self._look)


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
        """Take a sample if one is due, and schedule the next one, until the server stops."""
        assert self.loop is not None
        if not self.should_exit:
            self.loop.call_later(SAMPLE_MS / 1000, self._sample)
            self._samples.take_if_due()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._desk.close()


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
            InvalidStateStoreError: there is no assignment yet, or no such partition.
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
        """Stop listening, and complete the open requests for at most two seconds.  Idempotent."""
        if self.is_open:
            self._instance.publish(self._instance.config.application_server)
        self._uvicorn.should_exit = True
        self._worker.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(streams: Served, address: str, *, token: str | None = None) -> WebServer:
    """Serve an application at ``host:port``; port 0 selects a free port.

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
    server = _Uvicorn(_config(application), desk, status.samples, is_up)
    worker = threads.start(f"{instance.client_name}-http", lambda: server.run([listening]))
    is_up.wait()
    place = str(Address(host, port))
    is_any = host in WILDCARDS
    instance.publish(endpoint or (f"{socket.gethostname()}:{port}" if is_any else place))
    return WebServer(f"http://{place}", instance, desk, server, worker)


def _config(application: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        http=_Connection,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )


def _listening(address: str) -> socket.socket:
    """Return a socket that listens at ``host:port``.

    Raises:
        ConfigError: the address is invalid or taken.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ConfigError(f"{address!r} is not host:port, such as 127.0.0.1:8080")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
            listening.listen()
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise ConfigError(f"cannot listen at {address}: {error.strerror or error}") from None
    return listening
