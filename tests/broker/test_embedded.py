"""The embedded broker as its clients see it: requests, waiting, timers, threads, restarts."""

import threading
from random import Random

import pytest
from attrs import evolve

from streams.broker import OFFSETS_TOPIC, ArrayStorage, EmbeddedBroker
from streams.clients import Consumer
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import BrokerError, ClientClosedError, RecordTooLargeError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import (
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    OffsetAndMetadata,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from streams.protocol.messages import (
    DeleteRecords,
    Fetch,
    ListedOffset,
    ListOffsets,
    Metadata,
    Produce,
)
from streams.protocol.wire import UnsupportedVersionError
from tests.waiting import WATCHDOG_MS, until_raised

WORDS = TopicPartition("words", 0)
LONG_MS = WATCHDOG_MS


def one(value, key=None):
    return Block([key], [value], [0])


def ask(connection, request):
    """Send and return the answer, which in process is there at once."""
    sent = connection.send(-1, request)
    [(correlation_id, answer)] = connection.poll(LONG_MS)
    assert correlation_id == sent
    return answer


def fetched(response, partition=WORDS):
    if partition not in response.partitions:
        return []  # Its log ends where the fetch began.
    return [value for block in response.partitions[partition].blocks for value in block.values]


@pytest.fixture
def clock():
    return VirtualClock(1_000_000)


@pytest.fixture
def broker(clock):
    with EmbeddedBroker(clock=clock, rng=Random(1)) as broker:
        yield broker


@pytest.fixture
def client(broker):
    return broker.connect("test")


# --- requests -------------------------------------------------------------------------------


def test_asking_for_an_unknown_topic_creates_it_where_all_agree(clock):
    with EmbeddedBroker(clock=clock, default_partitions=3) as broker:
        client = broker.connect("test")
        [refused] = ask(client, Metadata(["words"], allow_auto_topic_creation=False)).topics
        assert refused.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        [created] = ask(client, Metadata(["words"])).topics
        assert (created.error, len(created.leaders)) == (ErrorCode.NONE, 3)
        [illegal] = ask(client, Metadata(["a b"])).topics
        assert illegal.error is ErrorCode.INVALID_TOPIC
    with EmbeddedBroker(clock=clock, auto_create_topics=False) as broker:
        [unknown] = ask(broker.connect("test"), Metadata(["words"])).topics
        assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_produce_answers_each_partition_on_its_own(broker, client):
    broker.create_topic("words", 1, {"max.message.bytes": "200"})
    broker.append(WORDS, one(b"first"))

    blocks = {
        WORDS: [one(b"a"), one(b"b")],
        TopicPartition("words", 1): [one(b"c")],
        TopicPartition(OFFSETS_TOPIC, 0): [one(b"d", b"k")],
    }
    answer = ask(client, Produce(blocks))
    assert [(result.error, result.base_offset) for result in answer.partitions.values()] == [
        (ErrorCode.NONE, 1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.INVALID_TOPIC, -1),
    ]

    refused = ask(client, Produce({WORDS: [one(b"e"), one(b"x" * 200)]})).partitions[WORDS]
    assert refused.error is ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in refused.message
    assert broker.end_offset(WORDS) == 3
    with pytest.raises(RecordTooLargeError):
        broker.append(WORDS, one(b"x" * 200))


def test_fetch_reads_from_an_offset_up_to_a_number(broker, client):
    broker.create_topic("words", 1)
    broker.append(WORDS, Block([None] * 1000, [b"%d" % number for number in range(1000)], [0] * 1000))

    answer = ask(client, Fetch({WORDS: 995}, max_records=3))

    assert fetched(answer) == [b"995", b"996", b"997"]
    assert answer.partitions[WORDS].high_watermark == 1000


def test_fetch_names_what_is_wrong_at_once(broker, client):
    broker.create_topic("words", 1)
    broker.append(WORDS, one(b"a"))
    other = TopicPartition("other", 0)

    answer = ask(client, Fetch({WORDS: 2, other: 0}, max_wait_ms=LONG_MS))

    assert answer.partitions[WORDS].error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert answer.partitions[WORDS].high_watermark == 1
    assert answer.partitions[other].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offsets_are_listed_by_time_and_records_deleted(broker, client):
    broker.create_topic("words", 1)
    broker.append(WORDS, Block([None] * 3, [b"x"] * 3, [10, 20, 30]))
    missing = TopicPartition("words", 9)

    assert ask(client, ListOffsets({WORDS: 15, missing: -1})).partitions == {
        WORDS: ListedOffset(ErrorCode.NONE, 20, 1, 0),
        missing: ListedOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
    assert ask(client, DeleteRecords({WORDS: 2, missing: 1})).partitions == {
        WORDS: (ErrorCode.NONE, 2),
        missing: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    }
    assert ask(client, DeleteRecords({WORDS: 4})).partitions == {WORDS: (ErrorCode.OFFSET_OUT_OF_RANGE, -1)}
    assert ask(client, ListOffsets({WORDS: -2})).partitions == {WORDS: ListedOffset(ErrorCode.NONE, -1, 2, 0)}
    assert broker.start_offset(WORDS) == 2


def test_an_unknown_node_or_request_is_answered_with_an_error(client):
    client.send(7, Metadata())
    client.send(0, object())

    [(first, unknown_node), (second, unknown_request)] = client.poll(0)

    assert (first, second) == (0, 1)
    assert isinstance(unknown_node, BrokerError)
    assert isinstance(unknown_request, UnsupportedVersionError)


class _Failing(ArrayStorage):
    def append(self, block):
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_a_named_error_and_nothing_is_acknowledged(broker, client):
    broker.create_topic("words", 1, storage=lambda context: _Failing())

    refused = ask(client, Produce({WORDS: [one(b"a")]})).partitions[WORDS]

    assert (refused.error, refused.base_offset) == (ErrorCode.STORAGE_ERROR, -1)
    assert "disk is full" in refused.message


def test_a_commit_that_cannot_be_written_is_not_acknowledged(clock):
    storages = {OFFSETS_TOPIC: lambda context: _Failing()}
    with EmbeddedBroker(clock=clock, storages=storages) as broker:
        broker.create_topic("words")
        answer = ask(broker.connect("test"), OffsetCommit("group", {WORDS: OffsetAndMetadata(5)}))

    assert answer.errors == {WORDS: ErrorCode.STORAGE_ERROR}


# --- long polling, by the clock ---------------------------------------------------------------


def test_a_fetch_waits_until_a_record_comes(broker, client):
    broker.create_topic("words", 1)
    client.send(-1, Fetch({WORDS: 0}, max_wait_ms=LONG_MS))
    assert client.poll(0) == []

    broker.append(WORDS, one(b"a"))

    [(_, answer)] = client.poll(0)
    assert fetched(answer) == [b"a"]


def test_one_request_wakes_a_fetch_with_all_it_appended(broker, client):
    broker.create_topic("words", 2)
    partitions = [TopicPartition("words", number) for number in (0, 1)]
    client.send(-1, Fetch(dict.fromkeys(partitions, 0), max_wait_ms=LONG_MS))

    ask(broker.connect("producer"), Produce({partition: [one(b"a")] for partition in partitions}))

    [(_, answer)] = client.poll(0)
    assert [fetched(answer, partition) for partition in partitions] == [[b"a"], [b"a"]]


def test_a_fetch_ends_empty_at_its_deadline(broker, client, clock):
    broker.create_topic("words", 1)
    client.send(-1, Fetch({WORDS: 0}, max_wait_ms=500))

    clock.advance(499)
    assert client.poll(0) == []
    clock.advance(1)
    [(_, answer)] = client.poll(0)

    assert fetched(answer, WORDS) == []


def test_a_fetch_of_a_session_is_answered_with_what_goes_beyond_it(broker, client):
    """Of thousands of partitions only those that have something to tell are in the answer."""
    broker.create_topic("words", 3)
    first, second, third = (TopicPartition("words", number) for number in range(3))
    begun = ask(client, Fetch({first: 0, second: 0, third: 0}, 0, session_epoch=0))
    ask(client, Produce({second: [one(b"a")]}))

    answer = ask(client, Fetch({}, session_id=begun.session_id, session_epoch=1))

    assert fetched(answer, second) == [b"a"]
    assert list(answer.partitions) == [second]


def test_a_waiting_fetch_learns_that_its_topic_is_gone(broker, client):
    broker.create_topic("words", 1)
    client.send(-1, Fetch({WORDS: 0}, max_wait_ms=LONG_MS))

    broker.delete_topic("words")

    [(_, answer)] = client.poll(0)
    assert answer.partitions[WORDS].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_clock_set_back_does_not_stretch_a_wait(broker, client, clock):
    broker.create_topic("words", 1)
    client.send(-1, Fetch({WORDS: 0}, max_wait_ms=500))

    clock.jump_to(5)
    clock.advance(500)

    assert len(client.poll(0)) == 1


def test_answers_to_a_closed_connection_are_dropped(broker, client):
    broker.create_topic("words", 1)
    client.send(-1, Fetch({WORDS: 0}, max_wait_ms=LONG_MS))
    client.close()

    broker.append(WORDS, one(b"a"))

    with pytest.raises(ClientClosedError, match="test"):
        client.poll(0)
    with pytest.raises(ClientClosedError):
        client.send(-1, Metadata())


def test_closing_the_broker_answers_what_waits(broker, client):
    broker.create_topic("words", 1)
    waiting = client.send(-1, Fetch({WORDS: 0}, max_wait_ms=LONG_MS))
    broker.close()
    later = client.send(-1, Metadata())

    answers = client.poll(0)

    assert [correlation_id for correlation_id, _ in answers] == [waiting, later]
    assert all(isinstance(answer, BrokerError) for _, answer in answers)
    with pytest.raises(BrokerError, match="closed"):
        broker.topics()
    broker.close()


def test_maintenance_runs_by_the_clock(clock):
    with EmbeddedBroker(clock=clock, maintenance_interval_ms=1000) as broker:
        client = broker.connect("test")
        broker.create_topic("words", 1, {"retention.ms": "100"})
        broker.append(WORDS, one(b"old"))
        clock.advance(999)
        client.poll(0)
        assert broker.start_offset(WORDS) == 0
        clock.advance(1)
        client.poll(0)
        assert broker.start_offset(WORDS) == 1


# --- groups -----------------------------------------------------------------------------------


def join(group_id="group", member_id="", session_timeout_ms=10_000, instance=None):
    return JoinGroup(
        group_id, member_id, "consumer", [("range", b"meta")], session_timeout_ms, 60_000, instance, "client"
    )


def test_offsets_and_members_of_other_processes_survive_a_restart(tmp_path, clock):
    with EmbeddedBroker(tmp_path, clock=clock) as broker:
        broker.create_topic("words")
        client = broker.connect("test")
        joined = ask(client, evolve(join(), client_host="/127.0.0.1"))
        who = {"generation_id": joined.generation_id, "member_id": joined.member_id}
        ask(client, SyncGroup("group", **who, assignments={joined.member_id: b"mine"}))
        for offset in range(50):
            ask(client, OffsetCommit("group", {WORDS: OffsetAndMetadata(offset)}, **who))

    clock.advance(3_600_000)
    with EmbeddedBroker(tmp_path, clock=clock) as broker:
        client = broker.connect("test")
        assert ask(client, OffsetFetch("group")).offsets == {WORDS: OffsetAndMetadata(49)}
        assert ask(client, Heartbeat("group", **who)).error is ErrorCode.NONE
        clock.advance(10_000)
        client.poll(0)
        assert ask(client, Heartbeat("group", **who)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_log_of_offsets_does_not_grow_with_commits(clock):
    with EmbeddedBroker(clock=clock) as broker:
        broker.create_topic("words")
        client = broker.connect("test")
        for offset in range(10_000):
            ask(client, OffsetCommit("group", {WORDS: OffsetAndMetadata(offset)}))
        clock.advance(300_000)
        for _ in range(10):
            # A pass over so many records takes some turns.
            client.poll(0)
            clock.advance(10)
        blocks = broker.read(TopicPartition(OFFSETS_TOPIC, 0), 0, 100_000)

    assert sum(map(len, blocks)) <= 2


# --- threads ----------------------------------------------------------------------------------


def in_thread(function):
    """Run a function in a thread; joining it raises what the function raised."""
    failures = []

    def run():
        try:
            function()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join_thread():
        thread.join(WATCHDOG_MS / 1_000)
        assert not thread.is_alive(), "a wakeup was lost"
        if failures:
            raise failures[0]

    return join_thread


def test_wakeup_ends_a_poll_of_another_thread_or_the_next_one():
    with EmbeddedBroker() as broker:
        client = broker.connect("test")
        finished = in_thread(lambda: client.poll(LONG_MS))
        client.wakeup()
        finished()

        client.wakeup()
        assert client.poll(LONG_MS) == []


def test_closing_the_broker_ends_a_poll_of_another_thread():
    broker = EmbeddedBroker()
    broker.create_topic("words", 1)
    client = broker.connect("test")
    client.send(-1, Fetch({WORDS: 0}, max_wait_ms=LONG_MS))
    answers = []
    finished = in_thread(lambda: answers.extend(client.poll(LONG_MS)))

    broker.close()
    finished()

    assert isinstance(answers[0][1], BrokerError)


def test_a_poll_drives_the_deadline_of_its_own_fetch():
    with EmbeddedBroker() as broker:
        broker.create_topic("words", 1)
        client = broker.connect("test")
        client.send(-1, Fetch({WORDS: 0}, max_wait_ms=20))

        [(_, answer)] = client.poll(LONG_MS)

    assert fetched(answer) == []


def test_a_waiting_poll_drives_deadlines_that_come_nearer():
    """The other connection never polls: its fetch ends because the sleeping one is nudged."""
    with EmbeddedBroker(settings={"group.min.session.timeout.ms": "1"}) as broker:
        broker.create_topic("words", 1)
        sleeper, silent = broker.connect("sleeper"), broker.connect("silent")
        sleeper.send(-1, join("slow", session_timeout_ms=100_000))
        sleeper.poll(0)
        finished = in_thread(lambda: sleeper.poll(LONG_MS))
        silent.send(-1, join("quick", session_timeout_ms=30))
        [(_, joined)] = silent.poll(0)
        silent.send(-1, SyncGroup("quick", joined.generation_id, joined.member_id))
        silent.poll(0)

        observer = broker.connect("observer")
        # The other member of the group waits for the rebalance that only the lost session can end.
        observer.send(-1, JoinGroup("quick", "", "consumer", [("range", b"")], LONG_MS, LONG_MS))
        answered = in_thread(lambda: observer.poll(LONG_MS))
        answered()
        members = ask(observer, DescribeGroup("quick")).members
        sleeper.wakeup()
        finished()

    assert len(members) == 1


def test_the_timers_pass_on_when_their_keeper_leaves():
    """The first poll to wait keeps the timers and goes first; the second one must take them over."""
    with EmbeddedBroker() as broker:
        broker.create_topic("words", 1)
        first, second = broker.connect("first"), broker.connect("second")
        finished_first = in_thread(lambda: first.poll(LONG_MS))
        second.send(-1, Fetch({WORDS: 0}, max_wait_ms=50))
        answers = []
        finished_second = in_thread(lambda: answers.extend(second.poll(LONG_MS)))
        first.wakeup()
        finished_first()
        finished_second()

    assert len(answers) == 1


@pytest.mark.parametrize("storage", ["array", "file"])
def test_many_threads_lose_nothing_and_keep_the_order(tmp_path, storage):
    """Each producer numbers its records; each consumer sees every producer's numbers ascend without a gap."""
    producers, count = 4, 300
    with EmbeddedBroker(tmp_path, storage=storage) as broker:
        broker.create_topic("words", 2)
        partitions = [TopicPartition("words", number) for number in (0, 1)]

        def produce(number):
            connection = broker.connect("producer")
            for index in range(count):
                partition = partitions[index % 2]
                answer = ask(connection, Produce({partition: [one(b"%d" % index, b"%d" % number)]}))
                assert answer.partitions[partition].error is ErrorCode.NONE

        def consume():
            connection = broker.connect("consumer")
            positions = dict.fromkeys(partitions, 0)
            seen = {}
            while sum(map(len, seen.values())) < producers * count:
                answer = ask(connection, Fetch(dict(positions), max_wait_ms=LONG_MS))
                for partition, found in answer.partitions.items():
                    for block in found.blocks:
                        assert block.offsets[0] == positions[partition]
                        positions[partition] = block.offsets[-1] + 1
                        for key, value in zip(block.keys, block.values, strict=True):
                            seen.setdefault((partition, key), []).append(int(value))
            assert all(numbers == list(range(p.partition, count, 2)) for (p, _), numbers in seen.items())

        finished = [in_thread(consume) for _ in range(3)]
        finished += [in_thread(lambda number=number: produce(number)) for number in range(producers)]
        for wait in finished:
            wait()


def test_blocks_pass_through_a_connection_without_a_copy():
    block_count, size = 1000, 1000
    keys, payloads = [b"%d" % number for number in range(size)], [b"x" * 100] * size
    with EmbeddedBroker() as broker:
        broker.create_topic("words", 1)
        producer, consumer = broker.connect("producer"), broker.connect("consumer")
        for _ in range(block_count):
            ask(producer, Produce({WORDS: [Block(keys, payloads, [0] * size)]}))
        position = 0
        while position < block_count * size:
            for block in ask(consumer, Fetch({WORDS: position})).partitions[WORDS].blocks:
                assert block.offsets[0] == position
                assert block.keys is keys
                assert block.values is payloads
                position += len(block)


@pytest.mark.parametrize("storage", ["array", "linked", "file"])
def test_an_empty_partition_begins_at_an_offset(tmp_path, storage):
    """What goes on with a log from elsewhere keeps its offsets; a partition with records is refused."""
    partition = TopicPartition("orders", 0)
    with EmbeddedBroker(tmp_path, storage=storage) as broker:
        broker.create_topic("orders", 1)
        broker.begin_at(partition, 1_000_000)
        assert (broker.start_offset(partition), broker.end_offset(partition)) == (1_000_000, 1_000_000)
        assert broker.append(partition, Block([None], [b"a"], [0])) == 1_000_000
        with pytest.raises(BrokerError, match="has records already"):
            broker.begin_at(partition, 2_000_000)
    if storage == "file":
        with EmbeddedBroker(tmp_path) as broker:
            assert [block.offsets[0] for block in broker.read(partition, 1_000_000)] == [1_000_000]


def test_a_commit_that_is_refused_is_not_told_to_anybody():
    """It would be, until the next restart."""
    full = []

    class Filling(ArrayStorage):
        def append(self, block):
            if full:
                raise OSError(28, "No space left on device")
            return super().append(block)

    partition = TopicPartition("words", 0)
    with EmbeddedBroker(storages={"__consumer_offsets": lambda _: Filling()}) as broker:
        broker.create_topic("words")
        with Consumer(broker, "readers") as consumer:
            consumer.assign([partition])
            consumer.commit_sync({partition: 1})
            full.append(True)
            # It is tried until the time is over, which may be before the first answer.
            until_raised(BrokerError, "STORAGE_ERROR", lambda: consumer.commit_sync({partition: 2}, timeout_ms=100))
            assert consumer.committed([partition])[partition].offset == 1
            full.clear()
            consumer.commit_sync({partition: 3})
            assert consumer.committed([partition])[partition].offset == 3
