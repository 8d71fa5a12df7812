"""The log of a table: its versions, its files, and atomic commits of rows with the positions of who writes them.

Of the other packages, this module imports only ``core`` and ``files``.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import unquote

from attrs import define, field, frozen

from streams.core.errors import ConfigError, InputError, StreamsError

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
    #: The size of a file to add.
    size_bytes: int = field(default=0, eq=False)

    @property
    def name(self) -> str:
        """The name of the file without its folder."""
        return self.path.rpartition("/")[2]


@frozen
class LakeWriter:
    """Who writes to a table: a connector or a replay, and the topic whose rows it writes."""

    name: str
    topic: str
    is_connector: bool


@frozen
class LakePosition:
    """What a table has of a key: of a partition the next offset, of a slice the digest and number of its rows.

    A negative digest means that the table has none of its rows any longer.
    """

    number: int
    rows: int | None = None


@frozen(eq=False)
class Commit:
    """The changes of one commit: rows to append, or files to add and remove, and the positions after them, by key."""

    positions: Mapping[str, LakePosition]
    #: Properties recorded with the commit, for example the ID of the replay.
    properties: Mapping[str, str] = field(factory=dict)
    #: Rows to append, by key: tables of pyarrow.
    rows: Mapping[str, Any] = field(factory=dict)
    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    #: The positions of keys that the table must have, as numbers, None for none.
    expected: Mapping[str, int | None] = field(factory=dict)

    def all_rows(self) -> Any:
        """Return the rows of all keys as one table."""
        import pyarrow as pa

        return pa.concat_tables(self.rows.values())


class PositionMovedError(StreamsError):
    """Another writer has changed the position of ``key``, which is ``number``, so that nothing was written."""

    def __init__(self, key: str, number: int | None) -> None:
        super().__init__(f"the position of {key} is {number}: another writer has written there")
        self.key = key
        self.number = number


class LakeLog(ABC):
    """A table, or a folder with a manifest, the positions of one writer in it, and its commits."""

    @abstractmethod
    def refresh(self) -> None:
        """Read the newest version."""

    @abstractmethod
    def positions(self, keys: Collection[str]) -> dict[str, LakePosition]:
        """Return the position of each key that has one in the version read last."""

    @abstractmethod
    def commit(self, commit: Commit) -> None:
        """Commit rows or files, with positions.

        Raises:
            PositionMovedError: another writer has changed an expected position.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to close.
        """Close the connections to a catalog."""

    def _check(self, expected: Mapping[str, int | None]) -> None:
        """Read the newest version, and check that it has these positions.

        Raises:
            PositionMovedError: it has another one.
        """
        if not expected:
            return
        self.refresh()
        stored = self.positions(expected.keys())
        for key, number in expected.items():
            stored_number = stored[key].number if key in stored else None
            if stored_number != number:
                raise PositionMovedError(key, stored_number)


@define(eq=False)
class TableLog(LakeLog):
    """A table of Delta Lake or Iceberg, whose commits are atomic."""

    #: The data folder of the table, a path or URI.
    folder: str
    #: Whether data files contain the partition columns too.
    has_partition_columns: bool

    def commit(self, commit: Commit) -> None:
        """Commit to the version that was read last, or with expected positions to the newest version.

        Raises:
            PositionMovedError: another writer has changed an expected position.
            Exception: an error of the library, one of ``conflicts`` if another writer was faster.
        """
        self._check(commit.expected)
        try:
            self._write(commit)
        except self.conflicts():
            self._check(commit.expected)
            raise  # It was in conflict with another writer, whom it does not concern what is written here.

    @abstractmethod
    def files(self) -> list[DataFile]:
        """Return the data files of the version read last."""

    @abstractmethod
    def _write(self, commit: Commit) -> None:
        """Write what a commit changes, and raise errors of the library."""

    @staticmethod
    @abstractmethod
    def errors() -> tuple[type[Exception], ...]:
        """Return the errors of the library, and those of storage.

        Raises:
            ConfigError: the library is not installed.
        """

    @staticmethod
    @abstractmethod
    def conflicts() -> tuple[type[Exception], ...]:
        """Return the errors of a commit that say that another writer was faster."""

    @staticmethod
    @abstractmethod
    def passing() -> tuple[type[Exception], ...]:
        """Return the errors that may pass: of storage, of a catalog's server, and of conflicts."""


def partition_of(path: str, names: Sequence[str], null: str) -> Partition:
    """Return the partition values in the path of a file, in the order of ``names``; the text ``null`` stands for None.

    >>> partition_of("day=2026-01-01/product=a%2Fb/x.parquet", ["product", "day"], "-")
    ('a/b', '2026-01-01')
    """
    folders = dict(folder.split("=", 1) for folder in path.split("/")[:-1])
    return tuple(None if folders[name] == null else unquote(folders[name]) for name in names)


@contextmanager
def explained(what: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Within the ``with`` block, raise errors of a library as ``InputError``; ``what`` begins the message."""
    try:
        yield
    except errors as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{what}: {reason[0]}") from error


def needs_library(name: str, error: ImportError) -> ConfigError:
    """Return the error that the library of a format is not installed."""
    return ConfigError(f"tables of this format need {name} ({error}); install it with: pip install 'streams[lake]'")


def check_partitions(what: str, existing: Sequence[str], expected: Sequence[str]) -> None:
    """Check the partition columns of a table; ``what`` names it in messages.

    Raises:
        InputError: they are not those of ``partition_by``.
    """
    if list(existing) != list(expected):
        there, here = (", ".join(names) or "nothing" for names in (existing, expected))
        raise InputError(f"{what}: is partitioned by {there}, partition_by is {here}; give the same columns")


def check_columns(what: str, existing: Any, schema: Any) -> None:
    """Check the columns of a table, given as Arrow schema, against those of an output.

    Raises:
        InputError: they differ.
    """
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
