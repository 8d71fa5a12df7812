"""The engine interface of stores: a sorted map of bytes, divided into numbered namespaces.

Implemented in memory and by RocksDB.  A namespace is a time segment for the windowed kinds and 0 for
the others.  An engine is written only at commit, by one atomic batch that also has the positions
(KIP-1035).  Imports no other module of the package.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from attrs import define, field


@define(eq=False)
class EngineBatch:
    """An atomic batch of writes.

    Applied in this order: ``dropped`` namespaces are emptied, then ``writes`` are made
    (None deletes), then ``metadata`` is merged into what the engine holds.
    """

    dropped: list[int] = field(factory=list)
    writes: dict[int, dict[bytes, bytes | None]] = field(factory=dict)
    metadata: dict[str, bytes] = field(factory=dict)


class Engine(Protocol):
    """A sorted map of (namespace, bytes) to bytes."""

    def get(self, namespace: int, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None."""
        ...

    def scan(
        self, namespace: int, low: bytes | None, high: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with ``low <= key < high`` in byte order; None is an open end.

        The engine may be written to during the scan; entries already read are unaffected.
        """
        ...

    def apply(self, batch: EngineBatch) -> None:
        """Apply all writes of ``batch`` atomically."""
        ...

    def load(self, namespace: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> int | None:
        """Queue writes that the next ``apply`` makes before its own; they are invisible to reads until then.

        Return their estimated size in bytes, None if the engine has no faster path than ``apply``.
        """
        ...

    def metadata(self) -> dict[str, bytes]:
        """Return the metadata merged over all durable batches."""
        ...

    def namespaces(self) -> list[int]:
        """Return the namespaces that may hold entries, ascending."""
        ...

    def approximate_count(self) -> int:
        """Return the estimated number of entries, exact for the memory engine."""
        ...

    def memory_bytes(self) -> int:
        """Return the estimated memory of the engine in bytes."""
        ...

    def set_bulk(self, is_bulk: bool) -> None:
        """Enter or leave bulk mode, for many writes and few reads; applied writes are kept.

        Raises:
            StoreError: the engine cannot be reopened.
        """
        ...

    def close(self) -> None:
        """Release all resources; a persistent engine keeps applied writes."""
        ...


def next_prefix(prefix: bytes) -> bytes | None:
    """Return the lowest bytes above everything that starts with ``prefix``; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
