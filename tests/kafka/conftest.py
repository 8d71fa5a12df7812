"""One Kafka node and one Spark session for all tests of a run."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from streams.broker import EmbeddedBroker
from streams.clients.tcp import TcpCluster
from streams.protocol.transport import Cluster
from tests.kafka.node import KafkaNode
from tests.kafka.records import create_topic
from tests.kafka.spark_kafka import SparkKafka

_NUMBERS = count()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """A node that all tests share: topics have names of their own, and nobody stops it."""
    with KafkaNode(tmp_path_factory.mktemp("kafka")) as node:
        yield node


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaNode]:
    """A node of this test alone, to be killed and restarted."""
    with KafkaNode(tmp_path / "kafka") as node:
        yield node


@pytest.fixture
def topic(kafka: KafkaNode, request: pytest.FixtureRequest) -> str:
    """A topic of this test alone on the shared node, with three partitions."""
    name: str = request.node.name.translate(str.maketrans("[]/ ", "...."))
    create_topic(kafka.bootstrap_servers, name, partitions=3)
    return name


@pytest.fixture(scope="session")
def spark_kafka(kafka: KafkaNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkKafka]:
    """A local Spark session that reads the shared node."""
    with SparkKafka(kafka.bootstrap_servers, tmp_path_factory.mktemp("spark")) as reader:
        yield reader


@pytest.fixture(params=["embedded", "served", pytest.param("kafka", marks=pytest.mark.kafka)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The ways to a broker: in this process, over TCP to the embedded one, over TCP to a real Kafka."""
    if request.param == "kafka":
        node: KafkaNode = request.getfixturevalue("kafka")
        yield TcpCluster(node.bootstrap_servers)
        return
    with EmbeddedBroker(auto_create_topics=False) as broker:
        if request.param == "embedded":
            yield broker
            return
        with broker.serve("127.0.0.1:0") as server:
            yield TcpCluster(server.bootstrap_servers)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for what a test makes on a broker that others use too."""
    text: str = request.node.name
    return f"{text.translate(str.maketrans('[]/ ', '....'))}{next(_NUMBERS)}"
