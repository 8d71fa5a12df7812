"""What the page answers when it is asked: why there is an output or none, and what the dead letters are."""

import pytest

from streams import EmbeddedBroker, Streams
from tests.browser.conftest import Page
from tests.browser.shop import HOSTILE, orders_coming, served
from tests.browser.test_page import CHECKS, ENTER, PICTURES, TAB

pytestmark = pytest.mark.browser


def press(page: Page, selector: str) -> None:
    page.run(f"document.querySelector('{selector}').click()")


def fill(page: Page, selector: str, text: object) -> None:
    page.run("document.querySelector(arguments[0]).value = arguments[1]", selector, str(text))


def is_shown(page: Page, selector: str) -> bool:
    return bool(page.run("return document.querySelector(arguments[0]).checkVisibility()", selector))


def is_readable(page: Page, width: int) -> bool:
    return (
        page.run("return document.documentElement.scrollWidth") <= width
        and page.run(f"{CHECKS} return smallText()") == []
        and page.run(f"{CHECKS} return faintText()") == []
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_story_of_a_key_is_shown_as_text_once_the_token_is_given(
    broker: EmbeddedBroker, page: Page, picture: PICTURES, dark: bool
) -> None:
    key = HOSTILE if dark else "ann"
    with served(broker, "s3cret") as (_, server):
        page.open(server.url, width=400, dark=dark)
        page.run("sessionStorage.clear()")
        page.open(server.url, width=400, dark=dark)
        topics = page.run("return [...document.querySelector('#why-topic').options].map((it) => it.value)")
        assert topics[:2] == ["", "large-orders"]
        fill(page, "#why-topic", "large-orders")
        fill(page, "#why-seconds", 60)
        # The first records of a key are a customer and small orders.
        fill(page, "#why-limit", 50)
        page.run("document.querySelector('#why-key').focus()")
        page.keys(key, ENTER)
        page.until(lambda: "give the token" in page.text("#why-message"))
        assert is_shown(page, "#token-form")

        page.run("document.querySelector('#token').focus()")
        page.keys("s3cret", ENTER)
        page.until(lambda: not is_shown(page, "#token-form"))
        press(page, "#why-ask")
        page.until(lambda: "is followed for 60 s" in page.text("#why-message"))
        assert is_shown(page, "#why-stop")
        with orders_coming(broker):
            page.until(lambda: "of key" in page.text("#why-story"))
        assert key.replace("'", "\\'") in page.text("#why-story")
        assert "orders-" in page.text("#why-story")
        assert "orders-" in page.text("#why-picture svg")
        assert page.run("return getComputedStyle(document.querySelector('#why-picture .shape')).stroke") != "none"
        assert page.run("return document.querySelectorAll('main img').length") == 0
        assert page.run("return document.title").startswith("shop")
        assert not is_shown(page, "#why-stop")
        assert is_readable(page, 400)
        assert [text for text in page.complaints() if "401" not in text] == []
        if not dark:
            picture("page-why", part="#why")


def traced(streams: Streams) -> bool:
    programs = streams.instance.ask(lambda thread: [task.program.source_code for task in thread.tasks.values()])
    return any("forwarding" in code for found in programs for code in found)


def test_following_is_stopped_with_the_keyboard_and_tells_what_was_seen(broker: EmbeddedBroker, page: Page) -> None:
    with served(broker, "s3cret") as (streams, server):
        page.open(server.url)
        page.run("sessionStorage.setItem('streams-token', 's3cret')")
        page.open(server.url)
        fill(page, "#why-seconds", 60)
        page.run("document.querySelector('#why-key').focus()")
        page.keys("nobody", ENTER)
        page.until(lambda: traced(streams))
        page.run("document.querySelector('#why-limit').focus()")
        # The button for asking is disabled meanwhile.
        page.keys(TAB)
        assert page.focus == "why-stop"
        page.keys(ENTER)
        page.until(lambda: "no record of key 'nobody'" in page.text("#why-story"))
        page.until(lambda: not traced(streams))


def test_dead_letters_are_read_shown_and_sent_back_after_a_plan(
    broker: EmbeddedBroker, page: Page, picture: PICTURES
) -> None:
    with served(broker, "s3cret") as (streams, server):
        page.open(server.url, width=400)
        page.run("sessionStorage.clear()")
        page.open(server.url, width=400)
        with orders_coming(broker):
            page.until(lambda: "ValueError" in page.text("#failure-list"))
        page.until(lambda: streams.metrics.get("records-lag") == 0)
        assert page.text("#letter-list") == ""
        page.run("document.querySelector('#letters-read').focus()")
        page.keys(ENTER)
        page.until(lambda: "ValueError" in page.text("#letter-list"))
        assert "letters in topic orders-failed" in page.text("#letters-message")
        shown = page.text("#letter-list")
        for text in ("MAPVALUES", "raise ValueError(f", "from orders"):
            assert text in shown
        assert "streams dlq redrive orders-failed --reason=ValueError" in shown
        press(page, "#letter-list .command:has(pre) button")
        page.until(lambda: page.text("#letter-list .command:has(pre) button") in ("Copied", "Selected"))

        press(page, "#letter-list .command button")
        page.until(lambda: "Traceback" in page.text("#letter-list .result"))
        assert "source:   orders-" in page.text("#letter-list .result")
        assert is_readable(page, 400)
        press(page, "#letter-list .command button + button")
        page.until(lambda: "give the token" in page.text("#letter-list .result"))
        page.run("document.querySelector('#token').focus()")
        page.keys("s3cret", ENTER)
        page.until(lambda: not is_shown(page, "#token-form"))
        press(page, "#letter-list .command button + button")
        page.until(lambda: "nothing was sent yet" in page.text("#letter-list .result"))
        assert "to orders-" in page.text("#letter-list .result ul")
        assert is_readable(page, 400)
        picture("page-dead-letters", part="#problems")

        letters = int(page.text("#letter-list .send").split()[1])
        before = streams.metrics.get("dead-letters-total")
        press(page, "#letter-list .send")
        page.until(lambda: f"{letters} letters were sent" in page.text("#letter-list .result"))
        # They fail again, once each.
        page.until(lambda: streams.metrics.get("dead-letters-total") == before + letters)
        assert [text for text in page.complaints() if "401" not in text] == []
