"""Window views: values by key and window start, with or without the time of the last change.

Ranges of window starts are inclusive. Reads over several keys are ordered by segment, key bytes and start in
persistent stores, and by start, then key in stores declared as in-memory.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from attrs import evolve

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.records import Windowed
from streams.core.errors import StoreClosedError
from streams.core.inlining import inlined
from streams.state.engine.budget import MemoryBudget
from streams.state.engine.staging import StagedEngine
from streams.state.hot import ABSENT
from streams.state.lifecycle import Store
from streams.state.specs import Family, Row, StoreKind, StoreSpec, TableReads
from streams.state.views.chains import Chain
from streams.state.views.entries import PlainEntries, TimedEntries, ValueAndTimestamp
from streams.state.views.windowed import WindowedLayout, windowed_segment_ms, windowed_topic_config
from streams.state.views.windowed_keys import MAX_SEQUENCE, WINDOW_SUFFIX

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class WindowReads(Generic[K, R]):
    """Range reads of window stores (``ReadOnlyWindowStore`` in Kafka Streams); ``R`` is the type of results."""

    __slots__ = ()

    _windows: WindowedLayout
    _is_closed: bool

    @property
    def observed_stream_time_ms(self) -> int:
        """The highest window start that was put so far, initially -1."""
        return self._windows.bounds.observed_ms

    def fetch_range(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, R]]:
        """Yield (start, value) for the windows of ``key`` that start in the given range."""
        return self._of_key(key, from_ms, to_ms, reverse=False)

    def backward_fetch_range(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, R]]:
        """Yield the windows of ``fetch_range`` in reverse order."""
        return self._of_key(key, from_ms, to_ms, reverse=True)

    def fetch_keys(self, low: K | None, high: K | None, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], R]]:
        """Yield (windowed key, value) for the keys from ``low`` to ``high``, inclusive; a bound of None is open."""
        return self._of_many(low, high, from_ms, to_ms, reverse=False)

    def backward_fetch_keys(
        self, low: K | None, high: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], R]]:
        """Yield the windows of ``fetch_keys`` in reverse order."""
        return self._of_many(low, high, from_ms, to_ms, reverse=True)

    def fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], R]]:
        """Yield (windowed key, value) for all windows that start in the given range."""
        return self._of_many(None, None, from_ms, to_ms, reverse=False)

    def backward_fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], R]]:
        """Yield the windows of ``fetch_all`` in reverse order."""
        return self._of_many(None, None, from_ms, to_ms, reverse=True)

    def all(self) -> Iterator[tuple[Windowed[K], R]]:
        """Yield (windowed key, value) for all windows."""
        return self._of_many(None, None, 0, MAX_TIME_MS, reverse=False)

    def backward_all(self) -> Iterator[tuple[Windowed[K], R]]:
        """Yield all windows in reverse order."""
        return self._of_many(None, None, 0, MAX_TIME_MS, reverse=True)

    def _of_key(self, key: K, from_ms: int, to_ms: int, *, reverse: bool) -> Iterator[tuple[int, R]]:
        shown = self._windows.entries.shown
        return iter([(start, shown(entry)) for start, entry in self._entries_of(key, from_ms, to_ms, reverse)])

    def _entries_of(self, key: K, from_ms: int, to_ms: int, reverse: bool) -> list[tuple[int, Any]]:
        return self._chain_of(key).between(from_ms, to_ms, reverse=reverse)

    def _chain_of(self, key: K) -> Chain:
        """Return the chain of a key, which has the key's entries that have not expired."""
        windows = self._windows
        if self._is_closed:
            raise StoreClosedError(f"store {windows.spec.name!r} was closed with its task; get it again")
        chain = windows.chain(windows.keys.slot(key))
        chain.trim(windows.bounds.visible_from_ms)
        return chain

    def _of_many(
        self, low: K | None, high: K | None, from_ms: int, to_ms: int, *, reverse: bool
    ) -> Iterator[tuple[Windowed[K], R]]:
        windows = self._windows
        first_ms = max(from_ms, windows.bounds.visible_from_ms)
        rows = windows.raw(*windows.keys.bounds(low, high), first_ms, to_ms, reverse)
        to_key = windows.keys.read
        read = windows.entries.read
        window = windows.spec.window_at
        return (
            (Windowed(to_key(key), window(start)), read(data))
            for key, start, _, data in rows
            if first_ms <= start <= to_ms
        )

    def windows_between(self, from_ms: int, to_ms: int) -> Iterator[tuple[int, K, Any]]:
        """Yield (start, key, entry) for all windows that start in the given range, ordered by start, then key bytes.

        ``entry`` is the value, or (value, timestamp_ms) in a timestamped store. Used for emission on window
        close; with calls in time order, the cost is proportional to the size of the result.
        """
        keys = self._windows.keys
        for start, slots in self._windows.between(max(from_ms, self._windows.bounds.visible_from_ms), to_ms):
            for slot in sorted(slots, key=lambda slot: (keys.to_bytes(slot[0]), slot[2])):
                entry = self._entry_at(slot[0], start, slot[2])
                if entry is not None:
                    yield start, keys.to_key(slot[0]), entry

    def _entry_at(self, key_slot: Any, start_ms: int, sequence: int) -> Any:
        """Return the value, or the pair of value and timestamp, of the entry at a slot of the time index."""
        raise NotImplementedError


