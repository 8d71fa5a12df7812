"""The memory budget shared by all stores of a process.

The budget is the setting ``state_memory_max_bytes``, divided among record caches, uncommitted writes, read caches, and
RocksDB's block cache and memtables.  The entries of in-memory stores are not counted. The budget is thread-safe.
"""

import threading

from attrs import define, field

from streams.core.settings.config import SETTINGS
from streams.state.engine.rocksdb import RocksMemory

#: Shares of the memory that is not used by record caches: RocksDB, uncommitted writes and read caches. The remainder
#: covers compactions and allocator overhead.
_ROCKSDB_SHARE = 0.3
_UNCOMMITTED_SHARE = 0.35
_READ_SHARE = 0.25
#: Fraction of the uncommitted-writes share that is reserved for stores being restored.
_RESTORING_SHARE = 0.125
#: Minimum number of entries of a read cache.
_LEAST_ENTRIES = 4


@define(eq=False)
class MemoryBudget:
    """The memory budget for all stores of a process, of which ``record_cache_bytes`` are for record caches.

    Each share has a minimum: 1 MiB for RocksDB, four entries per read cache, and one uncommitted entry.
    """

    max_bytes: int = SETTINGS["state_memory_max_bytes"].default
    record_cache_bytes: int = 0
    #: Whether databases collect statistics, which slows them.
    has_statistics: bool = False
    _open_stores: int = 0
    #: Bytes of the engines that are in memory because they are small.
    _small_bytes: int = 0
    _rocks: RocksMemory | None = None
    _lock: threading.Lock = field(factory=threading.Lock)

    @property
    def _divided_bytes(self) -> int:
        return max(0, self.max_bytes - self.record_cache_bytes)

    @property
    def uncommitted_bytes(self) -> int:
        """The limit in bytes for uncommitted writes across all tasks; above this limit, tasks commit early."""
        return int(self._divided_bytes * _UNCOMMITTED_SHARE * (1 - _RESTORING_SHARE))

    @property
    def restoring_bytes(self) -> int:
        """The limit in bytes for uncommitted writes in restoring and standby stores; above it, they are committed."""
        return int(self._divided_bytes * _UNCOMMITTED_SHARE * _RESTORING_SHARE)

    def rocks(self) -> RocksMemory:
        """Return the memory shared by all databases, created on first use."""
        with self._lock:
            if self._rocks is None:
                self._rocks = RocksMemory.of(
                    int(self._divided_bytes * _ROCKSDB_SHARE), has_statistics=self.has_statistics
                )
            return self._rocks

    def take_small(self, size: int) -> bool:
        """Reserve ``size`` bytes for a ``SpillingEngine`` that is in memory; return False if the limit is exceeded.

        The limit for all these engines together is RocksDB's share of the budget.  A negative size releases bytes.
        """
        with self._lock:
            if size > 0 and self._small_bytes + size > self._divided_bytes * _ROCKSDB_SHARE:
                return False
            self._small_bytes += size
            return True

    def admit(self) -> None:
        """Count an opened store, which reduces the share of every store in the read-cache memory."""
        with self._lock:
            self._open_stores += 1

    def dismiss(self) -> None:
        """Stop counting a store, because it was closed."""
        with self._lock:
            self._open_stores -= 1

    def read_entries(self, entry_bytes: int) -> int:
        """Return how many entries of ``entry_bytes`` bytes the read cache of one store may hold."""
        share = int(self._divided_bytes * _READ_SHARE)
        return max(_LEAST_ENTRIES, share // max(1, self._open_stores) // entry_bytes)
