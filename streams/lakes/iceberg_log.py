"""Tables of Apache Iceberg, read and written with the package ``pyiceberg`` and the catalogs of its configuration.

Of the other packages, this module imports only ``core`` and ``files``; pyiceberg is imported on use.
"""

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import Any, ClassVar, Self

from attrs import define, evolve

from streams.core.errors import InputError
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
from streams.values import PartitionColumn, marked_schema, stored_schema

#: Table property by which readers find the columns of files that were not written by pyiceberg.
_NAME_MAPPING = "schema.name-mapping.default"
_EPOCH = date(1970, 1, 1)


def _catalog_of(name: str) -> tuple[Any, str]:
    """Return the catalog of a table, and the name of the table within it.

    The catalog is the first part of a name with at least three parts, otherwise ``default``.

    Raises:
        InputError: the name has no namespace.
    """
    from pyiceberg.catalog import load_catalog

    catalog, _, rest = name.partition(".")
    if "." not in rest:
        catalog = "default"
        rest = name
    if "." not in rest:
        raise InputError(f"iceberg:{name}: give iceberg:[CATALOG.]NAMESPACE.TABLE")
    return load_catalog(catalog), rest


def _created(catalog: Any, name: str, schema: Any, columns: Sequence[tuple[str, ...]]) -> Any:
    """Open an Iceberg table, and create it if there is none.

    ``schema`` is the Arrow schema of all columns, and ``columns`` are the paths of the partition fields; the empty
    path is the day of the event time.  A table is created with its partition fields, or not at all.

    Raises:
        InputError: the table has other columns or partition fields.
    """
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.transforms import DayTransform, IdentityTransform

    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        with (
            suppress(TableAlreadyExistsError, CommitFailedException),  # Another writer was faster.
            catalog.create_table_transaction(name, stored_schema(schema)) as creation,
            creation.update_spec() as spec,
        ):
            for path in columns:
                if path:
                    spec.add_field(".".join(path), IdentityTransform(), path[-1])
                else:
                    spec.add_field("timestamp", DayTransform(), "day")
        table = catalog.load_table(name)
    existing = [_described(field, table) for field in table.spec().fields]
    expected = ["day(timestamp)" if not path else ".".join(path) for path in columns]
    columns_there = marked_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))
    check_table(f"iceberg:{name}", columns_there, schema, existing, expected)
    return table


def _without_retries(table: Any) -> Any:
    """Return an Iceberg table whose commits fail if another writer has changed the table since it was loaded.

    By default, pyiceberg repeats such a commit after the changes of the other writer, so that rows which both have
    committed are in the table twice. Only this object has the property that turns this off, and only until it commits.
    """
    from pyiceberg.table import Table, TableProperties

    properties = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    metadata = table.metadata.model_copy(update={"properties": properties})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)


def _described(part: Any, table: Any) -> str:
    """Return the source column and transform of a partition field as text, such as ``day(timestamp)``."""
    column = table.schema().find_column_name(part.source_id)
    transform = str(part.transform)
    return str(column) if transform == "identity" else f"{transform}({column})"


def _snapshot(name: LakeName, table: Any) -> Any:
    """Return the snapshot that the name of a table specifies, or None if the table has no snapshot.

    Raises:
        InputError: there is no such snapshot.
    """
    snapshot = table.current_snapshot()
    if name.version is not None:
        snapshot = table.snapshot_by_id(name.version)
    elif name.time is not None:
        snapshot = table.snapshot_as_of_timestamp(int(name.time.timestamp() * 1000))
    if snapshot is None and (name.version is not None or name.time is not None):
        at = name.version if name.time is None else name.time.isoformat()
        latest = ", ".join(str(entry.snapshot_id) for entry in table.history()[-5:])
        raise InputError(f"{name}: has no snapshot {at}; the latest are {latest or 'none'}")
    return snapshot


