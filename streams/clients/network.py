"""Sending of requests to brokers by broker ID, with timeouts, either blocking or with callbacks.

Requests use a ``Connection`` (in process, TCP or simulated).  One thread drives the network by ``poll``, inside
which callbacks run.
Of the other packages, this module imports only ``core`` and ``protocol``.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from attrs import define, field, frozen

from streams.clients.errors import RETRIABLE, RequestTimeoutError, as_error
from streams.core.clock import Clock, Deadline
from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.request import R, Request, RequestFor, Response, checked
from streams.protocol.transport import ANY_NODE, Connection, Outage, Traits, response_timeout_ms

#: Called with the response or the error of a request.
Callback: TypeAlias = Callable[[Response | Exception], None]

#: A single broker, such as the embedded one: it has the metadata of every topic and leads every partition.
ONE_BROKER: Final = Traits(0, RETRIABLE)
#: A cluster: brokers may lack the metadata of a new topic for a moment; after a disk failure the leader may change.
SEVERAL_BROKERS: Final = Traits(3_000, RETRIABLE | {ErrorCode.STORAGE_ERROR})


@frozen
class Backoff:
    """Exponential backoff between attempts, up to a maximum (KIP-580 without jitter)."""

    base_ms: int = 100
    max_ms: int = 1_000

    def after(self, attempts: int) -> int:
        """Return the wait in milliseconds after ``attempts`` failed attempts, at least 1."""
        return min(max(self.base_ms, self.max_ms), self.base_ms << min(max(0, attempts - 1), 20))


@define(eq=False)
class _Pending:
    request: Request
    node_id: int
    deadline_ms: int
    on_done: Callback | None


class Network:
    """Sends the requests of one client, and tracks those in flight."""

    def __init__(self, connection: Connection, clock: Clock, *, request_timeout_ms: int = 30_000) -> None:
        self._connection = connection
        self.traits = connection.traits
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._pending: dict[int, _Pending] = {}
        self._unsent: list[tuple[Callback | None, Exception]] = []
        self._next_deadline_ms: int | None = None

    @property
    def outage(self) -> Outage | None:
        """The outage of all brokers, None if one can be reached; thread-safe."""
        return self._connection.outage

    @property
    def in_flight(self) -> int:
        """The number of requests that have no response yet."""
        return len(self._pending) + len(self._unsent)

    def now_ms(self) -> int:
        """Return the current monotonic time in milliseconds, which request timeouts use."""
        return self._clock.monotonic_ms()

    def send(self, node_id: int, request: Request, on_done: Callback | None = None) -> None:
        """Send a request; a later ``poll`` calls ``on_done`` with the response or the error."""
        deadline_ms = self._clock.monotonic_ms() + response_timeout_ms(request, self._request_timeout_ms)
        try:
            correlation_id = self._connection.send(node_id, request)
        except Exception as error:  # noqa: BLE001
            # Any transport failure is passed to the callback in the next ``poll``.
            self._unsent.append((on_done, error))
            return
        self._pending[correlation_id] = _Pending(request, node_id, deadline_ms, on_done)
        if self._next_deadline_ms is None or deadline_ms < self._next_deadline_ms:
            self._next_deadline_ms = deadline_ms

    def poll(self, timeout_ms: int) -> int:
        """Run the callbacks of arrived responses, waiting up to the timeout for the first; return how many arrived."""
        unsent = self._unsent
        self._unsent = []
        if self._next_deadline_ms is not None and timeout_ms:
            timeout_ms = min(timeout_ms, max(0, self._next_deadline_ms - self._clock.monotonic_ms()))
        arrived = self._connection.poll(0 if unsent else max(0, timeout_ms))
        for callback, error in unsent:
            if callback is not None:
                callback(error)
        for correlation_id, response in arrived:
            pending = self._pending.pop(correlation_id, None)
            # A response that arrives after the timeout is ignored, since the request has already failed.
            if pending is not None and pending.on_done is not None:
                pending.on_done(response)
        return len(unsent) + len(arrived) + self._expire()

    def request(self, node_id: int, request: RequestFor[R], timeout_ms: int | None = None, *, what: str = "") -> R:
        """Send a request and wait for the response, by default at most for the request timeout.

        Raises:
            RequestTimeoutError: no response came in time.
            BrokerError: the connection failed.
        """
        result: list[Response | Exception] = []
        timeout_ms = self._request_timeout_ms if timeout_ms is None else min(timeout_ms, self._request_timeout_ms)
        self.send(node_id, request, result.append)
        deadline = Deadline(self._clock, self._clock.monotonic_ms() + timeout_ms)
        has_progress = True
        while not result:
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            has_progress = self.poll(remaining_ms) > 0
            if not result and not remaining_ms:
                raise self._timeout(request, node_id)
        response = result[0]
        if isinstance(response, Exception):
            raise as_error(response, what or type(request).__name__) from response
        return checked(request, response)

    def wait(self, done: Sequence[object], deadline: Deadline) -> bool:
        """Poll until ``done`` is not empty or the deadline passes; return whether ``done`` is not empty."""
        has_progress = True
        while not done:
            remaining_ms = deadline.remaining_ms(has_progress=has_progress)
            has_progress = self.poll(remaining_ms) > 0
            if not remaining_ms and not has_progress:
                break
        return bool(done)

    def wakeup(self) -> None:
        """Make ``poll`` return if it is waiting; may be called from another thread."""
        self._connection.wakeup()

    def close(self) -> None:
        """Drop all in-flight requests, and close the connection."""
        self._pending.clear()
        self._unsent.clear()
        self._connection.close()

    def _expire(self) -> int:
        if self._next_deadline_ms is None:
            return 0
        now = self._clock.monotonic_ms()
        if now < self._next_deadline_ms:
            return 0
        expired = [(number, pending) for number, pending in self._pending.items() if pending.deadline_ms <= now]
        for number, pending in expired:
            self._pending.pop(number, None)
            # Otherwise the next request, such as a retry, would be delayed until this response arrives.
            self._connection.give_up(number)
            if pending.on_done is not None:
                pending.on_done(self._timeout(pending.request, pending.node_id))
        self._next_deadline_ms = min((pending.deadline_ms for pending in self._pending.values()), default=None)
        return len(expired)

    @staticmethod
    def _timeout(request: Request, node_id: int) -> RequestTimeoutError:
        node = "any broker" if node_id == ANY_NODE else f"broker {node_id}"
        return RequestTimeoutError(
            f"{type(request).__name__} to {node}: no response in time; is it running and reachable?"
        )


@define(eq=False)
class Settling:
    """A grace period in which brokers may lack the metadata of a new topic; it is zero with a single broker."""

    _network: Network
    _until_ms: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._until_ms = self._network.now_ms() + self._network.traits.settling_ms

    def excuses(self, error: Exception) -> bool:
        """Whether an error reports an unknown topic or partition within the grace period."""
        is_unknown = isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return is_unknown and self._network.now_ms() < self._until_ms
