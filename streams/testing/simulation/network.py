"""A network that delays, loses, repeats and reorders, and is cut now and then.

Between the clients of simulated processes and the simulated broker.  Every message is a value on
its own, so the order of a connection's messages is not kept either.  Imports protocol.
"""

from collections import deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, Protocol

from attrs import define, field

from streams.core.errors import BrokerError, ClientClosedError
from streams.core.threads import ThreadKilled
from streams.protocol.messages import ErrorCode, Request, Response
from streams.testing.simulation.report import Counters
from streams.testing.simulation.scheduler import Scheduler, SimProcess, Waiter

#: So many polls that bring nothing take no time; from then on each takes a millisecond, or a busy
#: loop would never let time pass.
_FREE_POLLS = 2


class Server(Protocol):
    """What answers requests: the simulated broker."""

    @property
    def is_up(self) -> bool:
        """Whether it takes requests."""
        ...

    def serve(self, request: Request, answer: Callable[[Response | Exception], None]) -> None:
        """Take a request; ``answer`` is called once, now or later, or never if the server dies."""
        ...


@define
class Weather:
    """How often messages go wrong, as shares of 1, while the storm lasts."""

    loss: float = 0.0
    repetition: float = 0.0
    slowness: float = 0.0
    #: Usual and slow delays in milliseconds, up to.
    delay_ms: int = 3
    slow_ms: int = 400

    def calm(self) -> None:
        """Let no message go wrong any more."""
        self.loss = self.repetition = self.slowness = 0.0


@define(eq=False)
class SimNetwork:
    """All links between processes and the server."""

    scheduler: Scheduler
    server: Server
    rng: Random
    weather: Weather
    counters: Counters
    #: Names of processes that are cut off, with the time until which.
    cut_until_ms: dict[str, int] = field(factory=dict)
    #: Told of each request that is handed over, for the history.
    on_request: Callable[[str, Request], None] = lambda name, request: None

    def cluster(self, process: SimProcess) -> "SimCluster":
        """Return what a process connects through."""
        return SimCluster(self, process)

    def carry(self, name: str, deliver: Callable[[], None]) -> None:
        """Carry one message to or from a process: once, late, twice or not at all."""
        rng, weather = self.rng, self.weather
        if self.is_cut(name) or rng.random() < weather.loss:
            self.counters.drops += 1
            return
        times = 1
        if rng.random() < weather.repetition:
            self.counters.duplicates += 1
            times = 2
        for _ in range(times):
            is_slow = rng.random() < weather.slowness
            delay_ms = rng.randint(1, weather.slow_ms if is_slow else weather.delay_ms)
            self.counters.delays += is_slow
            self.scheduler.after(delay_ms, deliver)

    def is_cut(self, name: str) -> bool:
        """Whether a process is cut off from the server."""
        return self.cut_until_ms.get(name, 0) > self.scheduler.now_ms


@define(eq=False)
class SimCluster:
    """Opens connections for one process; implements ``protocol.transport.Cluster``."""

    _network: SimNetwork
    _process: SimProcess

    def connect(self, client_id: str) -> "SimConnection":
        """Open a connection."""
        return SimConnection(self._network, self._process, client_id)


@define(eq=False)
class SimConnection:
    """One client's way to the server; implements ``protocol.transport.Connection``."""

    _network: SimNetwork
    _process: SimProcess
    client_id: str
    _numbers: "count[int]" = field(factory=count)
    _inbox: deque[tuple[int, Response | Exception]] = field(factory=deque)
    _waiter: Waiter = field(factory=Waiter)
    _fruitless: int = 0
    _is_closed: bool = False
    #: Raised by a wakeup, so that the next poll does not wait.
    _is_woken: bool = False

    def send(self, node_id: int, request: Request) -> int:
        """Send a request on its way."""
        if not self._process.is_alive:
            raise ThreadKilled
        if self._is_closed:
            raise ClientClosedError("the connection is closed")
        number = next(self._numbers)
        network = self._network

        def answer(response: Response | Exception) -> None:
            network.carry(self._process.name, lambda: self._arrive(number, response))

        def deliver() -> None:
            if not network.server.is_up:
                error = BrokerError("the broker is not there", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
                self._arrive(number, error)
                return
            network.on_request(self.client_id, request)
            network.server.serve(request, answer)

        network.carry(self._process.name, deliver)
        return number

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        """Return what has arrived, waiting up to the timeout."""
        if not self._process.is_alive:
            raise ThreadKilled
        if self._is_closed:
            raise ClientClosedError("the connection is closed")
        if not self._inbox and not self._is_woken:
            self._fruitless += 1
            if timeout_ms > 0 or self._fruitless > _FREE_POLLS:
                self._process.wait(self._waiter, max(1, timeout_ms))
        self._is_woken = False
        arrived: list[tuple[int, Any]] = list(self._inbox)
        self._inbox.clear()
        if arrived:
            self._fruitless = 0
        return arrived

    def wakeup(self) -> None:
        """End a waiting poll."""
        self._is_woken = True
        self._waiter.wake()

    def close(self) -> None:
        """Drop the connection."""
        self._is_closed = True
        self._inbox.clear()

    def _arrive(self, number: int, response: Response | Exception) -> None:
        if self._process.is_alive and not self._is_closed:
            self._inbox.append((number, response))
            self._waiter.wake()
