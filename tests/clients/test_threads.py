"""Many threads on one broker, in real time: nothing is lost, order is kept, nobody hangs."""

import threading
from collections import defaultdict

import pytest

from streams.broker import EmbeddedBroker
from streams.clients import Consumer, Producer, RebalanceListener
from streams.core.errors import RebalanceInProgressError, StreamsError
from streams.core.topic import Topic
from streams.group import CooperativeStickyAssignor
from tests.waiting import WATCHDOG_MS

numbers = Topic("numbers", key=str, value=int)


@pytest.fixture
def broker():
    with EmbeddedBroker() as broker:
        broker.create_topic("numbers", partitions=6)
        yield broker


def run_all(*targets):
    """Run functions in threads; the first exception is raised here."""
    errors = []

    def guarded(target):
        try:
            target()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WATCHDOG_MS / 1_000)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("linger_ms", [0, 2])
def test_threads_share_a_producer_and_each_keeps_its_order(broker, linger_ms):
    with Producer(broker, linger_ms=linger_ms) as producer:

        def send(name):
            deliveries = [producer.send(numbers, n, key=name) for n in range(500)]
            assert [d.result(WATCHDOG_MS).offset for d in deliveries] == sorted(d.result().offset for d in deliveries)

        run_all(*(lambda name=name: send(name) for name in "abcdefgh"))
        producer.flush()

    read = defaultdict(list)
    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign(consumer.partitions_for("numbers"), [numbers])
        while sum(map(len, read.values())) < 8 * 500:
            for record in consumer.poll(1_000):
                read[record.key].append(record.value)
    assert read == {name: list(range(500)) for name in "abcdefgh"}


def test_lingering_record_is_sent_by_the_background(broker):
    done = threading.Event()
    with Producer(broker, linger_ms=5) as producer:
        producer.send(numbers, 1, key="a").add_done_callback(lambda _: done.set())

        assert done.wait(WATCHDOG_MS / 1_000)


def test_group_of_threads_reads_everything_once_while_members_come_and_go(broker):
    total = 6_000
    seen = defaultdict(int)
    lock = threading.Lock()
    is_complete = threading.Event()

    class Committing(RebalanceListener):
        def __init__(self, consumer):
            self.consumer = consumer
            self.has_committed = False

        def on_partitions_revoked(self, partitions):
            if not self.has_committed:
                self.consumer.commit_sync()

    def commit(consumer, take):
        """While the group is being settled nothing can be committed: poll, and try again."""
        while True:
            try:
                consumer.commit_sync()
                return
            except RebalanceInProgressError:
                take(consumer.poll(50))

    def take(records):
        with lock:
            for record in records:
                seen[record.value] += 1
            if len(seen) == total:
                is_complete.set()

    def produce():
        with Producer(broker, linger_ms=1) as producer:
            for n in range(total):
                producer.send(numbers, n, key=str(n % 97))

    def consume(limit=None):
        consumer = Consumer(
            broker,
            "g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=20,
            assignors=[CooperativeStickyAssignor()],
            max_poll_records=50,
        )
        listener = Committing(consumer)
        with consumer:
            consumer.subscribe([numbers], listener)
            count = 0
            while not is_complete.is_set() and (limit is None or count < limit):
                records = consumer.poll(50)
                count += len(records)
                take(records)
            commit(consumer, take)
            listener.has_committed = True

    run_all(produce, consume, consume, lambda: consume(500), lambda: consume(500))

    assert len(seen) == total
    assert set(seen.values()) == {1}


def test_waiting_poll_returns_as_soon_as_something_is_written(broker):
    consumer = Consumer(broker, fetch_max_wait_ms=60_000, auto_offset_reset="earliest")
    consumer.assign(consumer.partitions_for("numbers"), [numbers])
    assert consumer.poll() == []

    def write():
        with Producer(broker) as producer:
            producer.send(numbers, 1, key="a")

    records = []
    run_all(lambda: records.extend(consumer.poll(WATCHDOG_MS)), write)

    assert [record.value for record in records] == [1]
    consumer.close()


@pytest.mark.parametrize("has_heartbeat", [False, True])
def test_second_thread_in_a_consumer_is_refused(broker, has_heartbeat):
    """Two threads that polled one consumer got the same records."""
    is_polling, refused = threading.Event(), []

    class Waiting(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            is_polling.set()
            assert is_refused.wait(WATCHDOG_MS / 1_000)

    is_refused = threading.Event()
    with Consumer(broker, "readers", background_heartbeat=has_heartbeat) as consumer:
        consumer.subscribe([numbers], Waiting())

        def intrude():
            assert is_polling.wait(WATCHDOG_MS / 1_000)
            for method in (consumer.poll, consumer.commit_sync, lambda: consumer.read_ahead(0)):
                with pytest.raises(StreamsError, match="two threads use one consumer at once") as error:
                    method()
                refused.append(error.value)
            is_refused.set()

        run_all(lambda: consumer.poll(100), intrude)
        consumer.poll(0)

    assert len(refused) == 3


def test_flush_looks_at_unfinished_batches_under_the_lock(broker):
    """Other threads add and finish batches, and a dict must not change while it is iterated."""

    class Watched(dict[int, int]):
        def __iter__(self):
            is_locked.append(driver._lock._is_owned())
            return super().__iter__()

    is_locked: list[bool] = []
    with Producer(broker, linger_ms=600_000) as producer:
        driver = producer._driver
        driver._accumulator._unfinished = Watched(driver._accumulator._unfinished)
        producer.send("numbers", b"v")
        producer.flush()

    assert is_locked
    assert all(is_locked)
