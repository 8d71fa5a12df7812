"""The HTTP server of an application: where it listens, how long it lives, what its paths answer."""

import asyncio
import errno
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from streams import ConfigError, EmbeddedBroker, Streams
from streams.broker.logs.file import FileStorage
from streams.runtime import Instance
from streams.web import app as app_of
from streams.web.switching import SWITCH_S
from tests.ports import free_ports
from tests.waiting import WATCHDOG_S
from tests.web.conftest import FAST, counting, running, send, until, words

KEY = b"GET /stores/kept/keys/%b HTTP/1.1\r\nhost: localhost\r\n\r\n"
LIVE = b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n"


def app(broker: EmbeddedBroker, **settings: object) -> Streams:
    return Streams(counting, application_id="app", broker=broker, **FAST | settings)


def test_a_server_made_before_the_start_tells_the_state_from_then_to_the_end(broker, client):
    streams = app(broker)
    server = streams.serve("127.0.0.1:0")

    assert client.get(f"{server.url}/live").json()["ok"]
    assert client.get(f"{server.url}/ready").status_code == 503
    refused = client.get(f"{server.url}/stores/kept/keys/a")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    with streams:
        until(lambda: client.get(f"{server.url}/ready").status_code == 200)
        assert client.get(f"{server.url}/live").json()["state"] == "RUNNING"
        assert client.get(f"{server.url}/progress").json()["ok"]
    with pytest.raises(httpx.ConnectError):
        client.get(f"{server.url}/live")


def test_an_instance_without_threads_is_not_ready(broker, client):
    """It is RUNNING, and processes nothing."""
    with running(broker) as streams, streams.serve() as server:
        assert client.get(f"{server.url}/ready").json()["threads"] == 1
        assert streams.remove_thread() is not None
        until(lambda: not streams.instance.stream_threads)

        answer = client.get(f"{server.url}/ready")

        assert (answer.status_code, answer.json()["threads"]) == (503, 0)


def test_an_application_is_not_ready_while_a_broker_cannot_write(tmp_path, client, monkeypatch, caplog):
    """The answer has the path, the room and what to do; with room it is ready again."""
    is_full = threading.Event()
    append = FileStorage.append

    def written(self, block):
        if is_full.is_set() and "changelog" in self.directory.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append(self, block)

    monkeypatch.setattr(FileStorage, "append", written)
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic(words)
        with (
            broker.serve("127.0.0.1:0") as served,
            Streams(counting, application_id="app", bootstrap_servers=served.bootstrap_servers, **FAST) as streams,
            streams.serve() as server,
        ):
            until(lambda: client.get(f"{server.url}/ready").json()["ok"])
            is_full.set()
            send(broker, words, [("a", "b")])
            until(lambda: "storage" in client.get(f"{server.url}/ready").json())
            answer = client.get(f"{server.url}/ready")

            assert answer.status_code == 503
            assert "disk full: " in answer.json()["storage"]
            assert "make room" in answer.json()["storage"]
            is_full.clear()
            until(lambda: client.get(f"{server.url}/ready").json()["ok"])

    (away, back) = (
        record.getMessage() for record in caplog.records if record.name == "streams.clients.producer.sender"
    )
    assert "disk full: " in away
    assert "brokers write again, after " in back


def test_an_application_is_not_ready_while_no_broker_can_be_reached(client, caplog):
    """The answer, a metric and the log say so, and that it is back: once each, whatever the number of clients."""
    (port,) = free_ports(1)
    with EmbeddedBroker() as broker, ExitStack() as stack:
        broker.create_topic(words)
        served = broker.serve(f"127.0.0.1:{port}")
        streams = Streams(counting, application_id="app", bootstrap_servers=served.bootstrap_servers, **FAST)
        stack.enter_context(streams)
        server = stack.enter_context(streams.serve())
        until(lambda: client.get(f"{server.url}/ready").json()["ok"])
        served.close()
        until(lambda: "broker" in client.get(f"{server.url}/ready").json())
        answer = client.get(f"{server.url}/ready")

        assert (answer.status_code, answer.json()["ok"]) == (503, False)
        assert re.match(rf"no broker for \d+ s: broker at 127.0.0.1:{port}: ", answer.json()["broker"])
        assert streams.metrics.get("broker-away-ms") > 0

        broker.serve(f"127.0.0.1:{port}")
        until(lambda: client.get(f"{server.url}/ready").json()["ok"])
        assert streams.metrics.get("broker-away-ms") == 0

    lines = [record.getMessage() for record in caplog.records if record.name == "streams.clients.tcp.connection"]
    assert [line.partition(f"broker at 127.0.0.1:{port}: ")[2].partition(", after")[0] for line in lines][1:] == [
        "connected again"
    ]


