"""The engine interface of stores: a sorted map of bytes, divided into numbered namespaces.

There is an in-memory implementation and one based on RocksDB. A namespace is a time segment in windowed stores
and always 0 in other stores. An engine is written only at commit, in one atomic batch that also contains the
changelog positions (KIP-1035). This module imports no other module of the package.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from attrs import define, field, frozen


@define(eq=False)
class EngineBatch:
    """An atomic batch of writes.

    The parts are applied in this order: ``dropped`` namespaces are emptied, ``writes`` are applied (None deletes
    an entry), and ``metadata`` is merged into the metadata of the engine.
    """

    dropped: list[int] = field(factory=list)
    writes: dict[int, dict[bytes, bytes | None]] = field(factory=dict)
    metadata: dict[str, bytes] = field(factory=dict)


@frozen
class Statistic:
    """A statistic of an engine: a counter, or the count, sum and largest value of a histogram."""

    count: int
    total: int = 0
    highest: float = 0


class Engine(Protocol):
    """A sorted map of (namespace, bytes) to bytes."""

    #: The type in the names of metrics, as in Kafka Streams: ``rocksdb`` or ``in-memory``.
    type_name: str

    def get(self, namespace: int, key: bytes) -> bytes | None:
        """Return the value of ``key`` in a namespace, or None if there is none."""
        ...

    def scan(
        self, namespace: int, low: bytes | None, high: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) in a namespace with ``low <= key < high`` in byte order; None means unbounded.

        The engine may be written to during the scan; entries already yielded are unaffected.
        """
        ...

    def apply(self, batch: EngineBatch) -> None:
        """Apply all writes of ``batch`` atomically."""
        ...

    def load(self, namespace: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> int | None:
        """Queue writes that the next ``apply`` makes before its own; reads do not see them until then.

        Return the estimated size of the writes in bytes, or None if the engine has no faster path than ``apply``.
        """
        ...

    def metadata(self) -> dict[str, bytes]:
        """Return the metadata in the engine, merged from all applied batches."""
        ...

    def namespaces(self) -> list[int]:
        """Return the namespaces that may hold entries, in ascending order."""
        ...

    def approximate_count(self) -> int:
        """Return the estimated number of entries, which is exact for the memory engine."""
        ...

    def properties(self) -> dict[str, int]:
        """Return current property values by metric name, or nothing if the engine is closed; thread-safe."""
        ...

    def statistics(self) -> Mapping[str, Statistic]:
        """Return statistics since the engine was opened, by RocksDB's names; empty if none are collected."""
        ...

    def memory_bytes(self) -> int:
        """Return the estimated memory use of the engine in bytes."""
        ...

    def set_bulk(self, is_bulk: bool) -> None:
        """Enter or leave bulk mode, which is for many writes and few reads; writes already applied are kept.

        Raises:
            StoreError: the engine cannot be reopened.
        """
        ...

    def close(self) -> None:
        """Release all resources; a persistent engine keeps the applied writes."""
        ...


def next_prefix(prefix: bytes) -> bytes | None:
    """Return the lowest key above all keys that start with ``prefix``, or None if no such key exists."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
