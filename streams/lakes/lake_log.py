"""The log of a table: its versions, its files, and atomic commits of rows with the positions of who writes them.

Of the other packages, this module imports only ``core`` and ``files``.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from typing import Any, ClassVar, TypeAlias

from attrs import define, field, frozen

from streams.core.errors import ConfigError, InputError, StreamsError
from streams.core.installation import pip_install
from streams.files import folder_cells
from streams.values import PartitionColumn

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
class LakeChange:
    """What one version of a table has changed: the files whose rows are new, those whose rows are no longer there.

    A file that was only written again, with the same rows in other files, is ``rewritten``.
    """

    version: str
    operation: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()


@frozen
class DataFile:
    """A data file of a table; ``path`` is relative to the data folder of the table."""

    path: str
    partition: Partition
    rows: int
    #: The size of a file to add to a table, 0 for others.
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
    #: Files to add, by key.
    added: Mapping[str, Sequence[DataFile]] = field(factory=dict)
    removed: Sequence[DataFile] = ()
    #: The positions of keys that the table must have, as numbers, None for none.
    expected: Mapping[str, int | None] = field(factory=dict)

    def all_rows(self) -> Any:
        """Return the rows of all keys as one table."""
        import pyarrow as pa

        return pa.concat_tables(self.rows.values())

    def all_added(self) -> Iterator[DataFile]:
        """Return the files to add of all keys."""
        return chain.from_iterable(self.added.values())


class PositionMovedError(StreamsError):
    """Another writer has changed the position of ``key``, which is ``number``, so that nothing was written."""

    def __init__(self, key: str, number: int | None) -> None:
        super().__init__(f"the position of {key} is {number}: another writer has written there")
        self.key = key
        self.number = number


@frozen
class LogErrors:
    """The errors of the library of a format."""

    #: All of them, and those of storage.
    all: tuple[type[Exception], ...] = ()
    #: Those of a commit that say that another writer was faster.
    conflicts: tuple[type[Exception], ...] = ()
    #: Those that may pass: of storage, of a catalog's server, and of conflicts.
    passing: tuple[type[Exception], ...] = ()


class LakeLog(ABC):
    """A table, or a folder with a manifest, the positions of one writer in it, and its commits."""

    @abstractmethod
    def refresh(self) -> None:
        """Read the newest version."""

    @abstractmethod
    def positions(self, keys: Collection[str]) -> dict[str, LakePosition]:
        """Return the position of each key that has one in the version read last."""

    def commit(self, commit: Commit) -> None:
        """Commit to the version that was read last, or with expected positions to the newest version.

        Raises:
            PositionMovedError: another writer has changed an expected position.
            Exception: an error of the library, one of its ``conflicts`` if another writer was faster.
        """
        self._check(commit.expected)
        try:
            self._write(commit)
        except self.errors().conflicts:
            self._check(commit.expected)
            raise  # It was in conflict with another writer, whom it does not concern what is written here.

    @abstractmethod
    def _write(self, commit: Commit) -> None:
        """Write what a commit changes, and raise errors of the library."""

    @staticmethod
    def errors() -> LogErrors:
        """Return the errors of the library of the format, if it has one.

        Raises:
            ConfigError: it is not installed.
        """
        return LogErrors()

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
    """A table of data files."""

    #: The data folder of the table, a path or URI.
    folder: str
    #: What partitions the table.
    columns: Sequence[PartitionColumn]
    #: Whether a commit is seen as a whole, or not at all.
    is_atomic: ClassVar[bool] = True
    #: Whether data files have Arrow's type of JSON.
    has_json: ClassVar[bool] = True

    @abstractmethod
    def files(self) -> list[DataFile]:
        """Return the data files of the version read last."""

    def partition_of(self, path: str) -> Partition:
        """Return the partition values in the path of a file, such as ``day=2026-01-01/product=a%2Fb/x.parquet``."""
        cells = folder_cells(path)
        return tuple(cells[column.name] for column in self.columns)


@contextmanager
def explained(what: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Within the ``with`` block, raise errors of a library as ``InputError``; ``what`` begins the message."""
    try:
        yield
    except errors as error:
        # The first line of a validation is the number of its errors.
        lines = str(error).strip().splitlines()[: 3 if "validation error" in str(error) else 1]
        raise InputError(f"{what}: {'; '.join(map(str.strip, lines)) or type(error).__name__}") from error


def needs_library(name: str, error: ImportError) -> ConfigError:
    """Return the error that the library of a format is not installed."""
    return ConfigError(f"tables of this format need {name} ({error}); install it with: {pip_install('lake')}")


def check_table(what: str, existing: Any, schema: Any, there: Sequence[str], here: Sequence[str]) -> None:
    """Check the columns of a table, as Arrow schema, and its partition columns against those of an output.

    ``what`` names the table in messages.

    Raises:
        InputError: they differ.
    """
    if list(there) != list(here):
        raise InputError(
            f"{what}: is partitioned by {', '.join(there) or 'nothing'}, partition_by is "
            f"{', '.join(here) or 'nothing'}; give the same columns"
        )
    if problems := list(column_problems(existing, schema)):
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
