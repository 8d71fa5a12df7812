"""Queries of stream threads, in batches: one call per thread has all queries of one iteration of the event loop.

A call costs more than a query: it wakes the thread, and its result wakes the event loop.  Of the other packages, this
module imports only ``core`` and ``runtime``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, field

from streams.core.concurrency.threads import INTERRUPTIONS, Answer
from streams.core.errors import ClientClosedError
from streams.runtime import Answers, Instance, PooledThread, StreamThread
from streams.web import peers

_Question = Callable[[StreamThread], Answers]
_Result = Answers | Exception


@define(eq=False)
class _Batch:
    """Queries for one thread, and the futures for their results."""

    asked: list[tuple[_Question, "asyncio.Future[Answers]"]] = field(factory=list)
    answer: Answer[list[_Result]] | None = None
    timer: asyncio.TimerHandle | None = None

    def settle(self, results: Sequence[_Result]) -> None:
        """Set the results of the queries' futures."""
        if self.timer is not None:
            self.timer.cancel()
        for (_, done), result in zip(self.asked, results, strict=True):
            if done.done():
                continue
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)


@define(eq=False)
class Batches:
    """Queries the stream threads of an instance; all calls must come from one event loop."""

    _instance: Instance
    _open: dict[PooledThread, _Batch] = field(factory=dict)
    #: Batches with results, and whether the event loop is already scheduled to take them.
    _done: deque[_Batch] = field(factory=deque)
    _is_waking: bool = False

    def ask(self, member: PooledThread, question: _Question) -> "asyncio.Future[Answers]":
        """Query a thread; the future raises TimeoutError if it is late, or ClientClosedError if it has ended."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Answers] = loop.create_future()
        batch = self._open.get(member)
        if batch is None:
            batch = self._open[member] = _Batch()
            if len(self._open) == 1:
                loop.call_soon(self._send, loop)
        batch.asked.append((question, done))
        return done

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        opened = self._open
        self._open = {}
        for member, batch in opened.items():
            questions = [question for question, _ in batch.asked]
            late: list[_Result] = [TimeoutError()] * len(questions)
            batch.timer = loop.call_later(peers.ANSWER_S / 2, batch.settle, late)
            batch.answer = member.ask(partial(_results, questions), self._instance.environment.threads, is_read=True)
            batch.answer.then(partial(self._wake, loop, batch))

    def _wake(self, loop: asyncio.AbstractEventLoop, batch: _Batch) -> None:
        """Take the results of a batch, from any thread; batches that are ready before the loop runs share a wake-up."""
        self._done.append(batch)
        # After the server is closed, nothing awaits the futures.
        if not self._is_waking and not loop.is_closed():
            self._is_waking = True
            loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._is_waking = False
        while self._done:
            batch = self._done.popleft()
            assert batch.answer is not None
            results: list[_Result]
            try:
                results = batch.answer.result(0)
            except ClientClosedError as error:
                results = [error] * len(batch.asked)
            batch.settle(results)


def _results(questions: Sequence[_Question], thread: StreamThread) -> list[_Result]:
    results: list[_Result] = []
    for question in questions:
        try:
            results.append(question(thread))
        except INTERRUPTIONS:
            raise
        except Exception as error:  # noqa: BLE001
            # The error is raised by the future, where the result is awaited.
            results.append(error)
    return results
