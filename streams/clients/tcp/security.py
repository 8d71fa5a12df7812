"""How connections are secured: TLS, and who the client is (SASL PLAIN and SCRAM).

Sans I/O: the messages of an exchange go in and out as bytes; sockets are the channel's.  RFC 5802,
RFC 4616, KIP-43, KIP-84.  Imports core only.
"""

import hashlib
import hmac
import ssl
from base64 import b64decode, b64encode
from collections.abc import Generator
from typing import Final

from attrs import field, fields, frozen
from attrs.validators import in_

from streams.clients.errors import AuthenticationError
from streams.core.config import StreamsConfig
from streams.core.errors import ConfigError

PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

# Fewer say that somebody wants to try passwords out (RFC 5802).
_MIN_ITERATIONS: Final = 4_096
# More would keep the client busy for a broker that nobody has proved to be one yet; Kafka's own are 16,384 at most.
_MAX_ITERATIONS: Final = 1_000_000
# More digits are no number of iterations, and take time to be read as one.
_MAX_DIGITS: Final = 9

#: Gives the client's messages and takes the server's; ends when both are content.
Exchange = Generator[bytes, bytes, None]


@frozen
class Security:
    """How to connect; the names are those of the settings.

    Over TLS the broker's certificate must be issued by someone in ``ssl_ca_location`` (empty = the system's) for
    the host that is connected to.
    """

    security_protocol: str = field(default="plaintext", validator=in_(PROTOCOLS))
    sasl_mechanism: str = field(default="PLAIN", validator=in_(MECHANISMS))
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""

    @classmethod
    def of(cls, config: StreamsConfig) -> "Security":
        """Return what an application's settings say."""
        return cls(
            config.security_protocol,
            config.sasl_mechanism,
            config.sasl_username,
            config.sasl_password,
            config.ssl_ca_location,
            config.ssl_certificate_location,
            config.ssl_key_location,
        )

    def __attrs_post_init__(self) -> None:
        if self.has_sasl and not self.sasl_username:
            raise ConfigError(f"security_protocol={self.security_protocol!r} needs sasl_username and sasl_password")
        kinds = [kind for kind, is_used in (("sasl", self.has_sasl), ("ssl", self.has_tls)) if not is_used]
        unused = [name for name in self.given() if name.partition("_")[0] in kinds]
        if unused:
            raise ConfigError(
                f"{', '.join(unused)} would not be used: security_protocol is {self.security_protocol!r}; set it to "
                f"{'sasl_ssl or sasl_plaintext' if unused[0].startswith('sasl') else 'ssl or sasl_ssl'}"
            )

    def given(self) -> list[str]:
        """Return the names of the settings that differ from their defaults."""
        return [part.name for part in fields(type(self)) if getattr(self, part.name) != part.default]

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("ssl", "sasl_ssl")

    @property
    def has_sasl(self) -> bool:
        """Whether the client says who it is."""
        return self.security_protocol in ("sasl_plaintext", "sasl_ssl")

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS needs, None without it.

        Raises:
            ConfigError: a file cannot be read, or is none of certificates.
        """
        if not self.has_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca_location or None)
            if self.ssl_certificate_location:
                context.load_cert_chain(self.ssl_certificate_location, self.ssl_key_location or None)
        except (OSError, ssl.SSLError) as error:
            given = (self.ssl_ca_location, self.ssl_certificate_location, self.ssl_key_location)
            files = ", ".join(repr(name) for name in given if name)
            raise ConfigError(f"TLS: {files} cannot be used: {error}; give PEM files") from error
        return context

    def exchange(self, nonce: str) -> Exchange:
        """Return the client's side of the mechanism; ``nonce`` is to be new each time."""
        if self.sasl_mechanism == "PLAIN":
            return _plain(self.sasl_username, self.sasl_password)
        algorithm = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[self.sasl_mechanism]
        return _scram(algorithm, self.sasl_username, self.sasl_password, nonce)


def _plain(username: str, password: str) -> Exchange:
    yield b"\0".join((b"", username.encode(), password.encode()))


def _scram(algorithm: str, username: str, password: str, nonce: str) -> Exchange:
    """Prove that the password is known without saying it, and have the server prove the same.

    Raises:
        AuthenticationError: the server's words are not those of someone who knows the password.
    """
    first = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    server_first = (yield f"n,,{first}".encode()).decode()
    given = _attributes(server_first)
    combined, salt, iterations = given.get("r", ""), given.get("s", ""), given.get("i", "0")
    if not combined.startswith(nonce) or combined == nonce or not (iterations.isascii() and iterations.isdigit()):
        raise AuthenticationError(f"SCRAM: {server_first!r} is no answer to what was asked")
    if len(iterations) > _MAX_DIGITS or not _MIN_ITERATIONS <= int(iterations) <= _MAX_ITERATIONS:
        raise AuthenticationError(
            f"SCRAM: {iterations[:_MAX_DIGITS]} iterations are asked for, {_MIN_ITERATIONS} to {_MAX_ITERATIONS} are "
            "taken; have the password stored with a number between"
        )
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), b64decode(salt), int(iterations))
    without_proof = f"c=biws,r={combined}"
    said = ",".join((first, server_first, without_proof)).encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), said, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_last = yield f"{without_proof},p={b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), said, algorithm)
    found = _attributes(server_last.decode())
    if "e" in found:
        raise AuthenticationError(f"SCRAM: the broker refuses: {found['e']}")
    if not hmac.compare_digest(found.get("v", "").encode(), b64encode(expected)):
        raise AuthenticationError("SCRAM: the broker does not know the password: it is not the one that is meant")


def _attributes(message: str) -> dict[str, str]:
    return {name: value for name, equals, value in (part.partition("=") for part in message.split(",")) if equals}
