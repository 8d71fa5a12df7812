"""The records of the topic ``_schemas``, and the state that results from them.

Keys and values are JSON in the format of Confluent's Schema Registry: the key type is ``SCHEMA``, ``CONFIG``, ``MODE``
or ``DELETE_SUBJECT``, and a record without a value is a tombstone. The state depends only on the records, so it is the
same after a restart. Pure: no I/O.
"""

import json
from collections.abc import Mapping
from typing import Any

from attrs import define, evolve, field, frozen

from streams.registry import Schema

TOPIC = "_schemas"


@frozen
class SchemaVersion:
    """A schema as a version of a subject; after a soft deletion it can still be read by its ID."""

    subject: str
    version: int
    id: int
    schema: Schema
    is_deleted: bool = False

    def payload(self) -> dict[str, Any]:
        """Return the version as JSON, as in responses and in the topic."""
        return {
            "subject": self.subject,
            "version": self.version,
            "id": self.id,
            "guid": self.schema.guid,
            **self.schema.payload(),
        }


#: A record of the topic: its key and its value.
Record = tuple[bytes, bytes | None]


def _record(key: Mapping[str, Any], value: Mapping[str, Any] | None) -> Record:
    return _json(key), None if value is None else _json(value)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def schema_record(version: SchemaVersion) -> Record:
    """Return the record that registers a version."""
    key = {"keytype": "SCHEMA", "subject": version.subject, "version": version.version, "magic": 1}
    return _record(key, version.payload() | {"deleted": version.is_deleted})


def no_schema_record(version: SchemaVersion) -> Record:
    """Return the record that deletes a version permanently."""
    return schema_record(version)[0], None


def subject_deletion_record(subject: str, version: int) -> Record:
    """Return the record that deletes the versions of a subject up to ``version``."""
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return _record(key, {"subject": subject, "version": version})


def config_record(subject: str | None, config: Mapping[str, Any] | None) -> Record:
    """Return the record that sets the configuration of a subject, or the global one (None)."""
    key = {"keytype": "CONFIG", "subject": subject, "magic": 0}
    return _record(key, None if config is None else {"subject": subject, **config})


def mode_record(subject: str | None, mode: str | None) -> Record:
    """Return the record that sets the mode of a subject, or the global one (None)."""
    key = {"keytype": "MODE", "subject": subject, "magic": 0}
    return _record(key, None if mode is None else {"subject": subject, "mode": mode})


@define
class RegistryState:
    """The state after applying the records of the topic."""

    #: Versions of each subject in their order, deleted ones too.
    subjects: dict[str, dict[int, SchemaVersion]] = field(factory=dict)
    schemas: dict[int, Schema] = field(factory=dict)
    #: IDs by the identity of the schema.
    ids: dict[str, int] = field(factory=dict)
    #: Configurations and modes by subject; None is the global one.
    configs: dict[str | None, dict[str, Any]] = field(factory=dict)
    modes: dict[str | None, str] = field(factory=dict)
    highest_id: int = 0

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply a record of the topic; other key types, such as ``NOOP``, are ignored."""
        name = json.loads(key)
        document = None if value is None else json.loads(value)
        subject = name.get("subject")
        match name["keytype"]:
            case "SCHEMA":
                self._set_version(subject, name["version"], document)
            case "DELETE_SUBJECT" if document is not None:
                versions = self.subjects.get(subject, {})
                for number, version in versions.items():
                    if number <= document["version"]:
                        versions[number] = evolve(version, is_deleted=True)
            case "CONFIG":
                _set(
                    self.configs, subject, document and {part: it for part, it in document.items() if part != "subject"}
                )
            case "MODE":
                _set(self.modes, subject, document and document["mode"])

    def _set_version(self, subject: str, number: int, document: Mapping[str, Any] | None) -> None:
        versions = self.subjects.setdefault(subject, {})
        if document is None:
            versions.pop(number, None)
            if not versions:
                del self.subjects[subject]
            return
        schema = Schema.parse(document)
        schema_id = document["id"]
        versions[number] = SchemaVersion(subject, number, schema_id, schema, bool(document.get("deleted")))
        self.schemas[schema_id] = schema
        self.ids.setdefault(schema.identity, schema_id)
        self.highest_id = max(self.highest_id, schema_id)

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """Return the versions of a subject in ascending order; with ``deleted``, soft-deleted ones too."""
        versions = self.subjects.get(subject, {})
        return [versions[number] for number in sorted(versions) if deleted or not versions[number].is_deleted]

    def all_versions(self, *, deleted: bool = False) -> list[SchemaVersion]:
        """Return the versions of all subjects, in the order of their names."""
        return [version for subject in sorted(self.subjects) for version in self.versions(subject, deleted=deleted)]


def _set(table: dict[str | None, Any], subject: str | None, value: Any) -> None:
    if value is None:
        table.pop(subject, None)
    else:
        table[subject] = value
