"""Notifications to a service manager (``sd_notify``): ready, alive, stopping.

For a service of ``Type=notify``, systemd sets ``NOTIFY_SOCKET`` to the address of a datagram socket, and
``WATCHDOG_USEC`` to the interval within which it expects a keep-alive message. Without ``NOTIFY_SOCKET``, nothing is
sent.
"""

import logging
from collections.abc import Mapping

from attrs import define

from streams.core.clock import Clock
from streams.runtime.instance.instance import Instance
from streams.runtime.plan.life import State

log = logging.getLogger(__name__)

#: Messages per watchdog interval; systemd recommends two.
_PER_INTERVAL = 2


@define(eq=False)
class ServiceManager:
    """The connection to the service manager that started this process, if there is one."""

    #: Address of its socket, or "" without a service manager.
    address: str
    #: Interval within which it expects a keep-alive message in milliseconds, or 0 without a watchdog.
    limit_ms: int

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "ServiceManager":
        """Return the service manager that is named in ``environ``, the environment of this process."""
        watchdog_us = environ.get("WATCHDOG_USEC", "")
        return cls(environ.get("NOTIFY_SOCKET", ""), int(watchdog_us) // 1000 if watchdog_us.isdecimal() else 0)

    @property
    def keep_alive_ms(self) -> int:
        """The time between two keep-alive messages in milliseconds."""
        return self.limit_ms // _PER_INTERVAL

    def send(self, text: str) -> None:
        """Send a message to the service manager; do nothing if there is none."""
        if not self.address:
            return
        from socket import AF_UNIX, SOCK_DGRAM, socket

        # "@" stands for the null byte of the abstract namespace of Linux.
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        try:
            with socket(AF_UNIX, SOCK_DGRAM) as sender:
                sender.sendto(text.encode(), address)
        except OSError as error:
            # The application continues; the service manager can still stop it by other means.
            log.warning("the service manager cannot be notified of %r at NOTIFY_SOCKET: %s", text, error)
            self.address = ""


@define(eq=False)
class Notifier:
    """Notifies the service manager of the state of one instance; one thread must call ``look`` periodically."""

    _instance: Instance
    _clock: Clock
    _manager: ServiceManager
    _is_ready: bool = False
    _next_ms: int = 0

    @classmethod
    def of(cls, instance: Instance, environ: Mapping[str, str]) -> "Notifier":
        """Return the notifier for the environment of this process."""
        return cls(instance, instance.environment.clock, ServiceManager.of(environ))

    def look(self) -> None:
        """Send READY=1 once the instance is RUNNING, and WATCHDOG=1 while no stream thread is stuck."""
        manager = self._manager
        if not manager.address:
            return
        if not self._is_ready and self._instance.state is State.RUNNING:
            self._is_ready = True
            manager.send("READY=1\nSTATUS=running")
        now_ms = self._clock.monotonic_ms()
        if manager.limit_ms and now_ms >= self._next_ms:
            self._next_ms = now_ms + manager.keep_alive_ms
            if all(
                now_ms - iteration_ms < manager.limit_ms for iteration_ms in self._instance.iterations_ms().values()
            ):
                manager.send("WATCHDOG=1")

    def stopping(self) -> None:
        """Send STOPPING=1, when the instance begins to shut down."""
        self._manager.send("STOPPING=1")
