"""Reading and writing of Delta Lake tables with the package ``deltalake``."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from attrs import define, field

from streams.core.clock import SystemClock
from streams.core.errors import InputError
from streams.files import created_delta, explained_delta
from streams.replay.errors import ReplayError
from streams.replay.lake.log import (
    Commit,
    DataFile,
    LakeName,
    LakeState,
    Partition,
)
from streams.replay.storage.places import Place

#: Maximum number of operations that are read from the table history.
_OPERATIONS = 1_000


def _opened(name: LakeName) -> Any:
    """Return a table, at the version or time that its name specifies.

    Raises:
        ConfigError: ``deltalake`` is not installed.
        InputError: there is no such table or version.
    """
    with explained_delta(f"{name}: cannot be read as a Delta table"):
        from deltalake import DeltaTable

        table = DeltaTable(_uri(name))
        at = name.version if name.version is not None else name.time
        if at is not None:
            table.load_as_version(at)
        return table


def _uri(name: LakeName) -> str:
    place = Place(name.table).absolute()
    return str(place.path) if place.is_local else place.uri


def delta_state(name: LakeName) -> LakeState:
    """Return the version of a table, its files, and the operations so far.

    Raises:
        InputError: there is no such table or version.
    """
    table = _opened(name)
    with explained_delta(f"{name}: its log cannot be read"):
        operations = [
            (str(found.get("version", "")), str(found.get("operation", ""))) for found in table.history(_OPERATIONS)
        ]
        actions = table.get_add_actions(flatten=True)
        files = sorted(map(unquote, actions.column("path").to_pylist()))
        counts = actions.column("num_records").to_pylist()
        rows = None if None in counts else sum(counts)
        return LakeState(str(table.version()), tuple(files), tuple(reversed(operations)), rows)


def delta_rows(name: LakeName, state: LakeState, files: Sequence[str]) -> Any:
    """Return the rows of some files of a table version as a ``pyarrow`` dataset, in the order of ``files``.

    Raises:
        InputError: the table has a feature that ``deltalake`` cannot read, such as deletion vectors.
    """
    with explained_delta(f"{name}: cannot be read as a Delta table"):
        from deltalake import DeltaTable
        from pyarrow.dataset import FileSystemDataset, ParquetReadOptions

        # Nanoseconds, the default for times that Spark writes as INT96, overflow before 1678 and after 2262.
        options = ParquetReadOptions(coerce_int96_timestamp_unit="us")
        table = DeltaTable(_uri(name), version=int(state.version))
        whole = table.to_pyarrow_dataset(parquet_read_options=options)
        fragments = {unquote(part.path).lstrip("/"): part for part in whole.get_fragments()}
        chosen = [fragments[file.lstrip("/")] for file in files]
        return FileSystemDataset(chosen, whole.schema, whole.format, whole.filesystem)


@define(eq=False)
class DeltaLog:
    """A Delta table to which a replay writes; each committed slice is an application transaction in its log."""

    _table: Any
    _columns: tuple[str, ...]
    folder: Place
    has_partition_columns: bool = field(default=False, init=False)

    @classmethod
    def opened(cls, target: Place, schema: Any, columns: Sequence[str]) -> "DeltaLog":
        """Open the table in a folder; create it if the folder does not exist or is empty.

        ``schema`` is the Arrow schema of all columns, and ``columns`` are the names of the partition columns.

        Raises:
            InputError: the table has other columns or partition columns, or the folder has files but no table.
        """
        uri = str(target.path) if target.is_local else target.uri
        with explained_delta(f"delta:{target}: cannot be written as a Delta table"):
            from deltalake import DeltaTable

            if not DeltaTable.is_deltatable(uri) and target.files():
                raise InputError(f"delta:{target}: has files, but is no Delta table; give another folder")
        table = created_delta(uri, schema, columns)
        return cls(table, tuple(columns), target)

    def __str__(self) -> str:
        return f"delta:{self.folder}"

    def committed(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the digest and row count of each slice in ``names`` that has been committed, by name."""
        found = {}
        for name in names:
            digest = self._table.transaction_version(name)
            if digest is not None and digest >= 0:
                found[name] = (digest, self._table.transaction_version(f"{name}/rows") or 0)
        return found

    def files(self) -> list[DataFile]:
        """Return the data files of the table's newest version."""
        actions = self._table.get_add_actions(flatten=True)
        names = [f"partition.{name}" for name in self._columns]
        rows = zip(*(actions.column(name).to_pylist() for name in ("path", "num_records", *names)), strict=True)
        return [DataFile(unquote(path), _texts(values), count or 0) for path, count, *values in rows]

    def commit(self, commit: Commit) -> None:
        """Commit changes to the table: files to add, which have been written, and files to remove.

        Raises:
            ReplayError: another writer has changed the same files, or the log cannot be written.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, RemoveAction

        now_ms = SystemClock().now_ms()
        actions: list[Any] = []
        for file in commit.added:
            values = dict(zip(self._columns, file.partition, strict=True))
            stats = json.dumps({"numRecords": file.rows})
            size = self.folder.child(file.path).size()
            actions.append(AddAction(file.path, size, values, now_ms, True, stats))
        for file in commit.removed:
            values = dict(zip(self._columns, file.partition, strict=True))
            actions.append(RemoveAction(file.path, True, now_ms, None, values))
        transactions = [
            Transaction(name, number)
            for slice_name, (digest, rows) in commit.slices.items()
            for name, number in ((slice_name, digest), (f"{slice_name}/rows", rows))
        ]
        properties = CommitProperties(custom_metadata=dict(commit.properties), app_transactions=transactions)
        try:
            self._table.create_write_transaction(
                actions, "append", self._table.schema(), list(self._columns), commit_properties=properties
            )
        except (DeltaError, OSError) as error:
            raise ReplayError(
                f"delta:{self.folder}: cannot be committed: {error}; if another job has changed the table meanwhile, "
                "write again"
            ) from error
        self._table.update_incremental()


def _texts(values: Sequence[Any]) -> Partition:
    return tuple(_text(value) for value in values)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
