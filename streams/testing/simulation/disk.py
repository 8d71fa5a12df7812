"""Disks of simulated processes: writes are durable only once they are synced.

Each store is a file of atomic batches, as in RocksDB. A crash loses some of the last batches as a whole, including the
changelog positions in these batches (KIP-1035).
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from attrs import define, field

from streams.core.blocks.records import TaskId
from streams.core.concurrency.threads import ThreadKilled
from streams.core.errors import StateLockedError
from streams.runtime import CHANGELOG_POSITION
from streams.state import EngineBatch, MemoryEngine, StoreSpec, open_store
from streams.testing.simulation.scheduler import SimProcess


@define(eq=False)
class _File:
    """One state store on a simulated disk: its synced data, and the batches that are not synced yet."""

    safe: MemoryEngine = field(factory=MemoryEngine)
    unsynced: list[EngineBatch] = field(factory=list)

    def sync(self, count: int | None = None) -> None:
        """Sync the first ``count`` batches (by default all); discard the others."""
        for batch in self.unsynced if count is None else self.unsynced[:count]:
            self.safe.apply(batch)
        self.unsynced = []

    def load(self) -> MemoryEngine:
        """Return a copy of the synced data."""
        writes = {namespace: dict(self.safe.scan(namespace, None, None)) for namespace in self.safe.namespaces()}
        engine = MemoryEngine()
        engine.apply(EngineBatch([], writes, self.safe.metadata()))  # type: ignore[arg-type]
        return engine


class _DiskEngine(MemoryEngine):
    """An open state store: reads are served from memory, and writes also go to its file."""

    def __init__(self, disk: "SimDisk", process: SimProcess, file: _File) -> None:
        loaded = file.load()
        super().__init__(loaded._namespaces, loaded._metadata, loaded._bytes)
        self._disk = disk
        self._process = process
        self._file = file

    def apply(self, batch: EngineBatch) -> None:
        """Write a batch; at random, this also syncs all unsynced batches of the file."""
        if not self._process.is_alive:
            raise ThreadKilled
        writes = {namespace: dict(entries) for namespace, entries in batch.writes.items()}
        self._file.unsynced.append(EngineBatch(list(batch.dropped), writes, dict(batch.metadata)))
        super().apply(batch)
        if self._disk.rng.random() < self._disk.sync_share:
            self._file.sync()

    def close(self) -> None:
        """Close the store, and sync it unless the process has crashed."""
        if self._process.is_alive:
            self._file.sync()
        super().close()


@define(eq=False)
class SimDisk:
    """The disk of a machine; it outlives the processes of the machine."""

    name: str
    rng: Random
    #: Probability that a written batch is synced immediately.
    sync_share: float = 0.5
    #: Whether stores are persisted; False simulates a machine without a state directory.
    is_kept: bool = True
    _files: dict[tuple[TaskId, str], _File] = field(factory=dict)

    def file(self, task_id: TaskId, store: str) -> _File:
        """Return the file of a task's store; a missing one is created."""
        return self._files.setdefault((task_id, store), _File())

    def crash(self) -> int:
        """Lose some of the batches that are not synced, and return how many; an ephemeral disk loses all files."""
        if not self.is_kept:
            self._files.clear()
        lost = 0
        for file in self._files.values():
            synced = self.rng.randint(0, len(file.unsynced))
            lost += len(file.unsynced) - synced
            file.sync(synced)
        return lost

    def delete(self, task_id: TaskId, store: str) -> None:
        """Delete a store's file."""
        self._files.pop((task_id, store), None)

    def files(self) -> list[tuple[TaskId, str]]:
        """Return the task and the store of each file."""
        return list(self._files)

    def positions(self) -> dict[TaskId, int]:
        """Return the sum of the synced changelog positions of each task's stores."""
        result: dict[TaskId, int] = {}
        for (task_id, _), file in self._files.items():
            metadata = file.safe.metadata()
            result[task_id] = result.get(task_id, 0) + int(metadata.get(CHANGELOG_POSITION, b"0"))
        return result


@define(eq=False)
class SimHome:
    """The stores of a simulated process; implements ``runtime.homes.StateHome``."""

    _disk: SimDisk
    _process: SimProcess
    process_id: str
    _owners: dict[TaskId, object] = field(factory=dict)

    def lock(self) -> None:
        """Do nothing: a machine runs one process of the application at a time."""

    def unlock(self) -> None:
        """Do nothing: there is no lock."""

    def positions(self) -> Mapping[TaskId, int]:
        """Return the sum of the changelog positions of each task on the disk that is not open."""
        if not self._disk.is_kept:
            return {}
        return {task_id: sum_ for task_id, sum_ in self._disk.positions().items() if task_id not in self._owners}

    def stores(self) -> Mapping[TaskId, list[str]]:
        """Return the stores on the disk by task."""
        result: dict[TaskId, list[str]] = {}
        for task_id, store in self._disk.files():
            result.setdefault(task_id, []).append(store)
        return result

    def open_task(self, task_id: TaskId, specs: Iterable[StoreSpec], owner: object) -> dict[str, Any]:
        """Open a task's stores for a thread.

        Raises:
            StateLockedError: another thread has not released the stores yet.
        """
        if self._owners.setdefault(task_id, owner) is not owner:
            raise StateLockedError(f"state of task {task_id} is held by another thread")
        return {spec.name: self._open(task_id, spec) for spec in specs}

    def release_task(self, task_id: TaskId, owner: object, position: int) -> None:
        """Release the stores of a task if it was opened by ``owner``."""
        if self._owners.get(task_id) is owner:
            del self._owners[task_id]

    def renew_store(self, task_id: TaskId, spec: StoreSpec) -> Any:
        self._disk.delete(task_id, spec.name)
        return self._open(task_id, spec)

    def delete_outdated(self, before_ms: int) -> None:
        """Do nothing: files of a simulated disk have no times."""

    def clean_up(self) -> None:
        """Delete all stores on the disk."""
        for task_id, store in list(self._disk._files):
            self._disk.delete(task_id, store)

    def _open(self, task_id: TaskId, spec: StoreSpec) -> Any:
        if not self._disk.is_kept or not spec.has_changelog:
            return open_store(spec, engine=MemoryEngine())
        return open_store(spec, engine=_DiskEngine(self._disk, self._process, self._disk.file(task_id, spec.name)))
