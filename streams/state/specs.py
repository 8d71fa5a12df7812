"""The declaration of a state store: its kind and its spec.

A kind is one value with all differences between kinds of stores, defined in the module of its view.
A spec is a value in the topology, from which each task opens its own instance of the store.
Imports core and the other pure values of this package only.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from operator import methodcaller
from typing import Any, TypeAlias

from attrs import evolve, field, frozen

from streams.core.errors import StoreError
from streams.core.records import Block
from streams.core.serdes import Serde

#: A value and the event time of its last change.
Row = tuple[Any, int]


class Family(Enum):
    """The key layout of entries in engine and changelog; stores of one family can read each other's entries."""

    #: Serialized keys.
    KEYS = "keys"
    #: Keys with a window start and a sequence number.
    WINDOWS = "windows"
    #: Keys with a session's end and start.
    SESSIONS = "sessions"

    @property
    def has_windowed_keys(self) -> bool:
        """Whether a table in such a store has ``Windowed`` keys."""
        return self is not Family.KEYS


#: How an operator replaces dirty rows without a call: ``find`` and ``put``.  ``find(key)`` returns the row that may be
#: replaced, else None.  ``put(key, value, timestamp_ms, is_in_place)`` is ``TableReads.put``; with ``is_in_place`` it
#: comes right after a ``find`` that has returned a row with a value.
InPlace: TypeAlias = tuple[Callable[[Any], Row | None], Callable[[Any, Any, int, bool], bool | None]]


@frozen
class TableReads:
    """Factories of a table's read and write functions; each takes an open store.

    ``put`` returns ``put(key, value, timestamp_ms)``, which returns whether the row is now the latest of its key, None
    if it was too old to be stored.  ``get_as_of`` returns ``get(key, timestamp_ms)``; None without history.
    """

    get: Callable[[Any], Callable[[Any], Row | None]]
    put: Callable[[Any], Callable[[Any, Any, int], bool | None]]
    get_as_of: Callable[[Any], Callable[[Any, int], Row | None]] | None = None
    #: None replaces no row in place.
    in_place: Callable[[Any], InPlace] | None = None


def _names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


def _nothing_more(_: "StoreSpec") -> dict[str, str]:
    return {}


def _no_segments(_: "StoreSpec") -> int:
    return -1


@frozen
class StoreKind:
    """A kind of store: all differences between stores of different kinds.

    Kinds are equal if their names are, which are stored in state directories and snapshots.  Functions take the spec
    or an open store.  A custom kind is a view over a store of a built-in kind: ``viewed``.
    """

    name: str
    family: Family = field(eq=False)
    #: Opens the store, a ``lifecycle.Store``, from spec, staged engine and memory budget.
    open: Callable[..., Any] = field(eq=False)
    #: Names of the methods that interactive queries may call on the view.
    queries: frozenset[str] = field(eq=False, converter=_names)
    #: Returns the view for processors and queries from the open store; None is the store itself.
    view: Callable[[Any], Any] | None = field(eq=False, default=None)
    #: Name of the built-in kind under a view, else ``name``; it determines the layout.
    base: str = field()
    #: Field names of the spec's required durations.
    needs: tuple[str, ...] = field(eq=False, default=())
    #: Length of segments, -1 without segments, and the duration it depends on.
    segment_ms: Callable[["StoreSpec"], int] = field(eq=False, default=_no_segments)
    #: Settings of the changelog topic in addition to compaction.
    topic_config: Callable[["StoreSpec"], dict[str, str]] = field(eq=False, default=_nothing_more)
    #: Whether the store is in memory regardless of the default engine.
    is_in_memory: bool = field(eq=False, default=False)
    #: Whether each changelog record is a version that does not supersede earlier ones.
    has_versions: bool = field(eq=False, default=False)
    #: Whether several values of one key and time may be retained.
    can_retain_duplicates: bool = field(eq=False, default=False)
    #: Access of tables to such a store; None if it cannot back a table.
    table: TableReads | None = field(eq=False, default=None)
    #: Yields key and value of the whole content.
    contents: Callable[[Any], Iterator[tuple[Any, Any]]] = field(eq=False, default=methodcaller("all"))
    #: Returns the order in which a changelog would have a snapshot's entries (with what the snapshot carries), as
    #: indexes, None for that of the snapshot.  None if that holds for all.
    changelog_order: Callable[[Block, Mapping[str, bytes]], Sequence[int] | None] | None = field(eq=False, default=None)

    @base.default
    def _own_name(self) -> str:
        return self.name

    @property
    def shown(self) -> str:
        """The name for messages."""
        return self.name.replace("_", " ")

    def viewed(self, name: str, view: Callable[[Any], Any], queries: Sequence[str] = ()) -> "StoreKind":
        """Return a kind with another name whose users get ``view(store)`` of a store of this kind.

        Everything else is as in this kind: serdes, changelog, restore, snapshots.  ``queries`` names the methods of
        the view that interactive queries may call; they run on the stream thread and must not write.

        Raises:
            StoreError: the kind is a view already, the name is its own, or the view lacks a query.
        """
        if self.base != self.name:
            raise StoreError(f"kind {name!r}: {self.name!r} is itself a view; make the view over {self.base!r}")
        if not name or name == self.name:
            raise StoreError(f"kind {name!r}: give the view a name of its own, other than {self.name!r}")
        if missing := [query for query in queries if isinstance(view, type) and not hasattr(view, query)]:
            raise StoreError(f"kind {name!r}: {view.__qualname__} has no method {missing[0]!r} that can be queried")
        return evolve(self, name=name, view=view, queries=queries, base=self.base)

    def check(self, spec: "StoreSpec") -> None:
        """Check that a spec has the required options of this kind.

        Raises:
            StoreError: an option is missing or not supported.
        """
        if any(getattr(spec, need) < 0 for need in self.needs):
            bound = "both at least 0" if len(self.needs) > 1 else "at least 0"
            raise StoreError(f"{self.shown} store {spec.name!r}: give {' and '.join(self.needs)}, {bound}")
        if spec.retain_duplicates and not self.can_retain_duplicates:
            raise StoreError(f"{self.shown} store {spec.name!r}: only a plain window store can retain duplicates")


@frozen
class StoreSpec:
    """The name, kind, serdes and options of a store.

    ``retention_ms`` and ``window_size_ms`` belong to window stores (retention to session
    stores too), ``history_ms`` to versioned ones, ``max_entries`` to LRU ones.  ``is_persistent``
    False keeps the store in memory regardless of the default engine; None takes the default.
    """

    name: str
    kind: StoreKind
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    is_persistent: bool | None = None
    has_caching: bool = True
    has_changelog: bool = True
    retention_ms: int = -1
    window_size_ms: int = -1
    retain_duplicates: bool = False
    history_ms: int = -1
    max_entries: int = -1
    changelog_config: Mapping[str, str] = field(factory=dict)
