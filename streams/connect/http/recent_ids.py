"""The ids of requests that are in the topic, for as long as they are remembered.

Pure: the ids of one transaction are one entry among the positions of the source, so that they are written with the
records, and a start finds them again.
"""

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from uuid import uuid4

from attrs import define, field

from streams.connect.protocol import Position


def digest(text: str) -> str:
    """Return a short text in place of an id of any length; two ids have the same one with probability 2^-128."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


@define(eq=False)
class RecentIds:
    """The ids of the last ``limit`` requests, for ``remember_ms`` milliseconds at most."""

    remember_ms: int
    limit: int
    #: When the requests of a transaction were read, and their ids, by the name of its entry; oldest first.
    _entries: dict[str, tuple[int, Collection[str]]] = field(factory=dict, init=False)
    _count: int = field(default=0, init=False)

    def load(self, positions: Mapping[str, Position]) -> list[str]:
        """Start with stored entries; return all ids."""
        self._entries = {}
        self._count = 0
        for name, position in sorted(positions.items(), key=lambda item: int(item[1]["at_ms"])):
            self._add(name, position)
        return [stored for _, ids in self._entries.values() for stored in ids]

    def entry(self, ids: Iterable[str], now_ms: int) -> tuple[str, Position]:
        """Return name and content of the entry for the ids of a transaction."""
        return uuid4().hex, {"at_ms": now_ms, "ids": list(ids)}

    def outdated(self, now_ms: int, added: int) -> list[str]:
        """Return the names of the entries to forget, if ``added`` ids come to them."""
        names = []
        left = self._count + added
        for name, (at_ms, ids) in self._entries.items():
            if left <= self.limit and at_ms > now_ms - self.remember_ms:
                break
            names.append(name)
            left -= len(ids)
        return names

    def committed(self, positions: Mapping[str, Position]) -> list[str]:
        """Add and forget the entries of a transaction; return the ids that were forgotten."""
        forgotten: list[str] = []
        for name, position in positions.items():
            if position is not None:
                self._add(name, position)
            elif name in self._entries:
                _, ids = self._entries.pop(name)
                self._count -= len(ids)
                forgotten += ids
        return forgotten

    def _add(self, name: str, position: Position) -> None:
        self._entries[name] = int(position["at_ms"]), tuple(position["ids"])
        self._count += len(position["ids"])
