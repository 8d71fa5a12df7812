"""The board: what readers of lanes may rely on, from what tasks have said."""

from streams.core.blocks.records import TaskId, lane_of
from streams.runtime.tasks.progress import LaneProgress, MarkState, ProgressBoard, TaskMark

LANE = lane_of(TaskId(0, 1))
OTHER = lane_of(TaskId(0, 2))
BEHIND, AT_END, RESTORING = MarkState


def answered() -> ProgressBoard:
    """Return a board whose question has come back, so that what is added is newer."""
    board = ProgressBoard()
    board.ask()
    board.hear()
    return board


def seen(board: ProgressBoard, lane: int = LANE) -> tuple[int, MarkState] | None:
    """Return place and state of a lane, or None if it is unknown."""
    row = board.marks([lane]).get(lane)
    return None if row is None else (row.place_ms, row.state)


def test_task_that_has_said_nothing_is_unknown():
    board = answered()
    board.add("far", 1, {LANE: TaskMark(10, BEHIND)}, 5)

    assert board.marks([LANE, OTHER]) == {LANE: LaneProgress(10, BEHIND, 5)}


def test_places_never_fall_within_and_across_generations():
    """A new owner that repeats records says a lower place; what was promised before stays true."""
    board = answered()
    board.add("far", 1, {LANE: TaskMark(50, BEHIND)}, 0)
    board.add("far", 1, {LANE: TaskMark(40, BEHIND)}, 1)
    assert seen(board) == (50, BEHIND)

    board.add("new", 2, {LANE: TaskMark(20, BEHIND)}, 2)
    assert seen(board) == (50, BEHIND)

    board.add("new", 2, {LANE: TaskMark(60, BEHIND)}, 3)
    assert seen(board) == (60, BEHIND)


def test_marks_of_an_older_generation_of_the_task_are_ignored():
    """A thread that was stopped, and does not know yet that its task has moved."""
    board = answered()
    board.add("new", 2, {LANE: TaskMark(20, BEHIND)}, 0)
    board.add("zombie", 1, {LANE: TaskMark(90, AT_END)}, 1)

    assert seen(board) == (20, BEHIND)


def test_end_counts_only_behind_the_own_question():
    """A backlog may have grown since."""
    board = ProgressBoard()
    board.add("far", 1, {LANE: TaskMark(10, AT_END)}, 0)
    assert seen(board) == (10, BEHIND)

    board.ask()
    board.add("far", 1, {LANE: TaskMark(10, AT_END)}, 1)
    assert seen(board) == (10, BEHIND)

    board.hear()
    assert seen(board) == (10, BEHIND)
    board.add("far", 1, {LANE: TaskMark(10, AT_END)}, 2)
    assert seen(board) == (10, AT_END)

    board.ask()
    assert seen(board) == (10, BEHIND)


def test_end_of_an_own_task_counts_at_once():
    board = ProgressBoard()
    board.ask()
    board.note("here", 1, {LANE: TaskMark(10, AT_END)}, 0)

    assert seen(board) == (10, AT_END)


def test_end_of_an_older_generation_is_to_be_said_again():
    """Its task may have moved, or its thread may be dead."""
    board = answered()
    board.add("far", 1, {LANE: TaskMark(10, AT_END), OTHER: TaskMark(10, BEHIND)}, 0)
    version = board.version

    board.note("here", 2, {}, 1)
    assert (seen(board), seen(board, OTHER)) == ((10, BEHIND), (10, BEHIND))
    assert board.version > version

    board.add("far", 2, {LANE: TaskMark(10, AT_END)}, 2)
    assert seen(board) == (10, AT_END)


def test_group_that_begins_again_is_believed():
    """The broker has lost it: generations begin at 1, and a thread that was stopped speaks of the old ones."""
    board = answered()
    board.note("here", 20, {}, 0)
    board.add("far", 20, {LANE: TaskMark(10, AT_END)}, 0)
    assert seen(board) == (10, AT_END)

    board.note("here", 1, {}, 1)
    assert seen(board) == (10, BEHIND)
    board.add("far", 1, {LANE: TaskMark(20, AT_END)}, 2)
    assert seen(board) == (20, AT_END)

    board.add("stopped", 20, {OTHER: TaskMark(10, AT_END)}, 3)
    board.note("here", 2, {}, 4)
    assert (seen(board), seen(board, OTHER)) == ((20, BEHIND), (10, BEHIND))
    board.add("far", 2, {LANE: TaskMark(30, AT_END), OTHER: TaskMark(30, AT_END)}, 5)
    assert (seen(board), seen(board, OTHER)) == ((30, AT_END), (30, AT_END))


