"""Opens or creates tables of Delta Lake and Apache Iceberg for the columns of topics.

The libraries, ``deltalake`` and ``pyiceberg``, are imported on use.  Of the other packages, this module imports only
``core``.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from streams.core.errors import ConfigError, InputError

#: Table property set on creation: the paths of the partition fields, as JSON.
_PARTITIONS = "streams.partition-by"


@contextmanager
def explained_delta(what: str) -> Iterator[None]:
    """Within the ``with`` block, raise errors of ``deltalake`` as ``InputError``; ``what`` begins the message.

    Raises:
        ConfigError: ``deltalake`` is not installed.
    """
    try:
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise _needs_library("deltalake", error) from None
    try:
        yield
    except (DeltaError, OSError) as error:
        raise _explained(what, error) from error


@contextmanager
def explained_iceberg(what: str) -> Iterator[None]:
    """Within the ``with`` block, raise errors of ``pyiceberg`` as ``InputError``; ``what`` begins the message.

    Raises:
        ConfigError: ``pyiceberg`` is not installed.
    """
    try:
        from pyiceberg.exceptions import NoSuchTableError, RESTError, ServiceUnavailableError, ValidationError
    except ImportError as error:
        raise _needs_library("pyiceberg", error) from None
    try:
        yield
    except (NoSuchTableError, RESTError, ServiceUnavailableError, ValidationError, ValueError, OSError) as error:
        raise _explained(what, error) from error


def _needs_library(name: str, error: ImportError) -> ConfigError:
    return ConfigError(f"tables of this format need {name} ({error}); install it with: pip install 'streams[lake]'")


def _explained(what: str, error: Exception) -> InputError:
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return InputError(f"{what}: {reason[0]}")


def created_delta(uri: str, schema: Any, columns: Sequence[str]) -> Any:
    """Open the Delta table in a folder, and create it if there is none.

    ``schema`` is the Arrow schema of all columns, and ``columns`` are the names of the partition columns.

    Raises:
        ConfigError: ``deltalake`` is not installed.
        InputError: the table has other columns or partition columns, or cannot be written.
    """
    with explained_delta(f"delta:{uri}: cannot be written as a Delta table"):
        import pyarrow as pa
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(uri):
            DeltaTable.create(uri, schema, mode="ignore", partition_by=list(columns))
        table = DeltaTable(uri)
        _check_partitions(f"delta:{uri}", list(table.metadata().partition_columns), columns)
        _check_columns(f"delta:{uri}", pa.schema(table.schema().to_arrow()), schema)
        return table


def iceberg_catalog(name: str) -> tuple[Any, str]:
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


def created_iceberg(catalog: Any, name: str, schema: Any, columns: Sequence[tuple[str, ...]]) -> Any:
    """Open an Iceberg table, and create it if there is none.

    ``schema`` is the Arrow schema of all columns, and ``columns`` are the paths of the partition fields; the empty
    path is the day of the event time.  The partition fields are added in a second step.  If a process ends between
    both steps, the next call adds them: a table property lists the partition fields for which the table was created.

    Raises:
        InputError: the table has other columns or partition fields.
    """
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.transforms import DayTransform, IdentityTransform

    listed = json.dumps(columns)
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        table = catalog.create_table_if_not_exists(name, schema, properties={_PARTITIONS: listed})
    if columns and not table.spec().fields and table.properties.get(_PARTITIONS) == listed:
        with table.update_spec() as spec:
            for path in columns:
                if path:
                    spec.add_field(".".join(path), IdentityTransform(), path[-1])
                else:
                    spec.add_field("timestamp", DayTransform(), "day")
    existing = [_described(field, table) for field in table.spec().fields]
    expected = ["day(timestamp)" if not path else ".".join(path) for path in columns]
    _check_partitions(f"iceberg:{name}", existing, expected)
    _check_columns(f"iceberg:{name}", schema_to_pyarrow(table.schema(), include_field_ids=False), schema)
    return table


def without_commit_retries(table: Any) -> Any:
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


def _check_partitions(what: str, existing: Sequence[str], expected: Sequence[str]) -> None:
    if list(existing) != list(expected):
        there, here = (", ".join(names) or "nothing" for names in (existing, expected))
        raise InputError(f"{what}: is partitioned by {there}, partition_by is {here}; give the same columns")


def _check_columns(what: str, existing: Any, schema: Any) -> None:
    problems = list(column_problems(existing, schema))
    if problems:
        raise InputError(f"{what}: {', '.join(problems)}; write to another table, or change its columns")


def column_problems(existing: Any, schema: Any) -> Iterator[str]:
    """Yield the differences of the columns of a table, given as Arrow schema, from those of an output.

    A struct of the table may have further fields: they are null in the rows of the output.
    """
    kinds = {part.name: part.type for part in existing}
    for name in sorted(set(schema.names) - kinds.keys()):
        yield f"has no column {name}"
    for name in sorted(kinds.keys() - set(schema.names)):
        yield f"has column {name}, which the output has not"
    for part in schema:
        if part.name in kinds:
            yield from _misfits(part.name, kinds[part.name], part.type)


def _misfits(name: str, existing: Any, kind: Any) -> Iterator[str]:
    """Yield the differences of a column's type from that of an output; names of items and sizes do not matter."""
    import pyarrow as pa

    is_a = pa.types
    if is_a.is_struct(existing) and is_a.is_struct(kind):
        types = {part.name: part.type for part in existing}
        for part in kind:
            if part.name in types:
                yield from _misfits(f"{name}.{part.name}", types[part.name], part.type)
            else:
                yield f"has no field {name}.{part.name}"
    elif is_a.is_map(existing) and is_a.is_map(kind):
        yield from _misfits(f"{name} (key)", existing.key_type, kind.key_type)
        yield from _misfits(f"{name} (value)", existing.item_type, kind.item_type)
    elif hasattr(existing, "value_type") and is_a.is_list(kind):
        yield from _misfits(f"{name}[]", existing.value_type, kind.value_type)
    elif _plain(existing) != kind:
        yield f"column {name} is {existing}, but {kind} in the output"


def _plain(kind: Any) -> Any:
    import pyarrow as pa

    others = {
        pa.large_string(): pa.string(),
        pa.string_view(): pa.string(),
        pa.large_binary(): pa.binary(),
        pa.binary_view(): pa.binary(),
        pa.timestamp("us", "+00:00"): pa.timestamp("us", "UTC"),
    }
    return others.get(kind, kind)
