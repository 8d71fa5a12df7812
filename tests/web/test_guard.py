"""Requests that must not reach the application: other origins, no token, broken paths, floods."""

import json
import resource
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import quote_from_bytes, urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import EmbeddedBroker, InvalidStateStoreError, Topic
from streams.core.http import http_server
from tests.waiting import WATCHDOG_S
from tests.web.conftest import processed, running, send, until, words


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


def sent_to(server, data):
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


@pytest.mark.case(4)
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
    head, _, body = sent_to(server, request(f"GET {path}")).partition(b"\r\n\r\n")
    assert head.split()[1] == str(status).encode()
    assert body.startswith(b'{"error":')
    assert b"Traceback" not in body


def test_a_request_that_is_no_http_is_refused(server):
    for data in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET /live\r\n\r\n"):
        assert sent_to(server, data).startswith(b"HTTP/1.1 400")
    # The connection may be reset before the answer is read.
    assert b"200 OK" not in sent_to(server, request("GET /live", "x: " + "a" * 1_000_000))
    twice = sent_to(server, request("GET /live", "origin: a", "origin: b"))
    assert twice.startswith(b"HTTP/1.1 400")


def test_a_large_body_is_refused_before_it_is_read(server, client):
    headers = {"authorization": "Bearer s3cret"}
    declared = sent_to(server, request("POST /anything", "authorization: Bearer s3cret", f"content-length: {1 << 30}"))
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


