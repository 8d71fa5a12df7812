"""A table of Postgres as the sources read it: its connection, its columns, and its rows as records.

Of the other packages, this module imports only ``core`` and ``values``; psycopg is imported on use.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import define, field
from msgspec import inspect

from streams.connect.errors import ConnectError
from streams.connect.postgres.postgres_client import PostgresClient, psycopg_for
from streams.core.errors import ConfigError
from streams.core.serdes.serdes import NULL
from streams.core.topic import Topic
from streams.values import BAD_INPUT, Form, form_of, object_type

if TYPE_CHECKING:
    from psycopg import Connection


@define(eq=False)
class PostgresTable:
    """A table that a source reads; ``source`` names the source in error messages, ``key`` names the key columns."""

    source: str
    dsn: str
    name: str
    key: tuple[str, ...]
    psycopg: Any = field(init=False)
    number: int = 0
    columns: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    _topic: "Topic[Any, Any] | None" = None
    _key_form: Form | None = None
    _value_form: Form = field(init=False)
    _is_single: bool = True

    def __attrs_post_init__(self) -> None:
        self.psycopg = psycopg_for(self.source)

    @property
    def _client(self) -> PostgresClient:
        return PostgresClient(self.psycopg, self.source, self.dsn)

    @property
    def identifier(self) -> Any:
        """The name of the table in a query."""
        return self.psycopg.sql.Identifier(*self.name.split("."))

    def query(self, text: str, **names: str) -> Any:
        """Return a query with the names of tables, columns and so on as identifiers; {table} is the table."""
        sql = self.psycopg.sql
        identifiers = {name: sql.Identifier(*value.split(".")) for name, value in names.items()}
        return sql.SQL(text).format(table=self.identifier, **identifiers)

    def connect(self, connector: str, **options: Any) -> "Connection[Any]":
        """Return a new connection, on which times are in UTC.

        Raises:
            ConfigError: the connection string cannot be parsed, or the server does not let the user in.
        """
        connection = self._client.connect(connector, **options)
        if not options:
            connection.execute("SELECT set_config('timezone', 'UTC', false), set_config('datestyle', 'ISO', false)")
        return connection

    def describe(self, connection: "Connection[Any]", topic: Topic[Any, Any]) -> None:
        """Read the columns and the key of the table, and compare the key with the type of the topic's keys.

        Raises:
            ConfigError: the table or a key column does not exist, or the keys do not fit.
        """
        row = connection.execute("SELECT to_regclass(%s)::oid", [self.identifier.as_string(connection)]).fetchone()
        if row is None or row[0] is None:
            raise ConfigError(f"{self.source}: the table does not exist; check its name and schema")
        self.number = row[0]
        rows = connection.execute(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped "
            "AND attgenerated = '' ORDER BY attnum",
            [self.number],
        ).fetchall()
        self.columns = tuple(name for (name,) in rows)
        keys = connection.execute(
            "SELECT attname::text FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey) "
            "WHERE indrelid = %s AND indisprimary ORDER BY array_position(indkey::int2[], attnum)",
            [self.number],
        ).fetchall()
        self.primary_key = tuple(name for (name,) in keys)
        self.key = self.key or self.primary_key
        for name in self.key:
            if name not in self.columns:
                raise ConfigError(f"{self.source}: key={name!r} is none of the columns: {', '.join(self.columns)}")
        self._topic = topic
        self._value_form = form_of(topic.value_serde)
        self._key_form = None if topic.key_serde is NULL else form_of(topic.key_serde)
        if self._key_form is None:
            return
        if not self.key:
            raise ConfigError(
                f"{self.source}: the table has no primary key: name the key columns with key=, or declare no key for "
                f"topic {topic.name!r}"
            )
        self._is_single = not _has_fields(topic)
        if self._is_single and len(self.key) > 1:
            raise ConfigError(
                f"{self.source}: the key has the columns {', '.join(self.key)}, but the keys of topic {topic.name!r} "
                "are one value: declare a class or a dict as their type, or name one column with key="
            )

    @property
    def has_keys(self) -> bool:
        """Whether records have keys."""
        return self._key_form is not None

    def key_bytes(self, row: dict[str, Any]) -> bytes | None:
        """Return the serialized key of a row.

        Raises:
            ConnectError: the key does not fit the type of the topic's keys.
        """
        if self._key_form is None:
            return None
        key = {name: row[name] for name in self.key}
        try:
            return self._key_form.from_object(key[self.key[0]] if self._is_single else key)
        except BAD_INPUT as error:
            self._refuse(row, "key", error)

    def value_bytes(self, row: dict[str, Any]) -> bytes | None:
        """Return the serialized value of a row.

        Raises:
            ConnectError: the row does not fit the type of the topic's values.
        """
        try:
            return self._value_form.from_object(row)
        except BAD_INPUT as error:
            self._refuse(row, "value", error)

    def _refuse(self, row: dict[str, Any], side: str, error: Exception) -> NoReturn:
        assert self._topic is not None
        place = ", ".join(f"{name}={row[name]!r}" for name in self.key or tuple(row)[:1])
        raise ConnectError(
            f"{self.source}: the row with {place} does not fit the {side} of topic {self._topic.name!r}: {error}; "
            "change the type, so that it fits all rows"
        ) from error

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error concerns the connection, a lock, or the server's resources."""
        return self._client.is_retriable(error)


def names_of(key: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the key columns; a single name may be given as a str."""
    return ((key,) if key else ()) if isinstance(key, str) else tuple(key)


def _has_fields(topic: Topic[Any, Any]) -> bool:
    form = object_type(topic.key_serde)
    if form is None:
        return False
    info = inspect.type_info(form[0])
    return bool(getattr(info, "fields", None)) or isinstance(info, inspect.DictType)
