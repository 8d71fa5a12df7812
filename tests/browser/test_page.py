"""The live page in a browser, before a running application."""

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from streams import EmbeddedBroker, Producer, State, Streams
from streams.core.clock import SystemClock
from tests import waiting
from tests.browser.conftest import Page
from tests.browser.shop import HOSTILE, SETTINGS, orders, orders_coming, served, shop

pytestmark = pytest.mark.browser

TAB, ENTER, RIGHT, DOWN = "\ue004", "\ue007", "\ue014", "\ue015"
CHECKS = (Path(__file__).parent / "checks.js").read_text(encoding="utf-8")
PICTURES = Callable[..., None]


def test_numbers_move_and_errors_and_drops_appear(broker: EmbeddedBroker, page: Page, picture: PICTURES) -> None:
    with served(broker) as (_, server):
        page.open(server.url)
        assert page.text("#state") == "RUNNING"
        assert "No error" in page.text("#failure-list")
        with orders_coming(broker):
            page.until(lambda: page.number('[data-plot="in_rate"] .value') > 0)
            page.until(lambda: "/s" in page.text("#graph svg"))
            page.until(lambda: "ValueError" in page.text("#failure-list"))
            before = page.text("#task-table")
            page.until(lambda: page.text("#task-table") != before)
            assert "raise ValueError(f" in page.text("#failure-list")
            assert "MAPVALUES" in page.text("#failure-list")
            assert page.number("#problem-count") > 0
            assert "sent to orders-failed" in page.text("#failure-list")
            assert "ValueError" not in page.text("#drop-table")
            assert "No record came after its window" in page.text("#problems")
            with Producer(broker) as producer:
                # Its window of a minute has closed nine to ten minutes ago.
                producer.send(orders, 100, key="ann", timestamp_ms=SystemClock().now_ms() - 600_000)
            page.until(lambda: "10 min" in page.text("#late-table"))
            assert "100%" in page.text("#late-table")
            page.until(lambda: page.rounds > 8)
            picture("page-topology", height=640)
        assert page.complaints() == []


def test_a_store_is_browsed_by_key_and_window_and_shows_hostile_keys_as_text(
    broker: EmbeddedBroker, page: Page, picture: PICTURES
) -> None:
    with served(broker) as (streams, server):
        with orders_coming(broker):
            waiting.until(lambda: streams.store("by-customer").get(HOSTILE))
        page.open(server.url)
        page.run("document.querySelector('[data-store=by-customer]').click()")
        page.run("document.querySelector('#store-key').focus()")
        page.keys("a/b ü", ENTER)
        page.until(lambda: '"a/b ü"' in page.text("#store-result"))

        page.run("document.querySelector('#store-scan').click()")
        page.until(lambda: HOSTILE.replace('"', '\\"') in page.text("#store-result"))
        assert page.run("return document.querySelectorAll('main img').length") == 0
        assert page.run("return document.title").startswith("shop")

        page.run("document.querySelector('#store-key').value = 'nobody'; document.querySelector('#store-get').click()")
        page.until(lambda: "no such key" in page.text("#store-message"))

        page.run("document.querySelector('[data-store=per-minute]').click()")
        page.run("document.querySelector('#store-key').value = 'large'; document.querySelector('#store-get').click()")
        page.until(lambda: "UTC" not in page.text("#store-result") and "–" in page.text("#store-result"))
        page.run("document.querySelector('#stores').scrollIntoView()")
        assert [text for text in page.complaints() if "404" not in text] == []


def test_the_graph_fits_and_shows_what_was_written_or_each_node(broker: EmbeddedBroker, page: Page) -> None:
    boxes = "return document.querySelectorAll('#graph .box').length"
    with served(broker) as (_, server):
        page.open(server.url)
        page.until(lambda: page.run(boxes) == 11)
        assert page.run("const it = document.querySelector('#graph'); return it.scrollWidth <= it.clientWidth")
        page.run("document.querySelector('#all-nodes').click()")
        page.until(lambda: page.run(boxes) == 21)
        page.run("document.querySelector('#graph [data-name=per-minute]').dispatchEvent(new MouseEvent('click'))")
        page.until(lambda: "per-minute" in page.text("#details"))
        assert "Browse per-minute" in page.text("#details")
        page.until(lambda: "up to date" in page.text("#health"))
        assert "1 instance, 8 tasks" in page.text("#health")
        assert "8 tasks assigned" in page.text("#event-list")
        page.resize(400, 800)
        page.until(lambda: page.number("#graph svg") and page.run(
            "return document.querySelector('#graph svg').getBoundingClientRect().width") <= 400)  # fmt: skip
        assert page.complaints() == []


def test_the_stack_of_a_thread_is_shown_when_asked_for(broker: EmbeddedBroker, page: Page) -> None:
    with served(broker) as (streams, server):
        page.open(server.url, width=400)
        page.until(lambda: page.number("#thread-table"))
        page.run("document.querySelector('#thread-table button').focus()")
        page.keys(ENTER)
        page.until(lambda: "thread.py" in page.text("#stack"))
        assert page.text("#stack").startswith(page.focus)
        assert "task 0_" in page.text("#stack")
        assert page.run("return document.documentElement.scrollWidth") <= 400
        streams.close()


