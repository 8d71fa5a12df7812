"""State stores: specs, engines, hot state, typed views; knowing nothing of topics."""

from streams.state.budget import MemoryBudget
from streams.state.cache import RecordCache
from streams.state.directory import StateDirectory
from streams.state.entries import ValueAndTimestamp
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
from streams.state.lifecycle import Store
from streams.state.lru import LruStore
from streams.state.notes import Content, StoreNote
from streams.state.opening import EngineName, is_on_disk, open_store
from streams.state.session import SessionStore
from streams.state.specs import Family, StoreKind, StoreSpec, TableReads
from streams.state.versioned import NOT_PUT, VALID_TO_UNDEFINED, VersionedRecord, VersionedStore
from streams.state.window import TimestampedWindowStore, WindowStore

__all__ = [
    "KEY_VALUE",
    "LRU",
    "NOT_PUT",
    "SESSION",
    "TIMESTAMPED_KEY_VALUE",
    "TIMESTAMPED_WINDOW",
    "VALID_TO_UNDEFINED",
    "VERSIONED",
    "WINDOW",
    "Content",
    "EngineName",
    "Family",
    "KeyValueStore",
    "LruStore",
    "MemoryBudget",
    "RecordCache",
    "SessionStore",
    "StateDirectory",
    "Store",
    "StoreKind",
    "StoreNote",
    "StoreSpec",
    "TableReads",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "ValueAndTimestamp",
    "VersionedRecord",
    "VersionedStore",
    "WindowStore",
    "built_in_kind",
    "is_on_disk",
    "open_store",
]
