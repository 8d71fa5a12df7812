"""The inputs of a replay, and the check that a file has only grown since it was read.

``Files`` are read row by row into partitions; an ``Archive`` is in partition order already.  Each
file is recorded with its size and digests, so that a later run detects new, grown and changed files.
"""

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

from attrs import field, frozen

from streams.core.errors import ConfigError, InputError
from streams.files import (
    FileKind,
    FormatOption,
    Kind,
    LakeTable,
    Location,
    is_hidden,
    is_local,
    kind_of,
    local_files,
    table_below,
)
from streams.lakes import LAKE_PREFIXES
from streams.replay.calls.state import read_manifest
from streams.replay.errors import ReplayError
from streams.replay.history.since import Since
from streams.replay.storage.places import NoFileSystemError, Place

#: Bytes at the start and at the end of a file whose digests identify it.
_LOOK = 1 << 16
#: Prefix of a modification time (epoch milliseconds), used where there is no digest.
_MODIFIED = "modified "
#: Names of catalog tables, for example ``lake.orders``.
_TABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*){0,2}")
_URI = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")


@frozen
class Files:
    """Files of rows, concatenated in the given order.

    With ``through_spark``, Spark lists the files (paths, folders and Spark patterns) and passes their bytes to
    Python.  This is for file systems that Python cannot read.  ``is_folder``: the files were found in a folder, which
    has no order of its own, so that their records are sorted by event time unless another order is given.
    ``file_format`` is "jsonl", "json", "records", "csv", "text" or "parquet", and by default that of the suffixes;
    options of CSV are a ``streams.Csv``, or text, as in "csv?delimiter=;".
    """

    paths: tuple[str, ...]
    through_spark: bool = False
    is_folder: bool = False
    file_format: FormatOption = ""
    #: The path that was given, such as that of the folder, for messages.
    given_path: str = field(default="", eq=False, repr=False)

    @property
    def location(self) -> Location:
        """The path that was given, and the format.

        Raises:
            ConfigError: there is no such format, or an option is invalid.
        """
        return Location(self.given_path, self.file_format)


@frozen
class Archive:
    """A folder written by ``streams archive``, with the original partitions and offsets.

    ``topic`` is the name of the topic in the archive (default: the name of the replayed topic).
    """

    path: str = field(converter=os.fspath)
    topic: str | None = None


_STARTS = "a replay begins at the beginning of the topic, or with resume where the last one ended; leave it out"
_ENDS = "a replay reads to the end of the topic at its start; leave it out, and give until=... to end before"
_ONE_TOPIC = "a replay reads the one topic that is named; leave it out"
_CUTS = "it would put records out of their order; leave it out"
#: Options of the Spark source that the replay sets itself, in lower case, with the reason.
#: Timestamp options are included, since they take precedence over offsets.
_OWN_OPTIONS = {
    "startingtimestamp": _STARTS,
    "startingoffsets": _STARTS,
    "startingoffsetsbytimestamp": _STARTS,
    "startingoffsetsbytimestampstrategy": _STARTS,
    "endingtimestamp": _ENDS,
    "endingoffsets": _ENDS,
    "endingoffsetsbytimestamp": _ENDS,
    "subscribe": _ONE_TOPIC,
    "subscribepattern": _ONE_TOPIC,
    "assign": _ONE_TOPIC,
    "kafka.bootstrap.servers": "it is KafkaTopic's bootstrap_servers; leave it out",
    "failondataloss": "records that are gone are an error of a replay, not a gap; leave it out",
    "includeheaders": "a replay keeps headers; leave it out",
    "kafka.isolation.level": "a replay reads committed records only, as the application does; leave it out",
    "minpartitions": _CUTS,
    "maxrecordsperpartition": _CUTS,
    "maxoffsetspertrigger": "it belongs to streaming queries; leave it out",
    "minoffsetspertrigger": "it belongs to streaming queries; leave it out",
}


@frozen
class KafkaTopic:
    """A topic of a Kafka cluster, read through the Spark source up to the end offsets at the start of the replay.

    Partitions and offsets are kept; transactional records are read only if committed.  ``options`` are
    further options of the Spark source, for example ``kafka.security.protocol``; options that select what is
    read, or how the input is split, are not allowed.  ``partitions`` is the required partition count (default:
    the declared count of the ``Topic``, or else the count in the cluster).

    Raises:
        ConfigError: an option is not allowed.
    """

    bootstrap_servers: str
    topic: str
    options: Mapping[str, str] = field(factory=dict)
    partitions: int | None = None

    def __attrs_post_init__(self) -> None:
        for name in self.options:
            why = _OWN_OPTIONS.get(name.lower())
            if why is not None:
                raise ConfigError(f"KafkaTopic {self.topic!r}: option {name!r} is not allowed: {why}")


