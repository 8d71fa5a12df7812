"""Functions submitted by other threads, which a stream thread calls between two iterations of its loop."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from attrs import define, field

from streams.core.concurrency.threads import Answer, Threads

T = TypeVar("T")


@define(eq=False)
class CallQueue(Generic[T]):
    """A queue of functions that the owner's thread calls with the owner, of type ``T``, as the argument.

    The owner's thread calls ``run`` before it blocks, and ``wake`` interrupts the thread while it is blocked.
    """

    _threads: Threads
    _wake: Callable[[], None]
    #: Whether the owner's thread may wait; ``run`` sets it, and the owner clears it after the wait.
    may_wait: bool = True
    #: The error for calls after the owner has ended, or None while it runs.
    _error: Exception | None = None
    _pending: "deque[tuple[Callable[[T], Any], Answer[Any], bool]]" = field(factory=deque)

    def submit(self, function: Callable[[T], Any], *, is_read: bool = False) -> Answer[Any]:
        """Queue a function, and return an ``Answer`` for its result, which fails if the queue is closed first.

        ``is_read`` means that the function does not change the owner.
        """
        answer: Answer[Any] = Answer(self._threads)
        self._pending.append((function, answer, is_read))
        # The order matters: a function that comes before the owner's next ``run`` is called by it without a wake-up.
        if self.may_wait:
            self._wake()
        if self._error is not None:
            # The owner may have run its queue for the last time before this call.
            self.close(self._error)
        return answer

    def run(self, owner: T) -> bool:
        """Call all pending functions with ``owner``, and return whether any of them may have changed the owner."""
        self.may_wait = True
        has_changes = False
        while self._pending:
            function, answer, is_read = self._pending.popleft()
            answer.settle(partial(function, owner))
            has_changes |= not is_read
        return has_changes

    def close(self, error: Exception) -> None:
        """Close the queue: pending functions, and functions submitted later, fail with ``error``."""
        self._error = error
        while True:
            try:
                _, answer, _ = self._pending.popleft()
            except IndexError:
                return
            answer.refuse(error)
