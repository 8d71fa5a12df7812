"""The life of an application: what its states mean, and that its end is not silent."""

import logging
import threading

import pytest

from streams import (
    EmbeddedBroker,
    ExceptionResponse,
    ProcessingError,
    Producer,
    State,
    Streams,
    StreamsBuilder,
    Topic,
    TopicPartition,
)
from streams.clients.errors import RequestTimeoutError
from streams.clients.network import Network
from streams.core.clock import SystemClock
from streams.core.errors import ClientClosedError, ConfigError, RebalanceInProgressError, StateLockedError
from streams.protocol.group_messages import DescribeGroup, LeaveGroup
from streams.protocol.transport import ANY_NODE
from streams.runtime.stores.homes import MemoryHome
from streams.runtime.threads.thread import StreamThread
from tests import waiting

words = Topic("words", key=str, value=str, partitions=2)
counts = Topic("counts", key=str, value=int, partitions=2)
FAST = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10}


def counting(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("counts-store").to_stream().to(counts)


def dividing(builder: StreamsBuilder) -> None:
    builder.stream(words).map_values(lambda word: 1 // (word != "bad"), name="divide").to(counts)


def send(broker, *values, key=None):
    with Producer(broker) as producer:
        for value in values:
            producer.send(words, value, key=key or value, timestamp_ms=0)


class Moves:
    """The states that an application has been in, and what it had in each of them."""

    def __init__(self):
        self.seen = []
        self.changed = threading.Condition()
        self.look = lambda: None

    def __call__(self, new, old):
        found = self.look()
        with self.changed:
            self.seen.append((new, found))
            self.changed.notify_all()

    def until(self, *states):
        with self.changed:
            assert self.changed.wait_for(
                lambda: [state for state, _ in self.seen] == list(states), waiting.WATCHDOG_MS / 1_000
            ), self.seen


def until(holds):
    """Look until it is so; each look may wait for a turn of the threads."""
    waiting.until(holds)


def written(broker, topic):
    return sum(broker.end_offset(TopicPartition(topic, number)) for number in range(2))


def app(broker, topology=counting, **settings):
    return Streams(topology, application_id="app", broker=broker, **FAST | settings)


# --- RUNNING ---------------------------------------------------------------------------------


@pytest.mark.case
@pytest.mark.parametrize("threads", [1, 2])
def test_running_means_that_all_tasks_are_open(threads):
    for _ in range(10):
        moves = Moves()
        with EmbeddedBroker() as broker:
            streams = app(broker, on_state=moves, num_stream_threads=threads)
            moves.look = lambda streams=streams: sum(len(thread.tasks) for thread in streams.instance.stream_threads)
            with streams:
                moves.until(State.REBALANCING, State.RUNNING)

        assert moves.seen[1] == (State.RUNNING, 2)


def test_running_means_that_all_stores_are_restored():
    with EmbeddedBroker() as broker:
        with app(broker):
            send(broker, *(f"word {number}" for number in range(2_000)))
            until(lambda: written(broker, "counts") == 2_000)
        moves, restored = Moves(), []
        moves.look = lambda: sum(total - done for *_, done, total in restored[-1:])
        again = app(broker, on_state=moves, on_restore=lambda *found: restored.append(found), max_poll_records=10)
        with again:
            moves.until(State.REBALANCING, State.RUNNING)

    assert restored
    assert moves.seen[1] == (State.RUNNING, 0)


def test_state_goes_back_to_rebalancing_when_a_member_comes_and_goes():
    moves = Moves()
    with EmbeddedBroker() as broker, app(broker, on_state=moves) as streams:
        moves.until(State.REBALANCING, State.RUNNING)
        with app(broker) as other:
            until(lambda: len(streams.tasks()) == len(other.tasks()) == 1 and other.state is State.RUNNING)
        until(lambda: len(streams.tasks()) == 2 and streams.state is State.RUNNING)
        states = [state for state, _ in moves.seen]

    assert states[:4] == [State.REBALANCING, State.RUNNING] * 2
    assert set(states) == {State.REBALANCING, State.RUNNING}
    assert states[-1] is State.RUNNING


def test_state_goes_back_to_rebalancing_while_an_added_thread_has_nothing_yet():
    moves = Moves()
    with EmbeddedBroker() as broker, app(broker, on_state=moves) as streams:
        moves.until(State.REBALANCING, State.RUNNING)
        streams.add_thread()
        until(lambda: streams.instance.ask(lambda thread: len(thread.tasks) * thread.is_ready) == [1, 1])
        assert streams.remove_thread() is not None
        until(lambda: streams.state is State.RUNNING)
        assert streams.remove_thread() is not None
        assert streams.remove_thread() is None
        assert streams.wait(waiting.WATCHDOG_MS)

    assert moves.seen[2][0] is State.REBALANCING


def test_state_listener_may_ask_the_application_and_its_failure_stops_nothing(caplog):
    found = []

    def listener(new, old):
        if new is State.RUNNING:
            found.append(streams.tasks())
            raise RuntimeError("of the listener")

    with EmbeddedBroker() as broker:
        streams = app(broker, on_state=listener)
        with streams:
            until(lambda: found)
            assert streams.state is State.RUNNING

    assert [len(tasks) for tasks in found] == [2]
    assert "the state listener failed at RUNNING" in caplog.text


# --- the end ---------------------------------------------------------------------------------


def test_application_that_dies_says_so_once_with_task_node_record_and_line(caplog):
    caplog.set_level(logging.INFO)
    with EmbeddedBroker() as broker, pytest.raises(ProcessingError), app(broker, dividing) as streams:
        send(broker, "good", "bad", key="a")
        streams.wait(waiting.WATCHDOG_MS)

    [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.startswith("application 'app' failed: task 0_")
    assert "node 'divide' at words-" in line
    assert "offset 1: ZeroDivisionError" in line
    assert "test_states.py:" in line
    assert "\n" not in line


def test_block_of_an_application_that_failed_raises_its_failure():
    with EmbeddedBroker() as broker:
        with pytest.raises(ProcessingError) as caught, app(broker, dividing) as streams:
            send(broker, "bad")
            streams.instance.supervisor.ended.wait(waiting.WATCHDOG_MS)

    assert caught.value is streams.failure
    assert streams.state is State.ERROR


def test_error_that_ends_the_block_is_not_masked_and_has_a_note_of_the_failure():
    with EmbeddedBroker() as broker:
        with pytest.raises(KeyError) as caught, app(broker, dividing) as streams:
            send(broker, "bad")
            streams.instance.supervisor.ended.wait(waiting.WATCHDOG_MS)
            raise KeyError("of the block")

    [note] = caught.value.__notes__
    assert note.startswith("application 'app' failed: task 0_")
    assert "ZeroDivisionError" in note


def test_close_and_wait_raise_the_failure_each_time_and_the_state_stays_error():
    with EmbeddedBroker() as broker:
        streams = app(broker, dividing)
        streams.start()
        send(broker, "bad")
        for end in (streams.wait, streams.close, streams.close, streams.wait):
            with pytest.raises(ProcessingError) as caught:
                end(waiting.WATCHDOG_MS)
            assert caught.value is streams.failure

    assert streams.state is State.ERROR


def test_failed_application_is_pending_error_until_all_threads_have_ended():
    moves = Moves()
    with EmbeddedBroker() as broker:
        with pytest.raises(ProcessingError), app(broker, dividing, on_state=moves, num_stream_threads=2) as streams:
            send(broker, "bad")
            streams.wait(waiting.WATCHDOG_MS)
        assert [state for state, _ in moves.seen][-2:] == [State.PENDING_ERROR, State.ERROR]


@pytest.mark.slow
def test_failed_application_is_cleaned_up_once_it_is_closed(tmp_path):
    with EmbeddedBroker() as broker:
        streams = app(broker, dividing, state_dir=tmp_path)
        with pytest.raises(ProcessingError), streams:
            send(broker, "bad")
            streams.wait(waiting.WATCHDOG_MS)
        streams.clean_up()


def test_wait_for_an_application_that_was_not_started_is_an_error_and_for_a_closed_one_is_over():
    streams = Streams(counting, application_id="a", **FAST)
    with pytest.raises(ClientClosedError, match="was not started"):
        streams.wait()
    streams.close()
    assert streams.wait()


@pytest.mark.slow
def test_wait_ends_when_several_threads_end_at_once():
    """Each of them saw the other alive, and nobody said that none was left."""
    with EmbeddedBroker() as broker:
        for _ in range(20):
            streams = app(broker, num_stream_threads=3)
            streams.start()
            streams.instance.pool.stop_all()
            assert streams.wait(waiting.WATCHDOG_MS)
            streams.close()


def test_question_to_a_thread_that_has_ended_is_refused_not_left_waiting():
    with EmbeddedBroker() as broker:
        streams = app(broker)
        with streams:
            [thread] = streams.instance.stream_threads
        with pytest.raises(Exception, match="has ended"):
            thread.ask(lambda _: 1).result(waiting.WATCHDOG_MS)


# --- what the log says -----------------------------------------------------------------------


def lines(caplog, text):
    return [record for record in caplog.records if text in record.getMessage()]


def test_states_assignments_restores_and_threads_are_logged_not_records(caplog):
    caplog.set_level(logging.INFO, "streams")
    moves = Moves()
    with EmbeddedBroker() as broker:
        with app(broker) as streams:
            send(broker, *(str(number) for number in range(100)))
            until(lambda: written(broker, "counts") == 100)
        with app(broker, on_state=moves) as streams:
            moves.until(State.REBALANCING, State.RUNNING)
            streams.pause()
            streams.resume()
            added = streams.add_thread()
            until(lambda: streams.instance.ask(lambda thread: len(thread.tasks) * thread.is_ready) == [1, 1])
            assert streams.remove_thread() == added

    for text in (
        "application 'app': CREATED -> REBALANCING",
        "application 'app': REBALANCING -> RUNNING",
        "application 'app': RUNNING -> PENDING_SHUTDOWN",
        "application 'app': PENDING_SHUTDOWN -> NOT_RUNNING",
        "thread-1: assigned tasks 0_0, 0_1; replicas of none",
        "thread-1: closes revoked tasks 0_",
        "restoring store 'counts-store' from app-counts-store-changelog-",
        "restored store 'counts-store', ",
        "application 'app': paused",
        "application 'app': resumed",
        "thread-2: added; 2 threads",
        "thread-2: removed; 1 threads",
    ):
        assert lines(caplog, text), text
        assert all(record.levelno == logging.INFO for record in lines(caplog, text)), text
    assert len(caplog.records) < 60


def test_removed_member_logs_its_lost_and_reassigned_tasks(caplog):
    caplog.set_level(logging.INFO, "streams")
    with EmbeddedBroker() as broker, app(broker) as streams:
        until(lambda: streams.state is State.RUNNING)
        network = Network(broker.connect("admin"), SystemClock())
        [member] = network.request(ANY_NODE, DescribeGroup("app")).members
        network.request(ANY_NODE, LeaveGroup("app", member.member_id))
        network.close()
        until(lambda: len(lines(caplog, "assigned tasks 0_0, 0_1")) == 2 and streams.state is State.RUNNING)

    [lost] = lines(caplog, "lost tasks 0_0, 0_1")
    assert lost.levelno == logging.WARNING


def test_broker_that_does_not_answer_and_is_back_is_logged(caplog):
    caplog.set_level(logging.INFO, "streams")
    with EmbeddedBroker() as broker, app(broker) as streams:
        until(lambda: streams.state is State.RUNNING)

        def turn(thread):
            thread._patience.note_timeout(RequestTimeoutError("produce to counts-0: no answer"))

        streams.instance.ask(turn)
        until(lambda: lines(caplog, "the broker responds again, after"))

    [away] = lines(caplog, "no response from the broker, retrying: produce to counts-0")
    assert away.levelno == logging.WARNING


class Refusing:
    """Commits as they end between join and sync of the group."""

    is_exactly_once = False

    def commit(self, tasks):
        raise RebalanceInProgressError("the group is rebalancing", code=27)


def test_commit_that_the_group_refuses_is_logged_once(caplog):
    caplog.set_level(logging.INFO, "streams")
    with EmbeddedBroker() as broker, app(broker) as streams:
        until(lambda: streams.state is State.RUNNING)

        def refused(thread):
            usual, thread.committer = thread.committer, Refusing()
            found = [thread.try_commit([]) for _ in range(3)]
            thread.committer = usual
            return found

        assert streams.instance.ask(refused) == [[False] * 3]

    [line] = lines(caplog, "commit rejected")
    assert line.levelno == logging.INFO


def test_replaced_thread_is_logged_with_its_error(caplog):
    caplog.set_level(logging.INFO, "streams")
    failed = threading.Event()

    def failing_once(builder: StreamsBuilder) -> None:
        def check(word: str) -> str:
            if not failed.is_set():
                failed.set()
                raise RuntimeError("the first word")
            return word

        builder.stream(words).map_values(check, name="check").to(texts)

    texts = Topic("texts", key=str, value=str, partitions=2)
    replace = lambda error: ExceptionResponse.REPLACE_THREAD  # noqa: E731
    with EmbeddedBroker() as broker, app(broker, failing_once, on_exception=replace) as streams:
        send(broker, "one")
        until(lambda: written(broker, "texts") or streams.failure)

    [line] = lines(caplog, "replaced: task 0_")
    assert line.levelno == logging.WARNING
    assert "RuntimeError: the first word; in " in line.getMessage()
    assert line.exc_info


@pytest.mark.parametrize("response", [None, "replace_thread", 0])
def test_what_is_no_response_to_a_failure_is_an_error_with_the_failure_as_its_cause(caplog, response):
    def failing(builder: StreamsBuilder) -> None:
        builder.stream(words).map_values(int, name="int").to(texts)

    texts = Topic("texts", key=str, value=int, partitions=2)
    told = rf"on_exception returned {response!r}; .* ExceptionResponse.REPLACE_THREAD"
    with EmbeddedBroker() as broker, pytest.raises(ConfigError, match=told) as raised:
        with app(broker, failing, on_exception=lambda error: response) as streams:
            send(broker, "one")
            streams.wait()

    assert "invalid literal for int" in str(raised.value.__cause__)
    assert "the exception handler of application" in caplog.text


def test_stages_stay_while_another_thread_has_a_task_open(monkeypatch):
    """They know since when they wait: new ones would not wait at all, and the thread would poll without a pause."""
    is_free = threading.Event()
    stayed: list[bool] = []
    open_task, reconcile = MemoryHome.open_task, StreamThread._reconcile

    def locked(home, task_id, specs, owner):
        if task_id.partition == 1 and not is_free.is_set():
            raise StateLockedError("another thread has not closed it yet")
        return open_task(home, task_id, specs, owner)

    def noted(thread):
        before = thread.stages
        reconcile(thread)
        if before and thread.tasks:
            stayed.append(thread.stages is before)

    monkeypatch.setattr(MemoryHome, "open_task", locked)
    monkeypatch.setattr(StreamThread, "_reconcile", noted)
    with EmbeddedBroker() as broker:
        broker.create_topic("words", 2)
        with Streams(counting, application_id="shop", broker=broker, **FAST) as streams:
            waiting.until(lambda: len(stayed) > 5)
            is_free.set()
            waiting.until(lambda: streams.state is State.RUNNING)

    assert stayed[:5] == [True] * 5
