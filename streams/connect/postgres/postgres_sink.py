"""A sink into a table of Postgres, exactly once (extra ``postgres``).

A commit is one transaction: it moves the positions, which fences other workers, copies the rows into a temporary
table, and from there inserts, updates and deletes.
Of the other packages, this module imports only ``core``; psycopg is imported on use.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from streams.connect.database_sink import Columns, DatabaseSink
from streams.connect.postgres.postgres_client import PostgresClient, psycopg_for, server_message
from streams.connect.protocol import SinkBlock
from streams.connect.table_columns import TableColumn
from streams.values import ColumnType

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from psycopg.sql import Composable

_TYPES: Final[Mapping[ColumnType, str]] = {
    ColumnType.TEXT: "text",
    ColumnType.INTEGER: "bigint",
    ColumnType.FLOAT: "double precision",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.BYTES: "bytea",
    ColumnType.TIMESTAMP: "timestamptz",
    ColumnType.DATE: "date",
    ColumnType.TIME: "time",
    ColumnType.DECIMAL: "numeric",
    ColumnType.UUID: "uuid",
    ColumnType.JSON: "jsonb",
}
#: Characters that COPY reads as something else in its text format.
_SPECIAL: Final = re.compile(r"[\\\t\n\r]")
_ESCAPES: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
#: Number of the lock under which tables are created.
_CREATION: Final = 0x73747265616D73


class PostgresSink(DatabaseSink):
    """Writes a topic to a table of Postgres, exactly once: positions are stored in the transaction of the rows.

    With ``mode="upsert"`` the table has one row per key: a record inserts or updates it, and a tombstone deletes it.
    With ``mode="append"`` each record is a row, and the fields of a tombstone are null.

    Args:
        dsn: the connection string, such as ``postgresql://user@host/database``, or ``host=... dbname=...``.
        table: the name of the table, which may have a schema: ``sales.orders``.
        mode: "upsert" or "append".
        key: the names of the key columns, by default those of the key's fields, or ``key``.
        timestamp: the name of a column for event times; none by default.
        create: whether to create the table from the types of the topic if it is missing.
        positions_table: the table of the positions, which is created.
        transaction_timeout_ms: after how long the server ends a transaction of a worker that was suspended, or gives
            up waiting for a lock, in milliseconds.

    Raises:
        ConfigError: psycopg is not installed, or an argument is invalid.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        mode: Literal["upsert", "append"] = "upsert",
        key: str | list[str] = "",
        timestamp: str = "",
        create: bool = False,
        positions_table: str = "streams_positions",
        transaction_timeout_ms: int = 60_000,
    ) -> None:
        super().__init__(table, positions_table, mode=mode, key=key, timestamp=timestamp, create=create)
        self._psycopg = psycopg_for("PostgresSink")
        self._dsn = dsn
        sql = self._psycopg.sql
        self._table: Composable = sql.Identifier(*table.split("."))
        self._positions: Composable = sql.Identifier(*positions_table.split("."))
        self._positions_name = self._positions.as_string(None)
        self._timeout_ms = transaction_timeout_ms
        self._connection: Connection[Any] | None = None
        #: Whether the temporary tables have rows of an earlier block of the transaction.
        self._uses_stages = False

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error concerns the connection, a lock, or the server's resources."""
        return self._client().is_retriable(error)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- inside -----------------------------------------------------------------------

    def _client(self) -> PostgresClient:
        return PostgresClient(self._psycopg, repr(self), self._dsn)

    def _connected(self) -> "Connection[Any]":
        if self._connection is not None and not self._connection.closed:
            return self._connection
        connection = self._client().connect(self._connector)
        for name in ("idle_in_transaction_session_timeout", "lock_timeout"):
            connection.execute("SELECT set_config(%s, %s, false)", [name, str(self._timeout_ms)])
        # Positions are only moved if they are what they were, which needs no stricter level.
        connection.isolation_level = self._psycopg.IsolationLevel.READ_COMMITTED
        self._connection = connection
        return connection

    @contextmanager
    def _transaction(self) -> "Iterator[Cursor[Any]]":
        connection = self._connected()
        with connection.transaction(), connection.cursor() as cursor:
            self._uses_stages = False
            yield cursor

    def _create_positions(self) -> None:
        with self._transaction() as cursor:
            if self._columns_of(cursor, self._positions):
                return
            self._wait_for_other_creators(cursor)
            self._execute(
                cursor,
                "CREATE TABLE IF NOT EXISTS {table} (connector text, topic text, partition integer, "
                "next_offset bigint NOT NULL, PRIMARY KEY (connector, topic, partition))",
                table=self._positions,
            )

    def _read_positions(self, connection: "Cursor[Any]") -> dict[int, int]:
        self._execute(
            connection,
            "SELECT partition, next_offset FROM {positions} WHERE connector = %s AND topic = %s",
            [self._connector, self._topic],
            positions=self._positions,
        )
        return dict(connection.fetchall())

    def _table_columns(self, connection: "Cursor[Any]") -> set[str]:
        return self._columns_of(connection, self._table)

    def _addition(self, column: TableColumn) -> str:
        return f"ADD COLUMN {column.name} {_TYPES[column.type]}"

    def _wait_for_other_creators(self, cursor: "Cursor[Any]") -> None:
        """Wait for other sinks that create tables: with concurrent CREATE ... IF NOT EXISTS, one would fail."""
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATION])

    def _create_table(self) -> None:
        sql = self._psycopg.sql
        parts = [
            sql.SQL("{} " + _TYPES[column.type]).format(sql.Identifier(column.name)) for column in self._shape.columns
        ]
        if self._is_upsert:
            parts.append(sql.SQL("PRIMARY KEY ({})").format(self._names(self._shape.keys)))
        query = "CREATE TABLE IF NOT EXISTS {table} ({parts})"
        with self._transaction() as cursor:
            self._wait_for_other_creators(cursor)
            self._execute(cursor, query, table=self._table, parts=sql.SQL(", ").join(parts))

    def _columns_of(self, cursor: "Cursor[Any]", table: "Composable") -> set[str]:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            [table.as_string(cursor)],
        )
        return {name for (name,) in cursor.fetchall()}

    def _unique_keys(self, connection: "Cursor[Any]") -> list[set[str]]:
        connection.execute(
            "SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = "
            "ANY(indkey) WHERE indrelid = to_regclass(%s) AND indisunique AND indpred IS NULL GROUP BY indexrelid",
            [self._table.as_string(connection)],
        )
        return [set(names) for (names,) in connection.fetchall()]

    def _prepare(self, connection: "Cursor[Any]") -> None:
        """Create the temporary tables: one with all columns for rows, and one for the keys to delete."""
        if not self._is_upsert:
            return
        for stage, columns in (("streams_rows", self._shape.columns), ("streams_deleted", self._shape.keys)):
            self._execute(connection, f"DROP TABLE IF EXISTS pg_temp.{stage}")
            self._execute(
                connection,
                f"CREATE TEMP TABLE {stage} ON COMMIT DELETE ROWS AS SELECT {{columns}} FROM {{table}} WITH NO DATA",
                columns=self._names(columns),
                table=self._table,
            )

    def _move(self, connection: "Cursor[Any]", partition: int, expected: int | None, to: int) -> bool:
        """Update a stored position if it has the expected value; waits for another worker that is updating it."""
        place = [self._connector, self._topic, partition]
        if expected is None:
            query = "INSERT INTO {positions} VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
            values = [*place, to]
        else:
            query = (
                "UPDATE {positions} SET next_offset = %s "
                "WHERE connector = %s AND topic = %s AND partition = %s AND next_offset = %s"
            )
            values = [to, *place, expected]
        self._execute(connection, query, values, positions=self._positions)
        return connection.rowcount == 1

    def _rejection(self, error: Exception) -> str | None:
        errors = self._psycopg
        if not isinstance(error, (errors.DataError, errors.IntegrityError, errors.ProgrammingError)):
            return None
        return f"the database rejects the rows: {server_message(error)}"

    def _write(self, connection: "Cursor[Any]", block: SinkBlock[Any, Any]) -> None:
        if self._uses_stages:
            self._execute(connection, "TRUNCATE streams_rows, streams_deleted")
        super()._write(connection, block)
        self._uses_stages = self._is_upsert

    def _insert(self, connection: "Cursor[Any]", columns: Columns) -> None:
        self._copy(connection, self._table, self._shape.columns, columns)

    def _delete(self, connection: "Cursor[Any]", columns: Columns, indexes: Sequence[int]) -> None:
        keys = self._shape.keys
        stage = self._psycopg.sql.Identifier("streams_deleted")
        self._copy(connection, stage, keys, columns[: len(keys)], indexes)
        same = self._pairs(keys, "{0}.{1} = streams_deleted.{1}")
        query = "DELETE FROM {table} USING streams_deleted WHERE {same}"
        self._execute(connection, query, table=self._table, same=same)

    def _upsert(self, connection: "Cursor[Any]", columns: Columns, indexes: Sequence[int]) -> None:
        shape = self._shape
        self._copy(connection, self._psycopg.sql.Identifier("streams_rows"), shape.columns, columns, indexes)
        rest = [column for column in shape.columns if column not in shape.keys]
        self._execute(
            connection,
            "INSERT INTO {table} ({names}) SELECT {names} FROM streams_rows ON CONFLICT ({keys}) DO "
            + ("UPDATE SET {changes}" if rest else "NOTHING"),
            table=self._table,
            names=self._names(shape.columns),
            keys=self._names(shape.keys),
            changes=self._pairs(rest, "{1} = excluded.{1}", ", "),
        )

    def _copy(
        self,
        cursor: "Cursor[Any]",
        table: "Composable",
        columns: Sequence[TableColumn],
        values: Columns,
        indexes: Sequence[int] | None = None,
    ) -> None:
        """Insert all rows, or some, by COPY in the text format, which works for every column type with a text input."""
        texts = [
            _texts(column.type, column_values if indexes is None else [column_values[index] for index in indexes])
            for column, column_values in zip(columns, values, strict=True)
        ]
        if not texts[0]:
            return
        data = "\n".join(map("\t".join, zip(*texts, strict=True)))
        query = self._psycopg.sql.SQL("COPY {} ({}) FROM STDIN").format(table, self._names(columns))
        with cursor.copy(query) as copy:
            copy.write(data + "\n")

    def _execute(
        self, cursor: "Cursor[Any]", query: Any, values: Sequence[Any] | None = None, **parts: "Composable"
    ) -> None:
        cursor.execute(self._psycopg.sql.SQL(query).format(**parts), values)

    def _names(self, columns: Sequence[TableColumn]) -> "Composable":
        sql = self._psycopg.sql
        names: Composable = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
        return names

    def _pairs(self, columns: Sequence[TableColumn], form: str, between: str = " AND ") -> "Composable":
        sql = self._psycopg.sql
        pairs: Composable = sql.SQL(between).join(
            sql.SQL(form).format(self._table, sql.Identifier(column.name)) for column in columns
        )
        return pairs


def _texts(kind: ColumnType, column: Sequence[Any]) -> list[str]:
    r"""Return a column in the text format of COPY: null is ``\N``."""
    match kind:
        case ColumnType.TEXT | ColumnType.JSON:
            return ["\\N" if value is None else _escaped(value) for value in column]
        case ColumnType.BYTES:
            return ["\\N" if value is None else "\\\\x" + value.hex() for value in column]
        case ColumnType.BOOLEAN:
            return ["\\N" if value is None else "t" if value else "f" for value in column]
        case ColumnType.TIMESTAMP | ColumnType.DATE | ColumnType.TIME:
            return ["\\N" if value is None else value.isoformat() for value in column]
        case _:
            return ["\\N" if value is None else str(value) for value in column]


def _escaped(text: str) -> str:
    if _SPECIAL.search(text) is None:
        return text
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text)
