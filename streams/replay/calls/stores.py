"""Opens the stores of a replay with their contents after the previous slice, and writes their contents.

A replay keeps the contents of stores in changelog format, sorted by key, and the changes of later slices until they
cost as much to read as the contents.  Then the contents are written again.  So a slice usually writes only its
changes, contents are only written after as many changes, and a slice reads at most twice the size of the contents.
"""

from collections.abc import Container, Iterable, Mapping, Set
from pathlib import Path
from typing import Any

from attrs import define, evolve

from streams.core.blocks.records import Block, TaskId, TopicPartition
from streams.core.migrations import FIRST_VERSION, VERSION_HEADER
from streams.core.settings.config import StreamsConfig
from streams.replay.calls.work import StoreRef
from streams.replay.storage.places import is_elsewhere
from streams.replay.storage.segments import Extent, ExtentReader, Segments, SegmentWriter
from streams.runtime import StoreEntry, entries_of
from streams.state import MemoryBudget, SpillingEngine, StoreSpec, is_on_disk, open_store

#: Uncommitted bytes above which a store is flushed.
MAX_UNCOMMITTED_BYTES = 8 << 20
#: The changes of a slice cost as much to read as this number of entries, in addition to their own: a range of a file
#: has to be found, read and checked.
_CHANGES_ROWS = 2_000


def memory_of(config: StreamsConfig) -> MemoryBudget:
    """Return the memory budget for the stores of a call, whose process runs no other call at the same time."""
    return MemoryBudget(config.state_memory_max_bytes, config.cache_max_bytes)


def open_empty(
    spec: StoreSpec, folder: Path, engine: str, memory: MemoryBudget | None = None, *, has_changes: bool = False
) -> Any:
    """Open an empty store, which records its changes only with ``has_changes``.

    ``memory`` is a budget shared with other stores of the process; without it, the store has a default budget of its
    own.  A store on disk is kept in memory while it is small.
    """
    logged = evolve(spec, has_changelog=has_changes)
    name: Any = engine
    budget = memory or MemoryBudget()
    on_disk = engine == "rocksdb" and is_on_disk(spec, name)
    small = SpillingEngine(folder / spec.name, budget) if on_disk else None
    return open_store(logged, default_engine=name, memory_budget=budget, engine=small)


def _filled(store: Any, ref: StoreRef, reader: ExtentReader) -> Any:
    for part in ref.parts:
        for block in reader.blocks(part.extents):
            store.restore(block, int(part.carried.get(VERSION_HEADER, FIRST_VERSION)))
            if store.approximate_uncommitted_bytes > MAX_UNCOMMITTED_BYTES:
                store.commit({})
        # Stream time decides what a later change may still reach.
        store.restore_carried(part.carried)
    store.commit({})
    return store


def open_contents(spec: StoreSpec, ref: StoreRef, segments: Segments) -> dict[Any, Any]:
    """Return the contents of a store as a mapping; the keys of window and session stores are ``Windowed``."""
    store = _filled(open_empty(spec, Path(), "in_memory"), ref, segments.reader())
    try:
        return dict(spec.kind.contents(store))
    finally:
        store.close()


def open_entries(spec: StoreSpec, ref: StoreRef, segments: Segments) -> list[StoreEntry]:
    """Return the entries of a store with their times; for a versioned store, the current versions."""
    store = _filled(open_empty(spec, Path(), "in_memory"), ref, segments.reader())
    try:
        if spec.kind.has_versions:
            return list(entries_of(spec, ((key, store.get(key)) for key, _ in store.latest())))
        return list(entries_of(spec, spec.kind.rows(store)))
    finally:
        store.close()


def open_all(
    specs: Iterable[StoreSpec],
    refs: Mapping[str, StoreRef],
    reader: ExtentReader,
    folder: Path,
    engine: str,
    memory: MemoryBudget,
    recorded: Container[str] = (),
) -> dict[str, Any]:
    """Open the stores of a task with the contents that ``refs`` has by name; other stores are empty.

    ``memory`` is the budget of all stores of the call. The stores in ``recorded`` record their changes.
    """
    stores: dict[str, Any] = {}
    try:
        for spec in specs:
            stores[spec.name] = open_empty(spec, folder, engine, memory, has_changes=spec.name in recorded)
            ref = refs.get(spec.name)
            if ref is not None:
                _filled(stores[spec.name], ref, reader)
    except BaseException:
        for store in stores.values():
            store.close()
        raise
    return stores


