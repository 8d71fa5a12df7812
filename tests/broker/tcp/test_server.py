"""Requests are answered in order, a long poll delays its own connection alone, bad input closes its own alone."""

import logging
import os
import resource
import signal
import socket
import struct
import subprocess
import threading
import time
import zlib
from contextlib import suppress

import google_crc32c
import pytest

from streams import Consumer, EmbeddedBroker, Producer
from streams.broker.logs.limits import MAX_WAIT_MS
from streams.broker.tcp import Address, Limits
from streams.broker.tcp.tcp_service import TcpService
from streams.core.blocks.records import Block, TopicPartition
from streams.core.clock import VirtualClock
from streams.core.errors import BrokerError, ConfigError
from streams.protocol.error_codes import ErrorCode
from streams.protocol.wire import encode_request
from tests import programs, waiting
from tests.broker.tcp.by_hand import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    Client,
    batch_of,
    row_of,
    stored,
    values_in,
)

WORDS = TopicPartition("words", 0)


# --- records ------------------------------------------------------------------------------


def test_what_one_produces_another_fetches(connect):
    row = connect().produce("words", b"a", b"b")

    assert (row["error_code"], row["base_offset"], row["log_start_offset"]) == (0, 0, 0)
    found = connect().fetch("words")
    assert values_in(found) == [b"a", b"b"]
    assert (found["high_watermark"], found["last_stable_offset"], found["log_start_offset"]) == (2, 2, 0)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_of_fetch_brings_the_records(client, version):
    client.produce("words", b"a")
    (topic,) = client.call(METADATA, 12, topics=[{"name": "words"}], allow_auto_topic_creation=False)["topics"]

    assert values_in(client.fetch("words", version=version, topic_id=topic["topic_id"])) == [b"a"]


@pytest.mark.parametrize("version", range(3, 9))
def test_every_version_of_produce_appends_them(client, broker, version):
    assert client.produce("words", b"a", version=version)["error_code"] == ErrorCode.NONE
    assert stored(broker, "words") == [b"a"]


def test_clients_in_this_process_and_over_tcp_share_topics(client, broker):
    with Producer(broker) as producer:
        producer.send("words", b"from inside").result()
    client.produce("words", b"from outside")

    assert values_in(client.fetch("words")) == [b"from inside", b"from outside"]
    assert stored(broker, "words") == [b"from inside", b"from outside"]


def test_a_producer_that_waits_for_nothing_is_not_answered(client, broker):
    client.produce("words", b"a", acks=0)

    row = client.produce("words", b"b")

    assert row["base_offset"] == 1
    assert stored(broker, "words") == [b"a", b"b"]


