"""Key layouts of windowed stores, byte for byte those of Kafka Streams' changelogs.

Window: key, start as 8 bytes, sequence as 4.  Session: key, end, start, 8 bytes each.
Pure: imports no other module of the package.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from attrs import frozen

_WINDOW_BYTES = 12
_SESSION_BYTES = 16
MAX_TIME = (1 << 63) - 1
MAX_SEQUENCE = (1 << 31) - 1

_window = Struct(">qi")
_session = Struct(">qq")


def window_parts(data: bytes) -> tuple[bytes, int, int]:
    """Return (key, start, sequence) of a window store's key."""
    split = len(data) - _WINDOW_BYTES
    start, sequence = _window.unpack_from(data, split)
    return data[:split], start, sequence


def session_parts(data: bytes) -> tuple[bytes, int, int]:
    """Return (key, end, start) of a session store's key."""
    split = len(data) - _SESSION_BYTES
    end, start = _session.unpack_from(data, split)
    return data[:split], end, start


def latest_start_first(data: bytes) -> tuple[bytes, int, int]:
    """Return the sort key of sessions with equal end in memory: by key, then descending start."""
    key, end, start = session_parts(data)
    return key, end, -start


def key_range(low: bytes | None, high: bytes | None, suffix: int) -> tuple[bytes | None, bytes | None]:
    """Return engine bounds (low, high exclusive) that hold every entry of the keys from low to high.

    Keys differ in length, so the range also holds entries of other keys; the caller filters by
    key.  All times are positive, so a suffix is below ``0x7f`` repeated.
    """
    if high is None:
        return low, None
    # An entry of a key k <= high starts with k and then has its suffix.  If k is a proper
    # prefix of high the suffix decides, else the key does; this bound is above both.
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
    """The two times after the key in a windowed store's key: (start, sequence), or (end, start) of a session."""

    #: Number of bytes of both.
    size: int
    #: Serializes both, and splits the bytes of a whole key into (key, first, second).
    pack: Callable[[int, int], bytes]
    parts: Callable[[bytes], tuple[bytes, int, int]]
    #: Sort key of a segment in a store declared in memory.
    rank: Callable[[bytes], tuple[bytes, int, int]]
    #: The time by which a chain orders an entry, and the lowest one at a first time.
    chain_time: Callable[[int, int], Any]
    chain_start: Callable[[int], Any]


WINDOW_SUFFIX = Suffix(_WINDOW_BYTES, _window.pack, window_parts, window_parts, _start_only, _itself)
SESSION_SUFFIX = Suffix(_SESSION_BYTES, _session.pack, session_parts, latest_start_first, _end_then_start, _any_start)