@frozen
class Table:
    """The rows of a DataFrame or table, in order of event time; a column is a field of the topic's type.

    ``source`` is a Spark DataFrame, or text: ``table:NAME`` for a table of Spark's catalog, or ``sql:SELECT ...``;
    ``delta:FOLDER`` or ``iceberg:[CATALOG.]NAMESPACE.TABLE``, at ``@VERSION`` or ``@TIME``, which need no Spark; or an
    object with Arrow data, such as a pyarrow Table, a polars DataFrame or a DuckDB relation, which needs no Spark.
    ``version`` identifies the state of the rows for ``resume`` if Spark cannot determine which rows are new, for
    example the ID of an Iceberg snapshot: rows are only read again if the version has changed.
    """

    source: Any = field(eq=False, repr=False)
    version: str | None = None
    #: The name of the table in messages, if it is not that of the source.
    label: str | None = None
    #: The condition that selects rows; None reads all rows.
    since: Since | None = None

    @property
    def name(self) -> str:
        if self.label is not None:
            return self.label
        if isinstance(self.source, str) or self.source is None:
            return self.source or "table"
        kind = type(self.source)
        return "DataFrame" if is_frame(self.source) else f"{kind.__module__.partition('.')[0]} {kind.__name__}"

    @property
    def is_lake(self) -> bool:
        """Whether the source is a table of Delta Lake or Iceberg that is read by the library of the format."""
        return isinstance(self.source, str) and self.source.startswith(LAKE_PREFIXES)

    @property
    def is_arrow(self) -> bool:
        """Whether the source is read as Arrow data, without Spark."""
        return self.is_lake or (not isinstance(self.source, str) and not is_frame(self.source))


Input: TypeAlias = Files | Archive | KafkaTopic | Table
#: Prefixes of text that names a table.
TABLE_PREFIXES = ("table:", "sql:", *LAKE_PREFIXES)


@frozen
class FileMark:
    """The size and digests of a file when it was read, to detect whether it has grown or changed since."""

    path: str
    size: int
    head: str
    #: Digest of the last bytes before ``size``.
    tail: str
    #: Number of rows read.
    rows: int = 0

    @classmethod
    def of(cls, path: str, size: int | None = None) -> "FileMark":
        """Return the mark of a file: digests of the head and tail of its first ``size`` bytes (default: all).

        Raises:
            InputError: the file cannot be read.
        """
        place = Place(path)
        try:
            whole = place.size()
            end = whole if size is None else size
            with place.open_input() as stream:
                head = stream.read(min(_LOOK, end))
                stream.seek(max(0, end - _LOOK))
                tail = stream.read(min(_LOOK, end))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error}") from error
        except ReplayError as error:
            raise InputError(str(error)) from error
        return cls(path, end, blake2b(head, digest_size=16).hexdigest(), blake2b(tail, digest_size=16).hexdigest())

    @classmethod
    def by_time(cls, path: str, size: int, modified_ms: int) -> "FileMark":
        """Return the mark of a file that only Spark can read: its size and modification time."""
        return cls(path, size, f"{_MODIFIED}{modified_ms}", "")

    def check_growth(self, path: str, kind: FileKind | None) -> None:
        """Check that the rows added to a file start on a new line.

        Raises:
            InputError: the last line was read before it was complete.
        """
        if not self.size or kind is None or kind.compression or kind.kind is Kind.PARQUET:
            return
        with Place(path).open_input() as stream:
            stream.seek(self.size - 1)
            border = stream.read(2)
        if not border.startswith(b"\n") and not border.endswith((b"\n", b"\r")):
            raise InputError(
                f"{path}: row {self.rows} had no line end when it was read, and has grown since; start in "
                "another folder"
            )

    def is_in(self, path: str) -> bool:
        """Return whether a file still starts with the content that was read."""
        if self.head.startswith(_MODIFIED) or Place(path).size() < self.size:
            return False
        other = FileMark.of(path, self.size)
        return (other.head, other.tail) == (self.head, self.tail)


