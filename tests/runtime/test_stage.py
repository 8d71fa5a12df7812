"""Which task of a stage is next, and what it waits for."""

from typing import Any

import pytest

from streams import EmbeddedBroker, ProcessingError, Streams, StreamsBuilder, Topic, TopicPartition
from streams.bounded import run_bounded
from streams.core.blocks.records import Block
from streams.core.clock import VirtualClock
from streams.core.metrics import Metrics
from streams.core.settings.config import StreamsConfig
from streams.dsl.builder import build_topology
from streams.runtime.plan.plan import ApplicationPlan
from streams.runtime.tasks.stage import AsTheyCome, InStep, Stage, WhenCertain
from streams.runtime.tasks.task import Task, TaskState
from tests.runtime.bounded_runs import NUMBERS, started
from tests.waiting import WATCHDOG_MS

OUT = Topic("out", key=str, value=int)
UNREADABLE = b"short"


def copied(builder: StreamsBuilder) -> None:
    builder.stream(NUMBERS).to(OUT)


def regrouped(builder: StreamsBuilder) -> None:
    builder.stream(NUMBERS).group_by(lambda _, value: str(value)).count().to_stream().to(OUT)


def counting_down(builder: StreamsBuilder) -> None:
    builder.stream(NUMBERS).filter(lambda _, value: value > 0).map_values(lambda value: value - 1).to(NUMBERS)


def tasks_of(count: int) -> list[Task]:
    """Open a task for each partition of the input."""
    config = StreamsConfig(application_id="app")
    plan = ApplicationPlan.make(build_topology(copied, config), config, VirtualClock(0), {"numbers": count, "out": 1})
    return [plan.open_task(task_id, TaskState({}), Metrics(), is_bounded=True) for task_id in sorted(plan.groups)]


def add(stage: Stage[Task], number: int, *times: int, ended: bool = True) -> None:
    """Buffer records with these times for a task; ``ended`` says that no more will come."""
    task, partition = stage.tasks[number], TopicPartition("numbers", number)
    values = [NUMBERS.value_serde.serialize(time) for time in times]
    if times:
        stage.add(task, partition, Block([None] * len(times), values, times, None, range(len(times))))
    task.note_end(partition, len(times) if ended else len(times) + 1, is_ended=ended)


def steps(stage: Stage[Task], monotonic_ms: int = 0) -> list[tuple[int, int]]:
    """Step until nothing can be processed; return the partition and the number of records of each step."""
    found = []
    while (task := stage.step(0, monotonic_ms)) is not None:
        found.append((task.task_id.partition, stage.count))
    return found


def test_lowest_head_is_next_and_ties_go_to_the_lower_task():
    stage = Stage(reversed(tasks_of(2)), WhenCertain())
    add(stage, 1, 1, 5)
    add(stage, 0, 1, 7)

    assert [number for number, _ in steps(stage)] == [0, 1, 1, 0]
    assert stage.is_ended


def test_certain_order_waits_for_every_input_that_has_not_ended():
    stage = Stage(tasks_of(2), WhenCertain())
    add(stage, 0, 4)
    add(stage, 1, ended=False)

    assert steps(stage) == []
    assert stage.is_waiting
    add(stage, 1, 2)
    assert steps(stage) == [(1, 1), (0, 1)]
    assert not stage.is_waiting


def test_tasks_in_step_wait_for_one_another_for_a_time_only():
    tasks = tasks_of(2)
    for task in tasks:
        task.queues._max_idle_ms = -1
    stage = Stage(tasks, InStep())
    add(stage, 0, 4)
    add(stage, 1, ended=False)

    assert steps(stage, 0) == []
    assert steps(stage, 999) == []
    assert steps(stage, 1000) == [(0, 1)]


def test_what_is_there_is_processed_as_it_comes():
    stage = Stage(tasks_of(1), AsTheyCome(limit=2))
    add(stage, 0, 3, 1, 2)

    assert steps(stage) == [(0, 2), (0, 1)]


def test_a_record_that_cannot_be_read_fails_tasks_that_are_kept_in_step():
    """Its task has nothing buffered, and is the next one all the same."""
    with EmbeddedBroker() as broker, pytest.raises(ProcessingError, match="numbers-0 at offset 0"):
        for topic in ("numbers", "out"):
            broker.create_topic(topic, 2)
        broker.append(TopicPartition("numbers", 0), Block([b"a"], [UNREADABLE], [1]))
        with Streams(regrouped, application_id="app", broker=broker, poll_ms=5) as streams:
            streams.wait(WATCHDOG_MS)


def test_a_record_that_cannot_be_read_fails_a_cycle():
    def reader(count: int, skip: int) -> Any:
        rows = [UNREADABLE, NUMBERS.value_serde.serialize(3)]
        yield [(0, Block([b"a", b"b"], rows, [1, 2], None, range(2)))]

    with pytest.raises(ProcessingError, match="numbers-0 at offset 0"):
        run_bounded(counting_down, {"numbers": reader}, application_id="app", settings={"poll_ms": 5})


def test_what_a_cycle_sends_to_itself_is_processed_before_later_input():
    with started(counting_down, {"numbers": [("a", 2, 0), ("b", 2, 1)]}, partitions=1, max_poll_records=1) as run:
        values = [
            NUMBERS.value_serde.deserialize(value) for _, block in run.read_output("numbers") for value in block.values
        ]

    assert values == [2, 1, 0, 2, 1, 0]
