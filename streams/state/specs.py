"""The declaration of a state store: its kind and its spec.

A kind is a value that describes everything in which it differs from other store kinds; it is defined in the
module of its view. A spec is a value in the topology, from which each task opens its own instance of the store.
Of the other packages, this module imports only ``core``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from operator import methodcaller
from typing import Any, TypeAlias

from attrs import Factory, evolve, field, frozen

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.marks import KafkaFormat
from streams.core.blocks.records import Block, Headers, TopicPartition, Window
from streams.core.errors import StoreError
from streams.core.event_time.calendar import Calendar
from streams.core.migrations import Migration
from streams.core.serdes.serdes import Serde, inside
from streams.state.views.windowed_keys import SESSION_KEY, WINDOW_KEY

#: Converts the changelog records of a partition, which are given in order.
Upgrades: TypeAlias = Callable[[TopicPartition], Callable[[Block], Block]]
#: A value and the event time of its last change.
Row = tuple[Any, int]


class Family(Enum):
    """The key layout in the engine and the changelog; stores of the same family can read each other's entries."""

    #: Serialized keys.
    KEYS = "keys"
    #: Keys with a window start and a sequence number.
    WINDOWS = "windows"
    #: Keys with a session's end and start.
    SESSIONS = "sessions"

    @property
    def key_format(self) -> KafkaFormat | None:
        """The format by which keys in the changelog are recognized; None: a key may have any bytes."""
        return {Family.WINDOWS: WINDOW_KEY, Family.SESSIONS: SESSION_KEY}.get(self)

    @property
    def has_windowed_keys(self) -> bool:
        """Whether a table backed by this kind of store has ``Windowed`` keys."""
        return self is not Family.KEYS


#: The functions ``find`` and ``put``, with which an operator replaces dirty rows without a call. ``find(key)``
#: returns the row if it may be replaced, else None. ``put(key, value, timestamp_ms, is_in_place)`` does the same
#: as ``TableReads.put``; ``is_in_place`` requires that the preceding ``find`` has returned a row with a value.
InPlace: TypeAlias = tuple[Callable[[Any], Row | None], Callable[[Any, Any, int, bool], bool | None]]


@frozen
class TableReads:
    """Factories for the read and write functions of a table; each factory takes an open store.

    ``put`` returns ``put(key, value, timestamp_ms)``, which returns whether the row is now the latest row for its
    key, or None if the row was too old to be stored. ``get_as_of`` returns ``get(key, timestamp_ms)``; it is None
    if the kind keeps no history.
    """

    get: Callable[[Any], Callable[[Any], Row | None]]
    put: Callable[[Any], Callable[[Any, Any, int], bool | None]]
    get_as_of: Callable[[Any], Callable[[Any, int], Row | None]] | None = None
    #: As ``get``, for the operator that writes the table: an expired row is removed first; None: the same as ``get``.
    get_own: Callable[[Any], Callable[[Any], Row | None]] | None = None
    #: As ``get``, with the expired rows whose deletion was not forwarded yet; None: the same as ``get``.
    get_undeleted: Callable[[Any], Callable[[Any], Row | None]] | None = None
    #: If None, no rows are replaced in place.
    in_place: Callable[[Any], InPlace] | None = None


def _names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


def _nothing_more(_: "StoreSpec") -> dict[str, str]:
    return {}


def _no_segments(_: "StoreSpec") -> int:
    return -1


