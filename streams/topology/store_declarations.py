"""Declarations of the stores of processors: one function for each kind of store.

The declaration itself, ``StoreBuilder``, belongs to the processors, which have it as an attribute.
"""

from datetime import timedelta
from typing import Any, TypeVar

from attrs import fields
from typing_extensions import TypeForm

from streams.core.errors import TopologyError
from streams.core.nearest import nearest
from streams.core.serdes.serdes import Serde
from streams.state import (
    EXPIRING_KEY_VALUE,
    EXPIRING_TIMESTAMPED_KEY_VALUE,
    KEY_VALUE,
    LRU,
    SESSION,
    SESSION_WITH_HEADERS,
    TIMESTAMPED_KEY_VALUE,
    TIMESTAMPED_KEY_VALUE_WITH_HEADERS,
    TIMESTAMPED_WINDOW_WITH_HEADERS,
    VERSIONED,
    WINDOW,
    KeyValueStore,
    SessionStore,
    StoreKind,
    StoreSpec,
    TimestampedKeyValueStore,
    TimestampedKeyValueStoreWithHeaders,
    TimestampedWindowStoreWithHeaders,
    ValueAndHeaders,
    VersionedStore,
    WindowStore,
)
from streams.topology.processors import StoreBuilder, milliseconds, serde_of

K = TypeVar("K")
V = TypeVar("V")


#: What ``StoreSpec`` calls the options of stores of the DSL.
_NAMES_OF_OPTIONS = {
    "caching": "has_caching",
    "changelog": "changelog_config",
    "logging": "has_changelog",
    "persistent": "is_persistent",
}
_OPTIONS = frozenset(option.name for option in fields(StoreSpec)) - {"name", "kind", "key_serde", "value_serde"}


def _builder(kind: StoreKind, key: Any, value: Any, name: str | None, options: dict[str, Any]) -> StoreBuilder[Any]:
    for option in options.keys() - _OPTIONS:
        store = "a store" if name is None else f"store {name!r}"
        named = _NAMES_OF_OPTIONS.get(option) or nearest(option, _OPTIONS)
        advice = f"use {named}=" if named else f"there are: {', '.join(sorted(_OPTIONS))}"
        raise TopologyError(f"{store} of a processor has no option {option}=; {advice}")
    return StoreBuilder(kind, serde_of(key), serde_of(value), options, [] if name is None else [name], name is not None)


def _expiring(ttl: timedelta | None, name: str | None, options: dict[str, Any]) -> dict[str, Any]:
    if ttl is None:
        return options
    return {"ttl_ms": milliseconds(ttl, f"store {name or ''!r}: ttl", least=1)} | options


def _windowed(name: str | None, size: timedelta, retention: timedelta) -> dict[str, Any]:
    store = f"window store {name or ''!r}:"
    sizes = {
        "window_size_ms": milliseconds(size, f"{store} size"),
        "retention_ms": milliseconds(retention, f"{store} retention"),
    }
    if retention < size:
        raise TopologyError(f"{store} retention {retention} is shorter than its windows of {size}")
    return sizes


def key_value_store(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    ttl: timedelta | None = None,
    **options: Any,
) -> StoreBuilder[KeyValueStore[K, V]]:
    """Declare a key-value store; ``options`` are those of ``StoreSpec`` (``has_changelog``, ``is_persistent`` ...).

    With ``ttl``, an entry expires when stream time has advanced by ``ttl`` since the entry was last put.

    Raises:
        TopologyError: ``ttl`` is not positive.
    """
    kind = KEY_VALUE if ttl is None else EXPIRING_KEY_VALUE
    return _builder(kind, key, value, name, _expiring(ttl, name, options))


def lru_store(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    max_entries: int,
    **options: Any,
) -> StoreBuilder[KeyValueStore[K, V]]:
    """Declare an in-memory key-value store of the ``max_entries`` most recently used keys (``Stores.lruMap``)."""
    return _builder(LRU, key, value, name, {"max_entries": max_entries} | options)