class WindowStore(Store, WindowReads[K, V]):
    """A store of values by key and window start; ``retain_duplicates`` allows several values per window."""

    __slots__ = ("_chains", "_retains", "_windows", "bounds")

    def __init__(self, spec: StoreSpec, staged: StagedEngine, memory: MemoryBudget) -> None:
        super().__init__(spec, staged, memory)
        entries = PlainEntries(self._values)
        self._windows = self._layout = WindowedLayout(
            spec, WINDOW_SUFFIX, staged, self.hot, self._keys, entries, self._push, self._refuse
        )
        self._resize_caches()
        self.bounds = self._windows.bounds
        self._chains = self._windows.chains
        self._retains = spec.retain_duplicates

    def observe(self, time_ms: int) -> None:
        """Advance the observed stream time without a record; entries older than the retention expire."""
        self._windows.observe(time_ms)

    def fetch(self, key: K, start_ms: int) -> V | None:
        """Return the value of the window that starts at ``start_ms``, or None if there is none.

        In a store that retains duplicates, a value is found only if it was put last in the whole store; if the
        store is in memory, no value is found.
        """
        if start_ms < self.bounds.visible_from_ms or (self._retains and self.bounds.is_exact):
            return None
        hot = self.hot
        key_slot = key if type(key) is hot.key_type else self._keys.slot(key)
        slot = (key_slot, start_ms, self._windows.sequence) if self._retains else (key_slot, start_ms)
        held = hot.dirty.get(slot, ABSENT)
        if held is ABSENT:
            held = self._windows.load(slot)
        return held if hot.holds_objects else self._values.read(held)  # type: ignore[no-any-return]

    def put(self, key: K, value: V | None, start_ms: int) -> None:
        """Set the value of a window; None deletes the value, or does nothing if duplicates are retained."""
        hot = self.hot
        key_slot = key if type(key) is hot.key_type else self._keys.slot(key)
        held = value if type(value) is hot.value_type else self._values.hold(value)
        self._windows.put(key_slot, start_ms, held, value is None)

    def append(self, key: K, value: V | None, start_ms: int) -> None:
        """Put a value for a window, for joins. The write is fast if duplicates are retained and the chain is cached."""
        hot, bounds, windows, chains = self.hot, self.bounds, self._windows, self._chains
        chain = chains.chains.get(key) if type(key) is hot.key_type else None
        if chain is None or type(value) is not hot.value_type or not self._retains or windows.index is not None:
            self.put(key, value, start_ms)
            return
        if start_ms > bounds.observed_ms:
            windows.observe(start_ms)
        if start_ms < bounds.accepted_from_ms:
            self._refuse()
            return
        sequence = windows.sequence = (windows.sequence + 1) & MAX_SEQUENCE
        hot.dirty[key, start_ms, sequence] = value
        times = chain.times
        if not times or start_ms >= times[-1]:
            times.append(start_ms)
            chain.entries.append(value)
        else:
            chain.set(start_ms, value, is_repeated=True)
        chains.room -= 1
        if chains.room < 0:
            chains.make_room()

    def rows_in_range(self, key: K, from_ms: int, to_ms: int) -> Sequence[tuple[int, V]]:
        """Return the windows of ``fetch_range`` as a sequence of (start, value); used by operators."""
        hot, chains = self.hot, self._chains
        slot = key if type(key) is hot.key_type else self._keys.slot(key)
        chain = chains.chains.get(slot)
        if chain is None:
            if chains.is_complete:
                return ()
            chain = self._windows.chain(slot)
        times = chain.times
        if not times:
            return ()
        first_ms = times[0]
        is_whole = first_ms >= from_ms and first_ms >= self.bounds.visible_from_ms and times[-1] <= to_ms
        if is_whole and not self._is_closed:
            # Fast path of joins: the whole chain of the key.
            entries = chain.entries
            rows = [(first_ms, entries[0])] if len(times) == 1 else list(zip(times, entries, strict=True))
        else:
            rows = self._entries_of(key, from_ms, to_ms, False)
        if hot.holds_objects:
            return rows
        read = self._values.read
        return [(start, read(entry)) for start, entry in rows]

    def last_in(self, key: K, from_ms: int, to_ms: int) -> tuple[int, V] | None:
        """Return (start, value) of the last window that ``fetch_range`` yields, or None; used by as-of joins."""
        chain = self._chain_of(key)
        return self._at(chain, bisect_right(chain.times, to_ms) - 1, from_ms, to_ms)

    def first_in(self, key: K, from_ms: int, to_ms: int) -> tuple[int, V] | None:
        """Return (start, value) of the first window that ``fetch_range`` yields, or None; used by as-of joins."""
        chain = self._chain_of(key)
        return self._at(chain, bisect_left(chain.times, from_ms), from_ms, to_ms)

    def _at(self, chain: Chain, place: int, from_ms: int, to_ms: int) -> tuple[int, V] | None:
        times = chain.times
        if not 0 <= place < len(times) or not from_ms <= times[place] <= to_ms:
            return None
        entry = chain.entries[place]
        return times[place], entry if self.hot.holds_objects else self._values.read(entry)

    def _entry_at(self, key_slot: Any, start_ms: int, sequence: int) -> Any:
        slot = (key_slot, start_ms, sequence) if self._retains else (key_slot, start_ms)
        held = self.hot.dirty.get(slot, ABSENT)
        if held is ABSENT:
            held = self._windows.load(slot)
        return None if held is None else self._values.to_value(held)


