"""The memory budget shared by all stores of a process.

Divides the setting ``state_memory_max_bytes`` among record caches, uncommitted writes, read caches, and RocksDB's
block cache and memtables.  The entries of in-memory stores are not counted. Thread-safe.
"""

import threading

from attrs import define, field

from streams.core.config import SETTINGS
from streams.state.rocksdb import RocksMemory

#: Shares of the memory that is not used by record caches: RocksDB, uncommitted writes and read caches. The remainder
#: covers compactions and allocator overhead.
_ROCKSDB_SHARE = 0.3
_WAITING_SHARE = 0.35
_READ_SHARE = 0.25
#: Fraction of the uncommitted-writes share that is reserved for stores being restored.
_RESTORING_SHARE = 0.125
#: Minimum number of entries of a read cache.
_LEAST_ENTRIES = 4


@define(eq=False)
class MemoryBudget:
    """The memory budget of one process's stores, of which ``record_cache_bytes`` are for record caches.

    Each share has a minimum: 1 MiB for RocksDB, four entries per read cache, and one uncommitted entry.
    """

    max_bytes: int = SETTINGS["state_memory_max_bytes"].default
    record_cache_bytes: int = 0
    _open_stores: int = 0
    _rocks: RocksMemory | None = None
    _lock: threading.Lock = field(factory=threading.Lock)

    @property
    def _divided_bytes(self) -> int:
        return max(0, self.max_bytes - self.record_cache_bytes)

    @property
    def waiting_bytes(self) -> int:
        """Limit in bytes for uncommitted writes across all tasks; above it, tasks commit early."""
        return int(self._divided_bytes * _WAITING_SHARE * (1 - _RESTORING_SHARE))

    @property
    def restoring_bytes(self) -> int:
        """Limit in bytes for uncommitted writes in restoring and standby stores; above it, they are committed."""
        return int(self._divided_bytes * _WAITING_SHARE * _RESTORING_SHARE)

    def rocks(self) -> RocksMemory:
        """Return the memory shared by all databases, created on first use."""
        with self._lock:
            if self._rocks is None:
                self._rocks = RocksMemory.of(int(self._divided_bytes * _ROCKSDB_SHARE))
            return self._rocks

    def admit(self) -> None:
        """Count an opened store, which reduces the read-cache share of every store."""
        with self._lock:
            self._open_stores += 1

    def dismiss(self) -> None:
        """Stop counting a closed store."""
        with self._lock:
            self._open_stores -= 1

    def read_entries(self, entry_bytes: int) -> int:
        """Return how many entries of the given size one store's read cache may hold."""
        share = int(self._divided_bytes * _READ_SHARE)
        return max(_LEAST_ENTRIES, share // max(1, self._open_stores) // entry_bytes)
