"""Which marks count for a thread that reads lanes, how long it waits for tasks, and what it says then."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from streams.core.blocks.records import Lanes, TaskId, TopicPartition
from streams.core.metrics import Counter
from streams.core.notices import Notices
from streams.runtime.in_step.lane_waits import LaneWaits
from streams.runtime.tasks.batches import Batch
from streams.runtime.tasks.lane_queue import PartitionLanes
from streams.runtime.tasks.progress import MarkState, ProgressBoard, TaskMark
from streams.runtime.tasks.queues import TaskQueues

TOPIC = "app-by-repartition"
PATIENCE_MS = 100


def reader_of(number: int, writer: int, writers: int = 2) -> Any:
    """Return a task that has a record of one of its writers, and waits for the others."""
    partition = TopicPartition(TOPIC, number)
    queues = TaskQueues([partition], lanes={partition: PartitionLanes(frozenset(range(writers)))})
    queue = queues[partition]
    queue.position = 0
    queues.add(queue, Batch([b"k"], [b"v"], [5], None, [0], (), Lanes([writer], [5])))
    queue.fetched = 1
    inputs = {partition: SimpleNamespace(topic=f"by-{number}-repartition")}
    return SimpleNamespace(task_id=TaskId(1, number), queues=queues, inputs=inputs, activity=0)


def waits_of(board: ProgressBoard, *tasks: Any, **patience_ms: int) -> tuple[LaneWaits, Counter]:
    """Return the waits of a thread; ``patience_ms`` are those of topics that have one of their own."""
    cut = Counter()

    def patience_of(topic: str) -> int:
        return patience_ms.get(topic.replace("-", "_"), PATIENCE_MS)

    waits = LaneWaits("thread", board, lambda partitions: dict.fromkeys(partitions, 1), patience_of, cut, Notices())
    for task in tasks:
        waits.open(task)
    return waits, cut


def test_each_task_that_does_not_move_is_named_once_in_its_time(caplog: pytest.LogCaptureFixture) -> None:
    """Partitions wait for different tasks at the same time; the second one is not hidden by the first."""
    waits, cut = waits_of(ProgressBoard(), reader_of(0, 1), reader_of(1, 0), reader_of(2, 1))
    with caplog.at_level(logging.WARNING, "streams.runtime.in_step.lane_waits"):
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


def test_tasks_that_never_come_back_are_waited_for_once() -> None:
    """Two have said something before they stood still, one has not; the fourth one's record waits for all of them."""
    board, reader = ProgressBoard(), reader_of(0, 3, writers=4)
    waits, cut = waits_of(board, reader)
    (queue,) = reader.queues
    for now_ms, lane in enumerate((0, 1)):
        board.note("other", 1, {lane: TaskMark(lane, MarkState.BEHIND)}, now_ms)
        waits.step(now_ms)
    # The fourth one goes on.
    for now_ms in range(2, PATIENCE_MS):
        board.note("own", 1, {3: TaskMark(5, MarkState.BEHIND, now_ms)}, now_ms)
        waits.step(now_ms)
    assert (cut.value, queue.size) == (0, 0)

    for now_ms in (PATIENCE_MS, PATIENCE_MS + 1):
        board.note("own", 1, {3: TaskMark(5, MarkState.BEHIND, now_ms)}, now_ms)
        waits.step(now_ms)

    assert (cut.value, queue.size) == (3, 1)
    assert set(queue.lanes.passed_over) == {0, 1, 2}


def test_a_task_that_moved_while_another_one_was_awaited_is_waited_for_on() -> None:
    board, reader = ProgressBoard(), reader_of(0, 2, writers=3)
    waits, cut = waits_of(board, reader)
    for now_ms in range(0, PATIENCE_MS + 1, 10):
        board.note("other", 1, {1: TaskMark(1, MarkState.BEHIND, now_ms)}, now_ms)
        waits.step(now_ms)
    waits.step(PATIENCE_MS)
    assert cut.value == 1

    waits.step(2 * PATIENCE_MS - 1)
    assert cut.value == 1
    waits.step(2 * PATIENCE_MS)
    assert cut.value == 2


def test_records_in_the_log_are_read_before_a_wait_ends() -> None:
    """Those that the task has written before it stood still may be behind those of others."""
    reader = reader_of(0, 1)
    waits, cut = waits_of(ProgressBoard(), reader)
    (queue,) = reader.queues
    waits.step(0)
    queue.fetched = 0
    for now_ms in (PATIENCE_MS, 2 * PATIENCE_MS):
        waits.step(now_ms)
        assert cut.value == 0

    queue.fetched = 1
    waits.step(2 * PATIENCE_MS + 1)
    assert cut.value == 1


