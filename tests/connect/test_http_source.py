"""The source that polls an HTTP server: versions, cursors, last values, pauses, and kills."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from attrs import define, field, frozen

from streams.broker import EmbeddedBroker
from streams.connect import ConnectError, HttpSource, SourceWorker
from streams.core.errors import ConfigError
from streams.core.topic import Topic
from tests.connect.dying_sources import TOPIC, template, worker
from tests.connect.test_webhook_source import records
from tests.waiting import until


@frozen
class Order:
    id: int
    customer: str = ""


ORDERS = Topic("orders", key=int, value=Order)

#: From the path with its query and the headers to status, headers and body.
Answer = Callable[[str, dict[str, str], dict[str, str]], tuple[int, dict[str, str], Any]]


@define
class Server:
    """An HTTP server that answers with ``answer``, and notes the requests."""

    port: int = 0
    answer: Answer = lambda path, query, headers: (200, {}, [])
    asked: list[str] = field(factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            status, headers, body = made.answer(parts.path, query, {k.lower(): v for k, v in self.headers.items()})
            made.asked.append(self.path)
            data = b"" if status == 304 else body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        made.port = listening.server_address[1]
        thread = Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            listening.shutdown()
            thread.join()


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(auto_create_topics=False) as made:
        made.create_topic("orders", 1)
        yield made


def polling(
    broker: EmbeddedBroker, url: str, topic: Topic[Any, Any] = ORDERS, **options: Any
) -> SourceWorker[Any, Any]:
    source = HttpSource(url, **({"interval_ms": 1, "key": "id"} | options))
    return SourceWorker(broker, topic, source, name="orders-in", poll_ms=5, retry_backoff_ms=1)


def keys(broker: EmbeddedBroker) -> list[int]:
    return [record.key for record in records(broker, ORDERS)]


@pytest.mark.case
@pytest.mark.parametrize("header", ["ETag", "Last-Modified", ""])
def test_a_document_is_written_whenever_it_changes(broker, server, header):
    version = "Thu, 01 Jan 1970 00:00:01 GMT"

    def answer(path: str, query: dict[str, str], headers: dict[str, str]) -> Any:
        known = headers.get("if-none-match") or headers.get("if-modified-since")
        if known == version:
            return 304, {}, b""
        return 200, {header: version} if header else {}, {"data": {"orders": [{"id": number} for number in numbers]}}

    numbers, server.answer = [1, 2], answer
    with polling(broker, server.url, items="data.orders") as running:
        until(lambda: running.progress.records == 2 and len(server.asked) > 3, seen=lambda: running.progress)
        numbers, version = [2, 3], "Thu, 01 Jan 1970 00:00:02 GMT"
        until(lambda: running.progress.records == 4, seen=lambda: running.progress)
    count = len(server.asked)
    with polling(broker, server.url, items="data.orders"):
        until(lambda: len(server.asked) > count + 2)

    assert keys(broker) == [1, 2, 2, 3]


@pytest.mark.slow
def test_a_document_with_the_same_time_and_other_bytes_is_written(broker, server):
    """The time has seconds only, and this server does not heed If-Modified-Since."""
    numbers = [1]
    server.answer = lambda path, query, headers: (
        200,
        {"Last-Modified": "Thu, 01 Jan 1970 00:00:01 GMT"},
        [{"id": number} for number in numbers],
    )
    with polling(broker, server.url) as running:
        until(lambda: running.progress.records == 1)
        numbers[:] = [2]
        until(lambda: running.progress.records == 2)

    assert keys(broker) == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("order", [-1, 1], ids=["the newest first", "with the last one again"])
def test_items_that_come_again_end_the_worker_before_they_are_written(broker, server, order):
    def answer(path: str, query: dict[str, str], headers: dict[str, str]) -> Any:
        least = int(query.get("after", "0")) + (order < 0)
        found = [{"id": number} for number in range(1, 6) if number >= least][::order]
        return 200, {}, found[:3] if order == 1 else found

    server.answer = answer
    with pytest.raises(ConnectError, match="would be written twice; let the server send only items after the last one"):
        polling(broker, server.url, last="id", last_param="after").run()

    assert keys(broker) == [1, 2, 3, 4, 5][::order][: 3 if order == 1 else 5]


def after(path: str, query: dict[str, str], headers: dict[str, str]) -> Any:
    first = int(query.get("after", "0")) + 1
    return 200, {}, [{"id": number} for number in range(first, min(first + 3, 11))]


@pytest.mark.slow
def test_items_after_the_last_one_are_asked_for(broker, server):
    server.answer = after
    with polling(broker, server.url + "/orders?size=3", last="id", last_param="after") as running:
        until(lambda: running.progress.records == 10 and len(server.asked) > 6, seen=lambda: running.progress)

    assert keys(broker) == list(range(1, 11))
    assert server.asked[:3] == ["/orders?size=3", "/orders?size=3&after=3", "/orders?size=3&after=6"]


@pytest.mark.slow
@pytest.mark.parametrize("param", ["", "page"])
def test_pages_are_followed_and_the_last_one_is_read_again(broker, server, param):
    pages = {"1": [1, 2], "2": [3, 4], "3": [5]}

    def answer(path: str, query: dict[str, str], headers: dict[str, str]) -> Any:
        page = query.get("page", "1")
        after = str(int(page) + 1)
        cursor = None if after not in pages else after if param else f"/orders?page={after}"
        return 200, {}, {"items": [{"id": number} for number in pages[page]], "paging": {"next": cursor}}

    server.answer = answer
    options = {"items": "items", "next": "paging.next", "next_param": param}
    with polling(broker, server.url + "/orders", **options) as running:
        until(lambda: running.progress.records == 5 and len(server.asked) > 5, seen=lambda: running.progress)
    pages["3"], pages["4"] = [5, 6], [7]
    with polling(broker, server.url + "/orders", **options) as running:
        until(lambda: running.progress.records == 2, seen=lambda: running.progress)

    assert keys(broker) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.slow
def test_answers_that_pass_are_retried_after_the_pause_that_the_server_asks_for(broker, server):
    answers = [(503, {}), (429, {"Retry-After": "3600"}), (200, {})]

    def answer(path: str, query: dict[str, str], headers: dict[str, str]) -> Any:
        status, given = answers[0] if len(answers) == 1 else answers.pop(0)
        return status, given, [{"id": 1}] if status == 200 else {"error": "not now"}

    server.answer = answer
    source = HttpSource(server.url, key="id", interval_ms=1)
    with SourceWorker(broker, ORDERS, source, name="orders-in", poll_ms=5, retry_backoff_ms=1) as running:
        until(lambda: running.progress.retries == 2, seen=lambda: running.progress)
        pause_ms = source._due_ms - source._clock.monotonic_ms()
        source._due_ms = 0
        until(lambda: running.progress.records == 1, seen=lambda: running.progress)

    assert 3_000_000 < pause_ms <= 3_600_000
    assert running.progress.last_error.startswith("HttpUnavailableError: HttpSource(url='http://127.0.0.1:")
    assert keys(broker) == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "options", "match"),
    [
        ((404, {}, "gone"), {}, 'the server answers 404: "gone"'),
        ((301, {"Location": "/new"}, ""), {}, r"answers 301.*it redirects to /new: give this url="),
        ((200, {"Content-Encoding": "gzip"}, b"[]"), {}, "the answer is not compressed as its Content-Encoding says"),
        ((200, {}, b"{"), {}, "the answer is not JSON|the document is not a list"),
        ((200, {}, {"orders": 1}), {"items": "orders"}, "the answer field 'orders' is not a list"),
        ((200, {}, {"orders": 1}), {"items": "data"}, "the answer field 'data' is missing; it should be a list"),
        ((200, {}, [{"id": 1}, {"id": "x"}]), {}, "item 1: field 'id' does not fit the keys of topic 'orders'"),
        ((200, {}, [{"id": 1, "customer": 5}]), {}, "item 0: does not fit the values of topic 'orders'.*customer"),
        ((200, {}, [{"id": 1}]), {"last": "at", "last_param": "after"}, "item 0: field 'at' is None"),
        ((200, {}, [{"id": 1}]), {"last": "id", "last_param": "x"}, "does not heed the parameter 'x'"),
        ((200, {}, {"next": "http://other.example/"}), {"next": "next", "items": "."}, "has the URL of another server"),
        ((200, {}, [{"id": 1}]), {"max_bytes": 5}, "the answer is larger than max_bytes=5"),
    ],
)
def test_an_answer_that_cannot_be_read_ends_the_worker_with_the_field(broker, server, answer, options, match):
    server.answer = lambda path, query, headers: answer
    topic = Topic("orders", value=dict) if options.get("items") == "." else ORDERS
    key = "" if topic is not ORDERS else "id"
    with pytest.raises(ConnectError, match=match):
        polling(broker, server.url + "?token=secret", topic, key=key, **options).run()


@pytest.mark.slow
def test_arguments_that_cannot_work_are_refused_with_a_remedy(broker, server):
    def refused(match: str, url: str = server.url, **options: Any) -> None:
        with pytest.raises(ConfigError, match=match):
            polling(broker, url, **options).run()

    refused("the URL begins with http:// or https:// and a host", "ftp://somewhere")
    refused("give both", last="id")
    refused("next_param= needs next=", next_param="page")
    refused("give one of them", last="id", last_param="after", next="next")
    refused("interval_ms is at least 1, not 0", interval_ms=0)
    refused("declares keys: give key= the name of the field", key="")
    server.answer = after
    with polling(broker, server.url, last="id", last_param="after") as running:
        until(lambda: running.progress.records == 10)
    refused("the position of 'orders-in' is that of a source by last=id, this is one by version: give the arguments")


@pytest.mark.slow
def test_rows_are_exact_whenever_the_worker_is_killed(server):
    last = 0

    def answer(path: str, query: dict[str, str], headers: dict[str, str]) -> Any:
        """There is always more, until the last one is said."""
        first = int(query.get("after", "-1")) + 1
        count = 3 if not last else max(0, min(3, last - first))
        return 200, {}, [{"n": number} for number in range(first, first + count)]

    server.answer = answer
    settings = {"url": server.url, "key": "n", "last": "n", "last_param": "after", "interval_ms": 1}
    with EmbeddedBroker(auto_create_topics=False) as broker, broker.serve("127.0.0.1:0") as served:
        broker.create_topic("numbers", 1)
        given = {"kind": "http", "settings": settings, "bootstrap": served.bootstrap_servers}
        with template() as processes:
            for number in range(20):
                processes.kill_one(last=6 + 2 * number, **given)
        with worker(broker, "http", settings) as running:
            until(lambda: running.progress.records > 5, seen=lambda: running.progress)
            # Beyond what was asked for until now.
            last = 3 * len(server.asked) + 30
            until(lambda: server.asked[-1].endswith(f"after={last - 1}"), seen=lambda: running.progress)
        found = [record.key for record in records(broker, TOPIC)]

    assert found == list(range(last)), "exactly once, in order"
