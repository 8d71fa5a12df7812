"""Serdes: the public names of serialization.

``serde_base`` defines serdes, ``serde_primitives`` has the serdes of Kafka, ``serde_json`` has canonical JSON,
``serde_types`` returns the serde for a type expression, ``serde_windows`` has the serdes for windowed keys, and
``serde_pinned`` has the serdes for undeclared types.
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
