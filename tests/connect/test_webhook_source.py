"""The source that receives requests: answers, who may send, limits, ids that are remembered, and kills."""

import gzip
import hashlib
import hmac
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPResponse
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from attrs import frozen

from streams.broker import EmbeddedBroker
from streams.clients import Consumer
from streams.connect import SourceWorker, WebhookSource
from streams.connect.http.recent_ids import RecentIds
from streams.core.blocks.records import TopicPartition
from streams.core.errors import ConfigError
from streams.core.http import http_server
from streams.core.http.address import Address
from streams.core.topic import Topic
from tests.connect.dying_sources import TOPIC, template, worker
from tests.ports import free_ports
from tests.waiting import WATCHDOG_MS, WATCHDOG_S, until


@frozen
class Order:
    id: int
    customer: str
    at: int = 0


ORDERS = Topic("orders", key=int, value=Order, timestamp=lambda order: order.at)


@pytest.fixture
def broker():
    with EmbeddedBroker(auto_create_topics=False) as made:
        made.create_topic("orders", 1)
        yield made


def records(broker: Any, topic: Topic[Any, Any] = ORDERS) -> list[Any]:
    with Consumer(broker, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        partition = TopicPartition(topic.name, 0)
        consumer.assign([partition], [topic])
        consumer.seek_to_beginning([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[Any] = []
        while (consumer.known_position(partition) or 0) < end:
            found += consumer.poll(100)
        return found


class Running:
    """A worker with its source, and requests to it."""

    def __init__(self, broker: EmbeddedBroker, topic: Topic[Any, Any] = ORDERS, **options: Any) -> None:
        self.source = WebhookSource(
            **({"listen": "127.0.0.1:0", "key": "id", "answer_timeout_ms": WATCHDOG_MS} | options)
        )
        self.worker = SourceWorker(broker, topic, self.source, name="hooks", poll_ms=20, retry_backoff_ms=1)
        self.client = httpx.Client(timeout=None, limits=httpx.Limits(keepalive_expiry=None))

    def __enter__(self) -> "Running":
        self.worker.start()
        until(lambda: not self.source.url.partition("/")[2].startswith("/127.0.0.1:0") or not self.worker.is_running)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.worker.close()

    def post(self, body: Any, headers: dict[str, str] | None = None, **options: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(self.source.url, content=content, headers=headers, **options)


def connected(running: Running) -> socket.socket:
    parts = urlsplit(running.source.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=WATCHDOG_S)


@pytest.mark.slow
def test_a_request_is_answered_when_its_record_is_in_the_topic(broker):
    with Running(broker, path="/orders", headers=["X-Kind", "X-Other"]) as running:
        answer = running.post({"customer": "ann", "id": 7, "at": 5, "more": 1}, {"X-Kind": "new"})

        (found,) = records(broker)
        assert (answer.status_code, answer.json()) == (200, {"status": "written"})
        assert (found.key, found.value, found.timestamp_ms) == (7, Order(7, "ann", 5), 5)
        assert list(found.headers) == [("X-Kind", b"new")]
        other = running.client.get(running.source.url), running.client.post(running.source.url + "/x")
        assert [one.status_code for one in other] == [405, 404]


def test_headers_and_keys_of_requests_are_their_bytes(broker):
    """Doubled ones too, in their order; they were text of Latin-1, of which the last ones were lost."""
    sent = [("X-B", b"\xff"), ("X-A", b"1"), ("X-B", b""), ("X-A", "\u00fc".encode()), ("X-Key", b"7")]
    with Running(broker, path="/orders", headers=["X-A", "X-B"], key="", key_header="X-Key") as running:
        answer = running.client.post(running.source.url, json={"id": 7, "customer": "ann"}, headers=sent)
        wrong = running.client.post(running.source.url, json={"id": 7, "customer": "ann"}, headers=[("X-Key", b"\xff")])

        (found,) = records(broker)
        assert (answer.status_code, found.key, list(found.headers)) == (200, 7, sent[:-1])
        assert (wrong.status_code, "X-Key, which has the key: 'utf-8' codec" in wrong.text) == (422, True)


def test_a_request_with_an_id_is_written_once_also_by_another_worker(broker):
    repeated = {"Idempotency-Key": "a"}
    with Running(broker) as running:
        first = running.post({"id": 1, "customer": "ann"}, repeated)
        again = running.post({"id": 1, "customer": "ann"}, repeated)
    with Running(broker) as running:
        later = running.post({"id": 1, "customer": "ann"}, repeated)
        other = running.post({"id": 2, "customer": "bob"}, {"Idempotency-Key": "b"})

    assert [one.json()["status"] for one in (first, again, later, other)] == [
        "written",
        "repeated",
        "repeated",
        "written",
    ]
    assert [record.key for record in records(broker)] == [1, 2]


def answers_on(raw: socket.socket) -> Any:
    """Read one answer from a connection."""
    answer = HTTPResponse(raw)
    answer.begin()
    answer.read()
    return answer


@pytest.mark.slow
def test_a_repeated_request_leaves_its_connection_open_however_late_its_body_comes(broker):
    """A connection that is closed without notice takes the sender's next request with it."""
    body = b'{"id": 1, "customer": "ann"}'
    head = f"POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: a\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with Running(broker) as running, connected(running) as raw, connected(running) as other:
        raw.sendall(head + body)
        assert answers_on(raw).status == 200
        raw.sendall(head)
        # The server has seen the first half when it has answered a request that was sent after it.
        other.sendall(head + body)
        assert answers_on(other).status == 200
        raw.sendall(body)
        repeated = answers_on(raw)
        raw.sendall(head + body)

        assert (repeated.status, repeated.will_close, answers_on(raw).status) == (200, False, 200)


@pytest.mark.slow
@pytest.mark.parametrize("framing", ["content-length: 10", "transfer-encoding: chunked"])
@pytest.mark.parametrize(
    ("target", "status"), [("POST /", 401), ("POST /other", 404), ("PUT /", 405)], ids=["token", "path", "method"]
)
def test_an_answer_before_the_body_says_that_the_connection_is_closed(broker, target, framing, status):
    with Running(broker, token="t0ken") as running, connected(running) as raw:
        raw.sendall(f"{target} HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n".encode())
        answer = answers_on(raw)

        assert (answer.status, answer.will_close, raw.recv(1)) == (status, True, b"")


@pytest.mark.slow
def test_a_refused_request_whose_body_was_read_leaves_its_connection_open(broker):
    with Running(broker) as running, connected(running) as raw:
        raw.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n{")
        refused = answers_on(raw)
        raw.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")

        assert (refused.status, refused.will_close, answers_on(raw).status) == (422, False, 405)


@pytest.mark.slow
def test_requests_with_one_id_at_the_same_time_are_one(broker):
    with Running(broker) as running, ThreadPoolExecutor(8) as pool:
        posts = [
            pool.submit(running.post, {"id": number % 4, "customer": "ann"}, {"Idempotency-Key": str(number % 4)})
            for number in range(16)
        ]
        assert {post.result().status_code for post in posts} == {200}

    assert sorted(record.key for record in records(broker)) == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_list_of_items_is_written_as_a_whole(broker):
    with Running(broker, items="data.orders") as running:
        answer = running.post({"data": {"orders": [{"id": 1, "customer": "a"}, {"id": 2, "customer": "b"}]}})
        refused = running.post({"data": {"orders": [{"id": 3, "customer": "a"}, {"id": 4}]}})

    assert answer.status_code == 200
    assert (refused.status_code, refused.json()["error"][:8]) == (422, "item 1: ")
    assert [record.key for record in records(broker)] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "the body: is not JSON"),
        (b"[1]", "the document is no JSON object, so that it has no field 'id'"),
        (b'{"customer": "ann"}', "the body: has no field 'id', which has the key"),
        (b'{"id": "x", "customer": "ann"}', "field 'id' does not fit the keys of topic 'orders'"),
        (b'{"id": 1}', "does not fit the values of topic 'orders': "),
        (
            b'{"id": 1, "customer": "ann", "at": 99999999999999999999}',
            "timestamp= of topic 'orders' fails: OverflowError",
        ),
    ],
)
def test_a_body_that_does_not_fit_is_refused_with_the_field(broker, body, reason):
    with Running(broker) as running:
        answer = running.post(body)
        assert (answer.status_code, running.post({"id": 1, "customer": "ann"}).status_code) == (422, 200)

    assert reason in answer.json()["error"]


def test_only_senders_with_the_token_and_the_signature_may_send(broker):
    body = b'{"id": 1, "customer": "ann"}'
    good = "sha256=" + hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    bearer = {"Authorization": "Bearer t0ken"}
    with Running(broker, token="t0ken", secret="s3cret") as running:
        answers = [
            running.post(body, headers).status_code
            for headers in (
                {},
                {"Authorization": "Bearer other", "X-Hub-Signature-256": good},
                {"X-Hub-Signature-256": good},
                bearer,
                {**bearer, "X-Hub-Signature-256": good.swapcase()},
                {**bearer, "X-Hub-Signature-256": good[:-1] + "0" if good[-1] != "0" else good[:-1] + "1"},
                {**bearer, "X-Hub-Signature-256": good},
            )
        ]
    with Running(broker) as running:
        page = running.post(body, {"Origin": "https://elsewhere.example"})
        packed = running.post(gzip.compress(body), {"Content-Encoding": "gzip"})

    assert answers == [401, 401, 401, 401, 401, 401, 200]
    assert page.status_code == 403
    assert packed.status_code == 415
    assert packed.json()["error"].startswith("send this body without Content-Encoding gzip")


@pytest.mark.slow
def test_bodies_and_requests_that_wait_are_bounded(broker):
    """The worker is not started, so that nothing is written: the third request finds no room."""
    source = WebhookSource("127.0.0.1:0", key="id", max_bytes=100, max_waiting=2, answer_timeout_ms=WATCHDOG_MS)
    source.open("hooks", ORDERS, {})
    with ThreadPoolExecutor(2) as pool:
        large = httpx.post(source.url, content=b"x" * 101, timeout=None)
        streamed = httpx.post(source.url, content=iter([b"x" * 60, b"x" * 60]), timeout=None)
        posts = [pool.submit(httpx.post, source.url, json={"id": 1, "customer": "a"}, timeout=None) for _ in range(2)]
        until(lambda: source._posts.qsize() == 2)
        third = httpx.post(source.url, json={"id": 1, "customer": "a"}, timeout=None)
        source.close()
        ended = [post.result() for post in posts]

    assert (large.status_code, streamed.status_code) == (413, 413)
    assert [(one.status_code, one.headers["Retry-After"]) for one in (third, *ended)] == [(503, "1")] * 3


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nHost: a\r\nX-Sl"], ids=["nothing", "half of the headers"])
def test_a_connection_without_a_request_is_closed(broker, monkeypatch, sent):
    monkeypatch.setattr(http_server, "IDLE_S", 0.05)
    with Running(broker) as running, connected(running) as silent:
        silent.sendall(sent)
        assert silent.recv(100) == b""


@pytest.mark.slow
def test_the_body_of_an_answer_does_not_wait_for_the_acknowledgement_of_its_headers():
    """Headers and body are two packets; Nagle's algorithm would hold the second one back for 40 ms."""
    with http_server._listening(Address("127.0.0.1", 0)) as listening:
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.slow
def test_connections_beyond_the_limit_are_refused_and_the_others_go_on(broker, monkeypatch):
    """As many as may wait to be written, and some without a request."""
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 2)
    # Neither side closes a connection, however long the others take.
    monkeypatch.setattr(http_server, "IDLE_S", 3_600)
    with Running(broker, max_waiting=3) as running, ExitStack() as stack:
        assert running.post({"id": 1, "customer": "ann"}).status_code == 200
        held = [stack.enter_context(connected(running)) for _ in range(8)]

        # The client of ``running`` has one of the five.
        assert [raw.recv(100)[:12] for raw in held[4:]] == [b"HTTP/1.1 503"] * 4
        assert running.post({"id": 2, "customer": "ann"}).status_code == 200


@pytest.mark.slow
def test_a_request_that_waits_for_too_long_may_be_written_later(broker):
    source = WebhookSource("127.0.0.1:0", key="id", answer_timeout_ms=20)
    source.open("hooks", ORDERS, {})
    body, repeated = {"id": 1, "customer": "a"}, {"Idempotency-Key": "a"}
    # A body that comes too late is answered with 408 here.
    until(lambda: httpx.post(source.url, json=body, headers=repeated, timeout=None).status_code == 503)
    (block,) = source.poll(0)
    source.committed({block.partition: block.position})
    again = httpx.post(source.url, json=body, headers=repeated, timeout=None)
    source.close()

    assert (again.status_code, again.json()["status"]) == (200, "repeated")


@pytest.mark.slow
def test_ids_are_forgotten_by_age_and_number():
    ids = RecentIds(remember_ms=100, limit=5)
    assert ids.load({"b": {"at_ms": 20, "ids": ["3"]}, "a": {"at_ms": 10, "ids": ["1", "2"]}}) == ["1", "2", "3"]

    assert ids.outdated(109, 0) == []
    assert ids.outdated(110, 0) == ["a"]
    assert ids.outdated(50, 3) == ["a"]
    assert ids.outdated(50, 5) == ["a", "b"]
    name, position = ids.entry(["4"], 50)
    assert ids.committed({"a": None, name: position}) == ["1", "2"]
    assert ids.outdated(150, 0) == ["b", name]


@pytest.mark.slow
def test_arguments_that_cannot_work_are_refused_with_a_remedy(broker):
    def refused(match: str, topic: Topic[Any, Any] = ORDERS, **options: Any) -> None:
        with pytest.raises(ConfigError, match=match):
            SourceWorker(broker, topic, WebhookSource(**({"listen": "127.0.0.1:0"} | options)), name="hooks").run()

    refused("give token= or secret=, or listen on 127.0.0.1", listen="0.0.0.0:0")
    refused("listen: 'x' is not host:port", listen="x")
    refused("path begins with '/'", path="orders")
    refused("give key= or key_header=", key="id", key_header="X-Key")
    refused("max_waiting is at least 1, not 0", max_waiting=0)
    refused("topic 'orders' declares keys: give key= the name of the field")
    refused("key= is given, but topic 'orders' declares no keys", Topic("orders", value=Order), key="id")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused("cannot listen at 127.0.0.1:", listen=f"127.0.0.1:{taken.getsockname()[1]}", key="id")
    other = WebhookSource("127.0.0.1:0", key="id")
    with pytest.raises(ConfigError, match="another kind of source: give the connector another name"):
        other.open("hooks", ORDERS, {"public.orders": {"lsn": "0/0"}})


@pytest.mark.slow
def test_keys_come_from_a_header(broker):
    with Running(broker, key="", key_header="X-Key") as running:
        missing = running.post({"id": 1, "customer": "a"})
        wrong = running.post({"id": 1, "customer": "a"}, {"X-Key": "x"})
        running.post({"id": 1, "customer": "a"}, {"X-Key": "12"})

    assert (missing.status_code, wrong.status_code) == (422, 422)
    assert [record.key for record in records(broker)] == [12]


@pytest.mark.slow
@pytest.mark.parametrize(("has_ids", "kills"), [(True, 20), (False, 5)], ids=["ids", "no-ids"])
def test_rows_are_exact_with_ids_and_there_at_least_once_without_whenever_the_worker_is_killed(has_ids, kills):
    """The sender repeats each request until it is answered with 200."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    settings = {"listen": address, "key": "n", "batch_records": 3}
    sent, is_over = [], Event()

    def send() -> None:
        with httpx.Client() as client:
            while not is_over.is_set():
                number = len(sent)
                headers = {"Idempotency-Key": f"n{number}"} if has_ids else {}
                try:
                    answer = client.post(f"http://{address}", json={"n": number}, headers=headers)
                except httpx.TransportError:
                    Event().wait(0.005)
                else:
                    if answer.status_code == 200:
                        sent.append(number)

    with EmbeddedBroker(auto_create_topics=False) as broker, broker.serve("127.0.0.1:0") as server:
        broker.create_topic("numbers", 1)
        given = {"kind": "webhook", "settings": settings, "bootstrap": server.bootstrap_servers}
        sender = Thread(target=send)
        sender.start()
        try:
            with template() as processes:
                for number in range(kills):
                    processes.kill_one(last=6 + 2 * number, **given)
            before = len(sent)
            with worker(broker, "webhook", settings) as last:
                until(lambda: len(sent) > before + 5, seen=lambda: last.progress)
                is_over.set()
                sender.join()
        finally:
            is_over.set()
            sender.join()
        found = [record.key for record in records(broker, TOPIC)]

    # The last request may have been written and not answered when the worker was closed.
    assert sorted(set(found)) == list(range(max(found) + 1))
    assert max(found) in (len(sent) - 1, len(sent))
    assert not has_ids or len(found) == len(set(found))
