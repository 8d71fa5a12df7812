"""Views of the stores that keep headers, as in Kafka Streams 4.3 (KIP-1271), and the kinds of these stores.

The store below a view is that of the kind without headers; its values are pairs of a value and headers. A session store
needs no view: its values are these pairs.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from attrs import evolve

from streams.core.blocks.records import Headers, Windowed
from streams.core.errors import StoreError
from streams.core.serdes.serdes import Serde
from streams.state.specs import StoreKind
from streams.state.views.entries import ValueAndTimestamp
from streams.state.views.headers import ValueAndHeaders
from streams.state.views.keyvalue import TIMESTAMPED_KEY_VALUE, TimestampedKeyValueStore
from streams.state.views.session import SESSION
from streams.state.views.window import TIMESTAMPED_WINDOW, TimestampedWindowStore

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class ValueTimestampHeaders(NamedTuple, Generic[V]):
    """A value, the event time of its last change, and the headers of the record that it came from."""

    value: V
    timestamp_ms: int
    headers: Headers = ()


def _shown(row: ValueAndTimestamp[ValueAndHeaders[V]] | None) -> ValueTimestampHeaders[V] | None:
    return None if row is None else ValueTimestampHeaders(row.value.value, row.timestamp_ms, row.value.headers)


def _stored(row: ValueTimestampHeaders[V] | None) -> ValueAndTimestamp[ValueAndHeaders[V]] | None:
    """Return what the store below keeps for a row; None deletes, as does a value of None, as in Kafka Streams."""
    if row is None:
        return None
    if not isinstance(row, ValueTimestampHeaders):
        raise StoreError(
            "a store with headers has ValueTimestampHeaders(value, timestamp_ms, headers), "
            f"not {row!r:.80}; put None to delete"
        )
    value, timestamp_ms, headers = row
    return None if value is None else ValueAndTimestamp(ValueAndHeaders(value, tuple(headers)), timestamp_ms)


def _all_shown(
    rows: Iterable[tuple[R, ValueAndTimestamp[ValueAndHeaders[V]]]],
) -> Iterator[tuple[R, ValueTimestampHeaders[V]]]:
    return ((key, ValueTimestampHeaders(row.value.value, row.timestamp_ms, row.value.headers)) for key, row in rows)


class TimestampedKeyValueStoreWithHeaders(Generic[K, V]):
    """A store of values by key, with the time of their last change and the headers of its record."""

    __slots__ = ("_store",)

    def __init__(self, store: TimestampedKeyValueStore[K, ValueAndHeaders[V]]) -> None:
        self._store = store

    def get(self, key: K) -> ValueTimestampHeaders[V] | None:
        return _shown(self._store.get(key))

    def put(self, key: K, value: ValueTimestampHeaders[V] | None) -> None:
        """Set the value, timestamp and headers of ``key``; None deletes the key."""
        self._store.put(key, _stored(value))

    def put_if_absent(self, key: K, value: ValueTimestampHeaders[V] | None) -> ValueTimestampHeaders[V] | None:
        """Set the value of ``key`` if it has none; return the previous value."""
        return _shown(self._store.put_if_absent(key, _stored(value)))

    def put_all(self, entries: Iterable[tuple[K, ValueTimestampHeaders[V] | None]]) -> None:
        """Set several values, in the given order."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> ValueTimestampHeaders[V] | None:
        """Remove ``key``; return the previous value."""
        return _shown(self._store.delete(key))

    def range(self, low: K | None, high: K | None) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        """Yield the entries from ``low`` to ``high`` (inclusive), ordered by key bytes; a bound of None is open."""
        return _all_shown(self._store.range(low, high))

    def reverse_range(self, low: K | None, high: K | None) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        """Yield the entries of ``range`` in reverse order."""
        return _all_shown(self._store.reverse_range(low, high))

    def all(self) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        """Yield all entries, ordered by key bytes."""
        return _all_shown(self._store.all())

    def reverse_all(self) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        """Yield all entries in reverse order of key bytes."""
        return _all_shown(self._store.reverse_all())

    def prefix_scan(self, prefix: Any, serde: Serde[Any] | None = None) -> Iterator[tuple[K, ValueTimestampHeaders[V]]]:
        """Yield the entries whose key bytes start with ``prefix``, as in a store without headers."""
        return _all_shown(self._store.prefix_scan(prefix, serde))

    def approximate_num_entries(self) -> int:
        """Return the estimated number of entries, which is exact for in-memory stores."""
        return self._store.approximate_num_entries()


