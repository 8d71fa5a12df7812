"""A query by key of another instance's store: the HTTP process sends it there and passes the response on."""

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Thread

import pytest

from streams import State, Streams, StreamsBuilder, Topic
from tests.ports import free_ports
from tests.web.conftest import FAST, processed, send, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the application asks other instances")

PARTITIONS = 4
prices = Topic("prices", key=str, value=str, partitions=PARTITIONS)
KEYS = [f"k{number:02}" for number in range(20)]
OK = b"HTTP/1.1 200 OK\r\nstreams-forwarded: app\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok"


def topology(builder: StreamsBuilder) -> None:
    builder.table(prices, store="prices")


class Pair:
    """Two instances, of which the first is asked; ``key`` is in a task of the second."""

    def __init__(self, broker, client, endpoint=None, token=None):
        settings = {} if endpoint is None else {"application_server": endpoint}
        self.client = client
        self.one = Streams(topology, application_id="app", broker=broker, **FAST)
        self.two = Streams(topology, application_id="app", broker=broker, **FAST | settings)
        self.server = self.one.serve(token=token)
        self.other = self.two.serve(token=token) if endpoint is None else None

    def __enter__(self):
        self.one.start()
        self.two.start()
        until(lambda: self.one.state is self.two.state is State.RUNNING and self.one.tasks() and self.two.tasks())
        self.key = next(key for key in KEYS if self.two.owner_of("prices", key).active.is_local)
        until(lambda: not self.one.owner_of("prices", self.key).active.is_local)
        return self

    def __exit__(self, *ended):
        self.one.close()
        self.two.close()

    def get(self, key=None, **headers):
        return self.client.get(f"{self.server.url}/stores/prices/keys/{key or self.key}", headers=headers)


class Listener:
    """What listens at the address of an instance.

    It accepts so many connections, one after the other, each with its responses: after these it reads one more request,
    and closes the connection without a response.
    """

    def __init__(self, *connections: tuple[bytes, ...]) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.requests: list[bytes] = []
        self.thread = Thread(target=self.run, args=(connections,))
        self.thread.start()

    def run(self, connections: tuple[tuple[bytes, ...], ...]) -> None:
        for responses in connections:
            connection, _ = self.listening.accept()
            with connection:
                for response in responses:
                    self.requests.append(request_from(connection))
                    connection.sendall(response)
                self.requests.append(request_from(connection))

    def close(self) -> None:
        self.thread.join()
        self.listening.close()


def request_from(connection: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\r\n\r\n") and (data := connection.recv(10_000)):
        found += data
    return found


def test_response_of_the_owner_is_that_of_any_instance(broker, client):
    with Pair(broker, client) as pair:
        send(broker, prices, [(pair.key, "x" * (3 << 18)), ("k ä/?", "5")])
        until(lambda: processed(pair.one, pair.two) == 2)

        relayed = pair.get()
        own = client.get(f"{pair.other.url}/stores/prices/keys/{pair.key}")

        assert (relayed.status_code, relayed.text) == (own.status_code, own.text)
        assert len(relayed.json()["value"]) == 3 << 18
        assert dict(relayed.headers) | {"date": ""} == dict(own.headers) | {"date": ""}
        for server in (pair.server, pair.other):
            found = client.get(f"{server.url}/stores/prices/keys/k%20%C3%A4%2F%3F", params={"key_format": "text"})
            assert found.json()["value"] == "5"
        others = [key for key in KEYS if pair.two.owner_of("prices", key).active.is_local and key != pair.key]
        assert pair.get(others[0]).json()["error"] == "NO_SUCH_KEY"


def test_forwarded_query_is_answered_by_its_receiver_alone(broker, client):
    with Pair(broker, client) as pair:
        found = pair.get(**{"streams-forwarded": "app"})
        assert (found.status_code, found.json()["error"]) == (503, "NOT_PRESENT")
        assert "the task is not on this instance" in found.json()["message"]

        found = pair.get(**{"streams-forwarded": "another"})
        assert (found.status_code, found.json()["error"]) == (421, "OTHER_APPLICATION")


@pytest.fixture
def pair_with(broker, client) -> Iterator[Callable[..., tuple[Pair, Listener]]]:
    """Make a pair whose second instance is at the address of a listener with these connections."""
    with ExitStack() as stack:

        def make(*connections: tuple[bytes, ...], token: str | None = None) -> tuple[Pair, Listener]:
            listener = Listener(*connections)
            stack.callback(listener.close)
            return stack.enter_context(Pair(broker, client, listener.endpoint, token)), listener

        yield make


def test_token_of_the_instances_is_sent(pair_with):
    pair, listener = pair_with((OK,), token="s3cret")
    assert pair.get().text == "ok"
    assert b"\r\nauthorization: Bearer s3cret\r\n" in listener.requests[0]


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        ((), "cannot be asked: it has closed the connection"),
        ((b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nwho",), "has refused with status 404: who"),
        ((b"220 mail.example ESMTP\r\n\r\n",), "has answered what is no response of this version of streams"),
        ((b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",), "has answered what is no response"),
        ((b"x" * 40_000,), "has answered with more headers than expected"),
    ],
)
def test_what_is_no_instance_of_the_application_is_no_answer(pair_with, responses, message):
    pair, listener = pair_with(responses)
    found = pair.get()
    assert (found.status_code, found.json()["error"]) == (503, "NOT_PRESENT")
    assert f"store 'prices': the instance at {listener.endpoint} {message}" in found.json()["message"]
    assert found.headers["retry-after"]


def test_nobody_at_the_address_is_told(broker, client):
    (port,) = free_ports(1)
    endpoint = f"127.0.0.1:{port}"
    with Pair(broker, client, endpoint) as pair:
        found = pair.get()
        assert (found.status_code, found.json()["error"]) == (503, "NOT_PRESENT")
        assert f"the instance at {endpoint} cannot be asked: Connection refused" in found.json()["message"]


def test_query_is_repeated_if_the_other_side_has_closed_its_idle_connection(pair_with):
    pair, listener = pair_with((OK,), (OK, OK))
    for _ in range(3):
        assert pair.get().text == "ok"
    assert listener.requests[0].startswith(b"GET /stores/prices/keys/%b HTTP/1.1\r\n" % pair.key.encode())
    assert b"\r\nstreams-forwarded: app\r\n" in listener.requests[0]
