"""Stores as text: their specifications in snapshots, and the keys of their changelogs.

This module is pure; of the other packages, it imports only ``core`` and ``state``.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from streams.core.errors import SerializationError
from streams.core.event_time.calendar import Calendar
from streams.core.event_time.time_texts import time_text
from streams.core.serdes.display import key_text, reader
from streams.core.serdes.serdes import PinnedSerde, Serde
from streams.state import (
    KEY_TYPE,
    VALUE_TYPE,
    Family,
    StoreKind,
    StoreSpec,
    built_in_kind,
    session_parts,
    window_parts,
)


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
        calendar=Calendar.of_description(described["calendar"], described["openings"])
        if "calendar" in described
        else None,
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
            end = spec.window_at(start).end_ms
            number = f" #{sequence}" if spec.retain_duplicates or sequence else ""
            return f"{key_text(read(key))}@[{time_text(start)}, {time_text(end)}){number}"

        return window_key
    if family is Family.SESSIONS:

        def session_key(data: bytes) -> str:
            key, end, start = session_parts(data)
            return f"{key_text(read(key))}@[{time_text(start)}, {time_text(end)}]"

        return session_key
    return lambda data: key_text(read(data), spec.key_serde)
