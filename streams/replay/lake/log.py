"""The log of a lake table: its versions, its files, and atomic commits that add and remove files."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeAlias
from urllib.parse import unquote

from attrs import frozen

from streams.core.errors import InputError
from streams.replay.storage.places import Place

#: Prefixes of text that names a lake table.
LAKE_PREFIXES = ("delta:", "iceberg:")
_NUMBER = re.compile("v?([0-9]{1,19})")

#: The partition values of a file, as text; None is null.
Partition: TypeAlias = tuple[str | None, ...]


@frozen
class LakeName:
    """The name of a lake table: ``delta:FOLDER`` or ``iceberg:[CATALOG.]NAMESPACE.TABLE``, and its version or time."""

    format: str
    table: str
    version: int | None = None
    time: datetime | None = None

    @classmethod
    def of(cls, text: str) -> "LakeName":
        """Parse the name of a table, such as ``delta:lake/orders@v7`` or ``iceberg:shop.orders@2026-03-01``.

        Raises:
            InputError: the text names no table, or the part after ``@`` is neither a version nor a time.
        """
        kind, _, rest = text.partition(":")
        table, separator, at = rest.rpartition("@")
        if not separator or "/" in at:
            table = rest
            at = ""
        if not table:
            raise InputError(f"{text}: give delta:FOLDER or iceberg:NAMESPACE.TABLE")
        if not at:
            return cls(kind, table)
        if number := _NUMBER.fullmatch(at):
            return cls(kind, table, int(number[1]))
        try:
            time = datetime.fromisoformat(at)
        except ValueError:
            raise InputError(
                f"{text}: {at!r} is neither a version (v7; for Iceberg the ID of a snapshot) nor a time (2026-03-01)"
            ) from None
        return cls(kind, table, None, time if time.tzinfo else time.replace(tzinfo=UTC))

    def __str__(self) -> str:
        return f"{self.format}:{self.table}"


@frozen
class LakeState:
    """One version of a table: its files, and the operations up to it, oldest first, as (version, name)."""

    version: str
    files: tuple[str, ...]
    operations: tuple[tuple[str, str], ...] = ()
    #: The number of rows, None if the log does not record it.
    rows: int | None = None


@frozen
class DataFile:
    """A data file of a table; ``path`` is relative to the data folder of the table."""

    path: str
    partition: Partition
    rows: int

    @property
    def name(self) -> str:
        """The name of the file without its folder."""
        return self.path.rpartition("/")[2]


@frozen
class Commit:
    """The changes of one commit: files, and the digest and row count of each slice, by slice ID.

    A negative digest means that the commit removes the rows of the slice.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    slices: Mapping[str, tuple[int, int]]
    #: Properties recorded with the commit, for example the ID of the replay.
    properties: Mapping[str, str]


class LakeLog(Protocol):
    """A table to which a replay writes, with atomic commits."""

    #: The data folder of the table.
    folder: Place
    #: Whether data files contain the partition columns too.
    has_partition_columns: bool

    def committed(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the digest and row count of each slice in ``names`` that has been committed, by name."""
        ...

    def files(self) -> list[DataFile]:
        """Return the data files of the table's newest version."""
        ...

    def commit(self, commit: Commit) -> None:
        """Commit changes to the table: files to add, which have been written, and files to remove.

        Raises:
            ReplayError: another writer has changed the same files, or the log cannot be written.
        """
        ...


def partition_of(path: str, names: Sequence[str], null: str) -> Partition:
    """Return the partition values in the path of a file, in the order of ``names``; the text ``null`` stands for None.

    >>> partition_of("day=2026-01-01/product=a%2Fb/x.parquet", ["product", "day"], "-")
    ('a/b', '2026-01-01')
    """
    folders = dict(folder.split("=", 1) for folder in path.split("/")[:-1])
    return tuple(None if folders[name] == null else unquote(folders[name]) for name in names)
