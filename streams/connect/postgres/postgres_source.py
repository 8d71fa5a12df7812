"""A source of the changes of a table of Postgres, by logical replication, exactly once (extra ``postgres``).

The changes are read by SQL functions from a replication slot with the plugin ``pgoutput``.  The position is that in
the log after the last transaction.  What is committed to the topic is confirmed to the slot, so that the server can
remove its log.  The first start copies the table, in the snapshot that belongs to the start of the slot, in one
transaction of the topic.
Of the other packages, this module imports only ``core``; psycopg is imported on use.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import define, field

from streams.connect.errors import ConnectError
from streams.connect.postgres.pgoutput import (
    UNCHANGED,
    Change,
    Message,
    Relation,
    Row,
    TransactionBegin,
    TransactionEnd,
    Truncate,
    decoded,
    lsn_of,
    lsn_text,
)
from streams.connect.postgres.postgres_table import PostgresTable, names_of
from streams.connect.protocol import Position, SourceBlock
from streams.core.concurrency.threads import SystemThreads
from streams.core.errors import ConfigError
from streams.core.topic import Topic

if TYPE_CHECKING:
    from psycopg import Connection

log = logging.getLogger(__name__)

#: Log without changes of the table after which the slot is moved on nevertheless, so that the server can remove it.
_IDLE_BYTES: Final = 16 << 20
#: Rows that are fetched at once.
_FETCHED: Final = 2_000


def _check(name: str, snapshot: str, slot: str) -> None:
    """Check the arguments of the source with a name.

    Raises:
        ConfigError: one of them is invalid.
    """
    if snapshot not in ("initial", "never"):
        raise ConfigError(f"{name}: snapshot is 'initial' or 'never', not {snapshot!r}")
    if slot and re.fullmatch("[a-z0-9_]{1,63}", slot) is None:
        raise ConfigError(f"{name}: slot {slot!r}: has up to 63 lower-case letters, digits and underscores")


class PostgresSource:
    """Reads the changes of a table of Postgres: inserts and updates as the row, deletions as tombstones.

    The value of a record is the row, the key its primary key: one value, or a class or dict of several columns.  The
    time of a record is the time of the commit, unless ``Topic(timestamp=...)`` says otherwise.  The changes of one
    transaction of the database become visible at once.  The server needs ``wal_level = logical``, and the user the
    attribute ``REPLICATION``.

    Args:
        dsn: the connection string, such as ``postgresql://user@host/database``, or ``host=... dbname=...``.
        table: the name of the table, which may have a schema: ``sales.orders``.
        key: the names of the key columns; by default the primary key.
        snapshot: "initial" to copy the rows that are there at the first start, "never" to begin with new changes.
        slot: the name of the replication slot, by default ``streams_`` and the name of the connector.
        publication: the name of the publication, which is created if it is missing; by default that of the slot.
        interval_ms: the pause after which an idle log is read again, in milliseconds.
        batch_records: how many changes are read at once; a transaction is never divided.

    Raises:
        ConfigError: psycopg is not installed, or an argument is invalid.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        key: str | list[str] = "",
        snapshot: Literal["initial", "never"] = "initial",
        slot: str = "",
        publication: str = "",
        interval_ms: int = 500,
        batch_records: int = 10_000,
    ) -> None:
        self._name = f"PostgresSource(table={table!r})"
        _check(self._name, snapshot, slot)
        self._given_key = names_of(key)
        self._table = PostgresTable(self._name, dsn, table, self._given_key)
        self._copies = snapshot == "initial"
        self._interval_ms = interval_ms
        self._batch = batch_records
        self._connector = ""
        self._slot = slot
        self._publication = publication
        self._connection: Connection[Any] | None = None
        #: Connections of a snapshot: the one that keeps it, and the one that reads.
        self._others: list[Connection[Any]] = []
        #: Position after the last transaction that was read; None before the first start is over.
        self._lsn: int | None = None
        self._confirmed = 0
        #: Whether the time of a record is that of the commit.
        self._has_times = True
        self._blocks: Iterator[SourceBlock[Any, Any]] | None = None
        self._stop = SystemThreads().signal()

    def __repr__(self) -> str:
        return self._name

    # --- protocol ---------------------------------------------------------------------

    def open(self, connector: str, topic: Topic[Any, Any], positions: Mapping[str, Position]) -> None:
        """Connect, check the table, and create the publication if it is missing.

        Raises:
            ConfigError: the server or the table is not ready for logical replication.
            ConnectError: the slot is gone, or has gone on without this source.
        """
        self._connector = connector
        self._has_times = topic.value_time is None
        self._lsn = None
        self._slot = self._slot or f"streams_{re.sub('[^a-z0-9_]', '_', connector.lower())}"[:63]
        self._publication = self._publication or self._slot
        connection = self._connection = self._table.connect(connector)
        self._table.key = self._given_key
        self._table.describe(connection, topic)
        self._check_server(connection)
        self._check_identity(connection)
        self._publish(connection)
        position = positions.get(self._table.name)
        self._blocks = None
        if position is None:
            self._begin(connection)
        elif position["slot"] != self._slot:
            raise ConfigError(
                f"{self!r}: the position of {connector!r} is one in slot {position['slot']!r}: give slot= this name, "
                "or the connector another name, with which it begins anew"
            )
        elif position["lsn"] is None:
            self._blocks = self._first()
        else:
            self._go_on(connection, lsn_of(position["lsn"]))

    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[Any, Any]]:
        """Return the changes of the next transactions, or the next rows of the snapshot."""
        if self._blocks is None:
            self._blocks = self._changes()
        block = next(self._blocks, None)
        if block is not None:
            return [block]
        self._blocks = None
        self._stop.wait(min(timeout_ms, self._interval_ms))
        return []

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Confirm the position to the slot, so that the server can remove its log up to there."""
        text = positions[self._table.name]["lsn"]
        if text is not None and lsn_of(text) > self._confirmed:
            assert self._connection is not None
            self._connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self._slot, text])
            self._confirmed = lsn_of(text)

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error concerns the connection, a lock, or the server's resources."""
        return self._table.is_retriable(error)

    def wakeup(self) -> None:
        """End the wait for changes."""
        self._stop.set()

    def close(self) -> None:
        """Close the connections; the slot stays, and with it the log of the server since the last confirmation."""
        self._blocks = None
        for connection in (*self._others, self._connection):
            if connection is not None:
                connection.close()
        self._others = []
        self._connection = None

    # --- start ------------------------------------------------------------------------

    def _check_server(self, connection: "Connection[Any]") -> None:
        row = connection.execute("SELECT current_setting('wal_level')").fetchone()
        if row is None or row[0] != "logical":
            raise ConfigError(
                f"{self!r}: the server has wal_level={row and row[0]}: ALTER SYSTEM SET wal_level = logical, and "
                "restart it"
            )
        if not self._table.has_keys:
            raise ConfigError(f"{self!r}: the topic declares no keys, so that it can have no deletions: declare key=")

    def _check_identity(self, connection: "Connection[Any]") -> None:
        """Check that the replica identity includes the key, so that deletions and key updates have the old key."""
        row = connection.execute(
            "SELECT relreplident, (SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute ON attrelid = "
            "indrelid AND attnum = ANY(indkey) WHERE indrelid = pg_class.oid AND (CASE WHEN relreplident = 'i' THEN "
            "indisreplident ELSE indisprimary END)) FROM pg_class WHERE oid = %s",
            [self._table.number],
        ).fetchone()
        assert row is not None, "the table was found before"
        identity, columns = row
        if identity == "f" or (identity in ("d", "i") and set(self._table.key) <= set(columns or ())):
            return
        raise ConfigError(
            f"{self!r}: deletions are logged without the key ({', '.join(self._table.key)}): "
            f"ALTER TABLE {self._table.name} REPLICA IDENTITY FULL, or make it the primary key"
        )

    def _publish(self, connection: "Connection[Any]") -> None:
        publication = connection.execute(
            "SELECT EXISTS (SELECT FROM pg_get_publication_tables(pubname) WHERE relid = %s) "
            "FROM pg_publication WHERE pubname = %s",
            [self._table.number, self._publication],
        ).fetchone()
        if publication is None:
            connection.execute(
                self._table.query(
                    "CREATE PUBLICATION {name} FOR TABLE {table} WITH (publish_via_partition_root = true)",
                    name=self._publication,
                )
            )
        elif not publication[0]:
            raise ConfigError(
                f"{self!r}: publication {self._publication!r} does not have the table: "
                f"ALTER PUBLICATION {self._publication} ADD TABLE {self._table.name}"
            )

    def _found_slot(self, connection: "Connection[Any]") -> tuple[int, str] | None:
        """Return the confirmed log position of the slot and the status of its log; None if there is no slot."""
        row = connection.execute(
            "SELECT plugin, database = current_database(), confirmed_flush_lsn::text, coalesce(wal_status, '') "
            "FROM pg_replication_slots WHERE slot_name = %s",
            [self._slot],
        ).fetchone()
        if row is None:
            return None
        plugin, is_here, confirmed, status = row
        if plugin != "pgoutput" or not is_here:
            raise ConfigError(f"{self!r}: slot {self._slot!r} is one of another plugin or database; give another slot=")
        return lsn_of(confirmed or "0/0"), status

    def _begin(self, connection: "Connection[Any]") -> None:
        """Start without a stored position."""
        slot = self._found_slot(connection)
        if slot is not None and self._copies:
            raise ConfigError(
                f"{self!r}: slot {self._slot!r} exists, but {self._connector!r} has no position: give snapshot='never' "
                f"to go on there, or remove it: SELECT pg_drop_replication_slot('{self._slot}')"
            )
        self._blocks = self._first(is_noted=False)

    def _go_on(self, connection: "Connection[Any]", lsn: int) -> None:
        slot = self._found_slot(connection)
        again = "give the connector another name, with which it begins anew"
        if slot is None or slot[1] == "lost":
            what = "does not exist any more" if slot is None else "has lost its log (max_slot_wal_keep_size)"
            raise ConnectError(f"{self!r}: slot {self._slot!r} {what}: changes after {lsn_text(lsn)} are lost; {again}")
        self._confirmed = slot[0]
        self._lsn = lsn
        if self._confirmed > lsn:
            raise ConnectError(
                f"{self!r}: slot {self._slot!r} is at {lsn_text(self._confirmed)}, but {self._connector!r} at "
                f"{lsn_text(lsn)}: another reader of the slot has moved it on; {again}"
            )

    def _first(self, *, is_noted: bool = True) -> Iterator[SourceBlock[Any, Any]]:
        """Create the slot, and read the existing rows.

        A block without records first stores that the start has begun, to recognize a start that was killed.
        """
        assert self._connection is not None
        slot = self._found_slot(self._connection)
        if not is_noted:
            yield self._block([], [], None)
        if not self._copies:
            self._lsn = self._created() if slot is None else slot[0]
            yield self._block([], [], None)
            return
        if slot is not None:
            # What the start before has read was not committed.
            self._connection.execute("SELECT pg_drop_replication_slot(%s)", [self._slot])
        yield from self._snapshot()

    def _created(self) -> int:
        assert self._connection is not None
        row = self._connection.execute(
            "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", [self._slot]
        ).fetchone()
        assert row is not None, "it returns one row"
        return lsn_of(row[0])

    def _snapshot(self) -> Iterator[SourceBlock[Any, Any]]:
        """Create the slot, and yield the table as of its snapshot, in one transaction of the topic."""
        table = self._table
        keeper = table.connect(self._connector, replication="database")
        self._others.append(keeper)
        # psycopg has no method for replication connections, but their commands are simple queries.
        created = keeper.pgconn.exec_(
            f'CREATE_REPLICATION_SLOT "{self._slot}" LOGICAL pgoutput EXPORT_SNAPSHOT'.encode()
        )
        point = created.get_value(0, 1)
        name = created.get_value(0, 2)
        if point is None or name is None:
            reason = created.error_message.decode().strip()
            raise ConnectError(f"{self!r}: slot {self._slot!r} cannot be created: {reason}")
        reader = table.connect(self._connector)
        self._others.append(reader)
        reader.isolation_level = table.psycopg.IsolationLevel.REPEATABLE_READ
        log.info("%r: copies the table as of %s", self, point.decode())
        columns = table.psycopg.sql.SQL(", ").join(map(table.psycopg.sql.Identifier, table.columns))
        count = 0
        with reader.transaction():
            reader.execute(table.psycopg.sql.SQL("SET TRANSACTION SNAPSHOT {}").format(name.decode()))
            with reader.cursor(name="streams") as cursor:
                cursor.execute(table.psycopg.sql.SQL("SELECT {} FROM {}").format(columns, table.identifier))
                while fetched := cursor.fetchmany(self._batch):
                    rows = [dict(zip(table.columns, row, strict=True)) for row in fetched]
                    keys = [table.key_bytes(row) for row in rows]
                    values = [table.value_bytes(row) for row in rows]
                    count += len(rows)
                    yield self._block(keys, values, None, has_more=True)
        for connection in self._others:
            connection.close()
        self._others = []
        log.info("%r: has copied %d rows", self, count)
        self._lsn = self._confirmed = lsn_of(point.decode())
        yield self._block([], [], None)

    # --- changes ----------------------------------------------------------------------

    def _changes(self) -> Iterator[SourceBlock[Any, Any]]:
        """Read the log once, up to its end or a limited number of changes."""
        connection, table = self._connection, self._table
        assert connection is not None
        assert self._lsn is not None, "the first start is over"
        row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None, "it returns one row"
        changes = _Transactions(table, connection, self._lsn)
        with connection.transaction(), connection.cursor(name="streams") as cursor:
            cursor.execute(
                "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, 'proto_version', '1', "
                "'publication_names', %s)",
                [self._slot, self._batch, table.query("{name}", name=self._publication).as_string(connection)],
            )
            while fetched := cursor.fetchmany(_FETCHED):
                for (data,) in fetched:
                    changes.take(decoded(bytes(data)))
                if len(changes.keys) >= self._batch:
                    yield self._taken(changes)
        if changes.keys or changes.is_open:
            yield self._taken(changes)
        elif max(changes.lsn, lsn_of(row[0])) - self._confirmed >= _IDLE_BYTES:
            # Nothing was found, so that there is nothing of the table before the end that the log had at first.
            self._lsn = max(changes.lsn, lsn_of(row[0]))
            yield self._block([], [], None)

    def _taken(self, changes: "_Transactions") -> SourceBlock[Any, Any]:
        """Return the changes read so far as a block."""
        self._lsn = changes.lsn
        keys, values, times_ms = changes.keys, changes.values, changes.times_ms
        changes.keys = []
        changes.values = []
        changes.times_ms = []
        return self._block(keys, values, times_ms if self._has_times else None, has_more=changes.is_open)

    def _block(
        self, keys: Sequence[Any], values: Sequence[Any], times_ms: Sequence[int] | None, *, has_more: bool = False
    ) -> SourceBlock[Any, Any]:
        position = {"slot": self._slot, "lsn": None if self._lsn is None else lsn_text(self._lsn)}
        return SourceBlock(
            self._table.name, position, keys, values, times_ms, None, is_serialized=True, has_more=has_more
        )


