"""How a client reaches brokers: the interface between ``clients`` and any transport.

A connection multiplexes requests by correlation ID.  Within a process, the broker is called directly; over TCP and
in simulations, requests are sent over real or simulated sockets.

Every transport keeps the same contract, so that clients need no special cases:

- ``poll`` returns exactly one outcome for each request: the response, or an error in its place.
- The transport never retries a request.  After an error (such as a reset or a timeout), it is unknown whether the
  broker has performed the request; the client decides whether to retry.
- A broker performs requests in the order of the ``send`` calls, except for fetches, group joins and group syncs, which
  the broker may delay, so that other requests overtake them.
"""

from typing import Final, Protocol

from attrs import frozen

from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JoinGroup, SyncGroup
from streams.protocol.messages import Fetch
from streams.protocol.request import Request, Response

#: Broker ID that stands for any broker.
ANY_NODE: Final = -1

# Time for the response to a join or sync after the rebalance timeout, in which the slowest member must join.
_REBALANCE_SLACK_MS: Final = 5_000


def response_timeout_ms(request: Request, request_timeout_ms: int) -> int:
    """Return how long to wait for a response, in milliseconds.

    A broker delays the response to a fetch for up to ``max_wait_ms``, and to a join or sync for up to the rebalance
    timeout.  It responds immediately to a join that requests a member id (KIP-394).
    """
    if isinstance(request, Fetch):
        return request_timeout_ms + request.max_wait_ms
    is_first = isinstance(request, JoinGroup) and request.takes_member_id
    if isinstance(request, (JoinGroup, SyncGroup)) and (request.member_id or request.group_instance_id or not is_first):
        return max(request_timeout_ms, request.rebalance_timeout_ms + _REBALANCE_SLACK_MS)
    return request_timeout_ms


@frozen
class Traits:
    """Properties of a cluster that its clients depend on.

    ``settling_ms`` is the time in milliseconds until every broker has the metadata of a topic that another broker has
    created; it is 0 if there is only one broker.  ``retriable`` contains the error codes after which the same request
    may succeed later.
    """

    settling_ms: int
    retriable: frozenset[ErrorCode]


@frozen
class Outage:
    """No broker can be reached: since when, in monotonic milliseconds, and what is known of it."""

    since_ms: int
    reason: str


class Connection(Protocol):
    """A client connection to a cluster, used by one thread only, except for ``wakeup`` and ``outage``."""

    @property
    def outage(self) -> Outage | None:
        """The outage of all brokers, None if one can be reached."""
        ...

    @property
    def traits(self) -> Traits:
        """The properties of the cluster that clients depend on."""
        ...

    def send(self, node_id: int, request: Request) -> int:
        """Send a request to a broker, by its ID or ``ANY_NODE``, and return the correlation ID of the request."""
        ...

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        """Return the available responses and errors, each with its correlation ID.

        If there are none, wait up to ``timeout_ms`` milliseconds for the first one.
        """
        ...

    def give_up(self, correlation_id: int) -> None:
        """Abandon a request that has timed out, so that it does not block later requests to the same broker."""
        ...

    def wakeup(self) -> None:
        """Interrupt a waiting ``poll`` from another thread."""
        ...

    def close(self) -> None:
        """Close the connection; requests in flight get neither a response nor an error."""
        ...


class Cluster(Protocol):
    """A cluster to pass as ``broker=``: any object that can open connections, such as an embedded broker."""

    def connect(self, client_id: str) -> Connection:
        """Open a connection for a client with this client ID."""
        ...
