"""A sink into a SQLite file and a source of a list, which are as small as such connectors can be."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streams.connect import Guarantee, SinkBlock, SinkFencedError, SourceBlock
from streams.core.topic import Topic
from tests.waiting import WATCHDOG_S


class NotebookSink:
    """Appends values to a table of a SQLite file, with the position in the same transaction."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, path: Path, lock_timeout_s: float = WATCHDOG_S) -> None:
        self._path, self._lock_timeout_s = path, lock_timeout_s
        self._database: sqlite3.Connection | None = None
        #: Errors that the next writes raise.
        self.failures: list[Exception] = []

    def open(self, connector: str, topic: Topic[Any, Any], partitions: Sequence[int]) -> Mapping[int, int]:
        if self._database is None:
            self._database = sqlite3.connect(
                self._path, isolation_level=None, timeout=self._lock_timeout_s, check_same_thread=False
            )
            self._database.execute("create table if not exists rows (part, offset, key, value)")
            self._database.execute("create table if not exists positions (part integer primary key, next_offset)")
        self.abort()
        found = dict(self._database.execute("select part, next_offset from positions"))
        self._expected = {partition: found.get(partition) for partition in partitions}
        return {partition: found[partition] for partition in partitions if partition in found}

    def write(self, block: SinkBlock[Any, Any]) -> None:
        database, partition = self._database, block.partition
        assert database is not None
        if self.failures:
            raise self.failures.pop(0)
        if not database.in_transaction:
            database.execute("begin immediate")
        row = database.execute("select next_offset from positions where part = ?", [partition]).fetchone()
        if (row and row[0]) != self._expected[partition]:
            raise SinkFencedError(f"partition {partition} is at {row}, not at {self._expected[partition]}")
        rows = zip([partition] * len(block), block.offsets, block.keys, block.values, strict=True)
        database.executemany("insert into rows values (?, ?, ?, ?)", rows)
        database.execute("insert or replace into positions values (?, ?)", [partition, block.next_offset])
        self._expected[partition] = block.next_offset

    def commit(self) -> None:
        assert self._database is not None
        self._database.commit()

    def abort(self) -> None:
        if self._database is not None:
            self._database.rollback()

    def is_retriable(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.OperationalError)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def rows_in(path: Path) -> list[Any]:
    """The rows as (partition, offset, key, value), in their order."""
    database = sqlite3.connect(path)
    try:
        return database.execute("select * from rows order by part, rowid").fetchall()
    except sqlite3.OperationalError:  # Nothing was written yet.
        return []
    finally:
        database.close()


class ListSource:
    """Reads a list, a few values with each poll."""

    def __init__(self, values: Sequence[int], size: int = 3) -> None:
        self._values, self._size = values, size
        self._at = 0
        self.failures: list[Exception] = []
        self.committed_at: list[Any] = []
        self.opened_at: list[Any] = []

    def open(self, connector: str, topic: Topic[Any, Any], positions: Mapping[str, Any]) -> None:
        self._at = positions.get("all", 0)
        self.opened_at.append(self._at)

    def poll(self, timeout_ms: int) -> Sequence[SourceBlock[str, int]]:
        if self.failures:
            raise self.failures.pop(0)
        found = self._values[self._at : self._at + self._size]
        self._at += len(found)
        if not found:
            return []
        return [SourceBlock("all", self._at, [str(value % 5) for value in found], found)]

    def committed(self, positions: Mapping[str, Any]) -> None:
        self.committed_at.append(positions["all"])

    def is_retriable(self, error: Exception) -> bool:
        return isinstance(error, OSError)

    def wakeup(self) -> None:
        pass

    def close(self) -> None:
        pass
