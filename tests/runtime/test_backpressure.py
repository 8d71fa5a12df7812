"""For whom the writers of a repartition topic wait, and how long; times are those of a virtual clock."""

from streams.core.records import TaskId, lane_of
from streams.runtime.backpressure import Backpressure
from streams.runtime.progress import MarkState, ProgressBoard, TaskMark

ONE, DEAD, SLOW = (TaskId(0, number) for number in range(3))
PATIENCE_MS = 100
SHARE = 1_000


def opened(board: ProgressBoard) -> Backpressure:
    """Return the outputs of a thread with one of three tasks, each of which has the same share."""
    backpressure = Backpressure(board, 3 * SHARE)
    backpressure.open(ONE, frozenset(map(lane_of, (ONE, DEAD, SLOW))), lane_of(ONE), PATIENCE_MS)
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
