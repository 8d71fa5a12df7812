"""The common layout of window and session stores: segments, chains and a time index.

An entry has a key, a *segment time* (window start or session end) and a suffix of times after its key bytes.
Reads are restricted to the retention period before the observed stream time, writes to expired segments are
dropped, and segments expire as a whole, without scans for deletion.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Any

from attrs import define, field

from streams.core.blocks.loops import split_by_number
from streams.core.blocks.records import Block
from streams.core.errors import StoreError
from streams.core.event_time.calendar import noted_windows
from streams.state.engine.staging import StagedEngine
from streams.state.forms import KeyForm
from streams.state.hot import ABSENT, HotState
from streams.state.lifecycle import STREAM_TIME, Layout, time_bytes, time_of
from streams.state.loops import timed_keys
from streams.state.specs import StoreSpec
from streams.state.views.chains import Chain, ChainCache, TimeIndex
from streams.state.views.entries import Columns, EntryForm, keyed
from streams.state.views.segments import NO_TIME, TimeBounds, segment_interval_ms, topic_retention_ms
from streams.state.views.windowed_keys import MAX_SEQUENCE, Suffix, key_range

#: A store with at most this many entries gets complete chains at the first range read.
_SMALL = 10_000

#: A raw entry: key bytes, two times (start and sequence, or end and start), and engine value.
RawRow = tuple[bytes, int, int, bytes]


def windowed_segment_ms(spec: StoreSpec) -> int:
    """Return the segment length of a window or session store in milliseconds."""
    # In Kafka Streams, in-memory stores order and expire entries by time, persistent stores by segment.
    return 1 if spec.is_persistent is False else segment_interval_ms(spec.retention_ms)


def windowed_topic_config(spec: StoreSpec) -> dict[str, str]:
    """Return the changelog topic settings of a window or session store, which add deletion by age."""
    return {"cleanup.policy": "compact,delete", "retention.ms": topic_retention_ms(spec.retention_ms)}


#: Metadata entry for the last windows of a calendar.
CALENDAR = "calendar"
#: Metadata entry for the last sequence number of a store that retains duplicates.
SEQUENCE = "sequence"


@define(eq=False)
class WindowedLayout(Layout):
    """A layout of entries by key and times, in segments that expire.

    ``push`` stages the dirty entries of the store. ``refuse`` counts a record that is dropped as too old.
    """

    spec: StoreSpec
    suffix: Suffix
    staged: StagedEngine
    hot: HotState
    keys: KeyForm
    entries: EntryForm
    push: Callable[[], None]
    refuse: Callable[[], None]
    #: Bounds on visible and accepted times at the observed stream time.
    bounds: TimeBounds = field(init=False)
    #: Once the chains have been read, each write updates them; see ``hot.is_followed``.
    chains: ChainCache = field(init=False)
    #: Once the index has been read, each write that adds or deletes an entry updates it; it has no values.
    index: TimeIndex | None = None
    #: Sequence number of the last entry, if duplicates are retained.
    sequence: int = field(init=False)
    #: Starts of restored windows that a calendar has not.
    _misfits: set[int] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        metadata = self.staged.engine.metadata()
        observed = metadata.get(STREAM_TIME)
        self.bounds = TimeBounds(
            self.spec.retention_ms,
            self.spec.kind.segment_ms(self.spec),
            self.spec.is_persistent is False,
            NO_TIME if observed is None else time_of(observed),
        )
        self._check_windows(metadata)
        self.chains = ChainCache(0, lambda: self.suffix.chain_start(self.bounds.visible_from_ms))
        self.sequence = int.from_bytes(metadata.get(SEQUENCE, b""), "big")

    # Time.

    def observe(self, time_ms: int) -> None:
        """Advance the stream time and drop the segments that expire."""
        if self.bounds.observe(time_ms):
            for segment in list(self.staged.namespaces.irange(None, self.bounds.first_live, (True, False))):
                self.staged.drop(segment)

    def metadata(self) -> dict[str, bytes]:
        """Return the observed stream time, and the last sequence number if duplicates are retained."""
        own = {STREAM_TIME: time_bytes(self.bounds.observed_ms)}
        if self.spec.calendar is not None:
            own[CALENDAR] = noted_windows(self.spec.calendar, self.bounds.observed_ms)
        if self.spec.retain_duplicates:
            own[SEQUENCE] = self.sequence.to_bytes(4, "big")
        return own

    def _check_windows(self, noted: Mapping[str, bytes]) -> None:
        """Check that the calendar still has the windows that were noted: another tzdata may have other ones."""
        if self.spec.calendar is not None and CALENDAR in noted:
            difference = self.spec.calendar.difference(noted[CALENDAR], self.bounds.visible_from_ms)
            if difference is not None:
                raise StoreError(f"store {self.spec.name!r} {difference}")

    def check_restored(self) -> None:
        self._misfits = {start_ms for start_ms in self._misfits if start_ms >= self.bounds.visible_from_ms}
        if self._misfits and self.spec.calendar is not None:
            raise StoreError(f"store {self.spec.name!r} {self.spec.calendar.misfit([min(self._misfits)])}")

    def restore_metadata(self, carried: Mapping[str, bytes]) -> None:
        observed = carried.get(STREAM_TIME)
        if observed is not None:
            self.observe(time_of(observed))
            self.forget()
        self._check_windows(carried)
        if SEQUENCE in carried:
            # This is not the maximum over the entries, because sequence numbers wrap to 0.
            self.sequence = int.from_bytes(carried[SEQUENCE], "big")

    def resize(self, entries: int) -> int:
        """Reserve part of the read-cache entries for chains; return the remainder."""
        # Readers use either cache, so each cache gets half of the memory.
        chains = entries if not self.hot.max_clean else entries // 2
        self.chains.resize(2 * chains)
        return entries - chains

    def value_of(self, entry: Any) -> Any:
        return self.entries.value_of(entry)

    # Point reads.

    def load(self, slot: Any) -> Any:
        """Return the entry at a slot (key, time, other) that is not dirty, or None if there is no entry."""
        entry = self.hot.cached(slot)
        if entry is ABSENT:
            key = self.keys.to_bytes(slot[0]) + self.suffix.pack(slot[1], slot[2] if len(slot) == 3 else 0)
            data = self.staged.get(self.bounds.segment(slot[1]), key)
            entry = None if data is None else self.entries.from_bytes(data)
            self.hot.remember(slot, entry)
        return entry

    # Writes.

    def put(self, key_slot: Any, start_ms: int, entry: Any, is_delete: bool) -> None:
        """Put an entry of a window store without a fast path; advance stream time, and update chains and the index."""
        retains = self.spec.retain_duplicates
        bounds = self.bounds
        hot = self.hot
        has_no_effect = is_delete and retains
        # The time still has an effect: it advances the stream time of Kafka Streams' in-memory store.
        if has_no_effect and not bounds.is_exact:
            return
        if start_ms > bounds.observed_ms:
            self.observe(start_ms)
        if start_ms < bounds.accepted_from_ms:
            self.refuse()
            return
        if has_no_effect:
            return
        sequence = 0
        if retains:
            sequence = self.sequence = (self.sequence + 1) & MAX_SEQUENCE
        slot = (key_slot, start_ms, sequence) if retains else (key_slot, start_ms)
        dirty = hot.dirty
        if slot in dirty:
            del dirty[slot]
        dirty[slot] = entry
        hot.note_time(slot)
        if hot.is_followed:
            self.chains.set(key_slot, start_ms, None if is_delete else entry, is_repeated=retains)
        if self.index is not None:
            self.index.set(start_ms, (key_slot, start_ms, sequence), is_present=not is_delete)

    # Ranges.

    def _segments(self, first_ms: int, last_ms: int, reverse: bool) -> list[int]:
        segment = self.bounds.segment
        return list(self.staged.namespaces.irange(segment(first_ms), segment(last_ms), reverse=reverse))

    def raw(
        self, low: bytes | None, high: bytes | None, first_ms: int, last_ms: int, reverse: bool
    ) -> Iterator[RawRow]:
        """Return the entries with key bytes from ``low`` to ``high``, segment by segment.

        ``first_ms`` and ``last_ms`` only select segments; the caller filters by time.
        """
        self.push()
        if (low is not None and high is not None and low > high) or first_ms > last_ms:
            return iter(())
        first, last = key_range(low, high, self.suffix.size)
        scans: list[Iterable[tuple[bytes, bytes]]] = [
            self.staged.scan(segment, first, last, reverse) for segment in self._segments(first_ms, last_ms, reverse)
        ]
        if self.bounds.is_exact:
            # Sort by key, then times: the joined bytes sort differently if one key is a prefix of another.
            rank = self.suffix.rank
            scans = [sorted(scan, key=lambda row: rank(row[0]), reverse=reverse) for scan in scans]
        return self._of_keys(chain.from_iterable(scans), low, high)

    def _of_keys(self, rows: Iterable[tuple[bytes, bytes]], low: bytes | None, high: bytes | None) -> Iterator[RawRow]:
        parts = self.suffix.parts
        for data, value in rows:
            key, time_ms, other = parts(data)
            if (low is None or key >= low) and (high is None or key <= high):
                yield key, time_ms, other, value

    def chain(self, slot: Any) -> Chain:
        """Return all entries of a key that have not expired, in time order."""
        if not self.hot.is_followed:
            self._follow()
        chain = self.chains.find(slot)
        if chain is not None:
            return chain
        chain = Chain()
        if not self.chains.is_complete:
            key = self.keys.to_bytes(slot)
            rows = self._raw_of(key)
            chain.times = [self.suffix.chain_time(row[1], row[2]) for row in rows]
            chain.entries = [self.entries.from_bytes(row[3]) for row in rows]
        self.chains.keep(slot, chain)
        return chain

    def _follow(self) -> None:
        """Start updating chains with each write; for a small store, also load all entries."""
        first_ms = max(self.bounds.visible_from_ms, 0)
        small = min(_SMALL, self.chains.max_entries)
        rows = list(islice(self.raw(None, None, first_ms, max(first_ms, self.bounds.observed_ms), False), small + 1))
        self.hot.set_followed(True)
        if len(rows) <= small:
            self.chains.complete()
            from_bytes = self.keys.from_bytes
            for key, time_ms, other, data in rows:
                self.chains.set(
                    from_bytes(key),
                    self.suffix.chain_time(time_ms, other),
                    self.entries.from_bytes(data),
                    is_repeated=True,
                )

    def _raw_of(self, key: bytes) -> list[RawRow]:
        """Return all entries of one key that have not expired, ordered by segment and times."""
        self.push()
        first_ms = max(self.bounds.visible_from_ms, 0)
        low = key + self.suffix.pack(first_ms, 0)
        high = key + b"\x80"
        rows: list[RawRow] = []
        for segment in self.staged.namespaces.irange(self.bounds.segment(first_ms)):
            for data, value in self.staged.scan(segment, low, high):
                row_key, time_ms, other = self.suffix.parts(data)
                if row_key == key:
                    rows.append((row_key, time_ms, other, value))
        return rows

    def between(self, first_ms: int, last_ms: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield (time, slots) of the entries in a time range, in time order; the first call builds the time index.

        The index drops times before ``first_ms``; a later call for an earlier time rebuilds it.
        """
        index = self.index
        if index is None or first_ms < index.floor_ms:
            index = self.index = TimeIndex(first_ms)
            from_bytes = self.keys.from_bytes
            last_segment_ms = max(first_ms, self.bounds.observed_ms)
            for key, time_ms, other, _ in self.raw(None, None, first_ms, last_segment_ms, False):
                index.set(time_ms, (from_bytes(key), time_ms, other), is_present=True)
        else:
            index.raise_floor(first_ms)
        return index.between(first_ms, last_ms)

    # Lifecycle.

    def write(self, slots: Sequence[Any], entries: Sequence[Any]) -> Columns:
        keys = self.keys.all_to_bytes([slot[0] for slot in slots])
        times = [slot[1] for slot in slots]
        data, values, logged_times = self.entries.columns(entries, self.hot.times_of(slots, times))
        keys = timed_keys(keys, slots, self.suffix.size - 8)
        self._stage(keys, data, times, self.staged.put_all)
        return keys, values, logged_times

    def _stage(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        times: Sequence[int],
        write: Callable[[int, Sequence[bytes], Sequence[bytes | None]], None],
    ) -> None:
        """Stage entries in the segments of their times, except for entries of expired segments."""
        bounds = self.bounds
        lowest = bounds.segment(min(times))
        if lowest >= bounds.first_live and lowest == bounds.segment(max(times)):
            write(lowest, keys, values)
            return
        for number, columns in split_by_number(bounds.segments(times), (keys, values)).items():
            if number >= bounds.first_live:
                write(number, *columns)

    def restore(self, block: Block) -> None:
        keys, data = keyed(block.keys, self.entries.restored(block))
        if not keys:
            return
        parts = [self.suffix.parts(key) for key in keys]
        times = [part[1] for part in parts]
        self.observe(max(times))
        if (calendar := self.spec.calendar) is not None:
            self._misfits.update(start_ms for start_ms in set(times) if calendar.misfit([start_ms]))
        if self.spec.retain_duplicates:
            self.sequence = max(self.sequence, max(part[2] for part in parts))
        self._stage(keys, data, times, self.staged.load)
        self.forget()

    def forget(self) -> None:
        """Drop the chains and the time index; later reads rebuild them."""
        self.chains.forget()
        self.index = None
        self.hot.set_followed(False)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        segments = [self.staged.scan(number, None, None) for number in self.staged.namespaces]
        if self.bounds.is_exact:
            # There is one segment per millisecond, and all segments are in memory.
            return iter(sorted(chain.from_iterable(segments)))
        return merge(*segments)

    def logged(self, rows: Sequence[tuple[bytes, bytes]]) -> Columns:
        keys, data = zip(*rows, strict=True)
        parts = self.suffix.parts
        return keys, *self.entries.logged(data, [parts(key)[1] for key in keys])
