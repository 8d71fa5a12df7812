"""Schemas as the registry stores them: type, text, references, metadata and rules.

Schemas have the same ID if all of these are equal; texts are compared in canonical form. Pure:
no I/O.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen
from attrs.validators import instance_of

from streams.registry.errors import invalid_schema

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"
TYPES = (JSON, PROTOBUF, AVRO)


@frozen(order=True)
class Reference:
    """A reference to a version of a subject, under the ``name`` that the referencing schema uses."""

    name: str = field(validator=instance_of(str))
    subject: str = field(validator=instance_of(str))
    version: int = field(validator=instance_of(int))

    def payload(self) -> dict[str, Any]:
        """Return the reference as JSON."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@frozen
class Schema:
    """A schema; ``kind`` is AVRO, JSON or PROTOBUF.

    ``metadata`` and ``rules`` are stored, returned and compared, but rules are not executed.
    """

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rules: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "Schema":
        """Return the schema of a request or of a record of the topic.

        Raises:
            RegistryError: a field has the wrong type.
        """
        kind = document.get("schemaType") or AVRO
        text = document.get("schema")
        if kind not in TYPES:
            raise invalid_schema(f"schemaType {kind!r} is none of {', '.join(TYPES)}")
        if not isinstance(text, str) or not text.strip():
            raise invalid_schema("there is no schema")
        try:
            references = tuple(
                Reference(item["name"], item["subject"], item["version"]) for item in document.get("references") or ()
            )
        except (TypeError, KeyError) as error:
            raise invalid_schema(f"a reference needs name, subject and version: {error}") from error
        return cls(kind, text, references, document.get("metadata") or None, document.get("ruleSet") or None)

    def payload(self) -> dict[str, Any]:
        """Return the schema as JSON; the type is omitted if it is Avro."""
        payload: dict[str, Any] = {"schema": self.text}
        if self.kind != AVRO:
            payload["schemaType"] = self.kind
        if self.references:
            payload["references"] = [reference.payload() for reference in self.references]
        if self.metadata:
            payload["metadata"] = dict(self.metadata)
        if self.rules:
            payload["ruleSet"] = dict(self.rules)
        return payload

    @property
    def identity(self) -> str:
        """A text that is equal exactly for equal schemas."""
        return json.dumps({"schemaType": self.kind, **self.payload()}, sort_keys=True)

    @property
    def guid(self) -> str:
        """The global ID of the schema: the MD5 digest of its identity, as a UUID."""
        digest = hashlib.md5(self.identity.encode(), usedforsecurity=False).digest()
        return str(uuid.UUID(bytes=digest))

    def canonical(self, *, normalized: bool) -> "Schema":
        """Return the schema with its text in canonical form: JSON without spaces, or a Protobuf file in base64.

        ``normalized`` also sorts the references and the attributes of the schema.

        Raises:
            RegistryError: the text is neither JSON nor a Protobuf file.
        """
        if self.kind == PROTOBUF:
            # Only here, so that the registry needs the extra ``protobuf`` for such schemas alone.
            from streams.registry import protobuf_files

            text = protobuf_files.canonical(self.text)
        else:
            document = parsed_json(self.text, self.kind)
            text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=normalized)
        references = tuple(sorted(self.references)) if normalized else self.references
        return evolve(self, text=text, references=references)


def parsed_json(text: str, kind: str = JSON) -> Any:
    """Return the parsed JSON of a schema; an Avro type name such as ``string`` may be without quotes.

    Raises:
        RegistryError: the text is not JSON.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        if kind == AVRO and text.strip().isidentifier():
            return text.strip()
        raise invalid_schema(error) from error
    except RecursionError as error:
        raise invalid_schema("it is nested too deeply") from error
    if (
        kind == AVRO
        and isinstance(document, dict)
        and document.keys() == {"type"}
        and isinstance(document["type"], str)
    ):
        return document["type"]
    return document


#: The schemas that a schema refers to, by the name under which it does.
Referenced = Mapping[str, "Schema"]


def page_of(items: Sequence[Any], offset: int, limit: int) -> list[Any]:
    """Return a part of a list; a limit below 1 means no limit."""
    return list(items[offset : offset + limit] if limit > 0 else items[offset:])
