"""TLS and authentication: what is let in, what is not, and what is said about it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.broker import EmbeddedBroker
from streams.clients import Admin, Consumer, Producer
from streams.clients.errors import AuthenticationError, DisconnectedError
from streams.clients.tcp import Security, TcpCluster
from streams.clients.tcp.security import sasl_exchange
from streams.core.blocks.records import TopicPartition
from streams.core.clock import SystemClock
from streams.core.errors import BrokerError, ConfigError
from streams.protocol.messages import TopicSpec
from tests.kafka.secured import USERS, Certificates, SecuredNode
from tests.waiting import WATCHDOG_MS, WATCHDOG_S, until, until_raised

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
CLOCK = SystemClock()

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=["served", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(
    request: pytest.FixtureRequest, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where a broker listens that wants TLS and users."""
    if request.param == "kafka":
        folder = tmp_path_factory.mktemp("secured")
        with SecuredNode(folder, protocol="SASL_SSL", keystore=certificates.file("keystore.pem")) as node:
            _add_scram_users(node.bootstrap_servers, certificates)
            yield node.bootstrap_servers
        return
    with EmbeddedBroker() as broker:
        tls = {"tls_cert": certificates.file("server.pem"), "tls_key": certificates.file("server.key")}
        with broker.serve("127.0.0.1:0", users=USERS, **tls) as server:
            yield server.bootstrap_servers


def _add_scram_users(servers: str, certificates: Certificates) -> None:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    settings = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": USERS["alice"],
        "ssl.ca.location": certificates.file("ca.pem"),
    }
    # The client has to outlive its futures.
    admin = AdminClient(settings)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = ScramCredentialInfo(mechanism, 4096)
        wanted = [UserScramCredentialUpsertion(user, credential, text.encode()) for user, text in USERS.items()]
        for done in admin.alter_user_scram_credentials(wanted).values():
            done.result(WATCHDOG_S)


