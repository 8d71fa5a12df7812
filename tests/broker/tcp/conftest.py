"""A broker with a topic, served on a free port of the loopback, and connections to it."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for the loopback and its key."""
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    subprocess.run([*command, *subject, *files], check=True, capture_output=True)
    return folder
