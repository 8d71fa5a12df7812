"""Combines the notifications of workers (``sd_notify``) for the service manager of the process that started them.

In its environment, each worker has a separate socket instead of that of the service manager. It sends READY=1 and
WATCHDOG=1 there, as a service does, and this process forwards them once all workers have sent them.
"""

import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from attrs import define, field

from streams.core.clock import Clock
from streams.runtime import ServiceManager

#: Maximum size of a message; longer ones are cut off.
_BYTES = 4096


@define(eq=False)
class WorkerNotices:
    """The notifications from the workers of one run; without a service manager, nothing is sent."""

    _manager: ServiceManager
    _clock: Clock
    #: The socket of each worker; none without a service manager.
    _sockets: list[socket.socket]
    #: Workers that have sent nothing since they were started.  They count as alive: a start has limits of its own.
    _starting: set[int] = field(factory=set)
    _ready: set[int] = field(factory=set)
    #: Workers that have sent WATCHDOG=1 since this process sent it last.
    _alive: set[int] = field(factory=set)
    _is_ready: bool = False
    _next_ms: int = 0

    @classmethod
    @contextmanager
    def opened(cls, count: int, environ: Mapping[str, str], clock: Clock) -> Iterator["WorkerNotices"]:
        """Open the sockets of ``count`` workers, and close them at the end of the ``with`` block."""
        manager = ServiceManager.of(environ)
        with ExitStack() as stack:
            sockets = []
            if manager.address:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-workers-")))
                for number in range(count):
                    receiver = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                    receiver.bind(str(folder / str(number)))
                    receiver.setblocking(False)
                    sockets.append(receiver)
            yield cls(manager, clock, sockets)

    def environment(self, number: int) -> dict[str, str]:
        """Return the environment for starting worker ``number``, counted from 0."""
        if not self._sockets:
            return dict(os.environ)
        self._received(number)  # Messages of the former process of this worker.
        self._starting.add(number)
        self._alive.discard(number)
        self._ready.discard(number)
        return os.environ | {"NOTIFY_SOCKET": self._sockets[number].getsockname()}

    def look(self) -> None:
        """Read the workers' messages; send READY=1 once all are ready, and WATCHDOG=1 while all send it."""
        if not self._sockets:
            return
        for number in range(len(self._sockets)):
            lines = self._received(number)
            if lines:
                self._starting.discard(number)
            if "READY=1" in lines:
                self._ready.add(number)
            if "WATCHDOG=1" in lines:
                self._alive.add(number)
        count = len(self._sockets)
        if not self._is_ready and len(self._ready) == count:
            self._is_ready = True
            self._manager.send(f"READY=1\nSTATUS=running with {count} workers")
        now_ms = self._clock.monotonic_ms()
        if self._manager.limit_ms and now_ms >= self._next_ms and len(self._alive | self._starting) == count:
            self._next_ms = now_ms + self._manager.keep_alive_ms
            self._alive.clear()
            self._manager.send("WATCHDOG=1")

    def stopping(self) -> None:
        """Notify the service manager that the run is stopping (STOPPING=1)."""
        self._manager.send("STOPPING=1")

    def _received(self, number: int) -> list[str]:
        lines: list[str] = []
        with suppress(BlockingIOError):
            while True:
                lines += self._sockets[number].recv(_BYTES).decode(errors="replace").splitlines()
        return lines
