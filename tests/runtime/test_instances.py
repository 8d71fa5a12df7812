"""Applications on the embedded broker: threads, instances, state, clean ends."""

import os
import signal
import subprocess
import threading
from datetime import timedelta
from socket import create_connection
from urllib.request import urlopen

import pytest

from streams import (
    ConfigError,
    EmbeddedBroker,
    ProcessingError,
    Processor,
    Producer,
    State,
    StateLockedError,
    Streams,
    StreamsBuilder,
    Topic,
    TopicPartition,
    TopologyError,
    UnknownTopicError,
    key_value_store,
)
from tests import programs, waiting
from tests.ports import free_ports

words = Topic("words", key=str, value=str, partitions=4)
counts = Topic("counts", key=str, value=int, partitions=4)
FAST = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10}


def topology(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by(lambda _, word: word).count("counts-store").to_stream().to(counts)


def written(broker, topic=counts):
    """Return all records of a topic as (key, value)."""
    result = []
    for number in range(broker.topics().get(topic.name, 0)):
        for block in broker.read(TopicPartition(topic.name, number), 0, 1_000_000):
            keys, values = topic.key_serde.deserialize_all(block.keys), topic.value_serde.deserialize_all(block.values)
            result += zip(keys, values, strict=True)
    return result


class Watch:
    """Waits for what other threads write: the broker's long poll does the waiting."""

    def __init__(self, broker, topic=counts):
        from streams import Consumer

        self.consumer = Consumer(broker, client_id="watch", auto_offset_reset="earliest", fetch_max_wait_ms=50)
        self.consumer.assign([TopicPartition(topic.name, n) for n in range(broker.topics()[topic.name])], [topic])
        self.seen = []

    def until(self, holds):
        self.read()
        waiting.until(lambda: holds(self.seen), self.read, lambda: self.seen[-5:])
        return self.seen

    def read(self):
        self.seen += [(record.key, record.value) for record in self.consumer.poll(50)]


def produce(broker, number, start=0):
    with Producer(broker, client_id=f"producer-{start}") as producer:
        for index in range(start, start + number):
            producer.send(words, f"w{index % 10}", key=f"k{index}", timestamp_ms=index)


def final(seen):
    return dict(seen)


def test_records_of_producers_in_other_threads_are_counted_while_it_runs():
    with EmbeddedBroker() as broker:
        streams = Streams(topology, application_id="app", broker=broker, num_stream_threads=2, **FAST)
        with streams:
            # Else the first thread may count all before the second one joins, for which the group rebalances.
            waiting.until(lambda: 0 not in streams.instance.ask(lambda thread: len(thread.tasks) * thread.is_ready))
            waiting.until(lambda: streams.state is State.RUNNING)
            writers = [threading.Thread(target=produce, args=(broker, 500, start)) for start in (0, 500)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            seen = Watch(broker).until(lambda seen: len(seen) == 1000)

            assert final(seen) == {f"w{n}": 100 for n in range(10)}
            assert streams.state is State.RUNNING
            assert streams.store("counts-store").get("w3") == (100, 993)
            assert streams.store("counts-store").approximate_num_entries() == 10
        assert streams.state is State.NOT_RUNNING


def test_second_instance_takes_its_share_and_gives_it_back_without_loss_or_repetition():
    """Tasks move with a commit: orderly rebalances process nothing twice."""
    with EmbeddedBroker() as broker:
        first = Streams(topology, application_id="app", broker=broker, **FAST)
        with first:
            produce(broker, 300)
            watch = Watch(broker)
            watch.until(lambda seen: len(seen) == 300)
            second = Streams(topology, application_id="app", broker=broker, **FAST)
            with second:
                shares = Shares(first, second)
                shares.until_even()
                assert set(shares.last[0]) & set(shares.last[1]) == set()
                assert len(shares.last[0]) + len(shares.last[1]) == 8
                produce(broker, 300, 300)
                watch.until(lambda seen: len(seen) == 600)
            produce(broker, 300, 600)
            seen = watch.until(lambda seen: len(seen) == 900)

        assert final(seen) == {f"w{n}": 90 for n in range(10)}
        assert sorted(count for word, count in seen if word == "w0") == list(range(1, 91))


class Shares:
    """Tasks of two instances, asked again and again until both have half."""

    def __init__(self, *instances):
        self.instances = instances
        self.last = []

    def until_even(self):
        waiting.until(self.is_even, seen=lambda: self.last)

    def is_even(self):
        self.last = [instance.tasks() for instance in self.instances]
        return [len(tasks) for tasks in self.last] == [4, 4]


def test_a_rolling_restart_is_no_group_that_rebalances_again_and_again(caplog):
    def until_all_work():
        waiting.until(
            lambda: all(each.state is State.RUNNING and each.tasks() for each in instances),
            lambda: threading.Event().wait(0.005),
        )

    with EmbeddedBroker() as broker:
        broker.create_topic(words.name, words.partitions)
        produce(broker, 30)
        instances = [Streams(topology, application_id="app", broker=broker, **FAST) for _ in range(3)]
        for instance in instances:
            instance.start()
        for number, old in enumerate(list(instances)):
            until_all_work()
            old.close()
            instances[number] = Streams(topology, application_id="app", broker=broker, **FAST)
            instances[number].start()
        until_all_work()
        for instance in instances:
            instance.close()

    assert "again and again" not in caplog.text


def test_state_is_restored_from_the_changelog_when_memory_is_gone():
    restored = []
    with EmbeddedBroker() as broker:
        with Streams(topology, application_id="app", broker=broker, **FAST):
            produce(broker, 100)
            watch = Watch(broker)
            watch.until(lambda seen: len(seen) == 100)
        again = Streams(
            topology, application_id="app", broker=broker, on_restore=lambda *found: restored.append(found), **FAST
        )
        with again:
            produce(broker, 100, 100)
            seen = watch.until(lambda seen: len(seen) == 200)

    assert final(seen) == {f"w{n}": 20 for n in range(10)}
    assert restored


def test_state_directory_saves_the_restore_and_refuses_a_second_user(tmp_path):
    restored = []
    settings = FAST | {"state_dir": str(tmp_path), "default_store": "rocksdb"}
    with EmbeddedBroker() as broker:
        with Streams(topology, application_id="app", broker=broker, **settings):
            with pytest.raises(StateLockedError, match="in use"):
                Streams(topology, application_id="app", broker=broker, **settings).start()
            produce(broker, 100)
            watch = Watch(broker)
            watch.until(lambda seen: len(seen) == 100)
        again = Streams(
            topology, application_id="app", broker=broker, on_restore=lambda *found: restored.append(found), **settings
        )
        with again:
            produce(broker, 100, 100)
            seen = watch.until(lambda seen: len(seen) == 200)

    assert final(seen) == {f"w{n}": 20 for n in range(10)}
    assert restored == []


def test_only_state_that_was_not_written_for_the_maximum_age_is_deleted_at_the_start(tmp_path):
    """Whatever is older than the tombstones of a changelog may have rows that are deleted (KIP-1259)."""
    restored = []
    settings = FAST | {"state_dir": str(tmp_path), "default_store": "rocksdb"}
    with EmbeddedBroker() as broker:
        with Streams(topology, application_id="app", broker=broker, **settings):
            produce(broker, 100)
            Watch(broker).until(lambda seen: len(seen) == 100)
        old = tmp_path / "app" / "1_2"
        for path in (old, *old.rglob("*")):
            os.utime(path, (1_000, 1_000))
        again = Streams(
            topology,
            application_id="app",
            broker=broker,
            on_restore=lambda *found: restored.append(found[0]),
            state_cleanup_dir_max_age_ms=timedelta(days=365),
            **settings,
        )
        with again:
            produce(broker, 100, 100)
            seen = Watch(broker).until(lambda seen: len(seen) == 200)

    assert final(seen) == {f"w{n}": 20 for n in range(10)}
    assert {partition.partition for partition in restored} == {2}


def test_state_of_a_broker_that_is_gone_is_not_counted_again(tmp_path):
    """The folder stays, the broker's topics are new: the stores claim more than the changelog has."""
    settings = FAST | {"state_dir": str(tmp_path), "default_store": "rocksdb"}
    for _ in range(2):
        with EmbeddedBroker() as broker, Streams(topology, application_id="app", broker=broker, **settings):
            produce(broker, 100)
            seen = Watch(broker).until(lambda seen: len(seen) == 100)

        assert final(seen) == {f"w{n}": 10 for n in range(10)}


def test_failing_user_code_ends_the_application_with_node_and_place():
    def fails(builder: StreamsBuilder) -> None:
        builder.stream(words).map_values(lambda word: 1 // (word != "bad"), name="divide").to(counts)

    with EmbeddedBroker() as broker:
        streams = Streams(fails, application_id="app", broker=broker, **FAST)
        streams.start()
        with Producer(broker) as producer:
            producer.send(words, "good", key="a", timestamp_ms=0)
            producer.send(words, "bad", key="a", timestamp_ms=1)
        with pytest.raises(ProcessingError, match="ZeroDivisionError") as failure:
            streams.wait(waiting.WATCHDOG_MS)
        with pytest.raises(ProcessingError) as again:
            streams.close()

    assert failure.value.node == "divide"
    assert (failure.value.topic, failure.value.offset) == ("words", 1)
    assert again.value is failure.value
    assert streams.state is State.ERROR


def test_inputs_that_are_not_copartitioned_are_refused_by_name():
    two, three = Topic("two", key=str, value=str, partitions=2), Topic("three", key=str, value=str, partitions=3)

    def joins(builder: StreamsBuilder) -> None:
        builder.stream(two).join(builder.table(three), lambda left, right: left + right).to(counts)

    with EmbeddedBroker() as broker:
        with pytest.raises(TopologyError, match=r"'three' has 3, 'two' has 2"):
            Streams(joins, application_id="app", broker=broker).start()


def test_timer_of_wall_clock_runs_without_records():
    class Beat(Processor[str, str, str, int]):
        beats = key_value_store(str, int)

        def init(self, context):
            from streams import PunctuationType

            context.schedule(timedelta(milliseconds=5), PunctuationType.WALL_CLOCK_TIME, self.beat)

        def beat(self, now_ms):
            number = (self.beats.get("n") or 0) + 1
            self.beats.put("n", number)
            self.context.forward("beat", number)

        def process(self, record):
            pass

    one = Topic("one", key=str, value=str, partitions=1)
    beats = Topic("beats", key=str, value=int, partitions=1)

    def timed(builder: StreamsBuilder) -> None:
        builder.stream(one).process(Beat).to(beats)

    with EmbeddedBroker() as broker, Streams(timed, application_id="app", broker=broker, **FAST):
        seen = Watch(broker, beats).until(lambda seen: len(seen) >= 3)

    assert [number for _, number in seen[:3]] == [1, 2, 3]


RUNS_UNTIL_A_SIGNAL = """
from streams import StreamsBuilder, Topic, run

lines = Topic("lines", value=str)

def topology(builder: StreamsBuilder) -> None:
    builder.stream(lines).peek(print).to(Topic("out", value=str))

def moved(state, before):
    if state.name == "RUNNING":
        print("running", flush=True)

run(topology, application_id="signals", on_state=moved)
print("closed", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_ends_cleanly_at_a_signal(number):
    process = programs.start(["-c", RUNS_UNTIL_A_SIGNAL], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"

    os.kill(process.pid, number)

    assert process.communicate(timeout=300)[0] == "closed\n"
    assert process.returncode == 0


def test_addresses_are_open_from_the_start_to_the_end_and_name_brokers_outside():
    listen, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    with Streams(topology, application_id="app", listen=listen, http=http) as streams:
        with urlopen(f"http://{http}/live") as response:
            assert response.status == 200
        with Streams(topology, application_id="outside", broker=listen) as outside:
            waiting.until(lambda: State.RUNNING is streams.state is outside.state)
    for address in (listen, http):
        with pytest.raises(ConnectionRefusedError):
            create_connection(("127.0.0.1", int(address.rpartition(":")[2])))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"broker": "h:1", "bootstrap_servers": "h:2"}, "both broker= and bootstrap_servers= are given"),
        ({"broker": 9092}, "9092 is no broker; give addresses as text"),
        ({"broker": ""}, "broker='' names no broker; give host:port, or leave it out"),
        ({"broker": "h:1", "listen": "127.0.0.1:0"}, "serves an embedded broker: omit it with brokers outside"),
    ],
)
def test_brokers_that_do_not_fit_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        Streams(topology, application_id="app", **given)


def test_store_that_does_not_exist_is_named():
    with EmbeddedBroker() as broker, Streams(topology, application_id="app", broker=broker) as streams:
        with pytest.raises(Exception, match="there is no store 'nope'; the topology has: counts-store"):
            streams.store("nope")
    with pytest.raises(UnknownTopicError):
        from streams.testing import TopologyTestDriver

        TopologyTestDriver(topology).pipe(counts, 1, key="a")
