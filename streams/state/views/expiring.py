"""Key-value views whose entries expire: a time to live (TTL) in event time.

An entry expires when the stream time of its task reaches its timestamp plus the TTL: from then on reads do not
return it.  ``sweep`` removes expired entries, after at most a tenth of the TTL and without a scan of the store: an
index has the keys by bucket of expiry time, each bucket in a namespace of the engine.  A write adds the key to the
bucket of its new expiry time and leaves it in the earlier one; the sweep of a bucket skips keys that now expire later,
and drops the namespace as a whole.  The index is not logged; a restore builds it from the timestamps of the changelog.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from attrs import Factory, define, evolve

from streams.core.blocks.records import NO_TIMESTAMP, Block
from streams.state.engine.budget import MemoryBudget
from streams.state.engine.staging import StagedEngine
from streams.state.forms import KeyForm, ValueForm
from streams.state.hot import ABSENT, HotState
from streams.state.lifecycle import Layout, Store, time_bytes
from streams.state.specs import StoreSpec, TableReads
from streams.state.views.entries import Columns, TimedEntries, ValueAndTimestamp
from streams.state.views.keyvalue import KEY_VALUE, TIMESTAMPED_KEY_VALUE, KeyAccess, KeyLayout

K = TypeVar("K")
V = TypeVar("V")

#: Number of buckets in a TTL that has at least as many milliseconds.
_BUCKETS = 10
#: Metadata entry for the TTL with which the index was built (8 bytes).
_INDEXED_TTL = "indexed_ttl_ms"
#: The namespace of the entries; the namespace of bucket n is n + 1.
_ENTRIES = 0

#: Called with the key, value and expiry time of an entry that was removed because it has expired.
Removed = Callable[[Any, Any, int], None]
#: Stages index entries: (namespace, keys, values).
_Stage = Callable[[int, Sequence[bytes], Sequence[bytes | None]], None]


@define(eq=False)
class ExpiringLayout(Layout):
    """A ``lifecycle.Layout`` of entries by key, each with a timestamp, and the index of keys by expiry time.

    With a TTL of -1 nothing expires: the store was opened for reading outside of its task.  ``push`` stages the dirty
    entries, and ``refuse`` counts a record that is dropped as too old.
    """

    plain: KeyLayout
    staged: StagedEngine
    hot: HotState
    keys: KeyForm
    values: ValueForm
    ttl_ms: int
    push: Callable[[], None]
    refuse: Callable[[], None]
    #: Returns the stream time; set by the task. In a standby replica it is the highest timestamp of its changelog.
    clock: Callable[[], int] = Factory(lambda self: lambda: self.restored_ms, takes_self=True)
    #: The time to which idle inputs have advanced stream time; -1 if they have not.
    idle_ms: int = NO_TIMESTAMP
    #: The highest timestamp of the changelog records that were restored.
    restored_ms: int = NO_TIMESTAMP
    #: Set by the operator that owns the store, to forward deletions.
    on_removed: Removed | None = None

    @property
    def bucket_ms(self) -> int:
        """The length of a bucket in milliseconds; an expired entry is removed at most this much later."""
        return max(self.ttl_ms // _BUCKETS, 1)

    # Reads and writes of single entries.

    def _pair(self, slot: Any) -> Any:
        """Return the entry of a slot, whether or not it has expired, or None if there is none."""
        pair = self.hot.dirty.get(slot, ABSENT)
        if pair is ABSENT:
            pair = self.plain.load(slot)
        return None if pair is None or pair[0] is None else pair

    def is_expired(self, timestamp_ms: int) -> bool:
        """Return whether an entry with a timestamp has expired at the current stream time."""
        return 0 <= self.ttl_ms <= max(self.clock(), self.idle_ms) - timestamp_ms

    def find(self, key: Any) -> tuple[Any, int] | None:
        """Return (value, timestamp_ms) of a key, or None if there is no entry or it has expired."""
        pair = self._pair(self.keys.slot(key))
        if pair is None or self.is_expired(pair[1]):
            return None
        return pair if self.hot.holds_objects else (self.values.read(pair[0]), pair[1])

    def find_undeleted(self, key: Any) -> tuple[Any, int] | None:
        """Return the same as ``find``, but also an expired entry until it is deleted."""
        pair = self._pair(self.keys.slot(key))
        return pair if pair is None or self.hot.holds_objects else (self.values.read(pair[0]), pair[1])

    def take(self, key: Any) -> tuple[Any, int] | None:
        """Return the same as ``find``, but delete an expired entry, so that downstream receives its deletion first."""
        slot = self.keys.slot(key)
        pair = self._pair(slot)
        if pair is None:
            return None
        if self.is_expired(pair[1]):
            self._remove(slot, pair)
            return None
        return pair if self.hot.holds_objects else (self.values.read(pair[0]), pair[1])

    def put(self, key: Any, value: Any, timestamp_ms: int) -> bool:
        """Set the value and timestamp of a key, or delete it; return False if the entry would already have expired."""
        if value is not None and self.is_expired(timestamp_ms):
            self.refuse()
            return False
        self._set(self.keys.slot(key), self.values.hold(value), timestamp_ms)
        return True

    def _set(self, slot: Any, held: Any, timestamp_ms: int) -> None:
        dirty = self.hot.dirty
        if slot in dirty:
            del dirty[slot]
        dirty[slot] = (held, timestamp_ms)

    def _remove(self, slot: Any, pair: tuple[Any, int]) -> None:
        """Delete an expired entry; the time of the deletion is the time at which the entry expired."""
        expiry_ms = pair[1] + self.ttl_ms
        self._set(slot, None, expiry_ms)
        if self.on_removed is not None:
            self.on_removed(self.keys.to_key(slot), self.values.to_value(pair[0]), expiry_ms)

    # Removal of what has expired.

    def sweep(self, now_ms: int) -> bool:
        """Remove the entries of all buckets that end by the stream time ``now_ms``, ordered by expiry time and key.

        Return whether there were any such buckets.
        """
        self.push()
        is_due = False
        for namespace in list(self.staged.namespaces.irange(_ENTRIES + 1, now_ms // self.bucket_ms)):
            is_due = True
            expired = sorted(self._expired_in(namespace))
            self.staged.drop(namespace)
            for expiry_ms, key in expired:
                slot = self.keys.from_bytes(key)
                pair = self._pair(slot)
                # A deletion that was forwarded may have led to a write of this key.
                if pair is not None and pair[1] + self.ttl_ms == expiry_ms:
                    self._remove(slot, pair)
        return is_due

    def _expired_in(self, namespace: int) -> Iterator[tuple[int, bytes]]:
        """Yield (expiry time, key bytes) of the entries in a bucket, except those that now expire in a later bucket."""
        from_bytes = self.plain.entries.from_bytes
        bucket_ms = self.bucket_ms
        for key, _ in self.staged.scan(namespace, None, None):
            data = self.staged.get(_ENTRIES, key)
            if data is not None:
                expiry_ms = from_bytes(data)[1] + self.ttl_ms
                if expiry_ms // bucket_ms < namespace:
                    yield expiry_ms, key

    # Index.

    def open(self, indexed_ttl: bytes | None) -> None:
        """Rebuild the index of expiry times if it was built with a different TTL."""
        if self.ttl_ms < 0 or not self.staged.namespaces or indexed_ttl == time_bytes(self.ttl_ms):
            return
        for namespace in list(self.staged.namespaces):
            if namespace != _ENTRIES:
                self.staged.drop(namespace)
        rows = [(key, self.plain.entries.from_bytes(data)[1]) for key, data in self.staged.scan(_ENTRIES, None, None)]
        self._index(rows, self.staged.put_all)

    def _index(self, rows: Sequence[tuple[bytes, int]], stage: _Stage) -> None:
        """Add keys to the buckets of their expiry times; ``rows`` are (key, timestamp)."""
        if self.ttl_ms < 0:
            return
        ttl_ms, bucket_ms = self.ttl_ms, self.bucket_ms
        by_bucket: dict[int, list[bytes]] = {}
        for key, time_ms in rows:
            by_bucket.setdefault((time_ms + ttl_ms) // bucket_ms, []).append(key)
        for bucket, keys in by_bucket.items():
            stage(max(bucket, 0) + 1, keys, [b""] * len(keys))

    def _prune(self) -> None:
        """Drop the ended buckets whose entries were all removed or expire later, because a standby is not swept."""
        if self.ttl_ms >= 0:
            for namespace in list(self.staged.namespaces.irange(_ENTRIES + 1, self.restored_ms // self.bucket_ms)):
                if next(self._expired_in(namespace), None) is None:
                    self.staged.drop(namespace)

    # ``lifecycle.Layout``.

    def scan(self, low: bytes | None, high: bytes | None, reverse: bool) -> Iterator[tuple[Any, Any]]:
        """Yield the keys and values with ``low <= key bytes < high``, except dirty and expired entries."""
        return ((key, row) for key, row in self.plain.scan(low, high, reverse) if not self.is_expired(row.timestamp_ms))

    def write(self, slots: Sequence[Any], entries: Sequence[Any]) -> Columns:
        """Stage dirty entries and index their expiry times; return the entries as changelog records."""
        keys, values, times = self.plain.write(slots, entries)
        rows = [(key, time) for key, value, time in zip(keys, values, times, strict=True) if value is not None]
        self._index(rows, self.staged.put_all)
        return keys, values, times

    def restore(self, block: Block) -> None:
        """Stage the changelog records in a block for the next commit, and index their expiry times."""
        # Earlier blocks are only certain to be readable after a commit.
        if not self.staged.has_writes:
            self._prune()
        self.restored_ms = max(self.restored_ms, max(block.timestamps))
        self.plain.restore(block)
        rows = zip(block.keys, block.values, block.timestamps, strict=True)
        present = [(key, time) for key, value, time in rows if key is not None and value is not None]
        self._index(present, self.staged.load)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        return self.plain.rows()

    def logged(self, rows: Sequence[tuple[bytes, bytes]]) -> Columns:
        return self.plain.logged(rows)

    def value_of(self, entry: Any) -> Any:
        return self.plain.value_of(entry)

    def metadata(self) -> dict[str, bytes]:
        """Return the TTL with which the index was built, to store as metadata."""
        return {} if self.ttl_ms < 0 else {_INDEXED_TTL: time_bytes(self.ttl_ms)}


def _layout(store: Any, spec: StoreSpec, staged: StagedEngine, keys: KeyForm, values: ValueForm) -> ExpiringLayout:
    plain = KeyLayout(staged, store.hot, keys, TimedEntries(values))
    layout = ExpiringLayout(plain, staged, store.hot, keys, values, spec.ttl_ms, store._push, store._refuse)
    layout.open(store.metadata().get(_INDEXED_TTL))
    return layout


class ExpiringKeyValueStore(Store, KeyAccess[K, V]):
    """A store of values by key, each of which expires after a TTL without a write.

    The timestamp of an entry is the stream time of the task at the write.
    """

    __slots__ = ("expiry",)

    def __init__(self, spec: StoreSpec, staged: StagedEngine, memory: MemoryBudget) -> None:
        super().__init__(spec, staged, memory)
        self.expiry = self._layout = _layout(self, spec, staged, self._keys, self._values)

    def get(self, key: K) -> V | None:
        pair = self.expiry.find(key)
        return None if pair is None else pair[0]

    def put(self, key: K, value: V | None) -> None:
        self.expiry.put(key, value, max(self.expiry.clock(), 0))

    def approximate_num_entries(self) -> int:
        """Return the number of entries that have not expired; this reads all entries."""
        return sum(1 for _ in self.all())

    def _scan(self, low: bytes | None, high: bytes | None, *, reverse: bool) -> Iterator[tuple[K, V]]:
        self._push()
        return ((key, row.value) for key, row in self.expiry.scan(low, high, reverse))


class ExpiringTimestampedStore(Store, KeyAccess[K, ValueAndTimestamp[V]]):
    """A store of values by key with the time of their last change; each value expires after a TTL.

    Operators use the layout's methods ``get_pair``, ``put_pair``, ``take_pair`` (for their own rows) and
    ``undeleted_pair`` (in joins of tables, whose results are deleted with the row).
    """

    __slots__ = ("expiry", "get_pair", "put_pair", "take_pair", "undeleted_pair")

    def __init__(self, spec: StoreSpec, staged: StagedEngine, memory: MemoryBudget) -> None:
        super().__init__(spec, staged, memory)
        self.expiry = self._layout = _layout(self, spec, staged, self._keys, self._values)
        self.get_pair = self.expiry.find
        self.take_pair = self.expiry.take
        self.put_pair = self.expiry.put
        self.undeleted_pair = self.expiry.find_undeleted

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        pair = self.expiry.find(key)
        return None if pair is None else ValueAndTimestamp(*pair)

    def put(self, key: K, value: ValueAndTimestamp[V] | tuple[V | None, int] | None) -> None:
        """Set the value and timestamp of ``key``; None deletes the key.

        A value that would already have expired is not stored, and is counted as dropped.
        """
        if value is None:
            self.expiry.put(key, None, max(self.expiry.clock(), 0))
        else:
            self.expiry.put(key, value[0], value[1])

    def approximate_num_entries(self) -> int:
        """Return the number of entries that have not expired; this reads all entries."""
        return sum(1 for _ in self.all())

    def _scan(
        self, low: bytes | None, high: bytes | None, *, reverse: bool
    ) -> Iterator[tuple[K, ValueAndTimestamp[V]]]:
        self._push()
        return self.expiry.scan(low, high, reverse)


EXPIRING_KEY_VALUE = evolve(
    KEY_VALUE, name="kv_ttl", base="kv_ttl", open=ExpiringKeyValueStore, needs=("ttl_ms",), can_expire=True
)


def _row_putter(store: ExpiringTimestampedStore[Any, Any]) -> Callable[[Any, Any, int], bool | None]:
    put = store.put_pair
    return lambda key, value, timestamp_ms: put(key, value, timestamp_ms) or None


EXPIRING_TIMESTAMPED_KEY_VALUE = evolve(
    TIMESTAMPED_KEY_VALUE,
    name="timestamped_kv_ttl",
    base="timestamped_kv_ttl",
    open=ExpiringTimestampedStore,
    needs=("ttl_ms",),
    can_expire=True,
    table=TableReads(
        attrgetter("get_pair"),
        _row_putter,
        get_own=attrgetter("take_pair"),
        get_undeleted=attrgetter("undeleted_pair"),
    ),
)
