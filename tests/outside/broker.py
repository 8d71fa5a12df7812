"""``streams broker`` as suites of others meet it: started, killed with ``kill -9`` on a timer, and started again.

Clients of a ``proxied`` broker connect to a port that stays: while the broker is away, new connections wait for it.
On a busy machine it is away for longer than clients try again.
"""

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import rmtree

from attrs import define, field

from tests.kafka.processes import Started
from tests.kafka.proxy import Proxy
from tests.ports import free_ports


@define(eq=False)
class Broker:
    """A broker at ``address``, which stays when it is killed; ``kills`` counts how often it was.

    It listens on ``port``, which is another one if clients are to come through a proxy.
    """

    address: str
    port: int
    command: Sequence[str]
    log: Path
    kills: int = 0
    #: Set when it is not to be killed any more.
    is_spared: threading.Event = field(factory=threading.Event, init=False)
    _started: Started = field(init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._started = Started(self.command, self.log.with_suffix(f".{self.kills}.log"))
        self._started.line_with("listens on ")

    def kill(self) -> None:
        """Kill it as ``kill -9`` does, unless it is spared, and start it again over the same files."""
        with self._lock:
            if not self.is_spared.is_set():
                self._started.kill()
                self.kills += 1
                self.start()

    def spare(self) -> None:
        """Let it not be killed any more; return when it listens."""
        self.is_spared.set()
        with self._lock:
            pass

    def stop(self) -> None:
        """End it as an operator does; one that does not end in time is killed."""
        with self._lock:
            self._started.process.terminate()
            try:
                self._started.process.wait(30)
            except subprocess.TimeoutExpired:
                self._started.kill()


@contextmanager
def broker(
    command: Sequence[str],
    logs: Path,
    data: bool,
    kill_every_s: float | None,
    most_kills: int,
    proxied: bool,
    port: int,
    advertised: str,
) -> Iterator[Broker]:
    """Run a broker with files (``data``) or in memory; ``kill_every_s`` needs files, ``port`` 0 is a free one.

    It is killed ``most_kills`` times at most: on a busy machine clients would never come to an end.
    """
    port = port or free_ports(1)[0]
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(port, is_patient=True)) if proxied else None
        address = advertised or (proxy.bootstrap_servers if proxy else f"127.0.0.1:{port}")
        places = ["--listen", f"127.0.0.1:{port}", "--advertise", address]
        if data:
            rmtree(logs / "data", ignore_errors=True)
            places += ["--data", str(logs / "data")]
        server = Broker(address, port, [*command, *places], logs / "broker.log")
        server.start()
        stack.callback(server.stop)
        if kill_every_s is not None:

            def kill() -> None:
                while server.kills < most_kills and not server.is_spared.wait(kill_every_s):
                    server.kill()

            killer = threading.Thread(target=kill)
            killer.start()
            stack.callback(killer.join)
            stack.callback(server.spare)
        yield server
