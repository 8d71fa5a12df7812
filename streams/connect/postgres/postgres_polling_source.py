"""A source of the rows of a table of Postgres, by polling, exactly once (extra ``postgres``).

The rows are read in the order of columns that increase.  A transaction may commit after others that have later values
in these columns.  So each poll first takes the last value that is visible as its bound, and the transactions that run
then; it reads up to the bound when all of these have ended.  A transaction that begins later has later values.
Of the other packages, this module imports only ``core``; psycopg is imported on use.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import define

from streams.connect.postgres.postgres_table import PostgresTable
from streams.connect.protocol import Position, SourceBlock
from streams.core.clock import SystemClock
from streams.core.concurrency.threads import SystemThreads
from streams.core.errors import ConfigError
from streams.core.event_time.timestamps import to_milliseconds
from streams.core.topic import Topic

if TYPE_CHECKING:
    from psycopg import Connection

log = logging.getLogger(__name__)

#: Time for which transactions are waited for silently.
_SILENT_MS: Final = 30_000
#: The transactions that run in this database, apart from this one and those of the server, and those that are prepared.
_RUNNING: Final = """
    SELECT virtualtransaction FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'virtualxid' AND mode = 'ExclusiveLock' AND datname = current_database()
    AND pid <> pg_backend_pid() AND usesysid IS NOT NULL
    UNION ALL SELECT 'prepared ' || gid FROM pg_prepared_xacts WHERE database = current_database()
