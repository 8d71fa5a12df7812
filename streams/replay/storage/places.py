"""The folders and files of a replay, on this machine or on any file system that pyarrow or fsspec supports.

A file appears under its name only when it is complete.  No other module of the package accesses the file
system.
"""

import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary, finalize

from attrs import define, field, frozen

from streams.core.clock import SystemClock
from streams.core.event_time.time_texts import time_text
from streams.core.folders import sync_to_disk
from streams.files import (
    FileSystemError,
    LakeTable,
    file_system,
    is_local,
    short_reason,
    table_around,
    whole_file,
)
from streams.replay.errors import FolderLockedError, ReplayError

_CHUNK = 1 << 20


class NoFileSystemError(ReplayError):
    """Python has no file system for a URI, although Spark may have a suitable one."""


def _plain(uri: str) -> str:
    return uri.removeprefix("file://")


@frozen
class Place:
    """A folder or file, given by a path or URI; it can be pickled, since it is only resolved on use."""

    uri: str = field(converter=_plain)

    def child(self, *names: str) -> "Place":
        return Place("/".join([self.uri.rstrip("/"), *names]))

    def absolute(self) -> "Place":
        """Return this file or folder with an absolute path, for processes with another working directory."""
        return Place(os.path.abspath(self.uri)) if self.is_local else self

    @property
    def is_local(self) -> bool:
        """Whether the folder or file is on this machine's file system."""
        return is_local(self.uri)

    @property
    def path(self) -> Path:
        """The path of the folder or file, which must be local."""
        assert self.is_local
        return Path(self.uri)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.uri.rstrip("/").rpartition("/")[2]

    def __str__(self) -> str:
        return self.uri

    # --- reading --------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether the file or folder exists."""
        if self.is_local:
            return self.path.exists()
        return self._info() is not None

    def open_input(self) -> Any:
        """Open a file for reading, as a pyarrow file.

        Raises:
            ReplayError: the file cannot be read.
        """
        system, path = self._system()
        with self._edge("read"):
            return system.open_input_file(path)

    def read(self) -> bytes:
        """Return the content of the file.

        Raises:
            ReplayError: the file cannot be read.
        """
        with self.open_input() as stream, self._edge("read"):
            return bytes(stream.read())

    def read_if_exists(self) -> bytes | None:
        """Return the content of the file, or None if there is none, which needs fewer requests than two calls.

        Raises:
            ReplayError: the file cannot be read.
        """
        system, path = self._system()
        with self._edge("read"):
            try:
                with system.open_input_file(path) as stream:
                    return bytes(stream.read())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def digest(self) -> str:
        """Return the 16-byte BLAKE2b digest of the file in hexadecimal."""
        state = blake2b(digest_size=16)
        with self.open_input() as stream, self._edge("read"):
            while chunk := stream.read(_CHUNK):
                state.update(chunk)
        return state.hexdigest()

    def size(self) -> int:
        """Return the size of the file in bytes.

        Raises:
            ReplayError: the file is missing, cannot be accessed, or is not a file.
        """
        with self._edge("read"):
            if self.is_local:
                return self.path.stat().st_size
        info = self._info()
        if info is None or info.size is None:
            raise ReplayError(f"{self}: {'there is no such file' if info is None else 'is no file'}")
        return int(info.size)

    def is_folder(self) -> bool:
        """Return whether this is an existing folder.

        Raises:
            ReplayError: the folder cannot be accessed.
        """
        from pyarrow.fs import FileType

        if self.is_local:
            return self.path.is_dir()
        info = self._info()
        return info is not None and bool(info.type == FileType.Directory)

    def _info(self) -> Any:
        """Return the file system's information about a remote file or folder, or None if it does not exist."""
        from pyarrow.fs import FileType

        system, path = self._system()
        with self._edge("read"):
            info = system.get_file_info(path)
        return None if info.type == FileType.NotFound else info

    @contextmanager
    def _edge(self, verb: str, hint: str = "") -> Iterator[None]:
        """Raise errors of the file system within the ``with`` block as ``ReplayError``.

        Raises:
            ReplayError: the file system raised an error.
        """
        import pyarrow as pa

        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise ReplayError(f"{self}: cannot be {verb}: {short_reason(error)}{hint}") from error

    def state(self) -> tuple[str, int, int]:
        """Return the URI of the file, its size in bytes, and its modification time in ns (0 if remote).

        Raises:
            ReplayError: the file is missing.
        """
        if not self.is_local:
            return self.uri, self.size(), 0
        with self._edge("read"):
            status = self.path.stat()
        return self.uri, status.st_size, status.st_mtime_ns

    def files(self) -> list[str]:
        """Return the sorted relative paths of all files below the folder; empty if the folder does not exist."""
        if self.is_local:
            return sorted(_files_below(str(self.path)))
        from pyarrow.fs import FileSelector, FileType

        system, base = self._system()
        with self._edge("read"):
            infos = system.get_file_info(FileSelector(base, recursive=True, allow_not_found=True))
        return sorted(info.path.removeprefix(base.rstrip("/") + "/") for info in infos if info.type == FileType.File)

    def table(self, tables: "dict[str, LakeTable | None] | None" = None) -> LakeTable | None:
        """Return the lakehouse table that contains this folder or file, or None; ``tables`` is a cache of results."""
        if self.is_local:
            return table_around(self.uri, tables=tables)
        self._system()  # Raises file system errors with the name of this place.
        return table_around(
            self.uri,
            lambda uri: Place(uri).is_folder(),
            lambda uri: Place(uri)._names(),
            tables,
        )

    def _names(self) -> list[str]:
        from pyarrow.fs import FileSelector

        system, path = self._system()
        with self._edge("read"):
            return [info.base_name for info in system.get_file_info(FileSelector(path, allow_not_found=True))]

    # --- writing --------------------------------------------------------------------------

    @contextmanager
    def whole_file(self) -> Iterator[Any]:
        """Open the file for writing; it appears under its name, synced to disk, if the block raises no exception.

        Raises:
            ReplayError: the file cannot be written; a partial file is deleted.
        """
        system, path = self._system()
        with self._edge("written", "; make room or choose another place"), whole_file(system, path) as stream:
            yield stream

    def write(self, data: bytes) -> None:
        """Write the file atomically.

        Raises:
            ReplayError: the file cannot be written; the previous file is unchanged.
        """
        with self.whole_file() as stream:
            stream.write(data)

    def check_target(self) -> None:
        """Check that this folder is not within a lakehouse table, whose readers would fail on the files of a replay.

        Raises:
            ReplayError: the folder is within a lakehouse table.
        """
        table = self.table()
        if table is not None:
            raise ReplayError(f"{self}: cannot be written to: {table}; choose a folder outside of it")

    def create_private(self) -> None:
        """Create a local folder for this user alone, if it does not exist: records are in it in clear.

        Raises:
            ReplayError: the folder cannot be created.
        """
        if self.is_local:
            try:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise ReplayError(f"{self}: is no folder to write to: {short_reason(error)}; choose another") from error

    def locked(self) -> AbstractContextManager["FolderLock | None"]:
        """Create a local folder if needed, for this user alone, and lock it for this process; remote ones are not.

        Raises:
            FolderLockedError: another writer holds the lock.
            ReplayError: the folder cannot be created.
        """
        if not self.is_local:
            return nullcontext()
        self.create_private()
        return closing(FolderLock.acquired(self))

    def delete(self) -> None:
        """Delete the file, or the folder with its contents, if it exists."""
        if self.is_local:
            if self.path.is_dir():
                shutil.rmtree(self.path)
            else:
                self.path.unlink(missing_ok=True)
            return
        from pyarrow.fs import FileType

        system, path = self._system()
        with self._edge("deleted"):
            kind = system.get_file_info(path).type
            if kind == FileType.Directory:
                system.delete_dir(path)
            elif kind == FileType.File:
                system.delete_file(path)

    def rename_to(self, other: "Place") -> None:
        """Rename the file within its folder.

        Raises:
            ReplayError: the file system cannot rename the file.
        """
        with self._edge(f"renamed to {other.name}"):
            if self.is_local:
                self.path.replace(other.path)
                sync_to_disk(other.path.parent)
            else:
                system, path = self._system()
                system.move(path, other._system()[1])

    def link_to(self, other: "Place") -> None:
        """Make the file available as ``other``, hard-linked if possible, otherwise copied."""
        if self.is_local and other.is_local:
            other.path.parent.mkdir(parents=True, exist_ok=True)
            other.path.unlink(missing_ok=True)
            try:
                os.link(self.path, other.path)
            except OSError:
                pass  # Another device, or no hard links: copied below.
            else:
                return
        with self.open_input() as source, other.whole_file() as target:
            while chunk := source.read(_CHUNK):
                target.write(chunk)

    def _system(self) -> tuple[Any, str]:
        """Return the file system, and the path within that file system.

        Raises:
            NoFileSystemError: Python has no file system for the URI.
            ReplayError: the file system cannot be used.
        """
        try:
            return file_system(self.uri)
        except FileSystemError as error:
            kind = NoFileSystemError if error.is_missing else ReplayError
            raise kind(str(error)) from error.__cause__


