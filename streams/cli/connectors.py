"""The file of ``streams connect``: the cluster, and the connectors with their topics and settings.

Secrets are given as ``{file = "PATH"}`` or ``{command = ["PROGRAM", "ARGUMENT"]}``, so that they are neither in the
file nor in the list of processes.  Paths are those of the current folder.
"""

import logging
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from streams.cli.mistakes import UsageError
from streams.cli.scripts import DEFAULT_FUNCTION, Script, load, module_of
from streams.cli.topic_declarations import topic_in
from streams.core.errors import ConfigError, StreamsError
from streams.core.folders import secret_text
from streams.core.nearest import meant
from streams.core.settings.config import StreamsConfig
from streams.core.topic import Topic

if TYPE_CHECKING:
    from streams.connect import Side, SinkWorker, SourceWorker
    from streams.protocol.transport import Cluster

_CLUSTER: Final = ("bootstrap_servers", "state_dir", "settings")
_SIDES: Final[Mapping[str, "Side"]] = {"sources": "source", "sinks": "sink"}
_TOPIC: Final = ("name", "key", "value", "partitions")
#: Types of keys and values by name, for topics without a script.
_TYPES: Final[Mapping[str, Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "bytes": bytes,
    "dict": dict,
    "list": list,
    "none": None,
}
_HIDDEN: Final = "(secret)"


@define
class Secrets:
    """The secrets that were read, which are hidden in messages."""

    _values: set[str] = field(factory=set)

    @property
    def are_there(self) -> bool:
        """Whether the file has secrets."""
        return bool(self._values)

    def revealed(self, value: Any, where: str) -> Any:
        """Return a value with the secrets in place of their tables.

        Raises:
            ConfigError: a file cannot be read, or a command fails.
        """
        if isinstance(value, list):
            return [self.revealed(item, where) for item in value]
        if not isinstance(value, dict):
            return value
        if value.keys() not in ({"file"}, {"command"}):
            return {name: self.revealed(item, f"{where}.{name}") for name, item in value.items()}
        ((kind, origin),) = value.items()
        secret = (_of_file if kind == "file" else _of_command)(origin, where)
        if secret:
            self._values.add(secret)
        return secret

    def hide(self, text: str) -> str:
        """Return a message without the secrets."""
        for secret in sorted(self._values, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text

    def filter(self, record: logging.LogRecord) -> bool:
        """Hide the secrets in a message that is logged."""
        message = record.getMessage()
        hidden = self.hide(message)
        if hidden != message:
            record.msg = hidden
            record.args = ()
        return True


@frozen
class Connector:
    """A connector that is ready to run: its side, name and topic, the connector itself and the worker's settings."""

    side: "Side"
    name: str
    topic: Topic[Any, Any]
    endpoint: Any
    settings: Mapping[str, Any]

    @property
    def place(self) -> str:
        """The location of the connector in the file, for messages."""
        return f"{self.side}s.{self.name}"

    def worker(self, cluster: "Cluster | None") -> "SinkWorker[Any, Any] | SourceWorker[Any, Any]":
        """Return the worker of the connector.

        Raises:
            ConfigError: a setting is unknown or invalid.
        """
        from streams.connect import SinkWorker, SourceWorker

        kind: Any = SinkWorker if self.side == "sink" else SourceWorker
        worker: SinkWorker[Any, Any] | SourceWorker[Any, Any]
        worker = kind(cluster, self.topic, self.endpoint, name=self.name, **self.settings)
        return worker


@frozen
class Connectors:
    """The contents of a connector file; ``secrets`` hides its secrets in messages."""

    path: str
    bootstrap_servers: str | None
    state_dir: str | None
    settings: Mapping[str, Any]
    connectors: tuple[Connector, ...]
    secrets: Secrets

    @classmethod
    def read(cls, path: str) -> "Connectors":
        """Read a file, and create its connectors.

        Raises:
            ConfigError: the file or a setting is invalid; the message names the file and the key.
        """
        secrets = Secrets()
        try:
            return _read(path, secrets)
        except StreamsError as error:
            raise ConfigError(f"{path}: {secrets.hide(str(error))}") from None


def _read(path: str, secrets: Secrets) -> Connectors:
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # Also bytes that are not UTF-8.
        raise ConfigError(f"is not TOML: {error}") from error
    _check_names(content, (*_CLUSTER, *_SIDES), "")
    for name in ("bootstrap_servers", "state_dir"):
        if not isinstance(content.get(name, ""), str):
            raise ConfigError(f"{name}: expected text")
    if ("bootstrap_servers" in content) == ("state_dir" in content):
        raise ConfigError('give either bootstrap_servers = "HOST:PORT", or state_dir = "DIR"')
    connectors = []
    for table, side in _SIDES.items():
        for name, entry in _table(content.get(table, {}), table).items():
            place = f"{table}.{name}"
            try:
                connectors.append(_connector(side, name, _table(entry, place), secrets))
            except StreamsError as error:
                text = str(error)
                raise ConfigError(text if text.startswith(place) else f"{place}: {text}") from error
    if not connectors:
        raise ConfigError("has no connector; add a table [sources.NAME] or [sinks.NAME]")
    names = [connector.name for connector in connectors]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"sources.{twice[0]} and sinks.{twice[0]} have the same name; rename one")
    settings = secrets.revealed(_table(content.get("settings", {}), "settings"), "settings")
    return Connectors(
        path, content.get("bootstrap_servers"), content.get("state_dir"), settings, tuple(connectors), secrets
    )


def _connector(side: "Side", name: str, table: Mapping[str, Any], secrets: Secrets) -> Connector:
    from streams.connect import kind_named, make

    place = f"{side}s.{name}"
    for needed in ("kind", "topic"):
        if needed not in table:
            raise ConfigError(f"needs the key {needed!r}")
    if not isinstance(table["kind"], str):
        raise ConfigError("kind: expected text")
    kind = kind_named(side, table["kind"])
    topic = _topic(table["topic"])
    worker = secrets.revealed(_table(table.get("worker", {}), f"{place}.worker"), f"{place}.worker")
    own = {key: value for key, value in table.items() if key not in ("kind", "topic", "worker")}
    endpoint = make(kind, secrets.revealed(own, place), _function)
    connector = Connector(side, name, topic, endpoint, worker)
    # The cluster is not used before the worker starts.
    connector.worker(None)
    return connector


def _topic(declaration: Any) -> Topic[Any, Any]:
    """Return the topic that is given as ``SCRIPT.py:TOPIC``, or as a table of its name and types.

    Raises:
        ConfigError: the topic is given in another form, or a type is unknown.
        ScriptError: the script cannot be loaded.
        UsageError: the script has no such topic.
    """
    if isinstance(declaration, str):
        script, colon, name = declaration.rpartition(":")
        if not colon:
            raise ConfigError(
                f'topic {declaration!r} has no types: give "SCRIPT.py:{declaration}", or '
                f'{{name = "{declaration}", key = "str", value = "int"}}'
            )
        return _topic_of_script(Script.parse(script), name)
    table = _table(declaration, "topic")
    _check_names(table, _TOPIC, "topic: ")
    for needed in ("name", "value"):
        if needed not in table:
            raise ConfigError(f"topic needs the key {needed!r}")
    return Topic(
        table["name"],
        key=_type(table.get("key", "none"), "key"),
        value=_type(table["value"], "value"),
        partitions=table.get("partitions"),
    )


def _type(name: Any, side: str) -> Any:
    if name not in _TYPES:
        raise ConfigError(
            f"topic, {side}: {name!r} is none of {', '.join(_TYPES)}; other types are declared by a script: "
            'topic = "SCRIPT.py:TOPIC"'
        )
    return _TYPES[name]


def _topic_of_script(script: Script, name: str) -> Topic[Any, Any]:
    """Return a topic that is a variable of the script, or that its topology reads or writes."""
    module = module_of(script)
    declared = {value.name: value for value in vars(module).values() if isinstance(value, Topic)}
    if name in declared:
        return declared[name]
    if script.function != DEFAULT_FUNCTION or hasattr(module, DEFAULT_FUNCTION):
        topic = topic_in(load(script, StreamsConfig.of(application_id=script.application_id)), name)
        if topic is not None:
            return topic
    names = ", ".join(sorted(declared)) or "none"
    raise UsageError(f"{script.path}: declares no topic {name!r}; its topics are: {names}")


def _function(text: str) -> Any:
    path, _, name = text.rpartition(":")
    function = getattr(module_of(Script(Path(path))), name, None)
    if not callable(function):
        raise UsageError(f"{path}: has no function {name!r}")
    return function


def _of_file(path: Any, where: str) -> str:
    if not isinstance(path, str):
        raise ConfigError(f"{where}.file: expected the path of a file")
    try:
        return secret_text(path).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigError(f"{where}: {path!r} cannot be read: {reason}") from None


def _of_command(command: Any, where: str) -> str:
    if not isinstance(command, list) or not command or not all(isinstance(part, str) for part in command):
        raise ConfigError(f'{where}.command: expected a program and its arguments: ["pass", "show", "database"]')
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=False)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its output is not text in UTF-8"
        raise ConfigError(f"{where}: command {command[0]!r}: {reason}") from None
    if done.returncode:
        raise ConfigError(f"{where}: command {command[0]!r} ended with exit status {done.returncode}")
    return done.stdout.rstrip("\r\n")


def _table(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{place}: expected a table, not {type(value).__name__}")
    return value


def _check_names(table: Iterable[str], allowed: Iterable[str], place: str) -> None:
    for name in table:
        if name not in allowed:
            raise ConfigError(f"{place}there is no key {name!r}: {meant(name, allowed)}")
