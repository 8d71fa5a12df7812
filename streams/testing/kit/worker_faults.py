"""A fault of a worker: a step at which it is killed, or fails with an error."""

import os
import signal
from enum import StrEnum
from typing import Generic, TypeVar

from attrs import define, field

from streams.core.concurrency.threads import SystemThreads

S = TypeVar("S", bound=StrEnum)


class KilledError(Exception):
    """Ends a worker as if its process were killed: later calls of the connector have no effect."""


class PassingError(Exception):
    """An error that the worker retries."""


@define(eq=False)
class WorkerFault(Generic[S]):
    """A step and the number of its occurrence; ``is_dead`` if the worker was killed in this process."""

    step: S
    occurrence: int
    #: Whether the process kills itself, instead of raising ``KilledError``.
    is_process: bool = False
    has_happened: bool = field(default=False, init=False)
    is_dead: bool = field(default=False, init=False)

    def is_due(self, point: str, step_point: str) -> bool:
        """Return whether the fault is due at a point of the work, and note that it happens; ``step_point`` is its own.

        Raises:
            KilledError: the worker was killed before.
        """
        self.check()
        if self.has_happened or step_point != point:
            return False
        self.occurrence -= 1
        self.has_happened = self.occurrence <= 0
        return self.has_happened

    def check(self) -> None:
        """Check that the worker was not killed.

        Raises:
            KilledError: it was.
        """
        if self.is_dead:
            raise KilledError("the worker was killed")

    def kill(self) -> None:
        """Kill the process, or end the worker.

        Raises:
            KilledError: the worker has no process of its own.
        """
        if self.is_process:
            os.kill(os.getpid(), signal.SIGKILL)
        self.is_dead = True
        raise KilledError(f"killed {self.step}")

    def kill_later(self, delay_ms: int) -> None:
        """Kill the process in a moment."""

        def kill() -> None:
            SystemThreads().signal().wait(delay_ms)
            os.kill(os.getpid(), signal.SIGKILL)

        SystemThreads().start("streams-kit", kill)

    def is_retriable(self, error: Exception, *, otherwise: bool) -> bool:
        """Whether an error is a ``PassingError``, or else retriable for the connector."""
        return not self.is_dead and (isinstance(error, PassingError) or otherwise)
