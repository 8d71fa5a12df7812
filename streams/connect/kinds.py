"""The kinds of connectors that ``streams connect`` and ``make`` find by name.

A kind names a factory: a class or function whose keyword parameters are the settings of the connector.  The module of
a factory is imported only when a connector of its kind is made.  To add a kind, add a line to ``KINDS``.
Of the other packages, this module imports only ``core``.
"""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal, TypeAlias, get_type_hints

import msgspec
from attrs import frozen

from streams.core.errors import ConfigError
from streams.core.nearest import meant

Side: TypeAlias = Literal["sink", "source"]


@frozen
class ConnectorKind:
    """A kind of connector: its name and side, and the module and name of its factory.

    The annotations of the factory's parameters are the types of the settings: what TOML has (str, int, float, bool,
    lists and tables), literals, or a ``Callable``, which is given as ``SCRIPT.py:FUNCTION``.
    """

    name: str
    side: Side
    module: str
    factory: str

    def load(self) -> Callable[..., Any]:
        """Import the module of the factory, and return the factory."""
        factory: Callable[..., Any] = getattr(import_module(self.module), self.factory)
        return factory


#: All kinds; names are unique within a side.
KINDS = (
    ConnectorKind("postgres", "sink", "streams.connect.postgres.postgres_sink", "PostgresSink"),
    ConnectorKind("sql", "sink", "streams.connect.sql_sink", "SqlSink"),
    ConnectorKind("parquet", "sink", "streams.connect.lake_sinks", "ParquetSink"),
    ConnectorKind("postgres", "source", "streams.connect.postgres.postgres_source", "PostgresSource"),
    ConnectorKind(
        "postgres_polling", "source", "streams.connect.postgres.postgres_polling_source", "PostgresPollingSource"
    ),
    ConnectorKind("file", "source", "streams.connect.files.growing_file_source", "GrowingFileSource"),
    ConnectorKind("folder", "source", "streams.connect.files.folder_source", "FolderSource"),
    ConnectorKind("delta", "sink", "streams.connect.lake_sinks", "DeltaSink"),
    ConnectorKind("iceberg", "sink", "streams.connect.lake_sinks", "IcebergSink"),
    ConnectorKind("http", "sink", "streams.connect.http.http_sink", "HttpSink"),
    ConnectorKind("http", "source", "streams.connect.http.http_source", "HttpSource"),
    ConnectorKind("webhook", "source", "streams.connect.http.webhook_source", "WebhookSource"),
)


def kind_named(side: Side, name: str) -> ConnectorKind:
    """Return the kind with a name.

    Raises:
        ConfigError: there is no such kind; the message suggests the nearest.
    """
    kinds = {kind.name: kind for kind in KINDS if kind.side == side}
    if name not in kinds:
        raise ConfigError(f"there is no {side} of kind {name!r}: {meant(name, kinds)}")
    return kinds[name]


def make(kind: ConnectorKind, settings: Mapping[str, Any], function_named: Callable[[str], Any]) -> Any:
    """Return a connector made from settings parsed from TOML; ``function_named`` loads ``SCRIPT.py:FUNCTION``.

    Raises:
        ConfigError: a setting is unknown, missing or of the wrong type, or a library is not installed.
    """
    factory = kind.load()
    parameters = {
        name: part for name, part in inspect.signature(factory).parameters.items() if part.kind is not part.VAR_KEYWORD
    }
    types = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    for name in settings:
        if name not in parameters:
            raise ConfigError(f"{kind.side} {kind.name!r} has no setting {name!r}: {meant(name, parameters)}")
    missing = [name for name, part in parameters.items() if part.default is part.empty and name not in settings]
    if missing:
        raise ConfigError(f"{kind.side} {kind.name!r} needs the setting {missing[0]!r}")
    return factory(
        **{name: _value(kind, name, value, types.get(name, Any), function_named) for name, value in settings.items()}
    )


def _value(kind: ConnectorKind, name: str, value: Any, form: Any, function_named: Callable[[str], Any]) -> Any:
    if isinstance(value, str) and "Callable" in str(form) and ".py:" in value:
        return function_named(value)
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{kind.side} {kind.name!r}, setting {name!r}: {error}") from None
    except TypeError:  # A type that is not TOML's, such as a protocol: the factory checks the value.
        return value
