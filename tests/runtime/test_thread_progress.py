"""What a thread says about its tasks, and when; times are those of a virtual clock."""

from collections import deque

import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st

from streams import EmbeddedBroker, Producer, RecordTooLargeError, TopicPartition
from streams.core.blocks.records import Block, TaskId, lane_of
from streams.runtime.in_step.thread_progress import ACTIVE_MS, COMMIT_INTERVAL_MS, INTERVAL_MS, ThreadProgress
from streams.runtime.tasks.progress import MarkState, ProgressBoard, TaskMark

ONE, TWO = TaskId(0, 1), TaskId(0, 2)
BEHIND, AT_END, RESTORING = MarkState
OUT = TopicPartition("out", 0)


@define
class Upstream:
    """A task that is where the test says."""

    task_id: TaskId = ONE
    place_ms: int = 0
    is_at_end: bool = False
    regroups: bool = True
    activity: int = 0

    def mark(self):
        return self.place_ms, self.is_at_end


class Thread:
    """A thread with some tasks; ``turn`` is an iteration of its loop."""

    def __init__(self, *tasks, is_exactly_once=False):
        self.board = ProgressBoard()
        self.progress = ThreadProgress("here", self.board, is_exactly_once)
        self.tasks, self.now_ms = [*tasks], 0
        self.generation = 1

    def turn(self, after_ms=0, *, sequence=0, acknowledged=True, **state):
        """Go on by some time; return the marks that are published, by task, or None."""
        self.now_ms += after_ms
        self.progress.note(self.tasks, self.generation, sequence, self.now_ms, **state)
        record = self.progress.take(lambda _: acknowledged, self.now_ms)
        return record and dict(record.marks)

    def seen(self, task_id=ONE):
        row = self.board.marks([lane_of(task_id)]).get(lane_of(task_id))
        return row and (row.place_ms, row.state)


def test_first_mark_is_published_at_once():
    task = Upstream(place_ms=70)
    assert Thread(task).turn() == {lane_of(ONE): TaskMark(70, BEHIND)}


def test_only_changes_are_published_and_at_most_once_per_interval():
    one, two = Upstream(ONE), Upstream(TWO)
    thread = Thread(one, two)
    thread.turn()

    one.place_ms = 10
    assert thread.turn(INTERVAL_MS - 1) is None
    assert thread.progress.wait_ms(thread.now_ms) == 1
    assert thread.turn(1) == {lane_of(ONE): TaskMark(10, BEHIND)}
    assert thread.turn(INTERVAL_MS) is None
    assert thread.progress.wait_ms(thread.now_ms) is None


def test_threads_of_the_instance_see_it_in_the_same_turn():
    task = Upstream()
    thread = Thread(task)
    thread.turn()

    task.place_ms = 10
    assert thread.turn(1) is None
    assert thread.seen() == (10, BEHIND)


def test_end_is_published_at_once():
    task = Upstream()
    thread = Thread(task)
    thread.turn()

    task.place_ms, task.is_at_end = 10, True
    assert thread.turn(1) == {lane_of(ONE): TaskMark(10, AT_END)}


def test_task_that_keeps_up_says_nothing():
    """Each record makes it fall behind for some milliseconds, and moves its place."""
    task = Upstream(is_at_end=True)
    thread = Thread(task)
    thread.turn()

    for number in range(50):
        task.place_ms, task.is_at_end = number, False
        assert thread.turn(1) is None
        assert thread.turn(8) is None
        task.is_at_end = True
        assert thread.turn(20) is None
        assert thread.progress.wait_ms(thread.now_ms) is None
    assert thread.seen() == (0, AT_END)


def test_task_that_stays_behind_says_so():
    task = Upstream(is_at_end=True)
    thread = Thread(task)
    thread.turn()

    task.place_ms, task.is_at_end = 5, False
    assert thread.turn(30) is None
    assert thread.turn(10) == {lane_of(ONE): TaskMark(5, BEHIND)}


def test_tasks_that_do_not_regroup_say_nothing():
    thread = Thread(Upstream(regroups=False))
    assert thread.turn() is None
    assert thread.progress.wait_ms(thread.now_ms) is None


def test_restoring_tasks():
    task = Upstream()
    thread = Thread(task)
    restored = {ONE: 100}
    assert thread.turn(restored=restored.get) == {lane_of(ONE): TaskMark(0, RESTORING)}

    restored[ONE] = 200
    assert thread.turn(ACTIVE_MS - 1, restored=restored.get) is None
    restored[ONE] = 300
    assert thread.turn(1, restored=restored.get) == {lane_of(ONE): TaskMark(0, RESTORING, 1)}

    task.place_ms = 9
    assert thread.turn(100) == {lane_of(ONE): TaskMark(9, BEHIND, 1)}


