"""For whom the writers of a repartition topic wait, and how long; times are those of a virtual clock."""

from collections.abc import Callable

import pytest

from streams.core.blocks.records import NO_TIMESTAMP, Lanes, TaskId, lane_of
from streams.runtime.in_step.backpressure import Backpressure
from streams.runtime.tasks.batches import Batch
from streams.runtime.tasks.lane_queue import PartitionLanes
from streams.runtime.tasks.progress import MarkState, ProgressBoard, TaskMark

ONE, DEAD, SLOW = (TaskId(0, number) for number in range(3))
PATIENCE_MS = 100
SHARE = 1_000


def opened(board: ProgressBoard) -> Backpressure:
    """Return the outputs of a thread with one of three tasks, each of which has the same share."""
    backpressure = Backpressure(board, 3 * SHARE)
    backpressure.open(ONE, frozenset(map(lane_of, (ONE, DEAD, SLOW))), NO_TIMESTAMP, PATIENCE_MS)
    return backpressure


def test_a_task_that_does_not_move_is_waited_for_once_and_a_slow_one_always() -> None:
    """Without this, the task would run ahead of the slow one without a bound as soon as one stands still."""
    board = ProgressBoard()
    backpressure = opened(board)
    written = []
    place_ms = 0
    for now_ms in range(10 * PATIENCE_MS):
        board.note("slow", 1, {lane_of(SLOW): TaskMark(now_ms // 10, MarkState.BEHIND)}, now_ms)
        if not backpressure.holds(ONE, now_ms):
            place_ms += 1
            backpressure.note(ONE, place_ms, 100)
            written.append(now_ms)
        elif now_ms < PATIENCE_MS:
            hold = backpressure.held_by(ONE)
            assert hold is not None
            assert hold.lane == lane_of(DEAD)
        assert place_ms <= 12 + now_ms // 10

    # A share at once, and then as fast as the slow one, once the dead one is not waited for any more.
    assert len([now_ms for now_ms in written if now_ms < PATIENCE_MS]) == 11
    assert len(written) > 90


def test_a_task_that_moves_again_is_waited_for_again() -> None:
    board = ProgressBoard()
    backpressure = opened(board)
    board.note("slow", 1, {lane_of(SLOW): TaskMark(0, MarkState.AT_END)}, 0)
    backpressure.note(ONE, 1, 2 * SHARE)
    assert backpressure.holds(ONE, 0)
    assert not backpressure.holds(ONE, PATIENCE_MS)

    board.note("dead", 1, {lane_of(DEAD): TaskMark(0, MarkState.BEHIND)}, PATIENCE_MS)

    assert backpressure.holds(ONE, PATIENCE_MS)


SIZE = 100
RECORDS = 2_000


def most_buffered(marks_every: int, reopened_every: int, holds: Callable[[Backpressure, TaskId, int], bool]) -> int:
    """Let four tasks write, one at a fiftieth of the speed of the others; return the most bytes that a reader buffers.

    Tasks say how far they are in every ``marks_every``-th turn, as with the commits of exactly-once.
    """
    tasks = [TaskId(0, number) for number in range(4)]
    lanes = [lane_of(task) for task in tasks]
    board, reader = ProgressBoard(), PartitionLanes(frozenset(lanes))
    backpressure = Backpressure(board, len(tasks) * SHARE)
    places = dict.fromkeys(tasks, NO_TIMESTAMP)
    most = offset = 0
    for turn in range(RECORDS):
        if turn % reopened_every == 0:
            for task, place_ms in places.items():
                backpressure.open(task, frozenset(lanes), place_ms, PATIENCE_MS)
        for task in tasks:
            if (task is tasks[0] and turn % 50) or holds(backpressure, task, turn):
                continue
            places[task] += 1
            reader.add(Batch([b"k"], [b"v"], [0], None, [offset], (), Lanes([lane_of(task)], [places[task]])))
            backpressure.note(task, places[task], SIZE)
            offset += 1
        if turn % marks_every == 0:
            marks = {lane_of(task): TaskMark(place_ms, MarkState.BEHIND) for task, place_ms in places.items()}
            board.note("all", 1, marks, turn)
            for lane, mark in marks.items():
                reader.note(lane, mark.place_ms, is_open=True)
        while reader.take() is not None:
            pass
        most = max(most, reader.size * SIZE)
    assert places[tasks[0]] == RECORDS // 50 - 1
    return most


@pytest.mark.parametrize("marks_every", [1, 10], ids=["at least once", "exactly once"])
@pytest.mark.parametrize("reopened_every", [RECORDS, 70, 7])
def test_a_reader_buffers_no_more_than_the_budget_however_often_tasks_are_opened(
    marks_every: int, reopened_every: int
) -> None:
    budget = 4 * SHARE

    assert most_buffered(marks_every, reopened_every, Backpressure.holds) <= budget + 4 * SIZE
    assert most_buffered(marks_every, reopened_every, lambda *_: False) > 10 * budget
