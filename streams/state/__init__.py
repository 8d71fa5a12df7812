"""State stores: specs, engines, hot state, typed views; knowing nothing of topics."""

from streams.state.budget import MemoryBudget
from streams.state.cache import RecordCache
from streams.state.directory import StateDirectory
from streams.state.keyvalue import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from streams.state.lifecycle import Store
from streams.state.lru import LruStore
from streams.state.notes import Content, StoreNote
from streams.state.opening import EngineName, is_on_disk, open_store
from streams.state.session import SessionStore
from streams.state.specs import StoreKind, StoreSpec
from streams.state.versioned import NOT_PUT, VALID_TO_UNDEFINED, VersionedRecord, VersionedStore
from streams.state.window import TimestampedWindowStore, WindowStore

__all__ = [
    "NOT_PUT",
    "VALID_TO_UNDEFINED",
    "Content",
    "EngineName",
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
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "ValueAndTimestamp",
    "VersionedRecord",
    "VersionedStore",
    "WindowStore",
    "is_on_disk",
    "open_store",
]
