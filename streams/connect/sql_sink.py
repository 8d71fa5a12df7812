"""A sink into a table of any database that SQLAlchemy knows, exactly once (extra ``sql``).

Of the other packages, this module imports only ``core``; SQLAlchemy is imported on use.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Literal

from streams.connect.errors import ConnectError, SinkFencedError
from streams.connect.protocol import Guarantee, SinkBlock
from streams.connect.sql_values import converter
from streams.connect.table_columns import ColumnType, TableShape, lost_table, table_shape
from streams.core.errors import ConfigError
from streams.core.topic import Topic

#: Dialects whose INSERT has ON CONFLICT.
_WITH_CONFLICT: Final = ("sqlite", "postgresql")


class SqlSink:
    """Writes a topic to a table of a database of SQLAlchemy, exactly once, with the same rules as ``PostgresSink``.

    An upsert is ``INSERT ... ON CONFLICT`` in SQLite and Postgres, and a DELETE and an INSERT in other databases.

    Args:
        target: the address of a database, such as ``sqlite:///orders.db``, or an engine, which is not closed.
        table: the name of the table, which may have a schema: ``sales.orders``.
        mode: "upsert" or "append".
        key: the names of the key columns, by default those of the key's fields, or ``key``.
        timestamp: the name of a column for event times; none by default.
        create: whether to create the table from the types of the topic if it is missing.
        positions_table: the table of the positions, which is created.

    Raises:
        ConfigError: SQLAlchemy or the driver of the database is not installed, or an argument is invalid.
    """

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE

    def __init__(
        self,
        target: str | Any,
        table: str,
        *,
        mode: Literal["upsert", "append"] = "upsert",
        key: str | list[str] = "",
        timestamp: str = "",
        create: bool = False,
        positions_table: str = "streams_positions",
    ) -> None:
        self._sql = _sqlalchemy()
        if mode not in ("upsert", "append"):
            raise ConfigError(f"SqlSink: mode is 'upsert' or 'append', not {mode!r}")
        self._table_name = table
        self._is_upsert = mode == "upsert"
        self._key = key
        self._timestamp = timestamp
        self._creates = create
        self._positions_name = positions_table
        self._owns_engine = isinstance(target, str)
        self._engine: Any = self._engine_of(target) if isinstance(target, str) else target
        if not hasattr(self._engine, "dialect") or hasattr(self._engine, "sync_engine"):
            raise ConfigError(f"{self!r}: the target is the address of a database, or an engine that is not async")
        self._connector = ""
        self._topic = ""
        self._shape = TableShape((), (), (), None)
        self._table: Any = None
        self._positions: Any = None
        #: Conversions of the values of each column, None for those that need none.
        self._converters: list[Callable[[Sequence[Any]], list[Any]] | None] = []
        self._stored: dict[int, int | None] = {}
        self._blocks: list[SinkBlock[Any, Any]] = []

    def __repr__(self) -> str:
        return f"SqlSink(table={self._table_name!r})"

    # --- protocol ---------------------------------------------------------------------

    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        """Create or check the table, and return the stored positions.

        Raises:
            ConfigError: the table does not exist, or is lost, has no such columns, or no unique key of the key columns.
        """
        self.abort()
        self._connector = connector
        self._topic = topic.name
        self._shape = table_shape(topic, self._key, self._timestamp)
        if self._is_upsert and not self._shape.keys:
            raise ConfigError(f"{self!r}: topic {topic.name!r} has no keys: declare key=, or give mode='append'")
        self._positions = self._positions_table()
        self._positions.create(self._engine, checkfirst=True)
        place = self._positions.c
        query = self._sql.select(place.partition, place.next_offset).where(
            place.connector == connector, place.topic == topic.name
        )
        with self._engine.connect() as connection:
            positions = {partition: int(offset) for partition, offset in connection.execute(query)}
        if any(positions.values()) and not self._has_table:
            raise lost_table(self, connector, topic.name, self._positions_name)
        if self._creates:
            self._created().create(self._engine, checkfirst=True)
        self._table = self._reflected()
        dialect = self._engine.dialect.name
        self._converters = [
            converter(column.type, self._table.c[column.name], dialect, repr(self)) for column in self._shape.columns
        ]
        self._stored = {partition: positions.get(partition) for partition in partitions}
        return {partition: positions[partition] for partition in partitions if partition in positions}

    def write(self, block: SinkBlock[Any, Any]) -> None:
        """Buffer a block until the next commit, so that a suspended worker holds no lock."""
        self._blocks.append(block)

    def commit(self) -> None:
        """Write the blocks and their positions in one transaction.

        Raises:
            SinkFencedError: another worker has changed a stored position.
            ConnectError: the database rejects a row, or a record has no key.
        """
        stored = dict(self._stored)
        errors = self._sql.exc
        try:
            with self._engine.begin() as connection:
                for block in self._blocks:
                    self._move(connection, block.partition, stored[block.partition], block.next_offset)
                    stored[block.partition] = block.next_offset
                for block in self._blocks:
                    self._write(connection, block)
        except (errors.DataError, errors.IntegrityError, errors.ProgrammingError, errors.StatementError) as error:
            if self.is_retriable(error):
                raise
            raise ConnectError(f"{self!r}: the database rejects the rows: {_said(error)}") from error
        except OverflowError as error:  # The driver of SQLite, for more than 64 bits.
            raise ConnectError(f"{self!r}: the driver of the database rejects the rows: {error}") from error
        self._stored = stored
        self._blocks.clear()

    def abort(self) -> None:
        """Discard the blocks written since the last commit."""
        self._blocks.clear()

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error concerns the connection or a lock, according to the database driver."""
        return isinstance(error, self._sql.exc.OperationalError | self._sql.exc.InterfaceError)

    def close(self) -> None:
        """Close the connections, if the sink was created with a database URL."""
        if self._owns_engine:
            self._engine.dispose()

    # --- inside -----------------------------------------------------------------------

    def _engine_of(self, address: str) -> Any:
        errors = self._sql.exc
        try:
            return self._sql.create_engine(address)
        except (errors.ArgumentError, errors.NoSuchModuleError) as error:
            raise ConfigError(f"{self!r}: {_said(error)}") from None
        except ImportError as error:
            raise ConfigError(f"{self!r}: the driver of the database is not installed: {error}") from None

    @property
    def _has_table(self) -> bool:
        schema, name = _split(self._table_name)
        return bool(self._sql.inspect(self._engine).has_table(name, schema=schema))

    def _positions_table(self) -> Any:
        sql = self._sql
        schema, name = _split(self._positions_name)
        return sql.Table(
            name,
            sql.MetaData(),
            sql.Column("connector", sql.String(249), primary_key=True),
            sql.Column("topic", sql.String(249), primary_key=True),
            sql.Column("partition", sql.Integer, primary_key=True, autoincrement=False),
            sql.Column("next_offset", sql.BigInteger, nullable=False),
            schema=schema,
        )

    def _created(self) -> Any:
        """Return the table with the columns that the types of the topic define."""
        sql = self._sql
        keys = self._shape.keys if self._is_upsert else ()
        types: dict[ColumnType, Any] = {
            ColumnType.TEXT: sql.Text(),
            ColumnType.INTEGER: sql.BigInteger(),
            ColumnType.FLOAT: sql.Float(53),
            ColumnType.BOOLEAN: sql.Boolean(),
            ColumnType.BYTES: sql.LargeBinary(),
            ColumnType.TIMESTAMP: sql.DateTime(timezone=True),
            ColumnType.DATE: sql.Date(),
            ColumnType.TIME: sql.Time(),
            ColumnType.DECIMAL: sql.Numeric(38, 18),
            ColumnType.UUID: sql.Uuid(),
            ColumnType.JSON: sql.Text(),
        }
        # Not every database has keys of unlimited length.
        of_key = {**types, ColumnType.TEXT: sql.String(255)}
        columns = [
            sql.Column(
                column.name,
                (of_key if column in keys else types)[column.type],
                primary_key=column in keys,
                autoincrement=False,
            )
            for column in self._shape.columns
        ]
        lower = [column.name.lower() for column in columns]
        if self._engine.dialect.name != "postgresql" and len(set(lower)) < len(lower):
            raise ConfigError(
                f"{self!r}: the database does not tell the names of columns apart that differ by case alone: "
                f"{', '.join(column.name for column in columns)}; rename a field, or the key by key="
            )
        schema, name = _split(self._table_name)
        return sql.Table(name, sql.MetaData(), *columns, schema=schema)

    def _reflected(self) -> Any:
        """Return the table as reflected from the database, after checking its columns and key."""
        sql = self._sql
        (schema, name) = _split(self._table_name)
        try:
            table = sql.Table(name, sql.MetaData(), autoload_with=self._engine, schema=schema)
        except sql.exc.NoSuchTableError:
            raise ConfigError(f"{self!r}: the table does not exist; create it, or give create=True") from None
        missing = [column.name for column in self._shape.columns if column.name not in table.c]
        if missing:
            raise ConfigError(f"{self!r}: the table has no column {missing[0]!r}; add {', '.join(missing)}")
        if self._is_upsert:
            keys = {column.name for column in self._shape.keys}
            unique = [set(table.primary_key.columns.keys())]
            unique += [set(index.columns.keys()) for index in table.indexes if index.unique]
            unique += [set(it.columns.keys()) for it in table.constraints if isinstance(it, sql.UniqueConstraint)]
            if keys not in unique:
                raise ConfigError(
                    f"{self!r}: an upsert needs a primary key, or a unique index, of the columns "
                    f"{', '.join(sorted(keys))}"
                )
        return table

    def _move(self, connection: Any, partition: int, expected: int | None, to: int) -> None:
        """Update a stored position if it has the expected value."""
        place = self._positions.c
        if expected is None:
            values = {"connector": self._connector, "topic": self._topic, "partition": partition, "next_offset": to}
            try:
                connection.execute(self._positions.insert(), values)
            except self._sql.exc.IntegrityError as error:
                raise self._fenced(partition, expected) from error
            return
        query = (
            self._positions.update()
            .where(
                place.connector == self._connector,
                place.topic == self._topic,
                place.partition == partition,
                place.next_offset == expected,
            )
            .values(next_offset=to)
        )
        if connection.execute(query).rowcount != 1:
            raise self._fenced(partition, expected)

    def _fenced(self, partition: int, expected: int | None) -> SinkFencedError:
        return SinkFencedError(
            f"{self!r}: the position of {self._connector!r} in {self._topic}-{partition} is no longer {expected}: "
            "another worker has written there"
        )

    def _write(self, connection: Any, block: SinkBlock[Any, Any]) -> None:
        names = [column.name for column in self._shape.columns]
        columns = [
            values if convert is None else convert(values)
            for values, convert in zip(self._shape.rows(block), self._converters, strict=True)
        ]
        if not self._is_upsert:
            rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            if rows:
                connection.execute(self._table.insert(), rows)
            return
        remaining, deleted = self._shape.last_by_key(block, columns, repr(self))
        replaced = [*deleted, *(() if self._has_conflict else remaining)]
        if replaced:
            self._delete(connection, columns, replaced)
        if remaining:
            rows = [{name: column[index] for name, column in zip(names, columns, strict=True)} for index in remaining]
            connection.execute(self._upsert() if self._has_conflict else self._table.insert(), rows)

    @property
    def _has_conflict(self) -> bool:
        return self._engine.dialect.name in _WITH_CONFLICT

    def _delete(self, connection: Any, columns: Sequence[Sequence[Any]], indexes: Sequence[int]) -> None:
        keys = self._shape.keys
        sql = self._sql
        same = [self._table.c[column.name] == sql.bindparam(f"key_{number}") for number, column in enumerate(keys)]
        rows = [{f"key_{number}": columns[number][index] for number in range(len(keys))} for index in indexes]
        connection.execute(self._table.delete().where(*same), rows)

    def _upsert(self) -> Any:
        keys = [column.name for column in self._shape.keys]
        rest = [column.name for column in self._shape.columns if column.name not in keys]
        dialect = import_module(f"sqlalchemy.dialects.{self._engine.dialect.name}")
        statement: Any = dialect.insert(self._table)
        if not rest:
            return statement.on_conflict_do_nothing(index_elements=keys)
        changes = {name: statement.excluded[name] for name in rest}
        return statement.on_conflict_do_update(index_elements=keys, set_=changes)


def _split(name: str) -> tuple[str | None, str]:
    """Split a qualified table name into its schema, if any, and its name."""
    schema, _, own = name.rpartition(".")
    return schema or None, own


def _said(error: Exception) -> str:
    """Return the driver's error message, without the statement and its parameters."""
    return str(getattr(error, "orig", None) or error)


def _sqlalchemy() -> Any:
    try:
        import sqlalchemy
    except ImportError as error:
        raise ConfigError(f"SqlSink needs SQLAlchemy ({error}): pip install 'streams[sql]'") from None
    return sqlalchemy
