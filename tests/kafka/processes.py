"""Processes that tests start, and conditions outside of this process that tests wait for.

Of streams it knows the clock and one command.
"""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Self

from streams.core.clock import SystemClock

WAIT_MS = 300_000
_PAUSE_S = 0.02
_CLOCK = SystemClock()
_NEVER = Event()


class Started:
    """A process and all that it has said; in a `with` it is gone behind it."""

    def __init__(self, command: Sequence[str], said: Path) -> None:
        self._said = said
        with said.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def said(self) -> str:
        """What it has written to both outputs so far."""
        return self._said.read_text(errors="replace")

    def line_with(self, text: str, wait_ms: int = WAIT_MS) -> str:
        """Wait for a line that contains the text, and return it.

        Raises:
            AssertionError: the process has ended without it, or it does not come.
        """
        deadline_ms = _CLOCK.monotonic_ms() + wait_ms
        while text not in self.said:
            assert self.process.poll() is None, f"it ended with status {self.process.returncode}:\n{self.said}"
            assert _CLOCK.monotonic_ms() < deadline_ms, f"no {text!r} within {wait_ms} ms:\n{self.said}"
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_PAUSE_S)
        return next(line for line in self.said.splitlines() if text in line)

    def stop(self, *, status: int = 0) -> None:
        """End it as an operator does, with SIGTERM, and check how it ends."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_MS / 1000) == status, self.said

    def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def streams_broker(folder: Path) -> Iterator[str]:
    """Run `streams broker` on a free port and a folder of its own; give its address."""
    command = [sys.executable, "-m", "streams", "broker", "--listen", "127.0.0.1:0", "--no-auto-create"]
    with Started([*command, "--data", str(folder / "data")], folder / "broker.log") as broker:
        yield broker.line_with("listens on ").partition("listens on ")[2].partition(",")[0]
        broker.stop()


def until(is_done: Callable[[], bool], what: str, wait_ms: int = WAIT_MS) -> None:
    """Wait until something is so that only asking can tell.

    Raises:
        AssertionError: it does not come to that in time.
    """
    deadline_ms = _CLOCK.monotonic_ms() + wait_ms
    while not is_done():
        assert _CLOCK.monotonic_ms() < deadline_ms, f"{what}: not within {wait_ms} ms"
        _NEVER.wait(_PAUSE_S)
