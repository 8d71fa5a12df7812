"""Notifications to a service manager (``sd_notify``): ready, alive, stopping.

For a service of ``Type=notify``, systemd sets ``NOTIFY_SOCKET`` to the address of a datagram socket, and
``WATCHDOG_USEC`` to the interval within which it expects a keep-alive message. Without the socket nothing is sent;
needs no library.
"""

import logging
import socket
from collections.abc import Mapping

from attrs import define

from streams.core.clock import Clock
from streams.runtime.instance import Instance
from streams.runtime.life import State

log = logging.getLogger(__name__)

#: Messages per watchdog interval; systemd recommends two.
_PER_INTERVAL = 2


@define(eq=False)
class Notifier:
    """Notifies the service manager of the state of one instance; a single thread calls ``look`` periodically."""

    _instance: Instance
    _clock: Clock
    #: Address of the socket, or "" without one.
    _address: str
    #: Maximum duration of an iteration of a thread's loop in milliseconds, or 0 without a watchdog.
    _limit_ms: int
    _is_ready: bool = False
    _next_ms: int = 0

    @classmethod
    def of(cls, instance: Instance, environ: Mapping[str, str]) -> "Notifier":
        """Return the notifier for the environment of this process."""
        address = environ.get("NOTIFY_SOCKET", "")
        if address.startswith("@"):
            # A socket in the abstract namespace of Linux.
            address = "\0" + address[1:]
        watchdog_us = environ.get("WATCHDOG_USEC", "")
        limit_ms = int(watchdog_us) // 1000 if watchdog_us.isdecimal() else 0
        return cls(instance, instance.environment.clock, address, limit_ms)

    def look(self) -> None:
        """Send READY=1 once the instance is RUNNING, and WATCHDOG=1 while the loops of all threads iterate in time."""
        if not self._address:
            return
        if not self._is_ready and self._instance.state is State.RUNNING:
            self._is_ready = True
            self._send("READY=1\nSTATUS=running")
        now_ms = self._clock.monotonic_ms()
        if self._limit_ms and now_ms >= self._next_ms:
            self._next_ms = now_ms + self._limit_ms // _PER_INTERVAL
            if all(now_ms - turned_at_ms < self._limit_ms for turned_at_ms in self._instance.turns().values()):
                self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Send STOPPING=1."""
        if self._address:
            self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            # The application continues; the service manager can still stop it by other means.
            log.warning("the service manager cannot be told %r at NOTIFY_SOCKET: %s", text, error)
            self._address = ""
