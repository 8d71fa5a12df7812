"""The messages of commands that serve the embedded broker."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.broker.tcp import BrokerServer


def announce(server: "BrokerServer", data: str | None = None, *, has_users: bool = False) -> None:
    """Print where a broker listens, where its ``data`` is, and who may use it."""
    where = f", {data}" if data else ""
    print(f"streams: broker listens on {server.address}{where}", file=sys.stderr, flush=True)
    if not (server.is_loopback or has_users):
        advice = "; --users restricts it" if data else "; `streams broker --users` restricts it"
        print(f"streams: every client that reaches {server.address} may read and write{advice}", file=sys.stderr)
