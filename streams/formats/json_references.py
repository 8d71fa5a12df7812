"""The schemas of other subjects that a JSON schema refers to, read from a registry when the type is declared."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urldefrag, urljoin

from streams.core.errors import TopologyError
from streams.formats.registry_client import References, RegistryAccess, referred
from streams.registry import JSON, Reference, Schema


def referenced_documents(
    schema: Mapping[str, Any], access: RegistryAccess | None, references: References
) -> tuple[tuple[Reference, ...], dict[str, Any]]:
    """Return the references of a schema, and the documents by URI that it refers to, directly or not.

    Raises:
        TopologyError: a reference leads nowhere.
        SchemaError: the registry does not respond.
    """
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    direct: dict[str, Reference] = {}
    schemas: dict[str, Schema] = {}
    documents: dict[str, Any] = {}

    def document(name: str) -> Any:
        if name in references or name not in schemas:
            direct[name], more = referred("$ref", name, JSON, access, references)
            schemas.update(more)
        return json.loads(schemas[name].text)

    def target_of(ref: str, resolver: Any, base: str) -> tuple[Any, Any, str]:
        name = urldefrag(ref).url
        uri = urljoin(base, name)
        try:
            target = resolver.lookup(ref)
        except Unresolvable as error:
            if not name or uri in documents:
                raise TopologyError(f"$ref {ref!r} names no part of its schema") from error
            documents[uri] = document(name)
            return target_of(ref, resolver, base)
        return _resource(target.contents), target.resolver, uri if name else base

    everything = Registry(retrieve=lambda uri: _resource(documents[uri])).combine(registry_of({}))  # type: ignore[call-arg]
    root = _resource(schema)
    pending = [(root, everything.resolver_with_root(root), root.id() or "")]
    seen: set[int] = set()
    while pending:
        resource, resolver, base = pending.pop()
        contents = resource.contents
        if isinstance(contents, Mapping) and id(contents) not in seen:
            seen.add(id(contents))
            for part in resource.subresources():
                pending.append((part, resolver.in_subresource(part), urljoin(base, part.id() or "")))
            if isinstance(ref := contents.get("$ref"), str):
                pending.append(target_of(ref, resolver, base))
    return tuple(direct.values()), documents


def _resource(contents: Any) -> Any:
    from referencing import Resource
    from referencing.jsonschema import DRAFT202012

    return Resource.from_contents(contents, DRAFT202012)


def registry_of(documents: Mapping[str, Any]) -> Any:
    """Return the registry of ``referencing`` with these documents, and with the drafts of JSON Schema."""
    from jsonschema.validators import SPECIFICATIONS

    return SPECIFICATIONS.with_resources((uri, _resource(document)) for uri, document in documents.items())
