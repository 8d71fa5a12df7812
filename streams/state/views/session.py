"""The session view: aggregates by key, session start and session end. Start and end are inclusive.

Persistent stores are ordered by the segment of the session end, then by key bytes, end and start. Stores declared
as in-memory are ordered by end, key, and then descending start.
"""

from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any, Generic, NoReturn, TypeVar

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.records import Window, Windowed
from streams.core.errors import StoreClosedError, StoreError
from streams.core.inlining import inlined
from streams.state.engine.budget import MemoryBudget
from streams.state.engine.staging import StagedEngine
from streams.state.hot import ABSENT
from streams.state.lifecycle import Store
from streams.state.specs import Family, Row, StoreKind, StoreSpec, TableReads
from streams.state.views.entries import PlainEntries
from streams.state.views.windowed import WindowedLayout, windowed_segment_ms, windowed_topic_config
from streams.state.views.windowed_keys import SESSION_SUFFIX

K = TypeVar("K")
V = TypeVar("V")

#: Maximum number of sessions of a key for a linear scan; above it, a binary search is used.
_FEW = 8
#: Sorts after every (end, start).
_END_OF_TIME = (MAX_TIME_MS + 1,)


class SessionStore(Store, Generic[K, V]):
    """A store of aggregates by key and session."""

    #: ``_unborn`` has the dirty sessions that are neither in the staged writes nor in the engine. A session that
    #: grows is replaced by a new session each time; a session that is added and removed between two commits is never
    #: staged or logged.
    __slots__ = ("_chains", "_unborn", "_windows", "bounds")

    def __init__(self, spec: StoreSpec, staged: StagedEngine, memory: MemoryBudget) -> None:
        super().__init__(spec, staged, memory)
        entries = PlainEntries(self._values)
        self._windows = self._layout = WindowedLayout(
            spec, SESSION_SUFFIX, staged, self.hot, self._keys, entries, self._push, self._refuse
        )
        self._resize_caches()
        self.bounds = self._windows.bounds
        self._chains = self._windows.chains
        self._unborn: set[tuple[Any, int, int]] = set()

    @property
    def observed_stream_time_ms(self) -> int:
        """The highest session end that was put so far, initially -1."""
        return self.bounds.observed_ms

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Set the aggregate of a session; None removes the session."""
        start_ms, end_ms = session[1]
        self.put_at(session[0], start_ms, end_ms, value)

    def remove(self, session: Windowed[K]) -> None:
        """Delete the aggregate of exactly these bounds, if there is one."""
        start_ms, end_ms = session[1]
        self.remove_at(session[0], start_ms, end_ms)

    def put_at(self, key: K, start_ms: int, end_ms: int, value: V | None) -> None:
        """Set the aggregate of the session of ``key`` with these bounds; used by operators."""
        hot, bounds = self.hot, self.bounds
        key_slot = key if type(key) is hot.key_type else self._keys.slot(key)
        held = value if type(value) is hot.value_type else self._values.hold(value)
        if end_ms > bounds.observed_ms:
            self._windows.observe(end_ms)
        if end_ms < bounds.accepted_from_ms:
            self._refuse()
            return
        time = (end_ms, start_ms)
        slot = (key_slot, end_ms, start_ms)
        chains = self._chains
        chain = chains.chains.get(key_slot)
        if (
            chain is None
            or held is None
            or self._windows.index is not None
            or end_ms < bounds.visible_from_ms
            or (chain.times and time <= chain.times[-1])
        ):
            self._set(slot, held)
            return
        # Fast path: the last session of a cached key.
        dirty = hot.dirty
        if slot in dirty:
            del dirty[slot]
        else:
            self._unborn.add(slot)
        dirty[slot] = held
        if hot.record_ms >= 0:
            hot.times[slot] = hot.record_ms
        chain.times.append(time)
        chain.entries.append(held)
        chains.room -= 1
        if chains.room < 0:
            chains.make_room()

    def remove_at(self, key: K, start_ms: int, end_ms: int) -> None:
        """Remove the session of ``key`` with these bounds; used by operators."""
        hot, bounds = self.hot, self.bounds
        key_slot = key if type(key) is hot.key_type else self._keys.slot(key)
        # The in-memory store of Kafka Streams does not advance stream time for a removal.
        if end_ms > bounds.observed_ms and not bounds.is_exact:
            self._windows.observe(end_ms)
        if end_ms < bounds.accepted_from_ms:
            return
        slot = (key_slot, end_ms, start_ms)
        chain = self._chains.chains.get(key_slot)
        is_last = chain is not None and bool(chain.times) and chain.times[-1] == (end_ms, start_ms)
        if chain is None or not is_last or slot not in self._unborn or self._windows.index is not None:
            self._set(slot, None)
            return
        # Fast path: the session was added since the last commit and is the last session of its key.
        self._unborn.discard(slot)
        del hot.dirty[slot]
        chain.times.pop()
        chain.entries.pop()
        self._chains.room += 1

    def sessions_of(self, key: K, earliest_end_ms: int, latest_start_ms: int) -> list[tuple[int, int, V]]:
        """Return the sessions that ``find_sessions`` yields as (start, end, value), ordered by end, then start."""
        hot = self.hot
        slot = key if type(key) is hot.key_type else self._keys.slot(key)
        chain = self._chains.chains.get(slot) or self._windows.chain(slot)
        times = chain.times
        if not times:
            return []
        if self._is_closed or len(times) > _FEW or times[0][0] < self.bounds.visible_from_ms:
            near = [(time[1], time[0], entry) for time, entry in self._rows_of(slot, earliest_end_ms, latest_start_ms)]
        elif len(times) == 1:
            end_ms, start_ms = times[0]
            is_near = end_ms >= earliest_end_ms and start_ms <= latest_start_ms
            near = [(start_ms, end_ms, chain.entries[0])] if is_near else []
        else:
            near = [
                (start_ms, end_ms, entry)
                for (end_ms, start_ms), entry in zip(times, chain.entries, strict=True)
                if end_ms >= earliest_end_ms and start_ms <= latest_start_ms
            ]
        if hot.holds_objects:
            return near
        read = self._values.read
        return [(start_ms, end_ms, read(entry)) for start_ms, end_ms, entry in near]

    def fetch_session(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """Return the aggregate of the session of ``key`` with exactly these bounds, or None if there is none."""
        return self._value_at(self._keys.slot(key), end_ms, start_ms)

    def fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """Yield (windowed key, value) for all sessions of ``key``, in the order of the store."""
        return self.find_sessions(key, 0, MAX_TIME_MS)

    def backward_fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """Raise StoreError: session stores have no backward reads, as in Kafka Streams."""
        self._refuse_backward("backward_fetch")

    def fetch_keys(self, low: K | None, high: K | None) -> Iterator[tuple[Windowed[K], V]]:
        """Yield (windowed key, value) for the keys from ``low`` to ``high``, inclusive; a bound of None is open."""
        return self._of_many(low, high, 0, MAX_TIME_MS)

    def backward_fetch_keys(self, low: K | None, high: K | None) -> Iterator[tuple[Windowed[K], V]]:
        """Raise StoreError: session stores have no backward reads, as in Kafka Streams."""
        self._refuse_backward("backward_fetch_keys")

    def find_sessions(self, key: K, earliest_end_ms: int, latest_start_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the sessions of ``key`` within the given bounds.

        These are the sessions that end at or after ``earliest_end_ms`` and start at or before ``latest_start_ms``.
        """
        return self._of_key(key, earliest_end_ms, latest_start_ms)

    def backward_find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Raise StoreError: session stores have no backward reads, as in Kafka Streams."""
        self._refuse_backward("backward_find_sessions")

    def find_sessions_of_keys(
        self, low: K | None, high: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the sessions of ``find_sessions`` for keys from ``low`` to ``high``, inclusive; None: no bound."""
        return self._of_many(low, high, earliest_end_ms, latest_start_ms)

    def backward_find_sessions_of_keys(
        self, low: K | None, high: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Raise StoreError: session stores have no backward reads, as in Kafka Streams."""
        self._refuse_backward("backward_find_sessions_of_keys")

    def sessions_between(self, from_end_ms: int, to_end_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """Yield (windowed key, value) for all sessions that end in a range, ordered by end, start and key bytes.

        Used for emission on window close; with calls in time order, the cost is proportional to the size of the
        result. Sessions past the retention are included until their segment expires: with the default retention,
        a session may be past the retention while it is still open.
        """
        keys = self._keys
        to_value = self._values.to_value
        for end_ms, slots in self._windows.between(max(from_end_ms, self.bounds.accepted_from_ms), to_end_ms):
            for slot in sorted(slots, key=lambda slot: (slot[2], keys.to_bytes(slot[0]))):
                held = self._held(slot)
                if held is not None:
                    yield Windowed(keys.to_key(slot[0]), Window(slot[2], end_ms)), to_value(held)

    def _value_at(self, key_slot: Any, end_ms: int, start_ms: int) -> V | None:
        if end_ms < self.bounds.visible_from_ms:
            return None
        held = self._held((key_slot, end_ms, start_ms))
        return None if held is None else self._values.to_value(held)

    def _held(self, slot: tuple[Any, int, int]) -> Any:
        held = self.hot.dirty.get(slot, ABSENT)
        return self._windows.load(slot) if held is ABSENT else held

    def _set(self, slot: tuple[Any, int, int], held: Any) -> None:
        key_slot, end_ms, start_ms = slot
        dirty = self.hot.dirty
        was_dirty = slot in dirty
        if was_dirty:
            del dirty[slot]
        if held is None and slot in self._unborn:
            self._unborn.discard(slot)
        else:
            dirty[slot] = held
            self.hot.note_time(slot)
        if self.hot.is_followed:
            grown = self._chains.set(key_slot, (end_ms, start_ms), held)
            # A chain has all visible sessions of its key, so a session that makes the chain longer is new.
            if grown > 0 and not was_dirty and end_ms >= self.bounds.visible_from_ms:
                self._unborn.add(slot)
        if self._windows.index is not None:
            self._windows.index.set(end_ms, slot, is_present=held is not None)

    def _push(self) -> None:
        self._unborn.clear()
        super()._push()

    def _of_key(self, key: K, earliest_end_ms: int, latest_start_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        slot = self._keys.slot(key)
        rows = self._rows_of(slot, earliest_end_ms, latest_start_ms)
        if self.bounds.is_exact:
            rows.sort(key=lambda row: (row[0][0], -row[0][1]))
        shown = self._values.to_value
        typed_key = self._keys.to_key(slot)
        return iter([(Windowed(typed_key, Window(time[1], time[0])), shown(entry)) for time, entry in rows])

    def _rows_of(self, slot: Any, earliest_end_ms: int, latest_start_ms: int) -> list[tuple[tuple[int, int], Any]]:
        """Return ((end, start), entry) for the sessions of a key."""
        if self._is_closed:
            raise StoreClosedError(f"store {self.spec.name!r} was closed with its task; get it again")
        chain = self._windows.chain(slot)
        visible_from = self.bounds.visible_from_ms
        chain.trim((visible_from,))
        rows = chain.between((max(earliest_end_ms, visible_from),), _END_OF_TIME, reverse=False)
        return [row for row in rows if row[0][1] <= latest_start_ms]

    def _of_many(
        self, low: K | None, high: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        first_ms = max(earliest_end_ms, self.bounds.visible_from_ms)
        rows = self._windows.raw(*self._keys.bounds(low, high), first_ms, MAX_TIME_MS, False)
        to_key = self._keys.read
        read = self._values.read
        return (
            (Windowed(to_key(key), Window(start, end)), read(data))
            for key, end, start, data in rows
            if end >= first_ms and start <= latest_start_ms
        )

    def _refuse_backward(self, method: str) -> NoReturn:
        # Kafka Streams' session stores for processors have no backward reads.
        raise StoreError(
            f"store {self.spec.name!r}: {method}() is not offered by session stores, as in Kafka Streams; "
            "read forwards and reverse the result"
        )


def _row_getter(store: SessionStore[Any, Any]) -> Callable[[Any], Row | None]:
    fetch = store.fetch_session

    @inlined
    def get(key: Any) -> Row | None:
        start_ms, end_ms = key.window
        value = fetch(key.key, start_ms, end_ms)
        return None if value is None else (value, end_ms)

    return get


def _row_putter(store: SessionStore[Any, Any]) -> Callable[[Any, Any, int], bool]:
    def put(key: Any, value: Any, _: int) -> bool:
        store.put(key, value)
        return True

    return put


SESSION = StoreKind(
    "session",
    Family.SESSIONS,
    SessionStore,
    {"fetch", "fetch_keys", "fetch_session", "find_sessions", "find_sessions_of_keys"},
    needs=("retention_ms",),
    segment_ms=windowed_segment_ms,
    topic_config=windowed_topic_config,
    table=TableReads(_row_getter, _row_putter),
    contents=methodcaller("fetch_keys", None, None),
    rows=methodcaller("fetch_keys", None, None),
)
