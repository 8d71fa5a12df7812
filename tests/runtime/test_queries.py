"""Queries of a running application: a value, "no such key", or why there is no answer."""

import threading
from datetime import datetime, timedelta

import pytest

from streams import (
    ConfigError,
    EmbeddedBroker,
    InvalidStateStoreError,
    Processor,
    Producer,
    SessionWindows,
    State,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StoreError,
    Streams,
    StreamsBuilder,
    StreamsNotStartedError,
    StreamsRebalancingError,
    TimeWindows,
    Topic,
    UnknownStateStoreError,
    Window,
    Windowed,
    key_value_store,
)
from streams.core.blocks.partitioning import partition_for
from tests import waiting

PARTITIONS = 4
TEN, HOUR = timedelta(milliseconds=10), timedelta(hours=1)
words = Topic("words", key=str, value=str, partitions=PARTITIONS)
FAST = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10}
KEYS = [f"k{number:02}" for number in range(20)]


def counting(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("kept")


def app(broker, topology=counting, **settings):
    return Streams(topology, application_id="app", broker=broker, **FAST | settings)


def until(holds):
    waiting.until(holds)


def send(broker, rows):
    with Producer(broker) as producer:
        for key, time in rows:
            producer.send(words, "x", key=key, timestamp_ms=time)


def processed(*instances):
    return sum(streams.metrics.get("process-total") for streams in instances)


@pytest.fixture
def broker():
    with EmbeddedBroker(settings={"group.min.session.timeout.ms": "1"}) as made:
        yield made


# --- one key ---------------------------------------------------------------------------------


def test_key_that_is_not_there_is_none_and_key_that_is_not_here_names_its_owner(broker):
    one, two = app(broker, application_server="one:80"), app(broker, application_server="two:80")
    with one, two:
        until(lambda: len(one.tasks()) == len(two.tasks()) == 2 and one.state is two.state is State.RUNNING)
        send(broker, [(key, 0) for key in KEYS])
        until(lambda: processed(one, two) == len(KEYS))

        here = {task.partition for task in one.tasks()}
        for key in (*KEYS, "absent-1", "absent-2", "absent-3"):
            expected = (1, 0) if key in KEYS else None
            partition = partition_for(key.encode(), PARTITIONS)
            mine, other = (one, two) if partition in here else (two, one)
            assert mine.store("kept").get(key) == expected
            with pytest.raises(StateStoreMigratedError, match=r"not on this instance, but on app-.*:80") as caught:
                other.store("kept").get(key)
            owner = caught.value.owner
            assert (owner.store, owner.partition) == ("kept", partition)
            assert owner.active.application_server == ("one:80" if mine is one else "two:80")
            assert not owner.active.is_local
            assert mine.owner_of("kept", key).active.is_local
            assert mine.owner_of("kept", key).active.client_id == owner.active.client_id


def test_standby_copies_of_a_key_are_told(broker):
    one, two = app(broker, num_standby_replicas=1), app(broker, num_standby_replicas=1)
    with one, two:
        until(lambda: len(one.tasks()) == len(two.tasks()) == 2 and len(one.copies()) == len(two.copies()) == 2)
        until(lambda: one.state is two.state is State.RUNNING)
        found = one.owner_of("kept", "k01")

        assert [standby.is_local for standby in found.standbys] == [not found.active.is_local]


def test_query_before_the_start_and_after_the_end_says_so(broker):
    streams = app(broker)
    with pytest.raises(StreamsNotStartedError, match="call start") as caught:
        streams.store("kept").get("a")
    assert (caught.value.store, caught.value.state) == ("kept", "CREATED")
    with streams:
        until(lambda: streams.state is State.RUNNING)
        assert streams.store("kept").get("a") is None
        with pytest.raises(UnknownStateStoreError, match="there is no store 'nope'; the topology has: kept"):
            streams.store("nope")
    for ask in (lambda: streams.store("kept").all(), lambda: streams.owner_of("kept", "a")):
        with pytest.raises(StateStoreNotAvailableError, match="NOT_RUNNING"):
            ask()


@pytest.mark.slow
def test_query_before_the_first_assignment_is_refused_as_not_now(broker):
    refused = 0
    for _ in range(30):
        with app(broker) as streams:
            for verb, arguments in (("get", ("a",)), ("all", ())):
                while True:
                    try:
                        assert not getattr(streams.store("kept"), verb)(*arguments)
                        break
                    except StreamsRebalancingError:
                        refused += 1
            # What was answered was so.
            assert len(streams.tasks()) == PARTITIONS
    assert refused


def test_query_while_a_store_is_restored_is_refused_as_not_now(broker):
    with app(broker) as streams:
        until(lambda: streams.state is State.RUNNING)
        send(broker, [(key, 0) for key in KEYS])
        until(lambda: processed(streams) == len(KEYS))
    held, seen = threading.Event(), []

    def on_restore(*found):
        seen.append(found)
        held.wait(waiting.WATCHDOG_MS / 1_000)

    with app(broker, on_restore=on_restore) as again:
        until(lambda: seen)
        answers = []

        def ask(verb, *arguments):
            try:
                answers.append(getattr(again.store("kept"), verb)(*arguments))
            except InvalidStateStoreError as error:
                answers.append(error)

        askers = [threading.Thread(target=ask, args=call) for call in (("get", "k01"), ("all",))]
        for asker in askers:
            asker.start()
        until(lambda: len(again.instance.stream_threads[0]._calls._pending) == 2)
        held.set()
        for asker in askers:
            asker.join()
        until(lambda: again.state is State.RUNNING)

        # Whichever turn of the thread answers: what is there, or "not now", never "no such key".
        assert all(isinstance(answer, StreamsRebalancingError) or answer for answer in answers)
        assert again.store("kept").get("k01") == (1, 0)


def test_key_of_a_topic_with_another_partitioner_is_found_with_it(broker):
    def last(topic, key, value, partitions):
        return partitions - 1

    one, two = app(broker), app(broker)
    with one, two:
        until(lambda: len(one.tasks()) == len(two.tasks()) == 2 and one.state is two.state is State.RUNNING)
        owner = one.owner_of("kept", "k01", partitioner=last)
        assert owner.partition == PARTITIONS - 1
        here, elsewhere = (one, two) if owner.active.is_local else (two, one)
        assert here.store("kept", partitioner=last).get("k01") is None
        with pytest.raises(StateStoreMigratedError):
            elsewhere.store("kept", partitioner=last).get("k01")


def test_key_behind_a_repartition_with_a_partitioner_is_found_by_it(broker):
    def topology(builder: StreamsBuilder) -> None:
        first = builder.stream(words).repartition("first", partitioner=lambda topic, key, value, partitions: 0)
        first.group_by_key().count("kept")

    with app(broker, topology) as streams:
        until(lambda: streams.state is State.RUNNING)
        send(broker, [(key, 0) for key in KEYS])
        until(lambda: streams.store("kept").approximate_num_entries() == len(KEYS))

        assert {streams.owner_of("kept", key).partition for key in KEYS} == {0}
        for wrong in (-1, PARTITIONS, "0"):
            with pytest.raises(InvalidStateStoreError, match=f"the partitioner returned {wrong!r} for key 'k01'"):
                streams.owner_of("kept", "k01", partitioner=lambda *_, wrong=wrong: wrong)
            with pytest.raises(InvalidStateStoreError, match=f"the partitioner returned {wrong!r} for key 'k01'"):
                streams.store("kept", partitioner=lambda *_, wrong=wrong: wrong).get("k01")
        assert streams.store("kept").get("k03") == (1, 0)


def test_key_that_a_processor_chose_is_found_in_whichever_task_has_it(broker):
    class Total(Processor[str, str, str, str]):
        totals = key_value_store(str, int)

        def process(self, record):
            self.totals.put(f"of {record.key}", 1)

    with app(broker, lambda builder: builder.stream(words).process(Total)) as streams:
        until(lambda: streams.state is State.RUNNING)
        send(broker, [(key, 0) for key in KEYS])
        until(lambda: processed(streams) == len(KEYS))

        assert [streams.store("totals").get(f"of {key}") for key in KEYS] == [1] * len(KEYS)
        assert streams.store("totals").get("of nobody") is None


# --- what is here ----------------------------------------------------------------------------


def test_scans_are_sorted_by_key_over_partitions(broker):
    with app(broker) as streams:
        until(lambda: streams.state is State.RUNNING)
        send(broker, [(key, 0) for key in KEYS])
        until(lambda: processed(streams) == len(KEYS))
        kept = streams.store("kept")

        assert [key for key, _ in kept.all()] == KEYS
        assert [key for key, _ in kept.range("k03", "k05")] == ["k03", "k04", "k05"]
        assert [key for key, _ in kept.range(None, "k01")] == ["k00", "k01"]
        assert kept.approximate_num_entries() == len(KEYS)
        assert repr(kept) == "StoreView('kept')"


def test_scan_of_an_instance_without_a_partition_is_refused(broker):
    instances = [app(broker) for _ in range(PARTITIONS + 1)]
    for streams in instances:
        streams.start()
    until(lambda: sorted(len(streams.tasks()) for streams in instances) == [0, 1, 1, 1, 1])
    until(lambda: all(streams.state is State.RUNNING for streams in instances))
    [idle] = [streams for streams in instances if not streams.tasks()]

    with pytest.raises(StateStoreMigratedError, match="none of its partitions"):
        idle.store("kept").all()
    for streams in instances:
        streams.close()


def test_windows_are_fetched_one_and_from_to_and_scanned(broker):
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).group_by_key().windowed_by(TimeWindows.of(TEN, grace=HOUR)).count("kept")

    with app(broker, topology) as streams:
        until(lambda: streams.state is State.RUNNING)
        send(broker, [("a", 0), ("a", 11), ("a", 12), ("b", 25)])
        until(lambda: processed(streams) == 4)
        kept = streams.store("kept")

        assert kept.fetch("a", 10) == (2, 12)
        assert kept.fetch("a", 30) is None
        assert kept.fetch("a", 0, 10) == [(0, (1, 0)), (10, (2, 12))]
        assert kept.fetch("c", 0, 10) == []
        with pytest.raises(StoreError, match=r"store 'kept': a bound of fetch.* must be an int of epoch milliseconds"):
            kept.fetch("a", datetime(1970, 1, 1))
        with pytest.raises(StoreError, match=r"store 'kept': fetch.* takes 1 or 2 bounds, not 0"):
            kept.fetch("a")
        assert sorted(kept.range("a", "a")) == [
            (Windowed("a", Window(0, 10)), (1, 0)),
            (Windowed("a", Window(10, 20)), (2, 12)),
        ]
        assert len(kept.all()) == 3
        with pytest.raises(InvalidStateStoreError, match=r"kind timestamped window, .*; it supports .*fetch"):
            kept.get("a")


