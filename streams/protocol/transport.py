"""How a client reaches brokers: the interface between ``clients`` and any transport.

A connection multiplexes requests by correlation ID.  Within a process, the broker is called directly; over TCP and
in simulations, requests are sent over real or simulated sockets.  Only imports the messages.

Every transport keeps the same contract, so that clients need no special cases:

- ``poll`` returns exactly one outcome for each request: the response, or an error in its place.
- The transport never repeats a request.  After an error (such as a reset or a timeout), it is unknown whether the
  broker has performed the request; the client decides whether to repeat it.
- A broker performs requests in the order of the ``send`` calls, except for fetches, group joins and group syncs, which
  may wait at the broker and so overtake other requests or be overtaken.
"""

from typing import Protocol

from attrs import frozen

from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import Request, Response


@frozen
class Traits:
    """What a client can expect from the brokers that a connection reaches.

    ``settling_ms`` is the time in milliseconds for which a broker may not know a topic that another broker has
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
        """Return the available responses as (correlation ID, response), waiting up to the timeout for the first."""
        ...

    def give_up(self, correlation_id: int) -> None:
        """Drop a request whose response is overdue, so that later requests to the broker do not wait for it."""
        ...

    def wakeup(self) -> None:
        """Interrupt a waiting ``poll`` from another thread."""
        ...

    def close(self) -> None:
        """Close the connection; requests in flight get no outcome."""
        ...


class Cluster(Protocol):
    """A cluster to pass as ``broker=``: anything that opens connections, such as an embedded broker or a network."""

    def connect(self, client_id: str) -> Connection:
        """Open a connection for one client."""
        ...
