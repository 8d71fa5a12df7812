"""What the connections of one listener share: the broker, its limits and users, and what they have taken of both.

The code runs on the event loop of the listener, but for ``call_soon``.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from attrs import define, field

from streams.broker.driver import Driver
from streams.broker.logs.limits import Limits
from streams.broker.tcp.users import Users
from streams.core.http.address import WILDCARDS, Address

_LOGGER = logging.getLogger(__name__)

# Number of hosts with failed logins above which expired entries are removed.
_PENALTIES: Final = 1_024


@define(eq=False)
class TcpService:
    """The broker behind a listening address, with the limits and users of its clients.

    ``advertise`` is the advertised address.  It defaults to the listening address or, if the server listens on every
    address of the machine, to the address that the client is connected to.
    """

    driver: Driver
    listen: Address
    limits: Limits
    users: Users | None
    advertise: Address | None
    #: The response bytes of all connections that their clients have not received yet.
    unsent_bytes: int = field(default=0, init=False)
    # When the next failed login from a host may be answered, in seconds on the clock of the event loop.
    _penalties: dict[str, float] = field(factory=dict, init=False)

    def penalty_s(self, host: str, now_s: float) -> float:
        """Return the delay in seconds before the response to a failed login from a host."""
        most_s = self.limits.login_ms / 1000
        if len(self._penalties) >= _PENALTIES:
            self._penalties = {name: until_s for name, until_s in self._penalties.items() if until_s > now_s}
        until_s = max(now_s, self._penalties.get(host, now_s)) + self.limits.failed_login_delay_ms / 1000
        self._penalties[host] = min(until_s, now_s + most_s)
        return self._penalties[host] - now_s

    def advertised(self, local: Address) -> Address:
        """Return the advertised address for a client that is connected to this local address."""
        if self.advertise is not None:
            return self.advertise
        return local if self.listen.host in WILDCARDS else self.listen


def call_soon(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Call a function on the event loop; may be called from any thread."""
    try:
        loop.call_soon_threadsafe(act)
    except RuntimeError:
        # The event loop has ended, and so have all connections.
        _LOGGER.debug("an answer came after the server's end")
