"""SASL authentication of a client, as a state machine over tokens.

The mechanisms are PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), inside Kafka's SaslHandshake
and SaslAuthenticate (KIP-43, KIP-152).  After a version 0 handshake, tokens have no request header.
"""

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, Protocol

from attrs import define, field

from streams.broker.limits import TOKEN_ATTRIBUTES, TOKEN_BYTES
from streams.broker.tcp.users import SCRAM_HASHES, ScramKeys, Users
from streams.core.errors import BrokerError
from streams.protocol.admin_messages import (
    SaslAuthenticate,
    SaslAuthenticateResponse,
    SaslHandshake,
    SaslHandshakeResponse,
)
from streams.protocol.error_codes import ErrorCode

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *SCRAM_HASHES)


class AuthenticationFailed(BrokerError):
    """The authentication of a client failed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.SASL_AUTHENTICATION_FAILED)


class _Exchange(Protocol):
    """The token exchange of one mechanism; ``name`` is the authenticated user name if ``is_done`` is True."""

    name: str
    is_done: bool

    def step(self, token: bytes) -> bytes:
        """Handle a token from the client, and return the token of the server.

        Raises:
            AuthenticationFailed: the credentials are wrong, or the token is invalid.
        """
        ...


@define(eq=False)
class _Plain:
    users: Users
    name: str = ""
    is_done: bool = False

    def step(self, token: bytes) -> bytes:
        try:
            for_whom, name, password = token.decode().split("\0", 3)
        except ValueError as error:
            raise AuthenticationFailed("no PLAIN token: expected an authorization id, a name and a password") from error
        if for_whom not in ("", name) or not self.users.has(name, password):
            raise AuthenticationFailed("name or password is wrong")
        self.name, self.is_done = name, True
        return b""


@define(eq=False)
class _Scram:
    users: Users
    mechanism: str
    nonce: Callable[[], str]
    name: str = ""
    is_done: bool = False
    _keys: ScramKeys | None = None
    _first: str = ""
    _answer: str = ""
    _binding: str = ""

    def step(self, token: bytes) -> bytes:
        try:
            text = token.decode()
            return self._final(text) if self._answer else self._begin(text)
        except ValueError as error:
            raise AuthenticationFailed(f"no {self.mechanism} token: {error}") from error

    def _begin(self, text: str) -> bytes:
        flag, for_whom, first = text.split(",", 2)
        attributes = _attributes(first)
        if flag not in ("n", "y") or "m" in attributes:
            raise AuthenticationFailed(f"{self.mechanism} with channel binding or extensions is not offered")
        name = attributes["n"].replace("=2C", ",").replace("=3D", "=")
        if for_whom not in ("", f"a={attributes['n']}"):
            raise AuthenticationFailed("authorization as another user is not supported")
        keys = self._keys = self.users.scram(name, self.mechanism)
        self.name, self._first, self._binding = name, first, f"{flag},{for_whom},"
        nonce = attributes["r"] + self.nonce()
        self._answer = f"r={nonce},s={b64encode(keys.salt).decode()},i={keys.iterations}"
        return self._answer.encode()

    def _final(self, text: str) -> bytes:
        unproved, _, proof = text.rpartition(",p=")
        attributes = _attributes(unproved)
        # As in Kafka, only the end is compared: older versions of librdkafka send their own nonce twice.
        is_ours = attributes["r"].endswith(_attributes(self._answer)["r"])
        if not is_ours or b64decode(attributes["c"]) != self._binding.encode():
            raise AuthenticationFailed("the nonce or the binding is not that of this exchange")
        hash_name, keys = SCRAM_HASHES[self.mechanism], self._keys
        assert keys is not None
        message = f"{self._first},{self._answer},{unproved}".encode()
        signature = hmac.digest(keys.stored_key, message, hash_name)
        given = b64decode(proof, validate=True)
        if len(given) != len(signature):
            raise AuthenticationFailed("name or password is wrong")
        client_key = bytes(left ^ right for left, right in zip(given, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(hash_name, client_key).digest(), keys.stored_key):
            raise AuthenticationFailed("name or password is wrong")
        self.is_done = True
        return b"v=" + b64encode(hmac.digest(keys.server_key, message, hash_name))


class _Attributes(dict[str, str]):
    """The attributes of a SCRAM message by their letter."""

    def __missing__(self, letter: str) -> str:
        raise ValueError(f"{letter}= is missing")


def _attributes(text: str) -> _Attributes:
    parts = text.split(",", TOKEN_ATTRIBUTES)
    if len(parts) > TOKEN_ATTRIBUTES:
        raise ValueError(f"more than {TOKEN_ATTRIBUTES} attributes")
    return _Attributes((part[0], part[2:]) for part in parts if part[1:2] == "=")


@define(eq=False)
class Authentication:
    """The authentication state of a connection: handshake, token exchange, or done."""

    users: Users
    nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24)
    _exchange: _Exchange | None = field(default=None, init=False)
    #: Whether tokens have no request header (after SaslHandshake version 0).
    is_bare: bool = field(default=False, init=False)

    @property
    def is_done(self) -> bool:
        """Whether the client is authenticated."""
        return self._exchange is not None and self._exchange.is_done

    @property
    def name(self) -> str:
        """The user name, which is only claimed by the client until ``is_done`` is True."""
        return "" if self._exchange is None else self._exchange.name

    def handshake(self, request: SaslHandshake, version: int) -> SaslHandshakeResponse:
        """Choose a SASL mechanism; after a version 0 handshake, tokens have no request header."""
        mechanism = request.mechanism
        error = ErrorCode.NONE
        if self.is_done or self._exchange is not None:
            error = ErrorCode.ILLEGAL_SASL_STATE
        elif mechanism == PLAIN:
            self._exchange = _Plain(self.users)
        elif mechanism in SCRAM_HASHES:
            self._exchange = _Scram(self.users, mechanism, self.nonce)
        else:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self.is_bare = version == 0 and error is ErrorCode.NONE
        return SaslHandshakeResponse(error, MECHANISMS)

    def token(self, token: bytes) -> bytes:
        """Handle a token from the client, and return the token of the server.

        Raises:
            AuthenticationFailed: the credentials are wrong, the token is too long, or there was no handshake.
        """
        if self._exchange is None or self._exchange.is_done:
            raise AuthenticationFailed("a token without a handshake before it")
        if len(token) > TOKEN_BYTES:
            raise AuthenticationFailed(f"a token of {len(token)} bytes; up to {TOKEN_BYTES} are taken")
        answer = self._exchange.step(token)
        self.is_bare = self.is_bare and not self._exchange.is_done
        return answer

    def authenticate(self, request: SaslAuthenticate) -> SaslAuthenticateResponse:
        """Handle a SaslAuthenticate request; the error does not reveal which part of the credentials was wrong."""
        try:
            return SaslAuthenticateResponse(ErrorCode.NONE, auth_bytes=self.token(request.auth_bytes))
        except AuthenticationFailed as error:
            return SaslAuthenticateResponse(ErrorCode(error.code), f"authentication failed: {error}")
