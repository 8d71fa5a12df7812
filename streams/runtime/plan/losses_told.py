"""What a live run loses, in its log: records dropped by node and reason, and late ones if they are many.

Reads the counts of all tasks every few seconds, so that no record costs anything. Imports only ``core`` and
``topology`` from outside ``runtime``.
"""

import logging
import threading
from collections.abc import Mapping
from functools import partial

from attrs import define, evolve, field

from streams.core.metrics import INTENDED_REASONS, LATE_REASONS, USUAL_LIMIT, Dropped, Metrics, Tally
from streams.core.notices import alone
from streams.runtime.tasks.lateness import DropLimit, late_of
from streams.topology import Topology

log = logging.getLogger(__name__)

_EVERY_MS = 5_000
_WINDOW_MS = 60_000
_LIMIT = DropLimit.of(USUAL_LIMIT)


@define(eq=False)
class LossesTold:
    """Tells of what the tasks of a live run lose; the threads of the instance call ``look`` in turn."""

    _topology: Topology
    _metrics: Metrics
    _next_ms: int = 0
    _before: Mapping[Tally, int] = field(factory=dict)
    #: The counts at the start of the minute over which the share of late records is taken.
    _window: Mapping[Tally, int] = field(factory=dict)
    _window_ms: int = 0
    _lock: threading.Lock = field(factory=threading.Lock)

    def look(self, now_ms: int, *, is_last: bool = False) -> None:
        """Tell of what was lost since the last look, if it is time; at the end, of all that was not told."""
        if now_ms >= self._next_ms or is_last:
            with self._lock:
                if now_ms >= self._next_ms or is_last:
                    self._next_ms = now_ms + _EVERY_MS
                    self._tell(now_ms)
            self._metrics.notices.look(None if is_last else now_ms)

    def _tell(self, now_ms: int) -> None:
        tallies = self._metrics.tallies()
        notices = self._metrics.notices
        late_nodes = set()
        for tally, count in _since(self._before, tallies).items():
            if tally.is_drop and tally.reason in LATE_REASONS:
                late_nodes.add(tally.place)
            elif tally.is_drop and tally.reason not in INTENDED_REASONS:
                example = self._metrics.examples().get((tally.place, tally.reason), "")
                drop = Dropped(tally.place or "unknown node", tally.reason, count, example)
                letters = self._metrics.get("dead-letter-records-total", node=tally.place, reason=tally.reason)
                end = "; dead letters were written" if letters else ""
                notices.warn(log, (tally.place, tally.reason), now_ms, partial(_counted, drop, end), count)
        for late in _LIMIT.exceeded(late_of(self._topology, _since(self._window, tallies))):
            if late.node in late_nodes:
                notices.warn(log, ("late", late.node), now_ms, alone(str(late)))
        self._before = tallies
        if now_ms - self._window_ms >= _WINDOW_MS:
            self._window = tallies
            self._window_ms = now_ms


def _counted(drop: Dropped, end: str, count: int) -> str:
    return f"{evolve(drop, count=count)}{end}"


def _since(before: Mapping[Tally, int], now: Mapping[Tally, int]) -> dict[Tally, int]:
    """Return what was counted since; disorder is no count."""
    return {
        tally: count if tally.is_disorder else count - before.get(tally, 0)
        for tally, count in now.items()
        if count != before.get(tally, 0)
    }
