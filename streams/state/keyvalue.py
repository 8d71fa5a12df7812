"""Key-value views: plain values, and values with the time of their last change.

Key layout: the serialized key, in one namespace.  A timestamped value is its time as 8 bytes,
then the value; in the changelog the time is the record's timestamp instead (KIP-258).
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

from streams.core.loops import timed_values
from streams.core.records import Block
from streams.core.serdes import Serde
from streams.state.engines import next_prefix
from streams.state.hot import ABSENT
from streams.state.lifecycle import Columns, StoreLifecycle, time_of
from streams.state.specs import Family, StoreKind, TableReads

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

_SPACE = 0
_TIME_BYTES = 8
_unpack_time = Struct(">q").unpack_from


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and the event time of its last change."""

    value: V
    timestamp_ms: int


class KeyRanges(StoreLifecycle, Generic[K, R]):
    """Reads over many keys; ``R`` is what a user gets for one."""

    __slots__ = ()

    def _read(self, data: bytes) -> R:
        """Return what a user gets for bytes of the engine."""
        raise NotImplementedError

    def range(self, low: K | None, high: K | None) -> Iterator[tuple[K, R]]:
        """Yield the entries from ``low`` to ``high``, both included, in order of the key bytes; None is open."""
        return self._between(low, high, reverse=False)

    def reverse_range(self, low: K | None, high: K | None) -> Iterator[tuple[K, R]]:
        """Yield what ``range`` does, backwards."""
        return self._between(low, high, reverse=True)

    def all(self) -> Iterator[tuple[K, R]]:
        """Yield all entries in order of the key bytes."""
        return self._scan(None, None, reverse=False)

    def reverse_all(self) -> Iterator[tuple[K, R]]:
        """Yield what ``all`` does, backwards."""
        return self._scan(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, serde: Serde[Any] | None = None) -> Iterator[tuple[K, R]]:
        """Yield the entries whose key bytes start with ``prefix``: bytes, or an object written by ``serde``.

        Without a ``serde`` the store's key serde writes it.
        """
        if serde is None and isinstance(prefix, bytes):
            start: bytes = prefix
        else:
            start = (serde or self.spec.key_serde).serialize(prefix) or b""
        return self._scan(start, next_prefix(start), reverse=False)

    def approximate_num_entries(self) -> int:
        """Return about how many entries there are; exact in memory."""
        self._push()
        return self._staged.count()

    def _between(self, low: K | None, high: K | None, *, reverse: bool) -> Iterator[tuple[K, R]]:
        first, last = self._keys.bound(low), self._keys.bound(high)
        return self._scan(first, None if last is None else last + b"\x00", reverse=reverse)

    def _scan(self, low: bytes | None, high: bytes | None, *, reverse: bool) -> Iterator[tuple[K, R]]:
        self._push()
        if low is not None and high is not None and low >= high:
            return iter(())
        return self._decoded(self._staged.scan(_SPACE, low, high, reverse))

    def _snapshot_rows(self) -> Iterator[tuple[bytes, bytes]]:
        return self._staged.scan(_SPACE, None, None)

    def _decoded(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[K, R]]:
        to_key, read = self._keys.read, self._read
        for key, data in rows:
            yield to_key(key), read(data)


class KeyValueStore(KeyRanges[K, V]):
    """A map from keys to values."""

    __slots__ = ()

    def get(self, key: K) -> V | None:
        """Return the value of ``key``, None if it has none."""
        hot = self.hot
        slot = key if type(key) is hot.key_type else self._keys.slot(key)
        held = hot.dirty.get(slot, ABSENT)
        if held is ABSENT:
            held = self._load(slot)
        return held if hot.holds_objects else self._values.read(held)  # type: ignore[no-any-return]

    def put(self, key: K, value: V | None) -> None:
        """Set the value of ``key``; None deletes it."""
        hot = self.hot
        slot = key if type(key) is hot.key_type else self._keys.slot(key)
        held = value if type(value) is hot.value_type else self._values.hold(value)
        dirty = hot.dirty
        if slot in dirty:
            del dirty[slot]
        dirty[slot] = held

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Set the value of ``key`` if it has none; return the one it had."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Set many values, in order."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> V | None:
        """Remove ``key``; return the value it had."""
        old = self.get(key)
        self.put(key, None)
        return old

    def _load(self, slot: Any) -> Any:
        held = self.hot.cached(slot)
        if held is ABSENT:
            held = self._values.from_bytes(self._staged.get(_SPACE, self._keys.to_bytes(slot)))
            self.hot.remember(slot, held)
        return held

    def _read(self, data: bytes) -> V:
        return self._values.read(data)  # type: ignore[no-any-return]

    def _push(self) -> None:
        if not self.hot.dirty:
            return
        slots, entries = self.hot.take_dirty()
        try:
            keys = self._keys.all_to_bytes(slots)
            values = self._values.all_to_bytes(entries)
        except Exception as error:
            self._noted(error)
            raise
        self._staged.put_all(_SPACE, keys, values)
        self._note(keys, values, [self.time_ms] * len(keys))

    def _restore_rows(self, block: Block) -> None:
        self._staged.load(_SPACE, *keyed(block.keys, block.values))

    def _snapshot_columns(self, rows: Sequence[tuple[bytes, bytes]]) -> Columns:
        keys, values = zip(*rows, strict=True)
        return keys, values, [self.time_ms] * len(rows)