def test_sessions_are_fetched_and_scanned(broker):
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).group_by_key().windowed_by(SessionWindows.of(TEN, grace=HOUR)).count("kept")

    with app(broker, topology) as streams:
        until(lambda: streams.state is State.RUNNING)
        send(broker, [("a", 0), ("a", 5), ("a", 100)])
        until(lambda: processed(streams) == 3)
        kept = streams.store("kept")

        first, second = (Windowed("a", Window(0, 5)), 2), (Windowed("a", Window(100, 100)), 1)
        assert sorted(kept.fetch("a")) == [first, second]
        assert kept.fetch("a", 50, 200) == [second]
        with pytest.raises(StoreError, match=r"store 'kept': fetch.* takes 0 or 2 bounds, not 1"):
            kept.fetch("a", 50)
        assert kept.fetch("b") == []
        assert sorted(kept.all()) == sorted(kept.range("a", "b")) == [first, second]


def test_global_store_is_here_whatever_the_partition(broker):
    def topology(builder: StreamsBuilder) -> None:
        builder.global_table(words, name="kept")
        builder.stream(Topic("others", key=str, value=str)).for_each(lambda key, value: None)

    with app(broker, topology) as streams:
        send(broker, [("a", 0)])
        until(lambda: streams.store("kept").get("a") is not None)

        assert streams.store("kept").get("b") is None
        assert streams.owner_of("kept", "a").active.is_local


