"""Serdes: the front door of everything that turns objects into bytes and back.

``serde_base`` says what a serde is, ``serde_primitives`` has Kafka's own, ``serde_json`` canonical
JSON, ``serde_types`` the way from a type expression to a serde, ``serde_windows`` windowed keys and
``serde_pinned`` the types that nobody declared.
"""

from streams.core.serde_base import Serde
from streams.core.serde_json import canonical_json
from streams.core.serde_pinned import PinnedSerde
from streams.core.serde_primitives import BOOLEAN, BYTES, DATETIME, DOUBLE, INT32, LONG, NULL, STRING, UUID
from streams.core.serde_types import JSON, serde_for
from streams.core.serde_windows import WindowedSerde, session_windowed, shown_windows, time_windowed, time_windowed_ms

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DATETIME",
    "DOUBLE",
    "INT32",
    "JSON",
    "LONG",
    "NULL",
    "STRING",
    "UUID",
    "PinnedSerde",
    "Serde",
    "WindowedSerde",
    "canonical_json",
    "serde_for",
    "session_windowed",
    "shown_windows",
    "time_windowed",
    "time_windowed_ms",
]
