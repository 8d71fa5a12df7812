"""Requests to brokers by ID, with timeouts, and with callbacks or blocking.

Requests use a ``Connection`` (in process, TCP or simulated).  One thread drives the network by ``poll``, inside
which callbacks run.  Imports protocol and core.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import define, field, frozen

from streams.clients.errors import RETRIABLE, RequestTimeoutError, as_error
from streams.core.clock import Clock
from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import JoinGroup, SyncGroup
from streams.protocol.messages import Fetch
from streams.protocol.request import R, Request, RequestFor, Response, checked
from streams.protocol.transport import Connection, Traits

#: Called with the response or the error of a request.
Callback: TypeAlias = Callable[[Response | Exception], None]

#: Broker ID that stands for any broker.
ANY_NODE: Final = -1

#: A single broker, such as the embedded one: it has the metadata of every topic and leads every partition.
ONE_BROKER: Final = Traits(0, RETRIABLE)
#: A cluster: brokers may lack the metadata of a new topic for a moment; after a disk failure the leader may change.
SEVERAL_BROKERS: Final = Traits(3_000, RETRIABLE | {ErrorCode.STORAGE_ERROR})

# Waiting takes no time under a virtual clock; after this many polls without progress no response is expected.
_FRUITLESS_LIMIT: Final = 100


# Time for the response to a join or sync after the rebalance timeout, in which the slowest member must join.
_REBALANCE_SLACK_MS: Final = 5_000


def response_timeout_ms(request: Request, request_timeout_ms: int) -> int:
    """Return how long to wait for a response, in milliseconds.

    A broker delays the response to a fetch for up to ``max_wait_ms``, and to a join or sync for up to the rebalance
    timeout.  It responds immediately to a join that requests a member id (KIP-394).
    """
    if isinstance(request, Fetch):
        return request_timeout_ms + request.max_wait_ms
    is_first = isinstance(request, JoinGroup) and request.takes_member_id
    if isinstance(request, (JoinGroup, SyncGroup)) and (request.member_id or request.group_instance_id or not is_first):
        return max(request_timeout_ms, request.rebalance_timeout_ms + _REBALANCE_SLACK_MS)
    return request_timeout_ms


@define(eq=False)
class Deadline:
    """The deadline of a wait; the wait also ends if there is no progress while a virtual clock stands still."""

    _clock: Clock
    deadline_ms: int
    _seen_ms: int = -1
    _fruitless: int = 0

    def remaining_ms(self, *, has_progress: bool) -> int:
        """Return the remaining milliseconds, 0 when the wait is over."""
        now = self._clock.monotonic_ms()
        if has_progress or now != self._seen_ms:
            self._fruitless = 0
            self._seen_ms = now
        else:
            self._fruitless += 1
            if self._fruitless >= _FRUITLESS_LIMIT:
                return 0
        return max(0, self.deadline_ms - now)


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
    """The in-flight requests of one client."""

    def __init__(self, connection: Connection, clock: Clock, *, request_timeout_ms: int = 30_000) -> None:
        self._connection = connection
        self.traits = connection.traits
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._pending: dict[int, _Pending] = {}
        self._unsent: list[tuple[Callback | None, Exception]] = []
        self._next_deadline_ms: int | None = None

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._pending) + len(self._unsent)

    def now_ms(self) -> int:
        """Return the current time, as used for request timeouts."""
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
        """Run the callbacks of arrived responses, waiting up to the timeout for the first; return their number."""
        unsent, self._unsent = self._unsent, []
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
        """Send and wait for the response, at most for the request timeout.

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

    def wakeup(self) -> None:
        """End a waiting ``poll`` from another thread."""
        self._connection.wakeup()

    def close(self) -> None:
        """Close the connection and drop all in-flight requests."""
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
        """Whether an error is an unknown topic or partition within the grace period."""
        is_unknown = isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return is_unknown and self._network.now_ms() < self._until_ms