def test_group_begins_again_only_when_all_threads_of_the_instance_know():
    """Until then, what is said in the new generation does not end a wait."""
    board = answered()
    for thread in ("one", "two"):
        board.note(thread, 20, {}, 0)
    board.note("one", 1, {LANE: TaskMark(10, AT_END)}, 1)
    assert seen(board) == (10, BEHIND)

    board.note("two", 1, {}, 2)
    assert seen(board) == (10, AT_END)


def test_what_others_said_in_a_generation_that_this_instance_does_not_know_yet_is_asked_for():
    """They have said it there, and have no reason to say it again."""
    board = answered()
    board.note("here", 1, {}, 0)
    board.add("far", 3, {LANE: TaskMark(10, AT_END)}, 1)
    assert not board.must_ask

    board.note("here", 2, {}, 2)
    assert (seen(board), board.must_ask) == ((10, BEHIND), True)

    board.ask()
    board.hear()
    board.note("here", 3, {}, 3)
    board.add("far", 3, {LANE: TaskMark(10, AT_END)}, 4)
    assert (seen(board), board.must_ask) == ((10, AT_END), False)


def test_closed_task_keeps_its_place_and_loses_its_end_until_its_new_owner_speaks():
    board = answered()
    board.note("here", 1, {LANE: TaskMark(10, AT_END)}, 0)
    board.close(LANE)
    assert seen(board) == (10, BEHIND)

    board.add("far", 1, {LANE: TaskMark(10, AT_END)}, 1)
    assert seen(board) == (10, AT_END)


def test_patience_sees_movement_of_place_state_and_restoration_only():
    board = answered()
    moved = []
    for now_ms, (generation, mark) in enumerate(
        [
            (1, TaskMark(10, RESTORING, 0)),
            (1, TaskMark(10, RESTORING, 0)),
            (1, TaskMark(10, RESTORING, 5)),
            (1, TaskMark(10, BEHIND)),
            (2, TaskMark(10, BEHIND)),
            (2, TaskMark(5, BEHIND)),
        ]
    ):
        board.add("far", generation, {LANE: mark}, now_ms)
        moved.append(board.marks([LANE])[LANE].moved_ms)

    assert moved == [0, 0, 2, 3, 3, 5]


def test_version_tells_whether_to_look_again():
    board = answered()
    board.add("far", 1, {LANE: TaskMark(10, BEHIND)}, 0)
    version = board.version

    board.add("far", 1, {LANE: TaskMark(10, BEHIND)}, 5)
    assert board.version == version
    board.add("far", 1, {LANE: TaskMark(11, BEHIND)}, 6)
    assert board.version > version


def test_waiting_threads_are_woken_once_by_a_change():
    board, woken = answered(), []
    board.listen("reader", lambda: woken.append("reader"))
    board.listen("other", lambda: woken.append("other"))
    assert board.wait_from("reader", board.version)

    board.add("far", 1, {LANE: TaskMark(10, BEHIND)}, 0)
    board.add("far", 1, {LANE: TaskMark(11, BEHIND)}, 1)
    assert woken == ["reader"]

    assert not board.wait_from("reader", board.version - 1)
    board.leave("reader")


def test_question_of_another_instance_wakes_all_threads():
    board, woken = answered(), []
    board.listen("one", lambda: woken.append("one"))
    board.listen("two", lambda: woken.append("two"))

    board.answer()

    assert (board.asked, woken) == (1, ["one", "two"])


def test_own_records_are_not_read_back():
    """What a thread says later is on the board already."""
    board = answered()
    board.listen("here", lambda: None)
    board.note("here", 1, {LANE: TaskMark(20, BEHIND)}, 0)

    board.add("here", 1, {LANE: TaskMark(10, AT_END)}, 1)

    assert seen(board) == (20, BEHIND)


def test_members_are_those_that_spoke_in_this_generation():
    board = answered()
    board.add("one", 1, {}, 0)
    board.note("two", 1, {}, 0)
    assert board.member_count == 2

    board.note("two", 2, {}, 0)
    assert board.member_count == 1