def test_task_that_is_active_says_so_though_its_place_stays():
    """It reads records that wait for others, for example; one that stands still says nothing."""
    task = Upstream()
    thread = Thread(task)
    thread.turn()

    for number in range(1, 4):
        task.activity += 1
        assert thread.turn(ACTIVE_MS) == {lane_of(ONE): TaskMark(0, BEHIND, number)}
        task.activity += 1
        assert thread.turn(INTERVAL_MS) is None
        assert thread.turn(ACTIVE_MS - INTERVAL_MS) is None
        thread.now_ms -= ACTIVE_MS


def test_task_is_active_while_its_records_are_not_acknowledged():
    """Its place is shown later."""
    task = Upstream()
    thread = Thread(task)
    thread.turn()

    task.place_ms = 9
    task.activity += 1
    assert thread.turn(ACTIVE_MS, sequence=1, acknowledged=False) == {lane_of(ONE): TaskMark(0, BEHIND, 1)}
    assert thread.turn(ACTIVE_MS, sequence=1) == {lane_of(ONE): TaskMark(9, BEHIND, 1)}


def test_new_generation_is_answered_by_all_marks():
    """Only so the others know that its tasks are still here."""
    thread = Thread(Upstream(ONE, is_at_end=True), Upstream(TWO, 5))
    thread.turn()

    thread.generation = 2
    assert thread.turn(1) is None
    assert thread.seen() == (0, AT_END)
    assert thread.turn(INTERVAL_MS) == {lane_of(ONE): TaskMark(0, AT_END), lane_of(TWO): TaskMark(5, BEHIND)}


def test_questions_are_answered_once_per_interval():
    thread = Thread(Upstream(is_at_end=True))
    thread.turn()

    for _ in range(5):
        thread.board.answer()
        assert thread.turn(1) is None
    assert thread.turn(INTERVAL_MS) == {lane_of(ONE): TaskMark(0, AT_END)}
    assert thread.turn(INTERVAL_MS) is None


def test_thread_that_is_no_member_says_nothing():
    thread = Thread(Upstream())
    thread.generation = -1
    assert thread.turn() is None


def test_closed_task_says_nothing_more():
    task = Upstream(is_at_end=True)
    thread = Thread(task)
    thread.turn()

    task.place_ms, task.is_at_end = 9, False
    thread.turn(30)
    thread.turn(10, acknowledged=False)
    thread.tasks.clear()
    thread.progress.forget(ONE)

    assert thread.turn(INTERVAL_MS) is None
    assert thread.seen() == (0, BEHIND)


def test_many_threads_publish_less_often():
    """At most some 400 records in a second in all."""
    task = Upstream()
    thread = Thread(task)
    for number in range(39):
        thread.board.add(f"far-{number}", 1, {}, thread.now_ms)
    thread.turn()

    task.place_ms = 1
    assert thread.turn(99) is None
    assert thread.turn(1) is not None


# --- at-least-once: acknowledgements ------------------------------------------------------


@pytest.fixture
def broker():
    with EmbeddedBroker() as broker:
        broker.create_topic("out", 1)
        yield broker


def test_mark_waits_until_what_was_sent_before_is_acknowledged(broker):
    """Nothing is flushed: the thread looks in its next turn."""
    task = Upstream()
    thread = Thread(task)
    with Producer(broker, background_sender=False, linger_ms=0) as producer:

        def turn():
            thread.now_ms += INTERVAL_MS
            thread.progress.note(thread.tasks, 1, producer.last_sequence, thread.now_ms)
            return thread.progress.take(producer.has_acknowledged, thread.now_ms)

        assert turn() is not None

        task.place_ms = 10
        delivery = producer.send_block(OUT, Block([None], [b"x"], [10], offsets=range(1)), has_more=True)
        assert turn() is None
        assert thread.seen() == (0, BEHIND)
        assert not delivery.done()

        # More is sent meanwhile, and has a mark of its own.
        producer.flush()
        task.place_ms = 20
        producer.send_block(OUT, Block([None], [b"y"], [20], offsets=range(1)), has_more=True)
        assert dict(turn().marks) == {lane_of(ONE): TaskMark(10, BEHIND)}
        producer.flush()
        assert dict(turn().marks) == {lane_of(ONE): TaskMark(20, BEHIND)}