def input_of(source: Any) -> Input:
    """Return the input (``Files``, ``Archive``, ``KafkaTopic`` or ``Table``) for a value given by the user.

    Raises:
        ConfigError: the format of files does not exist, or has invalid options.
        InputError: the file does not exist, or a pattern matches no file.
    """
    if isinstance(source, Files) and not source.through_spark:
        _refuse_tables(source.paths)
    if isinstance(source, Files | Archive | KafkaTopic | Table):
        return source
    if is_frame(source) or _has_arrow(source) or (isinstance(source, str) and source.startswith(TABLE_PREFIXES)):
        return Table(source)
    if isinstance(source, str) and source.startswith("kafka://"):
        servers, _, topic = source.removeprefix("kafka://").partition("/")
        if not servers or not topic:
            raise InputError(f"{source}: give kafka://HOST:PORT/TOPIC")
        return KafkaTopic(servers, topic)
    paths = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(paths, Sequence) or not all(isinstance(path, str | os.PathLike) for path in paths):
        kind = f"{type(source).__module__}.{type(source).__qualname__}"
        if callable(getattr(type(source), "collect", None)):
            kind += "; give what its collect() returns"
        raise InputError(
            "an input is a file, folder, pattern, a list of files, an Archive, a KafkaTopic, or a table: a Spark "
            f"DataFrame, table:NAME, sql:SELECT ..., delta:FOLDER, iceberg:NAME, or an object with Arrow data; "
            f"not a {kind}"
        )
    files: list[str] = []
    is_folder = False
    locations = [Location.parse(os.fspath(path)) for path in paths]
    texts = tuple(location.path for location in locations)
    file_format = locations[0].file_format if locations else ""
    if any(location.file_format != file_format for location in locations):
        raise InputError(f"{', '.join(texts)}: have different formats; give one format, and the same options, for all")
    for text in texts:
        if _needs_spark(text):
            if not all(map(_URI.match, texts)):
                raise InputError(f"{text}: can be read through Spark only; give the other paths with their schemes too")
            is_folder = any(not glob.has_magic(other) and kind_of(other) is None for other in texts)
            return Files(texts, True, is_folder, file_format, texts[0])
        if is_archive(text):
            if len(paths) > 1:
                raise InputError(f"{text}: is an archive; give it alone")
            return Archive(text)
        named = _files(text)
        is_folder = is_folder or (named != [text.removeprefix("file://")] and not glob.has_magic(text))
        files += named
    if not files:
        raise InputError("an input needs at least one file")
    return Files(tuple(files), False, is_folder, file_format, texts[0] if len(texts) == 1 else "")


def is_frame(source: Any) -> bool:
    """Return whether an object is a Spark DataFrame, classic or Connect."""
    kind = type(source)
    return kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql.")


def _has_arrow(source: Any) -> bool:
    """Return whether an object has Arrow data: an Arrow stream, a record batch or a dataset."""
    # A Spark Column has every attribute.
    return not isinstance(source, type) and any(
        callable(getattr(type(source), name, None)) for name in ("__arrow_c_stream__", "__arrow_c_array__", "scanner")
    )


def _needs_spark(path: str) -> bool:
    """Return whether only Spark may have a file system for a path."""
    if path.startswith("file:") or not _URI.match(path):
        return False
    try:
        Place(path).exists()
    except NoFileSystemError:
        return True
    return "://" not in path


def is_archive(path: str) -> bool:
    """Return whether a folder is an archive.

    Raises:
        ReplayError: the manifest of the folder is damaged.
        InputError: the folder holds a snapshot or a replay.
    """
    content = read_manifest(Place(path))
    if content is None or content.get("kind") == "archive":
        return content is not None
    raise InputError(f"{path}: holds a {content.get('kind')}, which is no history; give files, or an archive")


def _files(text: str) -> list[str]:
    """Return the files that match a path, folder or pattern, sorted by name."""
    if not is_local(text):
        return _remote_files(text)
    is_table = kind_of(text) is None and _TABLE.fullmatch(text) and not Path(text).exists()
    return local_files(text, f"; if it is a table of Spark's catalog, give table:{text}" if is_table else "")


def _remote_files(text: str) -> list[str]:
    """Return the file at a URI, or all files if the URI is a folder.

    Raises:
        InputError: there are no files, or the URI is a pattern.
    """
    place = Place(text)
    if place.is_folder():
        files = [f"{text.rstrip('/')}/{name}" for name in _files_below(place) if not is_hidden(name)]
        if not files:
            raise InputError(f"{text}: this folder has no files")
        return files
    if not place.exists():
        if glob.has_magic(text):
            raise InputError(
                f"{text}: patterns are for files of this machine; give the folder, or the files one by one"
            )
        raise InputError(f"{text}: there is no such file or folder")
    _refuse_tables([text])
    return [text]


def _files_below(folder: Place) -> list[str]:
    """Return the files of a folder, relative to it.

    Raises:
        InputError: the folder is, contains, or is within a lakehouse table.
    """
    files = folder.files()
    table = folder.table() or table_below(str(folder), files)
    if table is not None:
        raise table.refused_as_input()
    return files


def _refuse_tables(paths: Iterable[str]) -> None:
    """Check that no file belongs to a lakehouse table.

    Raises:
        InputError: a file belongs to a lakehouse table.
    """
    tables: dict[str, LakeTable | None] = {}
    for path in paths:
        table = Place(path).table(tables)
        if table is not None:
            raise table.refused_as_input()
