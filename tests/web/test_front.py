"""The HTTP process: it reads queries by key; the application serves all other requests, on the same connections."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from streams import Streams
from streams.web.link import FrontLink
from tests.waiting import WATCHDOG_S
from tests.web.conftest import FAST, counting, running, send, until, words

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the application accepts connections itself")

KEY = b"GET /stores/kept/keys/%b HTTP/1.1\r\nhost: localhost\r\n\r\n"
LIVE = b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture
def server(broker, client):
    with running(broker) as streams, streams.serve("127.0.0.1:0") as made:
        send(broker, words, [("a", "1"), ("b", "1"), ("b", "2")])
        for key, count in (("a", 1), ("b", 2)):
            until(lambda: client.get(f"{made.url}/stores/kept/keys/{key}").json().get("value") == count)  # noqa: B023
        yield made


@contextmanager
def connected(server) -> Iterator[socket.socket]:
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=WATCHDOG_S) as raw:
        yield raw


def responses(raw: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Read so many responses from a connection: status and body."""
    found: list[tuple[int, bytes]] = []
    with raw.makefile("rb") as stream:
        for _ in range(count):
            status = int(stream.readline().split()[1])
            length = 0
            while (line := stream.readline()) != b"\r\n":
                name, _, value = line.lower().partition(b":")
                length = int(value) if name == b"content-length" else length
            found.append((status, stream.read(length)))
    return found


def test_requests_of_all_kinds_on_one_connection_are_answered_in_their_order(server):
    with connected(server) as raw:
        raw.sendall(KEY % b"a" + KEY % b"none" + KEY % b"b" + LIVE + KEY % b"a")
        found = responses(raw, 5)
    assert [status for status, _ in found] == [200, 404, 200, 200, 200]
    assert b'"value":1' in found[0][1]
    assert b'"value":2' in found[2][1]
    assert b'"ok":true' in found[3][1]
    assert found[4] == found[0]


def test_a_request_that_arrives_in_pieces_is_answered(server):
    with connected(server) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            for byte in KEY % b"a":
                raw.sendall(bytes([byte]))
            assert responses(raw, 1)[0][0] == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /stores/kept/keys/a HTTP/1.0\r\nhost: localhost\r\n\r\n",
        b"GET /stores/kept/keys/a HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        b"GET /stores/kept/keys/a HTTP/1.1\r\nHost:localhost\r\nContent-Length: 0\r\n\r\n",
        b"GET /stores/kept/keys/a HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /stores/kept/keys/a HTTP/1.1\r\nhost: localhost\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
        b"GET /stores/kept/keys/a HTTP/1.1\r\nhost: localhost\r\nlong: " + b"x" * 20_000 + b"\r\n\r\n",
    ],
)
def test_a_query_in_any_form_of_http_is_answered(server, request_):
    with connected(server) as raw:
        raw.sendall(request_)
        status, body = responses(raw, 1)[0]
    assert status == 200
    assert b'"value":1' in body


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /stores/kept/keys/a HTTP/1.1\r\nhost: evil.example\r\n\r\n", 421),
        (b"GET /stores/kept/keys/a HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n\r\n", 403),
        (b"GET /stores/kept/keys/a HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n", 400),
        (b"GET /stores/kept/keys/a HTTP/1.1\r\n\r\n", 400),
        (b"GET /stores/kept/keys/a\x00 HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"GET /stores/kept/keys/a HTTP/1.1\r\nhost: localhost\r\n folded\r\n\r\n", 421),
        (b"POST /query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\nabc", 400),
        (b"POST /query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2000000\r\n\r\nabc", 413),
        (b"DELETE /stores/kept/keys/a HTTP/1.1\r\nhost: localhost\r\n\r\n", 403),
    ],
)
def test_a_request_that_is_not_allowed_is_refused(server, request_, status):
    with connected(server) as raw:
        raw.sendall(request_)
        assert int(raw.recv(1_000).split()[1]) == status


def test_the_application_accepts_connections_itself_after_its_http_process_has_been_killed(server, client, caplog):
    with caplog.at_level(logging.ERROR, "streams.web.link"):
        os.kill(server._link._process.pid, signal.SIGKILL)
        until(lambda: "the HTTP process has ended" in caplog.text)
    for _ in range(2):
        assert client.get(f"{server.url}/stores/kept/keys/b").json()["value"] == 2
    assert client.get(f"{server.url}/live").status_code == 200


def test_the_process_ends_with_the_server_and_the_address_is_free(broker):
    with Streams(counting, application_id="app", broker=broker, **FAST) as streams:
        server = streams.serve("127.0.0.1:0")
        address = urlsplit(server.url).netloc
        with connected(server) as idle:
            server.close()
            assert idle.recv(100) == b""
        assert server._link._process.poll() == 0
        streams.serve(address).close()


PROGRAM = """
import os, sys
from streams import EmbeddedBroker, Streams
from tests.waiting import WATCHDOG_S
from tests.web.conftest import FAST, counting
streams = Streams(counting, application_id="app", broker=EmbeddedBroker(), **FAST)
server = streams.serve("127.0.0.1:0")
print(server._link._process.pid, flush=True)
sys.stdin.read()
os._exit(9)
"""


def test_the_process_ends_when_that_of_the_application_is_killed():
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdin is not None
    assert program.stdout is not None
    front = int(program.stdout.readline())

    def state() -> str:
        try:
            return Path(f"/proc/{front}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # It may end between two looks, or within one.
            return "gone"

    assert state() not in ("Z", "gone")
    program.communicate()
    until(lambda: state() in ("Z", "gone"))


async def odd(scope, receive, send):
    """Respond with a header that is no bytes if the key is odd."""
    headers = [(b"content-length", b"2"), *([(b"x-odd", object())] if scope["path"].endswith("odd") else [])]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


def test_a_response_that_cannot_be_passed_on_is_a_500_and_the_others_are_answered(caplog):
    def ask(address: tuple[str, int]) -> list[tuple[int, bytes]]:
        with socket.create_connection(address, timeout=WATCHDOG_S) as raw:
            raw.sendall(KEY % b"a" + KEY % b"odd" + KEY % b"b")
            return responses(raw, 3)

    async def served() -> list[tuple[int, bytes]]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            link = FrontLink.start(odd, listening, 10, 60)
            await link.open(lambda *_: None, lambda: None)
            found = await asyncio.to_thread(ask, listening.getsockname())
            link.stop()
            await link.close(1)
            await asyncio.to_thread(link.join)
            return found

    assert asyncio.run(served()) == [(200, b"ok"), (500, b""), (200, b"ok")]
    assert "has a header that is not bytes" in caplog.text
