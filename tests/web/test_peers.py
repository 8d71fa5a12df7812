"""The client for requests to other instances: what it sends, and what is no answer of an instance."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from threading import Thread

import pytest

from streams.web import peers
from streams.web.peers import PeerError, Peers
from tests.ports import free_ports

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


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
            with suppress(OSError):
                connection, _ = self.listening.accept()
                with connection:
                    for response in responses:
                        self.requests.append(request_from(connection))
                        connection.sendall(response)
                    self.requests.append(request_from(connection))

    def close(self) -> None:
        """End the wait for connections that have not come, and for the end of the others."""
        self.listening.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listening.close()


def request_from(connection: socket.socket) -> bytes:
    """Read a request with the body "?", or what comes before the end of the connection."""
    request = b""
    while not request.endswith(b"\r\n\r\n?") and (data := connection.recv(10_000)):
        request += data
    return request


@pytest.fixture
def listener_of() -> Iterator[Callable[..., Listener]]:
    with ExitStack() as stack:

        def listen(*connections: tuple[bytes, ...]) -> Listener:
            listener = Listener(*connections)
            stack.callback(listener.close)
            return listener

        yield listen


def asked(endpoint: str, times: int = 1, token: str | None = None, timeout_s: float | None = None) -> tuple[int, bytes]:
    """Ask an instance, and return the last answer."""

    async def ask() -> tuple[int, bytes]:
        client = Peers(token)
        try:
            for _ in range(times):
                answer = await client.send("POST", endpoint, "/query?a=b%2Fc", b"?", timeout_s)
            return answer
        finally:
            await client.close()

    return asyncio.run(ask())


def test_a_request_names_the_path_and_the_token_and_its_answer_is_status_and_body(listener_of):
    listener = listener_of((OK,))
    assert asked(listener.endpoint, token="s3cret") == (200, b"ok")
    assert listener.requests[0].startswith(b"POST /query?a=b%2Fc HTTP/1.1\r\n")
    assert b"\r\nauthorization: bearer s3cret\r\n" in listener.requests[0].lower()


def test_any_status_is_an_answer_and_a_redirect_is_not_followed(listener_of):
    moved = b"HTTP/1.1 302 Found\r\nlocation: http://nowhere.example/\r\ncontent-length: 3\r\n\r\nwho"
    assert asked(listener_of((moved,)).endpoint) == (302, b"who")


def test_a_connection_is_kept(listener_of):
    listener = listener_of((OK, OK, OK))
    assert asked(listener.endpoint, times=3) == (200, b"ok")
    # The other end may see the end of the connection later.
    listener.thread.join()
    assert [bool(request) for request in listener.requests] == [True, True, True, False]


def test_a_request_is_repeated_if_the_other_side_has_closed_the_connection(listener_of):
    listener = listener_of((OK,), (OK, OK))
    assert asked(listener.endpoint, times=3) == (200, b"ok")


def test_a_request_is_not_repeated_if_its_connection_was_new(listener_of):
    listener = listener_of((), (OK,))
    with pytest.raises(PeerError, match="cannot be asked: Server disconnected"):
        asked(listener.endpoint)
    assert len(listener.requests) == 1


def test_a_client_that_is_closed_sends_nothing(listener_of):
    async def ask() -> None:
        client = Peers()
        await client.close()
        await client.send("GET", "127.0.0.1:1", "/status")

    with pytest.raises(PeerError, match=r"the instance at 127.0.0.1:1 cannot be asked: the client is closed"):
        asyncio.run(ask())


@pytest.mark.parametrize(
    ("connections", "message"),
    [
        (((b"220 mail.example ESMTP\r\n\r\n",),), "cannot be asked: illegal status line"),
        (((b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000,),), "cannot be asked: .*too (long|large|big)"),
        (((b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nof 11 bytes",),), "its answer has more than 10 bytes"),
    ],
)
def test_what_is_no_answer_of_an_instance_is_an_error(listener_of, monkeypatch, connections, message):
    monkeypatch.setattr(peers, "MAX_ANSWER_BYTES", 10)
    listener = listener_of(*connections)
    with pytest.raises(PeerError, match=f"the instance at {listener.endpoint} .*{message}"):
        asked(listener.endpoint)


def test_an_answer_that_does_not_come_in_time_is_an_error(listener_of):
    with pytest.raises(PeerError, match="has not answered in time"):
        asked(listener_of((b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no",)).endpoint, timeout_s=0.1)


def test_an_address_at_which_nobody_can_be_asked_is_an_error():
    for endpoint in (f"127.0.0.1:{free_ports(1)[0]}", "nowhere", "127.0.0.1:99999", "a b:80"):
        with pytest.raises(PeerError, match=f"the instance at {endpoint} cannot be asked: "):
            asked(endpoint)


def test_a_proxy_of_the_environment_is_not_used(listener_of, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_ports(1)[0]}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert asked(listener_of((OK,)).endpoint) == (200, b"ok")
