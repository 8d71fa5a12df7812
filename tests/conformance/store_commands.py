"""Commands that the ``store_cmd`` processor runs on a store, by the store's kind.

Each takes the store and the command's arguments and returns a JSON value.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from streams import ValueAndTimestamp, VersionedRecord, Window, Windowed
from tests.conformance.values import to_json

Command: TypeAlias = Callable[..., Any]


def _put(store: Any, key: Any, value: Any) -> None:
    store.put(key, value)


_KEY_VALUE: dict[str, Command] = {
    "put": _put,
    "get": lambda store, key: store.get(key),
    "delete": lambda store, key: store.delete(key),
    "put_if_absent": lambda store, key, value: store.put_if_absent(key, value),
    "put_all": lambda store, entries: store.put_all([(key, value) for key, value in entries]),
    "all": lambda store: list(store.all()),
    "reverse_all": lambda store: list(store.reverse_all()),
    "range": lambda store, low, high: list(store.range(low, high)),
    "reverse_range": lambda store, low, high: list(store.reverse_range(low, high)),
    "prefix": lambda store, prefix: list(store.prefix_scan(prefix)),
    "approx_count": lambda store: store.approximate_num_entries(),
}


def _timed(value: Any, timestamp_ms: int) -> ValueAndTimestamp[Any] | None:
    return None if value is None else ValueAndTimestamp(value, timestamp_ms)


def _timed_entries(entries: Iterable[list[Any]]) -> list[tuple[Any, Any]]:
    return [(key, _timed(*(rest if len(rest) == 2 else rest[0] or (None, 0)))) for key, *rest in entries]


_TIMESTAMPED: dict[str, Command] = {
    **_KEY_VALUE,
    "put": lambda store, key, value, ts: _put(store, key, _timed(value, ts)),
    "put_if_absent": lambda store, key, value, ts: store.put_if_absent(key, _timed(value, ts)),
    "put_all": lambda store, entries: store.put_all(_timed_entries(entries)),
}

_WINDOW: dict[str, Command] = {
    "put": lambda store, key, value, start: store.put(key, value, start),
    "fetch": lambda store, key, start: store.fetch(key, start),
    "fetch_range": lambda store, key, low, high: list(store.fetch_range(key, low, high)),
    "backward_fetch_range": lambda store, key, low, high: list(store.backward_fetch_range(key, low, high)),
    "fetch_keys": lambda store, first, last, low, high: list(store.fetch_keys(first, last, low, high)),
    "backward_fetch_keys": lambda store, *bounds: list(store.backward_fetch_keys(*bounds)),
    "fetch_all": lambda store, low, high: list(store.fetch_all(low, high)),
    "backward_fetch_all": lambda store, low, high: list(store.backward_fetch_all(low, high)),
    "all": lambda store: list(store.all()),
    "backward_all": lambda store: list(store.backward_all()),
}


def _session(key: Any, start: int, end: int) -> Windowed[Any]:
    return Windowed(key, Window(start, end))


_SESSION: dict[str, Command] = {
    "put": lambda store, key, start, end, value: store.put(_session(key, start, end), value),
    "remove": lambda store, key, start, end: store.remove(_session(key, start, end)),
    "fetch": lambda store, key: list(store.fetch(key)),
    "backward_fetch": lambda store, key: list(store.backward_fetch(key)),
    "fetch_keys": lambda store, low, high: list(store.fetch_keys(low, high)),
    "fetch_session": lambda store, key, start, end: store.fetch_session(key, start, end),
    "find": lambda store, key, end, start: list(store.find_sessions(key, end, start)),
    "backward_find": lambda store, key, end, start: list(store.backward_find_sessions(key, end, start)),
    "find_keys": lambda store, low, high, end, start: list(store.find_sessions_of_keys(low, high, end, start)),
}


def version(record: VersionedRecord[Any] | None) -> list[Any] | None:
    """Return a version as the vectors state it.

    The reference's stores do not tell a processor or a test until when a version was valid
    (their metered layer leaves it out), ours do; so the third field is always null.
    """
    return None if record is None else [to_json(record.value), record.timestamp_ms, None]


_VERSIONED: dict[str, Command] = {
    "put": lambda store, key, value, ts: store.put(key, value, ts),
    "get": lambda store, key: version(store.get(key)),
    "get_as_of": lambda store, key, ts: version(store.get_as_of(key, ts)),
    "delete": lambda store, key, ts: version(store.delete(key, ts)),
}

_COMMANDS: dict[str, dict[str, Command]] = {
    "kv": _KEY_VALUE,
    "lru": _KEY_VALUE,
    "timestamped_kv": _TIMESTAMPED,
    "window": _WINDOW,
    "session": _SESSION,
    "versioned": _VERSIONED,
}


def run_command(store: Any, kind: str, command: list[Any]) -> Any:
    """Run one command ``[name, args...]`` on a store and return its result as a JSON value."""
    name, *arguments = command
    return to_json(_COMMANDS[kind][name](store, *arguments))
