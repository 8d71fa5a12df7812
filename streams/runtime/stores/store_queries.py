"""Query objects for state stores, and their results (interactive queries v2: KIP-796, 805, 960, 968, 985, 992).

A query reads the store of one task and yields entries.  Entries have the same form for all kinds of stores, so that
they can be sent to another instance, sorted and split into pages.  ``result`` converts entries to the user's result.
The module is pure and imports only ``core`` and ``state``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias

from attrs import field, frozen
from typing_extensions import TypeVar

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.records import Headers, TopicPartition, Window, Windowed
from streams.state import (
    Family,
    StoreSpec,
    ValueAndHeaders,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedRecord,
    queried,
)

K = TypeVar("K")
#: Any where a query does not say the type of the values: ``KeyQuery("ann")``, not ``KeyQuery[str, int]("ann")``.
V = TypeVar("V", default=Any)
R = TypeVar("R")


class StoreEntry(NamedTuple):
    """An entry of a store of any kind.

    ``start_ms`` and ``end_ms`` are only set for windows and sessions, ``valid_to_ms`` only for versions, and
    ``headers`` only for stores that keep headers.
    """

    key: Any
    value: Any
    timestamp_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    valid_to_ms: int | None = None
    headers: Headers | None = None


#: The sort key of an entry in a scan: serialized key, start and end of the window.
Rank: TypeAlias = tuple[bytes, int, int]


class FailureReason(Enum):
    """The reason why the query of a partition failed, named as in KIP-796."""

    #: A store of this kind does not support this query.
    UNKNOWN_QUERY_TYPE = "unknown_query_type"
    #: The task is being restored, or the group may have removed this member and reassigned the task.
    NOT_ACTIVE = "not_active"
    #: The store has not reached the position bound, or the standby copy is too stale.
    NOT_UP_TO_BOUND = "not_up_to_bound"
    #: The task is being moved, or the instance that has it cannot be reached.
    NOT_PRESENT = "not_present"
    #: The store has no such partition.
    DOES_NOT_EXIST = "does_not_exist"
    #: Reading the store raised an error.
    STORE_EXCEPTION = "store_exception"


@frozen
class Position:
    """Offsets of input records, by topic and partition (KIP-796).

    The position of a result has the last offset of each input partition that the result includes.  As the bound of a
    query, a position requires the result to include these records: the offset of an acknowledged record ensures
    read-your-writes consistency, and the position of an earlier result ensures monotonic reads.

    >>> Position.parse("orders:0:41,orders:1:7").merge(Position({TopicPartition("orders", 0): 50})).text()
    'orders:0:50,orders:1:7'
    """

    offsets: Mapping[TopicPartition, int] = field(factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Parse ``TOPIC:PARTITION:OFFSET``, separated by commas, as returned by ``text``.

        Raises:
            ValueError: the text does not have this form.
        """
        offsets: dict[TopicPartition, int] = {}
        for part in filter(None, text.split(",")):
            topic, partition, offset = ("", "", *part.rsplit(":", 2))[-3:]
            if not (topic and partition.isdecimal() and offset.removeprefix("-").isdecimal()):
                raise ValueError(f"position {part[:80]!r} is not TOPIC:PARTITION:OFFSET")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        return cls(offsets)

    def text(self) -> str:
        """Return the position in the text format of ``parse``."""
        return ",".join(f"{topic}:{number}:{offset}" for (topic, number), offset in sorted(self.offsets.items()))

    def merge(self, other: "Position") -> "Position":
        """Return the position with the higher offset of each partition."""
        merged = dict(self.offsets)
        for partition, offset in other.offsets.items():
            merged[partition] = max(offset, merged.get(partition, offset))
        return Position(merged)

    def missing_in(self, other: "Position") -> "Position":
        """Return the offsets that ``other`` has not reached, for the partitions that ``other`` contains."""
        reached = other.offsets
        return Position({key: offset for key, offset in self.offsets.items() if reached.get(key, offset) < offset})


