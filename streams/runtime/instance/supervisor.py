"""Supervises the stream threads of an instance: what follows when one fails or ends, for the others and for the state.

The module imports only ``core`` from outside ``runtime``.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, field

from streams.core.blocks.records import TaskId
from streams.core.concurrency.threads import Signal, ThreadKilled
from streams.core.errors import ConfigError, ProcessingError, StreamsError
from streams.core.metrics import Metrics
from streams.core.settings.config import StreamsConfig
from streams.core.user_code import place_in_user_code, refuse_result
from streams.runtime.plan.bounded import BoundedProgress
from streams.runtime.plan.life import Life, State
from streams.runtime.stores.listeners import ExceptionResponse, InstanceListeners
from streams.runtime.threads.environment import Environment
from streams.runtime.threads.thread import StreamThread
from streams.runtime.threads.thread_pool import PooledThread, ThreadPool

log = logging.getLogger(__name__)


@define(eq=False)
class Supervisor:
    """Starts the threads that ``make`` creates, replaces them, and ends all of them after a failure."""

    _config: StreamsConfig
    _environment: Environment
    _listeners: InstanceListeners
    _metrics: Metrics
    _make: Callable[[int], StreamThread]
    #: The progress of a bounded run, once it is known; None if the run is live.
    bounded: BoundedProgress | None = field(init=False, default=None)
    #: The first failure that has ended the instance.
    failure: BaseException | None = field(init=False, default=None)
    #: Set when no thread is left, or when the failure of one thread stops all threads.
    ended: Signal = field(init=False)
    life: Life = field(init=False)
    pool: ThreadPool = field(init=False)
    _on_ended: list[Callable[[], None]] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        config, environment = self._config, self._environment
        self.ended = environment.threads.signal()
        self.life = Life(config.application_id, self._listeners.on_state)
        self.pool = ThreadPool(self._make, self._run, config, environment.clock, environment.threads, self.life.lock)

    def start(self, count: int) -> None:
        """Start as many threads; the instance is not ready until all of them have started."""
        with self.life.lock:
            if self.life.move(State.REBALANCING):
                for _ in range(count):
                    self.pool.add()

    def stop(self, timeout_ms: int | None) -> bool:
        """Stop all threads and join them; return whether they ended in time."""
        self.pool.stop_all()
        return self.pool.join(timeout_ms)

    def move(self, state: State) -> None:
        """Change to ``state`` if the transition is valid, and call the state listener."""
        self.life.move(state)
        self.life.notify()

    def settle(self) -> None:
        """Set the state to RUNNING if every thread has opened and restored all its tasks, otherwise to REBALANCING."""
        with self.life.lock:
            if self.life.is_up:
                self.life.move(State.RUNNING if self.pool.is_ready else State.REBALANCING)
        self.life.notify()

    def end(self) -> None:
        """Set ``ended``, and call the functions that wait for it."""
        self.ended.set()
        for call in list(self._on_ended):
            call()

    @contextmanager
    def telling_end(self, call: Callable[[], None]) -> Iterator[None]:
        """During a ``with`` block, call a function when ``ended`` is set, in the thread that sets it.

        If it is set already, the function is called at once.  The function may be called twice.
        """
        self._on_ended.append(call)
        try:
            if self.ended.is_set():
                call()
            yield
        finally:
            self._on_ended.remove(call)

    def fail(self, error: BaseException) -> None:
        """Stop all threads because of a failure; the first one is that of the instance."""
        with self.life.lock:
            is_first = self.failure is None
            if is_first:
                self.failure = error
            self.life.move(State.PENDING_ERROR)
        self.pool.stop_all()
        if is_first and self.bounded is None:
            # A bounded run raises the error in ``wait``.  Errors raised by ``wait`` and ``close`` have the traceback;
            # it is also logged unless the error is a StreamsError.
            trace = None if isinstance(error, StreamsError) else error
            text = "application %r failed: %s"
            log.error(text, self._config.application_id, _one_line(error), exc_info=trace, extra={"failure": error})
        self.life.notify()
        self.end()
        if self.bounded is not None:
            self.bounded.done.set()

    def on_shutdown(self) -> None:
        """Shut down because another instance has requested it for the whole application."""
        if self.life.is_up:
            log.warning("application %r shuts down: another instance requested it", self._config.application_id)
            self.move(State.PENDING_SHUTDOWN)
        self.pool.stop_all()

    # --- in the thread that ends --------------------------------------------------------

    def _run(self, member: PooledThread) -> None:
        try:
            member.stream_thread.run()
        except ThreadKilled:
            raise
        except BaseException as error:
            # An exception raised here would be lost, since it would only end the thread.
            self._on_failure(member, error)
        finally:
            is_last = self.pool.end(member)
            self.settle()
            if is_last:
                self.move(State.ERROR)
                self.end()

    def _on_failure(self, member: PooledThread, error: BaseException) -> None:
        """Call the user's handler for a failed thread; without a handler the instance shuts down."""
        self.pool.failed += 1
        self._note(error)
        error, response = self._response(error)
        is_running = self.life.is_up
        if member.stream_thread.stopping.is_set() and is_running and self.bounded is None:
            # The thread was already stopping; its tasks move to the other threads.
            log.warning("%s: ends with a failure: %s", member.stream_thread.name, error, exc_info=error)
            return
        if response is ExceptionResponse.REPLACE_THREAD and is_running:
            log.warning("%s: replaced: %s", member.stream_thread.name, _one_line(error), exc_info=error)
            with self.life.lock:
                self.pool.drop(member)
                self.pool.add()
            self.settle()
            return
        if response is ExceptionResponse.SHUTDOWN_APPLICATION and is_running:
            try:
                self.pool.announce_shutdown(member.number)
            except StreamsError as refused:
                log.warning("the other instances could not be asked to shut down: %s", refused)
        self.fail(error)

    def _response(self, error: BaseException) -> tuple[BaseException, ExceptionResponse]:
        """Return what the user's handler responds to a failure, or the failure of the handler itself."""
        if self._listeners.on_exception is None or self.bounded is not None:
            return error, ExceptionResponse.SHUTDOWN_CLIENT
        try:
            response: object = self._listeners.on_exception(error)
            refuse_result(response, "on_exception")
            if not isinstance(response, ExceptionResponse):
                expected = ", ".join(str(possible) for possible in ExceptionResponse)
                raise ConfigError(
                    f"on_exception returned {response!r:.60}; it must return one of {expected}"
                ) from error
        except ThreadKilled:
            raise
        except BaseException as second:
            text = "the exception handler of application %s failed while it handled: %s"
            log.exception(text, self._config.application_id, _one_line(error))
            return second, ExceptionResponse.SHUTDOWN_CLIENT
        return error, response

    def _note(self, error: BaseException) -> None:
        """Count a fatal failure in the metrics."""
        node = error.node if isinstance(error, ProcessingError) else None
        task = error.task_id if isinstance(error, ProcessingError) else None
        self._metrics.failures.note(
            error,
            self._environment.clock.now_ms(),
            node=node or "",
            task=task if isinstance(task, TaskId) else None,
            is_fatal=True,
        )


def _one_line(error: BaseException) -> str:
    """Return an error as one log line, with the line of user code that raised it."""
    # An error without text is shown by its type.
    text = str(error) if isinstance(error, StreamsError) else f"{type(error).__name__}: {error}"
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    cause = error.__cause__ if isinstance(error, ProcessingError) and error.__cause__ is not None else error
    place = place_in_user_code(cause)
    return "; ".join([*lines, *([f"in {place}"] if place and place not in text else [])])
