"""The memory budget of all stores of a process, and its shares.

Divides the setting ``state_memory_max_bytes`` among record caches, uncommitted writes, read caches, and RocksDB's
block cache and memtables.  Excludes the entries of in-memory stores.  Thread-safe.
"""

import threading

from attrs import define, field

from streams.core.config import SETTINGS
from streams.state.rocksdb import RocksMemory

#: Shares of what record caches leave: for RocksDB, uncommitted writes and reads.  The rest is for
#: compactions and allocator overhead.
_ROCKSDB_SHARE = 0.3
_WAITING_SHARE = 0.35
_READ_SHARE = 0.25
#: Share of uncommitted writes for stores that are being restored.
_RESTORING_SHARE = 0.125
#: Minimum number of entries of a read cache.
_LEAST_ENTRIES = 4


@define(eq=False)
class MemoryBudget:
    """The memory budget of one process's stores; ``record_cache_bytes`` of it are for record caches.

    Shares have minimums: 1 MiB for RocksDB, four entries for each
    read cache, one uncommitted entry.
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
        """Bytes of uncommitted writes in the stores of all tasks above which to commit early."""
        return int(self._divided_bytes * _WAITING_SHARE * (1 - _RESTORING_SHARE))

    @property
    def restoring_bytes(self) -> int:
        """Bytes of uncommitted writes in restored and standby stores above which to commit."""
        return int(self._divided_bytes * _WAITING_SHARE * _RESTORING_SHARE)

    def rocks(self) -> RocksMemory:
        """Return the memory shared by all databases, created on first use."""
        with self._lock:
            if self._rocks is None:
                self._rocks = RocksMemory.of(int(self._divided_bytes * _ROCKSDB_SHARE))
            return self._rocks

    def admit(self) -> None:
        """Count an opened store: the read-cache share of each store shrinks."""
        with self._lock:
            self._open_stores += 1

    def dismiss(self) -> None:
        """Stop counting a closed store."""
        with self._lock:
            self._open_stores -= 1

    def read_entries(self, entry_bytes: int) -> int:
        """Return the number of entries of this size that one store's read cache may hold."""
        share = int(self._divided_bytes * _READ_SHARE)
        return max(_LEAST_ENTRIES, share // max(1, self._open_stores) // entry_bytes)