def resident_mib():
    """Return the resident memory of this process, in which the server runs."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20


@pytest.mark.case
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not show resident memory there")
@pytest.mark.parametrize("path", ["/query", "/why", "/stores/kept/keys/a", "/"])
def test_memory_does_not_grow_with_a_body_of_a_gib(server, client, path):
    """Sent as fast as the server takes it, without regard to its answer, with and without a declared length."""
    parts, mib = urlsplit(server.url), bytes(1 << 20)
    assert client.get(f"{server.url}/live").status_code == 200
    before = resident_mib()
    for framing in ("transfer-encoding: chunked", f"content-length: {1 << 30}"):
        sent_mib, received = 0, b""
        with socket.create_connection((parts.hostname, parts.port)) as raw, suppress(ConnectionError):
            raw.sendall(request(f"POST {path}", "authorization: Bearer s3cret", framing))
            chunk = b"100000\r\n" + mib + b"\r\n" if "chunked" in framing else mib
            for _ in range(1024):
                raw.sendall(chunk)
                sent_mib += 1
                assert resident_mib() < before + 64
            received = raw.recv(100)
        # The connection is closed long before the end; the answer may be lost with it.
        assert sent_mib < 256
        assert received.split()[1:2] in ([], [b"413"], [b"404"], [b"405"])
    assert client.get(f"{server.url}/live").status_code == 200


def asked_for(key, store="bytes", query=""):
    path = f"/stores/{store}/keys/".encode() + key + query.encode()
    return b"GET " + path + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def by_bytes(builder):
    builder.stream("raw", key=bytes, value=bytes).group_by_key().count("bytes")
    builder.stream(words).group_by_key().count("texts")


#: Keys that are more than text somewhere on their way: in paths, JSON, logs and terminals.
ODD_KEYS = [
    *(b"\x00", b"a\x00b", b"\xff\xfe", b"\xed\xa0\x80", b"a/b", b"/", b".", b"..", b"../../etc/passwd", b"%", b"%2e"),
    *(
        b"a?b#c",
        b"a+b c",
        b"\r\nx: y",
        b"\x1b[2J",
        b'"<script>',
        b"\xe2\x80\xae",
        b"a" * 4_000,
        "\u00e4\u6f22".encode(),
    ),
]


def test_keys_of_any_bytes_are_found_by_their_bytes_and_nothing_else_is(broker):
    for topic in ("raw", "words"):
        broker.create_topic(topic, 4)
    with running(broker, by_bytes) as one, running(broker, by_bytes) as other, ExitStack() as stack:
        servers = [stack.enter_context(streams.serve("127.0.0.1:0")) for streams in (one, other)]
        until(lambda: one.tasks() and other.tasks() and all(owner(one, "bytes", key) for key in ODD_KEYS))
        send(broker, Topic("raw", key=bytes, value=bytes), [(key, b"") for key in ODD_KEYS])
        until(lambda: processed(one, other) == len(ODD_KEYS))
        for number, key in enumerate(ODD_KEYS):
            quoted = quote_from_bytes(key, safe="").encode()
            for path in (quoted, key.hex().encode()):
                query = "" if path is quoted else "?key_format=hex"
                head, _, body = sent_to(servers[number % 2], asked_for(path, query=query)).partition(b"\r\n\r\n")
                assert head.split()[1] == b"200", (key, body)
                assert json.loads(body)["value"] == 1
            missing = sent_to(servers[number % 2], asked_for(quoted + b"%00~"))
            assert missing.split()[1] == b"404"
            assert b"NO_SUCH_KEY" in missing


@pytest.fixture(scope="module")
def keyed():
    """A server with stores of bytes and of text keys, which are empty."""
    with EmbeddedBroker() as broker:
        for topic in ("raw", "words"):
            broker.create_topic(topic, 1)
        with running(broker, by_bytes) as streams, streams.serve("127.0.0.1:0") as server:
            yield server


def owner(streams, store, key):
    try:
        return streams.owner_of(store, key).active
    except InvalidStateStoreError:
        return None


def is_text(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(key=st.binary(max_size=300), is_quoted=st.booleans(), store=st.sampled_from(["bytes", "texts"]))
@settings(max_examples=60, deadline=None)
def test_no_path_breaks_the_server_or_shows_its_inside(keyed, key, is_quoted, store):
    if not is_quoted:
        # What ends the request line is left out.
        key = bytes(byte for byte in key if byte not in b" \r\n\t\x00\x0b\x0c")
    path = quote_from_bytes(key, safe="").encode() if is_quoted else key
    received = sent_to(keyed, asked_for(path, store))
    status, body = int(received.split()[1]), received.partition(b"\r\n\r\n")[2]
    assert status in (400, 404)
    assert b"Traceback" not in body
    assert b"streams/" not in body
    if is_quoted and key:
        is_key = store == "bytes" or is_text(key)
        assert json.loads(body)["error"] == ("NO_SUCH_KEY" if is_key else "BAD_KEY")


@pytest.mark.slow
def test_ten_thousand_connections_are_refused_beyond_the_limit_and_the_application_goes_on(broker, monkeypatch):
    """As many as the limit of open files allows, with the server in this process; each is refused or served."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    wanted = min(10_000, files[1] - 2 * http_server.MAX_CONNECTIONS - 500)
    if wanted < 2 * http_server.MAX_CONNECTIONS:
        pytest.skip(f"the limit of open files is {files[1]}")
    # Neither side closes the client's connection, however long the others take.
    monkeypatch.setattr(http_server, "IDLE_S", 3_600)
    with running(broker) as streams, streams.serve("127.0.0.1:0") as server, ExitStack() as stack:
        client = stack.enter_context(httpx.Client(timeout=WATCHDOG_S, limits=httpx.Limits(keepalive_expiry=None)))
        assert client.get(f"{server.url}/live").status_code == 200
        parts = urlsplit(server.url)
        before = resident_mib()
        held = [stack.enter_context(socket.create_connection((parts.hostname, parts.port))) for _ in range(wanted)]
        refused = 0
        for raw in held[http_server.MAX_CONNECTIONS :]:
            with suppress(ConnectionError):
                assert raw.recv(100)[:12] in (b"HTTP/1.1 503", b"")
            refused += 1
        assert refused == wanted - http_server.MAX_CONNECTIONS
        assert resident_mib() < before + 256
        # A connection that was open before is answered, and the application processes records.
        assert client.get(f"{server.url}/live").status_code == 200
        send(broker, words, [("a", "b")])
        until(lambda: client.get(f"{server.url}/stores/kept/keys/a").status_code == 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    print(f"{wanted} connections")


def test_connections_beyond_the_limit_are_closed_and_the_others_go_on(streams, client, monkeypatch):
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 20)
    server = streams.serve("127.0.0.1:0")
    parts = urlsplit(server.url)
    assert client.get(f"{server.url}/live").status_code == 200
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection((parts.hostname, parts.port))) for _ in range(60)]
        refused = [raw for raw in held[20:] if raw.recv(100).startswith(b"HTTP/1.1 503")]
        assert len(refused) == 40
        # A connection that was open before is answered.
        assert client.get(f"{server.url}/live").status_code == 200
    until(lambda: not sent_to(server, request("GET /live")).startswith(b"HTTP/1.1 503"))
