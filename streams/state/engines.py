"""The engine interface of stores: a sorted map of bytes, divided into numbered namespaces.

There is an in-memory implementation and one based on RocksDB. A namespace is a time segment in windowed stores
and always 0 in other stores. An engine is written only at commit, in one atomic batch that also contains the
changelog positions (KIP-1035). Imports no other module of the package.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from attrs import define, field


@define(eq=False)
class EngineBatch:
    """An atomic batch of writes.

    The parts are applied in this order: ``dropped`` namespaces are emptied, ``writes`` are applied (None deletes
    an entry), and ``metadata`` is merged into the metadata of the engine.
    """

    dropped: list[int] = field(factory=list)
    writes: dict[int, dict[bytes, bytes | None]] = field(factory=dict)
    metadata: dict[str, bytes] = field(factory=dict)


class Engine(Protocol):
    """A sorted map of (namespace, bytes) to bytes."""

    #: The type in the names of metrics, as in Kafka Streams: ``rocksdb`` or ``in-memory``.
    type_name: str

    def get(self, namespace: int, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None if there is none."""
        ...

    def scan(
        self, namespace: int, low: bytes | None, high: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with ``low <= key < high`` in byte order; a bound of None is open.

        The engine may be written to during the scan; entries already read are unaffected.
        """
        ...

    def apply(self, batch: EngineBatch) -> None:
        """Apply all writes of ``batch`` atomically."""
        ...

    def load(self, namespace: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> int | None:
        """Queue writes that the next ``apply`` makes before its own; reads do not see the writes until then.

        Return the estimated size of the writes in bytes, or None if the engine has no faster path than ``apply``.
        """
        ...

    def metadata(self) -> dict[str, bytes]:
        """Return the merged metadata of all batches in the engine."""
        ...

    def namespaces(self) -> list[int]:
        """Return the namespaces that may hold entries, in ascending order."""
        ...

    def approximate_count(self) -> int:
        """Return the estimated number of entries, which is exact for the memory engine."""
        ...

    def properties(self) -> dict[str, int]:
        """Return current values by metric name, none if the engine is closed; may be called from any thread."""
        ...

    def memory_bytes(self) -> int:
        """Return the estimated memory use of the engine in bytes."""
        ...

    def set_bulk(self, is_bulk: bool) -> None:
        """Enter or leave bulk mode, which is for many writes and few reads; applied writes are kept.

        Raises:
            StoreError: the engine cannot be reopened.
        """
        ...

    def close(self) -> None:
        """Release all resources; a persistent engine keeps applied writes."""
        ...


def next_prefix(prefix: bytes) -> bytes | None:
    """Return the lowest key above all keys that start with ``prefix``, or None if no such key exists."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
