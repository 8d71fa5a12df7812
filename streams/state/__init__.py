"""State stores: specs, engines, hot state and typed views. The package does not depend on topics."""

from streams.state.budget import MemoryBudget
from streams.state.cache import RecordCache, Section
from streams.state.directory import StateDirectory
from streams.state.engines import EngineBatch
from streams.state.entries import ValueAndTimestamp
from streams.state.formats import Content, StoreFormat, advice
from streams.state.keyvalue import KeyValueStore, TimestampedKeyValueStore
from streams.state.kinds import (
    KEY_VALUE,
    LRU,
    SESSION,
    TIMESTAMPED_KEY_VALUE,
    TIMESTAMPED_WINDOW,
    VERSIONED,
    WINDOW,
    built_in_kind,
)
from streams.state.lifecycle import KEY_TYPE, VALUE_TYPE, Store
from streams.state.lru import LruStore
from streams.state.memory import MemoryEngine
from streams.state.opening import EngineName, is_on_disk, open_store
from streams.state.session import SessionStore
from streams.state.specs import Family, InPlace, StoreKind, StoreSpec, TableReads
from streams.state.versioned import NOT_PUT, VALID_TO_UNDEFINED, VersionedRecord, VersionedStore
from streams.state.window import TimestampedWindowStore, WindowStore
from streams.state.windowed_keys import MAX_TIME, session_parts, window_parts

__all__ = [
    "Content",
    "EngineBatch",
    "EngineName",
    "Family",
    "InPlace",
    "KEY_TYPE",
    "KEY_VALUE",
    "KeyValueStore",
    "LRU",
    "LruStore",
    "MAX_TIME",
    "MemoryBudget",
    "MemoryEngine",
    "NOT_PUT",
    "RecordCache",
    "SESSION",
    "Section",
    "SessionStore",
    "StateDirectory",
    "Store",
    "StoreKind",
    "StoreFormat",
    "StoreSpec",
    "TIMESTAMPED_KEY_VALUE",
    "TIMESTAMPED_WINDOW",
    "TableReads",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "VALID_TO_UNDEFINED",
    "VALUE_TYPE",
    "VERSIONED",
    "ValueAndTimestamp",
    "VersionedRecord",
    "VersionedStore",
    "WINDOW",
    "WindowStore",
    "advice",
    "built_in_kind",
    "is_on_disk",
    "open_store",
    "session_parts",
    "window_parts",
]
