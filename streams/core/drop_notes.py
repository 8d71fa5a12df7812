"""Headers of dropped records in side outputs: why and where a record was dropped, and how late it was.

Values are decimal numbers or names in UTF-8.  This module imports only other modules of ``core``.
"""

from attrs import frozen

from streams.core.blocks.records import Headers, Window
from streams.core.metrics import DropReason

REASON = "__streams.dropped.reason"
NODE = "__streams.dropped.node"
LATE_MS = "__streams.late.ms"
STREAM_TIME_MS = "__streams.late.stream_time_ms"
WINDOW_START_MS = "__streams.late.window_start_ms"
WINDOW_END_MS = "__streams.late.window_end_ms"


@frozen
class DropNote:
    """The contents of a dropped record's headers, in the streams of ``late()`` and ``dropped()``.

    Attributes:
        reason: Why the record was dropped.
        node: The node that dropped it.
        late_ms: How late the record was, in milliseconds of stream time since its window closed or its timestamp left
            the retention of the store; None if it was not late.
        stream_time_ms: The stream time of the operator, in epoch milliseconds; None if it was not late.
        window: The window that had closed; None in a join, or if the record was not late.

    >>> headers = (("__streams.dropped.reason", b"null key"), ("__streams.dropped.node", b"count"))
    >>> DropNote.of(headers)
    DropNote(reason=<DropReason.NULL_KEY: 'null key'>, node='count', late_ms=None, stream_time_ms=None, window=None)
    """

    reason: DropReason
    node: str
    late_ms: int | None = None
    stream_time_ms: int | None = None
    window: Window | None = None

    @classmethod
    def of(cls, headers: Headers) -> "DropNote | None":
        """Return the note decoded from a record's headers, or None if the record was not dropped."""
        texts = {name: value.decode() for name, value in headers if value is not None}
        if REASON not in texts:
            return None
        window = None
        if WINDOW_START_MS in texts:
            window = Window(int(texts[WINDOW_START_MS]), int(texts[WINDOW_END_MS]))
        late_ms, time_ms = (int(texts[name]) if name in texts else None for name in (LATE_MS, STREAM_TIME_MS))
        return cls(DropReason[texts[REASON].upper().replace(" ", "_")], texts[NODE], late_ms, time_ms, window)

    def headers(self) -> Headers:
        """Return the headers that encode this note."""
        numbers = {LATE_MS: self.late_ms, STREAM_TIME_MS: self.stream_time_ms}
        if self.window is not None:
            numbers |= {WINDOW_START_MS: self.window[0], WINDOW_END_MS: self.window[1]}
        texts = [(name, str(number)) for name, number in numbers.items() if number is not None]
        return tuple((name, text.encode()) for name, text in ((REASON, self.reason), (NODE, self.node), *texts))
