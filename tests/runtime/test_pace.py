"""A thread with nothing to do leaves its tasks alone until something arrives or is due."""

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field

from streams.core.clock import VirtualClock
from streams.core.settings.config import StreamsConfig
from streams.runtime.threads.pace import Pace


@define
class Quiet:
    """A task of which somebody counts the looks."""

    due_ms: int | None = None
    #: Whether its stores are restored.
    is_initialized: bool = True
    is_dirty: bool = False
    records: int = 0
    #: When the wait of its records for another input ends.
    idle_until_ms: int | None = None
    #: Whether its records wait for those of another input, which are not fetched yet.
    awaits_fetch: bool = False
    looks: int = 0
    #: It has no nodes that call async functions.
    calls: None = None

    @property
    def queues(self) -> Any:
        self.looks += 1
        return SimpleNamespace(
            size=self.records, awaits_fetch=self.awaits_fetch, next_deadline_ms=lambda: self.idle_until_ms
        )

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


def wait(pace: Pace, *, next_commit_ms: int = 1 << 60, is_paused: bool = False, has_outstanding: bool = False) -> int:
    return pace.timeout_ms(next_commit_ms, is_paused=is_paused, has_outstanding=has_outstanding)


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


def test_rest_ends_when_a_commit_is_due() -> None:
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


@pytest.mark.parametrize("is_idle", [True, False], ids=["nothing to restore", "a standby to update"])
def test_thread_whose_records_wait_for_a_fetch_does_not_spin(is_idle: bool) -> None:
    """As while the leader of one of two inputs cannot be reached; the records that arrive end the poll."""
    world = World(Quiet(records=3, awaits_fetch=True))
    world.restorer.is_idle = is_idle
    pace = world.pace()

    assert wait(pace) + pace.restore_timeout_ms(is_paused=False) >= 20
    world.task.awaits_fetch = False
    assert wait(pace) + pace.restore_timeout_ms(is_paused=False) == 0


def test_thread_whose_records_wait_for_a_restore_does_not_spin() -> None:
    """As when partitions are added to an input, and a task that has begun to fetch restores its state."""
    world = World(Quiet(records=3, is_initialized=False))
    world.restorer.is_idle = False

    assert world.pace().restore_timeout_ms(is_paused=False) == 20


def test_polls_for_acknowledgements_become_longer_until_there_is_work() -> None:
    pace = World().pace()

    waits = []
    for _ in range(5):
        waits.append(wait(pace, has_outstanding=True))
        pace.note_work(is_done=False)
    pace.note_work(is_done=True)

    assert waits == [5, 10, 20, 40, 40]
    assert wait(pace, has_outstanding=True) == 5
    assert wait(pace) == 100


@pytest.mark.parametrize(
    ("is_idle", "records", "is_paused", "wait_ms"),
    [(True, 0, False, 0), (False, 0, False, 20), (False, 1, False, 0), (False, 1, True, 20)],
    ids=["nothing to restore", "nothing but a restore", "records as well", "records of a paused thread"],
)
def test_thread_waits_for_changelogs_while_it_has_no_records(
    is_idle: bool, records: int, is_paused: bool, wait_ms: int
) -> None:
    world = World(Quiet(records=records))
    world.restorer.is_idle = is_idle

    assert world.pace().restore_timeout_ms(is_paused=is_paused) == wait_ms


def test_paused_thread_does_not_poll_without_pause_for_work_that_is_due() -> None:
    world = World(Quiet(due_ms=0))
    pace = world.pace()

    assert wait(pace) == 0
    assert wait(pace, is_paused=True) == 100


def test_paused_thread_commits_in_time() -> None:
    world = World(Quiet(is_dirty=True))

    assert wait(world.pace(), next_commit_ms=world.clock.monotonic_ms() + 30, is_paused=True) == 30