"""


@define(eq=False)
class _Bound:
    """The last values of a poll, as text, and the transactions whose end it waits for."""

    values: tuple[str, ...]
    waits_for: set[str]
    since_ms: int
    is_said: bool = False


class PostgresPollingSource:
    """Reads the rows of a table of Postgres by the order of a time and an id, or of an id alone.

    With ``updated_at``, a row is read when it was inserted or its time has changed, in its newest form; without it,
    each row is read once, when it was inserted.  Deletions are not seen: ``PostgresSource`` sees them.  The time of a
    record is that of ``updated_at``, unless ``Topic(timestamp=...)`` says otherwise.

    The columns are set by the database: the time by ``now()``, as a default and by a trigger; the id by a sequence or
    an identity column.  Rows of transactions that commit late are not missed; a transaction that runs for long delays
    all rows that were committed since its start.

    Args:
        dsn: the connection string, such as ``postgresql://user@host/database``, or ``host=... dbname=...``.
        table: the name of the table, which may have a schema: ``sales.orders``.
        updated_at: the column with the time of the last change; it must not be null.
        id: a unique column, which increases if there is no ``updated_at``; by default the primary key.
        delay_ms: how old the time of a row has to be before it is read, in milliseconds: longer than the server's clock
            can be set back, and than a statement takes from its start to its transaction.
        interval_ms: the pause after a poll without rows, in milliseconds.
        batch_records: how many rows are read at once.

    Raises:
        ConfigError: psycopg is not installed, or an argument is invalid.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        updated_at: str = "",
        id: str = "",  # noqa: A002 - the name of the column in most tables.
        delay_ms: int = 1_000,
        interval_ms: int = 1_000,
        batch_records: int = 10_000,
    ) -> None:
        self._name = f"PostgresPollingSource(table={table!r})"
        self._table = PostgresTable(self._name, dsn, table, ())
        self._updated_at = updated_at
        self._id_column = id
        self._delay_ms = delay_ms
        self._interval_ms = interval_ms
        self._batch = batch_records
        #: The columns by which rows are read, and their types.
        self._order: tuple[str, ...] = ()
        self._types: tuple[str, ...] = ()
        self._connection: Connection[Any] | None = None
        #: The values of the last row that was read, as text.
        self._at: tuple[str, ...] | None = None
        self._bound: _Bound | None = None
        self._has_times = False
        self._clock = SystemClock()
        self._stop = SystemThreads().signal()

    def __repr__(self) -> str:
        return self._name

    # --- protocol ---------------------------------------------------------------------

    def open(self, connector: str, topic: Topic[Any, Any], positions: Mapping[str, Position]) -> None:
        """Connect, and check the table and its columns.

        Raises:
            ConfigError: the table does not fit the topic, or its columns cannot be relied on.
        """
        table = self._table
        connection = self._connection = table.connect(connector)
        table.key = ()
        table.describe(connection, topic)
        self._order = (*([self._updated_at] if self._updated_at else ()), *self._ids())
        self._types = tuple(self._check(connection, name) for name in self._order)
        if not self._updated_at:
            self._check_sequence(connection)
        self._has_times = bool(self._updated_at) and topic.value_time is None
        self._bound = None
        self._at = None
        position = positions.get(table.name)
        if position is not None:
            if position.keys() != set(self._order):
                raise ConfigError(
                    f"{self!r}: the position of {connector!r} is one in {', '.join(position)}, not in "
                    f"{', '.join(self._order)}: give these columns, or the connector another name, with which it "
                    "begins anew"
                )
            self._at = tuple(position[name] for name in self._order)

    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[Any, Any]]:
        """Return the next rows, or wait for new ones, or for the transactions that may have earlier ones."""
        assert self._connection is not None
        bound = self._bound = self._bound or self._next_bound(self._connection)
        if bound is not None and self._is_final(self._connection, bound):
            rows = self._rows(self._connection, bound)
            if len(rows) < self._batch:
                self._bound = None
            if rows:
                return [self._block(rows)]
        self._stop.wait(min(timeout_ms, self._interval_ms))
        return []

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Do nothing: the table stays as it is."""

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error concerns the connection, a lock, or the server's resources."""
        return self._table.is_retriable(error)

    def wakeup(self) -> None:
        """End the wait for rows."""
        self._stop.set()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- columns ----------------------------------------------------------------------

    def _ids(self) -> tuple[str, ...]:
        table = self._table
        if self._id_column:
            return (self._id_column,)
        if not table.primary_key or (len(table.primary_key) > 1 and not self._updated_at):
            has = "has no primary key" if not table.primary_key else "has a primary key of several columns"
            raise ConfigError(f"{self!r}: the table {has}: name a unique column that increases with id=")
        return table.primary_key

    def _check(self, connection: "Connection[Any]", name: str) -> str:
        """Return the type of a column that rows are ordered by.

        Raises:
            ConfigError: there is no such column, or rows could be missed by it.
        """
        table = self._table
        row = connection.execute(
            "SELECT format_type(atttypid, atttypmod), attnotnull, EXISTS (SELECT FROM pg_index WHERE indrelid = "
            "attrelid AND indisunique AND indpred IS NULL AND indnatts = 1 AND indkey[0] = attnum) FROM pg_attribute "
            "WHERE attrelid = %s AND attname = %s AND attnum > 0 AND NOT attisdropped",
            [table.number, name],
        ).fetchone()
        setting = "updated_at" if name == self._updated_at else "id"
        if row is None:
            raise ConfigError(f"{self!r}: {setting}={name!r} is none of the columns: {', '.join(table.columns)}")
        kind, is_not_null, is_unique = row
        if not is_not_null:
            raise ConfigError(
                f"{self!r}: {setting}={name!r} may be null, and such rows would never be read: "
                f"ALTER TABLE {table.name} ALTER {name} SET NOT NULL"
            )
        if setting == "updated_at":
            if not kind.startswith("timestamp"):
                raise ConfigError(f"{self!r}: updated_at={name!r} is no timestamp, but {kind}")
            return str(kind)
        if not is_unique and name not in table.primary_key:
            raise ConfigError(f"{self!r}: id={name!r} is not unique: rows of one value could be missed; add an index")
        if not self._updated_at and kind not in ("smallint", "integer", "bigint"):
            raise ConfigError(
                f"{self!r}: id={name!r} is no whole number, but {kind}, of which later rows may have lower ones: give "
                "updated_at="
            )
        return str(kind)

    def _check_sequence(self, connection: "Connection[Any]") -> None:
        """Check that no session takes numbers in advance, which another one's later rows would overtake."""
        (name,) = self._order
        row = connection.execute(
            "SELECT seqrelid::regclass::text, seqcache, seqincrement, seqcycle FROM pg_sequence "
            "WHERE seqrelid = pg_get_serial_sequence(%s, %s)::regclass",
            [self._table.identifier.as_string(connection), name],
        ).fetchone()
        if row is None:
            return
        sequence, cache, increment, is_cycle = row
        if cache > 1 or increment < 0 or is_cycle:
            has = f"CACHE {cache}" if cache > 1 else "CYCLE" if is_cycle else f"INCREMENT {increment}"
            raise ConfigError(
                f"{self!r}: sequence {sequence} of id={name!r} has {has}, so that later rows may have lower numbers: "
                f"ALTER SEQUENCE {sequence} CACHE 1 INCREMENT 1 NO CYCLE, or give updated_at="
            )

    # --- rows -------------------------------------------------------------------------

    def _query(self, text: str) -> Any:
        """Return a query: {order} are the columns, {last} the same in reverse order, {bound} their parameters."""
        sql = self._table.psycopg.sql
        # A name alone in ORDER BY would be that of the text.
        names = [sql.Identifier("t", name) for name in self._order]
        comma = sql.SQL(", ")
        return sql.SQL(text).format(
            table=self._table.identifier,
            columns=comma.join([sql.Identifier(name) for name in self._table.columns]),
            order=comma.join(names),
            last=comma.join([sql.SQL("{} DESC").format(name) for name in names]),
            texts=comma.join([sql.SQL("{}::text").format(name) for name in names]),
            values=comma.join([sql.SQL("%s::" + kind) for kind in self._types]),
            updated_at=sql.Identifier(self._order[0]),
        )

    def _next_bound(self, connection: "Connection[Any]") -> _Bound | None:
        """Return the last values that are visible, if they are new, and the transactions that run after that."""
        text = "SELECT {texts} FROM {table} AS t WHERE TRUE"
        parameters = list[Any]()
        if self._at is not None:
            text += " AND ({order}) > ({values})"
            parameters += self._at
        if self._updated_at:
            text += " AND {updated_at} <= clock_timestamp() - %s * interval '1 ms'"
            parameters.append(self._delay_ms)
        row = connection.execute(self._query(text + " ORDER BY {last} LIMIT 1"), parameters).fetchone()
        if row is None:
            return None
        running = {name for (name,) in connection.execute(_RUNNING)}
        return _Bound(tuple(row), running, self._clock.monotonic_ms())

    def _is_final(self, connection: "Connection[Any]", bound: _Bound) -> bool:
        """Whether no transaction is left that could commit a row up to the bound."""
        if bound.waits_for:
            bound.waits_for &= {name for (name,) in connection.execute(_RUNNING)}
        if bound.waits_for and not bound.is_said and self._clock.monotonic_ms() - bound.since_ms > _SILENT_MS:
            bound.is_said = True
            log.warning(
                "%r: has waited for %d seconds for transactions that may have earlier rows: see xact_start in "
                "pg_stat_activity",
                self,
                _SILENT_MS // 1000,
            )
        return not bound.waits_for

    def _rows(self, connection: "Connection[Any]", bound: _Bound) -> list[tuple[Any, ...]]:
        text = "SELECT {texts}, {columns} FROM {table} AS t WHERE ({order}) <= ({values})"
        parameters = list[Any](bound.values)
        if self._at is not None:
            text += " AND ({order}) > ({values})"
            parameters += self._at
        query = self._query(text + " ORDER BY {order} LIMIT %s")
        return connection.execute(query, [*parameters, self._batch]).fetchall()

    def _block(self, fetched: Sequence[tuple[Any, ...]]) -> SourceBlock[Any, Any]:
        table = self._table
        width = len(self._order)
        self._at = tuple(fetched[-1][:width])
        rows = [dict(zip(table.columns, row[width:], strict=True)) for row in fetched]
        return SourceBlock(
            table.name,
            dict(zip(self._order, self._at, strict=True)),
            [table.key_bytes(row) for row in rows],
            [table.value_bytes(row) for row in rows],
            [to_milliseconds(row[self._updated_at]) for row in rows] if self._has_times else None,
            is_serialized=True,
        )
