"""What other threads ask of a stream thread: answered between two turns of its loop."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from attrs import define, field

from streams.core.threads import Answer, Threads

T = TypeVar("T")


@define(eq=False)
class Questions(Generic[T]):
    """Functions that other threads want run by the owner, with ``T`` as their argument."""

    _threads: Threads
    #: Why there are no answers any more; None while there are.
    _refusal: Exception | None = None
    _open: "deque[tuple[Callable[[T], Any], Answer[Any]]]" = field(factory=deque)

    def ask(self, question: Callable[[T], Any]) -> Answer[Any]:
        """Leave a question; it is refused once the owner has ended."""
        answer: Answer[Any] = Answer(self._threads)
        self._open.append((question, answer))
        if self._refusal is not None:
            # The owner may have looked for the last time before this one came.
            self.refuse(self._refusal)
        return answer

    def answer(self, of: T) -> bool:
        """Answer all there are; return whether there was any."""
        has_any = bool(self._open)
        while self._open:
            question, answer = self._open.popleft()
            answer.settle(partial(question, of))
        return has_any

    def refuse(self, error: Exception) -> None:
        """Answer nothing from now on, but with this error."""
        self._refusal = error
        while True:
            try:
                _, answer = self._open.popleft()
            except IndexError:
                return
            answer.refuse(error)
