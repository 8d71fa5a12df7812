"""Requests that must not reach the application: other origins, no token, broken paths, floods."""

import socket
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import httpx
import pytest

from streams.web import server as server_module
from tests.web.conftest import running, until


@pytest.fixture
def streams(broker):
    with running(broker) as made:
        yield made


@pytest.fixture
def server(streams):
    with streams.serve("127.0.0.1:0", token="s3cret") as made:
        yield made


def refusal(response):
    return response.status_code, response.json()["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    ],
)
def test_a_page_of_another_site_gets_nothing(server, client, headers):
    assert refusal(client.get(f"{server.url}/live", headers=headers)) == (403, "OTHER_ORIGIN")


def test_the_pages_of_the_server_itself_and_links_to_them_are_answered(server, client):
    own = {"origin": server.url, "sec-fetch-site": "same-origin"}
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    for headers in (own, link, {}):
        found = client.get(f"{server.url}/live", headers=headers)
        assert found.status_code == 200
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in found.headers


def test_a_name_that_was_rebound_to_loopback_is_refused(server, client):
    port = urlsplit(server.url).port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
        assert refusal(client.get(f"{server.url}/live", headers={"host": host})) == (421, "WRONG_HOST")
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}"):
        assert client.get(f"{server.url}/live", headers={"host": host}).status_code == 200


def test_the_host_of_application_server_is_a_name_of_this_server(broker, client):
    with running(broker, application_server="shop-1.internal:80") as streams:
        with streams.serve("127.0.0.1:0") as server:
            found = client.get(f"{server.url}/live", headers={"host": "shop-1.internal"})
            assert found.status_code == 200


def test_what_changes_something_needs_the_token(streams, server, client):
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic s3cret"}):
        found = client.post(f"{server.url}/anything", headers=headers)
        assert refusal(found) == (401, "UNAUTHORIZED")
        assert found.headers["www-authenticate"] == "Bearer"
    allowed = client.post(f"{server.url}/anything", headers={"authorization": "Bearer s3cret"})
    assert refusal(allowed) == (404, "NO_SUCH_PATH")
    with streams.serve("127.0.0.1:0") as without:
        found = client.post(f"{without.url}/anything", headers={"authorization": "Bearer s3cret"})
        assert refusal(found) == (403, "NO_TOKEN")


def test_all_needs_the_token_where_other_machines_reach_the_server(streams, client):
    with streams.serve("0.0.0.0:0", token="s3cret") as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        for path in ("/live", "/stores/kept/keys/a", "/nothing"):
            assert refusal(client.get(url + path)) == (401, "UNAUTHORIZED")
        found = client.get(f"{url}/live", headers={"authorization": "Bearer s3cret"})
        assert found.status_code == 200


def sent(server, data):
    """Send bytes to the server, and return what it answers until it closes or resets the connection."""
    parts = urlsplit(server.url)
    received = b""
    with socket.create_connection((parts.hostname, parts.port)) as raw, suppress(ConnectionError):
        raw.sendall(data)
        while chunk := raw.recv(65_536):
            received += chunk
    return received


def request(line, *headers):
    return "\r\n".join([f"{line} HTTP/1.1", "host: localhost", "connection: close", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/../../etc/passwd", 404),
        ("/stores/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/stores/kept/keys/%00", 404),
        ("/stores/kept/keys/%ff%fe", 400),
        ("/stores/kept/keys/%zz", 404),
        ("/stores//keys/", 404),
        ("/stores/kept/keys/a?key_format=nope", 400),
        ("/stores/kept/keys/xyz?key_format=hex", 400),
        ("/stores/kept/keys/a?key_format=text&key_format=json", 400),
        ("//evil.example/live", 404),
        ("/stores/kept/keys/" + "a" * 20_000, 414),
    ],
)
def test_a_broken_path_is_refused_clearly(server, path, status):
    head, _, body = sent(server, request(f"GET {path}")).partition(b"\r\n\r\n")
    assert head.split()[1] == str(status).encode()
    assert body.startswith(b'{"error":')
    assert b"Traceback" not in body


def test_a_request_that_is_no_http_is_refused(server):
    for data in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET /live\r\n\r\n"):
        assert sent(server, data).startswith(b"HTTP/1.1 400")
    # The connection may be reset before the answer is read.
    assert b"200 OK" not in sent(server, request("GET /live", "x: " + "a" * 1_000_000))
    twice = sent(server, request("GET /live", "origin: a", "origin: b"))
    assert twice.startswith(b"HTTP/1.1 400")


def test_a_large_body_is_refused_before_it_is_read(server, client):
    headers = {"authorization": "Bearer s3cret"}
    declared = sent(server, request("POST /anything", "authorization: Bearer s3cret", f"content-length: {1 << 30}"))
    assert declared.startswith(b"HTTP/1.1 413")
    read = 0

    def endless():
        nonlocal read
        while read < 1 << 30:
            read += 1 << 16
            yield bytes(1 << 16)

    # The server closes the connection while the body is sent; the answer may be lost with it.
    with suppress(httpx.TransportError):
        found = client.post(f"{server.url}/query", headers=headers, content=endless())
        assert found.status_code in (404, 413)
    assert read < 1 << 28
    assert client.get(f"{server.url}/live").status_code == 200


def test_connections_beyond_the_limit_are_closed_and_the_others_go_on(server, client, monkeypatch):
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 20)
    parts = urlsplit(server.url)
    assert client.get(f"{server.url}/live").status_code == 200
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection((parts.hostname, parts.port))) for _ in range(60)]
        refused = [raw for raw in held[20:] if raw.recv(100).startswith(b"HTTP/1.1 503")]
        assert len(refused) == 40
        # A connection that was open before is answered.
        assert client.get(f"{server.url}/live").status_code == 200
    until(lambda: not sent(server, request("GET /live")).startswith(b"HTTP/1.1 503"))
