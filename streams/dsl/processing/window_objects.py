"""A cache of ``Window`` objects, which the windowed keys of output records share."""

from collections.abc import Callable

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.records import Window

#: Maximum number of cached windows of one operator; the cache is cleared when it is full.
_MEMO_LIMIT = 4096


class WindowMemo(dict[int, Window]):
    """A cache of windows by start time; ``end_of`` returns the end of the window with a start."""

    __slots__ = ("_end_of",)

    def __init__(self, end_of: Callable[[int], int]) -> None:
        super().__init__()
        self._end_of = end_of

    def __missing__(self, start_ms: int) -> Window:
        if len(self) >= _MEMO_LIMIT:
            self.clear()
        window = self[start_ms] = Window(start_ms, min(self._end_of(start_ms), MAX_TIME_MS))
        return window