def test_a_producer_that_waits_for_nothing_learns_of_a_refusal_by_the_end_of_its_connection(client):
    client.produce("unknown", b"a", acks=0)

    assert client.is_closed


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (batch_of(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD),
        (batch_of(b"a", attributes=0x20), ErrorCode.INVALID_RECORD),
        (batch_of(b"a", attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
    ],
    ids=["nothing", "cut", "two batches", "a control batch", "append time"],
)
def test_a_bad_batch_is_refused_and_the_connection_goes_on(client, broker, data, code):
    assert client.produce_batch("words", data)["error_code"] == code
    assert client.produce("words", b"good")["base_offset"] == 0
    assert stored(broker, "words") == [b"good"]


def test_acks_that_there_are_not_are_refused(client):
    assert client.produce("words", b"a", acks=2)["error_code"] == ErrorCode.INVALID_REQUIRED_ACKS


def test_zstd_is_for_those_who_know_it(client):
    data = batch_of(b"a", attributes=4)

    assert client.produce_batch("words", data, version=6)["error_code"] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert client.produce_batch("words", data, version=7)["error_code"] == ErrorCode.NONE
    assert client.fetch("words", version=9)["error_code"] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert client.fetch("words", version=10)["error_code"] == ErrorCode.NONE


def test_a_fetch_is_bounded_by_bytes_but_for_its_first_batch(client):
    for value in (b"a", b"b", b"c"):
        client.produce("words", value)
    size = len(batch_of(b"a"))

    assert values_in(client.fetch("words", max_bytes=2 * size)) == [b"a", b"b"]
    assert values_in(client.fetch("words", max_bytes=1)) == [b"a"]


def test_a_fetch_session_names_only_what_changes(client):
    """Its first fetch names all, the next ones are told only what is new (KIP-227)."""
    client.send_fetch("words", session_id=17, session_epoch=3)
    assert client.receive()[1]["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    client.send_fetch("words", session_id=0, session_epoch=0)
    begun = client.receive()[1]
    client.produce("words", b"a")
    client.send_fetch("words", session_id=begun["session_id"], session_epoch=1, topics=[])
    told = client.receive()[1]
    client.send_fetch("words", session_id=begun["session_id"], session_epoch=1, topics=[])

    assert row_of(begun)["records"] == b""
    assert values_in(row_of(told)) == [b"a"]
    assert client.receive()[1]["error_code"] == ErrorCode.INVALID_FETCH_SESSION_EPOCH


# --- long polls ---------------------------------------------------------------------------


def test_a_fetch_waits_for_records(connect):
    waiting, other = connect(), connect()
    waiting.send_fetch("words", max_wait_ms=60_000)

    other.produce("words", b"a")

    assert values_in(row_of(waiting.receive()[1])) == [b"a"]


def test_a_fetch_is_woken_by_a_producer_in_this_process(client, broker):
    client.send_fetch("words", max_wait_ms=60_000)
    broker.append(WORDS, Block([None], [b"a"], [0]))

    assert values_in(row_of(client.receive()[1])) == [b"a"]


def test_a_fetch_ends_with_its_time(client):
    began = time.monotonic()

    row = client.fetch("words", max_wait_ms=200)

    assert values_in(row) == []
    assert time.monotonic() - began > 0.15


def test_too_few_bytes_are_waited_with(connect):
    """The one small record is not worth an answer, until the second comes."""
    waiting, other = connect(), connect()
    waiting.send_fetch("words", max_wait_ms=60_000, min_bytes=2 * len(batch_of(b"a")))

    other.produce("words", b"a")
    other.produce("words", b"b")

    assert values_in(row_of(waiting.receive()[1])) == [b"a", b"b"]


def test_what_comes_behind_a_long_poll_waits_and_others_do_not(connect):
    waiting, other = connect(), connect()
    fetch = waiting.send_fetch("words", max_wait_ms=60_000)
    versions = waiting.send(API_VERSIONS, 0)

    assert other.call(API_VERSIONS, 0)["error_code"] == 0
    other.produce("words", b"a")

    assert [waiting.receive()[0], waiting.receive()[0]] == [fetch, versions]


def test_a_fetch_whose_client_has_gone_is_forgotten(connect, broker, server):
    gone, other = connect(), connect()
    gone.send_fetch("words", max_wait_ms=2_000_000_000)
    gone.send(API_VERSIONS, 0)
    gone.socket.close()

    _await(lambda: len(server._listener.connections) == 1 or not other.call(API_VERSIONS, 0))

    assert len(broker._machine._fetches.waiting) == 0


def _await(condition):
    waiting.until(condition)


def test_a_fetch_above_the_bound_is_answered_with_what_there_is(client, broker):
    broker._machine._fetches.waiting.max_places = 0

    assert values_in(client.fetch("words", max_wait_ms=2_000_000_000)) == []
    assert len(broker._machine._fetches.waiting) == 0


def test_no_fetch_waits_longer_than_the_broker_lets_it(client, broker):
    client.send_fetch("words", max_wait_ms=2_000_000_000)
    _await(lambda: len(broker._machine._fetches.waiting) == 1)

    deadline_ms = broker._machine._fetches.next_deadline_ms()

    assert deadline_ms <= broker._driver.now_ms() + MAX_WAIT_MS


def test_the_timers_of_clients_in_this_process_are_kept_while_it_is_served(client, broker):
    """The keeper of the time is the server: a poll in this process ends in time all the same."""
    with Consumer(broker) as consumer:
        consumer.assign([WORDS])
        assert not consumer.poll(200)


def test_the_timers_go_on_when_the_server_ends(broker, server):
    with Consumer(broker) as consumer:
        consumer.assign([WORDS])
        ended = threading.Event()
        poll = threading.Thread(target=lambda: (consumer.poll(300), ended.set()))
        poll.start()
        server.close()
        assert ended.wait(waiting.WATCHDOG_MS / 1_000)
        poll.join()


# --- order and pipelines ------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(client):
    sent = [client.send(API_VERSIONS, 0) for _ in range(100)]
    sent += [client.send(METADATA, 8, topics=None) for _ in range(100)]

    assert [client.receive()[0] for _ in sent] == sent


def test_requests_may_come_byte_by_byte(client):
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in struct.pack(">ihhih", 8 + 2, API_VERSIONS, 0, 7, -1):
        client.raw(bytes([byte]))

    assert client.frame()[:4] == struct.pack(">i", 7)


def test_a_client_that_does_not_take_its_answers_holds_up_nobody(connect):
    client, other = connect(), connect()
    for _ in range(40):
        client.produce("words", os.urandom(900_000))
    for _ in range(60):
        client.send_fetch("words", max_bytes=50_000_000)

    assert other.call(API_VERSIONS, 0)["error_code"] == 0
    assert len(client.frame()) > 900_000


# --- versions -----------------------------------------------------------------------------


def test_an_unknown_version_of_api_versions_is_answered_with_ours(client):
    client.raw(struct.pack(">ihhih", 8 + 3, API_VERSIONS, 99, 5, -1) + b"\0")

    frame = client.frame()

    assert struct.unpack_from(">ih", frame) == (5, ErrorCode.UNSUPPORTED_VERSION)
    assert client.call(API_VERSIONS, 0)["error_code"] == 0


def test_api_versions_lists_what_is_served(client):
    ranges = {row["api_key"]: (row["min_version"], row["max_version"]) for row in client.call(18, 3)["api_keys"]}

    assert ranges[0] == (0, 12), "librdkafka before 2.11 compresses only if it sees version 0 (KAFKA-18659)"
    assert ranges[1] == (4, 18)
    assert ranges[68] == (0, 1)
    # The raft of controllers and share groups, which the embedded broker does not have.
    assert not {55, 76, 77, 78, 79, 90, 91, 92} & ranges.keys()


def test_api_versions_tells_the_version_of_transactions(client):
    answer = client.call(18, 3)

    assert answer["finalized_features"] == [
        {"name": "transaction.version", "max_version_level": 2, "min_version_level": 1},
    ]


# --- bad input ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">i", -5) + bytes(60),
        struct.pack(">i", 0x7FFF_FFFF) + bytes(60),
        struct.pack(">i", 0),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, METADATA, 120, 1, -1),
        struct.pack(">ihhihi", 14, METADATA, 1, 1, -1, 0x7FFF_FFF0),
    ],
    ids=["http", "negative length", "huge length", "no length", "unknown api", "unknown version", "huge array"],
)
def test_bad_input_closes_its_own_connection_alone(connect, data, caplog):
    bad, good = connect(), connect()

    with caplog.at_level(logging.WARNING, "streams.broker.tcp"):
        bad.raw(data)
        assert bad.is_closed

    assert good.call(API_VERSIONS, 0)["error_code"] == 0
    assert "its connection is closed" in caplog.text


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">i", -5),
        struct.pack(">i", 0x7FFF_FFFF),
        struct.pack(">ihhihi", 14, METADATA, 1, 1, -1, 0x7FFF_FFF0),
    ],
    ids=["negative length", "huge length", "huge array"],
)
def test_what_came_before_bad_input_is_answered(connect, broker, bad):
    """All in one read; one of the requests has to wait for its answer."""
    client = connect()
    requests = [
        encode_request(API_VERSIONS, 0, 1, "test", {}),
        encode_request(FETCH, 4, 2, "test", waiting_fetch("words", max_wait_ms=100)),
        encode_request(API_VERSIONS, 0, 3, "test", {}),
    ]

    client.raw(b"".join(chunk for chunks in requests for chunk in chunks) + bad + bytes(1_000))

    assert [struct.unpack_from(">i", client.frame())[0] for _ in requests] == [1, 2, 3]
    assert client.is_closed


