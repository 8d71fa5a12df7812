"""Folders and files that the user names: errors if they cannot be written, durable writes, and files with secrets.

Imports only the errors of ``core``.
"""

import errno
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from streams.core.errors import ConfigError

_LOGGER = logging.getLogger(__name__)


@contextmanager
def written_folder(folder: Path, what: str) -> Iterator[None]:
    """Create a folder if it does not exist, for this user alone; within the ``with`` block, files are opened in it.

    Raises:
        ConfigError: the folder cannot be created, or a file in it not be opened; ``what`` says whose folder it is.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except OSError as error:
        reason = full_disk(error, folder) or f"{error.strerror} ({error.filename})"
        if isinstance(error, FileExistsError):
            reason = "it is a file"
        raise ConfigError(
            f"{what} {folder} cannot be used: {reason}; choose a folder that this user may create or write"
        ) from error


def full_disk(error: BaseException | None, path: str | Path | None = None, needed: int | None = None) -> str | None:
    """Return what to do about a write that failed because the disk, or the user's share of it, is full.

    ``path`` is what was written if the error does not say it, and ``needed`` its size in bytes.  None for other errors.
    """
    while error is not None:
        # RocksDB says it in words only.
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if is_full or os.strerror(errno.ENOSPC) in str(error):
            break
        error = error.__cause__
    else:
        return None
    place = (isinstance(error, OSError) and error.filename) or path
    if place is None:
        return "a disk is full: make room on it, then retry"
    folder = next((each for each in (Path(place), *Path(place).parents) if each.exists()), Path())
    need = "" if needed is None else f", {needed:,} are needed"
    free = f"{shutil.disk_usage(folder).free:,} bytes are free"
    return f"disk full: {place} ({free}{need}): make room on it, then retry; what was written before is intact"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the ``with`` block name the file that is written, which Python only does where it is opened."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def sync_to_disk(path: Path) -> None:
    """Write what the system still holds of a file, or of the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def secret_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Return the text of a file with secrets; see ``warn_if_public``.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
    """
    warn_if_public(path)
    return Path(path).read_text(encoding=encoding)


def warn_if_public(path: str | os.PathLike[str]) -> None:
    """Log a warning, once, if every user of this machine can read a file with secrets.

    Raises:
        OSError: there is no such file.
    """
    if os.stat(path).st_mode & stat.S_IROTH:
        _warn_of(os.fspath(path))


# A password is read for each connection.
@cache
def _warn_of(path: str) -> None:
    _LOGGER.warning("%s has secrets and can be read by every user of this machine: chmod o-rwx %s", path, path)
