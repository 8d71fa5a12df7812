"""SASL authentication of a client, as a state machine over tokens.

The mechanisms are PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) and OAUTHBEARER (RFC 7628),
inside Kafka's SaslHandshake and SaslAuthenticate (KIP-43, KIP-152, KIP-255).  After a version 0 handshake, tokens have
no request header.  The session of an OAuth token ends with the token, unless the client authenticates again (KIP-368).
"""

import hashlib
import hmac
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, Protocol

from attrs import define, field

from streams.broker.logs.limits import TOKEN_ATTRIBUTES, TOKEN_BYTES
from streams.broker.tcp.users import SCRAM_HASHES, ScramKeys, Users
from streams.core.clock import SystemClock
from streams.core.errors import BrokerError
from streams.core.http.oauth import TokenCheck
from streams.core.settings.client_settings import OAUTHBEARER
from streams.protocol.admin_messages import (
    SaslAuthenticate,
    SaslAuthenticateResponse,
    SaslHandshake,
    SaslHandshakeResponse,
)
from streams.protocol.error_codes import ErrorCode

PLAIN: Final = "PLAIN"
_BEARER: Final = "auth=Bearer "


class AuthenticationFailed(BrokerError):
    """The authentication of a client failed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.SASL_AUTHENTICATION_FAILED)


class _Exchange(Protocol):
    """The token exchange of one mechanism; ``name`` is the authenticated user name if ``is_done`` is True.

    ``expires_ms`` is the epoch time at which the session ends, or None.
    """

    name: str
    is_done: bool
    expires_ms: int | None

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
    expires_ms: int | None = None

    def step(self, token: bytes) -> bytes:
        try:
            for_whom, name, password = token.decode().split("\0", 3)
        except ValueError as error:
            raise AuthenticationFailed("no PLAIN token: expected an authorization id, a name and a password") from error
        if for_whom not in ("", name) or not self.users.has(name, password):
            raise AuthenticationFailed("name or password is wrong")
        self.name = name
        self.is_done = True
        return b""


@define(eq=False)
class _Scram:
    users: Users
    mechanism: str
    nonce: Callable[[], str]
    name: str = ""
    is_done: bool = False
    expires_ms: int | None = None
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
        self.name = name
        self._first = first
        self._binding = f"{flag},{for_whom},"
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
        hash_name = SCRAM_HASHES[self.mechanism]
        keys = self._keys
        assert keys is not None
        message = f"{self._first},{self._answer},{unproved}".encode()
        signature = hmac.digest(keys.stored_key, message, hash_name)
        client_proof = b64decode(proof, validate=True)
        if len(client_proof) != len(signature):
            raise AuthenticationFailed("name or password is wrong")
        client_key = bytes(left ^ right for left, right in zip(client_proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(hash_name, client_key).digest(), keys.stored_key):
            raise AuthenticationFailed("name or password is wrong")
        self.is_done = True
        return b"v=" + b64encode(hmac.digest(keys.server_key, message, hash_name))


@define(eq=False)
class _Bearer:
    check: TokenCheck
    name: str = ""
    is_done: bool = False
    expires_ms: int | None = None
    _reason: str = ""

    def step(self, token: bytes) -> bytes:
        if self._reason:
            # The client has taken note of the error (RFC 7628 section 3.2.3).
            raise AuthenticationFailed(self._reason)
        try:
            header, *parts = token.decode().split("\x01")
        except ValueError as error:
            raise AuthenticationFailed("no OAUTHBEARER token: it is not UTF-8") from error
        bearer = next((part.removeprefix(_BEARER) for part in parts if part.startswith(_BEARER)), None)
        if not header.startswith("n,") or bearer is None:
            raise AuthenticationFailed("no OAUTHBEARER token: expected 'n,,' and 'auth=Bearer TOKEN'")
        try:
            user = self.check(bearer)
        except ValueError as error:
            self._reason = f"the token is not accepted: {error}"
            return json.dumps({"status": "invalid_token"}).encode()
        if header.split(",")[1] not in ("", f"a={user.name}"):
            raise AuthenticationFailed("authorization as another user is not supported")
        self.name = user.name
        self.expires_ms = user.expires_ms
        self.is_done = True
        return b""


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
    #: Returns the epoch time in milliseconds.
    now_ms: Callable[[], int] = field(factory=lambda: SystemClock().now_ms, kw_only=True)
    _exchange: _Exchange | None = field(default=None, init=False)
    #: Whether tokens have no request header (after SaslHandshake version 0).
    is_bare: bool = field(default=False, init=False)
    #: The user of the session that is authenticated again.
    _former_name: str | None = field(default=None, init=False)

    @property
    def is_done(self) -> bool:
        """Whether the client is authenticated."""
        return self._exchange is not None and self._exchange.is_done

    @property
    def has_expired(self) -> bool:
        """Whether the client has to authenticate again before any other request."""
        return self._ends and self.lifetime_ms == 0

    @property
    def _ends(self) -> bool:
        return self._exchange is not None and self._exchange.is_done and self._exchange.expires_ms is not None

    @property
    def lifetime_ms(self) -> int:
        """Milliseconds until the session ends; 0 if it has ended, or does not end."""
        expires_ms = None if self._exchange is None else self._exchange.expires_ms
        return 0 if expires_ms is None else max(0, expires_ms - self.now_ms())

    @property
    def name(self) -> str:
        """The user name, which is only claimed by the client until ``is_done`` is True."""
        return "" if self._exchange is None else self._exchange.name

    def handshake(self, request: SaslHandshake, version: int) -> SaslHandshakeResponse:
        """Choose a SASL mechanism; after a version 0 handshake, tokens have no request header."""
        mechanism = request.mechanism
        offered = self.users.mechanisms
        error = ErrorCode.NONE
        if self._exchange is not None and (version == 0 or not self._ends):
            error = ErrorCode.ILLEGAL_SASL_STATE
        elif mechanism not in offered:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        else:
            self._former_name = None if self._exchange is None else self._exchange.name
            self._exchange = self._begun(mechanism)
        self.is_bare = version == 0 and error is ErrorCode.NONE
        return SaslHandshakeResponse(error, offered)

    def _begun(self, mechanism: str) -> _Exchange:
        if mechanism == PLAIN:
            return _Plain(self.users)
        if mechanism == OAUTHBEARER:
            assert self.users.check_token is not None
            return _Bearer(self.users.check_token)
        return _Scram(self.users, mechanism, self.nonce)

    def token(self, token: bytes) -> bytes:
        """Handle a token from the client, and return the token of the server.

        Raises:
            AuthenticationFailed: the credentials are wrong, the token is too long, or there was no handshake.
        """
        if self._exchange is None or self._exchange.is_done:
            raise AuthenticationFailed("a token without a handshake before it")
        if len(token) > TOKEN_BYTES:
            raise AuthenticationFailed(f"a token of {len(token)} bytes; up to {TOKEN_BYTES} are taken")
        exchange = self._exchange
        answer = exchange.step(token)
        if exchange.is_done and self._former_name not in (None, exchange.name):
            raise AuthenticationFailed("the user of a session cannot change")
        if self.has_expired:
            raise AuthenticationFailed("the token has expired")
        self.is_bare = self.is_bare and not exchange.is_done
        return answer

    def authenticate(self, request: SaslAuthenticate) -> SaslAuthenticateResponse:
        """Handle a SaslAuthenticate request; the error does not reveal which part of the credentials was wrong."""
        try:
            answer = self.token(request.auth_bytes)
        except AuthenticationFailed as error:
            return SaslAuthenticateResponse(ErrorCode(error.code), f"authentication failed: {error}")
        lifetime_ms = self.lifetime_ms if self.is_done else 0
        return SaslAuthenticateResponse(ErrorCode.NONE, auth_bytes=answer, session_lifetime_ms=lifetime_ms)
