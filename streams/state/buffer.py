"""The object-level front of a store: what was put since the last push, and recent reads.

A point read or write costs one dict.  ``fresh`` holds what the staged writes do not know yet,
in the order of each slot's last change; the rest is a bounded cache of two generations.
The dict ``fresh`` is never replaced, so that views may hold it.  ``max_clean`` 0 caches nothing.
"""

from typing import Any

from attrs import define, field

from streams.core.errors import StoreClosedError
from streams.state.forms import ABSENT


@define(eq=False)
class WriteBuffer:
    """Held forms of entries by slot; None is a deleted entry."""

    max_clean: int
    fresh: dict[Any, Any] = field(factory=dict)
    clean: dict[Any, Any] = field(factory=dict)
    _older: dict[Any, Any] = field(factory=dict)

    def cached(self, slot: Any) -> Any:
        """Return a clean entry, ``ABSENT`` if it is not cached."""
        entry = self.clean.get(slot, ABSENT)
        if entry is ABSENT and self._older:
            entry = self._older.pop(slot, ABSENT)
            if entry is not ABSENT:
                self.remember(slot, entry)
        return entry

    def remember(self, slot: Any, entry: Any) -> None:
        """Cache an entry that staged writes or engine know."""
        if not self.max_clean:
            return
        clean = self.clean
        if len(clean) >= self.max_clean:
            self._rotate()
            clean = self.clean
        clean[slot] = entry

    def _rotate(self) -> None:
        """Start a new generation; what is not read again within one goes."""
        self._older = self.clean
        self.clean = {}

    def take_fresh(self) -> tuple[list[Any], list[Any]]:
        """Hand over slots and forms of all fresh entries, which are clean from now on."""
        fresh = self.fresh
        slots, entries = list(fresh), list(fresh.values())
        if not self.max_clean:
            fresh.clear()
            return slots, entries
        if self._older:
            for slot in fresh:
                self._older.pop(slot, None)
        if len(self.clean) + len(slots) > self.max_clean:
            self._rotate()
            for slot in fresh:
                self._older.pop(slot, None)
        if len(slots) <= self.max_clean:
            self.clean.update(fresh)
        else:
            self.clean.update(zip(slots[-self.max_clean :], entries[-self.max_clean :], strict=True))
        fresh.clear()
        return slots, entries

    def forget_clean(self) -> None:
        """Drop the read cache."""
        self.clean = {}
        self._older = {}

    def close(self, store: str) -> None:
        """Make every later use raise StoreClosedError."""
        self.fresh = _Closed(store)
        self.forget_clean()


class _Closed(dict[Any, Any]):
    """Stands where the entries were."""

    def __init__(self, store: str) -> None:
        super().__init__()
        self._store = store

    def _raise(self, *_: object) -> Any:
        raise StoreClosedError(f"store {self._store!r} was closed when its task was given up; ask for it again")

    get = __contains__ = __getitem__ = __setitem__ = __delitem__ = items = clear = __iter__ = _raise
