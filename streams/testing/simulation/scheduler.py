"""Virtual time and simulated threads: one heap of events, and a coroutine for every thread.

A simulated thread runs until it waits for a response, a flag or a time; the scheduler then runs the earliest
event. Nothing runs concurrently, and time passes only while threads wait, so the seed determines the run. Imports
core.
"""

import heapq
from collections.abc import Callable
from itertools import count

import greenlet
from attrs import define, field

from streams.core.clock import VirtualClock
from streams.core.threads import Signal, ThreadKilled, Worker


@define(eq=False)
class Scheduler:
    """A queue of events, ordered by time and then by when they were scheduled."""

    clock: VirtualClock = field(factory=VirtualClock)
    _events: list[tuple[int, int, Callable[[], None]]] = field(factory=list)
    _numbers: "count[int]" = field(factory=count)
    _hub: greenlet.greenlet = field(factory=greenlet.getcurrent)

    @property
    def now_ms(self) -> int:
        """Return the virtual time."""
        return self.clock.now_ms()

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        """Schedule a call at a time."""
        now_ms = self.clock.now_ms()
        heapq.heappush(self._events, (time_ms if time_ms > now_ms else now_ms, next(self._numbers), action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Schedule a call after a delay."""
        heapq.heappush(self._events, (self.clock.now_ms() + delay_ms, next(self._numbers), action))

    def run_until(self, time_ms: int) -> None:
        """Run the events up to a time."""
        events, clock = self._events, self.clock
        now_ms = clock.now_ms()
        while events and events[0][0] <= time_ms:
            at_ms, _, action = heapq.heappop(events)
            if at_ms > now_ms:
                clock.advance_to(at_ms)
                now_ms = at_ms
            action()
        clock.advance_to(time_ms)

    def switch(self) -> None:
        """Suspend the running coroutine until an event resumes it."""
        assert greenlet.getcurrent() is not self._hub, "only a simulated thread may wait"
        self._hub.switch()


@define(eq=False)
class SimProcess:
    """The coroutines of one simulated process; a crash ends all of them at once."""

    scheduler: Scheduler
    name: str
    is_alive: bool = True
    #: No coroutine of the process runs before this time.
    stalled_until_ms: int = 0
    _coroutines: dict[greenlet.greenlet, None] = field(factory=dict)
    _killing: bool = False

    def resume(self, coroutine: greenlet.greenlet) -> None:
        """Resume a coroutine, with a delay if the process is stalled; do nothing if the process has crashed."""
        if not self.is_alive or coroutine.dead:
            return
        if self.stalled_until_ms > self.scheduler.now_ms:
            self.scheduler.at(self.stalled_until_ms, lambda: self.resume(coroutine))
            return
        coroutine.switch()

    def spawn(self, target: Callable[[], None]) -> greenlet.greenlet:
        """Start a coroutine, which first runs in a later event."""

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
        """Crash the process: its coroutines are ended, and their cleanup has no effects."""
        self.is_alive = False
        for coroutine in list(self._coroutines):
            if coroutine:
                coroutine.throw(ThreadKilled())
        self._coroutines.clear()

    def wait(self, waiter: "Waiter", timeout_ms: int | None) -> bool:
        """Wait until the waiter is woken or the timeout expires; return whether it was woken."""
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
    """A wake-up flag for a coroutine, which is woken at most once for each wait."""

    _is_woken: bool = False
    _wake: Callable[[], None] | None = None

    def add(self, wake: Callable[[], None]) -> None:
        """Add a coroutine to wake; it is woken immediately if ``wake`` was called before."""
        self._wake = wake
        if self._is_woken:
            wake()

    def wake(self) -> None:
        """Wake the waiting coroutine, or else the next coroutine that waits."""
        self._is_woken = True
        if self._wake is not None:
            self._wake()

    def take(self) -> bool:
        """Reset the flag; return whether it was set."""
        was_woken, self._is_woken, self._wake = self._is_woken, False, None
        return was_woken


@define(eq=False)
class SimSignal:
    """A flag between simulated threads."""

    _process: SimProcess
    _is_set: bool = False
    _waiters: list[Waiter] = field(factory=list)

    def set(self) -> None:
        """Set the flag."""
        self._is_set = True
        for waiter in self._waiters:
            waiter.wake()

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._is_set

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the flag is set or the timeout expires; return whether the flag is set."""
        if not self._is_set:
            waiter = Waiter()
            self._waiters.append(waiter)
            try:
                self._process.wait(waiter, timeout_ms)
            finally:
                self._waiters.remove(waiter)
        return self._is_set


@define(eq=False)
class SimWorker:
    """A simulated thread."""

    _coroutine: greenlet.greenlet
    _ended: SimSignal

    @property
    def is_alive(self) -> bool:
        """Return whether the thread has not ended."""
        return not self._ended.is_set()

    @property
    def is_current(self) -> bool:
        """Return whether this thread is the calling thread."""
        return greenlet.getcurrent() is self._coroutine

    def join(self, timeout_ms: int | None = None) -> bool:
        """Wait until the thread ends or the timeout expires; return whether the thread has ended."""
        return self._ended.wait(timeout_ms)

    def stack(self) -> str:
        """Return "": the position of a simulated thread is not recorded."""
        return ""


@define(eq=False)
class SimThreads:
    """Starts simulated threads in a process; implements ``core.threads.Threads``."""

    _process: SimProcess

    def start(self, name: str, target: Callable[[], None]) -> Worker:
        """Run a function as a coroutine."""
        ended = SimSignal(self._process)

        def run() -> None:
            try:
                target()
            finally:
                ended.set()

        return SimWorker(self._process.spawn(run), ended)

    def signal(self) -> Signal:
        """Return a new flag."""
        return SimSignal(self._process)