def test_a_reader_is_active_while_it_has_patience_and_while_those_move_for_which_it_waits() -> None:
    board, reader = ProgressBoard(), reader_of(0, 1)
    waits, _ = waits_of(board, reader)
    waits.step(0)
    before = reader.activity
    waits.step(PATIENCE_MS - 1)
    assert reader.activity > before

    (queue,) = reader.queues
    board.note("other", 1, {0: TaskMark(5, MarkState.BEHIND)}, PATIENCE_MS - 1)
    waits.step(PATIENCE_MS)
    queue.lanes.note(0, 6, is_open=True)
    queue.merge()
    queue.advance(1, [5])
    waits.step(PATIENCE_MS)
    before = reader.activity
    waits.step(PATIENCE_MS)
    assert reader.activity == before

    for lane in (0, 1):
        board.note("other", 1, {lane: TaskMark(5, MarkState.BEHIND, 1)}, PATIENCE_MS)
    waits.step(PATIENCE_MS)
    assert reader.activity > before


def test_an_end_counts_again_after_a_new_generation_of_the_group() -> None:
    """What the task says is the same as before, and is said while an older mark is being proved."""
    board, reader = ProgressBoard(), reader_of(0, 1)
    waits, _ = waits_of(board, reader)
    (queue,) = reader.queues
    queue.fetched = 0
    board.note("other", 1, {0: TaskMark(9, MarkState.AT_END), 1: TaskMark(9, MarkState.BEHIND)}, 0)
    waits.step(0)
    board.note("third", 2, {}, 1)
    waits.step(1)
    queue.fetched = 1
    waits.step(2)
    board.note("other", 2, {0: TaskMark(9, MarkState.AT_END)}, 3)
    waits.step(3)

    assert queue.lanes.awaited is queue.lanes.lanes[1]


def test_each_topic_has_its_patience_and_shows_for_whom_it_waits() -> None:
    tasks = reader_of(0, 1), reader_of(1, 1)
    lanes = [queue.lanes for task in tasks for queue in task.queues]
    waits, cut = waits_of(ProgressBoard(), *tasks, by_1_repartition=10)

    waits.step(5)
    assert [each.held_by for each in lanes] == [(0, 5), (0, 5)]
    waits.step(15)

    assert cut.value == 1
    assert [each.held_by for each in lanes] == [(0, 5), None]
    assert [set(each.passed_over) for each in lanes] == [set(), {0}]


def test_a_task_that_has_come_to_its_end_is_passed_over_no_more() -> None:
    task = reader_of(0, 1)
    (lanes,) = (queue.lanes for queue in task.queues)
    board = ProgressBoard()
    waits, _ = waits_of(board, task)
    waits.step(0)
    waits.step(PATIENCE_MS)
    assert set(lanes.passed_over) == {0}

    board.note("other", 1, {0: TaskMark(9, MarkState.AT_END)}, PATIENCE_MS + 1)
    waits.step(PATIENCE_MS + 1)

    assert not lanes.passed_over
    assert lanes.ever_passed_over == {0}


def test_an_end_that_counts_late_does_not_close_the_lane_of_a_task_that_is_behind_again() -> None:
    """The end is proved when everything is read that was in the log; meanwhile the task has more to write."""
    board, reader = ProgressBoard(), reader_of(0, 1)
    waits, _ = waits_of(board, reader)
    (queue,) = reader.queues
    queue.lanes.note(1, 5, is_open=False)
    queue.fetched = 0

    board.note("other", 1, {0: TaskMark(10, MarkState.AT_END)}, 0)
    waits.step(0)
    board.note("other", 1, {0: TaskMark(10, MarkState.BEHIND)}, 1)
    queue.fetched = 1
    waits.step(1)

    assert queue.lanes.bound_ms == 10
    board.note("other", 1, {0: TaskMark(20, MarkState.AT_END)}, 2)
    waits.step(2)
    waits.step(3)
    assert not queue.awaits_lanes


def test_marks_that_came_while_others_did_not_count_yet_count_in_the_same_step() -> None:
    """Nothing announces them again: the thread would sleep beside records that it may process."""
    board, reader = ProgressBoard(), reader_of(0, 1)
    waits, _ = waits_of(board, reader)
    (queue,) = reader.queues
    queue.fetched = 0
    board.note("other", 1, {0: TaskMark(3, MarkState.BEHIND)}, 0)
    waits.step(0)
    board.note("other", 1, {0: TaskMark(10, MarkState.BEHIND)}, 1)
    queue.fetched = 1

    assert waits.step(1)

    assert queue.lanes.lanes[0].reached_ms == 10


@pytest.mark.parametrize("looks", [True, False])
def test_records_that_arrive_with_word_of_a_task_that_is_behind_wait_for_it(looks: bool) -> None:
    """A thread at rest may hear of both at once; without a look the record would be taken before the word."""
    board, reader = ProgressBoard(), reader_of(0, 1)
    waits, _ = waits_of(board, reader)
    (queue,) = reader.queues
    board.note("other", 1, {lane: TaskMark(5, MarkState.AT_END) for lane in (0, 1)}, 0)
    waits.step(0)
    assert queue.size == 1, "nothing else is awaited"
    board.note("other", 1, {0: TaskMark(5, MarkState.BEHIND)}, 1)

    if looks:
        waits.look()
    reader.queues.add(queue, Batch([b"k"], [b"v"], [9], None, [1], (), Lanes([1], [9])))

    assert queue.size == (1 if looks else 2)
