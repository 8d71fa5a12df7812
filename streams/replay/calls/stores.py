"""Stores of a replay: opened with the contents of an earlier slice, and written as contents.

A replay keeps the contents of stores in changelog format, sorted by key, never their changes.
Imports runtime and state.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from streams.core.records import TopicPartition
from streams.replay.calls.work import StoreRef
from streams.replay.storage.places import Place
from streams.replay.storage.segments import ExtentReader, SegmentWriter
from streams.runtime import Task
from streams.state import StoreSpec, is_on_disk, open_store

#: Uncommitted bytes above which a store is flushed.
MAX_UNCOMMITTED_BYTES = 8 << 20


def open_empty(spec: StoreSpec, folder: Path, engine: str) -> Any:
    """Open an empty store without a changelog, since a replay keeps contents and not changes."""
    unlogged = evolve(spec, has_changelog=False)
    name: Any = engine
    place = folder / spec.name if is_on_disk(spec, name) and engine == "rocksdb" else None
    return open_store(unlogged, place, default_engine=name)


def _filled(store: Any, ref: StoreRef, reader: ExtentReader) -> Any:
    for block in reader.blocks(ref.extents):
        store.restore(block)
        if store.approximate_uncommitted_bytes > MAX_UNCOMMITTED_BYTES:
            store.commit({})
    store.restore_carried(ref.carried)
    store.commit({})
    return store


def open_contents(spec: StoreSpec, ref: StoreRef, root: Place) -> dict[Any, Any]:
    """Return the contents of a store as a mapping; the keys of windows and sessions are ``Windowed``."""
    reader = ExtentReader(root)
    store = _filled(open_empty(spec, Path(), "in_memory"), ref, reader)
    try:
        return dict(spec.kind.contents(store))
    finally:
        store.close()


def open_all(
    specs: Iterable[StoreSpec], refs: Mapping[str, StoreRef], root: Place, folder: Path, engine: str
) -> dict[str, Any]:
    """Open stores with their earlier contents; stores without a reference are empty."""
    stores: dict[str, Any] = {}
    reader = ExtentReader(root)
    try:
        for spec in specs:
            stores[spec.name] = open_empty(spec, folder, engine)
            ref = refs.get(spec.name)
            if ref is not None:
                _filled(stores[spec.name], ref, reader)
    except BaseException:
        for store in stores.values():
            store.close()
        raise
    return stores


def write_contents(root: Place, name: str, stores: Mapping[str, tuple[Any, int]]) -> dict[str, StoreRef]:
    """Write the contents of stores, given by name as (store, partition)."""
    with SegmentWriter(root, name) as writer:
        for store_name, (store, number) in stores.items():
            for block in store.snapshot_blocks():
                # The types of lambda results are stored once in the reference, not with each entry.
                writer.append("store", TopicPartition(store_name, number), evolve(block, headers=None))
    refs = {}
    for store_name, (store, _) in stores.items():
        extents = tuple(extent for _, partition, extent in writer.written if partition.topic == store_name)
        refs[store_name] = StoreRef(extents, store.carried())
    return refs


def write_back(task: Task) -> None:
    """Flush the buffered writes of a task's stores to their engines."""
    task.take_changes()
    task.write_state({})
