"""The watchdog of an instance: logs where a thread is whose loop does not turn.

A thread of its own looks at the times of the last turns; it asks the threads nothing, so it works while they hang.
"""

import logging
from collections.abc import Callable, Mapping

from attrs import define, field

from streams.core.clock import Clock
from streams.core.threads import Signal, Threads

log = logging.getLogger(__name__)

#: Number of looks within the limit.
_LOOKS = 4


@define(eq=False)
class Watchdog:
    """Logs the stack of each thread that has not turned for ``limit_ms``, once until it turns again.

    ``turns`` returns the monotonic time of the last turn by thread, ``stack_of`` the stack of a thread.
    """

    _limit_ms: int
    _clock: Clock
    _turns: Callable[[], Mapping[str, int]]
    _stack_of: Callable[[str], str]
    _stop: Signal
    #: Threads that do not turn, with the time of their last turn.
    _stuck: dict[str, int] = field(factory=dict)

    def start(self, name: str, threads: Threads) -> None:
        """Start looking, until ``stop`` is called."""
        threads.start(name, self._run)

    def stop(self) -> None:
        """Stop looking."""
        self._stop.set()

    def look(self) -> None:
        """Log the threads that have stopped or begun to turn since the last look."""
        now_ms, turns = self._clock.monotonic_ms(), self._turns()
        for name, turned_at_ms in turns.items():
            is_stuck = now_ms - turned_at_ms > self._limit_ms
            if is_stuck and name not in self._stuck:
                self._stuck[name] = turned_at_ms
                text = "%s: its loop has not turned for %d ms; it is at:\n%s"
                log.warning(text, name, now_ms - turned_at_ms, self._stack_of(name))
            elif not is_stuck and name in self._stuck:
                log.info("%s: its loop turns again after %d ms", name, turned_at_ms - self._stuck.pop(name))
        for name in self._stuck.keys() - turns.keys():
            del self._stuck[name]

    def _run(self) -> None:
        while not self._stop.wait(max(1, self._limit_ms // _LOOKS)):
            self.look()
