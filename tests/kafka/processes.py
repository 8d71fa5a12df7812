"""Processes that tests start."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.waiting import WATCHDOG_MS, until


class Started:
    """A process and all that it has said; in a `with` it is gone behind it."""

    def __init__(self, command: Sequence[str], said: Path, env: Mapping[str, str] | None = None) -> None:
        self._said = said
        with said.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def said(self) -> str:
        """What it has written to both outputs so far."""
        return self._said.read_text(errors="replace")

    def line_with(self, text: str) -> str:
        """Wait for a line that contains the text, and return it.

        Raises:
            AssertionError: the process has ended without it, or it does not come.
        """

        def has_it() -> bool:
            # Asked before: what it says at its end counts.
            has_ended = self.process.poll() is not None
            assert text in self.said or not has_ended, f"it ended with status {self.process.returncode}:\n{self.said}"
            return text in self.said

        until(has_it, seen=lambda: f"no {text!r} in {self.said}")
        return next(line for line in self.said.splitlines() if text in line)

    def stop(self, *, status: int = 0) -> None:
        """End it as an operator does, with SIGTERM, and check how it ends."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WATCHDOG_MS / 1_000) == status, self.said

    def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def streams_broker(folder: Path, *options: str) -> Iterator[str]:
    """Run `streams broker` on a free port and a folder of its own; give its address."""
    command = [sys.executable, "-m", "streams", "broker", "--listen", "127.0.0.1:0", "--no-auto-create", *options]
    with Started([*command, "--data", str(folder / "data")], folder / "broker.log") as broker:
        yield broker.line_with("listens on ").partition("listens on ")[2].partition(",")[0]
        broker.stop()
