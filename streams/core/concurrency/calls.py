"""Calls of async functions: the event loops that run them, and the limits of concurrency and order.

A node of a task submits calls in batches, and takes the finished ones when its task runs next.  Live threads run calls
on an event loop in a second thread; a simulation runs them on virtual time; the test driver, bounded runs and replays
wait for them.  This module imports only other modules of ``core``.
"""

import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from attrs import define, field

from streams.core.clock import Clock, SystemClock
from streams.core.concurrency.call_plan import Call as Call
from streams.core.concurrency.call_plan import CallOrder as CallOrder
from streams.core.concurrency.call_plan import CallOwner as CallOwner
from streams.core.concurrency.call_plan import CallPlan as CallPlan
from streams.core.concurrency.call_threads import CallThreads
from streams.core.concurrency.threads import INTERRUPTIONS

if TYPE_CHECKING:
    import asyncio

    from streams.core.concurrency.virtual_loop import VirtualLoop

log = logging.getLogger(__name__)

#: Maximum wait in seconds for cancelled calls when a loop is closed.
_CLOSE_S = 2


@define
class _Ending:
    """Whether the event loop of some calls is being closed, so that no further call starts."""

    has_begun: bool = False


@define(eq=False)
class CallGate:
    """Runs the calls of one node for all tasks of a thread, at most ``concurrency`` at a time.

    With order per key, calls with the same key (a lane) run one after another.  A worker runs one call after another,
    so that under load a call does not need a separate asyncio task.
    """

    plan: CallPlan
    _loop: "asyncio.AbstractEventLoop"
    #: Called after each finished call, in the thread of the event loop.
    _finished: Callable[[], None]
    _ending: _Ending
    #: In simulations: returns the delay in seconds before a call.
    _delay: Callable[[], float] | None = None
    _waiting: "deque[Call]" = field(factory=deque)
    #: The calls that wait for the running call of their lane, by lane; None if no call waits.
    _lanes: "dict[Any, deque[Call] | None]" = field(factory=dict)
    _running: "dict[asyncio.Task[None], Call]" = field(factory=dict)
    _workers: int = 0
    _is_serial: bool = field(init=False)
    _function: Callable[[Call], Awaitable[Any]] = field(init=False)
    _threads: CallThreads | None = None
    #: Returns the current time in seconds if the time of the event loop may be behind it; otherwise None.
    _now_s: Callable[[], float] | None = None

    def __attrs_post_init__(self) -> None:
        plan, loop = self.plan, self._loop
        from streams.core.concurrency.virtual_loop import VirtualLoop

        if plan.in_threads and not isinstance(loop, VirtualLoop):
            self._threads = CallThreads(loop, plan.concurrency)
        self._is_serial = plan.order == "key"
        self._function = plan.bind(loop, self._threads)

    def age_ms(self, call: Call) -> int:
        """Return the time in milliseconds for which a started call has been in flight; may be called by any thread."""
        return (
            0 if call.started_s is None else max(0, round(((self._now_s or self._loop.time)() - call.started_s) * 1000))
        )

    def close(self) -> None:
        """End the threads of the node's calls."""
        if self._threads is not None:
            self._threads.close()

    def accept(self, calls: Iterable[Call]) -> None:
        """Start calls, or queue them until earlier calls have finished."""
        lanes, waiting = self._lanes, self._waiting
        for call in calls:
            if call.owner.is_closed:
                continue  # The node was closed before the event loop ran.
            lane = call.lane
            if lane is not None and self._is_serial:
                if lane in lanes:
                    later = lanes[lane]
                    if later is None:
                        lanes[lane] = deque((call,))
                    else:
                        later.append(call)
                    continue
                lanes[lane] = None
            waiting.append(call)
        self._start_workers()

    def cancel(self, owner: CallOwner) -> None:
        for task, call in list(self._running.items()):
            if call.owner is owner:
                task.cancel()
        for call in [call for call in self._waiting if call.owner is owner]:
            self._waiting.remove(call)
            self._end_lane(call)

    def _start_workers(self) -> None:
        if self._ending.has_begun:
            return
        for _ in range(min(len(self._waiting), self.plan.concurrency - self._workers)):
            self._workers += 1
            self._loop.create_task(self._work()).add_done_callback(_retrieve)

    async def _work(self) -> None:
        """Run one call after another until no call is queued."""
        from asyncio import current_task, sleep

        waiting, running, function, finished = self._waiting, self._running, self._function, self._finished
        task: Any = current_task()
        now_s = self._loop.time
        try:
            while waiting:
                call = running[task] = waiting.popleft()
                call.started_s = started_s = now_s()
                try:
                    if self._delay is not None:
                        await sleep(self._delay())
                    call.result = await function(call)
                except BaseException as error:
                    if isinstance(error, GeneratorExit) and not self._loop.is_running():
                        raise  # The loop is closed.
                    # Raised or handled by the task, as any failure of user code.
                    call.error = error
                call.took_s = now_s() - started_s
                call.is_done = True
                self._end_lane(call)
                if not call.owner.is_closed:
                    call.owner.done.append(call)
                    finished()
                if isinstance(call.error, INTERRUPTIONS):
                    raise call.error
                if task.cancelling():
                    break  # A cancellation must not reach the next call.
        finally:
            running.pop(task, None)
            self._workers -= 1
        self._start_workers()

    def _end_lane(self, call: Call) -> None:
        """Let the next call with the same key run after a call has ended; calls of closed nodes are skipped."""
        lanes = self._lanes
        lane = call.lane
        if lane is None or not self._is_serial:
            return
        later = lanes[lane]
        while later:
            following = later.popleft()
            if not following.owner.is_closed:
                self._waiting.append(following)
                return
        del lanes[lane]


