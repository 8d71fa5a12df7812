"""A browser without a window, and pages in it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams import EmbeddedBroker
from tests import waiting

IMAGES = Path(__file__).parents[2] / "docs" / "images"
#: Of a drawing, the text of its parts.
_TEXT = "const it = document.querySelector(arguments[0]); return it?.innerText ?? it?.textContent ?? ''"
_FOCUS = "const it = document.activeElement; return it.id || it.dataset.name || it.innerText || it.tagName"
#: In texts only the names of files are left.
_WITHOUT_FOLDERS = """
for (const it of document.querySelectorAll("code, td")) {
  if (!it.children.length) it.textContent = it.textContent.replace(/(^|\\s)\\/\\S*\\//g, "$1");
}
"""
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


class Page:
    """A page in the browser: what a test does with it and sees of it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self.resize(width, height)
        self.driver.get_log("browser")
        self.driver.get(url)
        self.until(lambda: self.rounds > 0)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    @property
    def rounds(self) -> int:
        """How many times the page has shown a status."""
        return int(self.run("return Number(document.documentElement.dataset.rounds || 0)"))

    def text(self, selector: str) -> str:
        return str(self.run(_TEXT, selector))

    def number(self, selector: str) -> float:
        digits = "".join(letter for letter in self.text(selector) if letter.isdigit() or letter == ".")
        return float(digits or 0)

    def keys(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    @property
    def focus(self) -> str:
        """The ID or text of what has the focus."""
        return str(self.run(_FOCUS))

    def complaints(self) -> list[str]:
        """What the browser complains of: scripts that fail, and what the policy of the page forbids."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def until(self, is_so: Callable[[], object]) -> None:
        waiting.until(is_so, seen=lambda: (self.text("body")[:2000], self.complaints()))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver

    from tests.conftest import chromium

    options = webdriver.ChromeOptions()
    browser, program = chromium()
    assert browser is not None
    options.binary_location = browser
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    os.environ.setdefault("SE_OFFLINE", "true")
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(program))
    try:
        yield made
    finally:
        made.quit()


@pytest.fixture
def page(driver: Any) -> Page:
    return Page(driver)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        for topic in ("orders", "customers", "large-orders", "orders-failed"):
            made.create_topic(topic, 4)
        yield made


@pytest.fixture
def picture(request: pytest.FixtureRequest, page: Page) -> Callable[..., None]:
    """Take a picture for the docs if pictures are requested (make pictures); ``part`` selects a part of the page."""

    def take(name: str, *, width: int = 1280, height: int | None = None, part: str | None = None) -> None:
        if request.config.option.pictures and part is not None:
            page.resize(width, page.run("return document.documentElement.scrollHeight"))
            page.run("document.activeElement.blur()")
            # Folders of the machine that makes the picture are of no interest.
            page.run(_WITHOUT_FOLDERS)
            page.driver.find_element("css selector", part).screenshot(str(IMAGES / f"{name}.png"))
        elif request.config.option.pictures:
            page.resize(width, height or min(1500, page.run("return document.documentElement.scrollHeight")))
            page.run("window.scrollTo(0, 0); document.activeElement.blur()")
            page.driver.save_screenshot(str(IMAGES / f"{name}.png"))

    return take
