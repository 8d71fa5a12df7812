"""Converts keys, values and times to text; only this module decodes bytes for display.

This module is pure; of the other packages, it imports only ``core`` and ``state``.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from streams.core.blocks.records import Windowed
from streams.core.errors import SerializationError, StreamsError
from streams.core.serdes.serdes import PinnedSerde, Serde
from streams.replay.times import time_text
from streams.state import (
    KEY_TYPE,
    MAX_TIME,
    VALUE_TYPE,
    Family,
    StoreKind,
    StoreSpec,
    built_in_kind,
    session_parts,
    window_parts,
)

#: Maximum number of characters shown of a value.
_WIDTH = 120


def plain(value: Any) -> Any:
    """Convert a key or value to JSON-compatible values; a windowed key becomes text."""
    if isinstance(value, Windowed):
        return key_text(value)
    if isinstance(value, bytes):
        return {"$hex": value.hex()}
    try:
        return msgspec.to_builtins(value, enc_hook=repr, str_keys=True)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def key_text(key: Any, serde: Serde[Any] | None = None) -> str:
    """Return a key as text: a windowed key as ``key@[start, end)``, a session key as ``key@[start, end]``.

    The bounds of count windows are numbers of records: ``key@records[start, end)``.  The key serde distinguishes count
    windows and sessions from other windows.
    """
    if not isinstance(key, Windowed):
        return key if isinstance(key, str) else value_text(key)
    start, end = key.window
    if serde is not None and serde.name.startswith("count_windowed:"):
        return f"{key_text(key.key)}@records[{start}, {end})"
    until = "" if end >= MAX_TIME else time_text(end)
    closing = "]" if serde is not None and "session_windowed" in serde.name else ")"
    return f"{key_text(key.key)}@[{time_text(start)}, {until}{closing}"


def value_text(value: Any) -> str:
    """Return a value as one line of JSON, which is truncated if it is long."""
    text = json.dumps(plain(value), ensure_ascii=False, separators=(", ", ": "))
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def reader(serde: Serde[Any] | None) -> Callable[[bytes | None], Any]:
    """Return a function that decodes bytes for display; it returns bytes that it cannot decode unchanged."""
    is_known = serde is not None and not (isinstance(serde, PinnedSerde) and not serde.is_pinned)

    def read(data: bytes | None) -> Any:
        if data is None:
            return None
        if serde is not None and is_known:
            try:
                return serde.deserialize(data)
            except StreamsError:
                return data
        return _guessed(data)

    return read


def _guessed(data: bytes) -> Any:
    """Decode bytes of an unknown type as JSON or text; otherwise return them unchanged."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    if not text.isprintable():
        return data
    try:
        return json.loads(text)
    except ValueError:
        return text


def described_spec(name: str, described: Mapping[str, Any], carried: Mapping[str, bytes]) -> StoreSpec:
    """Return the specification of a store from its description in a snapshot; it is for display only.

    User classes are not imported: their values are shown as the stored JSON.
    """

    def serde(said: str, pinned: bytes | None) -> Serde[Any]:
        serde_of_type = PinnedSerde(name)
        type_name = said if pinned is None else pinned.decode()
        if "class:" not in type_name:
            with suppress(SerializationError):
                serde_of_type.pin(type_name)
        return serde_of_type

    return StoreSpec(
        name,
        described_kind(described),
        serde(described["key"], carried.get(KEY_TYPE)),
        serde(described["value"], carried.get(VALUE_TYPE)),
        retention_ms=described["retention_ms"],
        window_size_ms=described["window_size_ms"],
        history_ms=described["history_ms"],
    )


def described_kind(described: Mapping[str, Any]) -> StoreKind:
    """Return the built-in store kind from a description in a snapshot; for a view, the kind of the underlying store."""
    return built_in_kind(described.get("base", described["kind"]))


def store_key_reader(spec: StoreSpec) -> Callable[[bytes], str]:
    """Return a function that shows the key of a changelog record as text."""
    read = reader(spec.key_serde)
    family = spec.kind.family
    if family is Family.WINDOWS:

        def window_key(data: bytes) -> str:
            key, start, sequence = window_parts(data)
            end = min(start + spec.window_size_ms, MAX_TIME)
            number = f" #{sequence}" if spec.retain_duplicates or sequence else ""
            return f"{key_text(read(key))}@[{time_text(start)}, {time_text(end)}){number}"

        return window_key
    if family is Family.SESSIONS:

        def session_key(data: bytes) -> str:
            key, end, start = session_parts(data)
            return f"{key_text(read(key))}@[{time_text(start)}, {time_text(end)}]"

        return session_key
    return lambda data: key_text(read(data), spec.key_serde)