def waiting_fetch(topic, **settings):
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {"replica_id": -1, "min_bytes": 1, "topics": [{"topic": topic, "partitions": [row]}], **settings}


def bomb(codec, size=256 << 20):
    """Return a sound batch of one record of 256 MiB, compressed to less than one."""
    if codec == 1:
        packer, piece = zlib.compressobj(9, zlib.DEFLATED, 31), bytes(1 << 20)
        packed = b"".join([*(packer.compress(piece) for _ in range(size >> 20)), packer.flush()])
    else:
        # One block of 128 KiB that is a byte repeated, again and again.
        block = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
        packed = bytes.fromhex("28b52ffd0050") + block * (size >> 17) + (1).to_bytes(3, "little")
    fields = struct.pack(">hiqqqhii", codec, 0, 1, 1, -1, -1, -1, 1) + packed
    crc = google_crc32c.value(fields)
    return struct.pack(">qiibI", 0, 9 + len(fields), 0, 2, crc) + fields


@pytest.mark.parametrize("codec", [1, 4], ids=["gzip", "zstd"])
def test_a_small_batch_that_stands_for_much_is_refused(client, broker, codec):
    """Its size is bounded before anything of that size is made."""
    data = bomb(codec)
    assert len(data) < 1 << 20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert client.produce_batch("words", data)["error_code"] == ErrorCode.INVALID_RECORD

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 40 << 10


