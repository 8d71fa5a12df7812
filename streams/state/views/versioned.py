"""The versioned view: values by key and time (KIP-889, KIP-914).

The latest value of each key is stored with its timestamp in a separate namespace. Older versions are stored in
the segment in which they *ended*, so that a segment can expire as a whole. Versions older than the history
retention are dropped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter, methodcaller
from typing import Any, Generic, NamedTuple, TypeVar

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.records import Block
from streams.core.inlining import inlined
from streams.state.engine.budget import MemoryBudget
from streams.state.engine.staging import StagedEngine
from streams.state.hot import ABSENT
from streams.state.lifecycle import (
    CHANGE_BYTES,
    STREAM_TIME,
    ChangelogRow,
    Store,
    time_bytes,
    time_of,
)
from streams.state.specs import Family, Row, StoreKind, StoreSpec, TableReads
from streams.state.views.entries import Columns
from streams.state.views.segments import NO_TIME, TimeBounds, topic_retention_ms, versioned_segment_interval_ms
from streams.state.views.versions import Versions, one_version

K = TypeVar("K")
V = TypeVar("V")

#: Result of ``put`` for the latest version of a key, whose validity has no end yet.
VALID_TO_UNDEFINED = -1
#: Result of ``put`` for a record that is too old.
NOT_PUT = -(1 << 63)

_LATEST = -1
_TIME_BYTES = 8
#: End marker after the last version of a key: (valid_from, valid_to, value).
_NEVER = (MAX_TIME_MS, MAX_TIME_MS, None)


class VersionedRecord(NamedTuple, Generic[V]):
    """A version of a value, with the time from which it is valid and the time until which it is valid, if known."""

    value: V
    timestamp_ms: int
    valid_to_ms: int | None = None


class VersionedStore(Store, Generic[K, V]):
    """A store of values by key and time."""

    __slots__ = ("_bounds", "_history_ms", "_log")

    def __init__(self, spec: StoreSpec, staged: StagedEngine, memory: MemoryBudget) -> None:
        super().__init__(spec, staged, memory)
        observed = self._metadata.get(STREAM_TIME)
        self._history_ms = spec.history_ms
        self._bounds = TimeBounds(
            spec.history_ms,
            spec.kind.segment_ms(spec),
            observed_ms=NO_TIME if observed is None else time_of(observed),
        )
        #: All version changes since the last drain, in order.
        self._log: list[ChangelogRow] = []

    @property
    def observed_stream_time_ms(self) -> int:
        """The highest timestamp of a version that was put so far, initially -1."""
        return self._bounds.observed_ms

    def put(self, key: K, value: V | None, timestamp_ms: int) -> int:
        """Set the value of ``key`` from ``timestamp_ms`` on; a value of None is a tombstone.

        Return the time until which the version is valid: ``VALID_TO_UNDEFINED`` for the latest version, or
        ``NOT_PUT`` if the version is older than the history and was not stored.
        """
        key_bytes = self._keys.to_bytes(self._keys.slot(key))
        data = self._values.serde.serialize(value)
        return self._put(key_bytes, data, timestamp_ms)

    def delete(self, key: K, timestamp_ms: int) -> VersionedRecord[V] | None:
        """Put a tombstone at ``timestamp_ms``; return the version that was valid at that time."""
        if timestamp_ms < self._bounds.observed_ms - self._history_ms:
            self._refuse()
            return None
        existing = self.get_as_of(key, timestamp_ms)
        self.put(key, None, timestamp_ms)
        return existing

    def get(self, key: K) -> VersionedRecord[V] | None:
        """Return the latest version of ``key``, or None if there is none or it is a tombstone."""
        latest = self._latest(self._keys.to_bytes(self._keys.slot(key)))
        return None if latest is None else self._record(latest[1], latest[0], None)

    def get_as_of(self, key: K, time_ms: int) -> VersionedRecord[V] | None:
        """Return the version of ``key`` that was valid at a time, or None if there was none or it has expired."""
        key_bytes = self._keys.to_bytes(self._keys.slot(key))
        latest = self._latest(key_bytes)
        if latest is not None and latest[0] <= time_ms:
            return self._record(latest[1], latest[0], None)
        if time_ms < self._bounds.observed_ms - self._history_ms:
            return None
        for segment in self._segments_from(time_ms):
            versions = self._versions(segment, key_bytes)
            if versions is None:
                continue
            if versions.next_ms <= time_ms:
                return None
            if versions.min_ms > time_ms:
                continue
            _, valid_from, valid_to, value = versions.find(time_ms)
            return None if value is None else self._record(value, valid_from, valid_to)
        return None

    def history(self, key: K, from_ms: int, to_ms: int) -> Iterator[VersionedRecord[V]]:
        """Yield the versions of ``key`` that are valid at some time in the given range, newest first (KIP-968)."""
        key_bytes = self._keys.to_bytes(self._keys.slot(key))
        latest = self._latest(key_bytes)
        if latest is not None and latest[0] <= to_ms:
            yield self._record(latest[1], latest[0], None)
        first_ms = max(from_ms, self._bounds.observed_ms - self._history_ms)
        for segment in self._segments_from(first_ms):
            versions = self._versions(segment, key_bytes)
            if versions is None:
                continue
            valid_to = versions.next_ms
            for valid_from, value in versions.rows:
                if value is not None and valid_from <= to_ms and valid_to > first_ms:
                    yield self._record(value, valid_from, valid_to)
                valid_to = valid_from

    def latest(self) -> Iterator[tuple[K, V]]:
        """Yield (key, value) for each key that has a current value, ordered by key bytes."""
        self._push()
        to_key = self._keys.read
        read = self._values.read
        for key, data in self._staged.scan(_LATEST, None, None):
            yield to_key(key), read(data[_TIME_BYTES:])

    def _record(self, data: bytes, from_ms: int, to_ms: int | None) -> VersionedRecord[V]:
        return VersionedRecord(self._values.read(data), from_ms, to_ms)

    # Reads and writes of the namespace for latest values and of the segments.

    def _latest(self, key: bytes) -> tuple[int, bytes] | None:
        if self._is_closed:
            self._push()
        held = self.hot.cached(key)
        if held is ABSENT:
            data = self._staged.get(_LATEST, key)
            held = None if data is None else (time_of(data[:_TIME_BYTES]), data[_TIME_BYTES:])
            self.hot.remember(key, held)
        return held  # type: ignore[no-any-return]

    def _set_latest(self, key: bytes, from_ms: int, value: bytes | None) -> None:
        self._staged.put(_LATEST, key, None if value is None else time_bytes(from_ms) + value)
        self.hot.remember(key, None if value is None else (from_ms, value))

    def _versions(self, segment: int, key: bytes) -> Versions | None:
        data = self._staged.get(segment, key)
        return None if data is None else Versions.read(data)

    def _set_versions(self, segment: int, key: bytes, versions: Versions) -> None:
        self._staged.put(segment, key, versions.write())

    def _segments_from(self, time_ms: int) -> list[int]:
        """Return the segments that may contain versions valid at or after a time, newest first."""
        first = max(self._bounds.segment(time_ms), 0)
        return list(self._staged.namespaces.irange(first, reverse=True))

    def _live(self, time_ms: int) -> int | None:
        """Return the segment that contains a time, or None if the segment has expired."""
        segment = self._bounds.segment(time_ms)
        return segment if segment >= self._bounds.first_live else None

    # Kafka Streams' algorithm, step by step.

    def _put(self, key: bytes, value: bytes | None, time_ms: int) -> int:
        if time_ms < self._bounds.observed_ms - self._history_ms:
            self._refuse()
            return NOT_PUT
        self._observe(time_ms)
        self._log.append((key, value, time_ms))
        return self._place(key, value, time_ms)

    def _place(self, key: bytes, value: bytes | None, time_ms: int) -> int:
        """Store a version in its namespace; return the time until which the version is valid."""
        latest = self._latest(key)
        if latest is not None and time_ms >= latest[0]:
            if time_ms > latest[0]:
                self._retire(key, latest[1], latest[0], time_ms)
            self._set_latest(key, time_ms, value)
            return VALID_TO_UNDEFINED
        valid_to = None if latest is None else latest[0]
        for segment in self._segments_from(time_ms):
            versions = self._versions(segment, key)
            if versions is None:
                continue
            if versions.next_ms <= time_ms:
                break
            if versions.min_ms <= time_ms:
                return self._place_within(segment, versions, key, value, time_ms)
            if versions.min_ms < self._bounds.observed_ms - self._history_ms:
                return NOT_PUT
            valid_to = versions.min_ms
        if valid_to is None:
            return self._place_latest(key, value, time_ms)
        return self._place_before(key, value, time_ms, valid_to)

    def _retire(self, key: bytes, value: bytes | None, from_ms: int, to_ms: int) -> None:
        """Store a version that ends at ``to_ms`` in the segment of that time, unless the segment has expired."""
        segment = self._live(to_ms)
        if segment is None:
            return
        versions = self._versions(segment, key)
        if versions is None:
            versions = one_version(value, from_ms, to_ms)
        else:
            versions.insert_as_latest(from_ms, to_ms, value)
        self._set_versions(segment, key, versions)

    def _place_within(self, segment: int, versions: Versions, key: bytes, value: bytes | None, time_ms: int) -> int:
        """Store a version that starts within the time span of a segment's versions."""
        index, from_ms, to_ms, existing = versions.find(time_ms)
        if from_ms == time_ms:
            versions.rows[index] = (time_ms, value)
        elif self._bounds.segment(time_ms) != segment:
            # The existing version now ends earlier, in an older segment.
            self._retire(key, existing, from_ms, time_ms)
            versions.rows[index] = (time_ms, value)
        else:
            versions.rows.insert(index, (time_ms, value))
        self._set_versions(segment, key, versions)
        return to_ms

    def _place_latest(self, key: bytes, value: bytes | None, time_ms: int) -> int:
        """Store the latest version; a tombstone is stored in the segment of its time."""
        if value is not None:
            self._set_latest(key, time_ms, value)
            return VALID_TO_UNDEFINED
        segment = self._live(time_ms)
        if segment is None:
            return NOT_PUT
        versions = self._versions(segment, key)
        if versions is None:
            self._set_versions(segment, key, one_version(None, time_ms, time_ms))
        elif versions.next_ms != time_ms:
            versions.insert_as_latest(versions.next_ms, time_ms, None)
            self._set_versions(segment, key, versions)
        return VALID_TO_UNDEFINED

    def _place_before(self, key: bytes, value: bytes | None, time_ms: int, valid_to_ms: int) -> int:
        """Store a version that ends at ``valid_to_ms``, where an existing version starts."""
        segment = self._live(valid_to_ms)
        if segment is None:
            return NOT_PUT
        versions = self._versions(segment, key)
        if versions is None:
            versions = one_version(value, time_ms, valid_to_ms)
        elif versions.next_ms <= time_ms:
            versions.insert_as_latest(time_ms, valid_to_ms, value)
        else:
            versions.insert_as_earliest(time_ms, value)
        self._set_versions(segment, key, versions)
        return valid_to_ms

    # Time and lifecycle.

    def _observe(self, time_ms: int) -> None:
        if self._bounds.observe(time_ms):
            for segment in list(self._staged.namespaces.irange(0, self._bounds.first_live, (True, False))):
                self._staged.drop(segment)

    def _own_metadata(self) -> dict[str, bytes]:
        return {STREAM_TIME: time_bytes(self._bounds.observed_ms)}

    def _restore_own(self, carried: Mapping[str, bytes]) -> None:
        observed = carried.get(STREAM_TIME)
        if observed is not None:
            self._observe(time_of(observed))

    def _size_of(self, entry: Any) -> int:
        return len(entry[1])

    @property
    def approximate_uncommitted_bytes(self) -> int:
        return super().approximate_uncommitted_bytes + len(self._log) * CHANGE_BYTES

    def _push(self) -> None:
        # Versions are staged immediately; this only makes a closed store raise an error.
        self.hot.dirty.items()

    def _take_changes(self) -> Columns:
        rows = self._log
        self._log = []
        return ([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])

    def commit(self, metadata: Any) -> None:
        super().commit(metadata)
        if not self.spec.has_changelog:
            self._log.clear()

    def set_restoring(self, is_restoring: bool) -> None:
        """Do nothing, because restoring a version requires reads of the existing versions."""

    def _restore_rows(self, block: Block) -> None:
        for key, value, time_ms in zip(block.keys, block.values, block.timestamps, strict=True):
            # The version was accepted when it was put. Snapshots are ordered by key, so later versions of other
            # keys may precede it.
            if key is not None:
                self._observe(time_ms)
                self._place(key, value, time_ms)

    def _snapshot_rows(self) -> Iterator[ChangelogRow]:
        """Yield all versions and the tombstones between them, ordered by key, and from old to new for each key.

        Tombstones before the first value in the history are omitted, because they have no effect.
        """
        horizon_ms = self._bounds.observed_ms - self._history_ms
        segments = [self._numbered(segment) for segment in self._staged.namespaces]
        for key, rows in groupby(merge(*segments), itemgetter(0)):
            has_value = False
            for from_ms, value in _with_gaps(_history([(segment, data) for _, segment, data in rows])):
                has_value = has_value or value is not None
                if has_value or from_ms >= horizon_ms:
                    yield key, value, from_ms

    def _numbered(self, segment: int) -> Iterator[tuple[bytes, int, bytes]]:
        return ((key, segment, data) for key, data in self._staged.scan(segment, None, None))

    def _snapshot_columns(self, rows: Sequence[ChangelogRow]) -> Columns:
        keys, values, times = zip(*rows, strict=True)
        return keys, values, times