def test_a_server_ends_on_its_own_and_the_application_goes_on(broker, client):
    with running(broker) as streams:
        with streams.serve("127.0.0.1:0") as server:
            assert client.get(f"{server.url}/live").json()["ok"]
        with pytest.raises(httpx.ConnectError):
            client.get(f"{server.url}/live")
        with streams.serve("[::1]:0") as server:
            assert server.url.startswith("http://[::1]:")
            # The others are told where this instance is, with a rebalance.
            until(lambda: client.get(f"{server.url}/ready").json()["ok"])


@pytest.mark.parametrize("address", ["nowhere", ":80", "127.0.0.1:x", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_refused(broker, address):
    with pytest.raises(ConfigError, match="is not host:port"):
        app(broker).serve(address)


def test_an_address_that_is_taken_is_refused(broker):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(ConfigError, match=r"cannot listen at 127.0.0.1:.*in use"):
            app(broker).serve(f"127.0.0.1:{taken.getsockname()[1]}")


def test_other_machines_are_served_only_with_a_token(broker):
    with pytest.raises(ConfigError, match="other machines: give a token"):
        app(broker).serve("0.0.0.0:0")


def test_a_key_is_answered_with_its_value_and_what_is_not_there_is_named(broker, client):
    with running(broker) as streams, streams.serve("127.0.0.1:0") as server:
        send(broker, words, [("ann", "x"), ("ann", "y"), ("a/b ü", "z")])
        until(lambda: client.get(f"{server.url}/stores/kept/keys/a%2Fb%20%C3%BC").status_code == 200)
        until(lambda: client.get(f"{server.url}/stores/kept/keys/ann").json().get("value") == 2)

        found = client.get(f"{server.url}/stores/kept/keys/ann").json()
        assert (found["store"], found["key"], found["value"], found["timestamp"]) == ("kept", "ann", 2, 1)
        for path, reason in {
            "/stores/kept/keys/nobody": "NO_SUCH_KEY",
            "/stores/nope/keys/ann": "NO_SUCH_STORE",
            "/stores/kept/keys/a/b": "NO_SUCH_PATH",
            "/stores/kept/nothing": "NO_SUCH_PATH",
            "/nothing": "NO_SUCH_PATH",
        }.items():
            missing = client.get(server.url + path)
            assert (missing.status_code, missing.json()["error"]) == (404, reason)
        assert client.get(f"{server.url}/stores").json()["stores"]


def test_a_failed_application_is_not_live(broker, client):
    def failing(builder):
        builder.stream(words).map_values(lambda value: int(value)).group_by_key().count("kept")

    streams = Streams(failing, application_id="app", broker=broker, **FAST)
    server = streams.serve("127.0.0.1:0")
    streams.start()
    send(broker, words, [("a", "no number")])

    until(lambda: client.get(f"{server.url}/live").status_code == 503)
    found = client.get(f"{server.url}/live").json()
    assert found["failure"] == "ProcessingError"
    assert "no number" not in str(found)
    with pytest.raises(Exception, match=r"MAPVALUES"):
        streams.close()


def test_the_application_can_be_mounted_in_another_one(broker):
    with running(broker) as streams:
        send(broker, words, [("a/b", "x")])
        until(lambda: streams.store("kept").get("a/b"))
        outer = Starlette(routes=[Mount("/shop", app_of(streams, token="s3cret"))])

        async def ask():
            transport = httpx.ASGITransport(outer)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop.example/shop") as client:
                assert (await client.get("/ready")).json()["ok"]
                assert (await client.get("/stores/kept/keys/a%2Fb")).json()["value"] == 1
                assert [entry["key"] for entry in (await client.get("/stores/kept/range")).json()["entries"]] == ["a/b"]
                assert (await client.get("/nothing")).json()["error"] == "NO_SUCH_PATH"
                assert (await client.post("/anything")).status_code == 401

        asyncio.run(ask())


# --- the switch interval ----------------------------------------------------------------------


@pytest.fixture
def usual_s() -> Iterator[float]:
    interval_s = sys.getswitchinterval()
    yield interval_s
    sys.setswitchinterval(interval_s)


def test_the_interpreter_switches_quickly_while_a_server_runs(broker, usual_s):
    streams = app(broker)
    first, second = streams.serve(), streams.serve()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    for _ in range(2):
        first.close()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    second.close()
    assert sys.getswitchinterval() == pytest.approx(usual_s)


def test_a_shorter_interval_of_the_program_is_left_alone(broker, usual_s):
    own_s = 0.000_1
    sys.setswitchinterval(own_s)
    with app(broker).serve():
        assert sys.getswitchinterval() == pytest.approx(own_s, abs=0.000_005)
    assert sys.getswitchinterval() == pytest.approx(own_s, abs=0.000_005)


def test_an_interval_that_the_program_sets_while_a_server_runs_stays(broker, usual_s):
    with app(broker).serve():
        sys.setswitchinterval(2 * usual_s)
    assert sys.getswitchinterval() == pytest.approx(2 * usual_s)


def test_a_server_that_cannot_be_published_is_stopped(broker, usual_s, monkeypatch):
    streams = app(broker)
    (port,) = free_ports(1)

    def fail(_instance: Instance, endpoint: str) -> None:
        raise RuntimeError(f"{endpoint} is not published")

    monkeypatch.setattr(Instance, "publish", fail)
    with pytest.raises(RuntimeError, match=f"127.0.0.1:{port} is not published"):
        streams.serve(f"127.0.0.1:{port}")
    assert sys.getswitchinterval() == pytest.approx(usual_s)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


# --- forms of HTTP ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """The address of an application that has counted."""
    with EmbeddedBroker() as broker, running(broker) as streams, streams.serve() as server:
        send(broker, words, [("a", "1"), ("b", "1"), ("b", "2")])
        until(lambda: (streams.store("kept").get("a"), streams.store("kept").get("b")) == ((1, 0), (2, 2)))
        parts = urlsplit(server.url)
        assert parts.hostname is not None
        assert parts.port is not None
        yield parts.hostname, parts.port


@contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=WATCHDOG_S) as raw:
        yield raw


def responses(raw: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Read so many responses from a connection: status and body."""
    answers: list[tuple[int, bytes]] = []
    with raw.makefile("rb") as stream:
        for _ in range(count):
            status = int(stream.readline().split()[1])
            length = 0
            while (line := stream.readline()) != b"\r\n":
                name, _, value = line.lower().partition(b":")
                length = int(value) if name == b"content-length" else length
            answers.append((status, stream.read(length)))
    return answers


def test_requests_of_all_kinds_on_one_connection_are_answered_in_their_order(address):
    with connected(address) as raw:
        raw.sendall(KEY % b"a" + KEY % b"none" + KEY % b"b" + LIVE + KEY % b"a")
        answers = responses(raw, 5)
    assert [status for status, _ in answers] == [200, 404, 200, 200, 200]
    assert b'"value":1' in answers[0][1]
    assert b'"value":2' in answers[2][1]
    assert b'"ok":true' in answers[3][1]
    assert answers[4] == answers[0]


def test_a_request_that_arrives_in_pieces_is_answered(address):
    with connected(address) as raw:
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
def test_a_query_in_any_form_of_http_is_answered(address, request_):
    with connected(address) as raw:
        raw.sendall(request_)
        ((status, body),) = responses(raw, 1)
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
def test_a_request_that_is_not_allowed_is_refused(address, request_, status):
    with connected(address) as raw:
        raw.sendall(request_)
        assert int(raw.recv(1_000).split()[1]) == status


def test_a_server_that_closes_closes_idle_connections_and_the_address_is_free(broker):
    with app(broker) as streams:
        server = streams.serve()
        netloc = urlsplit(server.url).netloc
        with socket.create_connection(netloc.split(":"), timeout=WATCHDOG_S) as idle:
            idle.sendall(LIVE)
            assert responses(idle, 1)[0][0] == 200
            server.close()
            assert idle.recv(100) == b""
        streams.serve(netloc).close()
