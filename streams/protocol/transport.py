"""How a client reaches brokers: the interface between ``clients`` and any transport.

A connection multiplexes requests by correlation id.  In process the broker is called directly; over TCP and in
simulation requests go over sockets, real or simulated.  Imports messages only.

Every transport keeps the same contract, so that clients need no branch for one of them:

- Each request gets exactly one outcome from ``poll``: its response, or the error that took its place.
- Nothing is repeated by the transport.  After an error (a reset, a timeout) it is unknown whether the broker has
  performed the request; repeating it is the client's decision.
- Requests to one broker are performed in the order of ``send``, except fetches, and joins and syncs of groups, which
  may wait at the broker and overtake the others or be overtaken.
"""

from typing import Protocol

from attrs import frozen

from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import Request, Response


@frozen
class Traits:
    """What a client may expect of the brokers that a connection reaches.

    ``settling_ms``: for how many milliseconds a broker may not know a topic that another one has created; 0 where
    there is only one.  ``retriable``: error codes after which the same request may succeed later.
    """

    settling_ms: int
    retriable: frozenset[ErrorCode]


class Connection(Protocol):
    """One client's connection to one cluster; used by one thread, except ``wakeup``."""

    @property
    def traits(self) -> Traits:
        """What may be expected of the brokers."""
        ...

    def send(self, node_id: int, request: Request) -> int:
        """Send to a broker by its id (-1 = any) and return the correlation id."""
        ...

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        """Return arrived responses as (correlation id, response), waiting up to the timeout for the first."""
        ...

    def wakeup(self) -> None:
        """Interrupt a waiting ``poll`` from another thread."""
        ...

    def close(self) -> None:
        """Drop the connection; requests in flight get no outcome."""
        ...


class Cluster(Protocol):
    """A cluster, for ``broker=``: anything that opens connections (the embedded broker, a network)."""

    def connect(self, client_id: str) -> Connection:
        """Open a connection for one client."""
        ...
