"""Bounds: who is not in yet gets little, who is idle keeps nobody out, who does not read costs nothing."""

import contextlib
import os
import resource
import signal
import socket
import ssl
import struct
import subprocess
import textwrap
import time

import pytest

from streams.broker.logs.limits import FETCH_BYTES, REQUEST_ITEMS, REQUESTS_AT_ONCE, SCARCE_FETCH_BYTES, UNSENT_BYTES
from streams.broker.tcp import Address, Limits, connection
from streams.broker.tcp.tcp_service import TcpService
from streams.core.blocks.records import TopicPartition
from streams.protocol.error_codes import ErrorCode
from tests import programs, waiting
from tests.broker.tcp.by_hand import API_VERSIONS, METADATA, Client, row_of, values_in

HANDSHAKE, AUTHENTICATE, OFFSET_COMMIT = 17, 36, 8
USERS = {"alice": "secret"}
NEVER_MS = 600_000


def log_in(client, password=b"secret"):
    client.call(HANDSHAKE, 1, mechanism="PLAIN")
    return client.call(AUTHENTICATE, 1, auth_bytes=b"\0alice\0" + password)


def await_(condition):
    waiting.until(condition)


# --- before a client is in ----------------------------------------------------------------


def test_before_a_login_frames_are_small(broker):
    with broker.serve("127.0.0.1:0", users=USERS, limits=Limits(max_login_bytes=2_000)) as server:
        with Client(server.bootstrap_servers) as client:
            client.raw(struct.pack(">i", 2_001))
            assert client.is_closed
        with Client(server.bootstrap_servers) as client:
            log_in(client)
            assert client.produce("words", bytes(100_000))["error_code"] == ErrorCode.NONE


def test_the_bound_before_a_login_is_kafkas():
    assert Limits().max_login_bytes == 524_288


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        ("PLAIN", b"\0" * 16_385),
        ("SCRAM-SHA-256", b"n,,n=alice,r=x" + b"," * 20),
        ("SCRAM-SHA-256", b"n,,n=alice,r=" + b"x" * 16_385),
    ],
    ids=["bytes", "attributes", "nonce"],
)
def test_a_token_is_short(broker, mechanism, token):
    with broker.serve("127.0.0.1:0", users=USERS) as server, Client(server.bootstrap_servers) as client:
        client.call(HANDSHAKE, 1, mechanism=mechanism)

        answer = client.call(AUTHENTICATE, 1, auth_bytes=token)

        assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed


@pytest.mark.parametrize("users", [USERS, None])
def test_who_is_not_in_in_time_is_put_out(broker, users):
    with broker.serve("127.0.0.1:0", users=users, limits=Limits(login_ms=200)) as server:
        with Client(server.bootstrap_servers) as silent:
            assert silent.is_closed


def test_with_users_who_has_logged_in_is_in(broker):
    """What may be asked before does not count."""
    with broker.serve("127.0.0.1:0", users=USERS) as server, Client(server.bootstrap_servers) as client:
        client.call(API_VERSIONS, 0)
        (connection,) = server._listener.connections
        assert connection in server._listener._unauthenticated
        assert not connection._login_timer.cancelled()

        log_in(client)
        client.call(API_VERSIONS, 0)

        assert not server._listener._unauthenticated
        assert connection._login_timer.cancelled()


def test_without_users_who_has_asked_for_anything_is_in(broker):
    with broker.serve("127.0.0.1:0") as server, Client(server.bootstrap_servers) as client:
        client.call(API_VERSIONS, 0)

        (connection,) = server._listener.connections
        assert not server._listener._unauthenticated
        assert connection._login_timer.cancelled()


def test_connections_without_login_do_not_keep_others_out(broker):
    """The one that is here longest without being in goes first."""
    with broker.serve("127.0.0.1:0", users=USERS, limits=Limits(max_connections=3, login_ms=NEVER_MS)) as server:
        strangers = [Client(server.bootstrap_servers) for _ in range(3)]
        for stranger in strangers:
            stranger.call(API_VERSIONS, 0)

        with Client(server.bootstrap_servers) as client:
            assert log_in(client)["error_code"] == ErrorCode.NONE
            assert strangers[0].is_closed
            assert strangers[1].call(API_VERSIONS, 0)["error_code"] == 0
        for stranger in strangers:
            stranger.socket.close()


def test_who_is_in_is_not_put_out_for_others(broker):
    with broker.serve("127.0.0.1:0", users=USERS, limits=Limits(max_connections=1)) as server:
        with Client(server.bootstrap_servers) as client:
            log_in(client)

            with Client(server.bootstrap_servers) as other:
                assert other.is_closed
            assert client.produce("words", b"a")["error_code"] == ErrorCode.NONE


