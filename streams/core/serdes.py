"""Serdes: the public names of serialization.

``serde_base`` defines a serde, ``serde_primitives`` has those of Kafka, ``serde_json`` canonical JSON,
``serde_types`` finds the serde of a type expression, ``serde_windows`` has windowed keys and
``serde_pinned`` undeclared types.
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
