"""Clients over TCP when the way to the broker fails: nothing lost, nothing twice, and errors that say what is wrong."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import cast

import google_crc32c
import pytest

from streams.broker import EmbeddedBroker
from streams.broker.features import VERSIONS
from streams.broker.tcp import Users
from streams.clients import Admin, Consumer, Producer
from streams.clients.errors import AuthenticationError, DisconnectedError
from streams.clients.tcp import Security, TcpCluster
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import BrokerError, ConfigError, UnreadableBatchError
from streams.protocol import batch
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import TopicMetadata, TopicSpec
from streams.protocol.wire import APIS, EncodedBlock
from tests.kafka.proxy import Proxy
from tests.ports import free_ports
from tests.waiting import WATCHDOG_MS, until, until_raised


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(auto_create_topics=False) as broker:
        broker.create_topic("t", partitions=2)
        yield broker


@contextmanager
def behind_proxy(
    broker: EmbeddedBroker, after_bytes: int | None = None, most_cuts: int | None = None
) -> Iterator[Proxy]:
    """Serve a broker whose clients know it by its proxy alone."""
    (port,) = free_ports(1)
    with (
        Proxy(port, after_bytes, most_cuts) as proxy,
        broker.serve(f"127.0.0.1:{port}", advertise=proxy.bootstrap_servers),
    ):
        yield proxy


def values(broker: EmbeddedBroker, number: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    partition, position = TopicPartition("t", number), 0
    while position < broker.end_offset(partition):
        for block in broker.read(partition, position):
            found += block.values
            position = block.offsets[-1] + 1
    return found


@pytest.mark.case
@pytest.mark.parametrize("after_bytes", [4_000, 20_000])
def test_connections_that_are_cut_again_and_again_lose_and_repeat_nothing(broker: EmbeddedBroker, after_bytes: int):
    """Each connection passes so many bytes on: requests are cut in their middle, answers are lost."""
    with behind_proxy(broker, after_bytes) as proxy:
        cluster = TcpCluster(proxy.bootstrap_servers)
        settings = {"linger_ms": 1, "batch_size_bytes": 500, "max_request_bytes": 1_000}
        with Producer(cluster, delivery_timeout_ms=WATCHDOG_MS, **settings) as producer:
            for number in range(3_000):
                producer.send("t", b"%d" % number, partition=number % 2)
            producer.flush(WATCHDOG_MS)

        assert proxy.cuts > 3_000 * 10 / after_bytes
    assert values(broker, 0) == [b"%d" % number for number in range(0, 3_000, 2)]
    assert values(broker, 1) == [b"%d" % number for number in range(1, 3_000, 2)]


def test_consumer_goes_on_after_cuts(broker: EmbeddedBroker):
    """A group's member: its commits and its fetches are cut; every record comes, in order, and it stays a member."""
    with behind_proxy(broker) as proxy:
        cluster = TcpCluster(proxy.bootstrap_servers)
        seen: dict[int, list[bytes]] = {0: [], 1: []}
        with Producer(broker) as producer, Consumer(cluster, "g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            until(lambda: len(consumer.assignment()) == 2, lambda: consumer.poll(50))
            generation = consumer.group_metadata.generation_id
            for number in range(200):
                producer.send("t", b"%d" % number, partition=number % 2).result()
                if number % 20 == 7:
                    proxy.cut()
                for record in consumer.poll(1):
                    seen[record.partition].append(record.value)
                if number % 20 == 9:
                    consumer.commit_sync()

            def turn() -> None:
                for record in consumer.poll(100):
                    seen[record.partition].append(record.value)

            until(lambda: sum(map(len, seen.values())) >= 200, turn)
            assert consumer.group_metadata.generation_id == generation
        assert proxy.cuts >= 10
    assert {number: sorted(found) for number, found in seen.items()} == {
        number: sorted(b"%d" % value for value in range(number, 200, 2)) for number in range(2)
    }
    assert all(found == sorted(found, key=int) for found in seen.values())


def test_transactions_over_cuts_count_once(broker: EmbeddedBroker):
    with behind_proxy(broker) as proxy:
        with Producer(TcpCluster(proxy.bootstrap_servers), transactional_id="tx", retry_backoff_ms=10) as producer:
            producer.init_transactions()
            for number in range(60):
                producer.begin_transaction()
                producer.send("t", b"%d" % number, partition=0)
                if number % 3 == 0:
                    proxy.cut()
                producer.flush()
                if number % 3 == 1:
                    proxy.cut()
                producer.commit_transaction()
        assert proxy.cuts >= 40
    with Consumer(broker, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        found: list[bytes] = []
        until(lambda: len(found) >= 60, lambda: found.extend(record.value for record in consumer.poll(100)))
    assert found == [b"%d" % number for number in range(60)]


@pytest.mark.parametrize("exist_ok", [True, False])
def test_creation_of_topics_is_repeated_after_a_cut_if_it_may_have_been_done(broker: EmbeddedBroker, exist_ok: bool):
    """An application creates its internal topics so: one lost connection must not end it."""
    topics = [TopicSpec(f"topic-{number:0100}") for number in range(50)]
    with (
        behind_proxy(broker, after_bytes=2_000, most_cuts=1) as proxy,
        Admin(TcpCluster(proxy.bootstrap_servers)) as admin,
    ):
        if exist_ok:
            admin.create_topics(topics, exist_ok=True)
            assert {topic.name for topic in topics} <= broker.topics().keys()
        else:
            with pytest.raises(DisconnectedError):
                admin.create_topics(topics)
        assert proxy.cuts == 1


@pytest.mark.slow
def test_broker_that_is_away_for_a_while(broker: EmbeddedBroker):
    """Whoever sends and reads meanwhile goes on when it is back."""
    with behind_proxy(broker) as proxy:
        cluster = TcpCluster(proxy.bootstrap_servers)
        with Producer(cluster) as producer, Consumer(cluster, auto_offset_reset="earliest") as consumer:
            producer.send("t", b"before", partition=0).result()
            consumer.assign([TopicPartition("t", 0)])
            until(lambda: bool(consumer.poll(100)))
            proxy.refuse()
            proxy.cut()
            delivery = producer.send("t", b"after", partition=0)
            assert consumer.poll(500) == []
            assert not delivery.done()
            timer = threading.Timer(0.3, proxy.refuse, kwargs={"is_refusing": False})
            timer.start()

            assert delivery.base_offset(WATCHDOG_MS) == 1
            until(lambda: bool(consumer.poll(100)))


def test_server_that_is_not_there_is_named(broker: EmbeddedBroker):
    """In turn: the first cannot be reached, the second can."""
    (port,) = free_ports(1)
    lost = TcpCluster(f"127.0.0.1:{port}", hold_ms=300)
    with Admin(lost) as admin:
        until_raised(DisconnectedError, f"127.0.0.1:{port}.*refused", admin.list_groups)
    with broker.serve("127.0.0.1:0") as server:
        both = TcpCluster([f"127.0.0.1:{port}", server.bootstrap_servers])
        with Admin(both) as admin:
            assert admin.list_topics() == ["t"]


def test_server_that_speaks_something_else():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(1_000)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        cluster = TcpCluster(f"127.0.0.1:{listener.getsockname()[1]}", hold_ms=300)
        with Admin(cluster) as admin:
            until_raised(DisconnectedError, "not Kafka's protocol", admin.list_topics)
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_server_that_says_nothing(broker: EmbeddedBroker):
    """It takes connections, and no more: the greeting has its time, a request later its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        cluster = TcpCluster(f"127.0.0.1:{listener.getsockname()[1]}", connect_timeout_ms=100, hold_ms=300)
        with Admin(cluster) as admin:
            until_raised(DisconnectedError, "no connection within 100 ms", admin.list_topics)


@pytest.mark.parametrize("servers", ["", " , ", "host", "host:port", "host:0", ":9092", "::1:9092", []])
def test_servers_that_are_no_addresses_are_refused(servers: str):
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        TcpCluster(servers)


def test_client_is_told_which_broker_it_needs(broker: EmbeddedBroker):
    for client in (Consumer, Producer, Admin):
        with pytest.raises(ConfigError, match="bootstrap_servers="):
            client()
        with pytest.raises(ConfigError, match="both"):
            client(broker, bootstrap_servers="127.0.0.1:9092")


def test_idle_connections_are_replaced(broker: EmbeddedBroker):
    """Brokers close what is idle: a client that comes back after that must not run into it."""
    with behind_proxy(broker) as proxy:
        cluster = TcpCluster(proxy.bootstrap_servers, connections_max_idle_ms=0)
        with Producer(cluster) as producer:
            for number in range(5):
                assert producer.send("t", b"v", partition=0).base_offset() == number
                until(lambda: not producer.poll(2))


def test_request_that_cannot_be_said_fails_at_once(broker: EmbeddedBroker):
    with broker.serve("127.0.0.1:0") as server, Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        with pytest.raises(BrokerError, match="CreateGroup"):
            admin.create_group("g")


@pytest.mark.parametrize(
    ("lacking", "group"),
    [("Fetch", None), ("ListOffsets", None), ("OffsetFetch", "g"), ("JoinGroup", "g"), ("SyncGroup", "g")],
)
def test_consumer_says_what_a_broker_lacks(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, lacking: str, group: str | None
):
    """An older broker without something that reading takes: no repeating brings it, so ``poll`` raises."""
    (key,) = (key for key, api in APIS.items() if api.name == lacking)
    monkeypatch.delitem(cast("dict[int, tuple[int, int]]", VERSIONS), key)
    with broker.serve("127.0.0.1:0") as server:
        with Consumer(TcpCluster(server.bootstrap_servers), group, auto_offset_reset="earliest") as consumer:
            if group is None:
                consumer.assign([TopicPartition("t", 0)])
            else:
                consumer.subscribe(["t"])
            # Each attempt fails anew, and says so anew.
            for _ in range(2):
                with pytest.raises(BrokerError, match=f"{lacking}: it supports none of it") as raised:
                    until(lambda: False, lambda: consumer.poll(1_000))
                assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("group", [None, "g"])
def test_consumer_whose_password_is_changed_says_so(broker: EmbeddedBroker, group: str | None):
    """It reads, the broker comes back with another password: it is not tried for ever."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    security = Security("sasl_plaintext", sasl_username="alice", sasl_password="old")
    with Consumer(TcpCluster(address, security), group, auto_offset_reset="earliest") as consumer:
        with broker.serve(address, users=Users({"alice": "old"})):
            if group is None:
                consumer.assign([TopicPartition("t", 0)])
            else:
                consumer.subscribe(["t"])
            with Producer(broker) as producer:
                producer.send("t", b"v", partition=0).result()
            until(lambda: bool(consumer.poll(100)))
        with broker.serve(address, users=Users({"alice": "new"})):
            with pytest.raises(AuthenticationError, match="password is wrong"):
                until(lambda: False, lambda: consumer.poll(1_000))
        with broker.serve(address, users=Users({"alice": "old"})), Producer(broker) as producer:
            producer.send("t", b"w", partition=0).result()
            found: list[bytes | None] = []

            def turn() -> None:
                with suppress(AuthenticationError):
                    found.extend(record.value for record in consumer.poll(100))

            until(lambda: b"w" in found, turn)
            # A group is left while its broker is there.
            consumer.close()


def test_records_that_nobody_can_read_are_named_and_can_be_passed_over(broker: EmbeddedBroker):
    """A broker refuses them at its door; these are from before, or another broker's."""
    partition = TopicPartition("t", 0)
    data = bytearray(batch.encode(Block([None] * 3, [b"x"] * 3, [0] * 3), 0))
    data[61:] = bytes(len(data) - 61)
    data[17:21] = google_crc32c.value(bytes(data[21:])).to_bytes(4, "big")
    broker.append(partition, Block([None], [b"before"], [0]))
    log = broker._machine.topics.log(partition)
    log.storage.append(EncodedBlock(bytes(data), batch.read_header(bytes(data))))
    broker.append(partition, Block([None], [b"behind"], [0]))
    seen: list[bytes | None] = []

    def poll(consumer: Consumer) -> None:
        seen.extend(record.value for record in consumer.poll(100))

    with (
        broker.serve("127.0.0.1:0") as server,
        Consumer(bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([partition])
        until(lambda: seen == [b"before"], lambda: poll(consumer))
        for _ in range(2):
            with pytest.raises(UnreadableBatchError, match=r"t-0.* from offset 1 up to 3.*seek to 4") as caught:
                until(lambda: False, lambda: poll(consumer))
            error = caught.value
            assert (error.partition, error.offset, error.next_offset) == (partition, 1, 4)
        consumer.seek(partition, error.next_offset)
        until(lambda: seen == [b"before", b"behind"], lambda: poll(consumer))


class _Forgotten(dict[str, TopicMetadata]):
    """Cached topics of which the sender's thread takes each out right after it was looked for."""

    def __contains__(self, topic: object) -> bool:
        return self.pop(cast(str, topic), None) is not None


def test_topic_that_is_forgotten_while_a_record_is_sent_is_looked_up_again(broker: EmbeddedBroker):
    """Another thread forgets a topic whenever its leader is lost, also between two lines of ``send``."""
    with (
        broker.serve("127.0.0.1:0") as server,
        Producer(TcpCluster(server.bootstrap_servers), delivery_timeout_ms=WATCHDOG_MS) as producer,
    ):
        producer._sender.metadata.topics = _Forgotten()
        for number in range(20):
            producer.send("t", b"%d" % number, partition=number % 2)
        producer.flush()
    assert [len(values(broker, number)) for number in (0, 1)] == [10, 10]
