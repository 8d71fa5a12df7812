"""Loops of async calls: which calls they start."""

from collections import deque
from typing import Any

from attrs import define, field

from streams.core.clock import VirtualClock
from streams.core.concurrency.calls import BlockingLoop, Call, CallPlan, SteppedLoop


@define(eq=False)
class Owner:
    done: deque[Call] = field(factory=deque)
    is_closed: bool = False


def test_calls_of_a_node_that_is_closed_before_the_loop_runs_do_not_start():
    """A slice of a history ends with calls in flight, which the next one makes."""
    started = []

    async def function(value: Any) -> Any:
        started.append(value)
        return value

    loop, closed, owner = BlockingLoop(), Owner(), Owner()
    gate = loop.gate("node", CallPlan(function, with_key=False))
    loop.submit(gate, [Call(1, "a", "closed", 0, None, None, closed, lane="a")])
    closed.is_closed = True
    loop.cancel(gate, closed)
    loop.submit(gate, [Call(2, "a", "open", 0, None, None, owner, lane="a")])

    loop.finish(lambda: bool(owner.done))
    loop.close()

    assert started == ["open"]
    assert not closed.done


def test_news_of_calls_are_kept_for_the_thread_when_a_task_runs_the_loop():
    """A task that forwards its results runs the loop, which may finish calls of tasks that have already forwarded."""

    async def function(value: Any) -> Any:
        return value

    loop, owner = SteppedLoop(VirtualClock()), Owner()
    gate = loop.gate("node", CallPlan(function, with_key=False))
    loop.submit(gate, [Call(1, "a", "value", 0, None, None, owner, lane="a")])

    loop.step()
    loop.step()

    assert loop.wait_ms(1_000) == 0
    assert (loop.take_news(), loop.take_news()) == (True, False)
    assert loop.wait_ms(1_000) == 1_000
    loop.close()
