"""Tables of Delta Lake, read and written with the package ``deltalake``, which is imported on use.

Of the other packages, this module imports only ``core`` and ``files``.
"""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Self
from urllib.parse import unquote

from attrs import define

from streams.core.clock import SystemClock
from streams.core.errors import InputError
from streams.files import file_system, is_local
from streams.lakes.lake_log import (
    Commit,
    DataFile,
    LakeChange,
    LakeName,
    LakePosition,
    LakeState,
    LakeWriter,
    LogErrors,
    TableLog,
    check_table,
    explained,
    needs_library,
)
from streams.values import PartitionColumn, is_serialized, wide_schema, wide_table

#: Maximum number of operations that are read from the table history.
_OPERATIONS = 1_000


def _uri(name: LakeName) -> str:
    return os.path.abspath(name.table.removeprefix("file://")) if is_local(name.table) else name.table


def delta_state(name: LakeName) -> LakeState:
    """Return the version of a table, its files, and the operations so far.

    Raises:
        ConfigError: ``deltalake`` is not installed.
        InputError: there is no such table or version, or it has a feature that ``deltalake`` does not read.
    """
    with explained(f"{name}: cannot be read as a Delta table", DeltaLog.errors().all):
        from deltalake import DeltaTable

        table = DeltaTable(_uri(name))
        at = name.version if name.version is not None else name.time
        if at is not None:
            table.load_as_version(at)
        _check_features(str(name), table)
    with explained(f"{name}: its log cannot be read", DeltaLog.errors().all):
        operations = [
            (str(entry.get("version", "")), str(entry.get("operation", ""))) for entry in table.history(_OPERATIONS)
        ]
        actions = table.get_add_actions(flatten=True)
        files = sorted(map(unquote, actions.column("path").to_pylist()))
        counts = actions.column("num_records").to_pylist()
        rows = None if None in counts else sum(counts)
        return LakeState(str(table.version()), tuple(files), tuple(reversed(operations)), rows)


def delta_changes(name: LakeName, since: str, until: str) -> tuple[LakeChange, ...] | None:
    """Return what the versions after ``since`` up to ``until`` have changed; None if the log has not all of them.

    Raises:
        InputError: the log cannot be read.
    """
    if int(since) > int(until):
        return None
    system, folder = file_system(_uri(name))
    changes = []
    with explained(f"{name}: its log cannot be read", (OSError, ValueError)):
        for version in range(int(since) + 1, int(until) + 1):
            try:
                with system.open_input_stream(f"{folder}/_delta_log/{version:020}.json") as stream:
                    actions = [json.loads(line) for line in stream.read().splitlines() if line]
            except FileNotFoundError:
                return None
            changes.append(_change(str(version), actions))
    return tuple(changes)


def _change(version: str, actions: Sequence[Mapping[str, Any]]) -> LakeChange:
    """Return what the actions of a commit change; OPTIMIZE marks its files as ones that change no rows."""
    files: dict[tuple[str, bool], list[str]] = {}
    operation = ""
    for action in actions:
        operation = action.get("commitInfo", {}).get("operation", operation)
        for kind in ("add", "remove"):
            if (file := action.get(kind)) is not None:
                files.setdefault((kind, file.get("dataChange", True)), []).append(unquote(file["path"]))
    parts = (("add", True), ("remove", True), ("remove", False))
    return LakeChange(version, operation, *(tuple(files.get(part, ())) for part in parts))


def delta_rows(name: LakeName, state: LakeState, files: Mapping[str, str]) -> Any:
    """Return the rows of some files, given with a version that has them, as a ``pyarrow`` dataset in this order.

    Raises:
        InputError: there is no such version, a file was deleted, or a value of a partition column cannot be read.
    """
    # Values of partition columns that Arrow cannot read are no errors of deltalake.
    with explained(f"{name}: cannot be read as a Delta table", (*DeltaLog.errors().all, ValueError)):
        from deltalake import DeltaTable
        from pyarrow.dataset import FileSystemDataset, ParquetReadOptions
        from pyarrow.fs import FileType

        # Nanoseconds, the default for times that Spark writes as INT96, overflow before 1678 and after 2262.
        options = ParquetReadOptions(coerce_int96_timestamp_unit="us")
        table = DeltaTable(_uri(name), version=int(state.version))
        whole = table.to_pyarrow_dataset(parquet_read_options=options)
        # The log has the paths of files encoded, as parts of a URI, the dataset has them as they are.
        fragments = {part.path.lstrip("/"): part for part in whole.get_fragments()}
        for version in set(files.values()) - {state.version}:
            before = DeltaTable(_uri(name), version=int(version)).to_pyarrow_dataset(parquet_read_options=options)
            fragments = {part.path.lstrip("/"): part for part in before.get_fragments()} | fragments
        chosen = [fragments[file.lstrip("/")] for file in files]
        for part, version in zip(chosen, files.values(), strict=True):
            # VACUUM deletes files of earlier versions only.
            if version != state.version and whole.filesystem.get_file_info(part.path).type == FileType.NotFound:
                raise InputError(
                    f"{name}: {part.path} is gone: VACUUM has deleted it before it was read; resume within the "
                    "retention of the table, or start in another folder"
                )
        return FileSystemDataset(chosen, _schema(table), whole.format, whole.filesystem)