def iceberg_state(name: LakeName) -> LakeState:
    """Return the snapshot of a table, its files, and the operations so far.

    Raises:
        InputError: there is no such table or snapshot, or it has files that ``pyiceberg`` does not read.
    """
    with explained(f"{name}: cannot be read as an Iceberg table", IcebergLog.errors().all):
        catalog, rest = _catalog_of(name.table)
        table = catalog.load_table(rest)
        snapshot = _snapshot(name, table)
        if snapshot is None:
            return LakeState("", (), rows=0)
        tasks = _tasks(table, snapshot.snapshot_id)
        if unread := {task.file.file_format.value for task in tasks.values()} - {"PARQUET", "ORC"}:
            raise InputError(
                f"{name}: has data files in {', '.join(sorted(unread))}, which the package pyiceberg does not read; "
                "rewrite them (rewrite_data_files), or let Spark read the table"
            )
        exact = not any(task.delete_files for task in tasks.values())
        rows = sum(task.file.record_count for task in tasks.values()) if exact else None
        operations = [
            (str(entry.snapshot_id), str(then.summary and then.summary.operation.value))
            for entry in table.history()
            if (then := table.snapshot_by_id(entry.snapshot_id)) is not None
        ]
        return LakeState(str(snapshot.snapshot_id), tuple(sorted(tasks)), tuple(operations), rows)


def _tasks(table: Any, snapshot_id: int) -> dict[str, Any]:
    """Return the scan task of each data file of a snapshot; keys are the paths of the file and its delete files."""
    tasks = {}
    for task in table.scan(snapshot_id=snapshot_id).plan_files():
        deletes = sorted(file.file_path for file in task.delete_files)
        tasks["|".join([task.file.file_path, *deletes])] = task
    return tasks


def iceberg_changes(name: LakeName, since: str, until: str) -> tuple[LakeChange, ...] | None:
    """Return what the snapshots after ``since`` up to ``until`` have changed; None if some of them have expired.

    Raises:
        InputError: the table cannot be read.
    """
    with explained(f"{name}: cannot be read as an Iceberg table", IcebergLog.errors().all):
        catalog, rest = _catalog_of(name.table)
        table = catalog.load_table(rest)
        changes: list[LakeChange] = []
        snapshot = table.snapshot_by_id(int(until))
        while snapshot is not None and str(snapshot.snapshot_id) != since:
            changes.insert(0, _change(table, snapshot))
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        return None if snapshot is None else tuple(changes)


def _change(table: Any, snapshot: Any) -> LakeChange:
    """Return what a snapshot has changed; one with the operation "replace" has the rows of the one before."""
    from pyiceberg.manifest import DataFileContent, ManifestEntryStatus

    added: list[str] = []
    removed: list[str] = []
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            path = entry.data_file.file_path
            if entry.snapshot_id == snapshot.snapshot_id and entry.status != ManifestEntryStatus.EXISTING:
                is_new = entry.data_file.content == DataFileContent.DATA and entry.status == ManifestEntryStatus.ADDED
                (added if is_new else removed).append(path)
    operation = str(snapshot.summary and snapshot.summary.operation.value)
    if operation == "replace":
        return LakeChange(str(snapshot.snapshot_id), operation, rewritten=tuple(removed))
    return LakeChange(str(snapshot.snapshot_id), operation, tuple(added), tuple(removed))


def iceberg_rows(name: LakeName, state: LakeState, files: Mapping[str, str]) -> Any:
    """Return the rows of some files, given with a snapshot that has them, as a ``pyarrow.RecordBatchReader``.

    Raises:
        InputError: the files cannot be read.
    """
    with explained(f"{name}: cannot be read as an Iceberg table", IcebergLog.errors().all):
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

        catalog, rest = _catalog_of(name.table)
        table = catalog.load_table(rest)
        scan = table.scan(snapshot_id=int(state.version))
        tasks: dict[str, Any] = {}
        for version in {*files.values(), state.version}:
            tasks = _tasks(table, int(version)) | tasks
        reader = ArrowScan(table.metadata, table.io, scan.projection(), AlwaysTrue())
        schema = marked_schema(schema_to_pyarrow(scan.projection(), include_field_ids=False))

        def batches() -> Iterator[Any]:
            for file in files:
                for batch in reader.to_record_batches([tasks[file]]):
                    yield pa.RecordBatch.from_arrays(
                        [column.cast(part.type) for column, part in zip(batch.columns, schema, strict=True)],
                        schema=schema,
                    )

        return pa.RecordBatchReader.from_batches(schema, batches())