@frozen
class StoreKind:
    """A store kind, which describes everything in which its stores differ from those of other kinds.

    Kinds with equal names are equal; the names are stored in state directories and snapshots. The functions take
    the spec or an open store. Create a custom kind, which is a view over a store of a built-in kind, with
    ``viewed``.
    """

    name: str
    family: Family = field(eq=False)
    #: Opens the store (a ``lifecycle.Store``) from a spec, a staged engine and a memory budget.
    open: Callable[..., Any] = field(eq=False)
    #: Names of the methods that interactive queries may call on the view.
    queries: frozenset[str] = field(eq=False, converter=_names)
    #: Creates the view of an open store for processors and queries; None: the store itself is used.
    view: Callable[[Any], Any] | None = field(eq=False, default=None)
    #: Name of the built-in kind under a view, else ``name``; the built-in kind determines the layout.
    base: str = field()
    #: Names of the spec fields with required durations.
    needs: tuple[str, ...] = field(eq=False, default=())
    #: Returns the segment length in milliseconds for a spec, or -1 without segments.
    segment_ms: Callable[["StoreSpec"], int] = field(eq=False, default=_no_segments)
    #: Settings of the changelog topic in addition to compaction.
    topic_config: Callable[["StoreSpec"], dict[str, str]] = field(eq=False, default=_nothing_more)
    #: Whether the store is always in memory, regardless of the default engine.
    is_in_memory: bool = field(eq=False, default=False)
    #: The end of the type of its stores in the tags of metrics, as in Kafka Streams, such as ``-window``.
    type_suffix: str = field(eq=False)
    #: Whether rows have the event time of their last change.
    has_timestamps: bool = field(eq=False, default=False)
    #: Whether each changelog record is a version that does not supersede earlier records.
    has_versions: bool = field(eq=False, default=False)
    #: Whether several values of one key and time may be retained.
    can_retain_duplicates: bool = field(eq=False, default=False)
    #: Whether values are kept with the headers of their records, which are those of the changelog (KIP-1271).
    keeps_headers: bool = field(eq=False, default=False)
    #: Whether entries expire after a TTL.
    can_expire: bool = field(eq=False, default=False)
    #: How a table reads and writes its store; None if stores of this kind cannot back a table.
    table: TableReads | None = field(eq=False, default=None)
    #: Yields (key, value) for the whole content.
    contents: Callable[[Any], Iterator[tuple[Any, Any]]] = field(eq=False, default=methodcaller("all"))
    #: Yields the same as the store returns it, in some kinds with timestamps; not for kinds with versions.
    rows: Callable[[Any], Iterator[tuple[Any, Any]]] = field(eq=False, default=methodcaller("all"))
    #: Takes a snapshot's entries and carried metadata, and returns the indexes of the entries in changelog order,
    #: or None if the entries are in that order already. The field is None if this is the case for every snapshot.
    changelog_order: Callable[[Block, Mapping[str, bytes]], Sequence[int] | None] | None = field(eq=False, default=None)

    @base.default
    def _own_name(self) -> str:
        return self.name

    @type_suffix.default
    def _suffix_of_family(self) -> str:
        return {Family.WINDOWS: "-window", Family.SESSIONS: "-session"}.get(self.family, "")

    @property
    def shown(self) -> str:
        """The name of the store kind, as shown in messages."""
        return self.name.replace("_", " ")

    def viewed(self, name: str, view: Callable[[Any], Any], queries: Sequence[str] = ()) -> "StoreKind":
        """Return a kind with another name, whose stores are used by processors and queries through ``view(store)``.

        Everything else is the same as in this kind: serdes, changelog, restoring and snapshots. ``queries`` are
        the names of the view methods that interactive queries may call; the methods run on the stream thread and
        must not write.

        Raises:
            StoreError: this kind is itself a view, ``name`` is the name of this kind, or the view has no such
                query method.
        """
        if self.base != self.name:
            raise StoreError(f"kind {name!r}: {self.name!r} is itself a view; make the view over {self.base!r}")
        if not name or name == self.name:
            raise StoreError(f"kind {name!r}: give the view a name of its own, other than {self.name!r}")
        if missing := [query for query in queries if isinstance(view, type) and not hasattr(view, query)]:
            raise StoreError(f"kind {name!r}: {view.__qualname__} has no method {missing[0]!r} that can be queried")
        return evolve(self, name=name, view=view, queries=queries, base=self.base)

    def check(self, spec: "StoreSpec") -> None:
        """Check that a spec has the options that this kind requires.

        Raises:
            StoreError: an option is missing or not supported.
        """
        if any(getattr(spec, need) < 0 for need in self.needs):
            bound = "both at least 0" if len(self.needs) > 1 else "at least 0"
            raise StoreError(f"{self.shown} store {spec.name!r}: give {' and '.join(self.needs)}, {bound}")
        if spec.ttl_ms >= 0 and not self.can_expire:
            raise StoreError(f"{self.shown} store {spec.name!r}: a ttl is for plain and timestamped key-value stores")
        if spec.retain_duplicates and not self.can_retain_duplicates:
            raise StoreError(f"{self.shown} store {spec.name!r}: only a plain window store can retain duplicates")


