"""Sorted bytes in memory: the memory engine, and the sorted map that the staged writes also use.

A point read costs one dict lookup. Keys are sorted at the first scan and kept sorted afterwards. Dropping a
namespace drops one dict. This module imports only ``state.engine.engines``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from attrs import define, field
from sortedcontainers import SortedList

from streams.state.engine.engines import EngineBatch, Statistic

V = TypeVar("V")

#: Overhead of one entry: two bytes objects and a dict slot.
ENTRY_OVERHEAD_BYTES = 150

#: If more than one key in this many is unsorted, sorting all keys is cheaper than inserting keys one by one.
_RESORT_SHARE = 8


@define(eq=False)
class SortedBytes(Generic[V]):
    """A dict with bytes keys that are sorted lazily."""

    entries: dict[bytes, V] = field(factory=dict)
    _order: "SortedList[bytes] | None" = None
    _unsorted: set[bytes] = field(factory=set)

    def put(self, key: bytes, value: V) -> None:
        """Replace or add an entry; keys are sorted only when a range is read."""
        entries = self.entries
        if self._order is not None and key not in entries:
            self._unsorted.add(key)
        entries[key] = value

    def put_all(self, keys: Sequence[bytes], values: Sequence[V]) -> None:
        """Set the values of several keys, in the given order."""
        if self._order is None:
            self.entries.update(zip(keys, values, strict=True))
            return
        put = self.put
        for key, value in zip(keys, values, strict=True):
            put(key, value)

    def remove(self, key: bytes) -> None:
        """Remove ``key`` if it is present."""
        if key not in self.entries:
            return
        del self.entries[key]
        if key in self._unsorted:
            self._unsorted.remove(key)
        elif self._order is not None:
            self._order.discard(key)

    def _sorted(self) -> "SortedList[bytes]":
        order, unsorted = self._order, self._unsorted
        if order is None or len(unsorted) * _RESORT_SHARE > len(order):
            order = self._order = SortedList(self.entries)
            unsorted.clear()
        elif unsorted:
            order.update(unsorted)
            unsorted.clear()
        return order

    def range(self, low: bytes | None, high: bytes | None, reverse: bool) -> list[tuple[bytes, V]]:
        """Return the current entries with ``low <= key < high``, in order."""
        entries = self.entries
        if not entries:
            return []
        keys = self._sorted().irange(low, high, (True, False), reverse)
        return [(key, entries[key]) for key in keys]


@define(eq=False)
class MemoryEngine:
    """An engine in process memory, without persistence."""

    type_name = "in-memory"

    _namespaces: dict[int, SortedBytes[bytes]] = field(factory=dict)
    _metadata: dict[str, bytes] = field(factory=dict)
    _bytes: int = 0

    def get(self, namespace: int, key: bytes) -> bytes | None:
        space = self._namespaces.get(namespace)
        return None if space is None else space.entries.get(key)

    def scan(
        self, namespace: int, low: bytes | None, high: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a range as they are at the time of the call."""
        space = self._namespaces.get(namespace)
        return iter(()) if space is None else iter(space.range(low, high, reverse))

    def apply(self, batch: EngineBatch) -> None:
        for namespace in batch.dropped:
            dropped = self._namespaces.pop(namespace, None)
            if dropped is not None:
                self._bytes -= len(dropped.entries) * ENTRY_OVERHEAD_BYTES
        for namespace, writes in batch.writes.items():
            self._write(namespace, writes)
        self._metadata.update(batch.metadata)

    def _write(self, namespace: int, writes: dict[bytes, bytes | None]) -> None:
        space = self._namespaces.get(namespace)
        if space is None:
            space = self._namespaces[namespace] = SortedBytes()
        before = len(space.entries)
        put, remove = space.put, space.remove
        for key, value in writes.items():
            if value is None:
                remove(key)
            else:
                put(key, value)
        self._bytes += (len(space.entries) - before) * ENTRY_OVERHEAD_BYTES
        if not space.entries:
            del self._namespaces[namespace]

    def metadata(self) -> dict[str, bytes]:
        """Return a copy of the merged metadata of all batches."""
        return dict(self._metadata)

    def namespaces(self) -> list[int]:
        return sorted(self._namespaces)

    def approximate_count(self) -> int:
        return sum(len(space.entries) for space in self._namespaces.values())

    def properties(self) -> dict[str, int]:
        """Return the number of keys by metric name."""
        return {"estimate-num-keys": sum(len(space.entries) for space in list(self._namespaces.values()))}

    def statistics(self) -> Mapping[str, Statistic]:
        """Return an empty mapping, because the engine collects no statistics."""
        return {}

    def memory_bytes(self) -> int:
        """Return the estimated memory overhead of all entries in bytes, excluding their keys and values."""
        return self._bytes

    def load(self, namespace: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> int | None:
        """Return None, because there is no faster path than ``apply``."""
        return None

    def set_bulk(self, is_bulk: bool) -> None:
        """Do nothing, because bulk mode has no effect in memory."""

    def close(self) -> None:
        """Drop all entries."""
        self._namespaces.clear()
        self._metadata.clear()
        self._bytes = 0