class TimestampedWindowStore(Store, WindowReads[K, ValueAndTimestamp[V]]):
    """A store of values by key and window start, with the time of the last change of each value.

    Operators use ``fetch_pair`` and ``put_pair``, which work on plain tuples ``(value, timestamp_ms)``.
    """

    __slots__ = ("_windows", "bounds")

    def __init__(self, spec: StoreSpec, staged: StagedEngine, memory: MemoryBudget) -> None:
        super().__init__(spec, staged, memory)
        entries = TimedEntries(self._values)
        self._windows = self._layout = WindowedLayout(
            spec, WINDOW_SUFFIX, staged, self.hot, self._keys, entries, self._push, self._refuse
        )
        self._resize_caches()
        self.bounds = self._windows.bounds

    def fetch_pair(self, key: K, start_ms: int) -> tuple[V, int] | None:
        """Return (value, timestamp_ms) of the window that starts at ``start_ms``, or None if there is none."""
        if start_ms < self.bounds.visible_from_ms:
            return None
        hot = self.hot
        slot = (key if type(key) is hot.key_type else self._keys.slot(key), start_ms)
        pair = hot.dirty.get(slot, ABSENT)
        if pair is ABSENT:
            pair = self._windows.load(slot)
        if pair is None or pair[0] is None:
            return None
        return pair if hot.holds_objects else (self._values.read(pair[0]), pair[1])

    def put_pair(self, key: K, value: V | None, timestamp_ms: int, start_ms: int) -> None:
        """Set the value and timestamp of a window; a value of None deletes the entry."""
        hot = self.hot
        slot = (key if type(key) is hot.key_type else self._keys.slot(key), start_ms)
        held = value if type(value) is hot.value_type else self._values.hold(value)
        dirty = hot.dirty
        # Fast path: a dirty slot was accepted when it was put, and is still accepted unless stream time has
        # advanced.  The time index only changes if the entry is deleted or was.
        if (
            slot in dirty
            and start_ms >= self.bounds.accepted_from_ms
            and not hot.is_followed
            and (self._windows.index is None or (value is None) == (dirty[slot][0] is None))
        ):
            del dirty[slot]
            dirty[slot] = (held, timestamp_ms)
            return
        self._windows.put(slot[0], start_ms, (held, timestamp_ms), value is None)

    def in_place(
        self,
    ) -> tuple[
        Callable[[tuple[K, int], K, int], tuple[V, int] | None],
        Callable[[tuple[K, int], K, V | None, int, int], None],
    ]:
        """Return the functions ``find`` and ``replace``, with which an operator replaces dirty pairs without a call.

        ``find(slot, key, start_ms)`` returns the pair at the slot (key, start_ms) if it may be replaced, else
        None. ``replace(slot, key, value, timestamp_ms, start_ms)`` does the same as ``put_pair``, and must
        directly follow a ``find`` that has returned a pair that is not deleted.
        """
        hot, bounds, put_pair = self.hot, self.bounds, self.put_pair
        dirty = hot.dirty

        @inlined
        def find(slot: tuple[K, int], key: K, start_ms: int) -> tuple[V, int] | None:
            if start_ms >= bounds.visible_from_ms and type(key) is hot.in_place_type:
                return dirty.get(slot)
            return None

        @inlined
        def replace(slot: tuple[K, int], key: K, value: V | None, timestamp_ms: int, start_ms: int) -> None:
            if type(value) is hot.value_type:
                del dirty[slot]
                dirty[slot] = (value, timestamp_ms)
            else:
                put_pair(key, value, timestamp_ms, start_ms)

        return find, replace

    def pairs_in_range(self, key: K, from_ms: int, to_ms: int) -> list[tuple[int, tuple[V, int]]]:
        """Return (start, (value, timestamp_ms)) for the windows of ``key`` that start in the given range."""
        rows = self._entries_of(key, from_ms, to_ms, reverse=False)
        if self.hot.holds_objects:
            return rows
        read = self._values.read
        return [(start, (read(pair[0]), pair[1])) for start, pair in rows]

    def fetch(self, key: K, start_ms: int) -> ValueAndTimestamp[V] | None:
        """Return the value and timestamp of the window that starts at ``start_ms``, or None if there is none."""
        pair = self.fetch_pair(key, start_ms)
        return None if pair is None else ValueAndTimestamp(*pair)

    def put(self, key: K, value: ValueAndTimestamp[V] | tuple[V | None, int] | None, start_ms: int) -> None:
        """Set the value and timestamp of a window; None deletes the entry."""
        if value is None:
            self.put_pair(key, None, max(self.hot.record_ms, 0), start_ms)
        else:
            self.put_pair(key, value[0], value[1], start_ms)

    def _entry_at(self, key_slot: Any, start_ms: int, sequence: int) -> Any:
        pair = self.hot.dirty.get((key_slot, start_ms), ABSENT)
        if pair is ABSENT:
            pair = self._windows.load((key_slot, start_ms))
        if pair is None or pair[0] is None:
            return None
        return (self._values.to_value(pair[0]), pair[1])


