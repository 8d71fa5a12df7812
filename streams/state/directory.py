"""The state directory: ``<state_dir>/<application_id>/<task_id>/<store>``, and its locks.

Only one instance at a time can lock the directory of an application, with a file lock that contains the process
ID. Within the instance, only one owner at a time can lock the directory of a task. A format file distinguishes
the directory from a Kafka Streams state directory, which uses the same names. Nothing is deleted unless a
caller requests it.
"""

import fcntl
import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field

from streams.core.blocks.records import TaskId
from streams.core.errors import ForeignFormatError, StateLockedError
from streams.core.folders import naming, written_folder

_LOCK_FILE = ".lock"
_PROCESS_FILE = ".process"
_POSITION_FILE = ".position"
_FORMAT_FILE = ".format"
_FORMAT = "streams state 1"
#: A file that Kafka Streams creates in the state directory of an application.
_REFERENCE_FILE = "kafka-streams-process-metadata"


@define(eq=False)
class StateDirectory:
    """The state directory of one application on this machine."""

    path: Path
    _lock_descriptor: int | None = None
    _owners: dict[TaskId, object] = field(factory=dict)
    _guard: threading.Lock = field(factory=threading.Lock)

    @classmethod
    def of(cls, state_dir: Path | str, application_id: str) -> "StateDirectory":
        """Return an application's state directory without creating or locking it."""
        return cls(Path(state_dir) / application_id)

    def lock(self) -> None:
        """Lock the directory for this instance, creating the directory if it does not exist.

        Raises:
            ConfigError: the directory cannot be created or written.
            StateLockedError: another process or instance holds the lock.
            ForeignFormatError: the directory was created by Kafka Streams or by another release.
        """
        if self._lock_descriptor is not None:
            return
        lock_path = self.path / _LOCK_FILE
        with written_folder(self.path, "state directory"):
            descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StateLockedError(
                f"state directory {self.path} is in use by process {holder}; "
                "stop it, or give this instance another state_dir"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock_descriptor = descriptor
        try:
            self._check_format()
        except BaseException:
            self.unlock()
            raise

    def _check_format(self) -> None:
        path = self.path / _FORMAT_FILE
        written = path.read_text(errors="replace").strip() if path.exists() else ""
        if written == _FORMAT:
            return
        is_new = not written and next(self.tasks(), None) is None and not (self.path / _REFERENCE_FILE).exists()
        if not is_new:
            whose = (
                f"its {_FORMAT_FILE} says {written!r}" if written else "it was made by an earlier release of streams"
            )
            if (self.path / _REFERENCE_FILE).exists():
                whose = "it is one of Kafka Streams'"
            raise ForeignFormatError(
                f"state directory {self.path} is not from this release of streams ({_FORMAT!r}): {whose}; give the "
                "application another state_dir, or delete this one: stores are restored from their changelogs",
                what="state directory",
            )
        temporary = path.with_name(f"{_FORMAT_FILE}.new")
        with naming(temporary):
            temporary.write_text(f"{_FORMAT}\n")
        temporary.replace(path)

    def unlock(self) -> None:
        if self._lock_descriptor is not None:
            # The file stays: removing it would let two instances lock different files.
            os.ftruncate(self._lock_descriptor, 0)
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    def process_id(self) -> str:
        """Return the process UUID stored with the state; it and the directory are created on first use.

        A server may call this before the application has started and locked the directory.

        Raises:
            ConfigError: the directory cannot be created or written.
        """
        path = self.path / _PROCESS_FILE
        draft = path.with_name(f"{_PROCESS_FILE}.{uuid.uuid4().hex}")
        with written_folder(self.path, "state directory"):
            existing = _read_process_id(path)
            if existing:
                return existing
            with naming(draft):
                draft.write_text(f"{uuid.uuid4().hex}\n")
        try:
            # If two processes create the file at the same time, both use the ID that was written first.
            os.link(draft, path)
        except FileExistsError:
            if not _read_process_id(path):
                draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return _read_process_id(path)

    def lock_task(self, task_id: TaskId, owner: object) -> None:
        """Lock a task's directory for an owner in this instance; idempotent for the same owner.

        Raises:
            StateLockedError: another owner holds the lock.
        """
        with self._guard:
            holder = self._owners.setdefault(task_id, owner)
        if holder is not owner:
            raise StateLockedError(
                f"state of task {task_id} in {self.path} is held by {holder!r}; try again when it has been closed"
            )

    def unlock_task(self, task_id: TaskId, owner: object) -> None:
        """Unlock a task's directory if ``owner`` has locked it."""
        with self._guard:
            if self._owners.get(task_id) is owner:
                del self._owners[task_id]

    def is_task_locked(self, task_id: TaskId) -> bool:
        """Return whether an owner in this instance has locked the task's directory."""
        return task_id in self._owners

    def write_position(self, task_id: TaskId, position: int) -> None:
        """Store the changelog position of a closed task, which task assignment uses as a hint."""
        path = self.task_path(task_id) / _POSITION_FILE
        with naming(path):
            path.write_text(f"{position}\n")

    def read_position(self, task_id: TaskId) -> int:
        """Return the stored changelog position of a task, or 0 if no position is stored."""
        try:
            return int((self.path / str(task_id) / _POSITION_FILE).read_text())
        except (OSError, ValueError):
            return 0

    def task_path(self, task_id: TaskId) -> Path:
        """Return a task's directory, creating it if it does not exist."""
        path = self.path / str(task_id)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def store_path(self, task_id: TaskId, store: str) -> Path:
        """Return the directory of a task's store; the store itself creates the directory."""
        return self.task_path(task_id) / store

    def tasks(self) -> Iterator[TaskId]:
        """Yield the tasks that have a directory on this machine."""
        if not self.path.is_dir():
            return
        for path in sorted(self.path.iterdir()):
            sub_topology, _, partition = path.name.partition("_")
            if path.is_dir() and sub_topology.isdecimal() and partition.isdecimal():
                yield TaskId(int(sub_topology), int(partition))

    def stores(self, task_id: TaskId) -> list[str]:
        """Return the stores of a task that have a directory on this machine."""
        entries = (self.path / str(task_id)).iterdir()
        return sorted(path.name for path in entries if path.is_dir() and not path.name.startswith("."))

    def written_ms(self, task_id: TaskId) -> int:
        """Return when a file of a task's state was last written or replaced, in milliseconds of the wall clock."""
        path = self.path / str(task_id)
        # Stores write below their own folders, which leaves the time of the task's folder as it was.
        latest_ns = max(file.stat().st_mtime_ns for file in (path, *path.rglob("*")))
        return latest_ns // 1_000_000

    def delete_task(self, task_id: TaskId) -> None:
        """Delete a task's state.

        Raises:
            StateLockedError: an owner in this instance has locked the task.
        """
        if self.is_task_locked(task_id):
            raise StateLockedError(f"state of task {task_id} in {self.path} is in use; close the task first")
        shutil.rmtree(self.path / str(task_id), ignore_errors=True)

    def delete_store(self, task_id: TaskId, store: str) -> None:
        """Delete the state of one closed store, for example a damaged one.

        The deletion is atomic: a partly deleted store never remains under its name.
        """
        folder = self.path / str(task_id) / store
        doomed = folder.with_name(f".{store}.deleted")
        shutil.rmtree(doomed, ignore_errors=True)
        if folder.exists():
            folder.replace(doomed)
            shutil.rmtree(doomed, ignore_errors=True)


def _read_process_id(path: Path) -> str:
    """Return the process UUID in a file, or nothing if it holds none: a damaged one is replaced, as a lost one is."""
    try:
        return uuid.UUID(path.read_text().strip()).hex
    except (FileNotFoundError, ValueError):
        return ""
