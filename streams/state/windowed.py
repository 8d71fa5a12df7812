"""What window and session stores share: segments under staged writes, chains, time index.

An entry has a key, a *segment time* (window start, session end) and a suffix of times behind its
key bytes.  Reads are restricted by the observed stream time less the retention, writes to dead
segments are refused, and whole segments expire; nothing is ever scanned to be deleted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Any

from streams.core.loops import rows_by_number, timed_keys
from streams.core.records import Block
from streams.state.budget import MemoryBudget
from streams.state.chains import Chain, ChainCache, TimeIndex
from streams.state.hot import ABSENT
from streams.state.keyvalue import keyed
from streams.state.lifecycle import STREAM_TIME, Columns, StoreLifecycle, time_bytes, time_of
from streams.state.segments import NO_TIME, TimeBounds, segment_interval_ms, topic_retention_ms
from streams.state.specs import StoreSpec
from streams.state.staging import StagedEngine
from streams.state.windowed_keys import key_range

#: A store of at most so many entries is learnt by heart at its first range read.
_SMALL = 10_000

#: A raw entry: key bytes, its two times (start, sequence | end, start), engine value.
RawRow = tuple[bytes, int, int, bytes]


def windowed_segment_ms(spec: StoreSpec) -> int:
    """Return the length of the segments of a window or session store."""
    # The reference's memory stores order and expire by time, its persistent ones by segment.
    return 1 if spec.is_persistent is False else segment_interval_ms(spec.retention_ms)


def windowed_topic_config(spec: StoreSpec) -> dict[str, str]:
    """Return the settings of the changelog of a window or session store: also deleted by age."""
    return {"cleanup.policy": "compact,delete", "retention.ms": topic_retention_ms(spec.retention_ms)}


class WindowedLifecycle(StoreLifecycle):
    """Segments, expiry and ranges of a windowed store."""

    __slots__ = (
        "_chains",
        "_index",
        "bounds",
        "on_expired",
    )

    #: Length of the times behind the key, how to make and how to split them.
    _suffix_bytes: int
    _suffix: Callable[[int, int], bytes]
    _parts: Callable[[bytes], tuple[bytes, int, int]]
    #: By what entries of the same segment are ordered in a store declared in memory.
    _rank: Callable[[bytes], tuple[bytes, int, int]]

    def __init__(self, spec: StoreSpec, staged: StagedEngine, memory: MemoryBudget) -> None:
        super().__init__(spec, staged, memory)
        is_exact = spec.is_persistent is False
        observed = self._metadata.get(STREAM_TIME)
        #: What is visible and accepted at the observed stream time; operators read it, only the store moves it.
        self.bounds = TimeBounds(
            spec.retention_ms,
            spec.kind.segment_ms(spec),
            is_exact,
            NO_TIME if observed is None else time_of(observed),
        )
        # Chains and index are updated with each write after the first read that uses them: ``hot.is_followed``.
        self._chains = ChainCache(0, lambda: self._chain_start(self.bounds.visible_from_ms))
        self._resize_caches()
        self._index: TimeIndex | None = None
        #: Called for each refused record, beside the count in ``expired``.
        self.on_expired: Callable[[], None] | None = None

    @property
    def observed_stream_time_ms(self) -> int:
        """Highest window start (session end) put so far, -1 at first."""
        return self.bounds.observed_ms

    # Hooks of the two kinds of values.

    def _entry(self, data: bytes) -> Any:
        """Return the held form of an engine value."""
        return self._values.from_bytes(data)

    def _read(self, data: bytes) -> Any:
        """Return what a user gets for an engine value."""
        return self._values.serde.deserialize(data)

    def _shown(self, entry: Any) -> Any:
        """Return what a user gets for a held entry."""
        return self._values.to_value(entry)

    def _value_columns(
        self, slots: list[Any], entries: list[Any]
    ) -> tuple[Sequence[bytes | None], Sequence[bytes | None], Sequence[int]]:
        """Return engine values, changelog values and changelog times of entries."""
        values = self._values.all_to_bytes(entries)
        return values, values, [slot[1] for slot in slots]

    # Time.

    def _observe(self, time_ms: int) -> None:
        """Advance the stream time and drop the segments that expire."""
        if self.bounds.observe(time_ms):
            for segment in list(self._staged.namespaces.irange(None, self.bounds.first_live, (True, False))):
                self._staged.drop(segment)

    def _refuse(self) -> None:
        self.expired += 1
        if self.on_expired is not None:
            self.on_expired()

    def _own_metadata(self) -> dict[str, bytes]:
        return {STREAM_TIME: time_bytes(self.bounds.observed_ms)}

    def _restore_own(self, carried: Mapping[str, bytes]) -> None:
        observed = carried.get(STREAM_TIME)
        if observed is not None:
            self._observe(time_of(observed))
            self._forget()

    def _set_cache_entries(self, entries: int) -> None:
        # Either the one or the other is what a store's readers use; who uses both halves its memory.
        chains = entries if not self.hot.max_clean else entries // 2
        super()._set_cache_entries(entries - chains)
        self._chains.resize(2 * chains)

    # Points.

    def _load(self, slot: Any) -> Any:
        """Return the entry of (key, time, other) that is not dirty, None if there is none."""
        entry = self.hot.cached(slot)
        if entry is ABSENT:
            key = self._keys.to_bytes(slot[0]) + self._suffix(slot[1], slot[2] if len(slot) == 3 else 0)
            data = self._staged.get(self.bounds.segment(slot[1]), key)
            entry = None if data is None else self._entry(data)
            self.hot.remember(slot, entry)
        return entry

    # Ranges.

    def _segments(self, first_ms: int, last_ms: int, reverse: bool) -> list[int]:
        segment = self.bounds.segment
        return list(self._staged.namespaces.irange(segment(first_ms), segment(last_ms), reverse=reverse))

    def _raw(
        self, low: bytes | None, high: bytes | None, first_ms: int, last_ms: int, reverse: bool
    ) -> Iterator[RawRow]:
        """Return entries of the keys from ``low`` to ``high``, segment by segment.

        ``first_ms`` and ``last_ms`` choose segments; the caller filters by time.
        """
        self._push()
        if (low is not None and high is not None and low > high) or first_ms > last_ms:
            return iter(())
        first, last = key_range(low, high, self._suffix_bytes)
        scans: list[Iterable[tuple[bytes, bytes]]] = [
            self._staged.scan(segment, first, last, reverse) for segment in self._segments(first_ms, last_ms, reverse)
        ]
        if self.bounds.is_exact:
            # By key, then times: the bytes of both together go otherwise where a key is the beginning of another.
            rank = self._rank
            scans = [sorted(scan, key=lambda row: rank(row[0]), reverse=reverse) for scan in scans]
        return self._of_keys(chain.from_iterable(scans), low, high)

    def _of_keys(self, rows: Iterable[tuple[bytes, bytes]], low: bytes | None, high: bytes | None) -> Iterator[RawRow]:
        parts = self._parts
        for data, value in rows:
            key, time_ms, other = parts(data)
            if (low is None or key >= low) and (high is None or key <= high):
                yield key, time_ms, other, value

    def _chain(self, slot: Any) -> Chain:
        """Return all live entries of a key, in order of time."""
        if not self.hot.is_followed:
            self._follow()
        known = self._chains.find(slot)
        if known is not None:
            return known
        known = Chain()
        if not self._chains.is_complete:
            key = self._keys.to_bytes(slot)
            rows = self._raw_of(key)
            known.times = [self._chain_time(row[1], row[2]) for row in rows]
            known.entries = [self._entry(row[3]) for row in rows]
        self._chains.keep(slot, known)
        return known

    def _follow(self) -> None:
        """Update chains with each write from now on; those of a small store are complete at once."""
        first_ms = max(self.bounds.visible_from_ms, 0)
        small = min(_SMALL, self._chains.max_entries)
        rows = list(islice(self._raw(None, None, first_ms, max(first_ms, self.bounds.observed_ms), False), small + 1))
        self.hot.set_followed(True)
        if len(rows) <= small:
            self._chains.complete()
            from_bytes = self._keys.from_bytes
            for key, time_ms, other, data in rows:
                self._chains.set(from_bytes(key), self._chain_time(time_ms, other), self._entry(data), is_repeated=True)

    def _raw_of(self, key: bytes) -> list[RawRow]:
        """Return all visible entries of one key, in order of segment and times."""
        self._push()
        first_ms = max(self.bounds.visible_from_ms, 0)
        low, high = key + self._suffix(first_ms, 0), key + b"\x80"
        rows: list[RawRow] = []
        for segment in self._staged.namespaces.irange(self.bounds.segment(first_ms)):
            for data, value in self._staged.scan(segment, low, high):
                found, time_ms, other = self._parts(data)
                if found == key:
                    rows.append((found, time_ms, other, value))
        return rows

    def _chain_time(self, time_ms: int, other: int) -> Any:
        """Return the time by which a chain orders an entry."""
        raise NotImplementedError

    def _chain_start(self, time_ms: int) -> Any:
        """Return the lowest time of entries at ``time_ms`` in chains."""
        raise NotImplementedError

    def _between(self, first_ms: int, last_ms: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield (time, slots) of entries, in order of time; the index is made at the first call.

        It forgets what lies before ``first_ms``; a later call that goes back makes it anew.
        """
        index = self._index
        if index is None or first_ms < index.floor_ms:
            index = self._index = TimeIndex(first_ms)
            self.hot.set_followed(True)
            from_bytes = self._keys.from_bytes
            last_segment_ms = max(first_ms, self.bounds.observed_ms)
            for key, time_ms, other, _ in self._raw(None, None, first_ms, last_segment_ms, False):
                index.set(time_ms, (from_bytes(key), time_ms, other), is_present=True)
        else:
            index.raise_floor(first_ms)
        return index.between(first_ms, last_ms)

    # Lifecycle.

    def _push(self) -> None:
        if not self.hot.dirty:
            return
        slots, entries = self.hot.take_dirty()
        try:
            keys = self._keys.all_to_bytes([slot[0] for slot in slots])
            values, logged, times = self._value_columns(slots, entries)
        except Exception as error:
            self._noted(error)
            raise
        keys = timed_keys(keys, slots, self._suffix_bytes - 8)
        self._stage(keys, values, [slot[1] for slot in slots], self._staged.put_all)
        self._note(keys, logged, times)

    def _stage(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        times: Sequence[int],
        write: Callable[[int, Sequence[bytes], Sequence[bytes | None]], None],
    ) -> None:
        """Write entries to the segments of their times, those of dead segments left out."""
        bounds = self.bounds
        lowest = bounds.segment(min(times))
        if lowest >= bounds.first_live and lowest == bounds.segment(max(times)):
            write(lowest, keys, values)
            return
        for number, rows in rows_by_number(bounds.segments(times)).items():
            if number >= bounds.first_live:
                write(number, [keys[row] for row in rows], [values[row] for row in rows])

    def _restored_values(self, block: Block) -> Sequence[bytes | None]:
        """Return the engine values of changelog records."""
        return block.values

    def _restored(self, other: int) -> None:
        """Note the highest second time of restored keys."""

    def _restore_rows(self, block: Block) -> None:
        keys, values = keyed(block.keys, self._restored_values(block))
        if not keys:
            return
        parts = [self._parts(key) for key in keys]
        times = [part[1] for part in parts]
        self._observe(max(times))
        self._restored(max(part[2] for part in parts))
        self._stage(keys, values, times, self._staged.load)
        self._forget()

    def _forget(self) -> None:
        """Forget chains and index, until a read wants them again."""
        self._chains.forget()
        self._index = None
        self.hot.set_followed(False)

    def _snapshot_rows(self) -> Iterator[tuple[bytes, bytes]]:
        segments = [self._staged.scan(number, None, None) for number in self._staged.namespaces]
        if self.bounds.is_exact:
            # A segment for each millisecond; they are in memory anyhow.
            return iter(sorted(chain.from_iterable(segments)))
        return merge(*segments)

    def _snapshot_columns(self, rows: Sequence[tuple[bytes, bytes]]) -> Columns:
        keys, values = zip(*rows, strict=True)
        parts = self._parts
        return keys, values, [parts(key)[1] for key in keys]

    def close(self) -> None:
        """Give up the engine; what was not committed is lost."""
        super().close()
        self._forget()
