"""The header that marks a window result as early or final.

This module imports only other modules of ``core``.
"""

from enum import StrEnum

from streams.core.blocks.records import Headers

RESULT = "__streams.result"


class ResultTiming(StrEnum):
    """Whether a result of ``emit(early_every=...)`` is early, or the final one of its window.

    >>> ResultTiming.of((("__streams.result", b"final"),))
    <ResultTiming.FINAL: 'final'>
    """

    #: The window was open, so a later result follows.
    EARLY = "early"
    #: The window has closed.
    FINAL = "final"

    @classmethod
    def of(cls, headers: Headers | None) -> "ResultTiming | None":
        """Return the timing in a record's headers, or None for other records."""
        for name, value in headers or ():
            if name == RESULT and value is not None:
                return cls(value.decode())
        return None

    def marked(self, headers: Headers | None) -> Headers:
        """Return the headers with this timing, which replaces the timing of an operator upstream."""
        own = (RESULT, self.value.encode())
        return (*(header for header in headers or () if header[0] != RESULT), own)
