"""The states of an instance, the transitions between them, and calls to the state listener.

``Instance`` changes the state, and the listener is a function of the user.  The module reads no clock and performs no
I/O.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum

from attrs import define, field

from streams.core.concurrency.threads import INTERRUPTIONS
from streams.core.user_code import refuse_result

log = logging.getLogger(__name__)


class State(Enum):
    """The state of an instance, named as in Kafka Streams.

    RUNNING means that all assigned tasks are open and restored.  A failure leads to ERROR, which is
    final: closing a failed instance only releases its resources.
    """

    CREATED = "created"
    REBALANCING = "rebalancing"
    RUNNING = "running"
    PENDING_SHUTDOWN = "pending_shutdown"
    NOT_RUNNING = "not_running"
    #: A thread has failed; the other threads are ending.
    PENDING_ERROR = "pending_error"
    ERROR = "error"


_NEXT: Mapping[State, frozenset[State]] = {
    State.CREATED: frozenset({State.REBALANCING, State.PENDING_SHUTDOWN, State.NOT_RUNNING, State.PENDING_ERROR}),
    State.REBALANCING: frozenset({State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR}),
    State.RUNNING: frozenset({State.REBALANCING, State.PENDING_SHUTDOWN, State.PENDING_ERROR}),
    State.PENDING_SHUTDOWN: frozenset({State.NOT_RUNNING, State.PENDING_ERROR}),
    State.NOT_RUNNING: frozenset(),
    State.PENDING_ERROR: frozenset({State.ERROR}),
    State.ERROR: frozenset(),
}

#: Called with the new state and the old state.
StateListener = Callable[[State, State], None]


@define(eq=False)
class Life:
    """The current state of one instance, and its listener.

    ``move`` may be called while ``lock`` is held.  ``notify`` may not, because a listener may call any instance method.
    """

    application_id: str
    listener: StateListener | None = None
    state: State = State.CREATED
    lock: threading.RLock = field(factory=threading.RLock)
    _pending: deque[tuple[State, State]] = field(factory=deque)
    _is_notifying: bool = False

    @property
    def is_up(self) -> bool:
        """Whether the instance is REBALANCING or RUNNING."""
        return self.state in (State.REBALANCING, State.RUNNING)

    def move(self, state: State) -> bool:
        """Change to ``state`` if the transition is valid, and return whether it is valid."""
        with self.lock:
            if state not in _NEXT[self.state]:
                return False
            before = self.state
            self.state = state
            self._pending.append((state, before))
        log.info("application %r: %s -> %s", self.application_id, before.name, state.name)
        return True

    def notify(self) -> None:
        """Call the state listener for each transition that it has not been called for, one at a time and in order."""
        while True:
            with self.lock:
                if self._is_notifying or not self._pending:
                    return
                self._is_notifying = True
                state, before = self._pending.popleft()
            try:
                if self.listener is not None:
                    refuse_result(self.listener(state, before), "on_state")
            except INTERRUPTIONS:
                raise
            except BaseException:
                # An error in the listener must not stop the threads.
                log.exception("application %r: the state listener failed at %s", self.application_id, state.name)
            finally:
                self._is_notifying = False