def test_mark_of_records_that_have_failed_does_not_count(broker):
    broker.create_topic("small", 1, {"max.message.bytes": "100"})
    with Producer(broker, background_sender=False, linger_ms=0) as producer:
        delivery = producer.send_block(TopicPartition("small", 0), Block([None], [b"x" * 500], [1], offsets=range(1)))
        assert isinstance(delivery.exception(), RecordTooLargeError)

        assert not producer.has_acknowledged(producer.last_sequence)
        with pytest.raises(RecordTooLargeError):
            producer.flush()
        assert producer.has_acknowledged(producer.last_sequence)


# --- exactly-once -------------------------------------------------------------------------


def exactly_once(*tasks):
    return Thread(*tasks, is_exactly_once=True)


def note(thread, after_ms=0):
    thread.now_ms += after_ms
    thread.progress.note(thread.tasks, 1, 0, thread.now_ms)


def test_mark_of_a_transaction_counts_after_its_commit():
    thread = exactly_once(Upstream(place_ms=3))
    note(thread)
    assert thread.progress.has_waiting
    record = thread.progress.enclose(thread.now_ms)
    assert dict(record.marks) == {lane_of(ONE): TaskMark(3, BEHIND)}
    assert thread.seen() is None

    thread.progress.committed(thread.now_ms)
    assert thread.seen() == (3, BEHIND)
    assert not thread.progress.has_waiting
    assert thread.progress.enclose(thread.now_ms) is None


def test_abort_takes_the_mark_back():
    """The task processes from its last commit again; what it had promised does not hold."""
    task = Upstream(place_ms=3)
    thread = exactly_once(task)
    note(thread)
    thread.progress.enclose(thread.now_ms)
    thread.progress.committed(thread.now_ms)

    task.place_ms = 90
    note(thread)
    thread.progress.enclose(thread.now_ms)
    task.place_ms = 95
    note(thread)
    thread.progress.aborted()
    assert thread.seen() == (3, BEHIND)

    task.place_ms = 4
    note(thread)
    record = thread.progress.enclose(thread.now_ms)
    assert dict(record.marks) == {lane_of(ONE): TaskMark(4, BEHIND)}


def test_task_that_falls_behind_is_awaited_before_the_commit():
    """That readers wait is never wrong."""
    task = Upstream(is_at_end=True)
    thread = exactly_once(task)
    note(thread)
    thread.progress.enclose(thread.now_ms)
    thread.progress.committed(thread.now_ms)
    assert thread.seen() == (0, AT_END)

    task.place_ms, task.is_at_end = 50, False
    note(thread)
    note(thread, 10)
    assert thread.seen() == (0, BEHIND)


def test_end_wants_a_commit_but_a_place_does_not():
    task = Upstream()
    thread = exactly_once(task)
    note(thread)
    thread.progress.enclose(thread.now_ms)
    thread.progress.committed(thread.now_ms)

    task.place_ms = 10
    note(thread, COMMIT_INTERVAL_MS)
    assert thread.progress.has_waiting
    assert not thread.progress.wants_commit(thread.now_ms)

    task.is_at_end = True
    note(thread)
    assert thread.progress.wants_commit(thread.now_ms)
    thread.progress.enclose(thread.now_ms)
    thread.progress.committed(thread.now_ms)
    assert not thread.progress.wants_commit(thread.now_ms + COMMIT_INTERVAL_MS)


# --- never too early ----------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 20)),
        st.tuples(st.just("acknowledge"), st.integers(1, 3)),
        st.tuples(st.just("turn"), st.integers(0, 30)),
        st.tuples(st.just("end"), st.booleans()),
        st.tuples(st.just("rebalance"), st.just(0)),
        st.tuples(st.just("question"), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_nothing_is_written_below_a_place_that_was_shown(steps):
    """Whatever the order of records, acknowledgements, rebalances and questions: nothing is missing below a mark."""
    task = Upstream()
    thread = Thread(task)
    unacknowledged = deque()
    sequence = acknowledged = 0
    for step, number in steps:
        if step == "write":
            # The next input has a place that is not lower; the record with this place is sent.
            task.place_ms += number
            sequence += 1
            unacknowledged.append(task.place_ms)
        elif step == "acknowledge":
            for _ in range(min(number, len(unacknowledged))):
                unacknowledged.popleft()
                acknowledged += 1
        elif step == "turn":
            thread.now_ms += number
            thread.progress.note(thread.tasks, thread.generation, sequence, thread.now_ms)
            reached = acknowledged
            record = thread.progress.take(lambda wanted: wanted <= reached, thread.now_ms)  # noqa: B023
            least_ms = min(unacknowledged, default=task.place_ms)
            for mark in [*(record.marks.values() if record else ()), *filter(None, [thread.seen()])]:
                assert mark[0] <= least_ms
        elif step == "end":
            task.is_at_end = number
        elif step == "rebalance":
            thread.generation += 1
        else:
            thread.board.answer()
