"""A thread with nothing to do leaves its tasks alone until something arrives or is due."""

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field

from streams.core.clock import VirtualClock
from streams.core.config import StreamsConfig
from streams.runtime.pace import Pace


@define
class Quiet:
    """A task of which somebody counts the looks."""

    due_ms: int | None = None
    is_dirty: bool = False
    records: int = 0
    #: When the wait of its records for another input ends.
    idle_until_ms: int | None = None
    looks: int = 0

    @property
    def queues(self) -> Any:
        self.looks += 1
        return SimpleNamespace(size=self.records, next_deadline_ms=lambda: self.idle_until_ms)

    def next_deadline_ms(self) -> int | None:
        self.looks += 1
        return self.due_ms


@define
class World:
    """A thread's pace and what it depends on."""

    task: Quiet = field(factory=Quiet)
    clock: VirtualClock = field(factory=VirtualClock)
    restorer: Any = field(factory=lambda: SimpleNamespace(is_idle=True))
    stage: Any = field(factory=lambda: SimpleNamespace(is_waiting=False))

    def pace(self, *, is_finite: bool = False) -> Pace:
        tasks: Any = {0: self.task}
        config = StreamsConfig.of(poll_ms=100)
        return Pace(config, self.clock, tasks, self.restorer, lambda: [self.stage], is_finite=is_finite)


def wait(pace: Pace, *, next_commit_ms: int = 1 << 60, is_paused: bool = False) -> int:
    return pace.timeout_ms(next_commit_ms, is_paused=is_paused)


def test_nobody_looks_at_a_resting_task() -> None:
    world = World()
    pace = world.pace()
    pace.rest(1 << 60)
    world.task.looks = 0

    for _ in range(100):
        assert pace.is_resting
        assert wait(pace) == 100
        world.clock.advance(100)

    assert world.task.looks == 0


def test_rest_ends_when_something_is_due() -> None:
    world = World()
    world.task.due_ms = world.clock.now_ms() + 150
    pace = world.pace()
    pace.rest(1 << 60)

    assert wait(pace) == 100
    world.clock.advance(100)
    assert wait(pace) == 50
    world.clock.advance(50)
    assert not pace.is_resting
    assert wait(pace) == 0


def test_rest_ends_with_the_commit_of_what_was_done() -> None:
    world = World()
    world.task.is_dirty = True
    pace = world.pace()
    pace.rest(world.clock.monotonic_ms() + 30)

    assert wait(pace) == 30
    world.clock.advance(30)
    assert not pace.is_resting


@pytest.mark.parametrize("why", ["records", "restoring", "awaiting", "finite"])
def test_who_has_something_to_do_does_not_rest(why: str) -> None:
    world = World()
    world.task.records = 1 if why == "records" else 0
    world.restorer.is_idle = why != "restoring"
    world.stage.is_waiting = why == "awaiting"
    pace = world.pace(is_finite=why == "finite")

    pace.rest(1 << 60)

    assert not pace.is_resting
    assert wait(pace) == {"records": 0, "restoring": 0, "awaiting": 5, "finite": 5}[why]


def test_paused_thread_waits_whatever_it_has() -> None:
    world = World()
    world.task.records = 1

    assert wait(world.pace(), is_paused=True) == 100


def test_woken_thread_looks_again() -> None:
    pace = World().pace()
    pace.rest(1 << 60)

    pace.wake()

    assert not pace.is_resting


def test_thread_whose_records_wait_for_another_input_sleeps_until_then() -> None:
    """With ``max_task_idle_ms``; it would poll without a pause for as long."""
    world = World(Quiet(due_ms=40, records=3, idle_until_ms=40))

    assert wait(world.pace()) == 40
    world.task.idle_until_ms = None
    assert wait(world.pace()) == 0
