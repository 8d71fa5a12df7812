"""The parallel consumer, with real threads: order per partition, retries, dead letters, rebalances."""

import re
import threading
from collections import defaultdict

import pytest

from streams.broker import EmbeddedBroker
from streams.clients import Consumer, ParallelConsumer, Producer
from streams.core.blocks.records import TopicPartition
from streams.core.dead_letters import EXCEPTION_HEADER, OFFSET_HEADER, PARTITION_HEADER, TOPIC_HEADER
from streams.core.errors import ConfigError, ProcessingError
from streams.core.topic import Topic
from tests.waiting import WATCHDOG_MS

jobs = Topic("jobs", key=str, value=int)
PARTITIONS = 4
TOTAL = 200


@pytest.fixture
def broker():
    with EmbeddedBroker() as broker:
        broker.create_topic("jobs", partitions=PARTITIONS)
        broker.create_topic("dead", partitions=1)
        with Producer(broker, linger_ms=1) as producer:
            for n in range(TOTAL):
                producer.send(jobs, n, key=str(n), partition=n % PARTITIONS, headers=[("n", b"%d" % n)])
        yield broker


@pytest.fixture
def make(broker):
    """Make parallel consumers of the jobs."""

    def make(handler=None, **settings):
        settings = {"auto_offset_reset": "earliest", "retry_backoff_ms": 1} | settings
        return ParallelConsumer(broker, "workers", jobs, handler, **settings)

    return make


class Seen:
    """Values by partition in the order in which they were handled; stops the consumer after so many."""

    def __init__(self, total=TOTAL):
        self.values = defaultdict(list)
        self.total = total
        self.consumer = None
        self.lock = threading.Lock()

    def note(self, record):
        with self.lock:
            self.values[record.partition].append(record.value)
            if sum(map(len, self.values.values())) == self.total:
                self.consumer.stop()


def committed(broker):
    consumer = Consumer(broker, "workers")
    return {p.partition: found.offset for p, found in consumer.committed(partitions()).items()}


def partitions():
    return [TopicPartition("jobs", number) for number in range(PARTITIONS)]


