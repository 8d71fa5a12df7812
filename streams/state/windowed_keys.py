"""Key layouts of windowed stores, as bytes of Kafka Streams' changelogs.

Window: key, start as 8 bytes, sequence as 4.  Session: key, end, start, 8 bytes each.
Pure: imports nothing of ours.
"""

from struct import Struct

WINDOW_SUFFIX = 12
SESSION_SUFFIX = 16
MAX_TIME = (1 << 63) - 1
MAX_SEQUENCE = (1 << 31) - 1

_window = Struct(">qi")
_session = Struct(">qq")
#: Bytes of (start, sequence).
window_suffix = _window.pack
#: Bytes of (end, start).
session_suffix = _session.pack


def window_parts(data: bytes) -> tuple[bytes, int, int]:
    """Return (key, start, sequence) of a window store's key."""
    split = len(data) - WINDOW_SUFFIX
    start, sequence = _window.unpack_from(data, split)
    return data[:split], start, sequence


def session_parts(data: bytes) -> tuple[bytes, int, int]:
    """Return (key, end, start) of a session store's key."""
    split = len(data) - SESSION_SUFFIX
    end, start = _session.unpack_from(data, split)
    return data[:split], end, start


def latest_start_first(data: bytes) -> tuple[bytes, int, int]:
    """Return what orders the sessions of one end in memory: the key, and of its sessions the latest start first."""
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
