"""A sink into a table of any database that SQLAlchemy knows, exactly once (extra ``sql``).

Of the other packages, this module imports only ``core``; SQLAlchemy is imported on use.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Final, Literal

from streams.connect.database_sink import Columns, DatabaseSink
from streams.connect.protocol import SinkBlock
from streams.connect.sql_values import converter
from streams.connect.table_columns import TableColumn
from streams.core.errors import ConfigError
from streams.core.installation import pip_install
from streams.values import ColumnType

#: Dialects whose INSERT has ON CONFLICT.
_WITH_CONFLICT: Final = ("sqlite", "postgresql")
#: Dialects whose ALTER TABLE has ADD, but no ADD COLUMN.
_WITHOUT_COLUMN: Final = ("mssql", "oracle")


class SqlSink(DatabaseSink):
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
        super().__init__(table, positions_table, mode=mode, key=key, timestamp=timestamp, create=create)
        self._sql = _sqlalchemy()
        self._owns_engine = isinstance(target, str)
        self._engine: Any = self._engine_of(target) if isinstance(target, str) else target
        if not hasattr(self._engine, "dialect") or hasattr(self._engine, "sync_engine"):
            raise ConfigError(f"{self!r}: the target is the address of a database, or an engine that is not async")
        self._table: Any = None
        self._positions = self._positions_table()
        #: Conversions of the values of each column, None for those that need none.
        self._converters: list[Callable[[Sequence[Any]], list[Any]] | None] = []

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

    def _transaction(self) -> AbstractContextManager[Any]:
        transaction: AbstractContextManager[Any] = self._engine.begin()
        return transaction

    def _create(self, table: Any) -> None:
        """Create a table if it is missing, in a transaction of its own."""
        try:
            with self._transaction() as connection:
                table.create(connection, checkfirst=True)
        except self._sql.exc.DBAPIError:
            # If another sink has created it meanwhile, it is there now; databases differ in the error.
            with self._transaction() as connection:
                table.create(connection, checkfirst=True)

    def _create_positions(self) -> None:
        self._create(self._positions)

    def _read_positions(self, connection: Any) -> dict[int, int]:
        place = self._positions.c
        query = self._sql.select(place.partition, place.next_offset).where(
            place.connector == self._connector, place.topic == self._topic
        )
        return {partition: int(offset) for partition, offset in connection.execute(query)}

    def _table_columns(self, connection: Any) -> set[str]:
        schema, name = _split(self._table_name)
        try:
            self._table = self._sql.Table(name, self._sql.MetaData(), autoload_with=connection, schema=schema)
        except self._sql.exc.NoSuchTableError:
            return set()
        return set(self._table.c.keys())

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

    def _is_key(self, column: TableColumn) -> bool:
        return self._is_upsert and column in self._shape.keys

    def _column(self, column: TableColumn, *, is_primary: bool) -> Any:
        sql = self._sql
        types: dict[ColumnType, Any] = {
            # Not every database has keys of unlimited length.
            ColumnType.TEXT: sql.String(255) if self._is_key(column) else sql.Text(),
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
        return sql.Column(column.name, types[column.type], primary_key=is_primary, autoincrement=False)

    def _addition(self, column: TableColumn) -> str:
        # Rows that the table has get no key: a column that is added can be null.
        added = self._column(column, is_primary=False)
        # Most dialects look at the table of a column, whatever it is called.
        self._sql.Table(self._table_name, self._sql.MetaData(), added)
        dialect = self._engine.dialect
        definition = self._sql.schema.CreateColumn(added).compile(dialect=dialect)
        return f"{'ADD' if dialect.name in _WITHOUT_COLUMN else 'ADD COLUMN'} {definition}"

    def _create_table(self) -> None:
        names = [column.name for column in self._shape.columns]
        if self._engine.dialect.name != "postgresql" and len({name.lower() for name in names}) < len(names):
            raise ConfigError(
                f"{self!r}: the database does not tell the names of columns apart that differ by case alone: "
                f"{', '.join(names)}; rename a field, or the key by key="
            )
        schema, name = _split(self._table_name)
        columns = [self._column(column, is_primary=self._is_key(column)) for column in self._shape.columns]
        self._create(self._sql.Table(name, self._sql.MetaData(), *columns, schema=schema))

    def _unique_keys(self, connection: Any) -> list[set[str]]:
        table = self._table
        constraints = [it for it in table.constraints if isinstance(it, self._sql.UniqueConstraint)]
        unique = [table.primary_key, *(index for index in table.indexes if index.unique), *constraints]
        return [set(key.columns.keys()) for key in unique]

    def _prepare(self, connection: Any) -> None:
        dialect = self._engine.dialect.name
        self._converters = [
            converter(column.type, self._table.c[column.name], dialect, repr(self)) for column in self._shape.columns
        ]

    def _move(self, connection: Any, partition: int, expected: int | None, to: int) -> bool:
        place = self._positions.c
        if expected is None:
            values = {"connector": self._connector, "topic": self._topic, "partition": partition, "next_offset": to}
            try:
                connection.execute(self._positions.insert(), values)
            except self._sql.exc.IntegrityError:
                return False
            return True
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
        return bool(connection.execute(query).rowcount == 1)

    def _rejection(self, error: Exception) -> str | None:
        if isinstance(error, OverflowError):  # The driver of SQLite, for more than 64 bits.
            return f"the driver of the database rejects the rows: {error}"
        errors = self._sql.exc
        rejections = (errors.DataError, errors.IntegrityError, errors.ProgrammingError, errors.StatementError)
        if not isinstance(error, rejections) or self.is_retriable(error):
            return None
        return f"the database rejects the rows: {_said(error)}"

    def _values(self, block: SinkBlock[Any, Any]) -> Columns:
        return [
            values if convert is None else convert(values)
            for values, convert in zip(self._shape.rows(block), self._converters, strict=True)
        ]

    def _rows(self, columns: Columns, indexes: Iterable[int]) -> list[dict[str, Any]]:
        names = [column.name for column in self._shape.columns]
        return [{name: column[index] for name, column in zip(names, columns, strict=True)} for index in indexes]

    def _insert(self, connection: Any, columns: Columns) -> None:
        if rows := self._rows(columns, range(len(columns[0]))):
            connection.execute(self._table.insert(), rows)

    def _delete(self, connection: Any, columns: Columns, indexes: Sequence[int]) -> None:
        keys = self._shape.keys
        sql = self._sql
        same = [self._table.c[column.name] == sql.bindparam(f"key_{number}") for number, column in enumerate(keys)]
        rows = [{f"key_{number}": columns[number][index] for number in range(len(keys))} for index in indexes]
        connection.execute(self._table.delete().where(*same), rows)

    def _upsert(self, connection: Any, columns: Columns, indexes: Sequence[int]) -> None:
        statement = self._table.insert()
        if self._engine.dialect.name in _WITH_CONFLICT:
            statement = self._insert_or_update()
        else:
            self._delete(connection, columns, indexes)
        connection.execute(statement, self._rows(columns, indexes))

    def _insert_or_update(self) -> Any:
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
        raise ConfigError(f"SqlSink needs SQLAlchemy ({error}): {pip_install('sql')}") from None
    return sqlalchemy
