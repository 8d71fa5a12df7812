"""The sink that posts to an HTTP server: requests and their keys, retries, and answers that end the worker."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from attrs import define, field, frozen

from streams.broker import EmbeddedBroker
from streams.clients import Producer
from streams.connect import ConnectError, HttpSink, SinkBlock, SinkWorker
from streams.core.errors import ConfigError
from streams.core.topic import Topic
from tests.waiting import until


@frozen
class Order:
    id: int
    note: str | None = None


ORDERS = Topic("orders", key=str, value=Order)


@define
class Receiver:
    """An HTTP server that keeps requests; the first answers are those of ``answers``, then 204."""

    port: int = 0
    answers: list[int] = field(factory=list)
    #: Key and body of each request that was accepted.
    requests: list[tuple[str, bytes]] = field(factory=list)
    headers: list[dict[str, str]] = field(factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/orders?token=secret"

    def records(self) -> list[tuple[int, int]]:
        """Partition and offset of each record that was accepted."""
        found = [json.loads(body) for _, body in self.requests]
        return [(one["partition"], record["offset"]) for one in found for record in one["records"]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = kept.answers.pop(0) if kept.answers else 204
            kept.headers.append(dict(self.headers))
            if status == 204:
                kept.requests.append((self.headers["Idempotency-Key"], body))
            self.send_response(status)
            text = b"" if status == 204 else b"not now"
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()


def sent(sink, records, **options):
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", 1)
        with Producer(broker) as producer:
            for key, value, headers in records:
                producer.send(ORDERS, value, key=key, timestamp_ms=5, headers=headers)
        with SinkWorker(broker, ORDERS, sink, name="to-http", batch_ms=5, retry_backoff_ms=1, **options) as worker:
            until(lambda: worker.progress.lag == 0 or not worker.is_running, seen=lambda: worker.progress)
        return worker.progress


def test_requests_are_json_with_a_key_of_their_own(receiver):
    records = [("a", Order(1, 'x "y"'), ()), (None, None, [("h\n", b"\xff")]), ("b", Order(2), ())]
    sent(HttpSink(receiver.url, batch_records=2, headers={"Authorization": "Bearer x"}), records)

    (first, one), (second, two) = receiver.requests
    assert (first, second) == ("to-http/orders/0/0-1", "to-http/orders/0/2-2")
    assert json.loads(one) == {
        "topic": "orders",
        "partition": 0,
        "records": [
            {"offset": 0, "timestamp": 5, "key": "a", "value": {"id": 1, "note": 'x "y"'}},
            {"offset": 1, "timestamp": 5, "key": None, "value": None, "headers": [["h\n", {"$hex": "ff"}]]},
        ],
    }
    assert [record["offset"] for record in json.loads(two)["records"]] == [2]
    assert receiver.headers[0]["Authorization"] == "Bearer x"
    assert receiver.headers[0]["Content-Type"] == "application/json"


def test_answers_that_pass_are_retried_with_the_same_keys(receiver):
    receiver.answers = [503, 429, 204, 500]
    progress = sent(HttpSink(receiver.url, batch_records=10), [("a", Order(number), ()) for number in range(25)])

    # After an error the worker begins where it has committed: the first request is there twice.
    keys = [key.rpartition("/")[2] for key, _ in receiver.requests]
    assert keys == ["0-9", "0-9", "10-19", "20-24"]
    assert progress.retries == 3
    assert progress.last_error.startswith("HttpUnavailableError: HttpSink(url='http://127.0.0.1:")
    assert "secret" not in progress.last_error
    assert set(receiver.records()) == {(0, offset) for offset in range(25)}


def test_other_answers_end_the_worker_with_the_words_of_the_server(receiver):
    receiver.answers = [400]
    with pytest.raises(ConnectError, match=r"the server answers 400 to orders/0/0-0: not now"):
        sent(HttpSink(receiver.url), [("a", Order(1), ())])


def test_a_server_that_is_away_is_tried_again():
    with pytest.raises(ConnectError, match="retry_timeout_ms=20 without success: ConnectError"):
        sent(HttpSink("http://127.0.0.1:1/orders"), [("a", Order(1), ())], retry_timeout_ms=20)


def test_a_body_of_ones_own_and_what_is_refused(receiver):
    def lines(block: SinkBlock[str, Order]) -> bytes:
        return b"".join(b"%d\n" % order.id for order in block.values if order is not None)

    sent(HttpSink(receiver.url, encode=lines, content_type="text/csv"), [("a", Order(1), ()), ("b", Order(2), ())])

    assert [body for _, body in receiver.requests] == [b"1\n2\n"]
    assert receiver.headers[0]["Content-Type"] == "text/csv"
    with pytest.raises(ConfigError, match="the URL begins with http://"):
        HttpSink("ftp://x")
    with pytest.raises(ConfigError, match="are at least 1"):
        HttpSink("http://x", batch_records=0)
