"""OAuth tokens before a real Kafka, which checks their signature, audience and lifetime (KIP-768)."""

import json
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from streams import Admin, Consumer, OAuthToken, Producer, Streams, StreamsBuilder, Topic, TopicPartition
from streams.clients import Security
from streams.clients.errors import AuthenticationError
from streams.protocol.messages import TopicSpec
from tests.clients.tcp.tokens import CLOCK, Endpoint, secured, served
from tests.kafka.secured import AUDIENCE, ISSUER, SecuredNode
from tests.waiting import WATCHDOG_MS, WATCHDOG_S, until

pytestmark = pytest.mark.kafka

words = Topic("words", key=str, value=str)
upper = Topic("upper", key=str, value=str)


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


@define
class Signer:
    """A key of RSA in a folder, and the tokens that it signs."""

    folder: Path
    name: str

    def __attrs_post_init__(self) -> None:
        self._openssl("genrsa", "-out", f"{self.name}.key", "2048")

    def write_key_set(self) -> str:
        """Write the public key as a JSON Web Key Set; return the URL of the file."""
        modulus = self._openssl("rsa", "-in", f"{self.name}.key", "-noout", "-modulus").decode().strip()
        number = bytes.fromhex(modulus.removeprefix("Modulus="))
        key = {"kty": "RSA", "kid": self.name, "use": "sig", "alg": "RS256", "n": encoded(number), "e": "AQAB"}
        path = self.folder / "keys.json"
        path.write_text(json.dumps({"keys": [key]}))
        return path.as_uri()

    def token(self, subject: str, lifetime_ms: int = 3_600_000, audience: str = AUDIENCE, kid: str = "ours") -> str:
        now_s = CLOCK.now_ms() // 1000
        claims = {"iss": ISSUER, "sub": subject, "aud": audience, "iat": now_s, "exp": now_s + lifetime_ms // 1000}
        said = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": kid}, claims))
        return f"{said}.{encoded(self._openssl('dgst', '-sha256', '-sign', f'{self.name}.key', given=said.encode()))}"

    def _openssl(self, *arguments: str, given: bytes | None = None) -> bytes:
        command = ["openssl", *arguments]
        return subprocess.run(
            command, cwd=self.folder, input=given, check=True, capture_output=True, timeout=WATCHDOG_S
        ).stdout


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("keys"), "ours")


@pytest.fixture(scope="module")
def servers(signer: Signer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("oauth")
    with SecuredNode(folder, protocol="SASL_PLAINTEXT", jwks=signer.write_key_set()) as node:
        yield node.bootstrap_servers


def by(provider: Any) -> Security:
    return Security("sasl_plaintext", "OAUTHBEARER", sasl_oauthbearer_token_provider=provider)


def test_token_of_a_callable_is_accepted_by_every_client(servers: str, signer: Signer) -> None:
    given: list[str] = []

    def provider() -> OAuthToken:
        given.append(signer.token("ann"))
        return OAuthToken(given[-1], CLOCK.now_ms() + 3_600_000)

    security = by(provider)
    with Admin(bootstrap_servers=servers, security=security) as admin:
        admin.create_topics([TopicSpec("of-ann", 1)])
    with Producer(bootstrap_servers=servers, security=security) as producer:
        assert producer.send("of-ann", b"v", partition=0).base_offset(WATCHDOG_MS) == 0
    with Consumer(bootstrap_servers=servers, security=security, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("of-ann", 0)])
        found: list[bytes] = []
        until(lambda: bool(found), lambda: found.extend(record.value for record in consumer.poll(500)))
    assert found == [b"v"]


def test_client_credentials_are_renewed_while_an_application_runs(servers: str, signer: Signer) -> None:
    """Tokens live 10 s, and Kafka ends a session after 2 s that is not authenticated again (KIP-368)."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).map_values(str.upper).to(upper)

    with served(Endpoint(10_000, signer.token)) as endpoint:
        security = secured(endpoint)
        names = ("token_endpoint_url", "client_id", "client_secret", "scope")
        settings: Any = {
            "security_protocol": "sasl_plaintext",
            "sasl_mechanism": "OAUTHBEARER",
            **{f"sasl_oauthbearer_{name}": getattr(security, f"sasl_oauthbearer_{name}") for name in names},
        }
        with Admin(bootstrap_servers=servers, security=security) as admin:
            admin.create_topics([TopicSpec("words", 1), TopicSpec("upper", 1)])
        sent: list[str] = []
        found: list[str] = []
        with (
            Streams(topology, application_id="tokens", bootstrap_servers=servers, linger_ms=0, **settings) as streams,
            Producer(bootstrap_servers=servers, security=security) as producer,
            Consumer(bootstrap_servers=servers, security=security, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([TopicPartition("upper", 0)], [upper])

            def turn() -> None:
                sent.append(f"w{len(sent)}")
                producer.send(words, sent[-1], key="k").result(WATCHDOG_MS)
                found.extend(record.value for record in consumer.poll(100))

            # Each of the clients has asked for a second token then.
            turn()
            asked = len(endpoint.forms)
            until(lambda: len(endpoint.forms) >= asked + 3, turn)
            until(lambda: len(found) == len(sent), lambda: found.extend(r.value for r in consumer.poll(100)))
            assert streams.failure is None

    assert found == [word.upper() for word in sent]


@pytest.mark.parametrize("mistake", ["another key", "another audience", "expired"])
def test_token_that_kafka_does_not_accept_is_told(servers: str, signer: Signer, mistake: str, tmp_path: Path) -> None:
    tokens = {
        "another key": lambda: Signer(tmp_path, "theirs").token("ann"),
        "another audience": lambda: signer.token("ann", audience="billing"),
        # The clocks of a network may differ; Kafka takes no account of it unless told to.
        "expired": lambda: signer.token("ann", -3_600_000),
    }
    token = tokens[mistake]()

    with Admin(bootstrap_servers=servers, security=by(lambda: OAuthToken(token))) as admin:
        with pytest.raises(AuthenticationError) as caught:
            admin.list_topics()

    assert "invalid_token" in str(caught.value) or "invalid credentials" in str(caught.value)
    assert token not in str(caught.value)
