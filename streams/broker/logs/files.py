"""File handling shared by logs and the topics file: a bounded number of open files, and atomic writes.

This module does not depend on the content of files.  It passes operating system errors on to the caller.
"""

import errno
import os
from collections import OrderedDict
from pathlib import Path
from typing import Final

from attrs import define, field

from streams.broker.logs.descriptors import open_files
from streams.core.folders import naming, sync_to_disk

#: Mode of files with records, offsets and credentials: accessible to the owner only.
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
#: Errors that mean that the process or the machine has no file descriptor left.
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


@define(eq=False)
class OpenFiles:
    """Open file descriptors by path; above the limit, the least recently used one is closed.

    Without the limit, thousands of partitions would exceed the number of files that the process may open.
    """

    limit: int = field(factory=open_files)
    _descriptors: "OrderedDict[Path, int]" = field(factory=OrderedDict, init=False)

    def get(self, path: Path) -> int:
        """Return a descriptor for reading and writing a file; the file is created if necessary."""
        descriptor = self._descriptors.get(path)
        if descriptor is not None:
            self._descriptors.move_to_end(path)
            return descriptor
        if len(self._descriptors) >= self.limit:
            self._close_oldest()
        descriptor = self._descriptors[path] = self._opened(path)
        return descriptor

    def _opened(self, path: Path) -> int:
        """Open a file; if the process has no descriptor left, close another log file first."""
        while True:
            try:
                return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS or not self._descriptors:
                    raise
                self._close_oldest()

    def _close_oldest(self) -> None:
        _, oldest = self._descriptors.popitem(last=False)
        os.close(oldest)

    def sync(self, path: Path) -> None:
        """Sync a file to disk."""
        os.fsync(self.get(path))

    def drop(self, path: Path) -> None:
        """Close the descriptor for a path, if there is one."""
        descriptor = self._descriptors.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close all descriptors."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def write_at(descriptor: int, data: bytes, position: int) -> None:
    """Write all of ``data`` to a file, at a byte position."""
    written = os.pwrite(descriptor, data, position)
    while written < len(data):
        more = os.pwrite(descriptor, data[written:], position + written)
        if more == 0:
            raise OSError("the file system took no more bytes")
        written += more


def write_atomically(path: Path, data: bytes, *, is_durable: bool = True) -> None:
    """Replace a file atomically: a reader sees either the old or the new content, never a part of it."""
    temporary = path.with_name(path.name + ".tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with naming(path), open(os.open(temporary, flags, FILE_MODE), "wb") as file:
        file.write(data)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if is_durable:
        sync_to_disk(path.parent)
