"""The machine of the embedded broker with its lock and its timers, driven by whoever uses it.

Clients in this process come through ``LocalConnection``, servers through ``act``; ``embedded`` gives both to the
user, and states the locking.
"""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Protocol

from streams.broker.service import Broker
from streams.clients import ONE_BROKER
from streams.core.clock import Clock, VirtualClock
from streams.core.errors import BrokerError, ClientClosedError
from streams.protocol.messages import ErrorCode, Request, Response


class TimeKeeper(Protocol):
    """Whoever sees to it that the machine's timers run."""

    def nudge(self) -> None:
        """A deadline came nearer: look again soon.  From any thread, under the lock."""
        ...


class Driver:
    """One machine, used by one thread at a time.

    ``lock`` guards it: who takes it calls ``check_open`` before anything else.
    """

    def __init__(self, machine: Broker, clock: Clock, cluster_id: str) -> None:
        self.machine = machine
        self.clock = clock
        self.cluster_id = cluster_id
        self.lock = threading.Lock()
        self.never_waits = isinstance(clock, VirtualClock)
        self.is_closed = False
        # Deadlines count from here on by the monotonic clock; a step of the wall clock moves timestamps alone.
        self._origin_ms = clock.now_ms() - clock.monotonic_ms()
        self._connections: set[LocalConnection] = set()
        self._waiting: dict[LocalConnection, None] = {}
        # Servers that listen, and so can keep the time; of several the first does.
        self._servers: list[TimeKeeper] = []
        self._keeper: TimeKeeper | None = None
        self._armed_ms: int | None = None

    @property
    def node_id(self) -> int:
        """Id of the broker."""
        return self.machine.config.node_id

    # --- for servers ----------------------------------------------------------------------

    def act(self, action: Callable[[Broker, int], None]) -> None:
        """Call a function with the machine and the time, alone.

        Raises:
            BrokerError: the broker is closed; and whatever the function raises.
        """
        with self.lock:
            self.check_open()
            now_ms = self.now_ms()
            self._run_due(now_ms)
            action(self.machine, now_ms)
            self.nudge_keeper()

    def keep_time(self, server: TimeKeeper) -> None:
        """Let a server keep the time."""
        with self.lock:
            self._servers.append(server)
            self._keeper, self._armed_ms = self._servers[0], None

    def release(self, server: TimeKeeper) -> None:
        """Take the time from a server that ends."""
        with self.lock:
            self._servers.remove(server)
            self._hand_on()

    def run_due(self) -> int | None:
        """Run what is due; return for how many milliseconds the keeper may leave it alone, None = until nudged.

        Raises:
            BrokerError: the broker is closed.
        """
        with self.lock:
            self.check_open()
            now_ms = self.now_ms()
            self._run_due(now_ms)
            self._armed_ms = self.machine.next_deadline_ms()
            return None if self._armed_ms is None else max(0, self._armed_ms - now_ms)

    # --- for connections in this process --------------------------------------------------

    def connect(self, client_id: str) -> "LocalConnection":
        """Open a connection for one client.

        Raises:
            BrokerError: the broker is closed.
        """
        with self.lock:
            self.check_open()
            connection = LocalConnection(self, client_id)
            self._connections.add(connection)
            return connection

    def handle(self, connection: "LocalConnection", correlation_id: int, node_id: int, request: Request) -> None:
        """Perform a request; its answer is delivered to the connection, now or later."""
        with self.lock:
            if self.is_closed:
                connection.deliver(correlation_id, closed_error())
                return
            connection.pending.add(correlation_id)
            try:
                if node_id not in (-1, self.node_id):
                    raise BrokerError(f"node {node_id} is unknown: the embedded broker is node {self.node_id}")
                now_ms = self.now_ms()
                self._run_due(now_ms)
                self.machine.handle(request, now_ms, partial(connection.deliver, correlation_id))
            except Exception as error:  # noqa: BLE001
                # The client learns of it where it waits for the answer, as over a network.
                connection.deliver(correlation_id, error)
            self.nudge_keeper()

    def tick(self) -> None:
        """Run what is due."""
        with self.lock:
            if not self.is_closed:
                self._run_due(self.now_ms())

    def enter_wait(self, connection: "LocalConnection", remaining_ms: int) -> int:
        """Note that a connection waits; return for how long it may sleep."""
        with self.lock:
            self._waiting[connection] = None
            if self._keeper is None:
                self._keeper = connection
            if self._keeper is not connection:
                return remaining_ms
            self._armed_ms = None if self.is_closed else self.machine.next_deadline_ms()
            if self._armed_ms is None:
                return remaining_ms
            return max(0, min(remaining_ms, self._armed_ms - self.now_ms()))

    def leave_wait(self, connection: "LocalConnection") -> None:
        """Note that a connection's poll returns; another one takes over the timers."""
        with self.lock:
            self._waiting.pop(connection, None)
            if self._keeper is connection:
                self._hand_on()

    def forget(self, connection: "LocalConnection") -> None:
        """Drop a connection that is closed."""
        with self.lock:
            self._connections.discard(connection)

    # --- under the lock -------------------------------------------------------------------

    def check_open(self) -> None:
        """Refuse what comes too late.

        Raises:
            BrokerError: the broker is closed.
        """
        if self.is_closed:
            raise closed_error()

    def now_ms(self) -> int:
        """Return the time for deadlines, which a step of the wall clock does not move.

        The machine is told how far the wall clock is ahead of it: timestamps and retention go by that one.  Where
        it is set back it goes on evenly from the latest time that it had shown.
        """
        now_ms = self._origin_ms + self.clock.monotonic_ms()
        self.machine.clock_ahead_ms = max(self.machine.clock_ahead_ms, self.clock.now_ms() - now_ms)
        return now_ms

    def wall_ms(self) -> int:
        """Return the time of the wall clock, which never goes back."""
        return self.machine.wall_ms(self.now_ms())

    def nudge_keeper(self) -> None:
        """Wake the keeper when a deadline comes before the one it sleeps for."""
        if self._keeper is None:
            return
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is not None and (self._armed_ms is None or deadline_ms < self._armed_ms):
            self._armed_ms = deadline_ms
            self._keeper.nudge()

    def fail_pending(self) -> None:
        """Answer what still waits: the broker is closed."""
        for connection in self._connections:
            connection.fail_pending(closed_error())

    def _run_due(self, now_ms: int) -> None:
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self.machine.tick(now_ms)

    def _hand_on(self) -> None:
        """Let a server keep the time, or one of those that wait, or whoever waits next."""
        self._keeper = self._servers[0] if self._servers else None
        heir = self._keeper or next(iter(self._waiting), None)
        if heir is not None:
            heir.nudge()


