"""The requests of an admin client: to any broker, the controller or the coordinator of a group, with retries.

Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from attrs import define

from streams.clients.errors import DisconnectedError, UnreachableError, codes_of, error_for
from streams.clients.network import Backoff, Network, Settling
from streams.core.clock import Clock, Deadline
from streams.core.errors import BrokerError, ClientClosedError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import FindCoordinator
from streams.protocol.request import R, RequestFor
from streams.protocol.transport import ANY_NODE

A = TypeVar("A")

_BACKOFF: Final = Backoff()


@define(eq=False)
class AdminRequests:
    """Sends requests over the network of an admin client, and waits for the responses up to ``timeout_ms``."""

    network: Network
    _clock: Clock
    timeout_ms: int
    _is_closed: bool = False

    def deadline(self) -> Deadline:
        """Return the deadline of a call that begins now.

        Raises:
            ClientClosedError: the client is closed.
        """
        self._check_open()
        return Deadline(self._clock, self._clock.monotonic_ms() + self.timeout_ms)

    def ask(self, request: RequestFor[R], node: int = ANY_NODE) -> R:
        """Send a request to a broker, once."""
        self._check_open()
        return self.network.request(node, request)

    def ask_group(self, group_id: str, request: RequestFor[R], what: str) -> R:
        """Send a request to a group's coordinator, looking up the coordinator again if it has moved.

        Raises:
            BrokerError: the response has an error that applies to the whole request.
        """

        def attempt() -> R:
            coordinator = self.ask(FindCoordinator(group_id))
            if coordinator.error is not ErrorCode.NONE:
                raise error_for(coordinator.error, f"coordinator of group {group_id!r}")
            response = self.ask(request, coordinator.node_id)
            for code in codes_of(response):
                if code in self.network.traits.retriable:
                    raise error_for(code, f"{type(request).__name__} for group {group_id!r}")
            return response

        response = self.repeated(attempt)
        error: ErrorCode = getattr(response, "error", ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            raise error_for(error, what)
        return response

    def ask_controller(self, request: RequestFor[R], *, when_lost: bool = False) -> R:
        """Send a request to the controller, which is the only broker that can perform it.

        With ``when_lost``, it is sent again after a lost connection: it may have been performed already.
        """

        def attempt() -> R:
            response = self.ask(request)
            if ErrorCode.NOT_CONTROLLER in codes_of(response):
                raise error_for(ErrorCode.NOT_CONTROLLER, type(request).__name__)
            return response

        return self.repeated(attempt, when_lost=when_lost)

    def repeated(self, attempt: Callable[[], A], *, when_lost: bool = True) -> A:
        """Repeat an attempt until it succeeds, fails with a non-retriable error, or the timeout expires."""
        deadline = Deadline(self._clock, self._clock.monotonic_ms() + self.timeout_ms)
        settling = Settling(self.network)
        failures = 0
        while True:
            try:
                return attempt()
            except BrokerError as error:
                if isinstance(error, UnreachableError):
                    # The attempt itself has waited for a reachable broker.
                    raise
                is_lost = isinstance(error, DisconnectedError)
                is_passing = error.code in self.network.traits.retriable or settling.excuses(error)
                remaining_ms = deadline.remaining_ms(has_progress=False)
                if not remaining_ms or not (when_lost if is_lost else is_passing):
                    raise
                failures += 1
                self.network.poll(min(remaining_ms, _BACKOFF.after(failures)))

    def close(self) -> None:
        """Close the network; a second call has no effect."""
        if not self._is_closed:
            self._is_closed = True
            self.network.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the admin client is closed; make a new one")
