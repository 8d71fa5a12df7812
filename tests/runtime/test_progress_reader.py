"""Marks on their way from a thread over the progress topic to the board of another instance."""

import re
from contextlib import suppress
from functools import partial

import pytest

from streams import (
    Consumer,
    EmbeddedBroker,
    ForeignFormatError,
    Producer,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    SystemClock,
    Topic,
    build_topology,
)
from streams.clients import WakeupError
from streams.core.blocks.records import Block, TaskId, lane_of
from streams.core.concurrency.threads import SystemThreads
from streams.core.metrics import Metrics, table
from streams.runtime.in_step.progress_reader import ProgressReader
from streams.runtime.in_step.progress_records import PROGRESS_CONFIG, ProgressRecord, progress_partition
from streams.runtime.in_step.thread_progress import ThreadProgress
from streams.runtime.plan.layout import Plans
from streams.runtime.tasks.progress import MarkState, ProgressBoard, TaskMark
from streams.runtime.tasks.refusals import Refusals
from streams.runtime.threads.committing import Committer
from tests import waiting

AT = progress_partition("app")
ONE = TaskId(0, 1)
LANE = lane_of(ONE)
BEHIND, AT_END, RESTORING = MarkState


def regrouping(builder: StreamsBuilder) -> None:
    """One sub-topology that writes to a repartition topic."""
    lines = builder.stream(Topic("lines", key=str, value=str))
    lines.group_by(lambda _, line: line, name="words").count(name="counted")


class Upstream:
    """A task that is where the test says."""

    task_id, regroups, place_ms, is_at_end = ONE, True, 0, False
    activity = 0

    def mark(self):
        return self.place_ms, self.is_at_end


@pytest.fixture
def broker():
    with EmbeddedBroker() as broker:
        broker.create_topic("lines", 2)
        broker.create_topic(AT.topic, 1, PROGRESS_CONFIG)
        yield broker


@pytest.fixture
def reader_of(broker):
    """A reader by its name, whose loop the test turns."""
    readers = []

    def make(name, isolation_level="read_uncommitted"):
        consumer = Consumer(broker, client_id=name, auto_offset_reset="none", isolation_level=isolation_level)
        producer = Producer(broker, client_id=name, background_sender=False)
        reader = ProgressReader(
            name, AT, ProgressBoard(), consumer, producer, SystemClock(), pytest.fail, SystemThreads()
        )
        reader.open()
        readers.append(reader)
        return reader

    yield make
    for reader in readers:
        reader.close()


def turn(*readers):
    """Let each reader read all that is there."""
    for reader in readers:
        for _ in range(3):
            reader.run_once(0)


def write(broker, record):
    with Producer(broker) as producer:
        producer.send_block(AT, record.block(0))


def seen(reader):
    row = reader.board.marks([LANE]).get(LANE)
    return row and (row.place_ms, row.state)


def test_history_is_not_read(broker, reader_of):
    write(broker, ProgressRecord("far", 1, {LANE: TaskMark(5, AT_END)}))
    reader = reader_of("one")
    turn(reader)
    assert seen(reader) is None


def test_end_counts_if_it_was_said_behind_the_question(broker, reader_of):
    reader = reader_of("one")
    write(broker, ProgressRecord("far", 1, {LANE: TaskMark(5, AT_END)}))
    reader.board.ask()
    turn(reader)
    assert seen(reader) == (5, BEHIND)

    ask(reader)
    write(broker, ProgressRecord("far", 1, {LANE: TaskMark(5, AT_END)}))
    turn(reader)
    assert seen(reader) == (5, AT_END)


def ask(reader):
    """Ask, which ends the next poll."""
    reader.ask()
    waiting.until(lambda: reader._written == reader._asked, partial(_quiet_turn, reader))


def _quiet_turn(reader):
    with suppress(WakeupError):
        reader.run_once(0)


def test_answer_comes_to_the_one_that_asks(broker, reader_of):
    """And to nobody else is it news; an instance does not answer itself."""
    one, two = reader_of("one"), reader_of("two")
    ask(one)
    turn(one, two)

    assert (one.board.asked, two.board.asked) == (0, 1)


def test_reader_asks_by_itself_for_what_its_board_has_forgotten(broker, reader_of):
    """Another instance has said it in a generation that this one did not know yet."""
    one, two = reader_of("one"), reader_of("two")
    write(broker, ProgressRecord("far", 3, {LANE: TaskMark(5, AT_END)}))
    turn(one)
    one.board.note("here", 2, {}, 0)

    def both():
        _quiet_turn(one)
        _quiet_turn(two)

    waiting.until(lambda: two.board.asked == 1, both)


def test_other_bytes_fail_the_reader(broker, reader_of):
    reader = reader_of("one")
    with Producer(broker) as producer:
        producer.send_block(AT, Block([None], [b"hello"], [0], offsets=range(1)))
    with pytest.raises(ForeignFormatError, match="'app-progress', offset 0"):
        turn(reader)


def test_process_that_was_stopped_for_longer_than_records_are_kept_asks_again(broker, reader_of):
    reader = reader_of("one")
    ask(reader)
    turn(reader)
    write(broker, ProgressRecord("far", 1, {LANE: TaskMark(5, AT_END)}))
    write(broker, ProgressRecord("far", 1, {LANE: TaskMark(6, AT_END)}))
    broker.delete_records(AT, broker.end_offset(AT))
    question = reader._asked
    write(broker, ProgressRecord("far", 1, {LANE: TaskMark(7, AT_END)}))

    waiting.until(lambda: reader._written > question, partial(_quiet_turn, reader))
    turn(reader)
    write(broker, ProgressRecord("far", 1, {LANE: TaskMark(8, AT_END)}))
    turn(reader)
    assert seen(reader) == (8, AT_END)


