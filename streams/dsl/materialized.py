"""The store for the result of an operator: its name, serdes and options.

As with ``Materialized`` in Kafka Streams, a store has the name that the user gives, or otherwise a
generated name.  Pure; imports serde variables, names and state specs.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, TypedDict, TypeVar

from attrs import define, field, frozen

from streams.core.errors import TopologyError
from streams.dsl.logical import LogicalGraph
from streams.dsl.names import check_name
from streams.dsl.serde_variables import SerdeVariable
from streams.state import TIMESTAMPED_KEY_VALUE, VERSIONED, StoreKind, StoreSpec
from streams.topology import UNSET

T = TypeVar("T")


class _SameAsName:
    """Marks a store that has the name of its operator."""

    def __repr__(self) -> str:
        return "SAME_AS_NAME"


#: Default of ``store=`` if ``name=`` is also the store name.
SAME_AS_NAME: Final[Any] = _SameAsName()
#: Default of ``key=`` and ``value=``.
NOT_GIVEN: Final[Any] = UNSET


class StoreOptions(TypedDict, total=False):
    """Options for the store of a table, all optional.

    ``caching`` and ``logging`` (a changelog topic) are on by default.  ``persistent`` chooses between disk
    and memory; the default comes from the settings.  ``history`` makes the store versioned, and is the time
    for which old versions are kept (KIP-889).  ``changelog`` contains topic settings of the changelog.
    """

    caching: bool
    logging: bool
    persistent: bool
    history: timedelta
    changelog: Mapping[str, str]


class WindowStoreOptions(TypedDict, total=False):
    """Options for the store of a windowed table, all optional.

    The options are those of ``StoreOptions``, but with ``retention`` instead of ``history``.  ``retention`` is
    the stream time for which windows are kept.  The default is the minimum: the grace period plus the window size,
    the inactivity gap of sessions, or twice the time difference of sliding windows.
    """

    caching: bool
    logging: bool
    persistent: bool
    retention: timedelta
    changelog: Mapping[str, str]


def to_ms(duration: Any, what: str) -> int:
    """Return a duration in whole milliseconds.

    Raises:
        TopologyError: the duration is not a ``timedelta``, or is negative.
    """
    if not isinstance(duration, timedelta):
        raise TopologyError(f"{what} must be a timedelta, not {duration!r}")
    if duration < timedelta(0):
        raise TopologyError(f"{what} must not be negative, but is {duration}")
    return duration // timedelta(milliseconds=1)


@define(eq=False)
class Materialized:
    """The store of an operator, which exists always or only if another operator needs it.

    ``is_queryable`` is whether the user gave the store name.  ``spec`` is called only when the graph is complete.
    """

    store: str
    is_queryable: bool
    kind: StoreKind
    key: SerdeVariable
    value: SerdeVariable
    is_persistent: bool | None = None
    has_caching: bool = True
    has_changelog: bool = True
    retention_ms: int = -1
    window_size_ms: int = -1
    history_ms: int = -1
    retain_duplicates: bool = False
    changelog_config: Mapping[str, str] = field(factory=dict)
    _spec: StoreSpec | None = None

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
                has_caching=self.has_caching and not self.is_versioned,
                has_changelog=self.has_changelog,
                retention_ms=self.retention_ms,
                window_size_ms=self.window_size_ms,
                history_ms=self.history_ms,
                retain_duplicates=self.retain_duplicates,
                changelog_config=dict(self.changelog_config),
            )
        return self._spec


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that calls ``make`` on its first call, and returns the same object on every call."""
    made: list[T] = []

    def get() -> T:
        if not made:
            made.append(make())
        return made[0]

    return get


def store_name(name: str | None, store: Any) -> str | None:
    """Return the store name if the user gave one, as ``store=`` or as the ``name`` of the operator."""
    wanted: str | None = name if store is SAME_AS_NAME else store
    return None if wanted is None else check_name(wanted, "store name")


@frozen
class StoreArguments:
    """The user's arguments for the store of a result: ``store=``, ``key=``, ``value=`` and options."""

    store: Any
    key: Any
    value: Any
    options: Mapping[str, Any]

    @classmethod
    def of(cls, options: dict[str, Any]) -> "StoreArguments":
        """Extract ``store=``, ``key=`` and ``value=`` from keyword arguments; the other arguments are options."""
        store, key, value = options.pop("store", None), options.pop("key", NOT_GIVEN), options.pop("value", NOT_GIVEN)
        return cls(store, key, value, options)

    @property
    def is_given(self) -> bool:
        """Whether the user gave any of these arguments."""
        has_store = self.store is not None and self.store is not SAME_AS_NAME
        return has_store or self.key is not NOT_GIVEN or self.value is not NOT_GIVEN or bool(self.options)

    def store_name(self, name: str | None) -> str | None:
        """Return the name of the store if the user gave one."""
        return store_name(name, self.store)


def key_value(
    graph: LogicalGraph,
    wanted: str | None,
    prefix: str,
    key: SerdeVariable,
    value: SerdeVariable,
    options: Mapping[str, Any],
) -> Materialized:
    """Return the store of a table; unless the user gave a name, the name is generated."""
    given = dict(options)
    history = given.pop("history", None)
    kind = TIMESTAMPED_KEY_VALUE if history is None else VERSIONED
    materialized = _materialized(graph, wanted, prefix, kind, key, value, given)
    if history is not None:
        materialized.history_ms = to_ms(history, f"history of store {materialized.store!r}")
    return materialized


def windowed(
    graph: LogicalGraph,
    wanted: str | None,
    prefix: str,
    kind: StoreKind,
    key: SerdeVariable,
    value: SerdeVariable,
    options: Mapping[str, Any],
    *,
    needed_ms: int,
    size_ms: int,
) -> Materialized:
    """Return the store of a windowed table; ``needed_ms`` is the minimum retention.

    Raises:
        TopologyError: the given retention is shorter.
    """
    given = dict(options)
    retention = given.pop("retention", None)
    materialized = _materialized(graph, wanted, prefix, kind, key, value, given)
    materialized.window_size_ms = size_ms
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
    wanted: str | None,
    prefix: str,
    kind: StoreKind,
    key: SerdeVariable,
    value: SerdeVariable,
    options: dict[str, Any],
) -> Materialized:
    known = {"caching", "logging", "persistent", "changelog"}
    if strange := options.keys() - known:
        raise TopologyError(f"unknown option {min(strange)!r} of a store; there are {', '.join(sorted(known))}")
    store = graph.names.store(prefix) if wanted is None else wanted
    if wanted is not None:
        graph.claim_store(wanted)
    return Materialized(
        store,
        wanted is not None,
        kind,
        key,
        value,
        is_persistent=options.get("persistent"),
        has_caching=options.get("caching", True),
        has_changelog=options.get("logging", True),
        changelog_config=options.get("changelog", {}),
    )
