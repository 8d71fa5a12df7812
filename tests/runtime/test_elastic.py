"""Applications that change while they run: members, threads, copies, partitions, failures."""

import re
import threading

import pytest

from streams import (
    Admin,
    Consumer,
    EmbeddedBroker,
    ExceptionResponse,
    Producer,
    State,
    Streams,
    StreamsBuilder,
    Topic,
    TopicPartition,
    TopologyError,
)
from streams.core.blocks.partitioning import partition_for
from streams.core.errors import ProcessingError
from tests import waiting

words = Topic("words", key=str, value=str)
more = Topic("more-words", key=str, value=str)
counts = Topic("counts", key=str, value=int)
FAST = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10, "metadata_max_age_ms": 20}
KEYS = [f"w{number}" for number in range(40)]


def counting(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("counts-store").to_stream().to(counts)


def passing(builder: StreamsBuilder) -> None:
    builder.stream(words).map_values(len).to(counts)


class Cluster:
    """A broker, something that writes words, and something that waits for counts."""

    def __init__(self, broker, partitions):
        self.broker = broker
        self.written = {}
        self.latest = {}
        broker.create_topic("words", partitions)
        broker.create_topic("counts", 1)
        self.consumer = Consumer(broker, client_id="watch", auto_offset_reset="earliest", fetch_max_wait_ms=50)
        self.consumer.assign([TopicPartition("counts", 0)], [counts])

    def write(self, keys=KEYS, topic=words):
        with Producer(self.broker, client_id="writer", metadata_max_age_ms=0) as producer:
            for key in keys:
                producer.send(topic, key, key=key, timestamp_ms=len(self.written))
                self.written[key] = self.written.get(key, 0) + 1

    def until_counted(self):
        self.until(lambda: self.latest == self.written)

    def until(self, holds):
        waiting.until(holds, self.read, lambda: f"{self.latest} of {self.written}")

    def read(self):
        self.latest.update((record.key, record.value) for record in self.consumer.poll(50))


@pytest.fixture
def cluster():
    with EmbeddedBroker() as broker:
        made = Cluster(broker, 2)
        yield made
        made.consumer.close()


def app(cluster, topology=counting, **settings):
    return Streams(topology, application_id="app", broker=cluster.broker, **(FAST | settings))


def both_run(one, two):
    return lambda: bool(one.tasks()) and bool(two.tasks()) and one.state is two.state is State.RUNNING


def test_standby_copy_takes_over_without_a_full_restore(cluster):
    """The copy has followed the changelog, so only what came since is read."""
    restored = []
    one = app(cluster, num_standby_replicas=1)
    two = app(cluster, num_standby_replicas=1, on_restore=lambda task, store, done, total: restored.append(total))
    with one, two:
        cluster.until(both_run(one, two))
        cluster.until(lambda: bool(one.copies()) and bool(two.copies()))
        cluster.write()
        cluster.until_counted()
        restored.clear()
        [moved] = one.tasks()
        changelog = TopicPartition("app-counts-store-changelog", moved.partition)
        keys = sum(partition_for(key.encode(), 2) == moved.partition for key in KEYS)
        cluster.until(lambda: cluster.broker.end_offset(changelog) >= keys)
        # All that the copy can know before the owner leaves is read at the latest in its next poll.
        cluster.until(lambda: two.instance.ask(lambda thread: thread.restorer.lag(moved)) == [0])
        before = two.metrics.get("standby-takeover-total")
        one.close()
        cluster.until(lambda: len(two.tasks()) == 2)

        assert sum(restored) < keys
        assert two.metrics.get("standby-takeover-total") == before + 1
        cluster.write()
        cluster.until_counted()


@pytest.mark.slow
def test_new_partitions_join_the_groups_that_have_their_keys(cluster):
    """From 2 to 4 partitions: the keys that move to partition 2 were counted in group 0."""
    with app(cluster) as streams:
        cluster.write()
        cluster.until_counted()
        with Admin(cluster.broker) as admin:
            admin.create_partitions({"words": 4})
        cluster.until(lambda: streams.tasks() and _inputs(streams) == 4)
        cluster.write()
        cluster.until_counted()

        moved = {partition_for(key.encode(), 4) for key in KEYS}
        assert moved == {0, 1, 2, 3}
        assert cluster.broker.topics()["app-counts-store-changelog"] == 2
    # A later instance finds the same groups.
    with app(cluster) as streams:
        cluster.write()
        cluster.until_counted()
        assert len(streams.tasks()) == 2


def _inputs(streams):
    return sum(streams.instance.ask(lambda thread: sum(len(task.inputs) for task in thread.tasks.values())))


def test_partitions_that_would_take_keys_from_their_state_are_refused(cluster):
    streams = app(cluster)
    with pytest.raises(TopologyError, match=r"state in 2 partition groups, but 'words' has 3 partitions"), streams:
        cluster.write()
        cluster.until_counted()
        with Admin(cluster.broker) as admin:
            admin.create_partitions({"words": 3})
        streams.wait(waiting.WATCHDOG_MS)


def test_topics_that_share_state_grow_one_after_the_other(cluster):
    """From 2 to 4 partitions each: their state stays in 2 groups, so that they need not have equal counts meanwhile."""
    cluster.broker.create_topic("more-words", 2)

    def topology(builder: StreamsBuilder) -> None:
        both = builder.stream(words).merge(builder.stream(more))
        both.group_by_key().count("counts-store").to_stream().to(counts)

    with app(cluster, topology) as streams, Admin(cluster.broker) as admin:
        for inputs, name in ((6, "words"), (8, "more-words")):
            cluster.write()
            cluster.write(topic=more)
            cluster.until_counted()
            admin.create_partitions({name: 4})
            cluster.until(lambda inputs=inputs: streams.tasks() and _inputs(streams) == inputs)
        cluster.write()
        cluster.write(topic=more)
        cluster.until_counted()


def test_a_topic_that_matches_later_with_another_count_is_refused(cluster):
    def topology(builder: StreamsBuilder) -> None:
        read = builder.stream(re.compile("logs-.*"), key=str, value=str)
        read.group_by_key().count("counts-store").to_stream().to(counts)

    cluster.broker.create_topic("logs-a", 2)
    streams = app(cluster, topology)
    with pytest.raises(TopologyError, match=r"'logs-a' has 2, 'logs-b' has 3 partitions .* 'counts-store'"), streams:
        cluster.until(lambda: len(streams.tasks()) == 2)
        cluster.broker.create_topic("logs-b", 3)
        streams.wait(waiting.WATCHDOG_MS)


def test_tasks_without_state_grow_with_the_partitions(cluster):
    with app(cluster, passing) as streams:
        cluster.write()
        cluster.until(lambda: len(cluster.latest) == len(KEYS))
        with Admin(cluster.broker) as admin:
            admin.create_partitions({"words": 5})
        cluster.until(lambda: len(streams.tasks()) == 5)
        cluster.latest.clear()
        cluster.write()
        cluster.until(lambda: len(cluster.latest) == len(KEYS))


def test_threads_come_and_go(cluster):
    with app(cluster) as streams:
        cluster.until(lambda: len(streams.tasks()) == 2)
        name = streams.add_thread()
        spread = lambda: [len(threads) for threads in streams.instance.ask(lambda thread: list(thread.tasks))]  # noqa: E731
        cluster.until(lambda: spread() == [1, 1])
        cluster.write()
        cluster.until_counted()

        assert streams.remove_thread() == name
        cluster.until(lambda: spread() == [2])
        cluster.write()
        cluster.until_counted()


def test_paused_application_keeps_its_tasks_and_processes_nothing(cluster):
    with app(cluster) as streams:
        cluster.until(lambda: len(streams.tasks()) == 2)
        streams.pause()
        cluster.write()
        # Everything is read, and waits.
        cluster.until(lambda: _buffered(streams) == len(KEYS))
        assert cluster.latest == {}

        streams.resume()
        cluster.until_counted()


def _buffered(streams):
    return sum(streams.instance.ask(lambda thread: sum(task.queues.size for task in thread.tasks.values())))


def failing_once(fails):
    def topology(builder: StreamsBuilder) -> None:
        def check(word: str) -> str:
            if word == KEYS[7] and fails.pop():
                raise RuntimeError("the seventh word")
            return word

        builder.stream(words).map_values(check).group_by_key().count("counts-store").to_stream().to(counts)

    return topology


def test_failed_thread_is_replaced_and_its_tasks_begin_at_their_last_commit(cluster):
    asked = []

    def handler(error):
        asked.append(error)
        return ExceptionResponse.REPLACE_THREAD

    with app(cluster, failing_once([False, True, True]), on_exception=handler) as streams:
        cluster.write()
        cluster.until(lambda: KEYS[7] in cluster.latest)

        assert [error.node for error in asked] == ["KSTREAM-MAPVALUES-0000000001"] * 2
        assert streams.failure is None
        cluster.until(lambda: cluster.latest.keys() == cluster.written.keys())


def failing(builder: StreamsBuilder) -> None:
    def refuse(word: str) -> str:
        raise RuntimeError("not here")

    builder.stream(words).map_values(refuse).group_by_key().count("counts-store").to_stream().to(counts)


def test_one_instance_can_end_them_all(cluster):
    ended = threading.Event()
    one = app(cluster)
    two = app(cluster, failing, on_exception=lambda error: ExceptionResponse.SHUTDOWN_APPLICATION)
    one.instance.life.listener = lambda new, old: ended.set() if new is State.PENDING_SHUTDOWN else None
    with pytest.raises(ProcessingError, match="not here"), one, two:
        cluster.until(both_run(one, two))
        while not ended.is_set() and two.failure is None:
            cluster.write()
            cluster.consumer.poll(20)
        assert one.wait(waiting.WATCHDOG_MS)
        # It tells the others first, and may end after them.
        two.wait(waiting.WATCHDOG_MS)
    assert one.failure is None


def test_state_is_deleted_on_request_only(cluster, tmp_path):
    with app(cluster, state_dir=tmp_path) as streams:
        cluster.write()
        cluster.until_counted()
    assert list((tmp_path / "app").glob("0_*"))

    streams.clean_up()
    assert not list((tmp_path / "app").glob("0_*"))

    with app(cluster, state_dir=tmp_path):
        cluster.write()
        cluster.until_counted()


def test_pattern_takes_in_topics_that_are_made_later(cluster):
    """No topic at the start, then two; their partitions are read by tasks of the same sub-topology."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(re.compile("logs-.*"), key=str, value=str).map_values(len).to(counts)

    with app(cluster, topology) as streams, Producer(cluster.broker) as producer:
        for index, name in enumerate(("logs-a", "logs-b"), start=1):
            cluster.broker.create_topic(name, 2)
            producer.send(Topic(name, key=str, value=str), "x" * index, key=name, timestamp_ms=0)
            producer.flush()
            cluster.until(lambda name=name: name in cluster.latest)
        assert cluster.latest == {"logs-a": 1, "logs-b": 2}
        assert len(streams.tasks()) == 2


def test_pattern_before_a_repartition_takes_in_topics_that_are_made_later(cluster, caplog):
    """Started with none: the repartition topic has the partitions of the first topic that comes."""

    def topology(builder: StreamsBuilder) -> None:
        read = builder.stream(re.compile("logs-.*"), key=str, value=str)
        read.group_by(lambda _, word: word).count("words").to_stream().to(counts)

    with app(cluster, topology) as streams, Producer(cluster.broker) as producer:
        assert streams.tasks() == []
        for index, name in enumerate(("logs-a", "logs-b"), start=1):
            cluster.broker.create_topic(name, 3)
            for _ in range(index):
                producer.send(Topic(name, key=str, value=str), f"word-{name}", key="k", timestamp_ms=0)
            producer.flush()
            cluster.until(lambda name=name, index=index: cluster.latest.get(f"word-{name}") == index)
        assert len(streams.tasks()) == 6

    told = [record.getMessage() for record in caplog.records if "no topic matches" in record.getMessage()]
    assert len(told) == 1
    assert "pattern 'logs-.*'" in told[0]
    assert "words-repartition will be created then" in told[0]


def test_pattern_without_topics_holds_up_no_other_input(cluster):
    """A foreign-key join: what the other table has is there when the first topic of the pattern comes."""

    def topology(builder: StreamsBuilder) -> None:
        left = builder.stream(re.compile("left-.*"), key=str, value=str).to_table("left")
        right = builder.table(Topic("right", key=str, value=int, partitions=2), name="right")
        left.join(right, lambda _, number: number, foreign_key=lambda _, value: value).to_stream().to(counts)

    with app(cluster, topology), Producer(cluster.broker) as producer:
        producer.send(Topic("right", key=str, value=int), 7, key="r", timestamp_ms=0)
        producer.flush()
        cluster.broker.create_topic("left-a", 2)
        producer.send(Topic("left-a", key=str, value=str), "r", key="l", timestamp_ms=0)
        producer.flush()
        cluster.until(lambda: cluster.latest.get("l") == 7)