def secured(certificates: Certificates, mechanism: str = "PLAIN", user: str = "alice", **changes: str) -> Security:
    given = {
        "security_protocol": "sasl_ssl",
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": USERS.get(user, ""),
        "ssl_ca_location": certificates.file("ca.pem"),
    }
    return Security(**{**given, **changes})


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", sorted(USERS))
def test_user_with_the_right_password_is_let_in(servers: str, certificates: Certificates, mechanism: str, user: str):
    security = secured(certificates, mechanism, user)
    topic = f"of-{user}-{mechanism}"
    with Admin(bootstrap_servers=servers, security=security) as admin:
        admin.create_topics([TopicSpec(topic, 1)])
    with Producer(bootstrap_servers=servers, security=security) as producer:
        # More than one record of TLS.
        sizes = [1, 100_000, 900_000]
        for size in sizes:
            producer.send(topic, b"x" * size, partition=0)
        producer.flush()
    with Consumer(bootstrap_servers=servers, security=security, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[int] = []
        until(lambda: len(found) == len(sizes), lambda: found.extend(len(r.value) for r in consumer.poll(500)))
    assert found == sizes


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_password_is_told_by_every_client(servers: str, certificates: Certificates, mechanism: str):
    security = secured(certificates, mechanism, sasl_password="wrong")
    with Admin(bootstrap_servers=servers, security=security) as admin, pytest.raises(AuthenticationError):
        admin.list_topics()
    with Producer(bootstrap_servers=servers, security=security) as producer, pytest.raises(BrokerError, match="alice"):
        producer.send("t", b"v")
    consumer = Consumer(bootstrap_servers=servers, group_id="g", security=security)
    consumer.subscribe(["t"])
    with pytest.raises(AuthenticationError, match="alice"):
        until(lambda: False, lambda: consumer.poll(500))
    consumer.close(0)


def test_certificate_of_a_stranger_is_refused(servers: str, certificates: Certificates):
    security = secured(certificates, ssl_ca_location=certificates.file("other.pem"))
    with Admin(bootstrap_servers=servers, security=security) as admin:
        with pytest.raises(AuthenticationError, match=r"not trusted.*ssl_ca_location"):
            admin.list_topics()


def test_certificate_for_another_host_is_refused(servers: str, certificates: Certificates):
    """It is for 127.0.0.1, and says nothing of localhost."""
    port = servers.rpartition(":")[2]
    with Admin(bootstrap_servers=f"localhost:{port}", security=secured(certificates)) as admin:
        with pytest.raises(AuthenticationError, match="not trusted"):
            admin.list_topics()


def test_client_that_does_not_speak_tls_is_told_to_look_at_it(servers: str):
    with Admin(TcpCluster(servers, hold_ms=500)) as admin:
        until_raised(DisconnectedError, "security_protocol", admin.list_topics)


@pytest.mark.slow
def test_session_that_ends_is_renewed(servers: str, certificates: Certificates):
    """A real broker closes a connection whose session is over (here two seconds): none of ours runs into it."""
    security = secured(certificates, "SCRAM-SHA-256")
    with Producer(bootstrap_servers=servers, security=security) as producer:
        with Admin(bootstrap_servers=servers, security=security) as admin:
            admin.create_topics([TopicSpec("renewed", 1)])
        offsets: list[int] = []
        started_ms = CLOCK.monotonic_ms()
        while CLOCK.monotonic_ms() < started_ms + 5_000:
            offsets.append(producer.send("renewed", b"v", partition=0).base_offset(WATCHDOG_MS))
            producer.poll(50)
    assert offsets == list(range(len(offsets)))


def test_tls_to_a_server_without_it(certificates: Certificates):
    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0") as server:
        cluster = TcpCluster(server.bootstrap_servers, secured(certificates), connect_timeout_ms=500, hold_ms=600)
        with Admin(cluster) as admin, pytest.raises(DisconnectedError):
            admin.list_topics()


def test_security_that_cannot_be_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="sasl_username"):
        Security("sasl_ssl")
    with pytest.raises(ConfigError, match="sasl_username, sasl_password would not be used: security_protocol is 'ssl'"):
        Security("ssl", sasl_username="alice", sasl_password="secret")
    with pytest.raises(ConfigError, match="ssl_ca_location would not be used: security_protocol is 'plaintext'"):
        Security(ssl_ca_location="ca.pem")
    with pytest.raises(ConfigError, match="PEM"):
        TcpCluster("127.0.0.1:9092", Security("ssl", ssl_ca_location=str(tmp_path / "none.pem")))


def test_scram_is_that_of_the_standard():
    """The exchange that RFC 7677 gives as its example."""
    security = Security("sasl_plaintext", "SCRAM-SHA-256", "user", "pencil")
    exchange = sasl_exchange(security, "rOprNGfwEbeRWgbNEkqO")

    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = exchange.send(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("first", "final"),
    [
        ("r=somebody-else,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", ""),
        ("r=nonce+,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1", ""),
        ("r=nonce+,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "v=AAAA"),
        ("r=nonce+,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "e=invalid-proof"),
    ],
)
def test_server_that_cannot_prove_itself_is_refused(first: str, final: str):
    exchange = sasl_exchange(Security("sasl_plaintext", "SCRAM-SHA-512", "user", "pencil"), "nonce")
    next(exchange)

    with pytest.raises(AuthenticationError, match="SCRAM"):
        exchange.send(first.encode())
        exchange.send(final.encode())


@pytest.mark.parametrize("iterations", ["4095", "1000001", "9" * 5_000])
def test_a_broker_that_asks_for_too_few_or_too_many_iterations_is_refused(iterations):
    """Too few let it try passwords out, too many keep the client busy for as long as it likes."""
    security = Security("sasl_plaintext", "SCRAM-SHA-256", "alice", "secret")
    exchange = sasl_exchange(security, "nonce")
    next(exchange)

    with pytest.raises(AuthenticationError, match="4096 to 1000000 are taken"):
        exchange.send(f"r=nonceserver,s=AAAA,i={iterations}".encode())
