"""Users of a broker with passwords or SCRAM credentials, which can be read from a file.

The file has one user per line: ``NAME:PASSWORD``, or ``NAME:SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY``
(base64, in PostgreSQL's format; SCRAM-SHA-512 works too), which does not reveal the password.  Empty lines and lines
that begin with ``#`` are ignored.  See RFC 5802 and RFC 7677.
"""

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final, Self

from attrs import define, field, frozen

from streams.core.errors import ConfigError
from streams.core.folders import secret_text
from streams.core.http.oauth import TokenCheck
from streams.core.settings.client_settings import OAUTHBEARER

#: Hash function by SCRAM mechanism.
SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: Default number of hash iterations, as in Kafka.
ITERATIONS: Final = 4096
_PLAIN: Final = "PLAIN"
_SALT_BYTES: Final = 16
SECRET_BYTES: Final = 32
#: The mechanism that is used to check a plain password.
_USUAL_MECHANISM: Final = "SCRAM-SHA-256"
#: Maximum number of iterations: more would block the server for other clients.
_MOST_ITERATIONS: Final = 1_000_000


@frozen
class ScramKeys:
    """The SCRAM credentials of a user for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, mechanism: str, salt: bytes, iterations: int = ITERATIONS) -> Self:
        """Derive the SCRAM keys of a mechanism from a password."""
        name = SCRAM_HASHES[mechanism]
        salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        return cls(salt, iterations, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name))

    def text(self, mechanism: str) -> str:
        """Return the keys as written in a users file, without the user name."""
        parts = (b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        salt, stored, server = parts
        return f"{mechanism}${self.iterations}:{salt}${stored}:{server}"


@define(eq=False)
class Users:
    """The passwords or SCRAM keys of users, by user name, and the check of OAuth tokens.

    >>> users = Users({"alice": "secret"})
    >>> users.has("alice", "secret"), users.has("alice", "guess"), users.has("bob", "secret")
    (True, False, False)
    """

    passwords: Mapping[str, str] = field(factory=dict, repr=False)
    #: Stored keys by mechanism and name, for users without a plain password.
    keys: Mapping[tuple[str, str], ScramKeys] = field(factory=dict, repr=False)
    _derived: dict[tuple[str, str], ScramKeys] = field(factory=dict, init=False, repr=False)
    #: Secret for salts that are not stored.  The secret is random, because a salt derived from a password would reveal
    #: the password.  It is stored in the data directory, so that the salts are the same after a restart.
    secret: bytes = field(factory=lambda: os.urandom(SECRET_BYTES), repr=False, kw_only=True)
    #: Checks OAuth tokens (OAUTHBEARER), on the thread of the server, which waits for it; None: they are not offered.
    check_token: TokenCheck | None = field(default=None, kw_only=True)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that are offered to clients."""
        if self.check_token is None:
            return (_PLAIN, *SCRAM_HASHES)
        return (_PLAIN, *SCRAM_HASHES, OAUTHBEARER) if self.passwords or self.keys else (OAUTHBEARER,)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a users file.

        Raises:
            ConfigError: the file cannot be read, a line is invalid, or a name appears twice.
        """
        try:
            lines = secret_text(path).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"users' file {path} cannot be read: {error}") from error
        passwords: dict[str, str] = {}
        keys: dict[tuple[str, str], ScramKeys] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, colon, rest = line.partition(":")
            name = name.strip()
            if not (name and colon and rest):
                raise ConfigError(f"users' file {path}, line {number}: expected NAME:PASSWORD")
            mechanism = rest.partition("$")[0]
            if name in passwords or (mechanism, name) in keys:
                raise ConfigError(
                    f"users' file {path}, line {number}: {name!r} is there already; leave one of them out"
                )
            if mechanism in SCRAM_HASHES:
                keys[mechanism, name] = _parsed(rest, f"users' file {path}, line {number}")
            else:
                passwords[name] = rest
        if not passwords and not keys:
            raise ConfigError(f"users' file {path} has no users; add NAME:PASSWORD lines")
        return cls(passwords, keys)

    def has(self, name: str, password: str) -> bool:
        """Whether a user has this password; the check takes the same time for unknown users."""
        if not self.keys:
            expected = self.passwords.get(name)
            return hmac.compare_digest((expected or "").encode(), password.encode()) and expected is not None
        mechanism = next((one for one in SCRAM_HASHES if (one, name) in self.keys), _USUAL_MECHANISM)
        keys = self.scram(name, mechanism)
        derived = ScramKeys.of(password, mechanism, keys.salt, keys.iterations)
        return hmac.compare_digest(derived.stored_key, keys.stored_key)

    def scram(self, name: str, mechanism: str) -> ScramKeys:
        """Return the SCRAM credentials of a user for a mechanism.

        For an unknown user, the keys are random.  The salt and the iteration count are plausible and always the same
        for a name, so that clients cannot find out which users exist.
        """
        stored = self.keys.get((mechanism, name)) or self._derived.get((mechanism, name))
        if stored is not None:
            return stored
        password = self.passwords.get(name)
        if password is not None:
            keys = self._derived[mechanism, name] = ScramKeys.of(password, mechanism, self._salt(name, mechanism))
            return keys
        size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
        salt_bytes, iterations = self._forms(mechanism)[self._number(name, mechanism)]
        salt = self._salt(name, mechanism, salt_bytes)
        return ScramKeys(salt, iterations, os.urandom(size), os.urandom(size))

    def _forms(self, mechanism: str) -> list[tuple[int, int]]:
        """Return the salt length and iteration count of every known user for a mechanism."""
        stored = [(len(keys.salt), keys.iterations) for (name, _), keys in self.keys.items() if name == mechanism]
        return stored + [(_SALT_BYTES, ITERATIONS)] * (len(self.passwords) or not stored)

    def _number(self, name: str, mechanism: str) -> int:
        """Return the index of the known user whose salt length and iteration count an unknown name gets."""
        return int.from_bytes(self._salt(name, f"{mechanism}:form")) % len(self._forms(mechanism))

    def _salt(self, name: str, use: str, size: int = _SALT_BYTES) -> bytes:
        return hashlib.shake_256(self.secret + f"{use}:{name}".encode()).digest(size)


def _parsed(text: str, where: str) -> ScramKeys:
    """Parse SCRAM keys written as ``MECHANISM$ITERATIONS:SALT$STOREDKEY:SERVERKEY``."""
    try:
        mechanism, rounds, pair = text.strip().split("$")
        iterations, salt = rounds.split(":")
        stored, server = (b64decode(part, validate=True) for part in pair.split(":"))
        size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
        if not 1 <= int(iterations) <= _MOST_ITERATIONS or len(stored) != size or len(server) != size:
            raise ValueError(f"a key of {mechanism} has {size} bytes, and iterations are 1 to {_MOST_ITERATIONS}")
        return ScramKeys(b64decode(salt, validate=True), int(iterations), stored, server)
    except ValueError as error:
        raise ConfigError(f"{where}: expected MECHANISM$ITERATIONS:SALT$STOREDKEY:SERVERKEY ({error})") from error
