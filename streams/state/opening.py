"""How a spec becomes an open store: which view, which engine, out of which memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from streams.core.errors import StoreError
from streams.state.budget import MemoryBudget
from streams.state.engines import Engine
from streams.state.keyvalue import KeyValueStore, TimestampedKeyValueStore
from streams.state.lifecycle import StoreLifecycle
from streams.state.lru import LruStore
from streams.state.memory import MemoryEngine
from streams.state.rocksdb import RocksEngine
from streams.state.session import SessionStore
from streams.state.specs import StoreKind, StoreSpec
from streams.state.staging import StagedEngine
from streams.state.versioned import VersionedStore
from streams.state.window import TimestampedWindowStore, WindowStore

#: Values of the setting ``default_engine``.
EngineName = Literal["in_memory", "rocksdb"]


_VIEWS: dict[StoreKind, Callable[..., StoreLifecycle]] = {
    StoreKind.KEY_VALUE: KeyValueStore[Any, Any],
    StoreKind.TIMESTAMPED_KEY_VALUE: TimestampedKeyValueStore[Any, Any],
    StoreKind.LRU: LruStore[Any, Any],
    StoreKind.WINDOW: WindowStore[Any, Any],
    StoreKind.TIMESTAMPED_WINDOW: TimestampedWindowStore[Any, Any],
    StoreKind.SESSION: SessionStore[Any, Any],
    StoreKind.VERSIONED: VersionedStore[Any, Any],
}


def open_store(
    spec: StoreSpec,
    directory: Path | None = None,
    *,
    default_engine: EngineName = "in_memory",
    memory_budget: MemoryBudget | None = None,
    engine: Engine | None = None,
) -> Any:
    """Open one task's instance of a store; what it returns is the view of ``spec.kind``.

    ``memory_budget`` is shared with other stores; without one the store has one of its own.  An
    ``engine`` of the caller's is used as it is.  ``directory`` is the store's own, made if needed;
    without one the store is in memory, as are LRU stores and those declared so (``is_persistent``
    False, which also gives them the order of the reference's memory stores).

    Raises:
        StoreError: the spec lacks what its kind needs, or the directory cannot be opened.
    """
    _check(spec)
    budget = memory_budget or MemoryBudget()
    staged = StagedEngine(engine or _engine(spec, directory, default_engine, budget))
    try:
        store = _VIEWS[spec.kind](spec, staged, budget)
    except BaseException:
        staged.engine.close()
        raise
    budget.admit()
    return store


def is_on_disk(spec: StoreSpec, default_engine: EngineName) -> bool:
    """Tell whether the store is kept on disk if it gets a directory."""
    if spec.kind is StoreKind.LRU:
        return False
    return default_engine == "rocksdb" if spec.is_persistent is None else spec.is_persistent


def _engine(spec: StoreSpec, directory: Path | None, default_engine: EngineName, budget: MemoryBudget) -> Engine:
    if directory is None or not is_on_disk(spec, default_engine):
        return MemoryEngine()
    return RocksEngine.open(directory, budget.rocks())


def _check(spec: StoreSpec) -> None:
    kind = spec.kind
    if kind in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW):
        if spec.retention_ms < 0 or spec.window_size_ms < 0:
            raise StoreError(f"window store {spec.name!r}: give retention_ms and window_size_ms, both at least 0")
        if kind is StoreKind.TIMESTAMPED_WINDOW and spec.retain_duplicates:
            raise StoreError(f"window store {spec.name!r}: only a plain window store can retain duplicates")
    elif kind is StoreKind.SESSION and spec.retention_ms < 0:
        raise StoreError(f"session store {spec.name!r}: give retention_ms, at least 0")
    elif kind is StoreKind.VERSIONED and spec.history_ms < 0:
        raise StoreError(f"versioned store {spec.name!r}: give history_ms, at least 0")
