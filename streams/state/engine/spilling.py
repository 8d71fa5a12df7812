"""An engine that is in memory while it is small, and on disk from then on.

Opening, closing and deleting a database takes as long as some thousand writes to memory, which dominates the cost of
tasks with few entries.  Both engines return the same entries in the same order, so stores do not notice the move.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import define, field

from streams.state.engine.budget import MemoryBudget
from streams.state.engine.engines import Engine, EngineBatch, Statistic
from streams.state.engine.memory import ENTRY_OVERHEAD_BYTES, MemoryEngine
from streams.state.engine.rocksdb import RocksEngine

#: Estimated bytes of keys, values and overhead above which an engine moves to disk.
SMALL_BYTES = 1 << 20


@define(eq=False)
class SpillingEngine:
    """A memory engine that becomes a database in the directory ``path`` when it has more than ``SMALL_BYTES``.

    It also moves to disk if the share of ``budget`` for all in-memory engines of the process is used up.  In metrics,
    its type is ``rocksdb`` in both cases.
    """

    type_name = "rocksdb"

    path: Path
    _budget: MemoryBudget
    _engine: Engine = field(factory=MemoryEngine)
    #: Bytes written since the size was last measured, which are at least the growth since then.
    _bytes: int = 0
    _is_small: bool = True

    def get(self, namespace: int, key: bytes) -> bytes | None:
        return self._engine.get(namespace, key)

    def scan(
        self, namespace: int, low: bytes | None, high: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a range."""
        return self._engine.scan(namespace, low, high, reverse)

    def apply(self, batch: EngineBatch) -> None:
        """Apply all writes of ``batch`` atomically.

        Raises:
            StoreError: the database cannot be opened or written.
        """
        if self._is_small:
            size = sum(_bytes_of(writes.items()) for writes in batch.writes.values())
            if not self._fits(size):
                self._spill()
        self._engine.apply(batch)

    def _fits(self, size: int) -> bool:
        """Return whether ``size`` more bytes fit in memory; if so, reserve them in the memory budget."""
        if self._bytes + size > SMALL_BYTES:
            # Entries that were overwritten have been counted more than once.
            self._count(sum(_bytes_of(self._engine.scan(number, None, None)) for number in self._engine.namespaces()))
        return self._bytes + size <= SMALL_BYTES and self._count(self._bytes + size)

    def _count(self, size: int) -> bool:
        if not self._budget.take_small(size - self._bytes):
            return False
        self._bytes = size
        return True

    def _spill(self) -> None:
        """Move all entries to a database."""
        database = RocksEngine.open(self.path, self._budget.rocks())
        small = self._engine
        self._engine = database
        self._is_small = False
        for number in small.namespaces():
            database.apply(EngineBatch(writes={number: dict(small.scan(number, None, None))}))
        database.apply(EngineBatch(metadata=small.metadata()))
        small.close()
        self._count(0)

    def load(self, namespace: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> int | None:
        """Queue writes that the next ``apply`` makes, if the engine is a database in bulk mode."""
        return self._engine.load(namespace, keys, values)

    def metadata(self) -> dict[str, bytes]:
        return self._engine.metadata()

    def namespaces(self) -> list[int]:
        return self._engine.namespaces()

    def approximate_count(self) -> int:
        """Return the number of entries, which is an estimate on disk."""
        return self._engine.approximate_count()

    def properties(self) -> dict[str, int]:
        return self._engine.properties()

    def statistics(self) -> Mapping[str, Statistic]:
        """Return statistics since the database was opened; empty in memory."""
        return self._engine.statistics()

    def memory_bytes(self) -> int:
        return self._bytes if self._is_small else self._engine.memory_bytes()

    def set_bulk(self, is_bulk: bool) -> None:
        """Enter or leave bulk mode, which has an effect on disk only.

        Raises:
            StoreError: the database cannot be reopened.
        """
        self._engine.set_bulk(is_bulk)

    def close(self) -> None:
        """Release all resources; entries in memory are dropped."""
        self._count(0)
        self._engine.close()


def _bytes_of(entries: Iterable[tuple[bytes, bytes | None]]) -> int:
    return sum(ENTRY_OVERHEAD_BYTES + len(key) + len(value or b"") for key, value in entries)
