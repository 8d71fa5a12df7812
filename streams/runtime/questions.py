"""Calls from other threads that a stream thread executes between two iterations of its loop."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from attrs import define, field

from streams.core.threads import Answer, Threads

T = TypeVar("T")


@define(eq=False)
class Questions(Generic[T]):
    """A queue of functions for the owner's thread, which calls them with the owner, a ``T``, as argument."""

    _threads: Threads
    #: The error for further calls once the owner has ended, or None before that.
    _refusal: Exception | None = None
    _open: "deque[tuple[Callable[[T], Any], Answer[Any]]]" = field(factory=deque)

    def ask(self, question: Callable[[T], Any]) -> Answer[Any]:
        """Add a function to call; the answer is an error once the owner has ended."""
        answer: Answer[Any] = Answer(self._threads)
        self._open.append((question, answer))
        if self._refusal is not None:
            # The owner may have run its last check before this call.
            self.refuse(self._refusal)
        return answer

    def answer(self, of: T) -> bool:
        """Execute all pending functions; return whether there were any."""
        has_any = bool(self._open)
        while self._open:
            question, answer = self._open.popleft()
            answer.settle(partial(question, of))
        return has_any

    def refuse(self, error: Exception) -> None:
        """Fail all pending and later calls with this error."""
        self._refusal = error
        while True:
            try:
                _, answer = self._open.popleft()
            except IndexError:
                return
            answer.refuse(error)
