"""The application's side of its HTTP process (``streams.web.front``): requests, and connections that it passes on."""

import asyncio
import logging
import marshal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from attrs import define, field
from starlette.types import ASGIApp, Message, Scope

from streams.web import front, peers
from streams.web.front import HEAD, Place
from streams.web.relay import RELAY

log = logging.getLogger(__name__)

#: Time for the process to send the rest of its responses, in seconds.
_END_S = 5
_MAX_PASSED_BYTES = 256 << 10

_Address = tuple[str, int]
_Headers = list[tuple[bytes, bytes]]
#: A request: number, method, path, query, headers, addresses of server and client, body; and why another instance has
#: not answered it, "" if it was not forwarded before.
_Question = tuple[int, bytes, bytes, bytes, _Headers, _Address, _Address, bytes, str]
#: A response: number of the request, status, headers, body.  With status 0, the place of another instance and a request
#: for it, whose response is passed on.
_Answer = tuple[int, int, _Headers | Place, bytes]


@define(eq=False)
class FrontLink(asyncio.Protocol):
    """The HTTP process of a server, and its requests to the ASGI application; used by one event loop.

    ``listening`` is the socket at which the process accepts connections.
    """

    _app: ASGIApp
    listening: socket.socket
    _process: subprocess.Popen[bytes]
    _link: socket.socket
    _passage: socket.socket
    #: Serves a connection that the process has passed on, of which it has read these bytes.
    _serve: Callable[[socket.socket, bytes], None] = field(init=False)
    #: Called if the process has ended although the server is not closed.
    _on_lost: Callable[[], None] = field(init=False)
    _transport: asyncio.Transport = field(init=False)
    _received: bytes = b""
    _answers: list[_Answer] = field(factory=list)
    _tasks: "set[asyncio.Task[None]]" = field(factory=set)
    _is_closing: bool = False
    #: Whether the process has failed.
    _is_lost: bool = False

    @classmethod
    def start(cls, app: ASGIApp, listening: socket.socket, max_connections: int, idle_s: float) -> "FrontLink":
        """Start the process; it closes connections beyond ``max_connections``, and without a request for ``idle_s``."""
        link, its_link = socket.socketpair()
        # Each message is one connection.
        passage, its_passage = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        shared = [sock.fileno() for sock in (listening, its_link, its_passage)]
        limits = map(str, (max_connections, idle_s, peers.CONNECT_S, peers.ANSWER_S))
        with its_link, its_passage:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(front.__file__)), *map(str, shared), *limits],
                stdin=subprocess.DEVNULL,
                pass_fds=shared,
            )
        link.setblocking(False)
        passage.setblocking(False)
        return cls(app, listening, process, link, passage)

    async def open(self, serve: Callable[[socket.socket, bytes], None], on_lost: Callable[[], None]) -> None:
        """Begin to answer requests, and to ``serve`` connections; ``on_lost`` is called if the process fails."""
        loop = asyncio.get_running_loop()
        self._serve = serve
        self._on_lost = on_lost
        loop.add_reader(self._passage, self._take)
        await loop.create_unix_connection(lambda: self, sock=self._link)

    # --- requests ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for responses."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Start to answer the requests that the process has sent."""
        self._received += data
        loop = asyncio.get_running_loop()
        while len(self._received) >= HEAD.size:
            end = HEAD.size + HEAD.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            questions: list[_Question] = marshal.loads(self._received[HEAD.size : end])
            self._received = self._received[end:]
            for question in questions:
                task = loop.create_task(self._answer(*question))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer(
        self,
        number: int,
        method: bytes,
        path: bytes,
        query: bytes,
        headers: _Headers,
        *rest: object,
    ) -> None:
        server, client, body, failure = rest
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method.decode(),
            # The path is still percent-encoded, as in ``raw_path``; handlers decode it.
            "path": path.decode(),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "server": server,
            "client": client,
            "extensions": {RELAY: failure},
        }
        status, parts = 500, list[bytes]()
        sent: _Headers | Place = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status, sent = message["status"], message["headers"]
            elif message["type"] == RELAY:
                status, sent = 0, message["place"]
                parts.append(message["request"])
            else:
                parts.append(message.get("body", b""))

        try:
            await self._app(scope, receive, send)
        except Exception:  # noqa: BLE001
            # The error has been logged where it occurred; respond, since the client waits.
            status, sent, parts = 500, [(b"content-length", b"0")], []
        self._answers.append((number, status, sent, b"".join(parts)))
        if len(self._answers) == 1:
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        answers = self._answers
        self._answers = []
        if answers:
            self._write(answers)

    def _write(self, answers: list[_Answer]) -> None:
        try:
            batch = marshal.dumps(answers)
        except ValueError:
            # One of them has a header that is not bytes; the clients of the others wait for theirs.
            batch = marshal.dumps([_plain(answer) for answer in answers])
        self._transport.write(HEAD.pack(len(batch)) + batch)

    # --- connections ------------------------------------------------------------------------

    def _take(self) -> None:
        """Serve the connections that the process has passed on."""
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._passage, _MAX_PASSED_BYTES, 1)
            except BlockingIOError:
                return
            if not descriptors:
                asyncio.get_running_loop().remove_reader(self._passage)
                return
            sock = socket.socket(fileno=descriptors[0])
            sock.setblocking(False)
            self._serve(sock, data)

    # --- the end ----------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """If the process has failed, let the application accept connections itself."""
        if not self._is_closing:
            log.error("the HTTP process has ended (status %s); its work is done here from now on", self._process.poll())
            self._is_lost = True
            self._on_lost()

    def stop(self) -> None:
        """Accept no more connections; requests that have begun are answered."""
        self._is_closing = True
        if not self._is_lost:
            self._send()
            self._write([])
            self.listening.close()

    async def close(self, grace_s: float) -> None:
        """Send the responses that are ready within ``grace_s``, and end the process."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        self._send()
        asyncio.get_running_loop().remove_reader(self._passage)
        self._passage.close()
        self._transport.close()

    def join(self) -> None:
        """Wait for the end of the process, from any thread."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _plain(answer: _Answer) -> _Answer:
    """Return a response, or 500 for one that cannot be sent to the process."""
    try:
        marshal.dumps([answer])
    except ValueError:
        log.error("a response with status %s has a header that is not bytes: %r; the client gets 500", *answer[1:3])
        return answer[0], 500, [(b"content-length", b"0")], b""
    return answer
