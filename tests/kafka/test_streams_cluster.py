"""Three brokers, of which one after the other is killed: leaders and coordinators move, and nothing else changes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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

GUARANTEES = ("exactly_once_v2", "at_least_once")


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


@contextmanager
def counted(servers: str, folder: Path, guarantee: str) -> Iterator[tuple[Counting, list[Instance]]]:
    """Count words in two processes."""
    with Counting(TcpCluster(servers), guarantee) as counting:
        settings = {"processing_guarantee": guarantee, "default_store": "in_memory"}
        instances = [Instance(servers, guarantee, folder / "said", settings) for _ in range(2)]
        try:
            for instance in instances:
                until(instance.is_running, counting.read)
            yield counting, instances
        finally:
            for instance in instances:
                instance.stop()
        if guarantee == "exactly_once_v2":
            counting.check_exact()


def test_clients_and_applications_work_on(cluster: list[Broker], servers: str, tmp_path: Path, seeds: int):
    """A plain and a transactional producer, a member of a group, and two processes of a word count each."""

    def disturb(load: Load) -> None:
        with ExitStack() as stack:
            applications = [stack.enter_context(counted(servers, tmp_path, each)) for each in GUARANTEES[:seeds]]

            def work() -> None:
                load.work()
                for counting, _ in applications:
                    for _ in range(10):
                        counting.write(20)
                        counting.read(50)

            turn_over(cluster, work)
            for counting, instances in applications:
                counting.finish(instances)

    Load(TcpCluster(servers), 6).bear(disturb)