def test_patterns_of_sources_do_not_match_the_topic():
    """Otherwise the application would read what it writes."""

    def everything(builder: StreamsBuilder) -> None:
        builder.stream(re.compile("app-.*"), key=str, value=str).to(Topic("out", key=str, value=str))

    config = StreamsConfig.of(application_id="app")
    plans = Plans(build_topology(everything, config), config, SystemClock())
    assert plans.layout({"app-orders": 1, AT.topic: 1, "app-eu-progress": 1}).partitions.keys() == {
        "app-orders",
        "app-eu-progress",
    }


# --- the whole way ------------------------------------------------------------------------


@pytest.fixture
def committer_of(broker):
    """The committer of a thread that is the only member of its group."""
    opened = []

    def make(guarantee):
        config = StreamsConfig.of(application_id="app", processing_guarantee=guarantee)
        plans = Plans(build_topology(regrouping, config), config, SystemClock())
        plan = plans.of(plans.layout({"lines": 2}))
        consumer = Consumer(broker, "app", client_id="here", enable_auto_commit=False)
        consumer.subscribe(["lines"])
        waiting.until(consumer.assignment, partial(consumer.poll, 10))
        transactional_id = "app-here" if config.is_exactly_once else None
        new_producer = partial(Producer, broker, transactional_id=transactional_id, background_sender=False)
        committer = Committer(
            consumer,
            new_producer,
            plan,
            Metrics(SystemClock()).stopwatch(table.COMMITTED),
            SystemClock(),
            config.is_exactly_once,
            Refusals(1_000_000, config.is_exactly_once),
            progress=ThreadProgress("here", ProgressBoard(), config.is_exactly_once),
        )
        opened.extend([consumer, committer])
        return committer

    yield make
    for part in reversed(opened):
        part.close()


def test_at_least_once(broker, reader_of, committer_of):
    reader, committer, task = reader_of("far"), committer_of("at_least_once"), Upstream()
    ask(reader)
    turn(reader)

    task.place_ms, task.is_at_end = 50, True
    waiting.until(lambda: seen(reader), lambda: (committer.note_progress([task]), committer.poll(), turn(reader)))

    assert seen(reader) == (50, AT_END)


def test_exactly_once_marks_come_with_the_commit_and_an_abort_takes_them_back(broker, reader_of, committer_of):
    """A commit is made for a mark alone, too."""
    reader, committer, task = reader_of("far", "read_committed"), committer_of("exactly_once_v2"), Upstream()
    task.place_ms = 50
    committer.note_progress([task])
    turn(reader)
    assert seen(reader) is None

    committer.commit([])
    waiting.until(lambda: seen(reader), partial(turn, reader))
    assert seen(reader) == (50, BEHIND)
    end = broker.end_offset(AT)
    committer.commit([])
    assert broker.end_offset(AT) == end

    # The mark is in the transaction, which is then aborted: as when the commit fails.
    task.place_ms = 90
    committer.note_progress([task])
    committer._begin()
    committer._enclose_progress()
    committer.producer.flush()
    committer.abort()
    assert broker.end_offset(AT) > end
    task.place_ms = 60
    committer.note_progress([task])
    committer.commit([])
    waiting.until(lambda: seen(reader) != (50, BEHIND), partial(turn, reader))
    assert seen(reader) == (60, BEHIND)


def test_question_is_answered_by_a_thread_with_nothing_new(broker, reader_of, committer_of):
    """Its instance has a reader, too."""
    near, committer, task = reader_of("near"), committer_of("at_least_once"), Upstream()
    committer.progress = ThreadProgress("here", near.board, is_exactly_once=False)
    task.is_at_end = True
    far = reader_of("far")

    def loop():
        committer.note_progress([task])
        committer.poll()
        turn(near, far)

    waiting.until(lambda: near.board.marks([LANE]), loop)
    waiting.until(lambda: seen(far), loop)
    assert seen(far) == (0, BEHIND)

    ask(far)
    waiting.until(lambda: seen(far) == (0, AT_END), loop)


def test_thread_of_the_reader_wakes_those_that_wait(broker, reader_of):
    reader, woken = reader_of("one"), []
    reader.board.listen("thread", lambda: woken.append(True))
    version = reader.board.version
    reader.thread.start(reader.name)
    assert reader.board.wait_from("thread", version)

    write(broker, ProgressRecord("far", 1, {LANE: TaskMark(5, BEHIND)}))
    waiting.until(lambda: woken)
    assert seen(reader) == (5, BEHIND)


def test_instances_that_rest_answer_too(broker):
    """Nobody is behind, so nobody says anything unless asked."""

    def ends(streams):
        """Return for which tasks an instance knows that they are at their end."""
        lanes = [lane_of(TaskId(0, number)) for number in range(2)]
        return [row.state is AT_END for row in streams.instance._board.marks(lanes).values()]

    def has_half(streams):
        return [len(thread.tasks) for thread in streams.instance.stream_threads] == [2]

    settings = {"application_id": "app", "broker": broker, "heartbeat_interval_ms": 50}
    with Streams(regrouping, **settings) as one, Streams(regrouping, **settings) as two:
        waiting.until(lambda: has_half(one) and has_half(two))
        waiting.until(lambda: ends(one) == ends(two) == [True, True])
        for _ in range(3):
            two.instance._progress.ask()
            waiting.until(lambda: ends(two) == [True, True])