class LocalConnection:
    """One client's connection to the embedded broker; see ``protocol.transport.Connection``."""

    traits = ONE_BROKER

    def __init__(self, driver: "Driver", client_id: str) -> None:
        self.client_id = client_id
        self._driver = driver
        self._ids = count()
        self._condition = threading.Condition(threading.Lock())
        self._inbox: deque[tuple[int, Response | Exception]] = deque()
        self._is_woken = False
        self._is_nudged = False
        self._is_closed = False
        # Changed under the broker's lock only.
        self.pending: set[int] = set()

    def send(self, node_id: int, request: Request) -> int:
        """Perform a request and return its correlation id; the answer waits in ``poll``.

        Raises:
            ClientClosedError: the connection is closed.
        """
        if self._is_closed:
            raise self._closed_error()
        correlation_id = next(self._ids)
        self._driver.handle(self, correlation_id, node_id, request)
        return correlation_id

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        """Return the answers that have come, waiting for the first up to the timeout.

        Raises:
            ClientClosedError: the connection is closed.
        """
        driver, clock = self._driver, self._driver.clock
        answers = self._take()
        if answers is not None:
            return answers
        until_ms = clock.monotonic_ms() + timeout_ms
        has_entered = False
        try:
            while True:
                driver.tick()
                answers = self._take()
                remaining_ms = until_ms - clock.monotonic_ms()
                if answers is not None:
                    return answers
                if remaining_ms <= 0 or driver.never_waits:
                    return []
                has_entered = True
                self._sleep(driver.enter_wait(self, remaining_ms))
        finally:
            if has_entered:
                driver.leave_wait(self)

    def wakeup(self) -> None:
        """End a waiting ``poll``, or the next one, from another thread."""
        with self._condition:
            self._is_woken = True
            self._condition.notify()

    def close(self) -> None:
        """Drop the connection; what is pending is never answered."""
        with self._condition:
            self._is_closed = True
            self._inbox.clear()
            self._condition.notify()
        self._driver.forget(self)

    def _take(self) -> list[tuple[int, Response | Exception]] | None:
        """Return what is in the inbox, [] after a wakeup, None if the poll is to go on."""
        with self._condition:
            if self._is_closed:
                raise self._closed_error()
            if not self._inbox and not self._is_woken:
                return None
            self._is_woken = False
            answers = list(self._inbox)
            self._inbox.clear()
            return answers

    def _sleep(self, for_ms: int) -> None:
        with self._condition:
            # All that may have come since the last look is checked once more under the condition.
            if not (self._inbox or self._is_woken or self._is_nudged or self._is_closed) and for_ms > 0:
                self._condition.wait(for_ms / 1000)
            self._is_nudged = False

    def deliver(self, correlation_id: int, answer: Response | Exception) -> None:
        """Put an answer where ``poll`` finds it."""
        self.pending.discard(correlation_id)
        with self._condition:
            if not self._is_closed:
                self._inbox.append((correlation_id, answer))
                self._condition.notify()

    def nudge(self) -> None:
        """Look again for how long to sleep."""
        with self._condition:
            self._is_nudged = True
            self._condition.notify()

    def fail_pending(self, error: Exception) -> None:
        """Answer with an error what is not answered yet."""
        for correlation_id in sorted(self.pending):
            self.deliver(correlation_id, error)

    def _closed_error(self) -> ClientClosedError:
        return ClientClosedError(f"connection of client {self.client_id!r} is closed: open another one")


def closed_error() -> BrokerError:
    """Return what is said of a broker that is closed."""
    return BrokerError("the embedded broker is closed: open another one", code=ErrorCode.UNKNOWN_SERVER_ERROR)
