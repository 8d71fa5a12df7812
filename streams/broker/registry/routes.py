"""The paths of the registry's HTTP API, and their handlers.

The module does no I/O: handlers take parsed requests and return JSON values. The API is that of Confluent's Schema
Registry 7, without contexts, exporters or rules.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from attrs import evolve, field, frozen

from streams.broker.registry.schema_records import SchemaVersion
from streams.broker.registry.subjects import SchemaRegistry
from streams.registry import PROTOBUF, TYPES, RegistryError, Schema, errors, invalid_schema, page_of

_NOT_FOUND = 404
_NOT_ALLOWED = 405


@frozen
class RegistryCall:
    """A request: path segments, query arguments, and JSON body."""

    parts: Mapping[str, str]
    arguments: Mapping[str, str]
    body: Mapping[str, Any] = field(factory=dict)

    def flag(self, *names: str) -> bool:
        """Return whether an argument is ``true``, case-insensitively."""
        return any(self.arguments.get(name, "").lower() == "true" for name in names)

    def number(self, name: str, default: int) -> int:
        """Return an argument as a whole number.

        Raises:
            RegistryError: the argument is not a number.
        """
        text = self.arguments.get(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise RegistryError(_NOT_FOUND, f"argument {name}: {text!r} is no number") from None

    def page(self, items: list[Any]) -> list[Any]:
        """Return the part of a list that the arguments ``offset`` and ``limit`` select."""
        return page_of(items, max(0, self.number("offset", 0)), self.number("limit", -1))

    @property
    def subject(self) -> str:
        """The subject that the path names."""
        return self.parts["subject"]

    @property
    def schema_id(self) -> int:
        """The ID that the path names.

        Raises:
            RegistryError: the ID is not a number.
        """
        if not self.parts["id"].isdigit():
            raise RegistryError(_NOT_FOUND, f"{self.parts['id']!r} is no ID of a schema")
        return int(self.parts["id"])


def _shown(schema: Schema, call: RegistryCall) -> Schema:
    """Return a schema in the requested format."""
    if call.arguments.get("format") == "serialized" and schema.kind == PROTOBUF:
        from streams.registry import protobuf_files

        return evolve(schema, text=protobuf_files.serialized(schema.text))
    return schema


def _version(version: SchemaVersion, call: RegistryCall) -> dict[str, Any]:
    return {**version.payload(), **_shown(version.schema, call).payload()}


def _types(_registry: SchemaRegistry, _call: RegistryCall) -> Any:
    return list(TYPES)


def _schemas(registry: SchemaRegistry, call: RegistryCall) -> Any:
    versions = registry.state.all_versions(deleted=call.flag("deleted"))
    prefix = call.arguments.get("subjectPrefix", "")
    versions = [version for version in versions if version.subject.startswith(prefix)]
    if call.flag("latestOnly"):
        versions = list({version.subject: version for version in versions}.values())
    return [_version(version, call) for version in call.page(versions)]


def _by_id(registry: SchemaRegistry, call: RegistryCall) -> Any:
    schema = registry.schema(call.schema_id)
    payload = {**_shown(schema, call).payload(), "guid": schema.guid}
    if call.flag("fetchMaxId"):
        payload["maxId"] = registry.state.highest_id
    return payload


def _text_by_id(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return SchemaText(_shown(registry.schema(call.schema_id), call).text)


def _by_guid(registry: SchemaRegistry, call: RegistryCall) -> Any:
    for schema in registry.state.schemas.values():
        if schema.guid == call.parts["guid"]:
            return {**_shown(schema, call).payload(), "guid": schema.guid}
    raise errors.no_schema()


def _users_of_id(registry: SchemaRegistry, call: RegistryCall) -> list[SchemaVersion]:
    registry.schema(call.schema_id)
    every = registry.state.all_versions(deleted=call.flag("deleted"))
    subject = call.arguments.get("subject")
    return [it for it in every if it.id == call.schema_id and subject in (None, it.subject)]


def _subjects_of_id(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return call.page(list(dict.fromkeys(version.subject for version in _users_of_id(registry, call))))


def _versions_of_id(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return call.page([{"subject": it.subject, "version": it.version} for it in _users_of_id(registry, call)])


def _subjects(registry: SchemaRegistry, call: RegistryCall) -> Any:
    state = registry.state
    prefix = call.arguments.get("subjectPrefix", "")
    only = call.flag("deletedOnly", "deleted_only")
    subjects = [
        subject
        for subject in sorted(state.subjects)
        if subject.startswith(prefix)
        and (not state.versions(subject) if only else state.versions(subject, deleted=call.flag("deleted")))
    ]
    return call.page(subjects)


def _look_up(registry: SchemaRegistry, call: RegistryCall) -> Any:
    version = registry.look_up(call.subject, call.body, normalize=call.flag("normalize"), deleted=call.flag("deleted"))
    return _version(version, call)


def _delete_subject(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return registry.delete_subject(call.subject, permanent=call.flag("permanent"))


def _versions(registry: SchemaRegistry, call: RegistryCall) -> Any:
    only = call.flag("deletedOnly", "deleted_only")
    versions = registry.versions(call.subject, deleted=only or call.flag("deleted"))
    return call.page([version.version for version in versions if version.is_deleted or not only])


def _register(registry: SchemaRegistry, call: RegistryCall) -> Any:
    version = registry.register(call.subject, call.body, normalize=call.flag("normalize"))
    return _version(version, call)


def _asked(registry: SchemaRegistry, call: RegistryCall) -> SchemaVersion:
    return registry.version(call.subject, call.parts["version"], deleted=call.flag("deleted"))


def _one_version(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return _version(_asked(registry, call), call)


def _text_of_version(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return SchemaText(_shown(_asked(registry, call).schema, call).text)


def _referenced_by(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return call.page(registry.users(_asked(registry, call)))


def _delete_version(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return registry.delete_version(call.subject, call.parts["version"], permanent=call.flag("permanent"))


def _test(registry: SchemaRegistry, call: RegistryCall) -> Any:
    number = call.parts.get("version")
    problems = registry.tested(call.subject, call.body, number, normalize=call.flag("normalize"))
    answer: dict[str, Any] = {"is_compatible": not problems}
    return answer | {"messages": problems} if call.flag("verbose") else answer


def _config(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return registry.config(call.parts.get("subject"), defaults=call.flag("defaultToGlobal"))


def _set_config(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return registry.set_config(call.parts.get("subject"), call.body)


def _delete_config(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return registry.delete_config(call.parts.get("subject"))


def _mode(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return {"mode": registry.mode(call.parts.get("subject"), defaults=call.flag("defaultToGlobal"))}


def _set_mode(registry: SchemaRegistry, call: RegistryCall) -> Any:
    mode = call.body.get("mode")
    if not isinstance(mode, str):
        raise RegistryError(errors.INVALID_MODE, "the mode is missing")
    return {"mode": registry.set_mode(call.parts.get("subject"), mode, force=call.flag("force"))}


def _delete_mode(registry: SchemaRegistry, call: RegistryCall) -> Any:
    return {"mode": registry.delete_mode(call.parts.get("subject"))}


def _contexts(_registry: SchemaRegistry, _call: RegistryCall) -> Any:
    return ["."]


def _root(_registry: SchemaRegistry, _call: RegistryCall) -> Any:
    return {}


@frozen
class SchemaText:
    """A response that consists of the schema text."""

    text: str


Handler: TypeAlias = Callable[[SchemaRegistry, RegistryCall], Any]
_TABLE: Final[tuple[tuple[str, Mapping[str, Handler]], ...]] = (
    ("/", {"GET": _root}),
    ("/contexts", {"GET": _contexts}),
    ("/schemas", {"GET": _schemas}),
    ("/schemas/types", {"GET": _types}),
    ("/schemas/ids/{id}", {"GET": _by_id}),
    ("/schemas/ids/{id}/schema", {"GET": _text_by_id}),
    ("/schemas/ids/{id}/subjects", {"GET": _subjects_of_id}),
    ("/schemas/ids/{id}/versions", {"GET": _versions_of_id}),
    ("/schemas/guids/{guid}", {"GET": _by_guid}),
    ("/subjects", {"GET": _subjects}),
    ("/subjects/{subject}", {"POST": _look_up, "DELETE": _delete_subject}),
    ("/subjects/{subject}/versions", {"GET": _versions, "POST": _register}),
    ("/subjects/{subject}/versions/{version}", {"GET": _one_version, "DELETE": _delete_version}),
    ("/subjects/{subject}/versions/{version}/schema", {"GET": _text_of_version}),
    ("/subjects/{subject}/versions/{version}/referencedby", {"GET": _referenced_by}),
    ("/compatibility/subjects/{subject}/versions", {"POST": _test}),
    ("/compatibility/subjects/{subject}/versions/{version}", {"POST": _test}),
    ("/config", {"GET": _config, "PUT": _set_config, "DELETE": _delete_config}),
    ("/config/{subject}", {"GET": _config, "PUT": _set_config, "DELETE": _delete_config}),
    ("/mode", {"GET": _mode, "PUT": _set_mode, "DELETE": _delete_mode}),
    ("/mode/{subject}", {"GET": _mode, "PUT": _set_mode, "DELETE": _delete_mode}),
)
ROUTES: Final = tuple(
    (re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path) + "/?"), handlers) for path, handlers in _TABLE
)


def answer(
    registry: SchemaRegistry, method: str, path: str, arguments: Mapping[str, str], body: Mapping[str, Any]
) -> Any:
    """Return the response to a request: JSON, or a ``SchemaText``; ``path`` is percent-encoded.

    Raises:
        RegistryError: the request is rejected, or there is no such path.
    """
    for pattern, handlers in ROUTES:
        match = pattern.fullmatch(path)
        if match is None:
            continue
        handler = handlers.get(method)
        if handler is None:
            raise RegistryError(_NOT_ALLOWED, f"HTTP {method} is not allowed here; there is {', '.join(handlers)}")
        parts = {name: unquote(part) for name, part in match.groupdict().items()}
        try:
            return handler(registry, RegistryCall(parts, arguments, body))
        except (TypeError, AttributeError) as error:
            # The JSON of a schema may have anything anywhere.
            raise invalid_schema(error) from error
    raise RegistryError(_NOT_FOUND, f"HTTP 404 Not Found: {path}")
