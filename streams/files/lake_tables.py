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
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(uri):
            DeltaTable.create(uri, schema, mode="ignore", partition_by=list(columns))
        table = DeltaTable(uri)
        _check_partitions(f"delta:{uri}", list(table.metadata().partition_columns), columns)
        _check_columns(f"delta:{uri}", [part.name for part in table.schema().fields], schema)
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
        catalog, rest = "default", name
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
    found = [_described(field, table) for field in table.spec().fields]
    given = ["day(timestamp)" if not path else ".".join(path) for path in columns]
    _check_partitions(f"iceberg:{name}", found, given)
    _check_columns(f"iceberg:{name}", [part.name for part in table.schema().fields], schema)
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


def _check_partitions(what: str, found: Sequence[str], given: Sequence[str]) -> None:
    if list(found) != list(given):
        there, here = (", ".join(names) or "nothing" for names in (found, given))
        raise InputError(f"{what}: is partitioned by {there}, partition_by is {here}; give the same columns")


def _check_columns(what: str, names: Sequence[str], schema: Any) -> None:
    missing, others = set(schema.names) - set(names), set(names) - set(schema.names)
    if missing or others:
        problems = [f"has no column {name}" for name in sorted(missing)]
        problems += [f"has column {name}, which the output has not" for name in sorted(others)]
        raise InputError(f"{what}: {', '.join(problems)}; write to another table, or add and drop these columns there")