@define(eq=False)
class IcebergLog(TableLog):
    """An Iceberg table; the positions are a table property, those of a connector also in the summary of a snapshot.

    So a rollback of the table resets the positions of a connector, and they outlive the expiry of a snapshot.
    """

    format: ClassVar = "iceberg"
    has_json: ClassVar = False
    _name: LakeName
    _catalog: Any
    #: The name in the catalog.
    _within: str
    _table: Any
    #: The property with the positions.
    _property: str
    _is_in_snapshots: bool

    @classmethod
    def opened(cls, name: LakeName, writer: LakeWriter, schema: Any, columns: Sequence[PartitionColumn]) -> Self:
        """Open a table, and create it if it does not exist; ``schema`` is that of the rows.

        Raises:
            ConfigError: ``pyiceberg`` is not installed.
            InputError: the table has other columns or partition fields, or the catalog is not known.
        """
        with explained(f"{name}: cannot be written as an Iceberg table", IcebergLog.errors().all):
            catalog, within = _catalog_of(name.table)
            try:
                table = _created(catalog, within, schema, [column.path for column in columns])
            except BaseException:
                catalog.close()
                raise
        location = table.properties.get("write.data.path") or f"{table.location().rstrip('/')}/data"
        key = f"{writer.name}.{writer.topic}" if writer.is_connector else f"streams/{writer.name}/{writer.topic}"
        prefix = "streams.offsets" if writer.is_connector else "streams.slices"
        columns = [evolve(column, is_in_files=True) for column in columns]
        return cls(location, columns, name, catalog, within, table, f"{prefix}.{key}", writer.is_connector)

    def __str__(self) -> str:
        return str(self._name)

    def close(self) -> None:
        self._catalog.close()

    def refresh(self) -> None:
        """Read the newest version of the table."""
        self._table = self._catalog.load_table(self._within)

    def positions(self, keys: Collection[str]) -> dict[str, LakePosition]:
        stored = self._stored()
        return {key: stored[key] for key in keys if key in stored}

    def _stored(self) -> dict[str, LakePosition]:
        """Return all positions; of a connector those in the newest snapshot that has some, which are all."""
        properties = self._table.properties
        snapshot = self._table.current_snapshot() if self._is_in_snapshots else None
        if self._is_in_snapshots and snapshot is None:
            return {}
        while snapshot is not None:
            if snapshot.summary and self._property in snapshot.summary.additional_properties:
                properties = snapshot.summary.additional_properties
                break
            parent = snapshot.parent_snapshot_id
            before = None if parent is None else self._table.snapshot_by_id(parent)
            if before is None and (snapshot.sequence_number or 0) <= 1:  # The first one; otherwise others have expired.
                return {}
            snapshot = before
        return _read(properties.get(self._property, "{}"))

    def files(self) -> list[DataFile]:
        return list(self._data_files())

    def _data_files(self) -> dict[DataFile, Any]:
        if self._table.current_snapshot() is None:
            return {}
        spec = self._table.spec()
        schema = self._table.schema()
        start = self._uri("")
        files = {}
        for task in self._table.scan().plan_files():
            file = task.file
            values = tuple(_text(file.partition[index], part, schema) for index, part in enumerate(spec.fields))
            files[DataFile(file.file_path.removeprefix(start), values, file.record_count)] = file
        return files

    def _write(self, commit: Commit) -> None:
        data_files = self._data_files() if commit.removed else {}
        positions = {self._property: _written({**self._stored(), **commit.positions})}
        properties = dict(commit.properties) | (positions if self._is_in_snapshots else {})
        self._table = _without_retries(self._table)
        with self._table.transaction() as change:
            change.set_properties(positions)
            if commit.rows:
                rows = commit.all_rows()
                change.append(rows.cast(stored_schema(rows.schema)), snapshot_properties=properties)
                return
            if self._table.name_mapping() is None:
                change.set_properties({_NAME_MAPPING: self._table.schema().name_mapping.model_dump_json()})
            update = change.update_snapshot(snapshot_properties=properties)
            with update.overwrite() if commit.removed else update.fast_append() as snapshot:
                for file in commit.all_added():
                    snapshot.append_data_file(self._data_file(file))
                for file in commit.removed:
                    snapshot.delete_data_file(data_files[file])

    @staticmethod
    def errors() -> LogErrors:
        """Return the errors of ``pyiceberg``, and of the database of a catalog.

        Raises:
            ConfigError: it is not installed.
        """
        try:
            from pyiceberg import exceptions
        except ImportError as error:
            raise needs_library("pyiceberg", error) from None
        conflicts = (exceptions.CommitFailedException,)
        every = (*conflicts, exceptions.NoSuchTableError, exceptions.RESTError, exceptions.ValidationError)
        servers = (exceptions.CommitStateUnknownException, exceptions.ServerError, exceptions.ServiceUnavailableError)
        # Such as that of a lock.
        databases = sys.modules.get("sqlalchemy.exc")
        passing = (*conflicts, *servers, OSError, *([databases.OperationalError] if databases else []))
        return LogErrors((*every, ValueError, NotImplementedError, OSError), conflicts, passing)

    def _uri(self, path: str) -> str:
        return f"{self.folder if '://' in self.folder else f'file://{self.folder}'}/{path}"

    def _data_file(self, file: DataFile) -> Any:
        """Return the manifest entry of a data file, with the statistics of its columns."""
        import pyarrow.parquet as pq
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile as Entry
        from pyiceberg.manifest import DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        metadata = self._table.metadata
        schema = metadata.schema()
        with self._table.io.new_input(self._uri(file.path)).open() as stream:
            statistics = data_file_statistics_from_parquet_metadata(
                parquet_metadata=pq.read_metadata(stream),
                stats_columns=compute_statistics_plan(schema, metadata.properties),
                parquet_column_mapping=parquet_path_to_id_mapping(schema),
            )
        values = [_value(text, part, schema) for text, part in zip(file.partition, metadata.spec().fields, strict=True)]
        return Entry.from_args(
            content=DataFileContent.DATA,
            file_path=self._uri(file.path),
            file_format=FileFormat.PARQUET,
            partition=Record(*values),
            file_size_in_bytes=file.size_bytes,
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


def _read(text: str) -> dict[str, LakePosition]:
    values = json.loads(text).items()
    return {key: LakePosition(*value) if isinstance(value, list) else LakePosition(int(value)) for key, value in values}


def _written(positions: Mapping[str, LakePosition]) -> str:
    return json.dumps(
        {
            key: position.number if position.rows is None else [position.number, position.rows]
            for key, position in sorted(positions.items())
        }
    )


def _value(text: str | None, part: Any, schema: Any) -> Any:
    """Convert the text of a partition value to the value that Iceberg stores."""
    if text is None:
        return None
    kind = str(schema.find_type(part.source_id))
    if str(part.transform) == "day" or kind == "date":
        return (date.fromisoformat(text) - _EPOCH).days
    if kind in ("int", "long"):
        return int(text)
    return text == "true" if kind == "boolean" else text


def _text(value: Any, part: Any, schema: Any) -> str | None:
    """Return a stored partition value as text, as it appears in folder names."""
    if value is None:
        return None
    if str(part.transform) == "day" or str(schema.find_type(part.source_id)) == "date":
        return (value if isinstance(value, date) else _EPOCH + timedelta(days=value)).isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)
