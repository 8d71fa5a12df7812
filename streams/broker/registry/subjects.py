"""The operations of the registry, which read and append records of the topic ``_schemas``.

The HTTP server parses requests and calls the operations; the log stores the records. Each operation reads the new
records of the log, decides, and appends; the state changes only by reading the log. Not thread-safe: the server holds
a lock.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from attrs import define, evolve, field

from streams.broker.registry import schema_records as records
from streams.broker.registry.schema_records import Record, RegistryState, SchemaVersion
from streams.registry import LEVELS, RegistryError, Schema, check, differences, errors, is_transitive

LATEST = ("latest", "-1")
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
DEFAULT_COMPATIBILITY = "BACKWARD"
_HIGHEST_VERSION = (1 << 31) - 1


class SchemaLog(Protocol):
    """The append-only log of the records."""

    def append(self, record: Record) -> None:
        """Append a record."""

    def since(self, offset: int) -> tuple[Sequence[Record], int]:
        """Return the records from an offset on, and the offset after them."""


@define
class SchemaRegistry:
    """Subjects with their versions, configurations and modes."""

    _log: SchemaLog
    _state: RegistryState = field(factory=RegistryState)
    _position: int = 0

    @property
    def state(self) -> RegistryState:
        """The state as of the end of the log."""
        records, self._position = self._log.since(self._position)
        for key, value in records:
            self._state.apply(key, value)
        return self._state

    # --- schemas and versions ---------------------------------------------------------------

    def register(self, subject: str, document: Mapping[str, Any], *, normalize: bool) -> SchemaVersion:
        """Return the version of a subject with this schema, which is registered if there is none.

        Raises:
            RegistryError: the schema is invalid or incompatible, or the mode forbids it.
        """
        schema = self._checked(document, normalize or bool(self._config(subject).get("normalize")))
        registered = self._find(subject, schema)
        if registered is not None:
            return registered
        state = self.state
        is_import = self._mode(subject) == "IMPORT"
        self._check_writable(subject)
        if not is_import:
            problems = self.incompatibilities(subject, schema)
            if problems:
                level = self._level(subject)
                told = "; ".join(problems)
                raise RegistryError(
                    errors.INCOMPATIBLE,
                    f"Schema being registered is incompatible with an earlier schema for subject "
                    f"{subject!r}, details: [{told}, {{compatibility: '{level}'}}]",
                )
        schema_id = self._new_id(schema, document, is_import=is_import)
        highest = max(state.subjects.get(subject, {0: None}))
        number = document.get("version") if is_import else None
        version = SchemaVersion(subject, number or highest + 1, schema_id, schema)
        self._log.append(records.schema_record(version))
        return version

    def _new_id(self, schema: Schema, document: Mapping[str, Any], *, is_import: bool) -> int:
        state = self.state
        asked = document.get("id") or -1
        if not is_import:
            if asked > 0:
                raise RegistryError(errors.NOT_PERMITTED, "a schema with an id needs the mode IMPORT")
            return state.ids.get(schema.identity) or state.highest_id + 1
        existing = state.schemas.get(asked)
        if existing is not None and existing != schema:
            raise RegistryError(errors.NOT_PERMITTED, f"id {asked} is that of another schema already")
        return int(asked) if asked > 0 else state.ids.get(schema.identity) or state.highest_id + 1

    def look_up(self, subject: str, document: Mapping[str, Any], *, normalize: bool, deleted: bool) -> SchemaVersion:
        """Return the version of a subject with this schema.

        Raises:
            RegistryError: there is no such subject or schema.
        """
        self.versions(subject, deleted=deleted)
        schema = self._checked(document, normalize)
        version = self._find(subject, schema, deleted=deleted)
        if version is None:
            raise errors.no_schema()
        return version

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """Return the versions of a subject in order.

        Raises:
            RegistryError: there is no such subject.
        """
        versions = self.state.versions(subject, deleted=deleted)
        if not versions:
            raise errors.no_subject(subject)
        return versions

    def version(self, subject: str, number: str, *, deleted: bool = False) -> SchemaVersion:
        """Return a version of a subject by its number or ``latest``.

        Raises:
            RegistryError: there is no such subject or version, or the version is not a number.
        """
        if number in LATEST:
            return self.versions(subject, deleted=deleted)[-1]
        if not number.isdigit() or not 0 < int(number) <= _HIGHEST_VERSION:
            raise RegistryError(
                errors.INVALID_VERSION,
                f"The specified version '{number}' is not a valid version id. Allowed values are between "
                '[1, 2^31-1] and the string "latest"',
            )
        for candidate in self.versions(subject, deleted=deleted):
            if candidate.version == int(number):
                return candidate
        raise errors.no_version(number)

    def schema(self, schema_id: int) -> Schema:
        """Return a schema by its ID.

        Raises:
            RegistryError: there is no such schema.
        """
        schema = self.state.schemas.get(schema_id)
        if schema is None:
            raise RegistryError(errors.SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        return schema

    def users(self, version: SchemaVersion) -> list[int]:
        """Return the IDs of the schemas that reference a version."""
        ids = [
            other.id
            for other in self.state.all_versions()
            for reference in other.schema.references
            if (reference.subject, reference.version) == (version.subject, version.version)
        ]
        return sorted(set(ids))

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete the versions of a subject, and return their numbers; ``permanent`` also removes soft-deleted ones.

        Raises:
            RegistryError: there is no such subject, it is soft-deleted already, or it must be soft-deleted first.
        """
        self._check_writable(subject)
        every = self.state.versions(subject, deleted=True)
        living = [version for version in every if not version.is_deleted]
        if not every:
            raise errors.no_subject(subject)
        if permanent and living:
            raise RegistryError(
                errors.SUBJECT_NOT_SOFT_DELETED,
                f"Subject '{subject}' was not deleted first before being permanently deleted",
            )
        if not permanent and not living:
            raise RegistryError(
                errors.SUBJECT_SOFT_DELETED,
                f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
            )
        for version in living:
            self._check_unused(version)
        if not permanent:
            self._log.append(records.subject_deletion_record(subject, living[-1].version))
            self._forget_settings(subject)
            return [version.version for version in living]
        for version in every:
            self._log.append(records.no_schema_record(version))
        return [version.version for version in every]

    def _forget_settings(self, subject: str) -> None:
        """Delete the configuration and mode of a subject, so that a new subject of this name starts without them."""
        if subject in self.state.configs:
            self._log.append(records.config_record(subject, None))
        if subject in self.state.modes:
            self._log.append(records.mode_record(subject, None))

    def delete_version(self, subject: str, number: str, *, permanent: bool) -> int:
        """Delete a version of a subject, and return its number; ``permanent`` also removes soft-deleted ones.

        Raises:
            RegistryError: there is no such version, it is referenced or soft-deleted, or must be soft-deleted first.
        """
        self._check_writable(subject)
        version = self.version(subject, number, deleted=number not in LATEST or permanent)
        place = f"Subject '{subject}' Version {version.version}"
        if permanent and not version.is_deleted:
            raise RegistryError(
                errors.VERSION_NOT_SOFT_DELETED, f"{place} was not deleted first before being permanently deleted"
            )
        if not permanent and version.is_deleted:
            raise RegistryError(
                errors.VERSION_SOFT_DELETED, f"{place} was soft deleted. Set permanent=true to delete permanently"
            )
        self._check_unused(version)
        if permanent:
            self._log.append(records.no_schema_record(version))
        else:
            self._log.append(records.schema_record(evolve(version, is_deleted=True)))
            if not self.state.versions(subject):
                self._forget_settings(subject)
        return version.version

    def _check_unused(self, version: SchemaVersion) -> None:
        users = self.users(version)
        if users:
            raise RegistryError(
                errors.REFERENCED,
                f"One or more references exist to the schema {{subject={version.subject},version={version.version}}}: "
                f"schemas {', '.join(map(str, users))}",
            )

    # --- compatibility ----------------------------------------------------------------------

    def incompatibilities(
        self, subject: str, schema: Schema, against: Sequence[SchemaVersion] | None = None
    ) -> list[str]:
        """Return the reasons why a schema may not be the next version of a subject; [] if it may.

        ``against`` are the versions to compare with (default: those that the compatibility level requires).
        """
        level = self._level(subject)
        earlier = self.state.versions(subject) if against is None else against
        if against is None and not is_transitive(level):
            earlier = earlier[-1:]
        problems: list[str] = []
        for version in reversed(earlier):
            differing = differences(level, (schema, self._referenced(schema)), self._with_references(version.schema))
            if differing:
                return [*differing, f"{{oldSchemaVersion: {version.version}}}"]
        return problems

    def tested(self, subject: str, document: Mapping[str, Any], number: str | None, *, normalize: bool) -> list[str]:
        """Return why a schema is incompatible with a version, or with all that the level requires (None).

        Raises:
            RegistryError: the schema is invalid, or there is no such version.
        """
        schema = self._checked(document, normalize)
        if number is None:
            return self.incompatibilities(subject, schema)
        if number in LATEST and not self.state.versions(subject):
            return []
        return self.incompatibilities(subject, schema, [self.version(subject, number)])

    def _level(self, subject: str) -> str:
        return str(self._config(subject).get("compatibilityLevel", DEFAULT_COMPATIBILITY))

    def _config(self, subject: str | None) -> Mapping[str, Any]:
        configs = self.state.configs
        return {"compatibilityLevel": DEFAULT_COMPATIBILITY} | configs.get(None, {}) | configs.get(subject, {})

    def config(self, subject: str | None, *, defaults: bool) -> Mapping[str, Any]:
        """Return the configuration of a subject, or the global one (None); ``defaults`` falls back to the global one.

        Raises:
            RegistryError: the subject has no configuration of its own.
        """
        if subject is not None and not defaults and subject not in self.state.configs:
            raise RegistryError(
                errors.NO_SUBJECT_COMPATIBILITY,
                f"Subject '{subject}' does not have subject-level compatibility configured",
            )
        return self._config(subject)

    def set_config(self, subject: str | None, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Set the configuration of a subject, or the global one (None); omitted settings are unchanged.

        Raises:
            RegistryError: the compatibility level is unknown.
        """
        self._check_writable(subject)
        changes = {name: value for name, value in document.items() if name != "compatibility" and value is not None}
        if "compatibility" in document:
            level = str(document["compatibility"]).upper()
            if level not in LEVELS:
                raise RegistryError(
                    errors.INVALID_COMPATIBILITY,
                    f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}",
                )
            changes["compatibilityLevel"] = level
        self._log.append(records.config_record(subject, {**self.state.configs.get(subject, {}), **changes}))
        return document

    def delete_config(self, subject: str | None) -> Mapping[str, Any]:
        """Delete the configuration of a subject, or reset the global one (None); return the previous configuration.

        Raises:
            RegistryError: the subject has no configuration of its own.
        """
        config = self.config(subject, defaults=False)
        self._log.append(records.config_record(subject, None))
        return config

    # --- modes ------------------------------------------------------------------------------

    def _mode(self, subject: str | None) -> str:
        modes = self.state.modes
        top = modes.get(None, "READWRITE")
        # The override holds for all subjects, whatever their own mode is.
        return "READONLY" if top == "READONLY_OVERRIDE" else modes.get(subject, top)

    def mode(self, subject: str | None, *, defaults: bool) -> str:
        """Return the mode of a subject, or the global one (None).

        Raises:
            RegistryError: the subject has no mode of its own.
        """
        modes = self.state.modes
        if subject is not None and not defaults and subject not in modes:
            raise RegistryError(
                errors.NO_SUBJECT_MODE, f"Subject '{subject}' does not have subject-level mode configured"
            )
        return modes.get(subject, modes.get(None, "READWRITE"))

    def set_mode(self, subject: str | None, mode: str, *, force: bool) -> str:
        """Set the mode of a subject, or the global one (None).

        Raises:
            RegistryError: the mode is unknown, or IMPORT is set without ``force`` while schemas exist.
        """
        if mode not in MODES:
            raise RegistryError(errors.INVALID_MODE, f"Invalid mode. Valid values are {', '.join(MODES)}")
        state = self.state
        has_schemas = bool(state.all_versions() if subject is None else state.versions(subject))
        if mode == "IMPORT" and has_schemas and not force:
            raise RegistryError(
                errors.NOT_PERMITTED, "Cannot import since found existing subjects; force=true allows it"
            )
        self._log.append(records.mode_record(subject, mode))
        return mode

    def delete_mode(self, subject: str | None) -> str:
        """Delete the mode of a subject, or reset the global one (None); return the previous mode.

        Raises:
            RegistryError: the subject has no mode of its own.
        """
        mode = self.mode(subject, defaults=False)
        self._log.append(records.mode_record(subject, None))
        return mode

    def _check_writable(self, subject: str | None) -> None:
        mode = self._mode(subject)
        if mode.startswith("READONLY"):
            raise RegistryError(errors.NOT_PERMITTED, f"Subject {subject} is in {mode} mode")

    # --- parts ------------------------------------------------------------------------------

    def _checked(self, document: Mapping[str, Any], normalize: bool) -> Schema:
        """Return the schema of a request in canonical form; a request without a text names the schema by ``id``."""
        if not document.get("schema") and document.get("id", -1) > 0:
            return self.schema(document["id"])
        schema = Schema.parse(document).canonical(normalized=normalize)
        check(schema, self._referenced(schema))
        return schema

    def _find(self, subject: str, schema: Schema, *, deleted: bool = False) -> SchemaVersion | None:
        versions = [it for it in self.state.versions(subject, deleted=deleted) if it.schema == schema]
        return versions[-1] if versions else None

    def _with_references(self, schema: Schema) -> tuple[Schema, dict[str, Schema]]:
        return schema, self._referenced(schema)

    def _referenced(self, schema: Schema) -> dict[str, Schema]:
        """Return the schemas that a schema references, directly or indirectly, by name, in dependency order."""
        schemas: dict[str, Schema] = {}
        for reference in schema.references:
            try:
                version = self.version(reference.subject, str(reference.version), deleted=True)
            except RegistryError as error:
                raise errors.invalid_schema(
                    f"reference {reference.name!r} to version {reference.version} of subject "
                    f"{reference.subject!r}: {error}"
                ) from error
            schemas |= self._referenced(version.schema)
            schemas[reference.name] = version.schema
        return schemas
