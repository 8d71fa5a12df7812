"""A thread that ends waits for the calls of its tasks, and for nothing that is over."""

from types import SimpleNamespace
from typing import Any

from streams.core.blocks.records import TaskId
from streams.core.clock import VirtualClock
from streams.core.concurrency.calls import SteppedLoop
from streams.runtime.tasks.call_ending import finish_in_time


def test_a_call_that_has_finished_does_not_end_the_wait_for_the_others() -> None:
    """The thread would poll without a pause until the last call has finished."""
    clock = VirtualClock(0)
    loop = SteppedLoop(clock)
    calls = SimpleNamespace(in_flight=2)
    task: Any = SimpleNamespace(calls=calls, is_initialized=True, punctuate=lambda now_ms: 0)
    waits: list[int] = []

    def wait(timeout_ms: int) -> None:
        waits.append(loop.wait_ms(timeout_ms))
        clock.advance(100)
        calls.in_flight -= 1
        loop._on_finished()

    loop._on_finished()
    finish_in_time({TaskId(0, 0): task}, loop, clock, 1_000, lambda task: None, wait)

    assert waits == [1_000, 900]
