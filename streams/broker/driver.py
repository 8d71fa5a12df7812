"""The state machine of the embedded broker with its lock and timers, driven by the threads that use it.

Clients in this process use ``LocalConnection``, and servers use ``act``.  ``embedded`` exposes both to users and
describes the locking.
"""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Protocol

from streams.broker.service import Broker
from streams.clients import ONE_BROKER, BrokerClosedError
from streams.core.clock import Clock, VirtualClock
from streams.core.concurrency.forks import DISOWNED, stays_in_process
from streams.core.errors import BrokerError, ClientClosedError
from streams.protocol.request import Request, Response


class TimeKeeper(Protocol):
    """An object that runs the timers of a broker: a server, or a connection that polls."""

    def nudge(self) -> None:
        """Check the next deadline again, because it is now earlier; called from any thread, under the broker lock."""
        ...


class Driver:
    """A broker state machine with the lock that lets one thread at a time use it.

    ``lock`` guards the state machine; call ``check_open`` right after acquiring the lock.
    """

    def __init__(self, machine: Broker, clock: Clock, cluster_id: str) -> None:
        self.machine = machine
        self.clock = clock
        self.cluster_id = cluster_id
        self.lock = threading.Lock()
        self.never_waits = isinstance(clock, VirtualClock)
        self.is_closed = False
        self._why_closed = "the embedded broker is closed: open another one"
        # Deadlines use the monotonic clock; setting the wall clock affects timestamps only.
        self._origin_ms = clock.now_ms() - clock.monotonic_ms()
        self._connections: set[LocalConnection] = set()
        self._waiting: dict[LocalConnection, None] = {}
        # The listening servers; the first one runs the timers.
        self._servers: list[TimeKeeper] = []
        self._keeper: TimeKeeper | None = None
        self._armed_ms: int | None = None

    @property
    def node_id(self) -> int:
        """The broker ID of the state machine."""
        return self.machine.config.node_id

    # --- for servers ----------------------------------------------------------------------

    def act(self, action: Callable[[Broker, int], None]) -> None:
        """Call a function with the state machine and the monotonic time in milliseconds, under the lock.

        Raises:
            BrokerError: the broker is closed.  Errors from the function are passed on.
        """
        with self.lock:
            self.check_open()
            now_ms = self.now_ms()
            self._run_due(now_ms)
            action(self.machine, now_ms)
            self.nudge_keeper()

    def keep_time(self, server: TimeKeeper) -> None:
        """Register a server, which can run the timers from now on."""
        with self.lock:
            self._servers.append(server)
            self._keeper = self._servers[0]
            self._armed_ms = None

    def release(self, server: TimeKeeper) -> None:
        """Unregister a server that is closing."""
        with self.lock:
            self._servers.remove(server)
            self._hand_on()

    def run_due(self) -> int | None:
        """Run the timers that are due; return the milliseconds until the next one, or None if no timer is set.

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
        """Open an in-process connection for a client with this client ID.

        Raises:
            BrokerError: the broker is closed.
        """
        with self.lock:
            self.check_open()
            connection = LocalConnection(self, client_id)
            self._connections.add(connection)
            return connection

    def handle(self, connection: "LocalConnection", correlation_id: int, node_id: int, request: Request) -> None:
        """Handle a request from a connection; the response is delivered to the connection now or later."""
        with self.lock:
            if self.is_closed:
                connection.deliver(correlation_id, self.closed_error())
                return
            connection.pending.add(correlation_id)
            try:
                if node_id not in (-1, self.node_id):
                    raise BrokerError(f"node {node_id} is unknown: the embedded broker is node {self.node_id}")
                now_ms = self.now_ms()
                self._run_due(now_ms)
                self.machine.handle(request, now_ms, partial(connection.deliver, correlation_id))
            except Exception as error:  # noqa: BLE001
                # Deliver the error as the response, as over a network.
                connection.deliver(correlation_id, error)
            self.nudge_keeper()

    def tick(self) -> None:
        """Run the timers that are due, unless the broker is closed."""
        with self.lock:
            if not self.is_closed:
                self._run_due(self.now_ms())

    def enter_wait(self, connection: "LocalConnection", remaining_ms: int) -> int:
        """Register a waiting connection, and return how many milliseconds it may sleep."""
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
        """Unregister a connection whose ``poll`` returns; a server or another connection takes over the timers."""
        with self.lock:
            self._waiting.pop(connection, None)
            if self._keeper is connection:
                self._hand_on()

    def forget(self, connection: "LocalConnection") -> None:
        """Unregister a closed connection."""
        with self.lock:
            self._connections.discard(connection)

    def disown(self) -> None:
        """Refuse all further use in a forked process, in which no thread may hold the lock."""
        self.lock = threading.Lock()
        self.is_closed = True
        self._why_closed = (
            f"the embedded broker {DISOWNED}: call its serve() there, and connect with bootstrap_servers="
        )

    def closed_error(self) -> BrokerError:
        """Return the error for requests to a closed broker."""
        return BrokerClosedError(self._why_closed)

    # --- under the lock -------------------------------------------------------------------

    def check_open(self) -> None:
        """Check that the broker is open.

        Raises:
            BrokerError: the broker is closed.
        """
        if self.is_closed:
            raise self.closed_error()

    def now_ms(self) -> int:
        """Return the monotonic time in milliseconds for deadlines, and update the difference to the wall clock.

        Timestamps and retention use the wall-clock time, which never goes back: if the wall clock is set back,
        time continues from the latest value.
        """
        now_ms = self._origin_ms + self.clock.monotonic_ms()
        self.machine.clock_ahead_ms = max(self.machine.clock_ahead_ms, self.clock.now_ms() - now_ms)
        return now_ms

    def wall_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds, which never goes back."""
        return self.machine.wall_ms(self.now_ms())

    def nudge_keeper(self) -> None:
        """Wake the object that runs the timers, if the next deadline is earlier than the one it sleeps until."""
        if self._keeper is None:
            return
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is not None and (self._armed_ms is None or deadline_ms < self._armed_ms):
            self._armed_ms = deadline_ms
            self._keeper.nudge()

    def fail_pending(self) -> None:
        """Fail all pending requests because the broker is closed."""
        for connection in self._connections:
            connection.fail_pending(self.closed_error())

    def _run_due(self, now_ms: int) -> None:
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self.machine.tick(now_ms)

    def _hand_on(self) -> None:
        """Assign the timers to a server or, if none is listening, to a waiting connection.

        If no connection is waiting, the next connection that waits runs the timers.
        """
        self._keeper = self._servers[0] if self._servers else None
        heir = self._keeper or next(iter(self._waiting), None)
        if heir is not None:
            heir.nudge()


