"""The hot state of a store, which serves point reads and writes.

``dirty`` contains the entries that are not staged yet, in the order in which their slots last changed. ``clean``
is a bounded read cache of two generations. Views and inlined operators read the fields directly; only the methods
below, the forms and the views of this package write the fields. Of the other packages, this module imports only
``core``.
"""

from collections.abc import Sequence
from typing import Any

from attrs import define, field

from streams.core.errors import StoreClosedError


class Absent:
    """The type of ``ABSENT``, which marks a missing entry."""


#: Result of ``HotState.cached`` for a slot without a clean entry; a result of None is a deleted entry.
ABSENT = Absent()


@define(eq=False)
class HotState:
    """Entries by slot (the in-memory form of a key), and the types that need no conversion.

    A point read or write costs one dict operation: a key of exactly ``key_type`` is its own slot, and a value of
    exactly ``value_type`` is its own in-memory form. Inlined code may replace an entry in ``dirty`` without a call,
    moving the entry to the end of the dict, if the type of the key is exactly ``in_place_type``, the type of the
    new value is exactly ``value_type``, and the window starts at ``TimeBounds.visible_from_ms`` or later. All
    other reads and writes go through the methods of the view.
    """

    #: Maximum number of entries in one generation of the read cache; 0 disables the cache.
    max_clean: int
    #: The dict is cleared when its entries are staged, and replaced only when the store is closed.
    dirty: dict[Any, Any] = field(factory=dict)
    clean: dict[Any, Any] = field(factory=dict)
    #: Keys of exactly this type are held as objects, all other keys as bytes; None: all keys as bytes.
    key_type: type | None = None
    #: Values of exactly this type are held without conversion; None: every value is converted.
    value_type: type | None = None
    #: Whether values are held as objects, which are returned without a copy, instead of as bytes.
    holds_objects: bool = False
    #: Equal to ``key_type`` while entries may be replaced without a call, else None.
    in_place_type: type | None = None
    #: Whether chains, which are derived from the entries with their values, are updated with each write.
    is_followed: bool = False
    #: Timestamp of the record being processed, which the node that writes the store sets; -1: it does not set it.
    record_ms: int = -1
    #: Timestamps in the changelog of dirty entries whose values have none, by slot; an entry that is missing here has
    #: the time in its key, or 0.
    times: dict[Any, int] = field(factory=dict)
    _older: dict[Any, Any] = field(factory=dict)

    def set_key_type(self, key_type: type | None) -> None:
        """Set the type of keys that are held as objects."""
        self.key_type = key_type
        self._update_in_place_type()

    def set_value_form(self, value_type: type | None, holds_objects: bool) -> None:
        """Set whether values are held as objects, and the exact type of the values if known."""
        self.value_type = value_type
        self.holds_objects = holds_objects
        self._update_in_place_type()

    def set_followed(self, is_followed: bool) -> None:
        """Set whether the chains are updated with each write."""
        self.is_followed = is_followed
        self._update_in_place_type()

    def _update_in_place_type(self) -> None:
        self.in_place_type = self.key_type if self.holds_objects and not self.is_followed else None

    def cached(self, slot: Any) -> Any:
        """Return the entry of a slot in the read cache, or ``ABSENT`` if no entry is cached."""
        entry = self.clean.get(slot, ABSENT)
        if entry is ABSENT and self._older:
            entry = self._older.pop(slot, ABSENT)
            if entry is not ABSENT:
                self.remember(slot, entry)
        return entry

    def remember(self, slot: Any, entry: Any) -> None:
        """Add an entry that was read from the staged writes or the engine to the read cache."""
        if not self.max_clean:
            return
        clean = self.clean
        if len(clean) >= self.max_clean:
            self._rotate()
            clean = self.clean
        clean[slot] = entry

    def _rotate(self) -> None:
        """Start a new read-cache generation; entries that were not read during the last generation are dropped."""
        self._older = self.clean
        self.clean = {}

    def take_dirty(self) -> tuple[list[Any], list[Any]]:
        """Return the slots and in-memory forms of all dirty entries, and mark the entries as clean."""
        dirty = self.dirty
        slots = list(dirty)
        entries = list(dirty.values())
        if not self.max_clean:
            dirty.clear()
            return slots, entries
        if self._older:
            for slot in dirty:
                self._older.pop(slot, None)
        if len(self.clean) + len(slots) > self.max_clean:
            self._rotate()
            for slot in dirty:
                self._older.pop(slot, None)
        if len(slots) <= self.max_clean:
            self.clean.update(dirty)
        else:
            self.clean.update(zip(slots[-self.max_clean :], entries[-self.max_clean :], strict=True))
        dirty.clear()
        return slots, entries

    def forget_clean(self) -> None:
        """Drop the read cache."""
        self.clean = {}
        self._older = {}

    def note_time(self, slot: Any) -> None:
        """Keep the timestamp of the record being processed for the changelog record of a dirty entry."""
        if self.record_ms >= 0:
            self.times[slot] = self.record_ms

    def times_of(self, slots: Sequence[Any], others: Sequence[int]) -> Sequence[int]:
        """Return the timestamps in the changelog of entries, which are ``others`` where none was noted; clear them."""
        noted = self.times
        if not noted:
            return others
        times = [noted.get(slot, other) for slot, other in zip(slots, others, strict=True)]
        noted.clear()
        return times

    def close(self, store: str) -> None:
        """Make every later use of the store's entries raise StoreClosedError."""
        self.dirty = _Closed(store)
        self.forget_clean()


class _Closed(dict[Any, Any]):
    """The dirty entries of a closed store; every use raises StoreClosedError."""

    def __init__(self, store: str) -> None:
        super().__init__()
        self._store = store

    def _raise(self, *_: object) -> Any:
        raise StoreClosedError(f"store {self._store!r} was closed with its task; get it again")

    get = __contains__ = __getitem__ = __setitem__ = __delitem__ = items = clear = __iter__ = _raise
