"""Clients, brokers and applications in a process that was forked: they are its parent's."""

import os
import traceback

import pytest

from streams import State, Streams, StreamsBuilder, Topic
from streams.broker import EmbeddedBroker
from streams.clients import Admin, Consumer, Producer
from streams.core.blocks.records import TopicPartition
from streams.core.errors import BrokerError, ClientClosedError
from tests.waiting import WATCHDOG_MS, until

P0 = TopicPartition("t", 0)

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def run_in_fork(act):
    """Run a function in a fork of this process; what it raises fails the test."""
    if (pid := os.fork()) == 0:
        status = 1
        try:
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture
def broker():
    with EmbeddedBroker(auto_create_topics=False) as broker:
        broker.create_topic("t", partitions=1)
        yield broker


def values(broker):
    return [value for block in broker.read(P0, 0) for value in block.values]


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_fork_cannot_use_the_producer_of_its_parent_which_loses_nothing(broker, linger_ms):
    """A record of the parent was lost: the broker took it for a repetition of one that the fork had numbered alike."""
    with (
        broker.serve("127.0.0.1:0") as server,
        Producer(bootstrap_servers=server.bootstrap_servers, linger_ms=linger_ms) as producer,
    ):
        producer.send("t", b"parent").result(WATCHDOG_MS)

        def fork():
            with pytest.raises(ClientClosedError, match="forked from; make a new one here"):
                producer.send("t", b"fork")
            producer.close()
            with Producer(bootstrap_servers=server.bootstrap_servers) as own:
                own.send("t", b"own").result(WATCHDOG_MS)

        run_in_fork(fork)
        producer.send("t", b"parent again").result(WATCHDOG_MS)

    assert values(broker) == [b"parent", b"own", b"parent again"]


@pytest.mark.parametrize("has_heartbeat", [False, True])
def test_fork_cannot_use_the_consumer_of_its_parent_which_stays_in_its_group(broker, has_heartbeat):
    with broker.serve("127.0.0.1:0") as server:
        servers = server.bootstrap_servers
        settings = {"auto_offset_reset": "earliest", "background_heartbeat": has_heartbeat}
        with Consumer(bootstrap_servers=servers, group_id="g", **settings) as consumer, Admin(broker) as admin:
            consumer.subscribe(["t"])
            while not consumer.assignment():
                consumer.poll(100)

            def fork():
                for method in (consumer.poll, lambda: consumer.commit_sync({P0: 5}), consumer.close):
                    with pytest.raises(ClientClosedError, match="forked from: open another one here"):
                        method()
                with Admin(bootstrap_servers=servers) as own:
                    assert own.committed_offsets("g") == {}

            run_in_fork(fork)

            assert len(admin.describe_group("g").members) == 1
            consumer.commit_sync({P0: 0})


def test_fork_cannot_use_the_broker_of_its_parent(tmp_path):
    """Records that a fork wrote into its copy were lost, or damaged the files of both."""
    with EmbeddedBroker(tmp_path, auto_create_topics=False) as broker, Admin(broker) as admin:
        broker.create_topic("t", partitions=1)

        def fork():
            with pytest.raises(BrokerError, match=r"forked from: call its serve\(\) there"):
                Producer(broker)
            with pytest.raises(BrokerError, match=r"forked from: call its serve\(\) there"):
                broker.topics()
            with pytest.raises(ClientClosedError, match="forked from: open another one here"):
                admin.list_topics()
            broker.close()

        run_in_fork(fork)
        assert broker.topics() == {"t": 1}


def test_fork_cannot_use_the_application_of_its_parent_which_goes_on(broker):
    """A query in a fork said that other instances have the store, and ``wait`` did not end."""
    rows = Topic("t", key=str, value=str)

    def topology(builder: StreamsBuilder) -> None:
        builder.table(rows, name="store")

    with Streams(topology, application_id="app", broker=broker, poll_ms=10, commit_interval_ms=20) as streams:
        view = streams.store("store")

        def fork():
            for use in (
                streams.start,
                streams.close,
                lambda: streams.close(0),
                lambda: streams.wait(0),
                streams.add_thread,
                streams.pause,
                streams.clean_up,
                streams.tasks,
                lambda: streams.store("store"),
                lambda: list(streams.changes("store")),
                lambda: view.get("a"),
                lambda: list(view.all()),
                lambda: streams.metrics,
                lambda: streams.state,
                lambda: streams.failure,
                streams.serve,
                streams.__enter__,
            ):
                with pytest.raises(ClientClosedError, match=r"application 'app' .* forked from: make a new one here"):
                    use()
            assert repr(streams).startswith("<Streams 'app' ")

        run_in_fork(fork)
        with Producer(broker) as producer:
            producer.send(rows, "row", key="a").result(WATCHDOG_MS)
        until(lambda: streams.state is State.RUNNING and view.get("a") is not None)
        assert view.get("a").value == "row"


def test_fork_does_not_keep_the_data_directory_of_a_broker_that_was_closed(tmp_path):
    (is_forked, forked), (may_end, end) = os.pipe(), os.pipe()
    broker = EmbeddedBroker(tmp_path)
    if (pid := os.fork()) == 0:
        os.close(end)
        os.write(forked, b"!")
        os.read(may_end, 1)
        os._exit(0)
    os.read(is_forked, 1)
    broker.close()

    with EmbeddedBroker(tmp_path):
        for descriptor in (end, may_end, is_forked, forked):
            os.close(descriptor)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
