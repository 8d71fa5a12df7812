"""Shutdown of a thread whose tasks have calls to async functions in flight.

The module imports only ``clients`` and ``core`` from outside ``runtime``.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from streams.clients import WakeupError
from streams.core.blocks.records import TaskId
from streams.core.clock import Clock
from streams.core.concurrency.calls import PolledLoop
from streams.runtime.tasks.task import Task

log = logging.getLogger(__name__)


def finish_in_time(
    tasks: Mapping[TaskId, Task],
    loop: PolledLoop,
    clock: Clock,
    timeout_ms: int,
    send: Callable[[Task], object],
    wait: Callable[[int], object],
) -> None:
    """Wait at most ``timeout_ms`` for the async calls of a thread's tasks, and send the results of finished calls.

    The final commit stores the records whose calls have not finished by then; after a restart, their functions are
    called again. ``loop`` runs the calls; ``wait(ms)`` polls the consumer for at most the given number of milliseconds,
    or until a call finishes.
    """
    deadline_ms = clock.monotonic_ms() + timeout_ms
    while True:
        in_flight = 0
        # Before the results are forwarded: a call that finishes later ends the wait, an earlier one must not.
        loop.take_news()
        for task in tasks.values():
            if task.calls is not None and task.is_initialized:
                if task.punctuate(clock.now_ms()):
                    send(task)
                in_flight += task.calls.in_flight
        remaining_ms = deadline_ms - clock.monotonic_ms()
        if not in_flight:
            return
        if remaining_ms <= 0:
            log.info("%d calls are in flight at the end, and are repeated after a restart", in_flight)
            return
        with suppress(WakeupError):
            # The polled records are not processed, as in the final commit.
            wait(remaining_ms)
