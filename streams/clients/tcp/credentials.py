"""The credentials of the connections of a cluster: passwords and tokens, which may change while a client runs.

Passwords are read from files and commands, tokens are taken from a provider and renewed before they expire.  One object
serves all connections of a cluster, on any thread.  KIP-255, KIP-368, KIP-768.
"""

import json
import logging
import shlex
from base64 import b64encode
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from attrs import define, evolve, field, frozen

from streams.clients.errors import AuthenticationError
from streams.clients.tcp.security import Exchange, bearer_exchange, sasl_exchange
from streams.core.clock import Clock
from streams.core.errors import ConfigError
from streams.core.folders import secret_text
from streams.core.http.oauth import OAuthToken, TokenProvider
from streams.core.settings.client_settings import Security

if TYPE_CHECKING:
    from urllib.error import HTTPError

log = logging.getLogger(__name__)

#: Fraction of the lifetime of a token after which another one is taken; Kafka's sasl.login.refresh.window.factor.
_REFRESH_PART: Final = 0.8
_TIMEOUT_S: Final = 10
_COMMAND_TIMEOUT_S: Final = 30
_MAX_RESPONSE_BYTES: Final = 1 << 20
#: Statuses of a token endpoint that may be others a moment later.
_TRANSIENT: Final = (408, 425, 429)


def key_password_of(security: Security) -> str:
    """Return the password of the private key, or an empty text.

    Raises:
        ConfigError: its file cannot be read, or its command fails.
    """
    sources = security.ssl_key_password, security.ssl_key_password_file, security.ssl_key_password_command
    return _secret("ssl_key_password", *sources)


def _secret(name: str, value: str, path: str, command: str) -> str:
    """Return a secret: the setting itself, or the first line of its file or of the output of its command.

    Raises:
        ConfigError: the file cannot be read, the command fails, or there is nothing in the first line.
    """
    if path:
        try:
            text = secret_text(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"setting '{name}_file': {path} cannot be read: {_reason(error)}") from None
        return _first_line(text, f"setting '{name}_file': {path}")
    if command:
        return _first_line(_output(command, f"setting '{name}_command'"), f"setting '{name}_command': its output")
    return value


def _output(command: str, where: str) -> str:
    import subprocess

    try:
        done = subprocess.run(
            shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_TIMEOUT_S, check=False
        )
        if not done.returncode:
            return done.stdout.decode()
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = f"it ended with status {done.returncode}" + (f": {said[-1]}" if said else "")
    except subprocess.TimeoutExpired:
        why = f"it did not end within {_COMMAND_TIMEOUT_S} s"
    except (OSError, ValueError) as error:
        why = _reason(error)
    # Its arguments may be secrets.
    raise ConfigError(f"{where}: {command.partition(' ')[0]!r} fails: {why}")


def _first_line(text: str, where: str) -> str:
    line = text.partition("\n")[0].removesuffix("\r")
    if not line:
        raise ConfigError(f"{where} has nothing in its first line, which has to be the secret")
    return line


def _reason(error: Exception) -> str:
    # A UnicodeDecodeError would show the secret.
    return str(error.strerror) if isinstance(error, OSError) else type(error).__name__


@define(eq=False)
class Credentials:
    """The credentials of all connections of a cluster; may be used by several threads."""

    security: Security
    clock: Clock
    _lock: Lock = field(factory=Lock, init=False)
    #: The password that was found last, or None after a rejection.
    _password: str | None = field(default=None, init=False, repr=False)
    _token: OAuthToken | None = field(default=None, init=False)
    _refresh_ms: int = field(default=0, init=False)
    _provider: TokenProvider | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        # What is missing is told at the start, not by the first connection.
        if self.security.has_sasl and self.security.has_tokens:
            self._provider = _provider_of(self.security, self.clock)
        elif self.security.has_sasl:
            self._find_password()

    @property
    def who(self) -> str:
        """The user or token source that authenticates, for messages."""
        return "a token" if self.security.has_tokens else repr(self.security.sasl_username)

    def exchange(self, nonce: str) -> Exchange:
        """Return the client's side of one authentication; ``nonce`` must be unique.

        Raises:
            AuthenticationError: there is no password or token.
            OSError: the token endpoint is not reachable.
        """
        if self._provider is not None:
            return bearer_exchange(self._current_token(self._provider))
        try:
            with self._lock:
                password = self._find_password()
        except ConfigError as error:
            raise AuthenticationError(str(error)) from None
        security = evolve(self.security, sasl_password=password, sasl_password_file="", sasl_password_command="")
        return sasl_exchange(security, nonce)

    def on_rejected(self) -> None:
        """Discard the credentials that a broker has rejected."""
        with self._lock:
            self._password = self._token = None

    def _find_password(self) -> str:
        security = self.security
        if security.sasl_password_command and self._password is not None:
            return self._password
        sources = security.sasl_password, security.sasl_password_file, security.sasl_password_command
        self._password = _secret("sasl_password", *sources)
        return self._password

    def _current_token(self, provider: TokenProvider) -> OAuthToken:
        with self._lock:
            now_ms = self.clock.now_ms()
            if self._token is not None and now_ms < self._refresh_ms:
                return self._token
            try:
                token = _token_of(provider)
            except (AuthenticationError, OSError) as error:
                old = self._token
                if old is None or old.expires_ms is None or now_ms >= old.expires_ms:
                    raise
                log.warning("the token could not be renewed, and is used until it expires: %s", error)
                return old
            if token.expires_ms is not None and token.expires_ms <= now_ms:
                raise AuthenticationError(f"{_name(provider)} returned a token that has expired")
            if extensions := _extensions(self.security):
                token = evolve(token, extensions={**extensions, **token.extensions})
            self._token = token
            lifetime_ms = 0 if token.expires_ms is None else token.expires_ms - now_ms
            self._refresh_ms = now_ms + int(lifetime_ms * _REFRESH_PART)
            return token