@frozen
class StoreSpec:
    """The name, kind, serdes and options of a store.

    ``window_size_ms`` applies to window stores, ``retention_ms`` to window and session stores, ``history_ms`` to
    versioned stores, ``ttl_ms`` to key-value stores that expire, and ``max_entries`` to LRU stores. With
    ``is_persistent=False`` the store is in memory regardless of the default engine; None selects the default engine.
    ``has_caching=False`` exempts the store from the record cache, if the application has one.
    """

    name: str
    kind: StoreKind
    key_serde: Serde[Any] = field(converter=inside)
    value_serde: Serde[Any] = field(converter=inside)
    is_persistent: bool | None = None
    #: None and True differ only in that True was asked for.
    has_caching: bool | None = None
    has_changelog: bool = True
    retention_ms: int = -1
    window_size_ms: int = -1
    retain_duplicates: bool = False
    history_ms: int = -1
    ttl_ms: int = -1
    max_entries: int = -1
    changelog_config: Mapping[str, str] = field(factory=dict)
    #: Headers of the records in the changelog, but of deletions.
    changelog_headers: Headers = ()
    #: Returns, for a partition of the changelog, the function that converts its records from layouts of earlier
    #: releases of Kafka Streams, block by block; None: there are none.
    upgrades: Upgrades | None = field(default=None, eq=False)
    #: Convert entries of earlier versions of the topology, in the order of their versions.
    migrations: tuple[Migration, ...] = ()
    #: With at-least-once, changes are sent to the changelog only after all outputs and all other changes of the
    #: commit are acknowledged: an entry means that its record was processed, which must not be lost.
    is_logged_last: bool = False
    #: Whether an entry belongs to a key of the records, so that all records of the key must reach the same task.
    is_by_key: bool = True
    #: Whether entries wait until stream time has advanced.
    is_buffer: bool = False
    #: Whether entries are copies of what is elsewhere, and depend on wall-clock time; simulations do not compare them.
    is_cache: bool = False
    #: The calendar that has the ends of the windows of a window store; None: all have the size ``window_size_ms``.
    calendar: Calendar | None = None
    #: What queries return of a value, and its serde; None: the value itself.
    show: Callable[[Any], Any] | None = field(default=None, eq=False)
    shown_serde: Serde[Any] = field(default=Factory(lambda self: self.value_serde, takes_self=True), converter=inside)

    def window_at(self, start_ms: int) -> Window:
        """Return the window of a window store that starts at a time."""
        if self.calendar is not None and (window := self.calendar.window_of(start_ms)) is not None:
            return Window(start_ms, window.end_ms)
        return Window(start_ms, min(start_ms + self.window_size_ms, MAX_TIME_MS))

    @property
    def is_cacheable(self) -> bool:
        """Whether a record cache, if the application has one, holds back the updates of this store."""
        return self.has_caching is not False

    @property
    def uses_event_time(self) -> bool:
        """Whether what is in the store, or leaves it, depends on event times."""
        return self.is_buffer or max(self.window_size_ms, self.retention_ms, self.history_ms, self.ttl_ms) >= 0

    @property
    def loses_headers(self) -> bool:
        """Whether headers of the entries in a changelog are lost, which may mean something to another application.

        Those of the records in the windows of a join mean nothing: Kafka Streams writes them and never reads them.
        """
        return not (self.kind.keeps_headers or self.retain_duplicates)
