"""The store for the result of an operator: its name, serdes and options.

As with ``Materialized`` in Kafka Streams, a store has the name given by the user, or otherwise a generated name.  The
module is pure and imports only ``core``, ``state`` and ``topology`` from outside ``dsl``.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from attrs import define, field, frozen

from streams.core.arguments import NOT_GIVEN
from streams.core.errors import TopologyError
from streams.core.event_time.calendar import Calendar
from streams.dsl.logical import LogicalGraph
from streams.dsl.names import check_name
from streams.dsl.serde_variables import SerdeVariable
from streams.state import EXPIRING_TIMESTAMPED_KEY_VALUE, TIMESTAMPED_KEY_VALUE, VERSIONED, StoreKind, StoreSpec
from streams.topology import CommonStoreOptions, spec_options

T = TypeVar("T")


class _SameAsName:
    """Marks a store that has the name of its operator."""

    def __repr__(self) -> str:
        return "SAME_AS_NAME"


#: Default of ``store=`` if ``name=`` is also the store name.
SAME_AS_NAME: Final[Any] = _SameAsName()


class StoreOptions(CommonStoreOptions, total=False):
    """Options for the store of a table; all are optional.

    ``history`` makes the store versioned, and is the time for which old versions are kept (KIP-889).  ``ttl`` is the
    event time after which a row expires if it is not updated; only tables that are read from a topic and aggregates can
    have it.
    """

    history: timedelta
    ttl: timedelta


class WindowStoreOptions(CommonStoreOptions, total=False):
    """Options for the store of a windowed table; all are optional.

    ``retention`` is the stream time for which windows are kept.  The default is the minimum: the grace period plus the
    window size, the inactivity gap of sessions, or twice the time difference of sliding windows.
    """

    retention: timedelta


def to_ms(duration: Any, what: str) -> int:
    """Return a duration in whole milliseconds.

    Raises:
        TopologyError: the duration is not a ``timedelta``, is negative, or is shorter than 1 ms without being 0.
    """
    if not isinstance(duration, timedelta):
        raise TopologyError(f"{what} must be a timedelta, not {duration!r}")
    if duration < timedelta(0):
        raise TopologyError(f"{what} must not be negative, but is {duration}")
    if timedelta(0) < duration < timedelta(milliseconds=1):
        # As 0 it would often mean that there is no limit, or no delay.
        raise TopologyError(f"{what} must be in whole milliseconds: {duration} is less than 1 ms")
    return duration // timedelta(milliseconds=1)


@define(eq=False)
class Materialized:
    """The store of an operator, which exists in any case or only if another operator needs it.

    ``is_queryable`` is True if the user named the store.  ``spec`` is called only when the graph is complete.
    """

    store: str
    is_queryable: bool
    kind: StoreKind
    key: SerdeVariable
    value: SerdeVariable
    is_persistent: bool | None = None
    has_caching: bool | None = None
    has_changelog: bool = True
    retention_ms: int = -1
    window_size_ms: int = -1
    calendar: Calendar | None = None
    history_ms: int = -1
    ttl_ms: int = -1
    retain_duplicates: bool = False
    changelog_config: Mapping[str, str] = field(factory=dict)
    #: Returns the spec of a second store of the operator, given that of this store.
    second: Callable[[StoreSpec], StoreSpec] | None = None
    #: What queries return of a value, with the serde of that; None: the value itself.
    show: Callable[[Any], Any] | None = None
    shown: SerdeVariable | None = None
    _spec: StoreSpec | None = None
    _second_spec: StoreSpec | None = None

    @property
    def is_needed(self) -> bool:
        """Whether the table has this store in any case, because the user named it or because rows expire."""
        return self.is_queryable or self.ttl_ms >= 0

    @property
    def is_versioned(self) -> bool:
        """Whether the store keeps old versions."""
        return self.kind.has_versions

    def spec(self) -> StoreSpec:
        """Return the spec of the store; every call returns the same object."""
        if self._spec is None:
            self._spec = StoreSpec(
                self.store,
                self.kind,
                self.key.resolve(),
                self.value.resolve(),
                is_persistent=self.is_persistent,
                has_caching=False if self.is_versioned else self.has_caching,
                has_changelog=self.has_changelog,
                retention_ms=self.retention_ms,
                window_size_ms=self.window_size_ms,
                calendar=self.calendar,
                history_ms=self.history_ms,
                ttl_ms=self.ttl_ms,
                retain_duplicates=self.retain_duplicates,
                changelog_config=dict(self.changelog_config),
                show=self.show,
                shown_serde=(self.shown or self.value).resolve(),
            )
        return self._spec

    def specs(self) -> Sequence[StoreSpec]:
        """Return the specs of all stores of the operator; every call returns the same objects."""
        spec = self.spec()
        if self.second is None:
            return (spec,)
        if self._second_spec is None:
            self._second_spec = self.second(spec)
        return (spec, self._second_spec)


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that calls ``make`` on its first call, and returns the same object on every call."""
    built: list[T] = []

    def get() -> T:
        if not built:
            built.append(make())
        return built[0]

    return get


