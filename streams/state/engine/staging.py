"""Uncommitted writes on top of the engine, visible to every read.

The engine is written only at commit, so a store is never ahead of the committed positions. Of the other
packages, this module imports only ``core``.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge

from attrs import define, field
from sortedcontainers import SortedList

from streams.core.blocks.loops import bytes_in
from streams.state.engine.engines import Engine, EngineBatch
from streams.state.engine.memory import ENTRY_OVERHEAD_BYTES, SortedBytes


@define(eq=False)
class StagedEngine:
    """A view of an engine as it will be after the next commit."""

    engine: Engine
    #: Namespaces that may hold entries, staged or committed.
    namespaces: "SortedList[int]" = field(factory=SortedList)
    _staged: dict[int, SortedBytes[bytes | None]] = field(factory=dict)
    _dropped: set[int] = field(factory=set)
    _bytes: int = 0
    _has_loaded: bool = False

    def __attrs_post_init__(self) -> None:
        self.namespaces.update(self.engine.namespaces())

    def get(self, namespace: int, key: bytes) -> bytes | None:
        """Return the value of ``key`` that was last written, staged or committed, or None if there is none."""
        staged = self._staged.get(namespace)
        if staged is not None:
            value = staged.entries.get(key)
            if value is not None or key in staged.entries:
                return value
        if namespace in self._dropped:
            return None
        return self.engine.get(namespace, key)

    def put(self, namespace: int, key: bytes, value: bytes | None) -> None:
        """Stage a write; None deletes the key."""
        staged = self._staged.get(namespace)
        if staged is None:
            staged = self._staged[namespace] = SortedBytes()
            if namespace not in self.namespaces:
                self.namespaces.add(namespace)
        staged.put(key, value)
        self._bytes += ENTRY_OVERHEAD_BYTES + len(key) + (0 if value is None else len(value))

    def put_all(self, namespace: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Stage several writes to one namespace, in the given order."""
        staged = self._staged.get(namespace)
        if staged is None:
            staged = self._staged[namespace] = SortedBytes()
            if namespace not in self.namespaces:
                self.namespaces.add(namespace)
        staged.put_all(keys, values)
        self._bytes += bytes_in(keys) + bytes_in(values) + len(keys) * ENTRY_OVERHEAD_BYTES

    def load(self, namespace: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Apply restored writes in the given order; reads may not see the writes until the next commit."""
        # Apply the writes and removals that were staged earlier first.
        size = None if self._staged or self._dropped else self.engine.load(namespace, keys, values)
        if size is None:
            self.put_all(namespace, keys, values)
            return
        if namespace not in self.namespaces:
            self.namespaces.add(namespace)
        self._has_loaded = True
        self._bytes += size

    def drop(self, namespace: int) -> None:
        """Stage the removal of all entries of ``namespace``."""
        self._staged.pop(namespace, None)
        self._dropped.add(namespace)
        self.namespaces.discard(namespace)

    def scan(
        self, namespace: int, low: bytes | None, high: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with ``low <= key < high`` in byte order; staged writes take precedence."""
        staged = self._staged.get(namespace)
        over = staged.range(low, high, reverse) if staged is not None else []
        if namespace in self._dropped:
            return iter([(key, value) for key, value in over if value is not None])
        under = self.engine.scan(namespace, low, high, reverse)
        return _overlaid(over, under, reverse) if over else under

    def commit(self, metadata: Mapping[str, bytes]) -> None:
        """Write all staged writes and ``metadata`` to the engine in one batch."""
        writes = {namespace: staged.entries for namespace, staged in self._staged.items()}
        self.engine.apply(EngineBatch(sorted(self._dropped), writes, dict(metadata)))
        self._staged = {}
        self._dropped = set()
        self._bytes = 0
        self._has_loaded = False

    @property
    def has_writes(self) -> bool:
        """Whether there are staged writes that are not committed."""
        return bool(self._staged or self._dropped or self._has_loaded)

    def count(self) -> int:
        """Return the estimated number of entries, including staged ones."""
        count = self.engine.approximate_count()
        for namespace, staged in self._staged.items():
            for key, value in staged.entries.items():
                is_there = namespace not in self._dropped and self.engine.get(namespace, key) is not None
                count += (value is not None) - is_there
        return max(count, 0)

    def has_entries(self) -> bool:
        """Return whether there are any entries, committed or staged."""
        return any(next(self.scan(namespace, None, None), None) is not None for namespace in self.namespaces)

    def staged_bytes(self) -> int:
        """Return the estimated size of the staged writes in bytes."""
        return self._bytes


def _overlaid(
    over: list[tuple[bytes, bytes | None]], under: Iterator[tuple[bytes, bytes]], reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Merge two ordered ranges; entries in ``over`` take precedence, and a value of None hides the key."""
    last: bytes | None = None
    # The merge is stable, so of equal keys the staged one comes first.
    for key, value in merge(over, under, key=_key, reverse=reverse):
        if key == last:
            continue
        last = key
        if value is not None:
            yield key, value


def _key(row: tuple[bytes, bytes | None]) -> bytes:
    return row[0]
