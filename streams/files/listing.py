"""The local files selected by a path, a folder or a pattern.

Of the other packages, this module imports only ``core``.
"""

import glob
from collections.abc import Iterable
from pathlib import Path

from streams.core.errors import InputError
from streams.files.kinds import FileSource, Location, nearby
from streams.files.lake import LakeTable, table_around, table_below


def local_files(text: str, hint: str = "") -> list[str]:
    """Return the file at a path, all files of a folder, or the files that match a pattern, sorted by name.

    Hidden files, and files such as ``_SUCCESS``, are left out of folders.  ``hint`` is added to the message about a
    missing file that has no similar name.

    Raises:
        InputError: there is no such file, the folder is empty, no file matches, or a file belongs to a lakehouse table.
    """
    text = text.removeprefix("file://")
    path = Path(text)
    if glob.has_magic(text) and not path.exists():
        paths = sorted(name for name in glob.glob(text, recursive=True) if Path(name).is_file())
        if not paths:
            raise InputError(f"{text}: no file matches this pattern")
        refuse_tables(paths)
        return paths
    if path.is_dir():
        below = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
        table = table_around(text) or table_below(text, below)
        if table is not None:
            raise table.refused_as_input()
        paths = [str(path / name) for name in below if not is_hidden(name)]
        if not paths:
            raise InputError(f"{text}: this folder has no files")
        return paths
    if not path.exists():
        raise InputError(f"{text}: there is no such file{nearby(path)}{hint}")
    refuse_tables([text])
    return [text]


def local_sources(text: str) -> list[FileSource]:
    """Return the files at a location, which is given as text, in their order.

    Raises:
        ConfigError: the location has an unknown format or an invalid option.
        InputError: as ``local_files``.
    """
    return sources_at(Location.parse(text))


def sources_at(location: Location) -> list[FileSource]:
    """Return the files at a location, in their order.

    Raises:
        InputError: as ``local_files``.
    """
    return [FileSource.local(path, location.kind_of(path)) for path in local_files(location.path)]


def refuse_tables(paths: Iterable[str]) -> None:
    """Check that no local file belongs to a lakehouse table.

    Raises:
        InputError: a file belongs to a lakehouse table.
    """
    tables: dict[str, LakeTable | None] = {}
    for path in paths:
        table = table_around(path, tables=tables)
        if table is not None:
            raise table.refused_as_input()


def is_hidden(name: str) -> bool:
    """Return whether a file contains metadata of its writer instead of data, for example ``_SUCCESS``."""
    # As for Spark, _year=2026 is a folder of a column.
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in name.split("/"))