def _retrieve(ended: "asyncio.Task[None]") -> None:
    """Mark the interruption that ended a worker as seen: the loop has raised it, so asyncio must not log it, too."""
    if not ended.cancelled():
        ended.exception()


class PolledLoop(Protocol):
    """Runs the async calls of tasks beside the thread that runs the tasks, which polls for finished calls.

    Only that thread uses the loop.
    """

    def gate(self, name: str, plan: CallPlan) -> CallGate:
        """Return the ``CallGate`` of a node, which the node's tasks on this loop share."""
        ...

    def submit(self, gate: CallGate, calls: list[Call]) -> None:
        """Start calls on the event loop, or queue them."""
        ...

    def cancel(self, gate: CallGate, owner: CallOwner) -> None:
        """Cancel the calls of a node, because the node is closed."""
        ...

    def step(self) -> None:
        """Run due work, unless the loop has its own thread."""
        ...

    def take_news(self) -> bool:
        """Return whether calls have finished since the last ``take_news``.

        Only the stream thread may call this, since finished calls of any of its tasks are reported once.
        """
        ...

    def wait_ms(self, timeout_ms: int) -> int:
        """Return how many milliseconds the thread may wait for other events, at most ``timeout_ms``.

        The loop wakes the thread when a call finishes before that.
        """
        ...

    def close(self) -> None:
        """Cancel all calls and close the event loop; idempotent."""
        ...


@define(eq=False, slots=False)
class _Gates:
    """The event loop, which is created on first use, and the ``CallGate`` of each node."""

    make: "Callable[[], asyncio.AbstractEventLoop]"
    finished: Callable[[], None]
    delay: Callable[[], float] | None = None
    now_s: Callable[[], float] | None = None
    loop: "asyncio.AbstractEventLoop | None" = None
    _ending: _Ending = field(factory=_Ending)
    _gates: dict[str, CallGate] = field(factory=dict)
    _finalizer: "weakref.finalize[Any, Any] | None" = None

    def of(self, name: str, plan: CallPlan) -> CallGate:
        """Return the ``CallGate`` of a node, which is created on first use."""
        if self.loop is None:
            self.loop = self.make()
            # The finalizer closes the loop of a test driver that was not closed.
            self._finalizer = weakref.finalize(self, _close, self.loop, self._ending)
        if name not in self._gates:
            self._gates[name] = CallGate(plan, self.loop, self.finished, self._ending, self.delay, now_s=self.now_s)
        return self._gates[name]

    def close(self) -> None:
        """Cancel all calls, run their cleanup, and close the event loop."""
        self.loop = None
        for gate in self._gates.values():
            gate.close()
        if self._finalizer is not None:
            self._finalizer()

    def abandon(self) -> None:
        """Drop all pending calls without waiting for their results, and close the event loop."""
        loop = self.loop
        self.loop = None
        finalizer = self._finalizer
        if loop is not None and finalizer is not None and not loop.is_closed():
            self._ending.has_begun = True
            finalizer.detach()
            _abandon(loop)


