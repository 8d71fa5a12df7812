"""Store homes: where an instance keeps its local stores, which is a state directory or memory.

A home opens the stores of tasks, and records which tasks have local state and which thread has locked that state.  The
simulation has its own home.  The module imports only ``core`` and ``state``.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from attrs import define, field

from streams.core.blocks.records import TaskId
from streams.core.metrics import RecordingLevel
from streams.core.settings.config import StreamsConfig
from streams.state import EngineName, MemoryBudget, StateDirectory, StoreSpec, is_on_disk, open_store

logger = logging.getLogger(__name__)


class StateHome(Protocol):
    """The storage of the local stores of one instance."""

    @property
    def process_id(self) -> str:
        """The process id, which identifies the local state in the group; it is persistent if the state is."""
        ...

    def lock(self) -> None:
        """Lock the local state for this instance.

        Raises:
            StateLockedError: another instance has locked the local state.
        """
        ...

    def unlock(self) -> None:
        """Unlock the local state; idempotent."""
        ...

    def positions(self) -> Mapping[TaskId, int]:
        """Return the tasks whose local state no thread has locked, each with its approximate changelog position sum."""
        ...

    def stores(self) -> Mapping[TaskId, list[str]]:
        """Return the local stores of each task, including stores that are not in the topology."""
        ...

    def open_task(self, task_id: TaskId, specs: Iterable[StoreSpec], owner: object) -> dict[str, Any]:
        """Open all stores of a task for a thread.

        Raises:
            StateLockedError: another thread has not released the stores yet.
            StoreError: a store cannot be opened; the stores opened before it are closed again.
        """
        ...

    def release_task(self, task_id: TaskId, owner: object, position: int) -> None:
        """Release the closed stores of a task; ``position`` is the sum of their changelog positions."""
        ...

    def renew_store(self, task_id: TaskId, spec: StoreSpec) -> Any:
        """Delete the state of a closed store, and open the store empty."""
        ...

    def delete_outdated(self, before_ms: int) -> None:
        """Delete the local state of each task that was last written before a time (KIP-1259)."""
        ...

    def clean_up(self) -> None:
        """Delete all local state.

        Raises:
            StateLockedError: the local state is in use.
        """
        ...


def _open_all(specs: Iterable[StoreSpec], open_one: Any) -> dict[str, Any]:
    opened: dict[str, Any] = {}
    try:
        for spec in specs:
            opened[spec.name] = open_one(spec)
    except BaseException:
        for store in opened.values():
            store.close()
        raise
    return opened


@define(eq=False)
class MemoryHome:
    """A store home in memory: the content of stores is lost when they are closed."""

    process_id: str = field(factory=lambda: uuid4().hex)
    memory: MemoryBudget = field(factory=MemoryBudget)

    def lock(self) -> None:
        """Do nothing, because stores in memory are not shared with other instances."""

    def unlock(self) -> None:
        """Do nothing, because stores in memory are not shared with other instances."""

    def positions(self) -> Mapping[TaskId, int]:
        """Return an empty mapping: state in memory is lost when it is closed."""
        return {}

    def stores(self) -> Mapping[TaskId, list[str]]:
        """Return an empty mapping: state in memory is lost when it is closed."""
        return {}

    def open_task(self, task_id: TaskId, specs: Iterable[StoreSpec], owner: object) -> dict[str, Any]:
        """Open all stores of a task, which are empty."""
        return _open_all(specs, self._open)

    def release_task(self, task_id: TaskId, owner: object, position: int) -> None:
        """Do nothing, because the state of closed stores in memory is lost."""

    def renew_store(self, task_id: TaskId, spec: StoreSpec) -> Any:
        """Open an empty store that replaces a closed store."""
        return self._open(spec)

    def _open(self, spec: StoreSpec) -> Any:
        return open_store(spec, memory_budget=self.memory)

    def delete_outdated(self, before_ms: int) -> None:
        """Do nothing: state in memory is lost when it is closed."""

    def clean_up(self) -> None:
        """Do nothing: state in memory is lost when it is closed."""


@define(eq=False)
class DirectoryHome:
    """A store home in a state directory; stores that are not persistent are kept in memory."""

    directory: StateDirectory
    engine: EngineName
    memory: MemoryBudget = field(factory=MemoryBudget)

    @property
    def process_id(self) -> str:
        """The process id that is stored in the state directory."""
        return self.directory.process_id()

    def lock(self) -> None:
        self.directory.lock()

    def unlock(self) -> None:
        self.directory.unlock()

    def positions(self) -> Mapping[TaskId, int]:
        """Return the tasks with an unlocked folder, each with its position, or 0 if a crash has lost the position."""
        directory = self.directory
        return {
            task_id: directory.read_position(task_id)
            for task_id in directory.tasks()
            if not directory.is_task_locked(task_id)
        }

    def stores(self) -> Mapping[TaskId, list[str]]:
        """Return the names of the stores that have a folder, by task."""
        return {task_id: self.directory.stores(task_id) for task_id in self.directory.tasks()}

    def open_task(self, task_id: TaskId, specs: Iterable[StoreSpec], owner: object) -> dict[str, Any]:
        """Lock a task's folder, and open its stores."""
        self.directory.lock_task(task_id, owner)
        try:
            return _open_all(specs, lambda spec: self._open(task_id, spec))
        except BaseException:
            self.directory.unlock_task(task_id, owner)
            raise

    def release_task(self, task_id: TaskId, owner: object, position: int) -> None:
        """Record the position of a task, and unlock its folder."""
        self.directory.write_position(task_id, position)
        self.directory.unlock_task(task_id, owner)

    def renew_store(self, task_id: TaskId, spec: StoreSpec) -> Any:
        """Delete a store's folder, and open the store empty."""
        self.directory.delete_store(task_id, spec.name)
        return self._open(task_id, spec)

    def delete_outdated(self, before_ms: int) -> None:
        """Delete the folders of the tasks that were last written before a time (KIP-1259)."""
        for task_id in list(self.directory.tasks()):
            written_ms = self.directory.written_ms(task_id)
            if written_ms < before_ms:
                logger.info(
                    "state of task %s in %s is deleted, and restored from its changelogs: it was last written %s ms "
                    "before the time from which state_cleanup_dir_max_age_ms keeps it",
                    task_id,
                    self.directory.path,
                    before_ms - written_ms,
                )
                self.directory.delete_task(task_id)

    def clean_up(self) -> None:
        """Delete the folders of all tasks."""
        self.directory.lock()
        try:
            for task_id in list(self.directory.tasks()):
                self.directory.delete_task(task_id)
        finally:
            self.directory.unlock()

    def _open(self, task_id: TaskId, spec: StoreSpec) -> Any:
        is_kept = is_on_disk(spec, self.engine)
        path = self.directory.store_path(task_id, spec.name) if is_kept else None
        return open_store(spec, path, default_engine=self.engine, memory_budget=self.memory)


def home_of(state_dir: Path | None, config: StreamsConfig) -> StateHome:
    """Return the store home of an application: under ``state_dir``, or in memory if it is None."""
    has_statistics = RecordingLevel.of(config.metrics_recording_level) >= RecordingLevel.DEBUG
    memory = MemoryBudget(config.state_memory_max_bytes, config.cache_max_bytes, has_statistics)
    if state_dir is None:
        return MemoryHome(memory=memory)
    engine: EngineName = "in_memory" if config.default_store == "in_memory" else "rocksdb"
    return DirectoryHome(StateDirectory.of(state_dir, config.application_id), engine, memory)