EXPECTED = {number: list(range(number, TOTAL, PARTITIONS)) for number in range(PARTITIONS)}
ALL_DONE = dict.fromkeys(range(PARTITIONS), TOTAL // PARTITIONS)


@pytest.mark.parametrize("max_concurrency", [1, 3, 8])
def test_each_partition_keeps_its_order_and_all_is_committed(broker, make, max_concurrency):
    seen = Seen()
    seen.consumer = make(seen.note, max_concurrency=max_concurrency, max_poll_records=17, max_buffered=20)

    seen.consumer.run()

    assert seen.values == EXPECTED
    assert committed(broker) == ALL_DONE
    assert seen.consumer.handled == TOTAL


def test_partitions_are_handled_at_the_same_time(make):
    """Every handler waits for the others: one worker alone would wait for ever."""
    barrier = threading.Barrier(PARTITIONS, timeout=300)
    consumer = make(lambda record: (barrier.wait(), consumer.stop()), max_concurrency=PARTITIONS)

    consumer.run()

    assert consumer.handled == PARTITIONS


def test_batches_are_of_one_partition_and_of_the_size_asked_for(make):
    seen, sizes = Seen(), []

    def handle(records):
        assert len({record.partition for record in records}) == 1
        sizes.append(len(records))
        for record in records:
            seen.note(record)

    seen.consumer = make(batch_handler=handle, batch_size=7)
    seen.consumer.run()

    assert seen.values == EXPECTED
    assert max(sizes) == 7


def test_retries_keep_the_order_of_the_partition(broker, make):
    seen, failed = Seen(), set()

    def handle(record):
        if record.value % 10 == 3 and (record.value, len(failed) % 2) not in failed:
            failed.add((record.value, len(failed) % 2))
            raise RuntimeError("try again")
        seen.note(record)

    seen.consumer = make(handle, max_attempts=100)
    seen.consumer.run()

    assert seen.values == EXPECTED
    assert seen.consumer.failed_attempts == len(failed) > 0
    assert committed(broker) == ALL_DONE


def test_given_up_records_go_to_the_dead_letter_topic(broker, make):
    seen = Seen(TOTAL - 2)

    def handle(record):
        if record.value in (5, 42):
            raise KeyError(record.value)
        seen.note(record)

    seen.consumer = make(handle, max_attempts=3, dead_letter_topic="dead")
    seen.consumer.run()

    letters = [row for block in broker.read(TopicPartition("dead", 0), 0) for row in block.rows()]
    found = {int(dict(headers)["n"]): dict(headers) for _, _, _, _, headers in letters}
    assert sorted(found) == [5, 42]
    assert found[42][EXCEPTION_HEADER] == b"builtins.KeyError"
    assert (found[42][TOPIC_HEADER], found[42][PARTITION_HEADER], found[42][OFFSET_HEADER]) == (b"jobs", b"2", b"10")
    assert seen.consumer.failed_attempts == 6
    assert [value for values in seen.values.values() for value in values if value in (5, 42)] == []


def test_only_the_record_at_fault_of_a_batch_is_given_up(broker, make):
    done, consumer = set(), None

    def handle(records):
        if any(record.value == 42 for record in records):
            raise ValueError("bad")
        done.update(record.value for record in records)
        if len(done) == TOTAL - 1:
            consumer.stop()

    consumer = make(batch_handler=handle, batch_size=10, max_attempts=2, dead_letter_topic="dead")
    consumer.run()

    assert done == set(range(TOTAL)) - {42}
    assert consumer.dead_letters == 1


def test_bytes_that_cannot_be_read_are_given_up_at_once(broker, make):
    with Producer(broker) as producer:
        producer.send("jobs", b"no number", key=b"a", partition=0)
    seen = Seen(TOTAL)
    seen.consumer = make(seen.note, dead_letter_topic="dead")

    def is_there():
        return broker.end_offset(TopicPartition("dead", 0)) == 1

    worker = threading.Thread(target=seen.consumer.run)
    worker.start()
    worker.join(WATCHDOG_MS / 1_000)

    assert not worker.is_alive()
    assert seen.values == EXPECTED
    assert seen.consumer.failed_attempts in (0, 1)
    assert is_there() == (seen.consumer.failed_attempts == 1)


def test_without_dead_letter_topic_the_run_ends_before_the_record(broker, make):
    def handle(record):
        if record.value == 42:
            raise ValueError("bad")

    with pytest.raises(ProcessingError, match="jobs-2 at 10") as error:
        make(handle, max_attempts=2).run()

    assert (error.value.topic, error.value.partition, error.value.offset) == ("jobs", 2, 10)
    assert isinstance(error.value.__cause__, ValueError)
    assert committed(broker)[2] == 10


def test_members_share_and_nothing_is_handled_twice_when_one_leaves(broker, make):
    seen, lock = defaultdict(int), threading.Lock()
    consumers = []

    def handler(limit):
        count = [0]

        def handle(record):
            with lock:
                seen[record.value] += 1
                count[0] += 1
                if count[0] == limit:
                    consumers[0].stop()
                if len(seen) == TOTAL:
                    for consumer in consumers:
                        consumer.stop()

        return handle

    consumers += [make(handler(limit), max_poll_records=5, heartbeat_interval_ms=20) for limit in (30, None)]
    threads = [threading.Thread(target=consumer.run) for consumer in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WATCHDOG_MS / 1_000)
        assert not thread.is_alive()

    assert len(seen) == TOTAL
    assert set(seen.values()) == {1}


def test_settings_that_do_not_fit_are_refused(make):
    with pytest.raises(ConfigError, match="one handler"):
        make()
    with pytest.raises(ConfigError, match="at least 1"):
        make(print, max_concurrency=0)


@pytest.mark.parametrize("topics", [jobs, "jobs", ["other", "jobs"], re.compile("j.*")])
def test_dead_letters_to_a_topic_that_is_read_are_refused(broker, topics):
    """They would be read, fail and be sent there again, for ever."""
    with pytest.raises(ConfigError, match="dead_letter_topic='jobs' is one of the topics that are read"):
        ParallelConsumer(broker, "workers", topics, print, dead_letter_topic="jobs")


def test_the_size_of_batches_is_for_handlers_of_batches(make):
    with pytest.raises(ConfigError, match=r"batch_size is for batch_handler=: a handler= gets one record"):
        make(print, batch_size=3)


def test_no_topics_are_refused_before_anything_runs(broker):
    with pytest.raises(ConfigError, match="got no topic"):
        ParallelConsumer(broker, "workers", [], print)
