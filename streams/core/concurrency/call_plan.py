"""Calls of async functions: their records, and the function with its limits, timeouts and retries.

This module imports only other modules of ``core``.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from attrs import define, field, frozen

from streams.core.blocks.records import Headers, RecordMetadata
from streams.core.concurrency.call_threads import CallThreads, awaited
from streams.core.errors import StreamsError

if TYPE_CHECKING:
    import asyncio

#: Order of results: per key (one call per key at a time), per input partition, or as calls finish.
CallOrder: TypeAlias = Literal["key", "partition", "none"]


#: Maximum pause before a retry, in seconds, unless the first pause is longer.
_MAX_PAUSE_S = 60
#: Limits the power of two by which the first pause is multiplied; a higher one would exceed the maximum pause.
_MAX_DOUBLINGS = 60


@define(eq=False)
class Call:
    """One call of an async user function: its input record, and its result or error once ``is_done`` is True."""

    sequence: int
    key: Any
    value: Any
    timestamp_ms: int
    headers: Headers | None
    #: Topic, partition and offset of the source record, or None.
    origin: RecordMetadata | None
    owner: "CallOwner"
    #: The raw key and value of the source record, if they are kept.
    raw: tuple[bytes | None, bytes | None] = (None, None)
    #: Calls with the same lane are ordered; None stands for no order.
    lane: Any = None
    #: Whether the record is in the store of its node.
    is_stored: bool = False
    result: Any = None
    error: BaseException | None = None
    is_done: bool = False
    #: Start of the call, in seconds of the event loop's clock; None before the start.
    started_s: float | None = None
    #: Duration of the finished call in seconds, including retries and pauses.
    took_s: float = 0
    #: Number of attempts (calls of the function), and of attempts that timed out.
    attempts: int = 0
    timeouts: int = 0


class CallOwner(Protocol):
    """A node of a task that submits calls."""

    #: The finished calls that the node has not taken yet.
    done: "deque[Call]"
    #: Whether the task is closed, so that results are discarded.
    is_closed: bool


@define(eq=False)
class _Timeouts:
    """Cancels calls that time out; all calls of a node have the same timeout and share one timer."""

    loop: "asyncio.AbstractEventLoop"
    timeout_s: float
    #: (deadline, asyncio task, whether the call is running), in the order of the deadlines.
    _calls: "deque[list[Any]]" = field(factory=deque)

    def begin(self) -> list[Any]:
        """Start the timeout of a call that runs in the current asyncio task; return its entry in ``_calls``."""
        from asyncio import current_task

        deadline = self.loop.time() + self.timeout_s
        if not self._calls:
            self.loop.call_at(deadline, self._check)
        entry: list[Any] = [deadline, current_task(), True]
        self._calls.append(entry)
        return entry

    def _check(self) -> None:
        calls = self._calls
        now = self.loop.time()
        while calls and (not calls[0][2] or calls[0][0] <= now):
            entry = calls.popleft()
            if entry[2]:
                entry[2] = None
                entry[1].cancel()
        if calls:
            self.loop.call_at(calls[0][0], self._check)


@frozen
class CallPlan:
    """The function, limits and retries with which a node calls a user function.

    The function takes key and value, or only the value without ``with_key``; ``check`` converts its results.  With
    ``in_threads`` it is a plain function, which is called in threads.  An event loop on virtual time calls it on the
    thread of the loop instead, so that simulations and tests are deterministic.  The pause before the n-th retry is
    ``backoff_s`` times 2 to the power of n - 1, at most one minute or ``backoff_s``, whichever is longer.
    """

    function: Callable[..., Awaitable[Any]]
    with_key: bool
    concurrency: int = 100
    order: CallOrder = "key"
    timeout_s: float | None = None
    retries: int = 0
    backoff_s: float = 0.1
    retry_on: tuple[type[Exception], ...] = (Exception,)
    check: Callable[[Any], Any] | None = None
    in_threads: bool = False

    @property
    def options(self) -> dict[str, int | str]:
        """The declared limits and order of calls, by name."""
        return {"concurrency": self.concurrency, "order": self.order, "retries": self.retries}

    @property
    def periods(self) -> dict[str, int]:
        """The declared timeout of a call in milliseconds, if there is one."""
        return {} if self.timeout_s is None else {"timeout": round(self.timeout_s * 1000)}

    def bind(
        self, loop: "asyncio.AbstractEventLoop", threads: CallThreads | None = None
    ) -> Callable[[Call], Awaitable[Any]]:
        """Return the function for an event loop, as a function of a ``Call``, with timeout and retries."""
        from asyncio import CancelledError

        function, with_key, check = self.function, self.with_key, self.check
        if self.in_threads:
            function = awaited(function, threads)
        timeouts = None if self.timeout_s is None else _Timeouts(loop, self.timeout_s)

        async def once(call: Call) -> Any:
            call.attempts += 1
            returned = function(call.key, call.value) if with_key else function(call.value)
            if not hasattr(returned, "__await__"):
                raise StreamsError(f"an async function must return something to await, not {returned!r:.60}")
            if timeouts is None:
                result = await returned
            else:
                entry = timeouts.begin()
                try:
                    result = await returned
                except CancelledError as error:
                    if entry[2] is not None:
                        raise
                    call.timeouts += 1
                    raise TimeoutError(f"the call took longer than {timeouts.timeout_s:g} s") from error
                finally:
                    if entry[2] is None:
                        entry[1].uncancel()
                    entry[2] = False
            return result if check is None else check(result)

        return self._retried(once) if self.retries else once

    def _retried(self, once: Callable[[Call], Awaitable[Any]]) -> Callable[[Call], Awaitable[Any]]:
        from asyncio import sleep

        async def retried(call: Call) -> Any:
            for attempt in range(self.retries):
                try:
                    return await once(call)
                except self.retry_on:
                    pause_s = self.backoff_s * 2 ** min(attempt, _MAX_DOUBLINGS)
                    await sleep(min(pause_s, max(self.backoff_s, _MAX_PAUSE_S)))
            return await once(call)

        return retried
