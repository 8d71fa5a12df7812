"""Key-value views: plain values, and values with the time of their last change.

Keys are stored in serialized form in a single namespace. ``state.views.entries`` defines the bytes of values.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

from attrs import define

from streams.core.blocks.records import Block
from streams.core.inlining import inlined
from streams.core.serdes.serdes import Serde
from streams.state.engine.budget import MemoryBudget
from streams.state.engine.engines import next_prefix
from streams.state.engine.staging import StagedEngine
from streams.state.forms import KeyForm
from streams.state.hot import ABSENT, HotState
from streams.state.lifecycle import Layout, Store
from streams.state.specs import Family, InPlace, Row, StoreKind, StoreSpec, TableReads
from streams.state.views.entries import Columns, EntryForm, PlainEntries, TimedEntries, ValueAndTimestamp, keyed

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

_SPACE = 0


class KeyAccess(Generic[K, R]):
    """The methods common to all key-value stores (``KeyValueStore`` in Kafka Streams); ``R`` is the type of results.

    A store view implements ``get``, ``put`` and ``_scan``.
    """

    __slots__ = ()

    _keys: KeyForm

    def get(self, key: K) -> R | None:
        raise NotImplementedError

    def put(self, key: K, value: R | None) -> None:
        """Set the value of ``key``; None deletes the key."""
        raise NotImplementedError

    def put_if_absent(self, key: K, value: R | None) -> R | None:
        """Set the value of ``key`` if it has none; return the previous value."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_all(self, entries: Iterable[tuple[K, R | None]]) -> None:
        """Set several values, in the given order."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> R | None:
        """Remove ``key``; return the previous value."""
        old = self.get(key)
        self.put(key, None)
        return old

    def range(self, low: K | None, high: K | None) -> Iterator[tuple[K, R]]:
        """Yield the entries from ``low`` to ``high`` (inclusive), ordered by key bytes; a bound of None is open."""
        return self._scan(*self._bounds_of(low, high), reverse=False)

    def reverse_range(self, low: K | None, high: K | None) -> Iterator[tuple[K, R]]:
        """Yield the entries of ``range`` in reverse order."""
        return self._scan(*self._bounds_of(low, high), reverse=True)

    def all(self) -> Iterator[tuple[K, R]]:
        """Yield all entries, ordered by key bytes."""
        return self._scan(None, None, reverse=False)

    def reverse_all(self) -> Iterator[tuple[K, R]]:
        """Yield all entries in reverse order of key bytes."""
        return self._scan(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, serde: Serde[Any] | None = None) -> Iterator[tuple[K, R]]:
        """Yield the entries whose key bytes start with ``prefix``.

        ``prefix`` is either bytes or an object, which is serialized with ``serde`` (default: the store's key
        serde).
        """
        if serde is None and isinstance(prefix, bytes):
            start: bytes = prefix
        else:
            start = (serde or self._keys.serde).serialize(prefix) or b""
        return self._scan(start, next_prefix(start), reverse=False)

    def _bounds_of(self, low: K | None, high: K | None) -> tuple[bytes | None, bytes | None]:
        first, last = self._keys.bounds(low, high)
        return first, None if last is None else last + b"\x00"

    def _scan(self, low: bytes | None, high: bytes | None, *, reverse: bool) -> Iterator[tuple[K, R]]:
        """Yield the entries with ``low <= key bytes < high``."""
        raise NotImplementedError


@define(eq=False)
class KeyLayout(Layout):
    """A layout of entries by serialized key in a single namespace."""

    staged: StagedEngine
    hot: HotState
    keys: KeyForm
    entries: EntryForm

    def load(self, slot: Any) -> Any:
        """Return the entry of a slot (the in-memory form of a key) that is not dirty, or None if there is no entry."""
        entry = self.hot.cached(slot)
        if entry is ABSENT:
            data = self.staged.get(_SPACE, self.keys.to_bytes(slot))
            entry = None if data is None else self.entries.from_bytes(data)
            self.hot.remember(slot, entry)
        return entry

    def scan(self, low: bytes | None, high: bytes | None, reverse: bool) -> Iterator[tuple[Any, Any]]:
        """Yield the keys and values with ``low <= key bytes < high``, as Python objects, without dirty entries."""
        if low is not None and high is not None and low >= high:
            return
        to_key = self.keys.read
        read = self.entries.read
        for key, data in self.staged.scan(_SPACE, low, high, reverse):
            yield to_key(key), read(data)

    def write(self, slots: Sequence[Any], entries: Sequence[Any]) -> Columns:
        keys = self.keys.all_to_bytes(slots)
        data, values, times = self.entries.columns(entries, self.hot.times_of(slots, [0] * len(keys)))
        self.staged.put_all(_SPACE, keys, data)
        return keys, values, times

    def restore(self, block: Block) -> None:
        self.staged.load(_SPACE, *keyed(block.keys, self.entries.restored(block)))

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        return self.staged.scan(_SPACE, None, None)

    def logged(self, rows: Sequence[tuple[bytes, bytes]]) -> Columns:
        keys, data = zip(*rows, strict=True)
        return keys, *self.entries.logged(data, [0] * len(rows))

    def value_of(self, entry: Any) -> Any:
        return self.entries.value_of(entry)


class KeyValueStore(Store, KeyAccess[K, V]):
    """Plain values by key, without timestamps."""

    __slots__ = ()

    _layout: KeyLayout

    def __init__(self, spec: StoreSpec, staged: StagedEngine, memory: MemoryBudget) -> None:
        super().__init__(spec, staged, memory)
        self._layout = KeyLayout(staged, self.hot, self._keys, PlainEntries(self._values))

    def get(self, key: K) -> V | None:
        hot = self.hot
        slot = key if type(key) is hot.key_type else self._keys.slot(key)
        held = hot.dirty.get(slot, ABSENT)
        if held is ABSENT:
            held = self._layout.load(slot)
        return held if hot.holds_objects else self._values.read(held)  # type: ignore[no-any-return]

    def put(self, key: K, value: V | None) -> None:
        hot = self.hot
        slot = key if type(key) is hot.key_type else self._keys.slot(key)
        held = value if type(value) is hot.value_type else self._values.hold(value)
        dirty = hot.dirty
        if slot in dirty:
            del dirty[slot]
        dirty[slot] = held
        if hot.record_ms >= 0:
            hot.times[slot] = hot.record_ms

    def _scan(self, low: bytes | None, high: bytes | None, *, reverse: bool) -> Iterator[tuple[K, V]]:
        self._push()
        return self._layout.scan(low, high, reverse)


class TimestampedKeyValueStore(Store, KeyAccess[K, ValueAndTimestamp[V]]):
    """A store of values by key, with the time of their last change.

    Operators use ``get_pair`` and ``put_pair``, which work on plain tuples ``(value, timestamp_ms)``.
    """

    __slots__ = ()

    _layout: KeyLayout

    def __init__(self, spec: StoreSpec, staged: StagedEngine, memory: MemoryBudget) -> None:
        super().__init__(spec, staged, memory)
        self._layout = KeyLayout(staged, self.hot, self._keys, TimedEntries(self._values))

    @inlined
    def get_pair(self, key: K) -> tuple[V, int] | None:
        """Return (value, timestamp_ms) of ``key``, or None if there is none."""
        hot = self.hot
        slot = key if type(key) is hot.key_type else self._keys.slot(key)
        pair = hot.dirty.get(slot, ABSENT)
        if pair is ABSENT:
            pair = self._layout.load(slot)
        if pair is None or pair[0] is None:
            return None
        return pair if hot.holds_objects else (self._values.read(pair[0]), pair[1])

    @inlined
    def put_pair(self, key: K, value: V | None, timestamp_ms: int) -> None:
        """Set the value and timestamp of ``key``; a value of None deletes the key."""
        hot = self.hot
        slot = key if type(key) is hot.key_type else self._keys.slot(key)
        held = value if type(value) is hot.value_type else self._values.hold(value)
        dirty = hot.dirty
        if slot in dirty:
            del dirty[slot]
        dirty[slot] = (held, timestamp_ms)

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        pair = self.get_pair(key)
        return None if pair is None else ValueAndTimestamp(*pair)

    def put(self, key: K, value: ValueAndTimestamp[V] | tuple[V | None, int] | None) -> None:
        if value is None:
            self.put_pair(key, None, max(self.hot.record_ms, 0))
        else:
            self.put_pair(key, value[0], value[1])

    def _scan(
        self, low: bytes | None, high: bytes | None, *, reverse: bool
    ) -> Iterator[tuple[K, ValueAndTimestamp[V]]]:
        self._push()
        return self._layout.scan(low, high, reverse)


def _values(store: TimestampedKeyValueStore[Any, Any]) -> Iterator[tuple[Any, Any]]:
    return ((key, row.value) for key, row in store.all())


#: The methods that interactive queries may call on key-value stores.
KEY_QUERIES = frozenset(
    {"all", "approximate_num_entries", "get", "prefix_scan", "range", "reverse_all", "reverse_range"}
)
KEY_VALUE = StoreKind("kv", Family.KEYS, KeyValueStore, KEY_QUERIES)


def _row_putter(store: TimestampedKeyValueStore[Any, Any]) -> Callable[[Any, Any, int], bool]:
    put_pair = store.put_pair

    @inlined
    def put(key: Any, value: Any, timestamp_ms: int) -> bool:
        put_pair(key, value, timestamp_ms)
        return True

    return put


def _in_place(store: TimestampedKeyValueStore[Any, Any]) -> InPlace:
    hot = store.hot
    dirty = store.hot.dirty
    put_pair = store.put_pair

    @inlined
    def find(key: Any) -> Row | None:
        return dirty.get(key) if type(key) is hot.in_place_type else None

    @inlined
    def put(key: Any, value: Any, timestamp_ms: int, is_in_place: bool) -> bool:
        if is_in_place and type(value) is hot.value_type:
            del dirty[key]
            dirty[key] = (value, timestamp_ms)
        else:
            put_pair(key, value, timestamp_ms)
        return True

    return find, put


TIMESTAMPED_KEY_VALUE = StoreKind(
    "timestamped_kv",
    Family.KEYS,
    TimestampedKeyValueStore,
    KEY_QUERIES,
    has_timestamps=True,
    table=TableReads(attrgetter("get_pair"), _row_putter, in_place=_in_place),
    contents=_values,
)
