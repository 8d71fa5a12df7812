"""The base of sinks into a table of a database, with the positions in another table.

Of the other packages, this module imports only ``core``.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeAlias

from streams.connect.buffered_sink import BufferedSink
from streams.connect.errors import ConnectError
from streams.connect.protocol import SinkBlock
from streams.connect.table_columns import TableColumn, TableShape, lost_table, table_shape
from streams.core.errors import ConfigError
from streams.core.topic import Topic

#: The values of the columns of a table, column by column.
Columns: TypeAlias = Sequence[Sequence[Any]]


class DatabaseSink(BufferedSink):
    """Writes a topic to a table, one row per key or per record; rows and positions are in one transaction.

    ``connection`` is whatever executes statements in a transaction of the database.
    """

    def __init__(
        self,
        table: str,
        positions_table: str,
        *,
        mode: Literal["upsert", "append"],
        key: str | list[str],
        timestamp: str,
        create: bool,
    ) -> None:
        super().__init__()
        if mode not in ("upsert", "append"):
            raise ConfigError(f"{type(self).__name__}: mode is 'upsert' or 'append', not {mode!r}")
        self._table_name = table
        self._positions_name = positions_table
        self._is_upsert = mode == "upsert"
        self._key = key
        self._timestamp = timestamp
        self._creates = create
        self._shape = TableShape((), (), (), None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(table={self._table_name!r})"

    def _opened(self, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        self._shape = table_shape(topic, self._key, self._timestamp)
        if self._is_upsert and not self._shape.keys:
            raise ConfigError(f"{self!r}: topic {topic.name!r} has no keys: declare key=, or give mode='append'")
        self._create_positions()
        with self._transaction() as connection:
            positions = self._read_positions(connection)
            is_missing = not self._table_columns(connection)
        if is_missing and any(positions.values()):
            raise lost_table(self, self._connector, topic.name, self._positions_name)
        if is_missing and self._creates:
            self._create_table()
        with self._transaction() as connection:
            self._check(self._table_columns(connection))
            if self._is_upsert and {column.name for column in self._shape.keys} not in self._unique_keys(connection):
                names = ", ".join(column.name for column in self._shape.keys)
                raise ConfigError(
                    f"{self!r}: an upsert needs a primary key, or a unique index, of the columns {names}: "
                    f"CREATE UNIQUE INDEX {self._table_name.rpartition('.')[2]}_key ON {self._table_name} ({names})"
                )
            self._prepare(connection)
        return positions

    def _check(self, columns: Set[str]) -> None:
        if not columns:
            raise ConfigError(f"{self!r}: the table does not exist; create it, or give create=True")
        missing = [column for column in self._shape.columns if column.name not in columns]
        if missing:
            raise ConfigError(
                f"{self!r}: the table has no column {missing[0].name!r}; "
                + "; ".join(f"ALTER TABLE {self._table_name} {self._addition(it)}" for it in missing)
            )

    def _commit(self, blocks: Sequence[SinkBlock[Any, Any]], moves: Mapping[int, int]) -> None:
        try:
            with self._transaction() as connection:
                for partition, next_offset in moves.items():
                    if not self._move(connection, partition, self._stored[partition], next_offset):
                        raise self._fenced(partition, "")
                for block in blocks:
                    self._write(connection, block)
        except Exception as error:
            reason = self._rejection(error)
            if reason is None:
                raise
            raise ConnectError(f"{self!r}: {reason}") from error

    def _write(self, connection: Any, block: SinkBlock[Any, Any]) -> None:
        columns = self._values(block)
        if not self._is_upsert:
            self._insert(connection, columns)
            return
        remaining, deleted = self._shape.last_by_key(block, columns, repr(self))
        if deleted:
            self._delete(connection, columns, deleted)
        if remaining:
            self._upsert(connection, columns, remaining)

    def _values(self, block: SinkBlock[Any, Any]) -> Columns:
        return self._shape.rows(block)

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """Return a transaction, connecting first if needed; its context is the connection."""

    @abstractmethod
    def _create_positions(self) -> None:
        """Create the table of positions if it is missing, in a transaction of its own; other sinks may do so too."""

    @abstractmethod
    def _read_positions(self, connection: Any) -> dict[int, int]:
        """Return the positions of the connector in the topic."""

    @abstractmethod
    def _table_columns(self, connection: Any) -> Set[str]:
        """Return the names of the columns of the table, none if there is no table."""

    @abstractmethod
    def _create_table(self) -> None:
        """Create the table as ``_create_positions`` does, with the columns that the types of the topic define."""

    @abstractmethod
    def _addition(self, column: TableColumn) -> str:
        """Return what adds a column in a statement ALTER TABLE, such as ``ADD COLUMN total BIGINT``."""

    @abstractmethod
    def _unique_keys(self, connection: Any) -> Collection[Set[str]]:
        """Return the names of the columns of each unique index, and of the primary key."""

    @abstractmethod
    def _prepare(self, connection: Any) -> None:
        """Prepare to write to the table."""

    @abstractmethod
    def _move(self, connection: Any, partition: int, expected: int | None, to: int) -> bool:
        """Change a stored position if it has the expected value, and return whether it had."""

    @abstractmethod
    def _insert(self, connection: Any, columns: Columns) -> None:
        """Insert all rows."""

    @abstractmethod
    def _delete(self, connection: Any, columns: Columns, indexes: Sequence[int]) -> None:
        """Delete the rows with the keys that the columns have at these indexes."""

    @abstractmethod
    def _upsert(self, connection: Any, columns: Columns, indexes: Sequence[int]) -> None:
        """Insert the rows at these indexes, or update those with their keys."""

    @abstractmethod
    def _rejection(self, error: Exception) -> str | None:
        """Return why the database rejects the rows, None if the error has another cause."""
