"""Punctuations of a task, with due times in stream time and wall-clock time.

The module is pure: the task passes stream time and wall-clock time as arguments.  As in Kafka Streams, a punctuation
gets the current time, not the scheduled time, and if several intervals have passed, it fires once.  KIP-138, KIP-1146.

When a task is reopened, a punctuation that a processor schedules in ``init`` is identified by its node and its number,
and keeps its due time.  A punctuation scheduled later is a closure, created while processing a record or a punctuation,
and cannot be recreated; ``uncarried`` returns the nodes with punctuations that cannot be recreated.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TypeAlias

from attrs import define, field, frozen

from streams.runtime.tasks.checkpoint import CarriedTimer, TimerPlace
from streams.runtime.tasks.recording import OrderRecorder
from streams.topology import PunctuationType


@define(eq=False)
class Timer:
    """One scheduled punctuation."""

    node: str
    kind: PunctuationType
    interval_ms: int
    callback: Callable[[int], None]
    due_ms: int
    is_cancelled: bool = False
    #: Among punctuations due at the same time, the one with the lowest sequence number fires first.
    sequence: int = 0

    def cancel(self) -> None:
        self.is_cancelled = True

    def move_past(self, now_ms: int) -> None:
        """Advance the due time by whole intervals, at least one, until it is after ``now_ms``."""
        missed = max(0, (now_ms - self.due_ms) // self.interval_ms)
        self.due_ms += (missed + 1) * self.interval_ms


#: The due time of a punctuation, its sequence number, and the punctuation.
TimerRow: TypeAlias = tuple[int, int, Timer]


@frozen
class TimerHeap:
    """The heap operations for rows of (due time, sequence number, punctuation); the first row is due next."""

    push: Callable[[list[TimerRow], TimerRow], None] = heapq.heappush
    pop: Callable[[list[TimerRow]], TimerRow] = heapq.heappop


@define(eq=False)
class Punctuations:
    """All punctuations of a task, by clock; punctuations due at the same time fire in the order of scheduling."""

    _heap: TimerHeap = TimerHeap()
    _heaps: dict[PunctuationType, list[TimerRow]] = field(factory=lambda: {kind: [] for kind in PunctuationType})
    _sequence: "count[int]" = field(factory=count)
    #: Punctuations that are saved in checkpoints: those scheduled before ``resume``.
    _carried: dict[TimerPlace, Timer] = field(factory=dict)
    _is_resumed: bool = False
    #: Records when wall-clock punctuations fire, or None without a flight recorder.
    recorder: OrderRecorder | None = None

    def schedule(
        self,
        node: str,
        interval_ms: int,
        kind: PunctuationType,
        callback: Callable[[int], None],
        start_ms: int | None,
        now_ms: int,
    ) -> Timer:
        """Add a punctuation; ``now_ms`` is the current time of its clock."""
        if start_ms is not None:
            timer = Timer(node, kind, interval_ms, callback, start_ms)
            if start_ms < now_ms:
                timer.move_past(now_ms)
        elif kind is PunctuationType.STREAM_TIME:
            # Aligned to the epoch; due as soon as there is a record.
            timer = Timer(node, kind, interval_ms, callback, 0)
        else:
            timer = Timer(node, kind, interval_ms, callback, now_ms + interval_ms)
        if not self._is_resumed:
            number = sum(place.node == node for place in self._carried)
            self._carried[TimerPlace(node, number)] = timer
        self._push(timer)
        return timer

    def resume(
        self, timers: Mapping[TimerPlace, CarriedTimer], *, with_wall_clock: bool = False, with_cancelled: bool = False
    ) -> None:
        """End the initialization, and restore the due times in ``timers``; punctuations scheduled later are not saved.

        A punctuation whose kind or interval has changed is scheduled from the start.  So are wall-clock punctuations
        without ``with_wall_clock``, and cancelled ones without ``with_cancelled``.  Kafka Streams schedules all
        punctuations from the start.
        """
        self._is_resumed = True
        for place, before in timers.items():
            timer = self._carried.get(place)
            if timer is None or (timer.kind, timer.interval_ms) != (before.kind, before.interval_ms):
                continue
            if before.due_ms is None:
                timer.is_cancelled = timer.is_cancelled or with_cancelled
            elif with_wall_clock or timer.kind is PunctuationType.STREAM_TIME:
                # In the order of ``timers``, which decides between equal due times.
                timer.due_ms = before.due_ms
                timer.sequence = next(self._sequence)
        for kind, heap in self._heaps.items():
            self._heaps[kind] = []
            for _, _, timer in heap:
                self._add(timer)

    def carried(self) -> dict[TimerPlace, CarriedTimer]:
        """Return the punctuations to save in a checkpoint, in the order in which they fire; cancelled ones are last."""
        rows = sorted(
            self._carried.items(), key=lambda row: (row[1].is_cancelled, row[1].due_ms, row[1].sequence, row[0])
        )
        return {
            place: CarriedTimer(timer.kind, timer.interval_ms, None if timer.is_cancelled else timer.due_ms)
            for place, timer in rows
        }

    def uncarried(self) -> list[str]:
        """Return the nodes with punctuations that checkpoints do not include."""
        carried = set(map(id, self._carried.values()))
        return sorted({timer.node for timer in self._live() if id(timer) not in carried})

    def _live(self) -> Iterator[Timer]:
        for heap in self._heaps.values():
            yield from (timer for _, _, timer in heap if not timer.is_cancelled)

    def next_due_ms(self, kind: PunctuationType) -> int | None:
        """Return the due time of the next punctuation of a clock, or None if none is scheduled."""
        heap = self._heaps[kind]
        while heap and heap[0][2].is_cancelled:
            self._pop(kind)
        return heap[0][0] if heap else None

    def fire(self, kind: PunctuationType, now_ms: int, run: Callable[[Timer, int], None]) -> int:
        """Run the punctuations of a clock that are due at ``now_ms``, in order of due time, and return how many ran."""
        fired = 0
        while (due := self.next_due_ms(kind)) is not None and due <= now_ms:
            timer = self._pop(kind)
            run(timer, now_ms)
            fired += 1
            if not timer.is_cancelled:
                timer.move_past(now_ms)
                self._push(timer)
        if fired and self.recorder is not None and kind is PunctuationType.WALL_CLOCK_TIME:
            self.recorder.punctuated(now_ms)
        return fired

    def _push(self, timer: Timer) -> None:
        timer.sequence = next(self._sequence)
        self._add(timer)

    def _add(self, timer: Timer) -> None:
        self._heap.push(self._heaps[timer.kind], (timer.due_ms, timer.sequence, timer))

    def _pop(self, kind: PunctuationType) -> Timer:
        return self._heap.pop(self._heaps[kind])[2]
