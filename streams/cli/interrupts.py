"""Handling of Ctrl-C and SIGTERM: a run stops between two steps, commits and closes.

A second signal ends the program at once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from attrs import define

#: Exit status after SIGINT by shell convention (128 + 2).
INTERRUPTED = 130


@define
class Interrupt:
    """A flag that is set when the end of the run is requested."""

    is_asked: bool = False

    def check(self) -> None:
        """Stop the run if this was requested; it is called between two steps.

        Raises:
            KeyboardInterrupt: a stop was requested.
        """
        if self.is_asked:
            raise KeyboardInterrupt


@contextmanager
def orderly() -> Iterator[Interrupt]:
    """Record SIGINT and SIGTERM in an ``Interrupt``, instead of raising an exception at an arbitrary point."""
    interrupt = Interrupt()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if interrupt.is_asked:
            raise KeyboardInterrupt
        interrupt.is_asked = True

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
