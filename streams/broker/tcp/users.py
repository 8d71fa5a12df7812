"""Who may come in: names with passwords, or with what SCRAM keeps of them, from a file.

One user in a line, ``NAME:PASSWORD``, or ``NAME:SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY`` (base64, as
PostgreSQL writes it; SCRAM-SHA-512 too), from which nobody learns the password.  Empty lines and those that begin
with ``#`` count for nothing.  RFC 5802, RFC 7677.
"""

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from attrs import define, field, frozen

from streams.core.errors import ConfigError

#: SCRAM mechanisms, with the hash of each.
SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: Rounds of the hash where we choose them; Kafka's default.
ITERATIONS: Final = 4096
_SALT_BYTES: Final = 16


@frozen
class ScramKeys:
    """What a server keeps of a password for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, mechanism: str, salt: bytes, iterations: int = ITERATIONS) -> Self:
        """Derive them from a password."""
        name = SCRAM_HASHES[mechanism]
        salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        return cls(salt, iterations, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name))

    def text(self, mechanism: str) -> str:
        """Return them as a line of a users' file has them behind the name."""
        parts = (b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        salt, stored, server = parts
        return f"{mechanism}${self.iterations}:{salt}${stored}:{server}"


@define(eq=False)
class Users:
    """Passwords and SCRAM keys by name.

    >>> users = Users({"alice": "secret"})
    >>> users.has("alice", "secret"), users.has("alice", "guess"), users.has("bob", "secret")
    (True, False, False)
    """

    passwords: Mapping[str, str] = field(factory=dict)
    #: By mechanism and name, for users whose passwords are not known.
    keys: Mapping[tuple[str, str], ScramKeys] = field(factory=dict)
    _derived: dict[tuple[str, str], ScramKeys] = field(factory=dict, init=False)
    # Who is not known gets a salt as anybody else, always the same for a name: nobody learns from it which names are.
    _secret: bytes = field(factory=lambda: os.urandom(_SALT_BYTES), init=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a users' file.

        Raises:
            ConfigError: it cannot be read, a line is no user, or a name is there twice.
        """
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
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
            raise ConfigError(f"users' file {path} names nobody, so nobody could come in; add NAME:PASSWORD lines")
        return cls(passwords, keys)

    def has(self, name: str, password: str) -> bool:
        """Whether there is a user with this password."""
        known = self.passwords.get(name)
        if known is not None:
            return hmac.compare_digest(known.encode(), password.encode())
        for mechanism in SCRAM_HASHES:
            keys = self.keys.get((mechanism, name))
            if keys is not None:
                given = ScramKeys.of(password, mechanism, keys.salt, keys.iterations)
                return hmac.compare_digest(given.stored_key, keys.stored_key)
        return False

    def scram(self, name: str, mechanism: str) -> ScramKeys:
        """Return the keys by which a user proves to have the password; of an unknown one, keys that nobody has."""
        found = self.keys.get((mechanism, name)) or self._derived.get((mechanism, name))
        if found is not None:
            return found
        salt = hmac.digest(self._secret, f"{mechanism}:{name}".encode(), "sha256")[:_SALT_BYTES]
        password = self.passwords.get(name)
        if password is None:
            size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
            return ScramKeys(salt, ITERATIONS, os.urandom(size), os.urandom(size))
        keys = self._derived[mechanism, name] = ScramKeys.of(password, mechanism, salt)
        return keys


def _parsed(text: str, where: str) -> ScramKeys:
    """Return the keys of ``MECHANISM$ITERATIONS:SALT$STOREDKEY:SERVERKEY``."""
    try:
        mechanism, rounds, pair = text.strip().split("$")
        iterations, salt = rounds.split(":")
        stored, server = (b64decode(part, validate=True) for part in pair.split(":"))
        size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
        if int(iterations) < 1 or len(stored) != size or len(server) != size:
            raise ValueError(f"a key of {mechanism} has {size} bytes, and iterations are at least 1")
        return ScramKeys(b64decode(salt, validate=True), int(iterations), stored, server)
    except ValueError as error:
        raise ConfigError(f"{where}: expected MECHANISM$ITERATIONS:SALT$STOREDKEY:SERVERKEY ({error})") from error