def test_connections_count_while_they_shake_hands(broker, certificate):
    """Silent ones of TLS too: bounded as all others, and they keep nobody out."""
    files = {"tls_cert": certificate / "cert.pem", "tls_key": certificate / "key.pem"}
    context = ssl.create_default_context(cafile=certificate / "cert.pem")
    limits = Limits(max_connections=4, login_ms=NEVER_MS)
    with broker.serve("localhost:0", **files, limits=limits) as server:
        silent = [socket.create_connection((server.host, server.port), timeout=waiting.WATCHDOG_S) for _ in range(12)]
        listener = server._listener
        with Client(
            server.bootstrap_servers, lambda plain: context.wrap_socket(plain, server_hostname="localhost")
        ) as c:
            assert c.call(API_VERSIONS, 0)["error_code"] == 0
            assert len(listener.connections) <= 4
        with contextlib.suppress(ConnectionResetError):
            assert silent[0].recv(1) == b""
        for one in silent:
            one.close()
        await_(lambda: not listener.connections)


def test_a_handshake_that_takes_too_long_is_ended(broker, certificate):
    files = {"tls_cert": certificate / "cert.pem", "tls_key": certificate / "key.pem"}
    with broker.serve("127.0.0.1:0", **files, limits=Limits(login_ms=300)) as server:
        with Client(server.bootstrap_servers) as silent:
            assert silent.is_closed
        await_(lambda: not server._listener.connections)


def test_a_server_ends_with_connections_that_shake_hands(broker, certificate):
    server = broker.serve("127.0.0.1:0", tls_cert=certificate / "cert.pem", tls_key=certificate / "key.pem")
    with Client(server.bootstrap_servers) as silent:
        await_(lambda: server._listener.connections)
        server.close()
        assert silent.is_closed
    assert server.wait(0)


# --- failed logins ------------------------------------------------------------------------


def test_failed_logins_of_a_host_wait_one_behind_the_other():
    service = TcpService(None, Address("h", 1), Limits(failed_login_delay_ms=10_000), None, None)

    first, second, other = (service.penalty_s(host, 0) for host in ("/1", "/1", "/2"))
    many = [service.penalty_s("/1", 0) for _ in range(100)]

    assert first == other == pytest.approx(10, abs=0.001)
    assert 10 < second <= 20
    # Nobody waits longer than for a login at all.
    assert max(many) <= 30


def test_a_failed_login_is_answered_late_and_delays_nobody_else(broker):
    with broker.serve("127.0.0.1:0", users=USERS, limits=Limits(failed_login_delay_ms=400)) as server:
        with Client(server.bootstrap_servers) as guessing, Client(server.bootstrap_servers) as other:
            guessing.call(HANDSHAKE, 1, mechanism="PLAIN")
            began = time.monotonic()
            guessing.send(AUTHENTICATE, 1, auth_bytes=b"\0alice\0guess")
            assert log_in(other)["error_code"] == ErrorCode.NONE

            _, answer = guessing.receive()

            assert time.monotonic() - began >= 0.4
            assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert guessing.is_closed


# --- who does not read --------------------------------------------------------------------


@pytest.fixture
def large(broker):
    """A topic of 60 MB, in memory."""
    value = os.urandom(900_000)
    with broker.serve("127.0.0.1:0") as server, Client(server.bootstrap_servers) as client:
        for _ in range(67):
            client.produce("words", value)
    return value


ALL = 2**31 - 1


def fetch_all(client):
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": ALL}
    client.send(1, 11, max_wait_ms=0, min_bytes=1, max_bytes=ALL, topics=[{"topic": "words", "partitions": [row]}])


@pytest.mark.slow
def test_an_answer_that_nobody_takes_is_not_copied(broker, large):
    with broker.serve("127.0.0.1:0") as server, Client(server.bootstrap_servers) as client:
        fetch_all(client)
        await_(lambda: server._listener.service.unsent_bytes)
        (connection,) = server._listener.connections

        kept = {id(getattr(piece, "obj", piece)) for piece in connection._output}
        blocks = broker._machine.topics.logs[TopicPartition("words", 0)].storage._blocks
        in_log = {id(block.data) for block in blocks}

        assert connection._transport.get_write_buffer_size() < 1 << 20
        assert len(kept & in_log) > len(kept) - 2
        assert values_in(row_of(client.receive()[1])) == [large] * 64
        await_(lambda: not server._listener.service.unsent_bytes)


