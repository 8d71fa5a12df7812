"""User-defined windows: the protocol ``Windower``.

This module imports only other modules of ``core``.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar, runtime_checkable

from streams.core.blocks.records import Window

K = TypeVar("K", contravariant=True)
V = TypeVar("V", contravariant=True)


@runtime_checkable
class Windower(Protocol[K, V]):
    """A user-defined window assigner, which also determines which windows are merged and when a window closes.

    Pass a windower to ``windowed_by``.  Its methods must be deterministic: their results may depend on their
    arguments only.  The bounds of a window are epoch milliseconds; the windower decides whether they are inclusive.
    The open windows of a key are in a session store.

    Attributes:
        retention: The time for which the store keeps windows: a window may expire once the latest window end of all
            keys is later than its own end by more than ``retention``.  The retention must be longer than the time for
            which any window is open, plus the time by which window ends are ahead of stream time.
    """

    # Not a property: a class that derives from this one assigns it.
    retention: timedelta

    def assign(self, key: K, value: V, timestamp_ms: int, windows: Sequence[Window]) -> Iterable[Window]:
        """Return the windows to which a record is added: new windows, or open windows of its key.

        ``windows`` are the open windows of the key, ordered by start.  A record without windows is dropped, with the
        reason ``no window``.
        """
        ...

    def merge(self, windows: Sequence[Window]) -> Iterable[Window]:
        """Return the windows that remain after merging.

        ``windows`` are the open windows of a key and the windows of its new record, ordered by start.  A window that
        is not returned is merged into the returned window that contains it.  By default no windows are merged.
        """
        return windows

    def close(self, window: Window) -> int:
        """Return the stream time in epoch milliseconds from which a window accepts no more records."""
        ...
