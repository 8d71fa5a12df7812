"""Reading and writing of Apache Iceberg tables with the package ``pyiceberg`` and its configured catalogs."""

import json
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import Any

from attrs import define, field

from streams.core.errors import InputError
from streams.files import created_iceberg, explained_iceberg, iceberg_catalog, without_commit_retries
from streams.replay.errors import ReplayError
from streams.replay.lake.log import Commit, DataFile, LakeName, LakeState
from streams.replay.storage.places import Place

#: Prefix of the table properties that list the committed slices of a replay.
_SLICES = "streams.slices."
_EPOCH = date(1970, 1, 1)


def _snapshot(name: LakeName, table: Any) -> Any:
    """Return the snapshot that the name of a table specifies, or None if the table has no snapshot.

    Raises:
        InputError: there is no such snapshot.
    """
    found = table.current_snapshot()
    if name.version is not None:
        found = table.snapshot_by_id(name.version)
    elif name.time is not None:
        found = table.snapshot_as_of_timestamp(int(name.time.timestamp() * 1000))
    if found is None and (name.version is not None or name.time is not None):
        at = name.version if name.time is None else name.time.isoformat()
        known = ", ".join(str(entry.snapshot_id) for entry in table.history()[-5:])
        raise InputError(f"{name}: has no snapshot {at}; the latest are {known or 'none'}")
    return found


def iceberg_state(name: LakeName) -> LakeState:
    """Return the snapshot of a table, its files, and the operations so far.

    Raises:
        InputError: there is no such table or snapshot.
    """
    with explained_iceberg(f"{name}: cannot be read as an Iceberg table"):
        catalog, rest = iceberg_catalog(name.table)
        table = catalog.load_table(rest)
        snapshot = _snapshot(name, table)
        if snapshot is None:
            return LakeState("", (), rows=0)
        tasks = _tasks(table, snapshot.snapshot_id)
        exact = not any(task.delete_files for task in tasks.values())
        rows = sum(task.file.record_count for task in tasks.values()) if exact else None
        operations = [
            (str(entry.snapshot_id), str(found.summary and found.summary.operation.value))
            for entry in table.history()
            if (found := table.snapshot_by_id(entry.snapshot_id)) is not None
        ]
        return LakeState(str(snapshot.snapshot_id), tuple(sorted(tasks)), tuple(operations), rows)


def _tasks(table: Any, snapshot_id: int) -> dict[str, Any]:
    """Return the scan task of each data file of a snapshot; keys are the paths of the file and its delete files."""
    found = {}
    for task in table.scan(snapshot_id=snapshot_id).plan_files():
        deletes = sorted(file.file_path for file in task.delete_files)
        found["|".join([task.file.file_path, *deletes])] = task
    return found


def iceberg_rows(name: LakeName, state: LakeState, files: Sequence[str]) -> Any:
    """Return the rows of some files of a snapshot as a ``pyarrow.RecordBatchReader``, in the order of ``files``.

    Raises:
        InputError: the files cannot be read.
    """
    with explained_iceberg(f"{name}: cannot be read as an Iceberg table"):
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

        catalog, rest = iceberg_catalog(name.table)
        table = catalog.load_table(rest)
        scan = table.scan(snapshot_id=int(state.version))
        tasks = _tasks(table, int(state.version))
        reader = ArrowScan(table.metadata, table.io, scan.projection(), AlwaysTrue())
        schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)

        def batches() -> Iterator[Any]:
            for file in files:
                for batch in reader.to_record_batches([tasks[file]]):
                    yield pa.RecordBatch.from_arrays(
                        [column.cast(part.type) for column, part in zip(batch.columns, schema, strict=True)],
                        schema=schema,
                    )

        return pa.RecordBatchReader.from_batches(schema, batches())


@define(eq=False)
class IcebergLog:
    """An Iceberg table to which a replay writes; its table properties list the committed slices."""

    _name: LakeName
    _table: Any
    folder: Place
    has_partition_columns: bool = field(default=True, init=False)

    @classmethod
    def opened(cls, name: LakeName, schema: Any, columns: Sequence[tuple[str, ...]]) -> "IcebergLog":
        """Open a table, and create it if it does not exist.

        ``schema`` is the Arrow schema of all columns, and ``columns`` are the paths of the partition fields; the empty
        path is the day of the event time.

        Raises:
            InputError: the table has other columns or partition fields, or the catalog is not known.
        """
        with explained_iceberg(f"{name}: cannot be written as an Iceberg table"):
            catalog, rest = iceberg_catalog(name.table)
            table = created_iceberg(catalog, rest, schema, columns)
            if table.name_mapping() is None:
                mapping = table.schema().name_mapping.model_dump_json()
                with table.transaction() as change:
                    change.set_properties({"schema.name-mapping.default": mapping})
        location = table.properties.get("write.data.path") or f"{table.location().rstrip('/')}/data"
        return cls(name, table, Place(location))

    def __str__(self) -> str:
        return str(self._name)

    def committed(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the digest and row count of each slice in ``names`` that has been committed, by name."""
        found = {}
        for name in names:
            key, _, last = name.rpartition("/")
            known = json.loads(self._table.properties.get(f"{_SLICES}{key}", "{}"))
            if last in known and known[last][0] >= 0:
                found[name] = (known[last][0], known[last][1])
        return found

    def files(self) -> list[DataFile]:
        """Return the data files of the table's newest version."""
        return list(self._data_files())

    def _data_files(self) -> dict[DataFile, Any]:
        if self._table.current_snapshot() is None:
            return {}
        spec = self._table.spec()
        schema = self._table.schema()
        start = self._uri("")
        found = {}
        for task in self._table.scan().plan_files():
            file = task.file
            values = tuple(_text(file.partition[index], part, schema) for index, part in enumerate(spec.fields))
            found[DataFile(file.file_path.removeprefix(start), values, file.record_count)] = file
        return found

    def commit(self, commit: Commit) -> None:
        """Commit changes to the table: files to add, which have been written, and files to remove.

        Raises:
            ReplayError: another writer has changed the table, or it cannot be written.
        """
        from pyiceberg.exceptions import CommitFailedException

        data_files = self._data_files()
        kept: dict[str, dict[str, tuple[int, int]]] = {}
        for name, value in commit.slices.items():
            key, _, last = name.rpartition("/")
            known = json.loads(self._table.properties.get(f"{_SLICES}{key}", "{}"))
            kept.setdefault(key, known)[last] = value
        try:
            self._table = without_commit_retries(self._table)
            with self._table.transaction() as change:
                change.set_properties({f"{_SLICES}{key}": json.dumps(value) for key, value in kept.items()})
                update = change.update_snapshot(snapshot_properties=dict(commit.properties))
                with update.overwrite() if commit.removed else update.fast_append() as snapshot:
                    for file in commit.added:
                        snapshot.append_data_file(self._data_file(file))
                    for file in commit.removed:
                        snapshot.delete_data_file(data_files[file])
        except CommitFailedException as error:
            raise ReplayError(
                f"{self._name}: cannot be committed: {error}; another job has changed the table meanwhile: write again"
            ) from error
        except OSError as error:
            raise ReplayError(f"{self._name}: cannot be committed: {error}") from error

    def _uri(self, path: str) -> str:
        base = f"file://{self.folder.path}" if self.folder.is_local else self.folder.uri
        return f"{base}/{path}"

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
        place = self.folder.child(file.path)
        schema = metadata.schema()
        with place.open_input() as stream:
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
            file_size_in_bytes=place.size(),
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
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
