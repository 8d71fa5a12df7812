"""A cache of ``Window`` objects, which the windowed keys of output records share."""

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.records import Window

#: Maximum number of cached windows of one operator; the cache is cleared when it is full.
_MEMO_LIMIT = 4096


class WindowMemo(dict[int, Window]):
    """A cache of the windows of one size, by start time."""

    __slots__ = ("_size_ms",)

    def __init__(self, size_ms: int) -> None:
        super().__init__()
        self._size_ms = size_ms

    def __missing__(self, start_ms: int) -> Window:
        if len(self) >= _MEMO_LIMIT:
            self.clear()
        window = self[start_ms] = Window(start_ms, min(start_ms + self._size_ms, MAX_TIME_MS))
        return window
