"""Certificates and nodes for tests of TLS and authentication, and nodes that clients know by another address."""

import subprocess
from pathlib import Path

from attrs import define, field

from tests.kafka.node import KafkaNode
from tests.waiting import WATCHDOG_S

AUDIENCE, ISSUER = "kafka", "https://tokens.example"
USERS = {"alice": "alice's password", "bob": "b=o,b"}


@define
class Certificates:
    """An authority, a server's certificate for 127.0.0.1 that it issued, and another authority that issued nothing."""

    folder: Path

    def __attrs_post_init__(self) -> None:
        for authority in ("ca", "other"):
            self._openssl(
                *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={authority}"),
                *("-keyout", f"{authority}.key", "-out", f"{authority}.pem"),
            )
        self._openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=server", "-keyout", "raw.key", "-out", "server.csr")
        )
        # The form that Java reads.
        self._openssl("pkcs8", "-topk8", "-nocrypt", "-in", "raw.key", "-out", "server.key")
        (self.folder / "names.cnf").write_text("subjectAltName=IP:127.0.0.1\n")
        self._openssl(
            *("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-days", "2", "-extfile", "names.cnf", "-out", "server.pem"),
        )
        both = (self.folder / "server.key").read_text() + (self.folder / "server.pem").read_text()
        (self.folder / "keystore.pem").write_text(both)

    def file(self, name: str) -> str:
        """Path of ca.pem, other.pem, server.pem, server.key or keystore.pem (both of the latter)."""
        return str(self.folder / name)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, timeout=WATCHDOG_S)


@define(eq=False)
class SecuredNode(KafkaNode):
    """A node whose clients connect in the named way (Kafka's ``security.protocol``), as ``USERS``.

    With ``jwks``, the URL of a set of keys, they may also connect with a token that one of the keys has signed, and
    whose issuer and audience are ``ISSUER`` and ``AUDIENCE``.
    """

    protocol: str = field(default="SASL_SSL", kw_only=True)
    keystore: str = field(default="", kw_only=True)
    jwks: str = field(default="", kw_only=True)

    def _java(self, main: str, *arguments: str) -> list[str]:
        command = super()._java(main, *arguments)
        if self.jwks:
            command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.jwks}")
        return command

    def serves(self) -> bool:
        """Whether it is up; who knocks without saying who he is gets no further than that."""
        try:
            return super().serves()
        except OSError:
            return "Kafka Server started" in self.log.read_text(errors="replace")[self._log_start :]

    def _write_settings(self) -> None:
        super()._write_settings()
        text = self._properties.read_text(encoding="utf-8")
        text = text.replace("PLAINTEXT://127", f"{self.protocol}://127")
        text = text.replace("inter.broker.listener.name=PLAINTEXT", f"inter.broker.listener.name={self.protocol}")
        text = text.replace(
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT", f"CONTROLLER:PLAINTEXT,{self.protocol}:{self.protocol}"
        )
        alice = f'username="alice" password="{USERS["alice"]}"'
        prefix = f"listener.name.{self.protocol.lower()}"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        more = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"{prefix}.plain.sasl.jaas.config": f"{plain} required {alice} {users};",
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{scram} required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{scram} required;",
            # Short, so that a session is renewed while a test runs.
            "connections.max.reauth.ms": 2_000,
        }
        if self.jwks:
            bearer = "org.apache.kafka.common.security.oauthbearer"
            more |= {
                "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
                f"{prefix}.oauthbearer.sasl.jaas.config": f"{bearer}.OAuthBearerLoginModule required;",
                f"{prefix}.oauthbearer.sasl.server.callback.handler.class": (
                    f"{bearer}.OAuthBearerValidatorCallbackHandler"
                ),
                f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.jwks,
                f"{prefix}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
                f"{prefix}.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
            }
        if "SSL" in self.protocol.split("_"):
            trusted = str(Path(self.keystore).with_name("ca.pem"))
            more |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self.keystore,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": trusted,
            }
        self._properties.write_text(
            text + "".join(f"{name}={value}\n" for name, value in more.items()), encoding="utf-8"
        )


@define(eq=False)
class AdvertisedNode(KafkaNode):
    """A node whose clients are told another port than its own: that of a proxy."""

    advertised_port: int = field(default=0, kw_only=True)

    def _write_settings(self) -> None:
        super()._write_settings()
        text = self._properties.read_text(encoding="utf-8")
        own = f"advertised.listeners=PLAINTEXT://{self.bootstrap_servers}"
        self._properties.write_text(
            text.replace(own, f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.advertised_port}"), encoding="utf-8"
        )
