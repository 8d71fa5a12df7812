"""The node itself: what the other tests of a real Kafka stand on."""

import os
import select
import socket
import struct
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer as OtherProducer

from tests.broker.tcp.by_hand import METADATA, Client
from tests.kafka.node import KafkaNode
from tests.kafka.records import Stored, put, stored
from tests.waiting import WATCHDOG_S, until

pytestmark = pytest.mark.kafka

HOUR_MS = 3_600_000
RECORDS = [
    Stored(0, 0, 5 * HOUR_MS, b"a", b"1", (("trace", b"\x00\xff"), ("trace", b"again"), ("none", None))),
    Stored(0, 1, 4 * HOUR_MS, None, b""),
    Stored(2, 0, 3 * HOUR_MS, b"", None),
]


def test_records_come_out_as_they_were_put_in(kafka: KafkaNode, topic: str):
    put(kafka.bootstrap_servers, topic, RECORDS)

    until(kafka.serves)
    assert stored(kafka.bootstrap_servers, topic) == RECORDS


def test_records_behind_an_open_transaction_are_waited_for(kafka: KafkaNode, topic: str):
    """As of a process that was killed: the node aborts it after its timeout."""
    where = kafka.bootstrap_servers
    settings = {"bootstrap.servers": where, "transactional.id": topic, "transaction.timeout.ms": 5_000}
    open_one = OtherProducer(settings)
    open_one.init_transactions(WATCHDOG_S)
    open_one.begin_transaction()
    open_one.produce(topic, b"never committed", partition=0)
    assert open_one.flush(WATCHDOG_S) == 0
    behind = Stored(0, 1, 5 * HOUR_MS, b"a", b"1")
    put(where, topic, [behind])

    assert stored(where, topic) == [behind]


@pytest.mark.parametrize(("key", "version"), [(999, 0), (METADATA, 120)], ids=["unknown api", "unknown version"])
def test_a_request_that_is_not_supported_closes_the_connection(kafka: KafkaNode, key: int, version: int):
    """The embedded broker does the same (``tests/broker/tcp/test_server.py``)."""
    with Client(kafka.bootstrap_servers) as client:
        client.raw(struct.pack(">ihhih", 10, key, version, 1, -1))
        assert client.is_closed


@pytest.mark.skipif(sys.platform != "linux", reason="watches the node by a descriptor of its process, as Linux has it")
def test_node_does_not_outlive_killed_tests(tmp_path: Path):
    """A process that holds a node is killed: the node's port is free again."""
    holder = textwrap.dedent("""
        import sys
        from pathlib import Path
        from tests.kafka.node import KafkaNode

        node = KafkaNode(Path(sys.argv[1]))
        node.start()
        print(node.port, node._process.pid, flush=True)
        sys.stdin.read()
    """)
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path / "kafka")],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        port, pid = map(int, process.stdout.readline().split())
        with socket.create_connection(("127.0.0.1", port), timeout=WATCHDOG_S) as connection:
            # The descriptor is the node's own, whoever gets its number later, and readable when it has ended.
            node = os.pidfd_open(pid)
            try:
                process.kill()
                process.wait()

                connection.settimeout(WATCHDOG_S)
                # A kernel that closes the socket of a killed process may reset the connection instead of ending it.
                with suppress(ConnectionResetError):
                    assert connection.recv(1) == b""
                assert select.select([node], [], [], WATCHDOG_S)[0] == [node]
            finally:
                os.close(node)
