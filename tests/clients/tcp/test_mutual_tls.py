"""Certificates of clients, with an encrypted key: who is let in by a broker that asks for them."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.broker import EmbeddedBroker, ServerTls
from streams.clients import Admin, DisconnectedError, Security
from streams.clients.tcp import TcpCluster
from streams.core.errors import ConfigError
from tests.kafka.secured import Certificates
from tests.waiting import WATCHDOG_S

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
PASSWORD = "hunter2"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    # The same certificate serves both sides; a server and a client, each with its key encrypted.
    command = ["openssl", "pkcs8", "-topk8", "-in", "raw.key", "-out", "encrypted.key", "-passout", f"pass:{PASSWORD}"]
    subprocess.run(command, cwd=made.folder, check=True, capture_output=True, timeout=WATCHDOG_S)
    (made.folder / "password").write_text(f"{PASSWORD}\n")
    return made


@pytest.fixture(scope="module")
def servers(certificates: Certificates) -> Iterator[str]:
    tls = ServerTls(
        certificates.file("server.pem"), certificates.file("encrypted.key"), PASSWORD, certificates.file("ca.pem")
    )
    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0", tls=tls) as server:
        yield server.bootstrap_servers


def secured(certificates: Certificates, **changes: str) -> Security:
    given = {
        "ssl_ca_location": certificates.file("ca.pem"),
        "ssl_certificate_location": certificates.file("server.pem"),
        "ssl_key_location": certificates.file("encrypted.key"),
    }
    return Security(**{"security_protocol": "ssl", **given, **changes})


@pytest.mark.case
@pytest.mark.parametrize("form", ["", "_file", "_command"])
def test_client_with_a_certificate_is_let_in(servers: str, certificates: Certificates, form: str):
    path = certificates.file("password")
    given = {"": PASSWORD, "_file": path, "_command": f"cat '{path}'"}[form]
    with Admin(TcpCluster(servers, secured(certificates, **{f"ssl_key_password{form}": given}))) as admin:
        assert admin.list_topics() == []


def test_client_without_a_certificate_is_not(servers: str, certificates: Certificates):
    security = Security("ssl", ssl_ca_location=certificates.file("ca.pem"))
    with Admin(TcpCluster(servers, security, hold_ms=300)) as admin, pytest.raises(DisconnectedError):
        admin.list_topics()


@pytest.mark.case(2)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "ssl_key_password"),
        ({"ssl_key_password": "wrong"}, "encrypted.key.*cannot be used"),
        ({"ssl_key_password_file": "/none"}, "setting 'ssl_key_password_file': /none cannot be read"),
        ({"ssl_key_password_command": "false"}, "setting 'ssl_key_password_command': 'false' fails: it ended with"),
        ({"ssl_key_password_command": "no-such-command a"}, "'no-such-command' fails: No such file"),
        ({"ssl_key_password_command": "true"}, "its output has nothing in its first line"),
        ({"ssl_key_password": "a", "ssl_key_password_file": "b"}, "ssl_key_password_file: give one of them"),
    ],
)
def test_key_that_cannot_be_opened_is_told(certificates: Certificates, changes: dict[str, str], message: str):
    with pytest.raises(ConfigError, match=message) as caught:
        TcpCluster("127.0.0.1:9", secured(certificates, **changes))
    assert PASSWORD not in str(caught.value)


def test_broker_without_the_password_of_its_key_says_so(certificates: Certificates, tmp_path: Path):
    with EmbeddedBroker() as broker, pytest.raises(ConfigError, match=r"encrypted\.key"):
        broker.serve("127.0.0.1:0", tls=ServerTls(certificates.file("server.pem"), certificates.file("encrypted.key")))
