"""Requests to a schema registry, by the standard library: schemas by ID, versions of subjects, registration.

Answers are not cached here: serdes keep what they have read, since a schema never changes under its ID.
"""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from attrs import field, frozen

from streams.core.address import is_loopback
from streams.core.errors import ConfigError, SchemaError
from streams.registry import Schema

_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404
_CONFLICT = 409


class NoSuchSchema(SchemaError):
    """The registry has no such schema, subject or version."""


class IncompatibleSchema(SchemaError):
    """The registry refuses a schema, as it is incompatible with an earlier one of its subject."""


@frozen
class RegistryAccess:
    """A schema registry: its URL, and how to reach it.

    ``user`` and ``password`` are sent by HTTP Basic; they may be in the URL too.  ``token`` is sent as a bearer token.
    ``ca_file`` is a PEM file of certificates to trust instead of those of the system. ``timeout_s`` limits each wait
    for the registry.

    Raises:
        ConfigError: it is no http or https URL.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_s: float = 10.0

    def __attrs_post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"registry {self.place!r} is no URL such as http://127.0.0.1:8081")

    @property
    def place(self) -> str:
        """The URL without a user and a password, for messages."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))

    # --- what serdes ask --------------------------------------------------------------------

    def schema(self, schema_id: int) -> Schema:
        """Return the schema with an ID; a Protobuf schema is a descriptor in base64.

        Raises:
            NoSuchSchema: there is none.
            SchemaError: the registry does not answer.
        """
        return Schema.parse(self._ask("GET", f"/schemas/ids/{schema_id}?format=serialized"))

    def version(self, subject: str, version: int | str) -> Schema:
        """Return a version of a subject by its number or ``latest``.

        Raises:
            NoSuchSchema: there is none.
            SchemaError: the registry does not answer.
        """
        return Schema.parse(self._ask("GET", f"/subjects/{_quoted(subject)}/versions/{version}?format=serialized"))

    def register(self, subject: str, schema: Schema) -> int:
        """Add a schema to a subject, unless it is there, and return its ID.

        Raises:
            IncompatibleSchema: the registry refuses it.
            SchemaError: the schema is invalid, or the registry does not answer.
        """
        return int(self._ask("POST", f"/subjects/{_quoted(subject)}/versions", schema.payload())["id"])

    def look_up(self, subject: str, schema: Schema) -> Mapping[str, Any]:
        """Return the ``id`` and ``version`` of a schema in a subject.

        Raises:
            NoSuchSchema: the subject has no such schema.
            SchemaError: the registry does not answer.
        """
        return self._ask("POST", f"/subjects/{_quoted(subject)}", schema.payload())

    def referenced(self, schema: Schema) -> dict[str, Schema]:
        """Return the schemas that a schema refers to, directly or through others, by name; the deepest come first.

        Raises:
            NoSuchSchema: one is missing.
            SchemaError: the registry does not answer.
        """
        found: dict[str, Schema] = {}
        for reference in schema.references:
            other = self.version(reference.subject, reference.version)
            found |= self.referenced(other)
            found[reference.name] = other
        return found

    # --- HTTP -------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.place + path, data, self._headers(), method=method)
        what = f"schema registry {self.place}: {method} {path.partition('?')[0]}"
        try:
            with self._opener().open(request, timeout=self.timeout_s) as response:
                found: Mapping[str, Any] = json.load(response)
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(what, error.code, error.read()) from None
        except (OSError, ValueError) as error:
            raise SchemaError(f"{what}: no answer: {getattr(error, 'reason', error)}") from error

    def _opener(self) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = []
        if is_loopback(urlsplit(self.url).hostname or ""):
            # A proxy cannot reach this machine.
            handlers.append(urllib.request.ProxyHandler({}))
        if self.ca_file is not None:
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=self.ca_file)))
        return urllib.request.build_opener(*handlers)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE}
        parts = urlsplit(self.url)
        user, password = self.user or unquote(parts.username or ""), self.password or unquote(parts.password or "")
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        elif user:
            headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
        return headers


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _refusal(what: str, status: int, body: bytes) -> SchemaError:
    try:
        told = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        told = body[:200].decode(errors="replace")
    kind = {_NOT_FOUND: NoSuchSchema, _CONFLICT: IncompatibleSchema}.get(status, SchemaError)
    return kind(f"{what}: {status}: {told}")


def registry_at(given: "str | RegistryAccess | None") -> RegistryAccess | None:
    """Return the registry that is given by its URL or as a whole."""
    return RegistryAccess(given) if isinstance(given, str) else given
