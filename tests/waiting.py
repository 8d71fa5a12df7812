"""Waiting for a condition of the system.

Nothing here says how long something takes: a test waits until what it waits for is so.  Only a test that would hang
for ever fails, after ``WATCHDOG_MS``, which is far more than a busy machine needs.
"""

import re
from collections.abc import Callable
from threading import Event

from streams.core.clock import SystemClock

WATCHDOG_MS = 300_000
WATCHDOG_S = WATCHDOG_MS / 1_000
#: Time in milliseconds for a request or a poll that must never end by itself; a test that hangs on it is ended by
#: pytest's timeout.
NEVER_MS = 10 * WATCHDOG_MS
_PAUSE_S = 0.003
_CLOCK = SystemClock()


def pause() -> None:
    """Leave the processor to those who are waited for."""
    Event().wait(_PAUSE_S)


def until(
    is_done: Callable[[], object], turn: Callable[[], object] = pause, seen: Callable[[], object] = lambda: ""
) -> None:
    """Take turns until something is so; ``turn`` is where the waiting happens, such as a poll.

    Raises:
        AssertionError: it never is, with what was ``seen`` at last.
    """
    deadline_ms = _CLOCK.monotonic_ms() + WATCHDOG_MS
    while not is_done():
        assert _CLOCK.monotonic_ms() < deadline_ms, f"it does not come to that: {seen()}"
        turn()


def until_raised(kind: type[Exception], pattern: str, act: Callable[[], object]) -> None:
    """Act again and again until it fails with a text; before, it may succeed, or fail without a reason yet."""
    said: list[str] = []

    def turn() -> None:
        try:
            act()
        except kind as error:
            said.append(str(error))

    until(lambda: said and re.search(pattern, said[-1]), turn, lambda: said)
