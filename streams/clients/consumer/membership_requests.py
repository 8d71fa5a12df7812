"""The requests of a group member, and their errors, which the next ``poll`` of the application raises.

Of the other packages, this module imports only ``core``, ``group`` and ``protocol``.
"""

from collections.abc import Callable
from typing import NoReturn

from attrs import define

from streams.clients.errors import as_error, is_final
from streams.clients.network import Network
from streams.core.clock import Clock
from streams.core.errors import BrokerError
from streams.group import EpochMember, Member
from streams.protocol.request import Request, Response


@define(eq=False)
class MembershipRequests:
    """Sends the requests of a member, and passes their responses to it.

    ``member`` returns the member of the time at which a response arrives: leaving the group replaces it.
    """

    _network: Network
    _clock: Clock
    _group_id: str
    _member: Callable[[], Member | EpochMember]
    _fatal: BrokerError | None = None
    #: The error of a request, which is raised once.
    _refused: BrokerError | None = None

    @property
    def is_over(self) -> bool:
        """Whether the membership has failed for good."""
        return self._fatal is not None

    def send(self, node_id: int, request: Request) -> None:
        """Send a request of the member; keep its error if it must not be retried."""

        def receive(response: Response | Exception) -> None:
            if isinstance(response, Exception) and is_final(response):
                self._refused = as_error(response, f"{type(request).__name__} for group {self._group_id!r}")
            self._member().on_response(request, response, self._clock.monotonic_ms())

        self._network.send(node_id, request, receive)

    def fail(self, error: BrokerError) -> NoReturn:
        """End the membership: raise an error, now and at each later check."""
        self._fatal = error
        raise error

    def check(self) -> None:
        """Raise the error that has ended the membership, or once that of a request.

        Raises:
            BrokerError: the group cannot be joined, or the broker does not support its requests.
        """
        if self._fatal is not None:
            raise self._fatal
        if self._refused is not None:
            refused = self._refused
            self._refused = None
            raise refused

    def forget_error(self) -> None:
        """Forget the error of a request that belonged to a membership which has ended."""
        self._refused = None