#: The file in a folder that its writer locks, and which says who that is.
LOCK = ".lock"
#: The locks that the next writer of this process takes over, by folder.
_OFFERED: WeakValueDictionary[str, "FolderLock"] = WeakValueDictionary()


@define(eq=False)
class FolderLock:
    """The lock on a local folder, held until it is closed, not used any longer, or this process ends."""

    folder: Place
    _release: Callable[[], object] = field(init=False)

    @classmethod
    def acquired(cls, folder: Place) -> "FolderLock":
        """Lock a folder, and write into it who has done so.

        Raises:
            FolderLockedError: another writer holds the lock.
            ReplayError: the folder cannot be written.
        """
        if (offered := _OFFERED.get(folder.uri)) is not None:
            offered.close()
        file = folder.child(LOCK)
        try:
            descriptor = os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ReplayError(f"{folder}: is no folder to write to: {short_reason(error)}; choose another") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            about = {"pid": os.getpid(), "host": socket.gethostname(), "since": time_text(SystemClock().now_ms())}
            os.pwrite(descriptor, json.dumps(about).encode(), 0)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 1000, 0)
            os.close(descriptor)
            raise FolderLockedError(_held(folder, file, holder)) from error
        lock = cls(folder)
        lock._release = finalize(lock, os.close, descriptor)
        return lock

    def offer(self) -> None:
        """Let the next writer of this process take the lock over; one of another process has to wait."""
        _OFFERED[self.folder.uri] = self

    def close(self) -> None:
        """Release the lock, unless this was done before."""
        self._release()


