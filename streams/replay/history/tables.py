"""Tables as history: detection of the new rows of a table, by its data files or by its version."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from streams.core.errors import InputError
from streams.core.topic import Topic
from streams.lakes import (
    LAKE_PREFIXES,
    LakeChange,
    LakeName,
    LakeState,
    delta_changes,
    delta_rows,
    delta_state,
    iceberg_changes,
    iceberg_rows,
    iceberg_state,
)
from streams.replay.errors import ReplayError
from streams.replay.history.growth import History
from streams.replay.history.inputs import FileMark, Input, Table
from streams.replay.history.since import Since
from streams.replay.storage.places import Place
from streams.values import plain_batch, plain_type, table_columns

#: In a mark of a table, ``head`` is or begins with one of these texts instead of a digest.
_FILE = "file of a table"
_VERSION = "version "
#: Rows of a row group of a table that is written to a file.
_GROUP_ROWS = 100_000
#: Size of the sample of a lake table.
_SAMPLED_FILES = 8
_SAMPLED_ROWS = 1_000


@frozen
class TablePlace:
    """The location of the rows of a table: its data files, and its version; both are unknown for some tables."""

    files: tuple[str, ...] = ()
    version: str | None = None
    #: The operations that led to the version of a lake table, oldest first, as (version, name); None if not known.
    operations: tuple[tuple[str, str], ...] | None = None
    #: The number of rows of a lake table, None if it is not known.
    rows: int | None = None
    #: What has changed since the rows that were read, oldest first; None if that is not known.
    changes: tuple[LakeChange, ...] | None = None

    def since(self, version: str) -> str:
        """Return the operations on the table since a version as text in parentheses; empty if they are not known."""
        versions = [number for number, _ in self.operations or ()]
        if version not in versions or self.operations is None:
            return ""
        later = self.operations[versions.index(version) + 1 :]
        listed = ", ".join(f"{name} in version {number}" for number, name in later[-5:])
        return f" (read at version {version}; since then: {listed})" if later else f" (read at version {version})"

    def follows(self, marks: Sequence[FileMark]) -> bool:
        """Return whether the files that were read last are still there, or the changes say what has become of them."""
        moved = {file for change in self.changes or () for file in (*change.removed, *change.rewritten)}
        return all(mark.path in moved or mark.path in self.files for mark in marks if mark.tail == marks[-1].tail)


@frozen
class NewRows:
    """The rows of a table to read: those in ``files``, given with a version that has them, or all if there are none.

    ``marks`` identify these rows in the history.  With ``is_again`` they take the place of all rows that were read.
    """

    files: Mapping[str, str]
    marks: tuple[FileMark, ...]
    is_again: bool = False

    def read(self, rows: int) -> list[FileMark]:
        """Return the marks, with ``rows`` as the number of rows that were read."""
        *others, last = self.marks
        return [*others, evolve(last, rows=rows)]


def is_continued(table: Table, place: TablePlace, marks: Sequence[FileMark]) -> bool:
    """Return whether a table still contains data files or the version that ``marks`` identify."""
    version = table.version or place.version
    heads = {mark.head for mark in marks}
    if place.changes is not None and place.follows(marks):
        return True
    return any(mark.path in place.files for mark in marks) or (version is not None and _VERSION + version in heads)


def new_rows(
    topic: str, table: Table, place: TablePlace, history: History, *, may_repair: bool = False
) -> NewRows | None:
    """Return the rows of a table that have not been read yet, or None if there are none.

    With ``may_repair`` these are all rows of a lake table, rows of which were changed.

    Raises:
        ReplayError: it is not known which rows are new, or rows that were read are no longer there.
    """
    marks_before = history.marks
    hint = "give the new rows alone, with state_from (--state-from), or start in another folder"
    if table.is_lake and not place.files and not marks_before:
        return None
    if (place.files or table.is_lake) and table.version is None:
        files = dict.fromkeys(sorted(set(place.files) - {mark.path for mark in marks_before}), place.version or "")
        lost = next((mark for mark in marks_before if mark.path not in place.files), None)
        if marks_before and place.changes is not None and place.follows(marks_before):
            if may_repair and any(change.removed for change in place.changes):
                marks = tuple(FileMark(path, 0, _FILE, place.version or "") for path in place.files)
                return NewRows({}, marks, is_again=True)
            files = _added(topic, table, place, marks_before)
        elif lost is not None:
            raise ReplayError(
                f"topic {topic!r}: {lost.path}, a file of {table.name}, was read before, and is no longer part of it"
                f"{place.since(lost.tail)}: rows were changed, deleted or written again, so that the new ones are not "
                f"known; {hint}"
            )
        marks = tuple(FileMark(path, 0, _FILE, at) for path, at in files.items())
        return NewRows(files if marks_before else {}, marks) if files else None
    version = table.version or place.version or ""
    head = f"{_VERSION}{version}"
    if not marks_before:
        return NewRows({}, (FileMark(table.name, 0, head, ""),))
    if version and marks_before[-1].head == head:
        return None
    raise ReplayError(
        f"topic {topic!r}: {table.name} was read before{f', and is now {head}' if version else ''}; which of its rows "
        f"are new is not known: {hint}"
        + ("" if version else ", or name the state of the rows: Table(frame, version=...)")
    )


def _added(topic: str, table: Table, place: TablePlace, marks: Sequence[FileMark]) -> dict[str, str]:
    """Return the files that were added to a lake table since its rows were read, each with a version that has it.

    What only writes rows again, such as OPTIMIZE and compaction, adds none, also to those that it has moved since.

    Raises:
        ReplayError: rows that may have been read were changed or deleted.
    """
    changes = place.changes or ()
    read = marks[-1].tail
    if changed := [change for change in changes if change.removed]:
        listed = ", ".join(f"{change.operation} in version {change.version}" for change in changed[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise ReplayError(
            f"topic {topic!r}: rows of {table.name} were deleted or changed after they were read at version {read}: "
            f"{listed}{more}; resume with repair=True (--repair), which reads the table again and computes again what "
            "follows from the oldest change (not after state_from), or start in another folder"
        )
    there = set(place.files)
    added = [(file, change.version) for change in changes for file in sorted(change.added)]
    # The last one has the newest version, from which the next run goes on.
    moved = {file: version for file, version in added if file not in there}
    return moved | {file: place.version or "" for file, _ in added if file in there}


def check_rows(topic: str, table: Table, history: History, count: int | None) -> None:
    """Check that ``count``, the current number of rows in files of a table that were read before, has not changed.

    ``count`` is None if it is not known.

    Raises:
        ReplayError: the number differs, because the query that selects rows has changed.
    """
    read = sum(mark.rows for mark in history.marks)
    if count is not None and count != read:
        raise ReplayError(
            f"topic {topic!r}: {read:,} rows of {table.name} were read before, and the same files have {count:,} now: "
            "its condition (where, limit) or the other tables that it reads have changed, so that the new rows "
            "are not known; give the new rows alone, with state_from (--state-from), or start in another folder"
        )


def since_given(source: Input, topic: Topic[Any, Any], since_ms: int) -> Input:
    """Return the input, limited to rows with event times from ``since_ms`` on.

    Raises:
        InputError: the input is not a table, or the event time of its rows is not a column or field.
    """
    if not isinstance(source, Table):
        raise InputError(
            f"since: the input of topic {topic.name!r} is not a table; name its newer files, or give a table, such as "
            '"sql:SELECT * FROM json.`folder` WHERE ..."'
        )
    return evolve(source, since=Since.of(topic, since_ms))


def look_at_lake(table: Table) -> TablePlace:
    """Return the version of a Delta Lake or Iceberg table, and its data files.

    Raises:
        InputError: there is no such table or version.
        ConfigError: the library of the format is not installed.
    """
    name = LakeName.of(table.source)
    state = delta_state(name) if name.format == "delta" else iceberg_state(name)
    return TablePlace(state.files, state.version, state.operations, state.rows)


def with_changes(table: Table, place: TablePlace, marks: Sequence[FileMark]) -> TablePlace:
    """Return the place of a table with what has changed in it since the rows that ``marks`` identify.

    Raises:
        InputError: the log of the table cannot be read.
    """
    since = marks[-1].tail if marks and marks[-1].head == _FILE else ""
    if not (table.is_lake and since and place.version):
        return place
    name = LakeName.of(table.source)
    changes = delta_changes if name.format == "delta" else iceberg_changes
    return evolve(place, changes=changes(name, since, place.version))


def lake_rows(table: Table, place: TablePlace, files: Mapping[str, str]) -> Table:
    """Return the rows of the given files of a Delta Lake or Iceberg table (all files by default), as Arrow data.

    Raises:
        InputError: the table has a feature that the library of the format cannot read.
    """
    name = LakeName.of(table.source)
    state = LakeState(place.version or "", place.files)
    rows = delta_rows if name.format == "delta" else iceberg_rows
    files = files or dict.fromkeys(place.files, state.version)
    return Table(rows(name, state, files), label=table.name, since=table.since)


def sampled_rows(table: Table, place: TablePlace) -> Iterator[Any]:
    """Yield the first rows of some files of a lake table as Arrow batches.

    Raises:
        InputError: the table has a feature that the library of the format cannot read.
    """
    import pyarrow as pa

    step = max(1, len(place.files) // _SAMPLED_FILES)
    for file in place.files[::step][:_SAMPLED_FILES]:
        source = lake_rows(table, place, {file: place.version or ""}).source
        is_stream = isinstance(source, pa.RecordBatchReader)
        batch = next(source if is_stream else iter(source.head(_SAMPLED_ROWS).to_batches()), None)
        if batch is not None:
            yield batch.slice(0, _SAMPLED_ROWS)


def write_rows(table: Table, topic: Topic[Any, Any], file: Place) -> TablePlace:
    """Write the declared columns of a table with Arrow data to a Parquet file, whose digest is its version.

    Raises:
        InputError: a column is missing or has another type, or the rows cannot be read.
        ReplayError: the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = table.source
    try:
        stream = pa.RecordBatchReader.from_stream(source) if hasattr(source, "__arrow_c_stream__") else None
        columns = list(table_columns(topic, (stream or source).schema, table.name))
        reader = stream or source.scanner(columns=columns).to_reader()
        schema = pa.schema([part.with_type(plain_type(part.type)) for part in map(reader.schema.field, columns)])
        # The file is read once and deleted: dictionaries and statistics would be a third of the time.
        plain = {"use_dictionary": False, "write_statistics": False}
        with file.whole_file() as stream, pq.ParquetWriter(stream, schema, **plain) as writer:
            # Row groups of the same size, however the source divides its rows.
            since = table.since
            rows = _read(reader)
            rows = rows if since is None else (since.selected(batch, table.name) for batch in rows)
            is_empty = True
            for batches in _groups(plain_batch(batch.select(columns)) for batch in rows):
                is_empty = False
                writer.write_batch(pa.concat_batches(batches), row_group_size=_GROUP_ROWS)
            # The reader of a lake table is a new one each time: the table has no rows.
            is_lake = table.name.startswith(LAKE_PREFIXES)
            if is_empty and since is None and not is_lake and isinstance(source, pa.RecordBatchReader):
                raise InputError(
                    f"{table.name} as input of topic {topic.name!r}: has no rows: a reader can be read only once, and "
                    "this one was probably read before; give a new reader, or a Table"
                )
    # pandas raises TypeError and ValueError for columns that Arrow has not.
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"{table.name} as input of topic {topic.name!r}: its rows cannot be read: {error}") from error
    except OSError as error:
        raise ReplayError(f"{file}: cannot be written: {error.strerror or error}") from error
    return TablePlace(version=file.digest())


def _read(reader: Any) -> Iterator[Any]:
    try:
        yield from reader
    except OSError as error:  # Which would be one of the file that is written.
        raise ValueError(error) from error


def _groups(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the rows of the batches in groups of ``_GROUP_ROWS`` rows; the last group may have fewer."""
    group: list[Any] = []
    size = 0
    for batch in batches:
        while batch.num_rows:
            part = batch.slice(0, _GROUP_ROWS - size)
            group.append(part)
            size += part.num_rows
            batch = batch.slice(part.num_rows)
            if size == _GROUP_ROWS:
                yield group
                group = []
                size = 0
    if group:
        yield group
