"""Declarations of the stores of processors: one function for each kind of store.

The declaration itself, ``StoreBuilder``, belongs to the processors, which have it as an attribute.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, TypedDict, TypeVar, Unpack, cast

from typing_extensions import TypeForm

from streams.core.arguments import check_flag
from streams.core.errors import TopologyError
from streams.core.nearest import suggestion
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


class CommonStoreOptions(TypedDict, total=False):
    """Options for a store, whether a table or a processor declares it; all are optional.

    ``caching=False`` exempts the store from the record cache of the application (``cache_max_bytes``, which is none by
    default).  ``logging`` (a changelog topic) is on by default.  ``persistent`` chooses between disk and memory;
    the default comes from the settings.  ``changelog`` contains topic settings for the changelog.
    """

    caching: bool
    logging: bool
    persistent: bool
    changelog: Mapping[str, str]


#: What ``StoreSpec`` calls the options.
_FIELDS = {
    "caching": "has_caching",
    "changelog": "changelog_config",
    "logging": "has_changelog",
    "persistent": "is_persistent",
}


def spec_options(options: Mapping[str, Any], store: str, others: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of a ``StoreSpec`` for the options of a store; None is the default.

    ``store`` names the store in messages, and ``others`` are the options that it has besides these.

    Raises:
        TopologyError: an option is unknown, or is no flag, or the changelog settings are no mapping.
    """
    if strange := options.keys() - _FIELDS:
        names = sorted({*_FIELDS, *others})
        advice = suggestion(min(strange), names, "did you mean {}? there are ") or "there are "
        raise TopologyError(f"unknown option {min(strange)!r} of {store}; {advice}{', '.join(names)}")
    for option, value in options.items():
        if option == "changelog":
            if not isinstance(value, Mapping):
                raise TopologyError(
                    f"changelog= of {store} must be a mapping of topic settings, such as {{'retention.ms': '60000'}}, "
                    f"not {value!r:.60}"
                )
        elif value is not None:
            check_flag(value, f"{option}= of {store}")
    return {_FIELDS[option]: value for option, value in options.items() if value is not None}


def _builder(
    kind: StoreKind, key: Any, value: Any, name: str | None, options: CommonStoreOptions, **more: Any
) -> StoreBuilder[Any]:
    store = "a store of a processor" if name is None else f"store {name!r}"
    fields = spec_options(cast("Mapping[str, Any]", options), store) | more
    names = [] if name is None else [name]
    return StoreBuilder(kind, serde_of(key), serde_of(value), fields, names, name is not None)


def _expiring(ttl: timedelta | None, name: str | None) -> dict[str, Any]:
    return {} if ttl is None else {"ttl_ms": milliseconds(ttl, f"store {name or ''!r}: ttl", least=1)}


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
    **options: Unpack[CommonStoreOptions],
) -> StoreBuilder[KeyValueStore[K, V]]:
    """Declare a key-value store; ``options`` are ``CommonStoreOptions``, as for every store.

    With ``ttl``, an entry expires when stream time has advanced by ``ttl`` since the entry was last put.

    Raises:
        TopologyError: ``ttl`` is not positive.
    """
    kind = KEY_VALUE if ttl is None else EXPIRING_KEY_VALUE
    return _builder(kind, key, value, name, options, **_expiring(ttl, name))


def lru_store(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    max_entries: int,
    **options: Unpack[CommonStoreOptions],
) -> StoreBuilder[KeyValueStore[K, V]]:
    """Declare an in-memory key-value store of the ``max_entries`` most recently used keys (``Stores.lruMap``)."""
    return _builder(LRU, key, value, name, options, max_entries=max_entries)


def timestamped_key_value_store(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    ttl: timedelta | None = None,
    **options: Unpack[CommonStoreOptions],
) -> StoreBuilder[TimestampedKeyValueStore[K, V]]:
    """Declare a key-value store whose values have timestamps (KIP-258).

    With ``ttl``, an entry expires when stream time is later than the entry's timestamp by ``ttl``.

    Raises:
        TopologyError: ``ttl`` is not positive.
    """
    kind = TIMESTAMPED_KEY_VALUE if ttl is None else EXPIRING_TIMESTAMPED_KEY_VALUE
    return _builder(kind, key, value, name, options, **_expiring(ttl, name))


def timestamped_key_value_store_with_headers(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    **options: Unpack[CommonStoreOptions],
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
    **options: Unpack[CommonStoreOptions],
) -> StoreBuilder[TimestampedWindowStoreWithHeaders[K, V]]:
    """Declare a window store whose values have timestamps and the headers of their records (KIP-1271).

    Values are ``ValueTimestampHeaders``. Windows that start before stream time minus ``retention`` expire.

    Raises:
        TopologyError: the retention is shorter than the windows, or ``size`` or ``retention`` is negative or not a
            duration.
    """
    return _builder(TIMESTAMPED_WINDOW_WITH_HEADERS, key, value, name, options, **_windowed(name, size, retention))


def window_store(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    size: timedelta,
    retention: timedelta,
    retain_duplicates: bool = False,
    **options: Unpack[CommonStoreOptions],
) -> StoreBuilder[WindowStore[K, V]]:
    """Declare a window store; windows that start before stream time minus ``retention`` expire.

    With ``retain_duplicates``, values with the same key and start are separate entries.

    Raises:
        TopologyError: the retention is shorter than the windows, or ``size`` or ``retention`` is negative or not a
            duration.
    """
    windows = _windowed(name, size, retention)
    windows["retain_duplicates"] = check_flag(retain_duplicates, f"retain_duplicates= of store {name or ''!r}")
    return _builder(WINDOW, key, value, name, options, **windows)


def session_store_with_headers(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    retention: timedelta,
    **options: Unpack[CommonStoreOptions],
) -> StoreBuilder[SessionStore[K, ValueAndHeaders[V]]]:
    """Declare a session store whose values are ``ValueAndHeaders``: with the headers of their records (KIP-1271).

    Raises:
        TopologyError: the retention is negative or not a duration.
    """
    retention_ms = milliseconds(retention, f"session store {name or ''!r}: retention")
    return _builder(SESSION_WITH_HEADERS, key, value, name, options, retention_ms=retention_ms)


def session_store(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    retention: timedelta,
    **options: Unpack[CommonStoreOptions],
) -> StoreBuilder[SessionStore[K, V]]:
    """Declare a session store, which keeps sessions for ``retention`` of stream time.

    Raises:
        TopologyError: the retention is negative or not a duration.
    """
    retention_ms = milliseconds(retention, f"session store {name or ''!r}: retention")
    return _builder(SESSION, key, value, name, options, retention_ms=retention_ms)


def versioned_store(
    key: TypeForm[K] | Serde[K],
    value: TypeForm[V] | Serde[V],
    name: str | None = None,
    *,
    history: timedelta,
    **options: Unpack[CommonStoreOptions],
) -> StoreBuilder[VersionedStore[K, V]]:
    """Declare a store that keeps old versions for ``history`` (KIP-889).

    Raises:
        TopologyError: ``caching`` is true, although a cache would drop versions, or the history is negative or not
            a duration.
    """
    if options.get("caching"):
        raise TopologyError(f"versioned store {name or ''!r} cannot have a cache, which would drop versions")
    history_ms = milliseconds(history, f"versioned store {name or ''!r}: history")
    return _builder(VERSIONED, key, value, name, options, history_ms=history_ms)