def test_what_a_batch_may_stand_for_grows_with_its_topic(client, broker):
    """16 MiB is the least; a topic that takes larger messages takes what these stand for."""
    data = bomb(4, 20 << 20)
    for name, most in (("usual", 1 << 20), ("large", 24 << 20)):
        broker.create_topic(name, config={"cleanup.policy": "compact", "max.message.bytes": str(most)})

    usual, large = client.produce_batch("usual", data), client.produce_batch("large", data)

    assert "stand for more than 16777216" in usual["error_message"]
    # Looked into; it is no record.
    assert large["error_code"] == ErrorCode.INVALID_RECORD
    assert "stand for more" not in large["error_message"]


def test_promised_bytes_cost_nothing_until_they_come(connect):
    """Fifty connections that promise 50 MB each would be 2.5 GB."""
    promises = [connect() for _ in range(50)]
    for client in promises:
        client.raw(struct.pack(">i", 50_000_000) + bytes(100))

    assert connect().call(API_VERSIONS, 0)["error_code"] == 0


# --- limits -------------------------------------------------------------------------------


def test_connections_above_the_limit_are_closed(broker, caplog):
    with broker.serve("127.0.0.1:0", limits=Limits(max_connections=2)) as server:
        first, second = Client(server.bootstrap_servers), Client(server.bootstrap_servers)
        first.call(API_VERSIONS, 0)
        second.call(API_VERSIONS, 0)

        third = Client(server.bootstrap_servers)

        assert third.is_closed
        assert "2 connections already" in caplog.text
        assert first.call(API_VERSIONS, 0)["error_code"] == 0


def test_a_request_above_the_limit_closes_its_connection(broker):
    with broker.serve("127.0.0.1:0", limits=Limits(max_request_bytes=2_000)) as server:
        with Client(server.bootstrap_servers) as client:
            assert client.produce("words", bytes(1_000))["error_code"] == 0
            client.raw(struct.pack(">i", 2_001))
            assert client.is_closed


@pytest.mark.slow
def test_an_idle_connection_is_closed_and_one_that_waits_is_not(broker):
    answers = []

    def fetch():
        """Wait for longer than the limit; on a slow machine the limit may pass before the request is there."""
        with Client(server.bootstrap_servers) as idle, Client(server.bootstrap_servers) as asking:
            with suppress(ConnectionError, EOFError):
                asking.send_fetch("words", max_wait_ms=2_500)
                assert idle.is_closed
                answers.append(values_in(row_of(asking.receive()[1])))

    with broker.serve("127.0.0.1:0", limits=Limits(idle_ms=1_000)) as server:
        waiting.until(lambda: answers, fetch)

    assert answers == [[]]


# --- where it listens ---------------------------------------------------------------------


def broker_of(client):
    (found,) = client.call(METADATA, 8, topics=[])["brokers"]
    return found["host"], found["port"]


def test_clients_are_told_where_it_listens(client, server):
    assert broker_of(client) == (server.host, server.port) == ("127.0.0.1", server.port)


def test_clients_are_told_what_is_advertised(broker):
    with (
        broker.serve("127.0.0.1:0", advertise="kafka.example:9092") as server,
        Client(f"127.0.0.1:{server.port}") as one,
    ):
        assert broker_of(one) == ("kafka.example", 9092)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::"])