def _with_gaps(history: Iterable[tuple[int, int, bytes | None]]) -> Iterator[tuple[int, bytes | None]]:
    """Yield (valid_from, value) for the history of a key, with a value of None at the start and the end of a gap.

    A tombstone that marks the time of the latest version, or ends there, takes effect again once that version
    expires; it is therefore yielded before the version.
    """
    rows = list(history)
    for index, (from_ms, to_ms, value) in enumerate(rows):
        next_from_ms, next_to_ms, _ = rows[index + 1] if index + 1 < len(rows) else _NEVER
        is_before_latest = value is None and next_to_ms == MAX_TIME_MS
        if value is not None or from_ms < next_from_ms or is_before_latest:
            yield from_ms, value
        if from_ms < to_ms and (to_ms < next_from_ms or is_before_latest):
            yield to_ms, None


def _history(rows: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield (valid_from, valid_to, value), oldest first, from a key's entries in ascending order of segments."""
    for segment, data in rows:
        if segment == _LATEST:
            continue
        versions = Versions.read(data)
        ends = [versions.next_ms, *(row[0] for row in versions.rows)]
        for (from_ms, value), to_ms in reversed(list(zip(versions.rows, ends, strict=False))):
            yield from_ms, to_ms, value
    if rows[0][0] == _LATEST:
        data = rows[0][1]
        yield time_of(data[:_TIME_BYTES]), MAX_TIME_MS, data[_TIME_BYTES:]


def _row_getter(store: VersionedStore[Any, Any]) -> Callable[[Any], Row | None]:
    read = store.get

    @inlined
    def get(key: Any) -> Row | None:
        version = read(key)
        return None if version is None else (version.value, version.timestamp_ms)

    return get


def _row_putter(store: VersionedStore[Any, Any]) -> Callable[[Any, Any, int], bool | None]:
    put_version = store.put

    @inlined
    def put(key: Any, value: Any, timestamp_ms: int) -> bool | None:
        code = put_version(key, value, timestamp_ms)
        return None if code == NOT_PUT else code == VALID_TO_UNDEFINED

    return put


def _row_getter_as_of(store: VersionedStore[Any, Any]) -> Callable[[Any, int], Row | None]:
    read = store.get_as_of

    @inlined
    def get(key: Any, timestamp_ms: int) -> Row | None:
        version = read(key, timestamp_ms)
        return None if version is None else (version.value, version.timestamp_ms)

    return get


def _segment_ms(spec: StoreSpec) -> int:
    return versioned_segment_interval_ms(spec.history_ms)


def _topic_config(spec: StoreSpec) -> dict[str, str]:
    return {"min.compaction.lag.ms": topic_retention_ms(spec.history_ms)}


def _by_time(content: Block, _: Mapping[str, bytes]) -> Sequence[int]:
    """Return the indexes of versions ordered by time, because restoring an old version last could drop it."""
    return sorted(range(len(content)), key=content.timestamps.__getitem__)


VERSIONED = StoreKind(
    "versioned",
    Family.KEYS,
    VersionedStore,
    {"approximate_num_entries", "get", "get_as_of", "history"},
    needs=("history_ms",),
    segment_ms=_segment_ms,
    topic_config=_topic_config,
    type_suffix="-versioned",
    has_versions=True,
    table=TableReads(_row_getter, _row_putter, _row_getter_as_of),
    contents=methodcaller("latest"),
    changelog_order=_by_time,
)
