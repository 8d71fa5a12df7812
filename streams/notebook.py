"""Tables that a notebook keeps current (extra ``notebook``).

Of the other packages, this module imports only ``core``; IPython is imported on use.
"""

from typing import Any, Protocol

from streams.core.closeable import Closeable
from streams.core.concurrency.threads import SystemThreads, Threads
from streams.core.errors import ConfigError
from streams.core.installation import pip_install


class Shown(Protocol):
    """The interface of objects that can be shown as a table of their current content, such as a ``StoreView``."""

    def _repr_html_(self) -> str: ...


class LiveTable(Closeable):
    """Shows the content of a store below a cell, and updates it every ``every_ms`` milliseconds if it has changed.

    It shows the first 20 entries, but reads all of them: of a large store, show a query instead.  ``close`` leaves the
    last table in the notebook; so does the end of a ``with`` block.

    Raises:
        ConfigError: IPython is not installed, the program is not a notebook, or ``every_ms`` is below 1.
    """

    def __init__(self, shown: Shown, *, every_ms: int = 1_000, threads: Threads | None = None) -> None:
        if every_ms < 1:
            raise ConfigError(f"LiveTable: every_ms must be at least 1, not {every_ms}")
        display, html = _displayed()
        threads = threads or SystemThreads()
        self._shown = shown
        self._every_ms = every_ms
        self._html = html
        self._stop = threads.signal()
        self._last = shown._repr_html_()
        self._handle = display(html(self._last), display_id=True)
        if self._handle is None:
            raise ConfigError("LiveTable: this program is no notebook; print the entries, or use `streams top`")
        self._worker = threads.start("streams-live-table", self._run)

    def close(self) -> None:
        """Show the current content, and stop updating the table."""
        if not self._stop.is_set():
            self._stop.set()
            self._worker.join()
            self._show()

    def _run(self) -> None:
        while not self._stop.wait(self._every_ms):
            self._show()

    def _show(self) -> None:
        text = self._shown._repr_html_()
        if text != self._last:
            self._last = text
            self._handle.update(self._html(text))


def _displayed() -> tuple[Any, Any]:
    try:
        from IPython.display import HTML, display
    except ImportError as error:
        raise ConfigError(f"a live table needs IPython ({error}): {pip_install('notebook')}") from None
    return display, HTML
