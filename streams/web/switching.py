"""The interpreter's switch interval while an HTTP server runs in a thread of the application.

Each system call of the server releases the interpreter lock.  While a stream thread is busy, the server gets the lock
back after a switch interval, 5 ms by default, so that a query would take some of these.
"""

import sys
import threading
from typing import Final

#: The switch interval while a server runs, in seconds.
SWITCH_S: Final = 0.0003


class QuickSwitching:
    """Shortens the switch interval of the process while any server runs; may be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: set[object] = set()
        self._usual_s = 0.0
        self._quick_s = 0.0

    def begin(self, server: object) -> None:
        """Shorten the interval for a server that starts; a shorter interval of the program's own is left alone."""
        with self._lock:
            if not self._servers:
                self._usual_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual_s, SWITCH_S))
                # It is rounded.
                self._quick_s = sys.getswitchinterval()
            self._servers.add(server)

    def end(self, server: object) -> None:
        """Restore the interval if this is the last server, unless the program has set another one meanwhile.

        A second call for a server has no effect.
        """
        with self._lock:
            if server in self._servers:
                self._servers.remove(server)
                if not self._servers and sys.getswitchinterval() == self._quick_s:
                    sys.setswitchinterval(self._usual_s)


#: The switch interval is one of the process.
QUICK_SWITCHING: Final = QuickSwitching()
