"""The time for which a thread tolerates a broker that does not respond (KIP-572)."""

import logging

from attrs import define

from streams.clients import RequestTimeoutError
from streams.core.clock import Clock
from streams.core.notices import Notices

log = logging.getLogger(__name__)


@define(eq=False)
class Patience:
    """Tolerates request timeouts until the broker has not responded for ``task_timeout_ms``."""

    _name: str
    _clock: Clock
    _task_timeout_ms: int
    _notices: Notices
    #: Monotonic time of the first request without a response, or None if the broker responds.
    _unanswered_since_ms: int | None = None

    def note_timeout(self, error: RequestTimeoutError) -> None:
        """Record a timed-out request; raise ``error`` if the broker has not responded for longer than the limit."""
        now = self._clock.monotonic_ms()
        if self._unanswered_since_ms is None:
            self._unanswered_since_ms = now
        if now - self._unanswered_since_ms > self._task_timeout_ms:
            raise error
        text = f"{self._name}: no response from the broker, retrying: {error}"
        self._notices.last(log, ("no response", self._name), now, text)

    def note_answer(self) -> None:
        """Record that the broker has responded."""
        if self._unanswered_since_ms is not None:
            self._unanswered_since_ms = None
            text = f"{self._name}: the broker responds again"
            self._notices.end(log, ("no response", self._name), self._clock.monotonic_ms(), text)
