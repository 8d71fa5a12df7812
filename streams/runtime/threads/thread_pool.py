"""The stream threads of an instance: starting and stopping them, function calls on them, and their shares of memory.

The module imports only ``core`` and ``state`` from outside ``runtime``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from threading import RLock
from typing import Any

from attrs import define, field

from streams.core.clock import Clock
from streams.core.concurrency.threads import Answer, Threads, Worker
from streams.core.settings.config import StreamsConfig
from streams.runtime.threads.thread import StreamThread
from streams.state import MemoryBudget


@define(eq=False)
class PooledThread:
    """A stream thread, its number, and its worker."""

    number: int
    stream_thread: StreamThread
    worker: Worker | None = None
    #: Whether the loop of the thread has ended; its worker may still be alive for a moment.
    has_ended: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether the thread has neither ended nor been stopped."""
        return not self.has_ended and not self.stream_thread.stopping.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether the worker of the thread is alive."""
        return self.worker is not None and self.worker.is_alive

    @property
    def is_current(self) -> bool:
        return self.worker is not None and self.worker.is_current

    def join(self, timeout_ms: int | None) -> bool:
        """Wait for the end of the thread; return whether it has ended in time, which the calling thread never has."""
        return self.worker is None or (not self.worker.is_current and self.worker.join(timeout_ms))

    def ask(self, question: Callable[[StreamThread], Any], threads: Threads, *, is_read: bool = False) -> Answer[Any]:
        """Make the stream thread call ``question`` with itself as the argument; return an ``Answer`` for the result."""
        if not self.is_current:
            return self.stream_thread.ask(question, is_read=is_read)
        # A thread that waits for a call to itself, from a listener or processor, would deadlock.
        answer: Answer[Any] = Answer(threads)
        answer.settle(partial(question, self.stream_thread))
        return answer

    def stop(self) -> None:
        """Request the thread to stop; does not wait for it."""
        self.stream_thread.stopping.set()
        self.stream_thread.wake()


@define(eq=False)
class ThreadPool:
    """The stream threads of an instance, by number.

    ``make`` creates a thread, ``run`` runs it, and ``lock`` is the lock of the instance.
    """

    _make: Callable[[int], StreamThread]
    _run: Callable[[PooledThread], None]
    _config: StreamsConfig
    _clock: Clock
    _threads: Threads
    _lock: RLock
    members: list[PooledThread] = field(init=False, factory=list)
    is_paused: bool = field(init=False, default=False)
    #: Number of threads that have failed.
    failed: int = field(init=False, default=0)

    def add(self) -> StreamThread:
        """Start a thread with the lowest free number."""
        with self._lock:
            taken = {member.number for member in self.members}
            number = next(number for number in count(1) if number not in taken)
            stream_thread = self._make(number)
            stream_thread.is_paused = self.is_paused
            member = PooledThread(number, stream_thread)
            self.members.append(member)
            self._share_memory()
            member.worker = self._threads.start(stream_thread.name, partial(self._run, member))
        return stream_thread

    def remove_youngest(self, timeout_ms: int | None) -> StreamThread | None:
        """Stop the thread with the highest number; return None if there is none, or if it has not ended in time."""
        with self._lock:
            running = (member for member in self.members if member.is_wanted)
            member = max(running, key=lambda member: member.number, default=None)
            if member is None:
                return None
            member.stop()
        if not member.join(timeout_ms):
            return None
        self.drop(member)
        return member.stream_thread

    def drop(self, member: PooledThread) -> None:
        """Remove a thread that has ended from the pool."""
        with self._lock:
            if member in self.members:
                self.members.remove(member)
                self._share_memory()

    def end(self, member: PooledThread) -> bool:
        """Mark a thread as ended; return whether all threads have ended."""
        with self._lock:
            member.has_ended = True
            return all(other.has_ended for other in self.members)

    def announce_shutdown(self, number: int) -> None:
        """Request the shutdown of all instances from the group leader, through a temporary member.

        Raises:
            StreamsError: the member cannot join.
        """
        with self._lock:
            announcer = self._make(number)
        announcer.wants_shutdown = True
        announcer.announce()

    def ask(self, question: Callable[[StreamThread], Any]) -> list[Any]:
        """Call a function with each stream thread, between two iterations of its loop, and return the results."""
        with self._lock:
            asked = [member.ask(question, self._threads) for member in self.members if member.is_alive]
        return [answer.result() for answer in asked]

    def set_paused(self, is_paused: bool) -> None:
        """Pause or resume processing on all threads, and on threads that are started later."""
        with self._lock:
            self.is_paused = is_paused
            for member in self.members:
                member.stream_thread.is_paused = is_paused
                member.stream_thread.wake()

    def stop_all(self) -> None:
        """Request all threads to stop, without waiting for them."""
        with self._lock:
            for member in self.members:
                member.stop()

    def join(self, timeout_ms: int | None) -> bool:
        """Join all threads; return whether they ended in time."""
        deadline_ms = None if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms
        for member in list(self.members):
            member.join(None if deadline_ms is None else max(0, deadline_ms - self._clock.monotonic_ms()))
        return not any(member.is_alive for member in self.members)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in one of the stream threads."""
        # Under the lock, the worker of a thread that has just started is known.
        with self._lock:
            return any(member.is_current for member in self.members)

    @property
    def alive(self) -> int:
        """The number of threads that have not ended."""
        return sum(not member.has_ended for member in list(self.members))

    def iterations_ms(self) -> dict[str, int]:
        """Return, by name, the monotonic time in ms at which each running thread began its current iteration."""
        return {
            member.stream_thread.name: iteration_ms
            for member in list(self.members)
            if not member.has_ended and (iteration_ms := member.stream_thread.iteration_ms) is not None
        }

    def stack_of(self, name: str) -> str:
        """Return the current stack of a thread, formatted like a traceback."""
        workers = [member.worker for member in list(self.members) if member.stream_thread.name == name]
        return "\n".join(worker.stack() for worker in workers if worker is not None)

    @property
    def is_ready(self) -> bool:
        """Whether every thread has opened and restored all its tasks."""
        return all(member.stream_thread.is_ready for member in self.members if member.is_wanted)

    @property
    def stream_threads(self) -> Sequence[StreamThread]:
        """The stream threads in the pool."""
        return [member.stream_thread for member in self.members]

    def _share_memory(self) -> None:
        """Divide the memory of record caches and of uncommitted state among the threads."""
        config = self._config
        count = len(self.members)
        budget = MemoryBudget(config.state_memory_max_bytes, config.cache_max_bytes)
        for thread in self.stream_threads:
            thread.uncommitted.max_bytes = budget.uncommitted_bytes // count
            thread.restorer.max_uncommitted_bytes = budget.restoring_bytes // count
            if thread.task_set.cache is not None:
                thread.task_set.cache.max_bytes = config.cache_max_bytes // count
