"""Functions submitted by other threads, which a stream thread calls between two iterations of its loop."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from attrs import define, field

from streams.core.threads import Answer, Threads

T = TypeVar("T")


@define(eq=False)
class CallQueue(Generic[T]):
    """A queue of functions that the owner's thread calls with the owner, a ``T``, as argument."""

    _threads: Threads
    #: The error for calls after the owner has ended, or None while it runs.
    _error: Exception | None = None
    _pending: "deque[tuple[Callable[[T], Any], Answer[Any]]]" = field(factory=deque)

    def submit(self, function: Callable[[T], Any]) -> Answer[Any]:
        """Add a function to call, and return its future result, which is an error if the owner has ended."""
        answer: Answer[Any] = Answer(self._threads)
        self._pending.append((function, answer))
        if self._error is not None:
            # The owner may have run its queue for the last time before this call.
            self.close(self._error)
        return answer

    def run(self, owner: T) -> bool:
        """Execute all pending functions; return whether there were any."""
        has_any = bool(self._pending)
        while self._pending:
            function, answer = self._pending.popleft()
            answer.settle(partial(function, owner))
        return has_any

    def close(self, error: Exception) -> None:
        """Fail all pending and future calls with this error."""
        self._error = error
        while True:
            try:
                _, answer = self._pending.popleft()
            except IndexError:
                return
            answer.refuse(error)
