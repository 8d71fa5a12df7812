"""How a client reaches brokers: the interface between ``clients`` and any transport.

A connection multiplexes requests by correlation ID.  Within a process, the broker is called directly; over TCP and
in simulations, requests are sent over real or simulated sockets.  Only imports the messages.

Every transport keeps the same contract, so that clients need no special cases:

- ``poll`` returns exactly one outcome for each request: the response, or an error in its place.
- The transport never retries a request.  After an error (such as a reset or a timeout), it is unknown whether the
  broker has performed the request; the client decides whether to retry.
- A broker performs requests in the order of the ``send`` calls, except for fetches, group joins and group syncs, which
  the broker may delay, so that other requests overtake them.
"""

from typing import Protocol

from attrs import frozen

from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import Request, Response


@frozen
class Traits:
    """What a client can expect from the brokers that a connection reaches.

    ``settling_ms`` is the time in milliseconds until every broker has the metadata of a topic that another broker has
    created; 0 if there is only one broker.  ``retriable`` has the error codes after which the same request may
    succeed later.
    """

    settling_ms: int
    retriable: frozenset[ErrorCode]


class Connection(Protocol):
    """A client connection to a cluster, used by one thread only, except for ``wakeup``."""

    @property
    def traits(self) -> Traits:
        """What the client can expect from the brokers."""
        ...

    def send(self, node_id: int, request: Request) -> int:
        """Send a request to a broker, given its ID (-1 = any broker), and return the correlation ID."""
        ...

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        """Return (correlation ID, response) for each available response, waiting up to the timeout for the first."""
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
    """A cluster to pass as ``broker=``: any object that opens connections, such as an embedded broker or a network."""

    def connect(self, client_id: str) -> Connection:
        """Open a connection for one client."""
        ...
