"""Folders that the user names, the errors if they cannot be written, and what makes writes durable.

Imports only the errors of ``core``.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streams.core.errors import ConfigError


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