def test_a_restore_is_said_first_with_how_far_it_is(broker: EmbeddedBroker, page: Page) -> None:
    with served(broker) as (streams, _), orders_coming(broker):
        waiting.until(lambda: streams.metrics.get("process-total") > 200)
    may_go_on = Event()
    again = Streams(shop, broker=broker, on_restore=lambda *_: may_go_on.wait(), **SETTINGS)
    with again.serve() as server:
        again.start()
        page.open(server.url)
        page.until(lambda: page.text("#state") == "RESTORING")
        assert page.text("#restore-title").startswith("Restoring ")
        assert "records left" in page.text("#restore-left")
        assert "how far behind is unknown" in page.text("#health")
        assert page.run("return document.querySelector('#restore').getBoundingClientRect().bottom") < 300
        may_go_on.set()
        page.until(lambda: page.text("#state") == "RUNNING")
        assert page.run("return document.querySelector('#restore').hidden")
        again.close()


def test_a_rebalance_is_seen_and_the_group_is_shown_as_one(
    broker: EmbeddedBroker, page: Page, picture: PICTURES
) -> None:
    rows = "return document.querySelectorAll('#task-table tbody tr').length"
    with served(broker) as (_, server):
        page.open(server.url)
        page.until(lambda: page.run(rows) == 8)
        with served(broker):
            page.until(lambda: 0 < page.run(rows) < 8)
            page.run(
                "const it = document.querySelector('#scope'); it.value = 'group'; it.dispatchEvent(new Event('change'))"
            )
            page.until(lambda: page.run(rows) == 8)
            page.until(lambda: page.text("#instance-table").count("RUNNING") == 2)
            with orders_coming(broker):
                page.until(lambda: page.number('[data-plot="in_rate"] .value') > 0)
        page.until(lambda: page.text("#instance-table").count("RUNNING") == 1)
        page.until(lambda: page.run(rows) == 8)


def test_everything_is_reached_with_the_keyboard(broker: EmbeddedBroker, page: Page) -> None:
    with served(broker) as (_, server):
        page.open(server.url)
        page.run("document.activeElement.blur(); window.scrollTo(0, 0)")
        seen = []
        for _ in range(80):
            page.keys(TAB)
            seen.append(page.focus)
            if seen[-1] == "BODY" or (len(seen) > 1 and seen[-1] == seen[0]):
                break
        wanted = [
            *(
                "scope",
                "pause",
                "simple",
                "all-nodes",
                "task-filter",
                "store-key",
                "store-format",
                "store-get",
                "store-scan",
            ),
            *("why-key", "why-format", "why-topic", "why-seconds", "why-limit", "why-ask", "letters-read"),
        ]
        assert [focus for focus in seen if focus in wanted] == wanted
        # The graph is one stop; arrows go from box to box.
        page.run("document.querySelector('#graph [tabindex=\"0\"]').focus()")
        start = page.focus
        page.keys(RIGHT)
        after = page.focus
        page.keys(ENTER)
        assert start != after
        page.until(lambda: after in page.text("#details"))
        assert page.run(
            "return [...document.querySelectorAll('input, select')].filter((it) => !it.labels.length).length"
        ) == 0  # fmt: skip


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_readable_at_400_px_and_1280_px(
    broker: EmbeddedBroker, page: Page, picture: PICTURES, dark: bool
) -> None:
    with served(broker) as (_, server), orders_coming(broker):
        for width in (400, 1280):
            page.open(server.url, width=width, dark=dark)
            page.until(lambda: page.number('[data-plot="in_rate"] .value') > 0 and page.number("#problem-count") > 0)
            assert page.run("return document.documentElement.scrollWidth") <= width
            assert page.run(f"{CHECKS} return smallText()") == []
            assert page.run(f"{CHECKS} return faintText()") == []
            if width == 1280 and dark:
                picture("page-dark", height=640)
        assert page.complaints() == []


@pytest.mark.parametrize("width", [400, 1280])
def test_an_application_that_is_gone_is_said_to_be_wherever_the_page_is(
    broker: EmbeddedBroker, page: Page, width: int
) -> None:
    with served(broker) as (_, server):
        page.open(server.url, width=width, height=600)
        page.run("window.scrollTo(0, 900)")
    page.until(lambda: "no answer for" in page.text("#state"))
    assert "does not answer" in page.text("#trouble")
    assert "no answer" in page.run("return document.title")
    assert page.run("const it = document.querySelector('#state').getBoundingClientRect(); return it.top") >= 0


def test_an_application_that_has_failed_says_so_first(broker: EmbeddedBroker, page: Page) -> None:
    streams = Streams(shop, broker=broker, **SETTINGS | {"processing_exception_handler": "fail"})
    with streams.serve() as server:
        streams.start()
        waiting.until(lambda: streams.state is State.RUNNING)
        with Producer(broker) as producer:
            producer.send(orders, -1, key="ann")
        page.open(server.url)
        page.until(lambda: page.text("#state") == "ERROR")
        page.until(lambda: page.text('[data-plot="lag"] .value') == "–")
        assert "ValueError at shop.py" in page.text("#stop")
        assert "a negative amount: -1" in page.text("#stop")
        assert page.run("return document.querySelector('#stop').getBoundingClientRect().bottom") < 300
        assert page.run("return [...document.querySelectorAll('#graph .drops')].length") == 1
        assert page.complaints() == []
        with pytest.raises(Exception, match="negative"):
            streams.close()
