"""TLS and SASL (PLAIN, SCRAM and OAUTHBEARER) for connections.

This module performs no I/O: an exchange receives and yields bytes, and the link has the socket.  See RFC 5802,
RFC 4616, RFC 7628, KIP-43, KIP-84 and KIP-255.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from streams.clients.errors import AuthenticationError
from streams.core.errors import ConfigError
from streams.core.folders import warn_if_public
from streams.core.http.oauth import OAuthToken
from streams.core.settings.client_settings import Security

if TYPE_CHECKING:
    from ssl import SSLContext

# With fewer iterations, a stolen proof is cheap to brute-force (RFC 5802).
_MIN_ITERATIONS: Final = 4_096
# More iterations would let an unauthenticated broker keep the client busy; Kafka's own are 16,384 at most.
_MAX_ITERATIONS: Final = 1_000_000
# A longer number is rejected without parsing it, because parsing is slow.
_MAX_DIGITS: Final = 9

#: Yields the client's messages, receives the server's, and ends when both sides accept.
Exchange = Generator[bytes, bytes, None]


def tls_context(security: Security, key_password: str = "") -> "SSLContext | None":
    """Return the TLS context, or None if TLS is not configured; ``key_password`` is for an encrypted key.

    Raises:
        ConfigError: a certificate file cannot be read or contains no certificates, or the password is wrong.
    """
    if not security.has_tls:
        return None
    from ssl import SSLError, create_default_context

    try:
        context = create_default_context(cafile=security.ssl_ca_location or None)
        if security.ssl_certificate_location:
            key = security.ssl_key_location or None
            warn_if_public(key or security.ssl_certificate_location)
            # Without a password, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(security.ssl_certificate_location, key, lambda: key_password)
    except (OSError, SSLError) as error:
        locations = (security.ssl_ca_location, security.ssl_certificate_location, security.ssl_key_location)
        files = ", ".join(repr(name) for name in locations if name)
        raise ConfigError(
            f"TLS: {files} cannot be used: {error}; give PEM files, and ssl_key_password (or ..._file, ..._command) "
            "for an encrypted key"
        ) from error
    return context


def sasl_exchange(security: Security, nonce: str) -> Exchange:
    """Return the client's side of an exchange with ``sasl_password``; ``nonce`` must be unique."""
    if security.sasl_mechanism == "PLAIN":
        return _plain(security.sasl_username, security.sasl_password)
    algorithm = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[security.sasl_mechanism]
    return _scram(algorithm, security.sasl_username, security.sasl_password, nonce)


def bearer_exchange(token: OAuthToken) -> Exchange:
    """Return the client's side of an exchange with a token (RFC 7628).

    Raises:
        AuthenticationError: the broker rejects the token.
    """
    extensions = "".join(f"\x01{name}={value}" for name, value in token.extensions.items())
    answer = yield f"n,,\x01auth=Bearer {token.value}{extensions}\x01\x01".encode()
    if answer:
        # The broker has answered with the reason, as JSON.  It ends the exchange after this message (RFC 7628, 3.2.3).
        yield b"\x01"
        raise AuthenticationError(f"OAUTHBEARER: the broker rejected the token: {answer.decode(errors='replace')}")


def _plain(username: str, password: str) -> Exchange:
    yield b"\0".join((b"", username.encode(), password.encode()))


def _scram(algorithm: str, username: str, password: str, nonce: str) -> Exchange:
    """Authenticate client and server with SCRAM, which proves knowledge of the password without sending it.

    Raises:
        AuthenticationError: the server's proof is invalid.
    """
    first = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    server_first = (yield f"n,,{first}".encode()).decode()
    challenge = _attributes(server_first)
    combined = challenge.get("r", "")
    salt = challenge.get("s", "")
    iterations = challenge.get("i", "0")
    if not combined.startswith(nonce) or combined == nonce or not (iterations.isascii() and iterations.isdigit()):
        raise AuthenticationError(f"SCRAM: {server_first!r} does not answer the client's message")
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
    final = _attributes(server_last.decode())
    if "e" in final:
        raise AuthenticationError(f"SCRAM: the broker rejected it: {final['e']}")
    if not hmac.compare_digest(final.get("v", "").encode(), b64encode(expected)):
        raise AuthenticationError("SCRAM: the broker's proof is invalid: it does not know the password")


def _attributes(message: str) -> dict[str, str]:
    return {name: value for name, equals, value in (part.partition("=") for part in message.split(",")) if equals}
