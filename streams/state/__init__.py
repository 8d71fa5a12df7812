"""State stores: specs, engines, the hot state and typed views.

The package does not depend on topics.
"""

from streams.state.budget import MemoryBudget as MemoryBudget
from streams.state.cache import RecordCache as RecordCache
from streams.state.cache import Section as Section
from streams.state.directory import StateDirectory as StateDirectory
from streams.state.engines import EngineBatch as EngineBatch
from streams.state.engines import Statistic as Statistic
from streams.state.entries import ValueAndTimestamp as ValueAndTimestamp
from streams.state.expiring import EXPIRING_KEY_VALUE as EXPIRING_KEY_VALUE
from streams.state.expiring import EXPIRING_TIMESTAMPED_KEY_VALUE as EXPIRING_TIMESTAMPED_KEY_VALUE
from streams.state.formats import Content as Content
from streams.state.formats import StoreFormat as StoreFormat
from streams.state.formats import advice as advice
from streams.state.hot import HotState as HotState
from streams.state.keyvalue import KEY_VALUE as KEY_VALUE
from streams.state.keyvalue import TIMESTAMPED_KEY_VALUE as TIMESTAMPED_KEY_VALUE
from streams.state.keyvalue import KeyValueStore as KeyValueStore
from streams.state.keyvalue import TimestampedKeyValueStore as TimestampedKeyValueStore
from streams.state.kinds import built_in_kind as built_in_kind
from streams.state.lifecycle import HEADER_PREFIX as HEADER_PREFIX
from streams.state.lifecycle import KEY_TYPE as KEY_TYPE
from streams.state.lifecycle import VALUE_TYPE as VALUE_TYPE
from streams.state.lifecycle import Store as Store
from streams.state.lifecycle import entries_with_headers as entries_with_headers
from streams.state.lru import LRU as LRU
from streams.state.lru import LruStore as LruStore
from streams.state.measured import MeasuredStore as MeasuredStore
from streams.state.memory import MemoryEngine as MemoryEngine
from streams.state.opening import EngineName as EngineName
from streams.state.opening import is_on_disk as is_on_disk
from streams.state.opening import open_store as open_store
from streams.state.session import SESSION as SESSION
from streams.state.session import SessionStore as SessionStore
from streams.state.specs import Family as Family
from streams.state.specs import InPlace as InPlace
from streams.state.specs import StoreKind as StoreKind
from streams.state.specs import StoreSpec as StoreSpec
from streams.state.specs import TableReads as TableReads
from streams.state.specs import Upgrades as Upgrades
from streams.state.spilling import SpillingEngine as SpillingEngine
from streams.state.versioned import NOT_PUT as NOT_PUT
from streams.state.versioned import VALID_TO_UNDEFINED as VALID_TO_UNDEFINED
from streams.state.versioned import VERSIONED as VERSIONED
from streams.state.versioned import VersionedRecord as VersionedRecord
from streams.state.versioned import VersionedStore as VersionedStore
from streams.state.window import TIMESTAMPED_WINDOW as TIMESTAMPED_WINDOW
from streams.state.window import WINDOW as WINDOW
from streams.state.window import TimestampedWindowStore as TimestampedWindowStore
from streams.state.window import WindowStore as WindowStore
from streams.state.windowed_keys import MAX_TIME as MAX_TIME
from streams.state.windowed_keys import session_parts as session_parts
from streams.state.windowed_keys import window_parts as window_parts
