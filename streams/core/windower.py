"""Windows of a user's own: the protocol ``Windower``.

This module imports only other modules of ``core``.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar, runtime_checkable

from streams.core.records import Window

K = TypeVar("K", contravariant=True)
V = TypeVar("V", contravariant=True)


@runtime_checkable
class Windower(Protocol[K, V]):
    """Determines the windows of records, which windows are merged, and when a window closes.

    A windower is given to ``windowed_by``.  Its methods must be deterministic: their results may depend on their
    arguments only.  The bounds of a window are epoch milliseconds, and their meaning is that of the windower.  The open
    windows of a key are in a session store.

    Attributes:
        retention: The time for which the store keeps windows, measured in their ends: a window may be forgotten once
            another one, of any key, ends later by more than this.  It must be longer than any window is open, plus the
            time by which ends are ahead of stream time.
    """

    # Not a property: a class that derives from this one assigns it.
    retention: timedelta

    def assign(self, key: K, value: V, timestamp_ms: int, windows: Sequence[Window]) -> Iterable[Window]:
        """Return the windows of a record: open ones, of which ``windows`` are those of its key by start, or new ones.

        A record without windows is dropped, with the reason ``no window``.
        """
        ...

    def merge(self, windows: Sequence[Window]) -> Iterable[Window]:
        """Return the windows that remain of the open windows of a key and those of its new record, by start.

        A window that is not returned is merged into the returned one that contains it.  By default all remain.
        """
        return windows

    def close(self, window: Window) -> int:
        """Return the stream time in epoch milliseconds from which a window accepts no more records."""
        ...