class TimestampedKeyValueStore(KeyRanges[K, ValueAndTimestamp[V]]):
    """A map from keys to values with the time of their last change.

    ``get_pair`` and ``put_pair`` are what operators use: plain tuples ``(value, timestamp_ms)``.
    """

    __slots__ = ()

    def get_pair(self, key: K) -> tuple[V, int] | None:
        """Return (value, timestamp_ms) of ``key``, None if it has none."""
        hot = self.hot
        slot = key if type(key) is hot.key_type else self._keys.slot(key)
        pair = hot.dirty.get(slot, ABSENT)
        if pair is ABSENT:
            pair = self._load(slot)
        if pair is None or pair[0] is None:
            return None
        return pair if hot.holds_objects else (self._values.read(pair[0]), pair[1])

    def put_pair(self, key: K, value: V | None, timestamp_ms: int) -> None:
        """Set value and time of ``key``; a value of None deletes it."""
        hot = self.hot
        slot = key if type(key) is hot.key_type else self._keys.slot(key)
        held = value if type(value) is hot.value_type else self._values.hold(value)
        dirty = hot.dirty
        if slot in dirty:
            del dirty[slot]
        dirty[slot] = (held, timestamp_ms)

    def get(self, key: K) -> ValueAndTimestamp[V] | None:
        """Return value and time of ``key``, None if it has none."""
        pair = self.get_pair(key)
        return None if pair is None else ValueAndTimestamp(*pair)

    def put(self, key: K, value: ValueAndTimestamp[V] | tuple[V | None, int] | None) -> None:
        """Set value and time of ``key``; None deletes it."""
        if value is None:
            self.put_pair(key, None, self.time_ms)
        else:
            self.put_pair(key, value[0], value[1])

    def put_if_absent(self, key: K, value: ValueAndTimestamp[V] | None) -> ValueAndTimestamp[V] | None:
        """Set value and time of ``key`` if it has none; return what it had."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_all(self, entries: Iterable[tuple[K, ValueAndTimestamp[V] | None]]) -> None:
        """Set many values, in order."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> ValueAndTimestamp[V] | None:
        """Remove ``key``; return what it had."""
        old = self.get(key)
        self.put_pair(key, None, self.time_ms)
        return old

    def _load(self, slot: Any) -> Any:
        pair = self.hot.cached(slot)
        if pair is ABSENT:
            data = self._staged.get(_SPACE, self._keys.to_bytes(slot))
            pair = None
            if data is not None:
                pair = (self._values.from_bytes(data[_TIME_BYTES:]), time_of(data[:_TIME_BYTES]))
            self.hot.remember(slot, pair)
        return pair

    def _size_of(self, entry: Any) -> int:
        return super()._size_of(entry[0])

    def _read(self, data: bytes) -> ValueAndTimestamp[V]:
        return ValueAndTimestamp(self._values.read(data[_TIME_BYTES:]), time_of(data[:_TIME_BYTES]))

    def _push(self) -> None:
        if not self.hot.dirty:
            return
        slots, pairs = self.hot.take_dirty()
        try:
            keys = self._keys.all_to_bytes(slots)
            values = self._values.all_to_bytes([pair[0] for pair in pairs])
        except Exception as error:
            self._noted(error)
            raise
        times = [pair[1] for pair in pairs]
        self._staged.put_all(_SPACE, keys, timed_values(values, times))
        self._note(keys, values, times)

    def _restore_rows(self, block: Block) -> None:
        self._staged.load(_SPACE, *keyed(block.keys, timed_values(block.values, block.timestamps)))

    def _snapshot_columns(self, rows: Sequence[tuple[bytes, bytes]]) -> Columns:
        keys, values = zip(*rows, strict=True)
        return keys, *untimed(values)


def untimed(data: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
    """Return the values and the times that ``timed_values`` joined."""
    unpack = _unpack_time
    return [value[_TIME_BYTES:] for value in data], [unpack(value)[0] for value in data]


def keyed(
    keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> tuple[Sequence[bytes], Sequence[bytes | None]]:
    """Leave out records without a key, which a changelog should not have."""
    if None not in keys:
        return keys, values  # type: ignore[return-value]
    rows = [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]
    return [key for key, _ in rows], [value for _, value in rows]


def _values(store: TimestampedKeyValueStore[Any, Any]) -> Iterator[tuple[Any, Any]]:
    return ((key, row.value) for key, row in store.all())


#: What interactive queries may call on key-value stores.
KEY_QUERIES = frozenset(
    {"all", "approximate_num_entries", "get", "prefix_scan", "range", "reverse_all", "reverse_range"}
)
KEY_VALUE = StoreKind("kv", Family.KEYS, KeyValueStore, KEY_QUERIES)
TIMESTAMPED_KEY_VALUE = StoreKind(
    "timestamped_kv",
    Family.KEYS,
    TimestampedKeyValueStore,
    KEY_QUERIES,
    table=TableReads(attrgetter("get_pair"), attrgetter("put_pair")),
    contents=_values,
)
