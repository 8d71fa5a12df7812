"""The messages of commands that serve the embedded broker."""

from typing import TYPE_CHECKING

from streams.cli.lines import say

if TYPE_CHECKING:
    from streams.broker.tcp import BrokerServer


def announce(server: "BrokerServer", data: str | None = None, *, has_users: bool = False) -> None:
    """Print where a broker listens, where its ``data`` is, and who may use it."""
    where = f", {data}" if data else ""
    say(f"broker listens on {server.address}{where}")
    if not (server.is_loopback or has_users):
        advice = "; --users restricts it" if data else "; `streams broker --users` restricts it"
        say(f"every client that reaches {server.address} may read and write{advice}")
