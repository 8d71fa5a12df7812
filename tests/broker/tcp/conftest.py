"""A broker with a topic, served on a free port of the loopback, and connections to it."""

from collections.abc import Callable, Iterator

import pytest

from streams.broker import EmbeddedBroker
from streams.broker.tcp import BrokerServer
from tests.broker.tcp.by_hand import Client


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic("words")
        yield broker


@pytest.fixture
def server(broker: EmbeddedBroker) -> BrokerServer:
    return broker.serve("127.0.0.1:0")


@pytest.fixture
def connect(server: BrokerServer) -> Iterator[Callable[[], Client]]:
    clients: list[Client] = []

    def open_one() -> Client:
        clients.append(Client(server.bootstrap_servers))
        return clients[-1]

    yield open_one
    for client in clients:
        client.socket.close()


@pytest.fixture
def client(connect: Callable[[], Client]) -> Client:
    return connect()
