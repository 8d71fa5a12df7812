"""An asyncio event loop on virtual time.

This module imports only ``core.errors``.
"""

import asyncio
import selectors
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from streams.core.errors import StreamsError

#: Tolerance for times as floating-point numbers, in seconds.
_TICK_S = 1e-9
#: The wait in seconds for I/O, in real time.
_IO_STEP_S = 0.001


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which passes while all calls sleep; calls with real I/O take real time."""

    def __init__(self) -> None:
        self._now = 0.0
        #: Time of the next timer after ``run_due``, None if there is none.
        self.due: float | None = None
        #: The end of the current step, None outside of steps.
        self._until: float | None = None
        self._jobs = 0
        self._events = _IdleSelector(self._idle)
        super().__init__(self._events)
        #: Number of file descriptors that the event loop itself uses.
        self._own = len(self._events.get_map())

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def is_due(self, time: float) -> bool:
        """Whether ``run_due(time)`` may have something to run: a callback, a timer or I/O."""
        return bool(self._ready) or (self.due is not None and self.due <= time + _TICK_S) or self._has_io  # type: ignore[attr-defined]

    def run_due(self, until: float) -> None:
        """Run everything that is due by the time ``until``, each callback at its scheduled time, and then stop."""
        # A run that is interrupted is continued by the next one.
        self._until = self.due = max(until, self._now)
        is_stopped = False
        try:
            while not is_stopped:
                # An exit that a task of a call raises is the result of that task, too.
                with suppress(SystemExit):
                    self.run_forever()
                    is_stopped = True
        finally:
            self._now = self._until
            self._until = None

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Run a function in a thread; the function takes real time, not virtual time."""
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._end_job)
        return future

    @property
    def _has_io(self) -> bool:
        return self._jobs > 0 or len(self._events.get_map()) > self._own

    def _end_job(self, _: Any) -> None:
        self._jobs -= 1

    def _idle(self, timeout: float | None) -> float:
        """Return the seconds to wait for I/O when nothing is ready; ``timeout`` is the time until the next timer."""
        has_io = self._has_io
        if self._until is not None and (timeout is None or self._now + timeout > self._until + _TICK_S):
            step = min(timeout or _IO_STEP_S, _IO_STEP_S) if has_io else timeout
            self.due = None if step is None else max(self._now, self._until) + step if has_io else self._now + step
            self.stop()
            return 0
        if self._until is not None:
            self._now += timeout or 0
            return 0
        if has_io:
            # Real time, in steps: the I/O may be over without an event, as for a connection that is kept.
            step = min(_IO_STEP_S, timeout or _IO_STEP_S)
            self._now += step
            return step
        if timeout is None:
            raise StreamsError(
                "a call of an async function waits for something that never happens: no timer, no I/O and no other "
                "call is left that could end the wait"
            )
        self._now += timeout
        return 0


class _IdleSelector(selectors.DefaultSelector):
    """A selector that calls ``idle`` to determine how long to wait when nothing is ready."""

    def __init__(self, idle: Callable[[float | None], float]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> Any:
        """Return the ready events; ``timeout`` is the time until the next timer in seconds, None if there is none."""
        if timeout is None or timeout > 0:
            events = super().select(0)
            if events:
                return events
            timeout = self._idle(timeout)
        return super().select(timeout)
