"""Opening a store from its spec: the choice of engine and memory budget."""

from pathlib import Path
from typing import Any, Literal

from streams.state.engine.budget import MemoryBudget
from streams.state.engine.engines import Engine
from streams.state.engine.memory import MemoryEngine
from streams.state.engine.rocksdb import RocksEngine
from streams.state.engine.staging import StagedEngine
from streams.state.specs import StoreSpec

#: Values of the setting ``default_engine``.
EngineName = Literal["in_memory", "rocksdb"]


def open_store(
    spec: StoreSpec,
    directory: Path | None = None,
    *,
    default_engine: EngineName = "in_memory",
    memory_budget: MemoryBudget | None = None,
    engine: Engine | None = None,
) -> Any:
    """Open a store for one task, which restores and commits it; all other code uses the store's ``view``.

    ``memory_budget`` is shared with other stores; by default the store gets a separate budget. ``engine``
    replaces the default engine. ``directory`` is the directory of this store, which is created if it does not
    exist. Without a directory the store is in memory. LRU stores and stores with ``is_persistent=False`` are
    always in memory, and return entries in the order of Kafka Streams' in-memory stores.

    Raises:
        StoreError: the spec lacks an option that its kind requires, or the directory cannot be opened.
    """
    spec.kind.check(spec)
    budget = memory_budget or MemoryBudget()
    staged = StagedEngine(engine or _engine(spec, directory, default_engine, budget))
    try:
        store = spec.kind.open(spec, staged, budget)
        if spec.kind.view is not None:
            store.view = spec.kind.view(store)
    except BaseException:
        staged.engine.close()
        raise
    budget.admit()
    return store


def is_on_disk(spec: StoreSpec, default_engine: EngineName) -> bool:
    """Return whether a store with this spec is on disk if it is opened with a directory."""
    if spec.kind.is_in_memory:
        return False
    return default_engine == "rocksdb" if spec.is_persistent is None else spec.is_persistent


def _engine(spec: StoreSpec, directory: Path | None, default_engine: EngineName, budget: MemoryBudget) -> Engine:
    if directory is None or not is_on_disk(spec, default_engine):
        return MemoryEngine()
    return RocksEngine.open(directory, budget.rocks())