class LocalConnection:
    """The in-process connection of one client to the embedded broker; see ``protocol.transport.Connection``."""

    traits = ONE_BROKER
    outage = None

    def __init__(self, driver: "Driver", client_id: str) -> None:
        self.client_id = client_id
        self._driver = driver
        self._ids = count()
        self._condition = threading.Condition(threading.Lock())
        self._inbox: deque[tuple[int, Response | Exception]] = deque()
        self._is_woken = False
        self._is_nudged = False
        self._is_closed = False
        self._why_closed = "is closed: open another one"
        # Changed only under the broker lock.
        self.pending: set[int] = set()
        stays_in_process(self)

    def send(self, node_id: int, request: Request) -> int:
        """Send a request and return its correlation ID; ``poll`` returns the response.

        Raises:
            ClientClosedError: the connection is closed.
        """
        if self._is_closed:
            raise self._closed_error()
        correlation_id = next(self._ids)
        self._driver.handle(self, correlation_id, node_id, request)
        return correlation_id

    def poll(self, timeout_ms: int) -> list[tuple[int, Response | Exception]]:
        """Return the responses that have arrived, waiting up to the timeout for the first one.

        Raises:
            ClientClosedError: the connection is closed.
        """
        driver = self._driver
        clock = self._driver.clock
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

    def give_up(self, correlation_id: int) -> None:
        """Do nothing: on an in-process connection, no request blocks another one."""

    def wakeup(self) -> None:
        """Interrupt the current or the next ``poll`` from another thread."""
        with self._condition:
            self._is_woken = True
            self._condition.notify()

    def close(self) -> None:
        """Close the connection; pending requests get neither a response nor an error."""
        with self._condition:
            self._is_closed = True
            self._inbox.clear()
            self._condition.notify()
        self._driver.forget(self)

    def _take(self) -> list[tuple[int, Response | Exception]] | None:
        """Return the responses in the inbox, [] after a wakeup, or None to keep waiting."""
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
            # Responses may have arrived since the last check, so check again under the condition.
            if not (self._inbox or self._is_woken or self._is_nudged or self._is_closed) and for_ms > 0:
                self._condition.wait(for_ms / 1000)
            self._is_nudged = False

    def deliver(self, correlation_id: int, answer: Response | Exception) -> None:
        """Add the response to a request, or an error, to the inbox."""
        self.pending.discard(correlation_id)
        with self._condition:
            if not self._is_closed:
                self._inbox.append((correlation_id, answer))
                self._condition.notify()

    def nudge(self) -> None:
        """Wake a waiting ``poll``, which then recomputes how long it may sleep."""
        with self._condition:
            self._is_nudged = True
            self._condition.notify()

    def fail_pending(self, error: Exception) -> None:
        """Fail all pending requests of this connection with an error."""
        for correlation_id in sorted(self.pending):
            self.deliver(correlation_id, error)

    def disown(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._is_closed = True
        self._why_closed = f"{DISOWNED}: open another one here"

    def _closed_error(self) -> ClientClosedError:
        return ClientClosedError(f"connection of client {self.client_id!r} {self._why_closed}")
