"""How long a thread waits for tasks that do not move, and what it says then."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from streams.core.metrics import Counter
from streams.core.records import Lanes, TaskId, TopicPartition
from streams.runtime.batches import Batch
from streams.runtime.lane_queue import PartitionLanes
from streams.runtime.lane_waits import LaneWaits
from streams.runtime.progress import MarkState, ProgressBoard, TaskMark
from streams.runtime.queues import TaskQueues

TOPIC = "app-by-repartition"
PATIENCE_MS = 100


def reader_of(number: int, writer: int) -> Any:
    """Return a task that has a record of one of its two writers, and waits for the other one."""
    partition = TopicPartition(TOPIC, number)
    queues = TaskQueues([partition], lanes={partition: PartitionLanes(frozenset({0, 1}))})
    queue = queues[partition]
    queue.position = 0
    queues.add(queue, Batch([b"k"], [b"v"], [5], None, [0], (), Lanes([writer], [5])))
    queue.fetched = 1
    return SimpleNamespace(task_id=TaskId(1, number), queues=queues)


def waits_of(board: ProgressBoard, *tasks: Any) -> tuple[LaneWaits, Counter]:
    cut = Counter()
    waits = LaneWaits("thread", board, lambda partitions: dict.fromkeys(partitions, 1), PATIENCE_MS, cut)
    for task in tasks:
        waits.open(task)
    return waits, cut


def test_each_task_that_does_not_move_is_named_once_in_its_time(caplog: pytest.LogCaptureFixture) -> None:
    """Partitions wait for different tasks at the same time; the second one is not hidden by the first."""
    waits, cut = waits_of(ProgressBoard(), reader_of(0, 1), reader_of(1, 0), reader_of(2, 1))
    with caplog.at_level(logging.WARNING, "streams.runtime.lane_waits"):
        for now_ms in (0, PATIENCE_MS - 1):
            waits.step(now_ms)
            assert cut.value == 0
        waits.step(PATIENCE_MS)

    assert cut.value == 3
    assert [record.getMessage().split(" has not moved ")[0] for record in caplog.records] == [
        "thread: task 0_0",
        "thread: task 0_1",
    ]


def test_patience_begins_anew_with_each_movement() -> None:
    board = ProgressBoard()
    waits, cut = waits_of(board, reader_of(0, 1))
    waits.step(0)
    for place_ms in range(1, 4):
        now_ms = place_ms * (PATIENCE_MS - 1)
        board.note("other", 1, {0: TaskMark(place_ms, MarkState.BEHIND)}, now_ms)
        # The first step takes the mark, the second one waits on.
        waits.step(now_ms)
        waits.step(now_ms)
    waits.step(now_ms + PATIENCE_MS - 1)
    assert cut.value == 0

    waits.step(now_ms + PATIENCE_MS)

    assert cut.value == 1
