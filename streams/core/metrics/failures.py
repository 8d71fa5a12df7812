"""The last failures of an instance: a bounded list, in which equal failures are counted.

This module imports only other modules of ``core``.
"""

import threading
from collections.abc import Sequence

from attrs import define, evolve, field, frozen

from streams.core.blocks.records import TaskId
from streams.core.user_code import place_in_user_code

#: Maximum number of failures that are kept.
KEPT_FAILURES = 50
#: Length to which messages are cut; they may contain a whole record.
_MESSAGE_LENGTH = 500


@frozen
class Failure:
    """The last failure at one line of user code, and the ``count`` of equal failures including this one.

    ``place`` is file, line, function and text of the user's code, or "". ``is_fatal`` is True if the
    failure ended a thread; otherwise only a record was dropped, or sent to the dead letter topic ``sent_to``.
    """

    at_ms: int
    error: str
    message: str
    place: str
    node: str = ""
    task: TaskId | None = None
    is_fatal: bool = False
    sent_to: str = ""
    count: int = 1


@define(eq=False)
class LastFailures:
    """The last failures by place in user code, oldest first; any thread may record a failure."""

    _failures: dict[tuple[object, ...], Failure] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)
    #: Number of failures since the start, including those that are no longer kept.
    total: int = 0

    def note(
        self,
        error: BaseException,
        at_ms: int,
        *,
        node: str = "",
        task: TaskId | None = None,
        is_fatal: bool = False,
        sent_to: str = "",
    ) -> None:
        """Record a failure; ``at_ms`` is wall-clock time in epoch milliseconds."""
        # The cause is the exception that user code has raised.
        raised = error.__cause__ if is_fatal and error.__cause__ is not None else error
        place = place_in_user_code(raised)
        key = node, type(raised).__name__, place, is_fatal
        with self._lock:
            self.total += 1
            before = self._failures.pop(key, None)
            message = str(error)[:_MESSAGE_LENGTH]
            failure = Failure(at_ms, type(raised).__name__, message, place, node, task, is_fatal, sent_to)
            self._failures[key] = failure if before is None else evolve(failure, count=before.count + 1)
            if len(self._failures) > KEPT_FAILURES:
                del self._failures[next(iter(self._failures))]

    def all(self) -> Sequence[Failure]:
        """Return the recorded failures, most recent first."""
        with self._lock:
            return list(reversed(self._failures.values()))
