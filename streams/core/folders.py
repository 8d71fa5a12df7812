"""Folders and files that the user names: errors if they cannot be written, durable writes, and files with secrets.

Imports only the errors of ``core``.
"""

import logging
import os
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
        reason = "it is a file" if isinstance(error, FileExistsError) else f"{error.strerror} ({error.filename})"
        raise ConfigError(
            f"{what} {folder} cannot be used: {reason}; choose a folder that this user may create or write"
        ) from error


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
