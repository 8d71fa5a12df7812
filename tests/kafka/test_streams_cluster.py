"""Three brokers, of which one after the other is killed: leaders and coordinators move, and nothing else changes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from streams.clients import Admin, Consumer, Producer
from streams.clients.tcp import TcpCluster
from streams.core.errors import RebalanceInProgressError
from streams.protocol.messages import TopicSpec
from tests.kafka.brokers import Broker, brokers
from tests.kafka.word_count import Counting, Instance
from tests.waiting import WATCHDOG_MS, WATCHDOG_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    with brokers(tmp_path_factory.mktemp("brokers")) as found:
        servers = ",".join(broker.bootstrap_servers for broker in found)
        with Admin(TcpCluster(servers)) as admin:
            until(lambda: len(admin._metadata(()).brokers) == 3)
        yield found


@pytest.fixture
def servers(cluster: list[Broker]) -> str:
    return ",".join(broker.bootstrap_servers for broker in cluster)


def is_replicated(servers: str) -> bool:
    """Whether all brokers are in sync with the leaders of all partitions."""
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=WATCHDOG_S).topics.values()
    return all(len(partition.isrs) == 3 for topic in topics for partition in topic.partitions.values())


def turn_over(cluster: list[Broker], work: Callable[[], None]) -> None:
    """Kill the second broker, then the third, each with work before, during and after."""
    for broker in cluster[1:]:
        work()
        # Else a broker could be killed that is the only one in sync, and nobody may follow it.
        until(lambda: is_replicated(cluster[0].bootstrap_servers))
        broker.kill()
        work()
        broker.start()
        work()


def test_leaders_and_coordinators_move(cluster: list[Broker], servers: str):
    """A plain and a transactional producer and a member of a group work on."""
    tcp = TcpCluster(servers)
    with Admin(tcp) as admin:
        admin.create_topics([TopicSpec("plain", 6), TopicSpec("exact", 6)])
    stop, failures = threading.Event(), []
    sent = {"plain": 0, "exact": 0}

    def send_plain() -> None:
        with Producer(tcp, linger_ms=1, client_id="plain") as producer:
            while not stop.is_set():
                producer.send("plain", b"%d" % sent["plain"], partition=sent["plain"] % 6)
                sent["plain"] += 1
                if sent["plain"] % 60 == 0:
                    producer.flush()

    def send_exact() -> None:
        with Producer(tcp, transactional_id="tx", client_id="exact") as producer:
            producer.init_transactions()
            while not stop.is_set():
                with producer.transaction():
                    for _ in range(10):
                        producer.send("exact", b"%d" % sent["exact"], partition=sent["exact"] % 6)
                        sent["exact"] += 1

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (send_plain, send_exact)]
    seen: dict[str, list[int]] = {"plain": [], "exact": []}
    with Consumer(
        tcp,
        "g",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
        # It does not poll while a broker starts.
        session_timeout_ms=WATCHDOG_MS,
    ) as consumer:
        consumer.subscribe(["plain", "exact"])

        def turn() -> None:
            for record in consumer.poll(100):
                seen[record.topic].append(int(record.value))
            with suppress(RebalanceInProgressError):
                consumer.commit_sync()

        def work() -> None:
            reached = {topic: count + 200 for topic, count in sent.items()}
            until(lambda: all(sent[topic] > reached[topic] for topic in sent) or bool(failures), turn)
            assert not failures

        for thread in threads:
            thread.start()
        try:
            turn_over(cluster, work)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failures
        until(lambda: all(len(seen[topic]) >= sent[topic] for topic in sent), turn)
    for topic, found in seen.items():
        assert sorted(found) == list(range(sent[topic])), topic


@pytest.mark.seeds("guarantee", ["exactly_once_v2", "at_least_once"])
def test_applications_work_on(cluster: list[Broker], servers: str, tmp_path: Path, guarantee: str):
    """Two processes of a word count."""
    with Counting(TcpCluster(servers), guarantee) as counting:
        given = {"processing_guarantee": guarantee, "default_store": "in_memory"}
        instances = [Instance(servers, guarantee, tmp_path / "said", given) for _ in range(2)]
        try:
            for instance in instances:
                until(instance.is_running, counting.read)

            def work() -> None:
                for _ in range(10):
                    counting.write(20)
                    counting.read(50)

            turn_over(cluster, work)
            counting.finish(instances)
        finally:
            for instance in instances:
                instance.stop()
        if guarantee == "exactly_once_v2":
            counting.check_exact()
