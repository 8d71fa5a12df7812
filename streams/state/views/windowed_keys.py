"""Key layouts of windowed stores, which match the changelogs of Kafka Streams byte for byte.

A stored key of a window store has the key, the start (8 bytes) and the sequence number (4 bytes); that of a session
store has the key, the end and the start (8 bytes each). This module imports only ``core``.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from attrs import frozen

from streams.core.blocks.marks import KafkaFormat

_WINDOW_BYTES = 12
_SESSION_BYTES = 16
#: No record has such a time in epoch milliseconds; text, read as a time, has a later one.
_NO_TIME = 1 << 60
MAX_SEQUENCE = (1 << 31) - 1

_window = Struct(">qi")
_session = Struct(">qq")


def window_parts(data: bytes) -> tuple[bytes, int, int]:
    """Split the stored key of a window store into (key, start, sequence)."""
    split = len(data) - _WINDOW_BYTES
    start, sequence = _window.unpack_from(data, split)
    return data[:split], start, sequence


def session_parts(data: bytes) -> tuple[bytes, int, int]:
    """Split the stored key of a session store into (key, end, start)."""
    split = len(data) - _SESSION_BYTES
    end, start = _session.unpack_from(data, split)
    return data[:split], end, start


def _is_window_key(data: bytes) -> bool:
    if len(data) < _WINDOW_BYTES:
        return False
    start, sequence = _window.unpack_from(data, len(data) - _WINDOW_BYTES)
    return 0 <= start < _NO_TIME and sequence >= 0  # type: ignore[no-any-return]


def _is_session_key(data: bytes) -> bool:
    if len(data) < _SESSION_BYTES:
        return False
    end, start = _session.unpack_from(data, len(data) - _SESSION_BYTES)
    return 0 <= start <= end < _NO_TIME  # type: ignore[no-any-return]


#: The keys in changelogs, by which entries of other stores under the same name are recognized.
WINDOW_KEY = KafkaFormat("key of a window store", "WindowKeySchema", _is_window_key)
SESSION_KEY = KafkaFormat("key of a session store", "SessionKeySchema", _is_session_key)


def latest_start_first(data: bytes) -> tuple[bytes, int, int]:
    """Return the sort key of a stored session key in memory: by key, end, and descending start."""
    key, end, start = session_parts(data)
    return key, end, -start


def key_range(low: bytes | None, high: bytes | None, suffix: int) -> tuple[bytes | None, bytes | None]:
    """Return engine bounds (low inclusive, high exclusive) that contain all entries for keys from ``low`` to ``high``.

    Because keys differ in length, the range may also contain entries of other keys; the caller filters by key.
    No time is negative, so every suffix sorts before a byte ``0x80``.
    """
    if high is None:
        return low, None
    # An entry of a key k <= high consists of k and the suffix. If k is a proper prefix of high, the suffix
    # decides the order, otherwise the key does; this bound is above both.
    top = b"\x80"
    bound = max(high[:length] + top for length in range(len(high) + 1)) if high else top
    return low, bound


def _start_only(start_ms: int, _: int) -> int:
    return start_ms


def _end_then_start(end_ms: int, start_ms: int) -> tuple[int, int]:
    return end_ms, start_ms


def _itself(time_ms: int) -> int:
    return time_ms


def _any_start(end_ms: int) -> tuple[int]:
    return (end_ms,)


@frozen
class Suffix:
    """The two times in a stored key of a windowed store: (start, sequence), or (end, start) for sessions."""

    #: Size of both times in bytes.
    size: int
    #: Serializes both times; ``parts`` splits a whole stored key into (key, first, second).
    pack: Callable[[int, int], bytes]
    parts: Callable[[bytes], tuple[bytes, int, int]]
    #: Sort key within a segment of a store declared as in-memory.
    rank: Callable[[bytes], tuple[bytes, int, int]]
    #: The time by which a chain orders entries; ``chain_start`` returns the lowest such time from a given time on.
    chain_time: Callable[[int, int], Any]
    chain_start: Callable[[int], Any]


WINDOW_SUFFIX = Suffix(_WINDOW_BYTES, _window.pack, window_parts, window_parts, _start_only, _itself)
SESSION_SUFFIX = Suffix(_SESSION_BYTES, _session.pack, session_parts, latest_start_first, _end_then_start, _any_start)
