"""Requests to a schema registry, with the standard library: schemas by ID, versions of subjects, registration.

Responses are not cached here: serdes cache schemas by ID, since the schema of an ID never changes.
"""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from attrs import field, frozen

from streams.core.errors import ConfigError, SchemaError, TopologyError
from streams.core.http.address import is_loopback
from streams.registry import Reference, Schema

_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404
_CONFLICT = 409


class NoSuchSchema(SchemaError):
    """The registry has no such schema, subject or version."""


class IncompatibleSchema(SchemaError):
    """The registry rejects a schema because it is incompatible with an earlier version of its subject."""


@frozen
class RegistryAccess:
    """The URL of a schema registry, with credentials and TLS settings.

    ``user`` and ``password`` are sent with HTTP Basic authentication; they may also be part of the URL.
    ``token`` is sent as a bearer token. ``ca_file`` is a PEM file of CA certificates that replace those of the system.
    ``timeout_s`` limits each wait for the registry.

    Raises:
        ConfigError: the URL is not an http or https URL.
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
        """The URL without user and password, for error messages."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))

    # --- what serdes ask --------------------------------------------------------------------

    def schema(self, schema_id: int) -> Schema:
        """Return the schema with an ID; a Protobuf schema is a file descriptor in base64.

        Raises:
            NoSuchSchema: the registry has no such schema, subject or version.
            SchemaError: the registry does not respond.
        """
        return Schema.parse(self._ask("GET", f"/schemas/ids/{schema_id}?format=serialized"))

    def version(self, subject: str, version: int | str) -> Schema:
        """Return a version of a subject by its number or ``latest``.

        Raises:
            NoSuchSchema: the registry has no such schema, subject or version.
            SchemaError: the registry does not respond.
        """
        return Schema.parse(self._page(subject, version))

    def reference(self, name: str, subject: str, version: int | str) -> tuple[Reference, dict[str, Schema]]:
        """Return the reference to a version of a subject, and the schemas by name: the named one, and those below it.

        Raises:
            NoSuchSchema: the registry has no such subject or version.
            SchemaError: the registry does not respond.
        """
        page = self._page(subject, version)
        schema = Schema.parse(page)
        return Reference(name, subject, int(page["version"])), {**self.referenced(schema), name: schema}

    def identified(self, subject: str, version: int | str) -> tuple[int, Schema]:
        """Return a version of a subject with its schema ID.

        Raises:
            NoSuchSchema: the registry has no such subject or version.
            SchemaError: the registry does not respond.
        """
        page = self._page(subject, version)
        return int(page["id"]), Schema.parse(page)

    def register(self, subject: str, schema: Schema) -> int:
        """Register a schema under a subject, unless the subject has it already, and return its ID.

        Raises:
            IncompatibleSchema: the registry rejects the schema.
            SchemaError: the schema is invalid, or the registry does not respond.
        """
        return int(self._ask("POST", f"/subjects/{_quoted(subject)}/versions", schema.payload())["id"])

    def look_up(self, subject: str, schema: Schema) -> Mapping[str, Any]:
        """Return the ``id`` and ``version`` of a schema in a subject.

        Raises:
            NoSuchSchema: the subject has no such schema.
            SchemaError: the registry does not respond.
        """
        return self._ask("POST", f"/subjects/{_quoted(subject)}", schema.payload())

    def referenced(self, schema: Schema) -> dict[str, Schema]:
        """Return the schemas that a schema references, directly or indirectly, by name, in dependency order.

        Raises:
            NoSuchSchema: a referenced schema is missing.
            SchemaError: the registry does not respond.
        """
        schemas: dict[str, Schema] = {}
        for reference in schema.references:
            other = self.version(reference.subject, reference.version)
            schemas |= self.referenced(other)
            schemas[reference.name] = other
        return schemas

    # --- HTTP -------------------------------------------------------------------------------

    def _page(self, subject: str, version: int | str) -> Mapping[str, Any]:
        return self._ask("GET", f"/subjects/{_quoted(subject)}/versions/{version}?format=serialized")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.place + path, data, self._headers(), method=method)
        what = f"schema registry {self.place}: {method} {path.partition('?')[0]}"
        try:
            with self._opener().open(request, timeout=self.timeout_s) as response:
                answer: Mapping[str, Any] = json.load(response)
                return answer
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
        user = self.user or unquote(parts.username or "")
        password = self.password or unquote(parts.password or "")
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        elif user:
            headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
        return headers


#: The subject of each name by which a schema refers to others, alone or with a version.
References: TypeAlias = Mapping[str, str | tuple[str, int]]


def referred(
    what: str, name: str, kind: str, access: RegistryAccess | None, references: References
) -> tuple[Reference, dict[str, Schema]]:
    """Return what ``RegistryAccess.reference`` does for a name that a schema refers to; ``what`` is for messages.

    Raises:
        TopologyError: the name leads nowhere, or to a schema that is not of the ``kind``.
        SchemaError: the registry does not respond.
    """
    if access is None:
        raise TopologyError(f"{what} {name!r} names another schema: give the registry= that has it")
    subject = references.get(name, name)
    place = (subject, "latest") if isinstance(subject, str) else subject
    try:
        reference, schemas = access.reference(name, *place)
    except NoSuchSchema as error:
        raise TopologyError(f"{what} {name!r}, subject {place[0]!r}: {error}") from error
    if schemas[name].kind != kind:
        raise TopologyError(f"{what} {name!r} names a schema of type {schemas[name].kind}, not {kind}")
    return reference, schemas


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _refusal(what: str, status: int, body: bytes) -> SchemaError:
    try:
        told = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        told = body[:200].decode(errors="replace")
    kind = {_NOT_FOUND: NoSuchSchema, _CONFLICT: IncompatibleSchema}.get(status, SchemaError)
    return kind(f"{what}: {status}: {told}")


def registry_at(registry: "str | RegistryAccess | None") -> RegistryAccess | None:
    """Return the registry for a URL; a ``RegistryAccess`` is returned unchanged."""
    return RegistryAccess(registry) if isinstance(registry, str) else registry