@define(eq=False)
class _Transactions:
    """Converts log messages to records; transactions before ``lsn`` were already written, and are skipped."""

    table: PostgresTable
    connection: "Connection[Any]"
    #: Position after the last transaction that is complete.
    lsn: int
    keys: list[bytes | None] = field(factory=list)
    values: list[bytes | None] = field(factory=list)
    times_ms: list[int] = field(factory=list)
    #: Within a transaction.
    is_open: bool = False
    _is_known: bool = False
    _time_ms: int = 0
    _columns: tuple[str, ...] = ()
    _loads: list[Any] = field(factory=list)

    def take(self, message: Message | None) -> None:
        """Process one message of the log."""
        match message:
            case Change(number) if number == self.table.number and not self._is_known:
                self._change(message)
            case TransactionBegin(commit_lsn, time_ms):
                self._is_known = commit_lsn < self.lsn
                self._time_ms = time_ms
                self.is_open = not self._is_known
            case TransactionEnd(end_lsn):
                self.lsn = max(self.lsn, end_lsn)
                self._is_known = self.is_open = False
            case Relation(number, _, _, columns, types) if number == self.table.number:
                self._columns = columns
                self._loads = _loaders(self.connection, types)
            case Truncate(numbers) if self.table.number in numbers and not self._is_known:
                log.warning("%s: the table was truncated: the topic has no tombstones for its rows", self.table.source)

    def _change(self, change: Change) -> None:
        table = self.table
        # A key alone has its columns in their places, and null elsewhere.
        old_key = None if change.old is None else table.key_bytes(self._row(change.old, None))
        if change.new is None:
            self._add(old_key, None)
            return
        row = self._row(change.new, change.old)
        key = table.key_bytes(row)
        if old_key is not None and old_key != key:
            self._add(old_key, None)
        self._add(key, table.value_bytes(row))

    def _add(self, key: bytes | None, value: bytes | None) -> None:
        self.keys.append(key)
        self.values.append(value)
        self.times_ms.append(self._time_ms)

    def _row(self, values: Row, old: Row | None) -> dict[str, Any]:
        row = {}
        for index, (name, load, value) in enumerate(zip(self._columns, self._loads, values, strict=True)):
            if value is UNCHANGED and old is not None:
                value = old[index]
            if value is UNCHANGED or (value is None and old is not None and values[index] is UNCHANGED):
                raise ConnectError(
                    f"{self.table.source}: an update has not touched column {name!r}, whose large value is therefore "
                    f"not in the log: ALTER TABLE {self.table.name} REPLICA IDENTITY FULL, and give the connector "
                    "another name, with which it begins anew"
                )
            row[name] = None if value is None else load(value)
        return row


def _loaders(connection: "Connection[Any]", types: Sequence[int]) -> list[Any]:
    """Return for each column the function that converts the text of a value to a Python object."""
    from psycopg.adapt import Transformer
    from psycopg.pq import Format

    transformer = Transformer(connection)
    return [transformer.get_loader(number, Format.TEXT).load for number in types]
