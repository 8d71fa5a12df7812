"""The life of an instance: its states, the ways between them, and who is told of them.

Between the instance, which moves it, and listeners of the user's.  No clock, no I/O.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum

from attrs import define, field

from streams.core.threads import INTERRUPTIONS
from streams.core.user_code import refuse_result

log = logging.getLogger(__name__)


class State(Enum):
    """Life of an instance, with Kafka Streams' names.

    RUNNING means that all tasks which the group has given are open and restored.  A failure ends in
    ERROR, which stays: closing such an instance only gives up what it holds.
    """

    CREATED = "created"
    REBALANCING = "rebalancing"
    RUNNING = "running"
    PENDING_SHUTDOWN = "pending_shutdown"
    NOT_RUNNING = "not_running"
    #: A thread has failed; the others are ending.
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

#: Called with the new state and the old one.
StateListener = Callable[[State, State], None]


@define(eq=False)
class Life:
    """The state of one instance.

    ``move`` is called under ``lock``, ``tell`` outside of it: a listener may ask the instance anything.
    """

    application_id: str
    listener: StateListener | None = None
    state: State = State.CREATED
    lock: threading.RLock = field(factory=threading.RLock)
    _untold: deque[tuple[State, State]] = field(factory=deque)
    _is_telling: bool = False

    @property
    def is_up(self) -> bool:
        """Whether threads run, or are to."""
        return self.state in (State.REBALANCING, State.RUNNING)

    def move(self, state: State) -> bool:
        """Go to a state if there is a way from the present one; return whether there was."""
        with self.lock:
            if state not in _NEXT[self.state]:
                return False
            before, self.state = self.state, state
            self._untold.append((state, before))
        log.info("application %r: %s -> %s", self.application_id, before.name, state.name)
        return True

    def tell(self) -> None:
        """Tell the listener of all moves, one at a time and in their order, whichever threads made them."""
        while True:
            with self.lock:
                if self._is_telling or not self._untold:
                    return
                self._is_telling = True
                state, before = self._untold.popleft()
            try:
                if self.listener is not None:
                    refuse_result(self.listener(state, before), "on_state")
            except INTERRUPTIONS:
                raise
            except BaseException:
                # It was told; what it makes of it must not stop the threads.
                log.exception("application %r: the state listener failed at %s", self.application_id, state.name)
            finally:
                self._is_telling = False
