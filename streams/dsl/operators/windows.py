"""What windowed aggregates share: cheap windowed keys, late records, and emission on close.

Windowed keys are tuples built once per output record over a memo of their windows.
"""

from collections.abc import Callable
from typing import Any

from streams.core.records import Window

#: Reasons under which dropped records are counted.
NULL_KEY = "null key"
NULL_KEY_OR_VALUE = "null key or value"
EXPIRED = "expired window"

#: The end of a window without end (Java's Long.MAX_VALUE).
MAX_TIME = (1 << 63) - 1

#: Windows remembered by one operator; beyond that it starts anew.
_MEMO_LIMIT = 4096


class WindowMemo(dict[int, Window]):
    """Windows of one size by their start."""

    __slots__ = ("_size_ms",)

    def __init__(self, size_ms: int) -> None:
        super().__init__()
        self._size_ms = size_ms

    def __missing__(self, start_ms: int) -> Window:
        if len(self) >= _MEMO_LIMIT:
            self.clear()
        window = self[start_ms] = Window(start_ms, min(start_ms + self._size_ms, MAX_TIME))
        return window


def reducing(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Return a reducer ``(old, new)`` as an aggregator over an aggregate that is None at first."""

    def aggregate(_: Any, value: Any, old: Any) -> Any:
        return value if old is None else reducer(old, value)

    return aggregate


def counting(_: Any, __: Any, count: int) -> int:
    """Count one more."""
    return count + 1


def nothing() -> None:
    """Return None, the start of a reduction."""


def zero() -> int:
    """Return 0, the start of a count."""
    return 0
