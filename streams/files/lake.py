"""Folders with table formats: Delta Lake, Apache Iceberg, Apache Hudi.

The data files in such folders also contain rows that are no longer in the table (deleted, updated, compacted);
only the format's own log determines which rows are valid.  Therefore single files in such folders are neither
read nor written.  Of the other packages, this module imports only ``core``.
"""

import os
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from attrs import frozen

from streams.core.errors import InputError


@frozen
class TableFormat:
    """A table format; ``mark`` is the pattern of a path that exists only in folders with this format."""

    name: str
    mark: str
    #: The name of the format in Spark.
    spark: str


FORMATS = (
    TableFormat("Delta Lake", "_delta_log", "delta"),
    TableFormat("Apache Iceberg", "metadata/*.metadata.json", "iceberg"),
    TableFormat("Apache Hudi", ".hoodie", "hudi"),
)


@frozen
class LakeTable:
    """A folder that contains a table in one of the table formats."""

    folder: str
    format: TableFormat

    def __str__(self) -> str:
        return f"{self.folder}: is a table of {self.format.name} (it has {self.format.mark})"

    def refused_as_input(self) -> InputError:
        """Return the error that rejects an input file in this folder."""
        return InputError(
            f"{self}: its files contain rows that were deleted from the table; read it with a library for the format, "
            f'such as spark.read.format("{self.format.spark}").load({self.folder!r}), write the rows to Parquet in '
            "another folder, and give that"
        )


#: Returns the names in a folder, or none if the folder does not exist.
Names = Callable[[str], Iterable[str]]


def _local_names(folder: str) -> Iterable[str]:
    try:
        return os.listdir(folder)
    except OSError:  # Reading or writing in this folder will report the reason.
        return ()


def _local_exists(path: str) -> bool:
    return os.path.isdir(path)


def table_around(
    path: str,
    exists: Callable[[str], bool] = _local_exists,
    names: Names = _local_names,
    tables: dict[str, LakeTable | None] | None = None,
) -> LakeTable | None:
    """Return the table that a path is or belongs to, or None if there is no such table.

    ``exists`` checks whether a folder exists, and ``names`` lists a folder; the defaults use the local file system.
    ``tables`` caches results for calls with neighbouring paths.
    """
    tables = {} if tables is None else tables
    scheme, separator, rest = path.partition("://")
    if not separator:
        scheme = ""
        rest = os.path.abspath(path)
    parts = rest.rstrip("/").split("/")
    for count in range(len(parts), 0, -1):
        folder = f"{scheme}{separator}{'/'.join(parts[:count])}"
        if folder not in tables:
            tables[folder] = next(
                (
                    LakeTable(folder, table_format)
                    for table_format in FORMATS
                    if folder and _has(folder, table_format, exists, names)
                ),
                None,
            )
        if (table := tables[folder]) is not None:
            return table
    return None


def table_below(folder: str, files: Iterable[str]) -> LakeTable | None:
    """Return a table to which any of ``files`` (relative to ``folder``) belongs, or None if there is no such table."""
    for file in files:
        parts = file.split("/")
        for index in range(len(parts) - 1):
            for table_format in FORMATS:
                first, _, second = table_format.mark.partition("/")
                is_last = index == len(parts) - 2
                if parts[index] == first and (not second or (is_last and fnmatchcase(parts[-1], second))):
                    return LakeTable("/".join([folder.rstrip("/"), *parts[:index]]), table_format)
    return None


def _has(folder: str, table_format: TableFormat, exists: Callable[[str], bool], names: Names) -> bool:
    first, _, second = table_format.mark.partition("/")
    if not second:
        return exists(f"{folder}/{first}")
    return any(fnmatchcase(name, second) for name in names(f"{folder}/{first}"))