def _row_getter(store: TimestampedWindowStore[Any, Any]) -> Callable[[Any], Row | None]:
    fetch = store.fetch_pair

    @inlined
    def get(key: Any) -> Row | None:
        return fetch(key.key, key.window.start_ms)

    return get


def _row_putter(store: TimestampedWindowStore[Any, Any]) -> Callable[[Any, Any, int], bool]:
    def put(key: Any, value: Any, timestamp_ms: int) -> bool:
        store.put_pair(key.key, value, timestamp_ms, key.window.start_ms)
        return True

    return put


def _values(store: TimestampedWindowStore[Any, Any]) -> Iterator[tuple[Any, Any]]:
    return ((key, row.value) for key, row in store.all())


_QUERIES = frozenset(
    {
        "all",
        "backward_all",
        "backward_fetch_all",
        "backward_fetch_keys",
        "backward_fetch_range",
        "fetch",
        "fetch_all",
        "fetch_keys",
        "fetch_range",
    }
)
WINDOW = StoreKind(
    "window",
    Family.WINDOWS,
    WindowStore,
    _QUERIES,
    needs=("retention_ms", "window_size_ms"),
    segment_ms=windowed_segment_ms,
    topic_config=windowed_topic_config,
    can_retain_duplicates=True,
)
TIMESTAMPED_WINDOW = evolve(
    WINDOW,
    name="timestamped_window",
    base="timestamped_window",
    open=TimestampedWindowStore,
    has_timestamps=True,
    can_retain_duplicates=False,
    table=TableReads(_row_getter, _row_putter),
    contents=_values,
)
