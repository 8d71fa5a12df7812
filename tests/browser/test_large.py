"""The page of a large application: 200 nodes, 1,000 tasks, of which ten change with each status."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from streams import EmbeddedBroker, State, Streams, StreamsBuilder, Topic
from streams.web.peers import Peers
from streams.web.status import Status
from tests import waiting
from tests.browser.conftest import Page
from tests.browser.test_page import CHECKS, RIGHT, TAB

pytestmark = pytest.mark.browser

TASKS, NODES, CHANGED = 1_000, 200, 10
COUNT = """
window.changes = 0;
new MutationObserver((list) => { window.changes += list.length; })
  .observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
"""


def many_nodes(builder: StreamsBuilder) -> None:
    stream = builder.stream(Topic("a", key=str, value=int))
    for _ in range(NODES // 4):
        stream.filter(bool).map_values(str).filter(bool).to("b")


def large_status() -> tuple[dict[str, Any], str]:
    """The status of a real application, with as many tasks as a large one."""
    with EmbeddedBroker() as broker:
        broker.create_topic("a")
        broker.create_topic("b")
        with Streams(many_nodes, application_id="large", broker=broker) as streams:
            waiting.until(lambda: streams.state is State.RUNNING)
            source = Status(streams.instance, Peers())
            status, drawing = json.loads(json.dumps(source.of_instance())), source.drawing(False, False)
    (row,) = status["tasks"]["rows"]
    place = status["tasks"]["columns"].index("task")
    status["tasks"]["rows"] = [[*row[:place], f"0_{number}", *row[place + 1 :]] for number in range(TASKS)]
    return dict(status), drawing


@contextmanager
def large() -> Iterator[str]:
    """Serve the page with a status of which ten tasks and one node change with each answer."""
    (status, drawing), page, answers = large_status(), files("streams.web").joinpath("page"), iter(range(1, 1 << 30))
    lag = status["tasks"]["columns"].index("lag")

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = urlsplit(self.path)
            if place.path == "/status":
                number = next(answers)
                for row in status["tasks"]["rows"][:CHANGED]:
                    row[lag] = number
                known = parse_qs(place.query).get("graph") == [str(status["graph_id"])]
                body, kind = json.dumps(status | ({"graph": None} if known else {})).encode(), "application/json"
            elif place.path == "/topology.svg":
                body, kind = drawing.encode(), "image/svg+xml"
            elif place.path == "/" or place.path.startswith("/page/"):
                name = place.path.removeprefix("/page/").strip("/") or "index.html"
                body = page.joinpath(name).read_bytes()
                kind = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}.get(
                    name.rpartition(".")[2], "text/html"
                )
            else:
                body, kind = b"[]", "application/json"
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: Any) -> None:
            del given

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def changes_per_round(page: Page, rounds: int = 3) -> float:
    """Return how many changes of the document each status makes."""
    start = page.rounds
    page.until(lambda: page.rounds > start)
    page.run("window.changes = 0")
    start = page.rounds
    page.until(lambda: page.rounds >= start + rounds)
    return float(page.run("return window.changes")) / (page.rounds - start)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_status_changes_what_is_different_and_no_more(page: Page, dark: bool, record_property: Any) -> None:
    rows = "return document.querySelectorAll('#task-table tbody tr').length"
    with large() as url:
        page.open(url, dark=dark)
        page.run("document.querySelector('#all-nodes').click()")
        page.until(lambda: page.run("return document.querySelectorAll('#graph .box').length") > NODES)
        page.run(COUNT)
        assert page.run(rows) < TASKS
        few = changes_per_round(page)
        page.run("document.querySelector('#all-tasks').click()")
        assert page.run(rows) == TASKS
        every = changes_per_round(page)
        record_property("few_ms", page.run("return Number(document.documentElement.dataset.renderMs)"))
        # A cell of each task, the clock, and what else moves; not a change for each task or node.
        assert CHANGED <= few < 10 * CHANGED
        assert CHANGED <= every < 10 * CHANGED
        page.resize(400, 800)
        assert page.run("return document.documentElement.scrollWidth") <= 400
        page.run("document.querySelector('#all-tasks').click()")
        assert page.run(f"{CHECKS} return smallText()") == []
        assert page.run(f"{CHECKS} return faintText()") == []
        print(f"{few:.0f} and {every:.0f} changes, {page.run('return document.documentElement.dataset.renderMs')} ms")


def test_a_large_graph_is_one_stop_of_the_tab_key(page: Page) -> None:
    with large() as url:
        page.open(url)
        page.run("document.querySelector('#all-nodes').click()")
        page.until(lambda: page.run("return document.querySelectorAll('#graph .box').length") > NODES)
        page.run("document.querySelector('#graph [tabindex=\"0\"]').focus()")
        start = page.focus
        page.keys(RIGHT)
        assert page.focus != start
        page.keys(TAB)
        assert page.run("return document.activeElement.closest('#graph svg') === null")
        assert page.run("return document.querySelectorAll('#graph [tabindex=\"0\"]').length") == 1