def test_behind_every_address_clients_are_told_the_one_they_came_to(host):
    service = TcpService(None, Address(host, 9092), Limits(), None, None)

    assert service.advertised(Address("10.0.0.7", 9092)) == ("10.0.0.7", 9092)


def test_one_broker_may_listen_at_several_addresses(broker, server):
    with broker.serve("127.0.0.1:0") as second, Client(second.bootstrap_servers) as one:
        one.produce("words", b"a")
        server.close()
        assert values_in(one.fetch("words")) == [b"a"]
        assert values_in(one.fetch("words", 1, max_wait_ms=50)) == []


def test_an_address_in_use_is_named(broker, server):
    with pytest.raises(ConfigError, match=f"cannot listen on {server.address}"):
        broker.serve(server.address)


@pytest.mark.parametrize("text", ["9092", "localhost", "localhost:x", "::1:9092", "h:99999"])
def test_an_address_that_is_none_is_refused(broker, text):
    with pytest.raises(ConfigError, match="is not host:port"):
        broker.serve(text)


def test_a_virtual_clock_is_refused():
    with EmbeddedBroker(clock=VirtualClock()) as broker, pytest.raises(ConfigError, match="virtual clock"):
        broker.serve("127.0.0.1:0")


# --- the end ------------------------------------------------------------------------------


def test_the_end_of_the_server_ends_its_connections_and_not_the_broker(broker, server, client):
    client.produce("words", b"a")

    server.close()
    server.close()

    assert client.is_closed
    assert server.wait(0)
    assert stored(broker, "words") == [b"a"]
    with pytest.raises(OSError):
        Client(server.address)


def test_the_end_of_the_broker_ends_its_servers():
    broker = EmbeddedBroker()
    server = broker.serve("127.0.0.1:0")
    with Client(server.bootstrap_servers) as client:
        client.send_fetch("words", max_wait_ms=60_000)
        broker.close()
        assert client.is_closed
    with pytest.raises(BrokerError, match="closed"):
        broker.serve("127.0.0.1:0")


# --- the program --------------------------------------------------------------------------


def started(*options):
    process = programs.start(["-m", "streams", "broker", "--listen", "127.0.0.1:0", *options], stderr=subprocess.PIPE)
    line = process.stderr.readline()
    assert "listens on" in line, line
    return process, line.split("listens on ")[1].split(",")[0]


@pytest.mark.killed
def test_a_killed_broker_has_everything_that_it_acknowledged(tmp_path):
    process, address = started("--data", str(tmp_path), "--partitions", "2")
    with Client(address) as client:
        client.call(METADATA, 8, topics=[{"name": "words"}])
        for number in range(200):
            assert client.produce("words", b"%d" % number)["error_code"] == 0
        process.kill()
        process.wait()
    process.stderr.close()

    process, address = started("--data", str(tmp_path))
    with Client(address) as client:
        seen, offset = [], 0
        while offset < 200:
            seen += values_in(client.fetch("words", offset))
            offset = len(seen)
        assert seen == [b"%d" % number for number in range(200)]
        (topic,) = client.call(METADATA, 8, topics=[{"name": "words"}])["topics"]
        assert len(topic["partitions"]) == 2
    process.terminate()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(number):
    process, address = started()
    with Client(address) as client:
        client.send_fetch("words", max_wait_ms=60_000)
        process.send_signal(number)
        _, err = process.communicate(timeout=300)
        assert client.is_closed
    assert process.returncode == 0
    assert "broker stops" in err
    assert "Traceback" not in err


def test_list_offsets_over_the_wire(client):
    client.produce("words", b"a", b"b")
    asked = [{"name": "words", "partitions": [{"partition_index": 0, "timestamp": -1}]}]

    (topic,) = client.call(LIST_OFFSETS, 5, topics=asked)["topics"]

    assert topic["partitions"][0]["offset"] == 2


def test_bytes_behind_a_request_are_passed_over(client):
    """Kafka does so, and librdkafka sends some: its Metadata 12 for all topics begins with a length in the old form."""
    header = struct.pack(">hhih", 3, 12, 5, 7) + b"rdkafka" + b"\0"
    body = b"\0\0\0\0" + b"\x01\0\0"

    client.raw(struct.pack(">i", len(header + body)) + header + body)

    assert b"words" in client.frame()
    assert client.call(API_VERSIONS, 0)["error_code"] == 0