def store_name(name: str | None, store: Any) -> str | None:
    """Return the store name that the user gave, as ``store=`` or as the ``name`` of the operator, or None."""
    explicit_name: str | None = name if store is SAME_AS_NAME else store
    return None if explicit_name is None else check_name(explicit_name, "store name")


@frozen
class StoreArguments:
    """The user's arguments for the store of a result: ``store=``, ``key=``, ``value=`` and options."""

    store: Any
    key: Any
    value: Any
    options: Mapping[str, Any]

    @classmethod
    def of(cls, options: dict[str, Any]) -> "StoreArguments":
        """Split keyword arguments into ``store=``, ``key=``, ``value=`` and the store options, which are the rest."""
        store = options.pop("store", None)
        key = options.pop("key", NOT_GIVEN)
        value = options.pop("value", NOT_GIVEN)
        return cls(store, key, value, options)

    @property
    def is_given(self) -> bool:
        """Whether the user gave any of these arguments."""
        has_store = self.store is not None and self.store is not SAME_AS_NAME
        return has_store or self.key is not NOT_GIVEN or self.value is not NOT_GIVEN or bool(self.options)

    def store_name(self, name: str | None) -> str | None:
        """Return the name of the store if the user gave one, as ``store=`` or as ``name``, otherwise None."""
        return store_name(name, self.store)


def key_value(
    graph: LogicalGraph,
    explicit_name: str | None,
    prefix: str,
    key: SerdeVariable,
    value: SerdeVariable,
    options: Mapping[str, Any],
    *,
    can_expire: bool = False,
) -> Materialized:
    """Return the store of a table; its name is ``explicit_name``, or generated if that is None.

    Raises:
        TopologyError: the options contradict each other, or the rows of this table cannot expire.
    """
    remaining = dict(options)
    history = remaining.pop("history", None)
    ttl = remaining.pop("ttl", None)
    kind = TIMESTAMPED_KEY_VALUE if history is None else VERSIONED
    if ttl is not None:
        kind = EXPIRING_TIMESTAMPED_KEY_VALUE
    materialized = _materialized(graph, explicit_name, prefix, kind, key, value, remaining, {"history", "ttl"})
    store = f"store {materialized.store!r}"
    if history is not None:
        materialized.history_ms = to_ms(history, f"history of {store}")
    if ttl is not None:
        materialized.ttl_ms = to_ms(ttl, f"ttl of {store}")
        if materialized.ttl_ms < 1:
            raise TopologyError(f"ttl of {store} must be at least 1 ms, not {ttl}")
        if history is not None:
            raise TopologyError(f"{store}: give either history= or ttl=, since a versioned store keeps each last row")
        if not can_expire:
            raise TopologyError(
                f"{store}: the rows of a table that is derived from others, and those of a global table, do not expire "
                "by themselves; give ttl= to the table that is read from a topic, or to the aggregate"
            )
    return materialized


def windowed(
    graph: LogicalGraph,
    explicit_name: str | None,
    prefix: str,
    kind: StoreKind,
    key: SerdeVariable,
    value: SerdeVariable,
    options: Mapping[str, Any],
    needed_ms: int,
) -> Materialized:
    """Return the store of a windowed table; ``needed_ms`` is the minimum retention.

    Raises:
        TopologyError: the ``retention`` option is shorter than ``needed_ms``.
    """
    remaining = dict(options)
    retention = remaining.pop("retention", None)
    materialized = _materialized(graph, explicit_name, prefix, kind, key, value, remaining, {"retention"})
    materialized.retention_ms = (
        needed_ms if retention is None else to_ms(retention, f"retention of store {materialized.store!r}")
    )
    if materialized.retention_ms < needed_ms:
        raise TopologyError(
            f"store {materialized.store!r}: a retention of {materialized.retention_ms} ms is shorter than its "
            f"windows and their grace, {needed_ms} ms; give a longer retention= or a shorter grace"
        )
    return materialized


def _materialized(
    graph: LogicalGraph,
    explicit_name: str | None,
    prefix: str,
    kind: StoreKind,
    key: SerdeVariable,
    value: SerdeVariable,
    options: dict[str, Any],
    others: set[str],
) -> Materialized:
    store = graph.names.store(prefix) if explicit_name is None else explicit_name
    fields = spec_options(options, f"store {store!r}", others)
    if explicit_name is not None:
        graph.claim_store(explicit_name)
    return Materialized(store, explicit_name is not None, kind, key, value, **fields)