@pytest.mark.slow
def test_a_fetch_is_bounded_whatever_it_asks_for(client, large):
    fetch_all(client)

    assert 50_000_000 < len(row_of(client.receive()[1])["records"]) <= FETCH_BYTES == 57_671_680


def test_where_much_is_not_taken_fetches_get_little(broker, large):
    with broker.serve("127.0.0.1:0") as server, Client(server.bootstrap_servers) as client:
        server._listener.service.unsent_bytes += UNSENT_BYTES
        fetch_all(client)

        assert len(row_of(client.receive()[1])["records"]) <= SCARCE_FETCH_BYTES


def test_who_is_gone_leaves_no_unsent_bytes(broker, large):
    with broker.serve("127.0.0.1:0") as server:
        with Client(server.bootstrap_servers) as client:
            fetch_all(client)
            await_(lambda: server._listener.service.unsent_bytes)
        await_(lambda: not server._listener.connections)

        assert server._listener.service.unsent_bytes == 0


# --- one request --------------------------------------------------------------------------

CREATE_TOPICS, CREATE_PARTITIONS, DESCRIBE_GROUPS, DESCRIBE_CONFIGS = 19, 37, 15, 32
INCREMENTAL_ALTER_CONFIGS, DESCRIBE_PRODUCERS, DESCRIBE_LOG_DIRS = 44, 61, 35


def new_topic(name, partitions):
    return {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}


def test_a_topic_is_told_once_however_often_it_is_named(client):
    answer = client.call(METADATA, 1, topics=[{"name": "words"}] * 1_000)

    assert [topic["name"] for topic in answer["topics"]] == ["words"]


def test_groups_settings_and_partitions_are_told_once(client):
    resource = {"resource_type": 2, "resource_name": "words", "configuration_keys": None}
    rows = [{"topic": "words", "partitions": [0, 0, 0]}] * 3
    producers = [{"name": "words", "partition_indexes": [0, 0, 0]}] * 3

    assert len(client.call(DESCRIBE_GROUPS, 0, groups=["g"] * 100)["groups"]) == 1
    assert len(client.call(DESCRIBE_CONFIGS, 1, resources=[resource] * 100)["results"]) == 1
    ((folder,),) = [client.call(DESCRIBE_LOG_DIRS, 1, topics=rows)["results"]]
    assert [len(topic["partitions"]) for topic in folder["topics"]] == [1]
    (topic,) = client.call(DESCRIBE_PRODUCERS, 0, topics=producers)["topics"]
    assert len(topic["partitions"]) == 1


def test_a_resource_is_altered_once_in_a_request(client, broker):
    """As in Kafka: which of two changes would count is not to be guessed, and each writes the topics' file."""
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "1000"}]
    row = {"resource_type": 2, "resource_name": "words", "configs": configs}

    (found,) = client.call(INCREMENTAL_ALTER_CONFIGS, 0, resources=[row, row], validate_only=False)["responses"]

    assert found["error_code"] == ErrorCode.INVALID_REQUEST
    assert found["error_message"] == "Each resource must appear at most once."
    assert broker.describe_topic("words").config["retention.ms"] != "1000"


