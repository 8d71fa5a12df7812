"""Timers of a task: which punctuation is due when, in stream time and in wall-clock time.

Pure; the task asks with its two clocks.  As in Kafka Streams a punctuation gets the current
time, not the scheduled one, and a jump over many intervals fires once.  KIP-138, KIP-1146.
"""

import heapq
from collections.abc import Callable
from itertools import count

from attrs import define, field

from streams.topology.operator import PunctuationType


@define(eq=False)
class Timer:
    """One scheduled punctuation."""

    node: str
    interval_ms: int
    callback: Callable[[int], None]
    due_ms: int
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Stop it; harmless when repeated."""
        self.is_cancelled = True

    def move_behind(self, now_ms: int) -> None:
        """Set the next due time: one interval on, or the first in line after ``now_ms``."""
        missed = max(0, (now_ms - self.due_ms) // self.interval_ms)
        self.due_ms += (missed + 1) * self.interval_ms


@define(eq=False)
class Punctuations:
    """All timers of a task, by clock."""

    _heaps: dict[PunctuationType, list[tuple[int, int, Timer]]] = field(
        factory=lambda: {kind: [] for kind in PunctuationType}
    )
    _sequence: "count[int]" = field(factory=count)

    def schedule(
        self,
        node: str,
        interval_ms: int,
        kind: PunctuationType,
        callback: Callable[[int], None],
        start_ms: int | None,
        now_ms: int,
    ) -> Timer:
        """Add a timer; ``now_ms`` is that of its clock."""
        if start_ms is not None:
            timer = Timer(node, interval_ms, callback, start_ms)
            if start_ms < now_ms:
                timer.move_behind(now_ms)
        elif kind is PunctuationType.STREAM_TIME:
            # Aligned to the epoch: due as soon as there is data.
            timer = Timer(node, interval_ms, callback, 0)
        else:
            timer = Timer(node, interval_ms, callback, now_ms + interval_ms)
        self._push(kind, timer)
        return timer

    def next_due_ms(self, kind: PunctuationType) -> int | None:
        """Return when the next timer of a clock is due; None if there is none."""
        heap = self._heaps[kind]
        while heap and heap[0][2].is_cancelled:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def fire(self, kind: PunctuationType, now_ms: int, run: Callable[[Timer, int], None]) -> int:
        """Run what is due at ``now_ms`` of a clock, in order of due time; return how many ran."""
        fired = 0
        while (due := self.next_due_ms(kind)) is not None and due <= now_ms:
            timer = heapq.heappop(self._heaps[kind])[2]
            run(timer, now_ms)
            fired += 1
            if not timer.is_cancelled:
                timer.move_behind(now_ms)
                self._push(kind, timer)
        return fired

    def _push(self, kind: PunctuationType, timer: Timer) -> None:
        heapq.heappush(self._heaps[kind], (timer.due_ms, next(self._sequence), timer))
