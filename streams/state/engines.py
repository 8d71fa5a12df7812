"""The engine under every store: a sorted map of bytes, divided in numbered namespaces.

Between the staged writes of a store (above) and memory or RocksDB (below).  A namespace is
a segment of time for the windowed kinds and 0 for the others.  An engine is written only
at commit, by one atomic batch that also holds the positions (KIP-1035).  Imports nothing of ours.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from attrs import define, field


@define(eq=False)
class EngineBatch:
    """Writes that take effect together or not at all.

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

        The engine may be written to meanwhile: what was read already stays as it was.
        """
        ...

    def apply(self, batch: EngineBatch) -> None:
        """Make all writes of ``batch`` in one atomic step."""
        ...

    def load(self, namespace: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> int | None:
        """Take writes that the next ``apply`` makes before its own, and that no read sees until then.

        Return about how many bytes they take; None if it has no way for them that is faster than ``apply``.
        """
        ...

    def metadata(self) -> dict[str, bytes]:
        """Return the metadata of the last batch that survived, merged over all batches."""
        ...

    def namespaces(self) -> list[int]:
        """Return the namespaces that may hold entries, ascending."""
        ...

    def approximate_count(self) -> int:
        """Return about how many entries there are; exact for the memory engine."""
        ...

    def memory_bytes(self) -> int:
        """Return about how much memory the engine uses."""
        ...

    def set_bulk(self, is_bulk: bool) -> None:
        """Prepare for many writes and hardly a read, or for both again; what was applied stays.

        Raises:
            StoreError: the engine cannot be opened again.
        """
        ...

    def close(self) -> None:
        """Give up all resources; what was applied is kept if the engine is persistent."""
        ...


def next_prefix(prefix: bytes) -> bytes | None:
    """Return the lowest bytes above everything that starts with ``prefix``; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