def _provider_of(security: Security, clock: Clock) -> TokenProvider:
    setting: Any = security.sasl_oauthbearer_token_provider
    if setting == "oidc":
        url = urlsplit(security.sasl_oauthbearer_token_endpoint_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ConfigError(
                f"setting 'sasl_oauthbearer_token_endpoint_url': {security.sasl_oauthbearer_token_endpoint_url!r} is "
                "no URL of HTTP, such as https://login.example.com/oauth2/token"
            )
        _client_secret_of(security)
        return ClientCredentials(security, clock)
    if setting == "msk_iam":
        from streams.clients.msk import msk_iam

        return msk_iam()
    provider: TokenProvider = setting
    return provider


def _token_of(provider: TokenProvider) -> OAuthToken:
    try:
        return OAuthToken.of(provider(), _name(provider))
    except (OSError, AuthenticationError):
        raise
    except ConfigError as error:
        raise AuthenticationError(str(error)) from error
    except Exception as error:
        raise AuthenticationError(f"{_name(provider)} failed: {type(error).__name__}: {error}") from error


def _client_secret_of(security: Security) -> str:
    name = "sasl_oauthbearer_client_secret"
    file = security.sasl_oauthbearer_client_secret_file
    command = security.sasl_oauthbearer_client_secret_command
    return _secret(name, security.sasl_oauthbearer_client_secret, file, command)


def _name(provider: Any) -> str:
    return f"token provider {getattr(provider, '__qualname__', None) or repr(provider)}"


def _extensions(security: Security) -> dict[str, str]:
    parts = (part.strip().partition("=") for part in security.sasl_oauthbearer_extensions.split(",") if part.strip())
    return {name: value for name, _, value in parts}


@frozen(repr=False)
class ClientCredentials:
    """Takes tokens from a token endpoint with the client credentials grant (RFC 6749 section 4.4, KIP-768).

    Calling it raises AuthenticationError if the endpoint rejects the request, and OSError if it is not reachable.
    """

    security: Security
    clock: Clock

    def __repr__(self) -> str:
        return f"token endpoint {self.security.sasl_oauthbearer_token_endpoint_url}"

    def __call__(self) -> OAuthToken:
        """Return a new token."""
        security = self.security
        form = {"grant_type": "client_credentials"}
        if security.sasl_oauthbearer_scope:
            form["scope"] = security.sasl_oauthbearer_scope
        try:
            secret = _client_secret_of(security)
        except ConfigError as error:
            raise AuthenticationError(str(error)) from None
        # Both parts are encoded first (RFC 6749 section 2.3.1).
        pair = f"{quote(security.sasl_oauthbearer_client_id, '')}:{quote(secret, '')}"
        headers = {"Authorization": f"Basic {b64encode(pair.encode()).decode()}", "Accept": "application/json"}
        url = security.sasl_oauthbearer_token_endpoint_url
        # Imported here, because each program would pay for them.
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        request = Request(url, urlencode(form).encode(), headers)
        try:
            with urlopen(request, timeout=_TIMEOUT_S) as response:
                read = json.loads(response.read(_MAX_RESPONSE_BYTES))
        except HTTPError as error:
            raise self._rejected(error) from None
        except OSError as error:
            raise OSError(f"{self!r} is not reachable: {getattr(error, 'reason', error)}") from error
        except ValueError:
            raise AuthenticationError(f"{self!r} returned no JSON") from None
        return self._token(read)

    def _token(self, read: Any) -> OAuthToken:
        value = read.get("access_token") if isinstance(read, dict) else None
        if not isinstance(value, str) or not value:
            raise AuthenticationError(f"{self!r} returned no access_token")
        token = OAuthToken.of(value, repr(self))
        if token.expires_ms is None and isinstance(read.get("expires_in"), int | float):
            return OAuthToken(value, self.clock.now_ms() + int(read["expires_in"] * 1000))
        return token

    def _rejected(self, error: "HTTPError") -> Exception:
        """Return the error for an unsuccessful status; the body has the reason (RFC 6749, section 5.2)."""
        with error:
            body = error.read(_MAX_RESPONSE_BYTES)
        try:
            details = json.loads(body)
            reason = " ".join(str(details[name]) for name in ("error", "error_description") if name in details)
        except (ValueError, TypeError):
            reason = ""
        text = f"{self!r} answered with status {error.code}" + (f": {reason}" if reason else "")
        if error.code >= 500 or error.code in _TRANSIENT:
            return OSError(text)
        return AuthenticationError(f"{text}; check sasl_oauthbearer_client_id, its secret and sasl_oauthbearer_scope")
