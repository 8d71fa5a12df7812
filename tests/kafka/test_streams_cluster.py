"""Three brokers, of which one after the other is killed: leaders and coordinators move, and nothing else changes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from streams.clients import Admin
from streams.clients.tcp import TcpCluster
from tests.kafka.brokers import Broker, brokers
from tests.kafka.load import Load
from tests.kafka.word_count import Counting, Instance
from tests.waiting import WATCHDOG_S, until

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
    Load(TcpCluster(servers), 6).bear(lambda load: turn_over(cluster, load.work))


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