def _held(folder: Place, file: Place, holder: bytes) -> str:
    """Return the message that a lock is held, by whom, and what to do."""
    try:
        about = json.loads(holder)
        who = f"process {about['pid']} on {about['host']} has been writing here since {about['since']}"
    except ValueError:  # It has only just taken the lock.
        return f"{folder}: another process is writing here; wait until it ends"
    if about["host"] != socket.gethostname():
        return f"{folder}: {who}; wait until it ends, or if that machine is gone, delete {file}"
    if about["pid"] == os.getpid():
        return f"{folder}: this process has been writing here since {about['since']}; wait until it ends"
    return f"{folder}: {who}; wait until it ends, or end it: the lock ends with it"


def _files_below(folder: str, prefix: str = "") -> Iterator[str]:
    """Yield the paths of all files below a folder, without objects for paths, which would cost ten times as much."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(entry.path, f"{name}/")
            elif entry.is_file():
                yield name


#: The names of permanent files contain a digest of the content, which readers check.
_SEALED = re.compile(r"-([0-9a-f]{32})\.b2\.parquet$")


def sealed_name(name: str, digest: str) -> str:
    """Add a digest to the name of a file.

    >>> sealed_name("0_1-ab.parquet", "0" * 32)
    '0_1-ab-00000000000000000000000000000000.b2.parquet'
    """
    return f"{_SEALED.sub('', name).removesuffix('.parquet')}-{digest}.b2.parquet"


def check_seal(place: Place) -> None:
    """Check the content of a file against the digest in its name, if it has one; only once per process.

    Raises:
        ReplayError: the file has changed since it was written, or cannot be read.
    """
    sealed = _SEALED.search(place.uri)
    if sealed is not None:
        _check_content(place, sealed[1], place.state())


@cache
def _check_content(place: Place, digest: str, _state: tuple[str, int, int]) -> None:
    """Check the digest of a file; a file with the same size and modification time is checked once per process."""
    if place.digest() != digest:
        raise ReplayError(
            f"{place}: is damaged: its bytes are not those that were written; restore a copy, or create it again"
        )


def is_elsewhere(file: str) -> bool:
    """Return whether an extent's file belongs to another replay, which means that its path is absolute or a URI."""
    return "://" in file or file.startswith("/")