def test_more_items_in_a_request_than_are_taken_close_its_connection(connect):
    """In all arrays together: topics of one partition each are two items."""
    client, other = connect(), connect()
    rows = [{"topic": "words", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]}]
    client.send(1, 4, replica_id=-1, max_wait_ms=0, min_bytes=0, topics=rows * (REQUEST_ITEMS // 2 + 1))

    assert client.is_closed
    assert other.call(API_VERSIONS, 0)["error_code"] == 0
    assert len(other.call(METADATA, 1, topics=[{"name": "words"}] * REQUEST_ITEMS)["topics"]) == 1


def test_a_name_is_bounded(connect):
    """Names of groups are kept as long as these; the flexible form has no bound of its own."""
    client, other = connect(), connect()
    client.send(OFFSET_COMMIT, 8, group_id="g" * 131_073, generation_id_or_member_epoch=-1, member_id="", topics=[])

    assert client.is_closed
    assert other.call(API_VERSIONS, 0)["error_code"] == 0


@pytest.mark.parametrize("counts", [[10_001], [9_000, 1_001], [2_000_000]])
def test_a_request_creates_no_more_partitions_than_in_kafka(client, broker, counts):
    rows = [new_topic(f"t{number}", count) for number, count in enumerate(counts)]

    answer = client.call(CREATE_TOPICS, 2, topics=rows, timeout_ms=1_000)

    for row in answer["topics"]:
        assert row["error_code"] == ErrorCode.POLICY_VIOLATION
        assert row["error_message"] == "Excessively large number of partitions per request."
    assert broker.topics() == {"words": 1}


def test_no_request_gives_a_topic_more_partitions_than_that(client, broker):
    row = {"name": "words", "count": 10_002, "assignments": None}

    (found,) = client.call(CREATE_PARTITIONS, 1, topics=[row], timeout_ms=1_000)["results"]

    assert found["error_code"] == ErrorCode.POLICY_VIOLATION
    assert len(broker.describe_topic("words").leaders) == 1


def test_asking_for_topics_creates_no_more_than_that(client, broker):
    names = [{"name": f"t{number}"} for number in range(10_001)]

    answer = client.call(METADATA, 8, topics=names)

    assert {row["error_code"] for row in answer["topics"]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert broker.topics() == {"words": 1}


def test_what_is_left_of_a_large_request_is_not_done_when_the_broker_ends(client, broker):
    broker._machine.begin_to_end()

    (row,) = client.call(CREATE_TOPICS, 2, topics=[new_topic("late", 1)], timeout_ms=1_000)["topics"]

    assert row["error_code"] == ErrorCode.REQUEST_TIMED_OUT
    assert broker.topics() == {"words": 1}


def test_an_answer_that_is_too_long_closes_its_connection(connect, monkeypatch):
    monkeypatch.setattr(connection, "ANSWER_BYTES", 10_000)
    client, other = connect(), connect()
    client.produce("words", bytes(20_000))

    client.send_fetch("words")

    assert client.is_closed
    assert other.call(API_VERSIONS, 0)["error_code"] == 0


def test_many_requests_of_one_client_do_not_hold_up_others(connect):
    """They take turns: all are answered, and in order."""
    client = connect()

    sent = [client.send(API_VERSIONS, 0) for _ in range(3 * REQUESTS_AT_ONCE)]

    assert [client.receive()[0] for _ in sent] == sent


# --- descriptors --------------------------------------------------------------------------


def started(*options, soft, hard):
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))"
    program = f"{limit}; import sys; from streams.cli import main; sys.exit(main())"
    process = programs.start(["-c", program, "broker", "--listen", "127.0.0.1:0", *options], stderr=subprocess.PIPE)
    line = process.stderr.readline()
    assert "listens on" in line, line
    return process, line.split("listens on ")[1].split(",")[0]


def ended(process):
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    return err


def test_idle_clients_do_not_take_the_descriptors_of_files(tmp_path):
    process, address = started("--data", str(tmp_path), "--partitions", "100", soft=128, hard=128)
    idle = []
    with Client(address) as client:
        client.call(METADATA, 8, topics=[{"name": "words"}])
        for _ in range(200):
            one = Client(address)
            with contextlib.suppress(OSError, EOFError):
                one.call(API_VERSIONS, 0)
            idle.append(one)

        errors = [client.produce("words", b"a", partition=number)["error_code"] for number in range(100)]
        rows = [
            {"name": "words", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
        ]
        (topic,) = client.call(
            OFFSET_COMMIT, 5, group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=rows
        )["topics"]

    err = ended(process)
    for one in idle:
        one.socket.close()
    assert errors == [0] * 100
    assert topic["partitions"][0]["error_code"] == ErrorCode.NONE
    assert "left to files" in err
    assert "Traceback" not in err


def test_the_program_raises_its_limit_of_open_files():
    process, _ = started(soft=128, hard=700)

    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)

    ended(process)
    assert limits == (700, 700)


def test_without_any_descriptor_left_it_waits_and_says_so_once():
    """A client connects while there is none; it is served when there is one again."""
    script = """
        import os, resource, socket
        from streams.broker import EmbeddedBroker
        from tests.waiting import WATCHDOG_MS, until
        from tests.broker.tcp.by_hand import API_VERSIONS, Client

        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0") as server:
            waiting = []
            taken = []
            plain = [socket.socket() for _ in range(3)]
            try:
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                pass
            for one in plain:
                one.settimeout(WATCHDOG_MS / 1_000)
                one.connect((server.host, server.port))
            until(lambda: server._listener._has_said_full)
            for descriptor in taken:
                os.close(descriptor)
            for one in plain:
                client = Client.over(one)
                assert client.call(API_VERSIONS, 0)["error_code"] == 0
        print("served")
    """
    done = programs.run(["-c", textwrap.dedent(script)])

    assert done.stdout == "served\n", done.stderr
    assert done.stderr.count("no more connections are accepted") == 1
    assert "Traceback" not in done.stderr