@frozen
class StoreQuery(Generic[R]):
    """A query of a state store; ``R`` is the type of its result."""

    #: Whether the query is for one ``key``, so that only one partition is queried.
    is_of_key: ClassVar[bool] = False

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching entries of a store, or None if stores of its kind do not support this query."""
        raise NotImplementedError

    def is_sorted(self, spec: StoreSpec) -> bool:
        """Return whether ``entries`` yields the entries of such a store in rank order."""
        return spec.kind.family is Family.KEYS or self.is_of_key

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> R:
        """Convert the matching entries of all queried partitions to the result for the user."""
        raise NotImplementedError


def entry_of(key: Any, value: Any) -> StoreEntry:
    """Convert a key, which may be windowed, and its value, as returned by a store, to an entry."""
    window: Sequence[int | None] = (None, None)
    if isinstance(key, Windowed):
        key, window = key
    if isinstance(value, VersionedRecord):
        return StoreEntry(key, value.value, value.timestamp_ms, None, None, value.valid_to_ms)
    timestamp_ms = headers = None
    if isinstance(value, ValueTimestampHeaders):
        value, timestamp_ms, headers = value
    elif isinstance(value, ValueAndTimestamp):
        value, timestamp_ms = value
    if isinstance(value, ValueAndHeaders):
        value, headers = value
    return StoreEntry(key, value, timestamp_ms, window[0], window[1], None, headers)


def entries_of(spec: StoreSpec, rows: Iterable[tuple[Any, Any]]) -> Iterator[StoreEntry]:
    """Convert (key, value) pairs, as returned by a store, to entries.

    Windowed keys of a key-value store, such as those of count windows, are not split into key and window.
    """
    if spec.kind.family is not Family.KEYS:
        return (entry_of(key, value) for key, value in rows)
    return (entry_of(None, value)._replace(key=key) for key, value in rows)


def native(entry: StoreEntry, spec: StoreSpec) -> Any:
    """Return the value of an entry as the store itself does: plain, with timestamp or headers, or as a version."""
    if spec.kind.has_versions:
        return VersionedRecord(entry.value, entry.timestamp_ms or 0, entry.valid_to_ms)
    if entry.headers is not None:
        if entry.timestamp_ms is None:
            return ValueAndHeaders(entry.value, entry.headers)
        return ValueTimestampHeaders(entry.value, entry.timestamp_ms, entry.headers)
    return entry.value if entry.timestamp_ms is None else ValueAndTimestamp(entry.value, entry.timestamp_ms)


def _one(store: Any, key: Any, value: Any) -> Iterable[StoreEntry]:
    return () if value is None else entries_of(store.spec, [(key, value)])


def _windows(entries: Sequence[StoreEntry], spec: StoreSpec) -> list[tuple[Any, Any]]:
    return [(Windowed(e.key, Window(e.start_ms or 0, e.end_ms or 0)), native(e, spec)) for e in entries]


def _read(store: Any, verb: str, *arguments: Any) -> Any:
    """Call the read method of a store that is named ``verb``; return None if stores of this kind do not support it."""
    return getattr(queried(store), verb)(*arguments) if verb in store.spec.kind.queries else None


def _all(store: Any, verb: str, *arguments: Any) -> Iterable[StoreEntry] | None:
    rows = _read(store, verb, *arguments)
    return None if rows is None else entries_of(store.spec, rows)


def _of_key(store: Any, key: Any) -> Iterable[StoreEntry] | None:
    return _one(store, key, queried(store).get(key)) if "get" in store.spec.kind.queries else None


def _range(store: Any, low: Any, high: Any, *, reverse: bool) -> Iterable[StoreEntry] | None:
    return _all(store, "reverse_range" if reverse else "range", low, high)


@frozen
class TimestampedKeyQuery(StoreQuery["ValueAndTimestamp[V] | None"], Generic[K, V]):
    """A query for the value of a key, with its timestamp if the store keeps timestamps, or None (KIP-960)."""

    is_of_key = True
    key: K

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching entry in a list, or an empty list."""
        return _of_key(store, self.key)

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return the value for the key, with its timestamp if there is one, or None."""
        return native(entries[0], spec) if entries else None


@frozen
class KeyQuery(StoreQuery["V | None"], Generic[K, V]):
    """A query for the value of a key without a timestamp, or None (KIP-796)."""

    is_of_key = True
    key: K

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching entry in a list, or an empty list."""
        return _of_key(store, self.key)

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return the value for the key without its timestamp, or None."""
        return entries[0].value if entries else None


@frozen
class TimestampedRangeQuery(StoreQuery["list[tuple[K, ValueAndTimestamp[V]]]"], Generic[K, V]):
    """A query for the entries of a key-value store from key ``low`` to ``high``, inclusive (KIP-805, KIP-992).

    Serialized keys are compared.  None means no bound; ``reverse`` returns the entries in descending key order
    (KIP-985).
    """

    low: K | None = None
    high: K | None = None
    reverse: bool = False

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching entries in key order."""
        return _range(store, self.low, self.high, reverse=self.reverse)

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return (key, value) for each entry; values have timestamps if the store keeps timestamps."""
        return [(entry.key, native(entry, spec)) for entry in entries]


@frozen
class RangeQuery(StoreQuery["list[tuple[K, V]]"], Generic[K, V]):
    """Like ``TimestampedRangeQuery``, but with values without timestamps (KIP-805)."""

    low: K | None = None
    high: K | None = None
    reverse: bool = False

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching entries in key order."""
        return _range(store, self.low, self.high, reverse=self.reverse)

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return (key, value) for each entry."""
        return [(entry.key, entry.value) for entry in entries]


@frozen
class PrefixQuery(StoreQuery["list[tuple[K, V]]"], Generic[K, V]):
    """A query for the entries of a key-value store whose serialized keys begin with ``prefix``."""

    prefix: bytes

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching entries in key order."""
        return _all(store, "prefix_scan", self.prefix)

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return (key, value) for each entry."""
        return [(entry.key, entry.value) for entry in entries]


@frozen
class WindowKeyQuery(StoreQuery["list[tuple[int, V]]"], Generic[K, V]):
    """A query for the windows of a key that start from ``from_ms`` to ``to_ms``, inclusive (KIP-806)."""

    is_of_key = True
    key: K
    from_ms: int = 0
    to_ms: int = MAX_TIME_MS
    reverse: bool = False

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching windows, ordered by start time."""
        verb = "backward_fetch_range" if self.reverse else "fetch_range"
        rows = _read(store, verb, self.key, self.from_ms, self.to_ms)
        if rows is None:
            return None
        return (entry_of(Windowed(self.key, store.spec.window_at(at)), value) for at, value in rows)

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return (start, value) for each window."""
        return [(entry.start_ms, native(entry, spec)) for entry in entries]


@frozen
class WindowRangeQuery(StoreQuery["list[tuple[Windowed[K], V]]"], Generic[K, V]):
    """A query for the windows of all keys, or of keys from ``low`` to ``high``, by start time (KIP-806).

    The start time is in the range from ``from_ms`` to ``to_ms``, inclusive.
    """

    from_ms: int = 0
    to_ms: int = MAX_TIME_MS
    low: K | None = None
    high: K | None = None
    reverse: bool = False

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching windows in the order of the store."""
        return _all(store, "fetch_keys", self.low, self.high, self.from_ms, self.to_ms) if _is_window(store) else None

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return (windowed key, value) for each window."""
        return _windows(entries, spec)


@frozen
class SessionKeyQuery(StoreQuery["list[tuple[Windowed[K], V]]"], Generic[K, V]):
    """A query for the sessions of a key that end at ``from_ms`` or later and start at ``to_ms`` or earlier.

    In Kafka Streams this is ``WindowRangeQuery.withKey``, which has no time range.
    """

    is_of_key = True
    key: K
    from_ms: int = 0
    to_ms: int = MAX_TIME_MS
    reverse: bool = False

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching sessions, ordered by time."""
        sessions = _all(store, "find_sessions", self.key, self.from_ms, self.to_ms)
        if sessions is None:
            return None
        return sorted(sessions, key=lambda entry: (entry.start_ms, entry.end_ms), reverse=self.reverse)

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return (windowed key, value) for each session."""
        return _windows(entries, spec)


@frozen
class SessionRangeQuery(StoreQuery["list[tuple[Windowed[K], V]]"], Generic[K, V]):
    """A query for the sessions of all keys, or of keys from ``low`` to ``high``, in a time range.

    A session is in the range if it ends at ``from_ms`` or later and starts at ``to_ms`` or earlier.
    """

    from_ms: int = 0
    to_ms: int = MAX_TIME_MS
    low: K | None = None
    high: K | None = None
    reverse: bool = False

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching sessions in the order of the store."""
        return _all(store, "find_sessions_of_keys", self.low, self.high, self.from_ms, self.to_ms)

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return (windowed key, value) for each session."""
        return _windows(entries, spec)


@frozen
class VersionedKeyQuery(StoreQuery["VersionedRecord[V] | None"], Generic[K, V]):
    """A query for the version of a key that is valid at ``as_of_ms``, by default the latest, or None (KIP-960)."""

    is_of_key = True
    key: K
    as_of_ms: int | None = None

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching entry in a list, or an empty list."""
        if not store.spec.kind.has_versions:
            return None
        view = queried(store)
        at = self.as_of_ms
        return _one(store, self.key, view.get(self.key) if at is None else view.get_as_of(self.key, at))

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return the version of the key, or None."""
        return native(entries[0], spec) if entries else None


@frozen
class MultiVersionedKeyQuery(StoreQuery["list[VersionedRecord[V]]"], Generic[K, V]):
    """A query for the versions of a key valid at any time from ``from_ms`` to ``to_ms``, oldest first (KIP-968)."""

    is_of_key = True
    key: K
    from_ms: int = 0
    to_ms: int = MAX_TIME_MS
    reverse: bool = False

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return the matching versions, oldest first, or newest first with ``reverse``."""
        versions = _read(store, "history", self.key, self.from_ms, self.to_ms)
        if versions is None:
            return None
        newest_first = [entry_of(self.key, version) for version in versions]
        return newest_first if self.reverse else newest_first[::-1]

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return the versions of the key as a list."""
        return [native(entry, spec) for entry in entries]


@frozen
class CountQuery(StoreQuery[int]):
    """A query for the approximate number of entries of a key-value or versioned store."""

    def entries(self, store: Any) -> Iterable[StoreEntry] | None:
        """Return a single entry, whose value is the number of entries in the store."""
        count = _read(store, "approximate_num_entries")
        return None if count is None else (StoreEntry(None, count),)

    def result(self, entries: Sequence[StoreEntry], spec: StoreSpec) -> Any:
        """Return the sum of the entry counts of all partitions."""
        return sum(entry.value for entry in entries)


#: The queries by name, which identifies them in requests between instances.
QUERIES: Mapping[str, type[StoreQuery[Any]]] = {
    query.__name__: query
    for query in (
        CountQuery,
        KeyQuery,
        MultiVersionedKeyQuery,
        PrefixQuery,
        RangeQuery,
        SessionKeyQuery,
        SessionRangeQuery,
        TimestampedKeyQuery,
        TimestampedRangeQuery,
        VersionedKeyQuery,
        WindowKeyQuery,
        WindowRangeQuery,
    )
}


def _is_window(store: Any) -> bool:
    return store.spec.kind.family is Family.WINDOWS


# --- pages --------------------------------------------------------------------------------------


@frozen
class Page:
    """A page of query results: at most ``limit`` entries (None: no limit), whose ranks follow ``after``."""

    limit: int | None = None
    after: Rank | None = None

    def of(
        self, entries: Iterable[StoreEntry], query: StoreQuery[Any], spec: StoreSpec
    ) -> tuple[list[StoreEntry], bool]:
        """Return the entries of this page, and whether there are more."""
        reverse: bool = getattr(query, "reverse", False)
        rank = ranker(spec)
        after = self.after
        if after is not None:
            entries = (entry for entry in entries if (rank(entry) < after if reverse else rank(entry) > after))
        if self.limit is None:
            page = list(entries)
            if not query.is_sorted(spec):
                page.sort(key=rank, reverse=reverse)
            return page, False
        count = self.limit + 1
        if query.is_sorted(spec):
            page = list(islice(entries, count))
        else:
            page = (nlargest if reverse else nsmallest)(count, entries, rank)
        return page[: self.limit], len(page) == count


def ranker(spec: StoreSpec) -> Callable[[StoreEntry], Rank]:
    """Return a function that maps an entry of this store to its rank, the key by which entries are sorted."""
    serialize = spec.key_serde.serialize

    def rank(entry: StoreEntry) -> Rank:
        return serialize(entry.key) or b"", entry.start_ms or 0, entry.end_ms or 0

    return rank


# --- results ------------------------------------------------------------------------------------


@frozen
class QueryResult(Generic[R]):
    """The result of the query of one partition: a value, or a failure with its reason and a message."""

    partition: int
    position: Position
    entries: Sequence[StoreEntry] = ()
    #: Whether entries follow after this page.
    has_more: bool = False
    failure: FailureReason | None = None
    message: str = ""
    #: Staleness in ms of the result of a standby copy; None for the active task.
    stale_ms: int | None = None
    _value: Callable[[Sequence[StoreEntry]], R] | None = None

    @property
    def is_success(self) -> bool:
        """Whether the query of the partition succeeded."""
        return self.failure is None

    @property
    def value(self) -> R:
        """The result of the query.

        Raises:
            LookupError: the query of the partition failed.
        """
        if self.failure is not None or self._value is None:
            raise LookupError(f"partition {self.partition}: {self.failure and self.failure.name}: {self.message}")
        return self._value(self.entries)


@frozen
class StateQueryResult(Generic[R]):
    """The results of all queried partitions (KIP-796)."""

    partitions: Mapping[int, QueryResult[R]]
    _query: StoreQuery[R]
    _spec: StoreSpec

    @property
    def is_success(self) -> bool:
        """Whether the query succeeded in every partition."""
        return all(result.is_success for result in self.partitions.values())

    @property
    def position(self) -> Position:
        """The merged position of the results of all partitions, which can be the bound of a later query."""
        merged = Position()
        for result in self.partitions.values():
            merged = merged.merge(result.position)
        return merged

    @property
    def only(self) -> QueryResult[R]:
        """The result of the only partition that was queried, for example for a query by key.

        Raises:
            LookupError: several partitions were queried.
        """
        if len(self.partitions) != 1:
            raise LookupError(f"{len(self.partitions)} partitions were queried; use partitions or value")
        return next(iter(self.partitions.values()))

    @property
    def value(self) -> R:
        """The result of the query, from the entries of all partitions in the order of their ranks.

        Raises:
            LookupError: the query of a partition failed.
        """
        for result in self.partitions.values():
            if not result.is_success:
                return result.value
        return self._query.result(merged_entries(self.partitions.values(), self._query, self._spec), self._spec)


def merged_entries(results: Iterable[QueryResult[Any]], query: StoreQuery[Any], spec: StoreSpec) -> list[StoreEntry]:
    """Merge the entries of several partitions in the order of their ranks."""
    parts = [result.entries for result in results]
    if len(parts) == 1:
        return list(parts[0])
    joined = [entry for entries in parts for entry in entries]
    if not isinstance(query, CountQuery):
        joined.sort(key=ranker(spec), reverse=getattr(query, "reverse", False))
    return joined
