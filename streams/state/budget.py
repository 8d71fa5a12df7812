"""One bound for the memory of all stores of a process, and how it is divided.

Between the setting ``state_memory_max_bytes`` and everything that holds state in memory for a time: record
caches, writes that wait for a commit, read caches, and RocksDB's blocks and memtables.  Not in it are the entries
of stores that are kept in memory: these are all there is of them.  Any thread may call it.
"""

import threading

from attrs import define, field

from streams.core.config import SETTINGS
from streams.state.rocksdb import RocksMemory

#: Of what record caches leave: for RocksDB, for writes that wait for a commit, and for reads.  The rest is what
#: compactions and the allocators take in addition.
_ROCKSDB_SHARE = 0.3
_WAITING_SHARE = 0.35
_READ_SHARE = 0.25
#: Of what waits for a commit: for the stores that are being restored.
_RESTORING_SHARE = 0.125
#: Entries that a read cache may hold in any case.
_LEAST_ENTRIES = 4


@define(eq=False)
class MemoryBudget:
    """Memory of the stores of one process; ``record_cache_bytes`` of it are for the record caches.

    Shares that would be too small to work with are a little more: a megabyte for RocksDB, four entries of each
    read cache, one entry that waits.
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
        """What may wait for a commit in the stores of all tasks; above it a commit is made early."""
        return int(self._divided_bytes * _WAITING_SHARE * (1 - _RESTORING_SHARE))

    @property
    def restoring_bytes(self) -> int:
        """What may wait to be written in the stores that are restored or followed."""
        return int(self._divided_bytes * _WAITING_SHARE * _RESTORING_SHARE)

    def rocks(self) -> RocksMemory:
        """Return what all databases share, made at the first call."""
        with self._lock:
            if self._rocks is None:
                self._rocks = RocksMemory.of(int(self._divided_bytes * _ROCKSDB_SHARE))
            return self._rocks

    def admit(self) -> None:
        """Note that a store was opened: each one's part of the read caches gets smaller."""
        with self._lock:
            self._open_stores += 1

    def dismiss(self) -> None:
        """Note that a store was closed."""
        with self._lock:
            self._open_stores -= 1

    def read_entries(self, entry_bytes: int) -> int:
        """Return how many entries of this size one store may hold for reads."""
        share = int(self._divided_bytes * _READ_SHARE)
        return max(_LEAST_ENTRIES, share // max(1, self._open_stores) // entry_bytes)