def timestamped_key_value_store(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    ttl: timedelta | None = None,
    **options: Any,
) -> StoreBuilder[TimestampedKeyValueStore[K, V]]:
    """Declare a key-value store whose values have timestamps (KIP-258).

    With ``ttl``, an entry expires when stream time is later than the entry's timestamp by ``ttl``.

    Raises:
        TopologyError: ``ttl`` is not positive.
    """
    kind = TIMESTAMPED_KEY_VALUE if ttl is None else EXPIRING_TIMESTAMPED_KEY_VALUE
    return _builder(kind, key, value, name, _expiring(ttl, name, options))


def timestamped_key_value_store_with_headers(
    key: TypeForm[K] | Serde[K], value: TypeForm[V] | Serde[V], name: str | None = None, **options: Any
) -> StoreBuilder[TimestampedKeyValueStoreWithHeaders[K, V]]:
    """Declare a key-value store whose values have timestamps and the headers of their records (KIP-1271).

    Values are ``ValueTimestampHeaders``. In the changelog the headers are those of the record, as in Kafka Streams.
    """
    return _builder(TIMESTAMPED_KEY_VALUE_WITH_HEADERS, key, value, name, options)


def timestamped_window_store_with_headers(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    size: timedelta,
    retention: timedelta,
    **options: Any,
) -> StoreBuilder[TimestampedWindowStoreWithHeaders[K, V]]:
    """Declare a window store whose values have timestamps and the headers of their records (KIP-1271).

    Values are ``ValueTimestampHeaders``. Windows that start before stream time minus ``retention`` expire.

    Raises:
        TopologyError: the retention is shorter than the windows, or ``size`` or ``retention`` is negative or not a
            duration.
    """
    return _builder(TIMESTAMPED_WINDOW_WITH_HEADERS, key, value, name, _windowed(name, size, retention) | options)


def window_store(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    size: timedelta,
    retention: timedelta,
    **options: Any,
) -> StoreBuilder[WindowStore[K, V]]:
    """Declare a window store; windows that start before stream time minus ``retention`` expire.

    Raises:
        TopologyError: the retention is shorter than the windows, or ``size`` or ``retention`` is negative or not a
            duration.
    """
    return _builder(WINDOW, key, value, name, _windowed(name, size, retention) | options)


def session_store_with_headers(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    retention: timedelta,
    **options: Any,
) -> StoreBuilder[SessionStore[K, ValueAndHeaders[V]]]:
    """Declare a session store whose values are ``ValueAndHeaders``: with the headers of their records (KIP-1271).

    Raises:
        TopologyError: the retention is negative or not a duration.
    """
    retention_ms = milliseconds(retention, f"session store {name or ''!r}: retention")
    return _builder(SESSION_WITH_HEADERS, key, value, name, {"retention_ms": retention_ms} | options)


def session_store(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    retention: timedelta,
    **options: Any,
) -> StoreBuilder[SessionStore[K, V]]:
    """Declare a session store, which keeps sessions for ``retention`` of stream time.

    Raises:
        TopologyError: the retention is negative or not a duration.
    """
    retention_ms = milliseconds(retention, f"session store {name or ''!r}: retention")
    return _builder(SESSION, key, value, name, {"retention_ms": retention_ms} | options)


def versioned_store(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    history: timedelta,
    **options: Any,
) -> StoreBuilder[VersionedStore[K, V]]:
    """Declare a store that keeps old versions for ``history`` (KIP-889).

    Raises:
        TopologyError: ``has_caching`` is true, although a cache would drop versions, or the history is negative or not
            a duration.
    """
    if options.get("has_caching"):
        raise TopologyError(f"versioned store {name or ''!r} cannot have a cache, which would drop versions")
    history_ms = milliseconds(history, f"versioned store {name or ''!r}: history")
    return _builder(VERSIONED, key, value, name, {"history_ms": history_ms} | options)