def test_application_server_is_a_host_and_port():
    with pytest.raises(ConfigError, match="'here' is not host:port"):
        Streams(counting, application_id="app", application_server="here")


def test_an_instance_that_was_held_up_does_not_answer_from_state_that_another_has_taken_over(broker):
    held, released = threading.Event(), threading.Event()

    def hold(key, _):
        if key == "hold" and not held.is_set():
            held.set()
            released.wait(waiting.WATCHDOG_S)

    def topology(builder):
        builder.stream(words).peek(hold).group_by_key().count("kept")

    key = next(key for key in KEYS if partition_for(key.encode(), PARTITIONS) == partition_for(b"hold", PARTITIONS))
    brief = {"session_timeout_ms": 300, "commit_interval_ms": 60_000}
    with app(broker, topology, **brief) as one:
        until(lambda: one.state is State.RUNNING)
        send(broker, [(key, 0)])
        # On a busy machine the group may remove it before, and it counts the record again.
        until(lambda: processed(one))
        send(broker, [("hold", 0)])
        until(held.is_set)
        with app(broker, topology, **brief) as two:
            send(broker, [(key, 1)])
            # The group removes the first instance, whose thread does not turn, and the second one takes over.
            until(lambda: processed(two) and len(two.tasks()) == PARTITIONS)
            found = []

            def ask():
                try:
                    found.append(one.store("kept").get(key))
                except InvalidStateStoreError as error:
                    found.append(type(error))

            asking = threading.Thread(target=ask)
            asking.start()
            until(lambda: one.instance.stream_threads[0]._calls._pending)
            released.set()
            asking.join()
            assert found == [StreamsRebalancingError]