def _abandon(loop: "asyncio.AbstractEventLoop") -> None:
    """Close an event loop, and close the coroutines of its tasks directly, since nothing awaits the tasks."""
    from asyncio import all_tasks

    for task in all_tasks(loop):
        # As asyncio itself does for tasks that it drops.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine: Any = task.get_coro()
        try:
            coroutine.close()
        except RuntimeError:
            log.debug("an async function awaits something in its cleanup, which is left out")
    loop.close()


def _close(loop: "asyncio.AbstractEventLoop", ending: _Ending) -> None:
    from asyncio import all_tasks, wait

    if loop.is_running():
        return  # The process ends.
    ending.has_begun = True
    with _entered():
        pending = all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(wait(pending, timeout=_CLOSE_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextmanager
def _entered() -> Iterator[None]:
    """Allow an event loop to run within a callback of another event loop, for example in an async test."""
    from asyncio import _get_running_loop, _set_running_loop

    before = _get_running_loop()
    _set_running_loop(None)
    try:
        yield
    finally:
        _set_running_loop(before)


class ThreadedLoop:
    """The event loop of a live stream thread; it runs in a second thread, which starts with the first node.

    ``wake`` wakes the stream thread when a call has finished.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._gates = _Gates(self._start, self._on_finished)
        self._wake = wake
        self._thread: threading.Thread | None = None
        self._is_awaited = False
        self._has_news = False

    def gate(self, name: str, plan: CallPlan) -> CallGate:
        return self._gates.of(name, plan)

    def submit(self, gate: CallGate, calls: list[Call]) -> None:
        """Pass calls to the event loop in the second thread."""
        gate._loop.call_soon_threadsafe(gate.accept, calls)

    def cancel(self, gate: CallGate, owner: CallOwner) -> None:
        if self._gates.loop is not None:
            self._gates.loop.call_soon_threadsafe(gate.cancel, owner)

    def step(self) -> None:
        """Do nothing: the second thread runs the calls."""

    def take_news(self) -> bool:
        had_news = self._has_news
        self._has_news = False
        self._is_awaited = False
        return had_news

    def wait_ms(self, timeout_ms: int) -> int:
        """Return ``timeout_ms``, or 0 if calls have finished."""
        if self._gates.loop is None:
            return timeout_ms
        self._is_awaited = True
        # The order matters: a call that finishes in between is seen here, or wakes the thread.
        return 0 if self._has_news else timeout_ms

    def close(self) -> None:
        """Stop the second thread, and close its event loop."""
        loop = self._gates.loop
        thread = self._thread
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_CLOSE_S)
            if thread.is_alive():
                log.warning("%s: an async function blocks its event loop; it is left behind", thread.name)
                return
        self._gates.close()

    def _start(self) -> "asyncio.AbstractEventLoop":
        loop = _real_loop()
        name = f"{threading.current_thread().name}-calls"
        self._thread = threading.Thread(target=_run, args=(loop,), name=name, daemon=True)
        self._thread.start()
        return loop

    def _on_finished(self) -> None:
        self._has_news = True
        if self._is_awaited:
            self._is_awaited = False
            self._wake()


def _run(loop: "asyncio.AbstractEventLoop") -> None:
    """Run an event loop until it is stopped; an interruption or exit that a call raises only reaches its task."""
    is_interrupted = True
    while is_interrupted:
        is_interrupted = False
        try:
            loop.run_forever()
        except (*INTERRUPTIONS, SystemExit):
            is_interrupted = True


class BlockingLoop:
    """An event loop that runs only in ``finish``; with ``is_virtual`` it runs on virtual time, so sleeps take no time.

    The nodes themselves wait for their calls, so results do not depend on the speed of calls.
    """

    def __init__(self, *, is_virtual: bool = False) -> None:
        self._gates = _Gates(_virtual_loop if is_virtual else _real_loop, self._on_finished)
        self._is_done: Callable[[], bool] = bool

    def gate(self, name: str, plan: CallPlan) -> CallGate:
        return self._gates.of(name, plan)

    def submit(self, gate: CallGate, calls: list[Call]) -> None:
        """Pass calls to the event loop, which runs them in ``finish``."""
        gate._loop.call_soon(gate.accept, calls)

    def cancel(self, gate: CallGate, owner: CallOwner) -> None:
        gate.cancel(owner)

    def finish(self, is_done: Callable[[], bool]) -> None:
        """Run calls until ``is_done()`` is True."""
        loop = self._gates.loop
        if loop is None or is_done():
            return
        self._is_done = is_done
        try:
            while not is_done():
                # An exit that a task of a call raises is the result of that task, too.
                with _entered(), suppress(SystemExit):
                    loop.run_forever()
        finally:
            # Calls that are cancelled later must not stop the loop.
            self._is_done = bool

    def close(self) -> None:
        self._gates.close()

    def _on_finished(self) -> None:
        if self._is_done() and self._gates.loop is not None:
            self._gates.loop.stop()


class SteppedLoop:
    """An event loop that uses the time of a given clock and runs only in ``step``, up to the current time.

    In a simulation, ``rng`` delays calls at random, and ``on_repeated`` is called with the number of calls that are
    repeated after a restart.  If ``is_crashed`` returns True, ``close`` does nothing, and ``abandon`` ends the loop.
    """

    def __init__(
        self,
        clock: Clock,
        rng: Random | None = None,
        on_repeated: Callable[[int], None] | None = None,
        is_crashed: Callable[[], bool] = bool,
    ) -> None:
        self._clock = clock
        self._is_crashed = is_crashed
        self._on_repeated = on_repeated
        self._gates = _Gates(
            _virtual_loop,
            self._on_finished,
            None if rng is None else _delays(rng),
            lambda: clock.monotonic_ms() / 1000,
        )
        self._has_news = False
        self._new: list[Callable[[], None]] = []

    def gate(self, name: str, plan: CallPlan) -> CallGate:
        return self._gates.of(name, plan)

    def submit(self, gate: CallGate, calls: list[Call]) -> None:
        """Pass calls to the event loop, which runs them in the next step."""
        if self._on_repeated is not None:
            self._on_repeated(sum(call.is_stored for call in calls))
        self._new.append(partial(gate.accept, calls))

    def cancel(self, gate: CallGate, owner: CallOwner) -> None:
        if self._gates.loop is not None:
            gate.cancel(owner)

    def step(self) -> None:
        """Run everything that is due at the current time."""
        loop = self._loop
        if loop is not None:
            now = self._clock.monotonic_ms() / 1000
            if not self._new and not loop.is_due(now):
                return
            with _entered():
                loop.run_due(now)
                for accept in self._new:
                    loop.call_soon(accept)
                if self._new:
                    loop.run_due(now)
        self._new.clear()

    def take_news(self) -> bool:
        had_news = self._has_news
        self._has_news = False
        return had_news

    def wait_ms(self, timeout_ms: int) -> int:
        """Return the milliseconds until a sleep of a call ends, at most ``timeout_ms``; 0 if calls have finished."""
        loop = self._loop
        if self._new or self._has_news:
            return 0
        if loop is None or loop.due is None:
            return timeout_ms
        wait_ms = math.ceil(loop.due * 1000 - 1e-6) - self._clock.monotonic_ms()
        return max(0, min(timeout_ms, wait_ms))

    def close(self) -> None:
        if not self._is_crashed():
            self._gates.close()

    def abandon(self) -> None:
        """Drop all calls, as when their process has crashed, and close the event loop; idempotent.

        Cleanup code of async functions runs now, up to its first ``await``.
        """
        self._gates.abandon()

    @property
    def _loop(self) -> "VirtualLoop | None":
        return cast("VirtualLoop | None", self._gates.loop)

    def _on_finished(self) -> None:
        self._has_news = True


#: The loop of a task: the nodes wait for their calls, or the thread polls for finished calls.
CallLoop: TypeAlias = BlockingLoop | PolledLoop


def _real_loop() -> "asyncio.AbstractEventLoop":
    """Return a new event loop; imported here, since most applications make no calls, and asyncio is slow to import."""
    from asyncio import new_event_loop

    loop = new_event_loop()
    clock = SystemClock()
    # Its own clock stands still while ``freezegun`` freezes time, so that no sleep or timeout would end.
    loop.time = lambda: clock.monotonic_ns() / 1e9  # type: ignore[method-assign]
    return loop


def _virtual_loop() -> "asyncio.AbstractEventLoop":
    """Return a new event loop on virtual time."""
    from streams.core.concurrency.virtual_loop import VirtualLoop

    return VirtualLoop()


def _delays(rng: Random) -> Callable[[], float]:
    """Return a function that returns random delays in seconds: mostly a few milliseconds, sometimes long."""
    return lambda: rng.choice((0, 1, 5, 20, 20, 100, 100, 700, 3_000)) / 1000