class TimestampedWindowStoreWithHeaders(Generic[K, V]):
    """A store of values by key and window start, with the time of their last change and the headers of its record."""

    __slots__ = ("_store",)

    def __init__(self, store: TimestampedWindowStore[K, ValueAndHeaders[V]]) -> None:
        self._store = store

    @property
    def observed_stream_time_ms(self) -> int:
        """The highest window start that was put so far, initially -1."""
        return self._store.observed_stream_time_ms

    def fetch(self, key: K, start_ms: int) -> ValueTimestampHeaders[V] | None:
        """Return the entry of the window that starts at ``start_ms``, or None if there is none."""
        return _shown(self._store.fetch(key, start_ms))

    def put(self, key: K, value: ValueTimestampHeaders[V] | None, start_ms: int) -> None:
        """Set the value, timestamp and headers of a window; None deletes the entry."""
        self._store.put(key, _stored(value), start_ms)

    def fetch_range(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, ValueTimestampHeaders[V]]]:
        """Yield (start, value) for the windows of ``key`` that start in the given range."""
        return _all_shown(self._store.fetch_range(key, from_ms, to_ms))

    def backward_fetch_range(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, ValueTimestampHeaders[V]]]:
        """Yield the windows of ``fetch_range`` in reverse order."""
        return _all_shown(self._store.backward_fetch_range(key, from_ms, to_ms))

    def fetch_keys(
        self, low: K | None, high: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], ValueTimestampHeaders[V]]]:
        """Yield (windowed key, value) for the keys from ``low`` to ``high``, inclusive; a bound of None is open."""
        return _all_shown(self._store.fetch_keys(low, high, from_ms, to_ms))

    def backward_fetch_keys(
        self, low: K | None, high: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], ValueTimestampHeaders[V]]]:
        """Yield the windows of ``fetch_keys`` in reverse order."""
        return _all_shown(self._store.backward_fetch_keys(low, high, from_ms, to_ms))

    def fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], ValueTimestampHeaders[V]]]:
        """Yield (windowed key, value) for all windows that start in the given range."""
        return _all_shown(self._store.fetch_all(from_ms, to_ms))

    def backward_fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], ValueTimestampHeaders[V]]]:
        """Yield the windows of ``fetch_all`` in reverse order."""
        return _all_shown(self._store.backward_fetch_all(from_ms, to_ms))

    def all(self) -> Iterator[tuple[Windowed[K], ValueTimestampHeaders[V]]]:
        """Yield (windowed key, value) for all windows."""
        return _all_shown(self._store.all())

    def backward_all(self) -> Iterator[tuple[Windowed[K], ValueTimestampHeaders[V]]]:
        """Yield all windows in reverse order."""
        return _all_shown(self._store.backward_all())


def _kind(plain: StoreKind, view: Callable[[Any], Any] | None) -> StoreKind:
    """Return the kind of stores that are as those of another kind, and keep headers.

    Tables of the DSL have none of them: as in Kafka Streams 4.4, operators keep no headers for the rows of tables.
    """
    name = f"{plain.name}_with_headers"
    return evolve(plain, name=name, base=name, view=view, keeps_headers=True, table=None)


TIMESTAMPED_KEY_VALUE_WITH_HEADERS = _kind(TIMESTAMPED_KEY_VALUE, TimestampedKeyValueStoreWithHeaders)
TIMESTAMPED_WINDOW_WITH_HEADERS = _kind(TIMESTAMPED_WINDOW, TimestampedWindowStoreWithHeaders)
SESSION_WITH_HEADERS = _kind(SESSION, None)
