"""State stores of the conformance language: how they are declared, and how they are read.

Reading goes through the test driver's stores, as a test of a user would.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from streams import (
    Processor,
    Record,
    ValueAndTimestamp,
    Windowed,
    key_value_store,
    lru_store,
    session_store,
    timestamped_key_value_store,
    versioned_store,
    window_store,
)
from streams.state import StoreSpec
from streams.topology.processors import StoreBuilder
from tests.conformance.functions import KeyValueFunction
from tests.conformance.store_commands import version
from tests.conformance.values import from_json, milliseconds, serde, to_json


def _ttl(op: dict[str, Any]) -> timedelta | None:
    return milliseconds(op["ttl_ms"]) if "ttl_ms" in op else None


def declared_store(op: dict[str, Any]) -> StoreBuilder[Any] | StoreSpec:
    """Return the store of an ``add_store`` operator."""
    key, value, name = serde(op["key"]), serde(op["value"]), op["name"]
    options: dict[str, Any] = {
        "persistent": op.get("persistent", False),
        "caching": op.get("caching", False),
        "logging": op.get("logging", True),
    }
    match op["type"]:
        case "kv":
            return key_value_store(key, value, name, ttl=_ttl(op), **options)
        case "lru":
            return lru_store(key, value, name, max_entries=op["max"], **options)
        case "timestamped_kv":
            return timestamped_key_value_store(key, value, name, ttl=_ttl(op), **options)
        case "window":
            size, retention = milliseconds(op["window_size_ms"]), milliseconds(op["retention_ms"])
            options["retain_duplicates"] = op.get("retain_duplicates", False)
            return window_store(key, value, name, size=size, retention=retention, **options)
        case "session":
            return session_store(key, value, name, retention=milliseconds(op["retention_ms"]), **options)
        case "versioned":
            return versioned_store(key, value, name, history=milliseconds(op["history_ms"]), **options)
    raise KeyError(op["type"])


class KeepGlobal(Processor[Any, Any, Any, Any]):
    """Fills a global store from its topic."""

    def __init__(self, store: str, kind: str, function: KeyValueFunction | None) -> None:
        self._name = store
        self._kind = kind
        self._function = function

    def process(self, record: Record[Any, Any]) -> None:
        """Put the record's value, mapped if there is a function."""
        value = record.value if self._function is None else self._function(record.key, record.value)
        store = self.context.store(self._name)
        if self._kind == "timestamped_kv":
            store.put(record.key, None if value is None else ValueAndTimestamp(value, record.timestamp_ms))
        elif self._kind == "versioned":
            store.put(record.key, value, record.timestamp_ms)
        else:
            store.put(record.key, value)


def _plain(value: Any) -> Any:
    return to_json(value.value if isinstance(value, ValueAndTimestamp) else value)


def _read_key_value(store: Any, request: dict[str, Any]) -> list[Any]:
    return [[to_json(key), _plain(value)] for key, value in store.all()]


def _read_timestamped(store: Any, request: dict[str, Any]) -> list[Any]:
    return [[to_json(key), to_json(row.value), row.timestamp_ms] for key, row in store.all()]


def _window_start(key: Windowed[Any]) -> list[Any]:
    return [to_json(key.key), key.window.start_ms]


def _read_window(store: Any, request: dict[str, Any]) -> list[Any]:
    return [[*_window_start(key), _plain(value)] for key, value in store.all()]


def _read_timestamped_window(store: Any, request: dict[str, Any]) -> list[Any]:
    return [[*_window_start(key), to_json(row.value), row.timestamp_ms] for key, row in store.all()]


def _read_session(store: Any, request: dict[str, Any]) -> list[Any]:
    return [
        [*_window_start(session), session.window.end_ms, to_json(value)]
        for key in request["keys"]
        for session, value in store.fetch(from_json(key))
    ]


def _read_versioned(store: Any, request: dict[str, Any]) -> list[Any]:
    entries = []
    for query in request["get"]:
        key, *time = query
        found = store.get(from_json(key)) if not time else store.get_as_of(from_json(key), time[0])
        entries.append([key, time[0] if time else None, version(found)])
    return entries


_READERS: dict[str, Callable[[Any, dict[str, Any]], list[Any]]] = {
    "kv": _read_key_value,
    "timestamped_kv": _read_timestamped,
    "window": _read_window,
    "timestamped_window": _read_timestamped_window,
    "session": _read_session,
    "versioned": _read_versioned,
}


def read_store(store: Any, request: dict[str, Any]) -> list[Any]:
    """Return a store's entries as a ``read_stores`` request asks for them."""
    return _READERS[request["type"]](store, request)
