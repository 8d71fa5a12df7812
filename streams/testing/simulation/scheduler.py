"""Virtual time and simulated threads: one heap of events, and a coroutine for every thread.

A simulated thread runs until it waits for a response, a flag or a time; then the scheduler executes the earliest event.
Nothing runs concurrently, and time advances only while all threads wait, so the seed determines the run. Of the
other packages, this module imports only ``core``.
"""

import heapq
from collections.abc import Callable
from itertools import count

import greenlet
from attrs import define, field

from streams.core.clock import VirtualClock
from streams.core.concurrency.threads import Signal, ThreadKilled, Worker


@define(eq=False)
class Scheduler:
    """A queue of events, ordered by time; events at the same time are in the order in which they were scheduled."""

    clock: VirtualClock = field(factory=VirtualClock)
    #: The virtual time in epoch milliseconds.
    now_ms: int = 0
    _events: list[tuple[int, int, Callable[[], None]]] = field(factory=list)
    _numbers: "count[int]" = field(factory=count)
    _hub: greenlet.greenlet = field(factory=greenlet.getcurrent)

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        """Schedule a call at a virtual time, or immediately if this time has passed."""
        now_ms = self.now_ms
        heapq.heappush(self._events, (time_ms if time_ms > now_ms else now_ms, next(self._numbers), action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Schedule a call after a delay in milliseconds."""
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._numbers), action))

    def run_until(self, time_ms: int) -> None:
        """Execute the events up to a virtual time, and advance the clock to it."""
        events = self._events
        while events and events[0][0] <= time_ms:
            at_ms, _, action = heapq.heappop(events)
            if at_ms > self.now_ms:
                self._advance_to(at_ms)
            action()
        self._advance_to(time_ms)

    def _advance_to(self, time_ms: int) -> None:
        self.clock.advance(time_ms - self.now_ms)
        self.now_ms = time_ms

    def switch(self) -> None:
        """Suspend the current coroutine until an event resumes it."""
        assert greenlet.getcurrent() is not self._hub, "only a simulated thread may wait"
        self._hub.switch()


#: Number of polls in vain after which progress is compared.
_SPIN_POLLS = 500


@define(eq=False)
class SpinDetector:
    """Detects threads that busy-loop: they poll without waiting, although no message arrives or is processed.

    A live thread would use a whole CPU core meanwhile.
    """

    #: Return the number of records processed so far: while it grows, polls are not in vain.
    progress: Callable[[], int]
    on_spin: Callable[[], None]
    #: The number of polls in vain of each coroutine since it last waited or received something.
    _polls: dict[greenlet.greenlet, int] = field(factory=dict)
    #: The progress when it was last compared.
    _before: dict[greenlet.greenlet, int] = field(factory=dict)

    def note_poll(self) -> None:
        """Count a poll of the current coroutine that did not wait and returned nothing."""
        coroutine = greenlet.getcurrent()
        count = self._polls[coroutine] = self._polls.get(coroutine, 0) + 1
        if count % _SPIN_POLLS:
            return
        progress = self.progress()
        if count > _SPIN_POLLS and progress == self._before[coroutine]:
            self.on_spin()
        self._before[coroutine] = progress

    def note_effect(self) -> None:
        """Reset the count of polls: the current coroutine has received a message, or waits."""
        self._polls[greenlet.getcurrent()] = 0


@define(eq=False)
class SimProcess:
    """The coroutines of one simulated process; a crash ends all of them at once."""

    scheduler: Scheduler
    name: str
    spins: SpinDetector
    is_alive: bool = True
    #: Virtual time until which no coroutine of the process runs.
    stalled_until_ms: int = 0
    _coroutines: dict[greenlet.greenlet, None] = field(factory=dict)
    _killing: bool = False

    def resume(self, coroutine: greenlet.greenlet) -> None:
        """Resume a coroutine, later if the process is stalled, never if it has crashed."""
        if not self.is_alive or coroutine.dead:
            return
        if self.stalled_until_ms > self.scheduler.now_ms:
            self.scheduler.at(self.stalled_until_ms, lambda: self.resume(coroutine))
            return
        coroutine.switch()

    def spawn(self, target: Callable[[], None]) -> greenlet.greenlet:
        """Start a coroutine, which runs first in a later event."""

        def run() -> None:
            try:
                target()
            except ThreadKilled:
                pass
            finally:
                self._coroutines.pop(coroutine, None)

        coroutine = greenlet.greenlet(run, self.scheduler._hub)
        self._coroutines[coroutine] = None
        self.scheduler.after(0, lambda: self.resume(coroutine))
        return coroutine

    def kill(self) -> None:
        """Crash the process: its coroutines are terminated, and their cleanup has no effects on the world."""
        self.is_alive = False
        for coroutine in list(self._coroutines):
            if coroutine:
                coroutine.throw(ThreadKilled())
        self._coroutines.clear()

    def wait(self, waiter: "Waiter", timeout_ms: int | None) -> bool:
        """Wait until the waiter is woken or the timeout expires; return whether the waiter was woken.

        Raises:
            ThreadKilled: the process has crashed.
        """
        if not self.is_alive:
            raise ThreadKilled
        scheduler = self.scheduler
        coroutine = greenlet.getcurrent()
        is_over = False

        def go_on() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self.resume(coroutine)

        waiter.add(lambda: scheduler.after(0, go_on))
        if timeout_ms is not None:
            scheduler.after(max(0, timeout_ms), go_on)
        scheduler.switch()
        is_over = True
        if not self.is_alive:
            raise ThreadKilled
        return waiter.take()


@define(eq=False)
class Waiter:
    """A flag on which one coroutine waits; it is woken at most once per wait."""

    _is_woken: bool = False
    _wake: Callable[[], None] | None = None

    def add(self, wake: Callable[[], None]) -> None:
        """Set the function that wakes the waiting coroutine; it is called immediately if the flag is set."""
        self._wake = wake
        if self._is_woken:
            wake()

    def wake(self) -> None:
        """Set the flag, and wake the waiting coroutine, if any."""
        self._is_woken = True
        if self._wake is not None:
            self._wake()

    def take(self) -> bool:
        """Clear the flag; return whether it was set."""
        was_woken = self._is_woken
        self._is_woken = False
        self._wake = None
        return was_woken


@define(eq=False)
class SimSignal:
    """A flag that simulated threads set and wait for; implements ``core.threads.Signal``."""

    _process: SimProcess
    _is_set: bool = False
    _waiters: list[Waiter] = field(factory=list)

    def set(self) -> None:
        self._is_set = True
        for waiter in self._waiters:
            waiter.wake()

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout_ms: int | None = None) -> bool:
        if not self._is_set:
            self._process.spins.note_effect()
            waiter = Waiter()
            self._waiters.append(waiter)
            try:
                self._process.wait(waiter, timeout_ms)
            finally:
                self._waiters.remove(waiter)
        return self._is_set


@define(eq=False)
class SimWorker:
    """A simulated thread, which is a coroutine; implements ``core.threads.Worker``."""

    _coroutine: greenlet.greenlet
    _ended: SimSignal

    @property
    def is_alive(self) -> bool:
        """Whether the thread has not ended."""
        return not self._ended.is_set()

    @property
    def is_current(self) -> bool:
        """Whether this is the calling thread."""
        return greenlet.getcurrent() is self._coroutine

    def join(self, timeout_ms: int | None = None) -> bool:
        return self._ended.wait(timeout_ms)

    def stack(self) -> str:
        """Return "": stacks of simulated threads are not available."""
        return ""


@define(eq=False)
class SimThreads:
    """Starts simulated threads in a process; implements ``core.threads.Threads``."""

    _process: SimProcess

    def start(self, name: str, target: Callable[[], None]) -> Worker:
        """Start a thread: a coroutine that calls ``target``."""
        ended = SimSignal(self._process)

        def run() -> None:
            try:
                target()
            finally:
                ended.set()

        return SimWorker(self._process.spawn(run), ended)

    def signal(self) -> Signal:
        return SimSignal(self._process)
