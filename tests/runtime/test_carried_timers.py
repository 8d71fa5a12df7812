"""A task opened from a checkpoint goes on with the timers of the one before."""

from datetime import timedelta
from typing import Any

import pytest

from streams import Processor, PunctuationType, Record, StreamsBuilder, StreamsConfig, Topic, build_topology
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.metrics import Metrics
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.tasks.checkpoint import Checkpoint
from streams.runtime.tasks.task import Task, TaskState

numbers = Topic("numbers", key=str, value=int)
INPUT = TopicPartition("numbers", 0)
STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


class Ticker(Processor[str, int, str, int]):
    """Forwards the time every 10 ms of both clocks; a record with a negative value adds a timer of its own."""

    def init(self, context: Any) -> None:
        for kind in (STREAM, WALL):
            context.schedule(timedelta(milliseconds=10), kind, lambda now_ms, kind=kind: self.tick(kind, now_ms))

    def process(self, record: Record[str, int]) -> None:
        if record.value < 0:
            self.own = self.context.schedule(timedelta(milliseconds=-record.value), WALL, self.own_tick)

    def tick(self, kind: PunctuationType, now_ms: int) -> None:
        self.context.forward(kind.value, now_ms)

    def own_tick(self, now_ms: int) -> None:
        self.own.cancel()


def topology(builder: StreamsBuilder) -> None:
    builder.stream(numbers).process(Ticker, name="ticker").to(Topic("out", key=str, value=int))


@pytest.fixture
def open_task():
    """Open the only task; a second one stands for the task after a restart."""

    def open_task(checkpoint: Checkpoint | None = None, now_ms: int = 0, **options: Any) -> Task:
        config = StreamsConfig(application_id="app")
        plan = ApplicationPlan.make(
            build_topology(topology, config), config, VirtualClock(now_ms), {"numbers": 1}, is_single_task=True
        )
        (task_id,) = plan.groups
        state = TaskState({}, checkpoint=checkpoint or Checkpoint(), **options)
        return plan.open_task(task_id, state, Metrics())

    return open_task


def process(task: Task, time_ms: int, now_ms: int, value: int = 1) -> list[tuple[str, int]]:
    """Process one record; return what was ticked."""
    block = Block([b"k"], [numbers.value_serde.serialize(value)], [time_ms], None, range(time_ms, time_ms + 1))
    task.add(INPUT, block)
    task.note_end(INPUT, time_ms + 1)
    assert task.process(now_ms, 100) == 1
    task.punctuate(now_ms)
    return [
        (key.decode(), numbers.value_serde.deserialize(value))
        for _, block in task.take_outputs()
        for key, value in zip(block.keys, block.values, strict=True)
    ]


def test_stream_time_goes_on_and_wall_clock_starts_anew(open_task):
    before = open_task()
    assert process(before, 3, 12) == [("stream", 3), ("wall", 12)]

    after = open_task(before.checkpoint(), now_ms=15)

    assert process(after, 9, 24) == []
    assert process(after, 10, 25) == [("stream", 10), ("wall", 25)]


def test_wall_clock_goes_on_where_records_drive_it(open_task):
    before = open_task()
    process(before, 3, 12)

    after = open_task(before.checkpoint(), now_ms=15, carries_wall_clock=True)

    assert process(after, 9, 20) == [("wall", 20)]


def test_task_that_waits_for_its_stores_still_carries_its_timers(open_task):
    """It may be closed before they are restored."""
    before = open_task()
    process(before, 3, 12)

    waiting = open_task(before.checkpoint(), now_ms=15, is_complete=False)

    assert waiting.checkpoint().timers == before.checkpoint().timers
    waiting.initialize()
    assert process(waiting, 9, 24) == []


def test_node_with_a_timer_of_a_record_is_named_until_it_is_cancelled(open_task):
    task = open_task()
    assert task.uncarried_timers() == []

    process(task, 3, 12, value=-50)

    assert task.uncarried_timers() == ["ticker"]
    assert len(task.checkpoint().timers) == 2
    task.punctuate(62)
    assert task.uncarried_timers() == []