def _schema(table: Any) -> Any:
    """Return the Arrow schema of a table, in which columns that ``deltalake`` does not decode are opaque."""
    import pyarrow as pa

    schema = pa.schema(table.schema().to_arrow())
    in_folders = table.metadata().partition_columns
    for index, part in enumerate(table.schema().fields):
        kind = schema.field(index).type
        undecoded = "binary" if part.name in in_folders and is_serialized(kind) else None
        if undecoded or (undecoded := "variant") in part.type.to_json():
            schema = schema.set(index, pa.field(part.name, pa.opaque(pa.null(), undecoded, "Delta Lake")))
    return schema


def _check_features(what: str, table: Any) -> None:
    """Check that the files of a table are its rows, by the names of its columns; ``what`` names the table.

    Raises:
        InputError: it has a feature of which ``deltalake`` cannot tell Arrow.
    """
    from deltalake.table import SUPPORTED_READER_FEATURES

    features = {*(table.protocol().reader_features or ())} - SUPPORTED_READER_FEATURES
    # Before version 3 of the protocol a table has no list of features, and Arrow finds no columns, so nulls.
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    if features:
        raise InputError(
            f"{what}: has {', '.join(sorted(features))}, which the package deltalake does not support here; remove it "
            "(ALTER TABLE ... DROP FEATURE), or let Spark read the table: sql:SELECT * FROM delta.`FOLDER`"
        )


@define(eq=False)
class DeltaLog(TableLog):
    """A Delta table; each position is an application transaction in its log."""

    format: ClassVar = "delta"
    _table: Any
    #: What the names of application transactions begin with.
    _prefix: str

    @classmethod
    def opened(cls, name: LakeName, writer: LakeWriter, schema: Any, columns: Sequence[PartitionColumn]) -> Self:
        """Open the table in a folder, and create it if there is none; ``schema`` is that of the rows.

        Raises:
            ConfigError: ``deltalake`` is not installed.
            InputError: the table has other columns or partition columns, or cannot be written.
        """
        uri = _uri(name)
        what = f"delta:{uri}"
        names = [column.name for column in columns]
        wide = wide_schema(schema, columns)
        if clock := next((part for part in wide if "time64[" in str(part.type)), None):
            raise InputError(
                f"{what}: Delta has no times of day, as column {clock.name!r} ({clock.type}); declare a datetime or str"
            )
        with explained(f"{what}: cannot be written as a Delta table", DeltaLog.errors().all):
            import pyarrow as pa
            from deltalake import DeltaTable

            if not DeltaTable.is_deltatable(uri):
                DeltaTable.create(uri, wide, mode="ignore", partition_by=names)
            table = DeltaTable(uri)
            existing = pa.schema(table.schema().to_arrow())
            check_table(what, existing, wide, table.metadata().partition_columns, names)
            if not writer.is_connector:  # A replay adds and removes files, whose columns and rows the log may change.
                _check_features(what, table)
        return cls(uri, columns, table, f"streams/{writer.name}/{writer.topic}")

    def __str__(self) -> str:
        return f"delta:{self.folder}"

    def refresh(self) -> None:
        """Read the newest version of the table."""
        self._table.update_incremental()

    def positions(self, keys: Collection[str]) -> dict[str, LakePosition]:
        positions = {}
        for key in keys:
            name = f"{self._prefix}/{key}"
            number = self._table.transaction_version(name)
            if number is not None:
                positions[key] = LakePosition(number, self._table.transaction_version(f"{name}/rows"))
        return positions

    def files(self) -> list[DataFile]:
        actions = self._table.get_add_actions(flatten=True)
        names = [f"partition.{column.name}" for column in self.columns]
        rows = zip(*(actions.column(name).to_pylist() for name in ("path", "num_records", *names)), strict=True)
        return [DataFile(unquote(path), tuple(map(_text, values)), count or 0) for path, count, *values in rows]

    def _write(self, commit: Commit) -> None:
        import deltalake
        from deltalake.exceptions import SchemaMismatchError

        transactions = []
        for key, position in commit.positions.items():
            transactions.append(deltalake.Transaction(f"{self._prefix}/{key}", position.number))
            if position.rows is not None:
                transactions.append(deltalake.Transaction(f"{self._prefix}/{key}/rows", position.rows))
        properties = deltalake.CommitProperties(custom_metadata=dict(commit.properties), app_transactions=transactions)
        if not commit.rows:
            names = [column.name for column in self.columns]
            self._table.create_write_transaction(
                self._actions(commit), "append", self._table.schema(), names, commit_properties=properties
            )
            self.refresh()
            return
        rows = wide_table(commit.all_rows(), self.columns)
        try:
            deltalake.write_deltalake(self._table, rows, mode="append", commit_properties=properties)
        except SchemaMismatchError as error:
            raise InputError(f"{self}: the columns of the table were changed: {error}") from error

    def _actions(self, commit: Commit) -> list[Any]:
        from deltalake.transaction import AddAction, RemoveAction

        now_ms = SystemClock().now_ms()
        names = [column.name for column in self.columns]
        actions: list[Any] = []
        for file in commit.all_added():
            stats = json.dumps({"numRecords": file.rows})
            values = dict(zip(names, file.partition, strict=True))
            actions.append(AddAction(file.path, file.size_bytes, values, now_ms, True, stats))
        for file in commit.removed:
            values = dict(zip(names, file.partition, strict=True))
            actions.append(RemoveAction(file.path, True, now_ms, None, values))
        return actions

    @staticmethod
    def errors() -> LogErrors:
        """Return the errors of ``deltalake``.

        Raises:
            ConfigError: it is not installed.
        """
        try:
            from deltalake.exceptions import CommitFailedError, DeltaError
        except ImportError as error:
            raise needs_library("deltalake", error) from None
        return LogErrors((DeltaError, OSError), (CommitFailedError,), (CommitFailedError, OSError))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
