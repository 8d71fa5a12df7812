"""How a client reaches brokers: the one seam between clients/ and whatever answers.

A connection multiplexes requests by correlation id.  In process the broker is called at
once; over TCP a codec and a socket stand behind the same verbs; in simulation a seeded
network does.  Imports core and messages only.
"""

from typing import Protocol

from streams.protocol.messages import Request, Response


class Connection(Protocol):
    """One client's way to one cluster; used by one thread, but for ``wakeup``."""

    def send(self, node_id: int, request: Request) -> int:
        """Send to a broker by its id (-1 = any) and return the correlation id."""
        ...

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        """Return what has arrived as (correlation id, response), waiting up to the timeout."""
        ...

    def wakeup(self) -> None:
        """End a waiting ``poll`` from another thread."""
        ...

    def close(self) -> None:
        """Drop the connection; pending requests are never answered."""
        ...


class Cluster(Protocol):
    """What ``broker=`` takes: anything that opens connections (the embedded broker, a network)."""

    def connect(self, client_id: str) -> Connection:
        """Open a connection for one client."""
        ...
