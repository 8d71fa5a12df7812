"""The watchdog of an instance: logs the stack of a thread that is stuck in an iteration of its loop.

The watchdog runs on its own thread and reads only the start times of the iterations, so it works while stream threads
are stuck.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from attrs import define, field

from streams.core.clock import Clock
from streams.core.concurrency.threads import Signal, Threads
from streams.core.notices import Notices

log = logging.getLogger(__name__)

#: Number of checks within the limit.
_LOOKS = 4


@define(eq=False)
class Watchdog:
    """Logs the stack of each thread whose iteration takes longer than ``limit_ms``, once a minute.

    ``iterations_ms`` returns the monotonic start time of the current iteration by thread.  ``stack_of`` returns the
    stack of a thread.
    """

    _limit_ms: int
    _clock: Clock
    _iterations_ms: Callable[[], Mapping[str, int]]
    _stack_of: Callable[[str], str]
    _stop: Signal
    _notices: Notices
    #: Threads that are stuck, with the start time of the iteration.
    _stuck: dict[str, int] = field(factory=dict)

    def start(self, name: str, threads: Threads) -> None:
        """Start a thread called ``name`` that performs periodic checks until ``stop`` is called."""
        threads.start(name, self._run)

    def stop(self) -> None:
        """Stop the periodic checks."""
        self._stop.set()

    def look(self) -> None:
        """Log the threads that have become stuck, or are no longer stuck, since the last check."""
        now_ms = self._clock.monotonic_ms()
        began_ms = self._iterations_ms()
        for name, iteration_ms in began_ms.items():
            duration_ms = now_ms - iteration_ms
            stuck_ms = self._stuck.get(name, iteration_ms)
            if stuck_ms != iteration_ms:
                del self._stuck[name]
                self._notices.end(log, (name, stuck_ms), now_ms, f"{name}: its loop continues")
            if duration_ms > self._limit_ms:
                self._stuck[name] = iteration_ms
                text = partial(self._text, name, duration_ms)
                self._notices.last(log, (name, iteration_ms), now_ms, text, since_ms=iteration_ms)
        for name in self._stuck.keys() - began_ms.keys():
            del self._stuck[name]

    def _text(self, name: str, duration_ms: int, count: int) -> str:
        # An iteration that was slow before may hang elsewhere now.
        stack = self._stack_of(name)
        return f"{name}: no iteration of its loop has begun for {duration_ms} ms; it is at:\n{stack}"

    def _run(self) -> None:
        while not self._stop.wait(max(1, self._limit_ms // _LOOKS)):
            self.look()