def write_contents(writer: SegmentWriter, producer: str, number: int, stores: Mapping[str, Any]) -> dict[str, StoreRef]:
    """Write the stores of a partition; return references to them, to which ``written_contents`` adds the extents."""
    refs = {}
    for name, store in stores.items():
        for block in store.snapshot_blocks():
            writer.append("store", TopicPartition(name, number), _as_kept(store.spec, block), producer)
        refs[name] = StoreRef((), store.carried())
    return refs


def _as_kept(spec: StoreSpec, block: Block) -> Block:
    """Return changelog records with the headers of values, for stores that keep them, and without any others.

    The types of lambda results are stored once in the reference, not with each entry.
    """
    return block if spec.kind.keeps_headers else evolve(block, headers=None)


def written_contents(writer: SegmentWriter, producer: str, refs: Mapping[str, StoreRef]) -> dict[str, StoreRef]:
    """Add the extents that have been written to references to stores, and return these."""
    extents = _extents_of(writer, producer)
    return {name: evolve(ref, extents=extents.get(name, ())) for name, ref in refs.items()}


def _extents_of(writer: SegmentWriter, producer: str) -> dict[str, tuple[Extent, ...]]:
    extents: dict[str, list[Extent]] = {}
    for _, partition, extent in writer.written_by(producer):
        extents.setdefault(partition.topic, []).append(extent)
    return {name: tuple(ranges) for name, ranges in extents.items()}


@define(eq=False)
class SliceChanges:
    """The changes of a task's stores in one slice, which are written instead of the contents while they are few."""

    _writer: SegmentWriter
    _task_id: TaskId
    #: The stores at the end of the previous slice.
    _before: Mapping[str, StoreRef]
    #: The number of further changes of each recorded store that are cheaper than its contents.
    _room: dict[str, int]
    _specs: Mapping[str, StoreSpec]

    @classmethod
    def of(
        cls,
        writer: SegmentWriter,
        task_id: TaskId,
        before: Mapping[str, StoreRef],
        specs: Iterable[StoreSpec],
        *,
        is_whole: bool,
    ) -> "SliceChanges":
        """Start with no changes; with ``is_whole`` none are recorded, and all stores are written as contents."""
        by_name = {spec.name: spec for spec in specs if spec.name in before}
        room = {name: _room_for_changes(spec, before[name]) for name, spec in by_name.items()}
        few = {} if is_whole else {name: rows for name, rows in room.items() if rows > 0}
        return cls(writer, task_id, before, few, by_name)

    @property
    def recorded(self) -> Set[str]:
        """The names of the stores that record their changes."""
        return self._room.keys()

    @property
    def few(self) -> set[str]:
        """The names of the stores with few changes, whose contents need not be written."""
        return {name for name, room in self._room.items() if room >= 0}

    def write(self, changes: Iterable[tuple[str, Block]]) -> None:
        """Write the next changes of stores, except for stores that have too many changes by now.

        Raises:
            ReplayError: the file cannot be written.
        """
        for name, block in changes:
            self._room[name] -= len(block)
            if self._room[name] >= 0:
                partition = TopicPartition(name, self._task_id.partition)
                self._writer.append("store", partition, _as_kept(self._specs[name], block), self._producer)

    def refs(self, carried: Mapping[str, Mapping[str, bytes]]) -> dict[str, StoreRef]:
        """Return references to stores whose changes are in the finished file; ``carried`` has them by name."""
        extents = _extents_of(self._writer, self._producer)
        return {name: self._before[name].changed(extents.get(name, ()), state) for name, state in carried.items()}

    @property
    def _producer(self) -> str:
        return f"{self._task_id} changes"


def _room_for_changes(spec: StoreSpec, ref: StoreRef) -> int:
    """Return the number of changes up to which changes are written instead of contents; 0 or less if they never are.

    They never are for a kind that is always in memory, since its changes do not include the order in which keys were
    used, nor for contents in files of another replay, which may be deleted after the first slice.
    """
    if spec.kind.is_in_memory or any(is_elsewhere(extent.file) for extent in ref.extents):
        return 0
    entries = sum(extent.rows for extent in ref.extents)
    changes = sum(extent.rows for part in ref.changes for extent in part.extents)
    return entries - changes - _CHANGES_ROWS * (len(ref.changes) + 1)
