"""Read caches of windowed stores: the entries of recently used keys, and an index of keys by time.

Chains, which are the cached entries of one key, and the index are derived from the hot state, the staged writes and the
engine, and may be dropped at any time. A chain finds the windows of a key without serializing the key or opening an
iterator. The index finds the windows that start (or the sessions that end) in a time range, for emission on window
close. The cost of expiry does not depend on the number of live entries: expired entries are dropped from chains when
the cache is full, and from the front of the index.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from attrs import define, field
from sortedcontainers import SortedDict


@define(eq=False)
class Chain:
    """The entries of one key in time order: by window start, or by session (end, start)."""

    times: list[Any] = field(factory=list)
    entries: list[Any] = field(factory=list)

    def set(self, time: Any, entry: Any, *, is_repeated: bool) -> int:
        """Set the entry at a time, or remove it if it is None; return the change in the number of entries.

        With ``is_repeated`` the entry is added to the existing entries of the same time.
        """
        times, entries = self.times, self.entries
        if not times or time > times[-1]:
            if entry is None:
                return 0
            times.append(time)
            entries.append(entry)
            return 1
        if is_repeated:
            place = bisect_right(times, time)
            times.insert(place, time)
            entries.insert(place, entry)
            return 1
        place = bisect_left(times, time)
        if times[place] == time:
            if entry is not None:
                entries[place] = entry
                return 0
            del times[place], entries[place]
            return -1
        if entry is None:
            return 0
        times.insert(place, time)
        entries.insert(place, entry)
        return 1

    def trim(self, first_time: Any) -> int:
        """Drop entries before ``first_time``; return the number of dropped entries."""
        times = self.times
        if not times or times[0] >= first_time:
            return 0
        place = bisect_left(times, first_time)
        del times[:place], self.entries[:place]
        return place

    def between(self, first: Any, last: Any, *, reverse: bool) -> list[tuple[Any, Any]]:
        """Return the (time, entry) pairs with ``first <= time <= last``, in reverse order if ``reverse`` is set."""
        times = self.times
        low = bisect_left(times, first)
        high = bisect_right(times, last, low)
        rows = list(zip(times[low:high], self.entries[low:high], strict=True))
        if reverse:
            rows.reverse()
        return rows


@define(eq=False)
class ChainCache:
    """A bounded cache of chains: of all keys while they fit, and then of the recently used keys."""

    #: Maximum number of entries: of all keys while the cache is complete, else of both generations; see ``resize``.
    max_entries: int
    #: Returns the lowest time that has not expired.
    first_time: Callable[[], Any]
    #: Whether every key that has entries has a chain; see ``complete``.
    is_complete: bool = False
    chains: dict[Any, Chain] = field(factory=dict)
    #: Number of entries that still fit; each chain also counts as one entry. Code that appends to a chain
    #: directly decrements this number and calls ``make_room`` when it falls below 0.
    room: int = field(init=False)
    _older: dict[Any, Chain] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.room = self._limit

    def resize(self, max_entries: int) -> None:
        """Change the maximum number of cached entries; excess entries are dropped at the next insertion."""
        size = self._limit - self.room
        self.max_entries = max_entries
        self.room = self._limit - size

    def complete(self) -> None:
        """Mark the cache as containing all keys; called while the cache is empty."""
        self.forget()
        self.is_complete = True
        self.room = self._limit

    def find(self, key: Any) -> Chain | None:
        """Return the chain of ``key``, or None if the chain is not cached."""
        chain = self.chains.get(key)
        if chain is None and self._older:
            chain = self._older.pop(key, None)
            if chain is not None:
                self.keep(key, chain)
        return chain

    def keep(self, key: Any, chain: Chain) -> None:
        """Cache a chain, and count its entries, which may let other chains go."""
        self.chains[key] = chain
        self.grow(len(chain.times) + 1)

    @property
    def _limit(self) -> int:
        return self.max_entries if self.is_complete else self.max_entries // 2

    def make_room(self) -> None:
        """Drop expired entries; if that is not enough, start a new generation and drop the oldest.

        A complete cache has no generations yet and starts with an empty generation.

        The cost is amortized: for every four entries examined, at least one was inserted since the last call.
        """
        self._sweep(self.first_time())
        if self.room * 4 >= self._limit:
            return
        self._older = {} if self.is_complete else self.chains
        self.chains = {}
        self.is_complete = False
        self.room = self._limit

    def set(self, key: Any, time: Any, entry: Any, *, is_repeated: bool = False) -> int:
        """Apply a write to the chain of a key; return the change in the chain's length, or 0 if it is not cached."""
        chain = self.chains.get(key) or self.find(key)
        if chain is None:
            if not self.is_complete or entry is None:
                return 0
            chain = self.chains[key] = Chain()
            self.room -= 1
        grown = chain.set(time, entry, is_repeated=is_repeated)
        if grown:
            self.grow(grown)
        return grown

    def grow(self, entries: int) -> None:
        """Adjust the number of cached entries, and make room if the maximum is exceeded."""
        self.room -= entries
        if self.room < 0:
            self.make_room()

    def _sweep(self, first_time: Any) -> None:
        """Drop the entries of all keys before ``first_time``, and then the keys that have no entries left."""
        size = 0
        for key, chain in list(self.chains.items()):
            times = chain.times
            if times and times[0] < first_time:
                chain.trim(first_time)
            if times or not self.is_complete:
                size += len(times) + 1
            else:
                del self.chains[key]
        self.room = self._limit - size

    def forget(self) -> None:
        """Drop all cached chains."""
        self.chains = {}
        self._older = {}
        self.is_complete = False
        self.room = self._limit


@define(eq=False)
class TimeIndex:
    """An index of store entries by time, which is complete from ``floor_ms`` on; a slot identifies an entry."""

    floor_ms: int
    _slots: "SortedDict[int, dict[Any, None]]" = field(factory=SortedDict)

    def set(self, time_ms: int, slot: Any, *, is_present: bool) -> None:
        """Add a slot to the index at a time, or remove it if ``is_present`` is False."""
        if time_ms < self.floor_ms:
            return
        slots = self._slots.get(time_ms)
        if is_present:
            if slots is None:
                slots = self._slots[time_ms] = {}
            slots[slot] = None
        elif slots is not None:
            slots.pop(slot, None)
            if not slots:
                del self._slots[time_ms]

    def raise_floor(self, floor_ms: int) -> None:
        """Drop the times before ``floor_ms`` from the index."""
        if floor_ms > self.floor_ms:
            self.floor_ms = floor_ms
            for time_ms in list(self._slots.irange(None, floor_ms, (True, False))):
                del self._slots[time_ms]

    def between(self, first_ms: int, last_ms: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield (time, slots) for the times from ``first_ms`` to ``last_ms``, in time order."""
        for time_ms in list(self._slots.irange(first_ms, last_ms)):
            yield time_ms, list(self._slots.get(time_ms, ()))
