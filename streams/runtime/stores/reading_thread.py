"""A thread of an instance that reads topics beside the stream threads, for global stores and for the progress of tasks.

The module imports only ``clients`` and ``core`` from outside ``runtime``.
"""

from collections.abc import Callable
from typing import Final

from attrs import define

from streams.clients import Consumer, WakeupError
from streams.core.concurrency.threads import ThreadKilled, Threads, Worker

_POLL_MS: Final = 500


@define(eq=False)
class ReadingThread:
    """Calls ``step`` in a thread of its own until it is closed; ``step`` polls the consumer for at most its argument.

    A failure of ``step`` is passed to ``on_failure``.
    """

    _consumer: Consumer
    _step: Callable[[int], None]
    _on_failure: Callable[[BaseException], None]
    _threads: Threads
    _worker: Worker | None = None
    _is_closing: bool = False

    def start(self, name: str) -> None:
        """Start the thread; ``name`` is its name."""
        self._worker = self._threads.start(name, self._run)

    @property
    def is_current(self) -> bool:
        return self._worker is not None and self._worker.is_current

    def close(self) -> None:
        """Stop the thread, and close the consumer."""
        self._is_closing = True
        if self._worker is not None:
            self._consumer.wakeup()
            self._worker.join()
        self._consumer.close()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                try:
                    self._step(_POLL_MS)
                except WakeupError:
                    continue
        except ThreadKilled:
            raise
        except BaseException as error:
            # An exception raised here would be lost, since it would only end the thread.
            self._on_failure(error)
