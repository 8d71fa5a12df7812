"""How operators send out table changes, and what they still hold when a bounded run ends.

A change leaves at once, or through the record cache of its store.  Between the operators and
what their task offers.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from streams.core.records import Headers
from streams.topology.operator import NodeContext

#: Sends a table's change: (key, new, old, timestamp_ms, headers, is_latest).
Emit: TypeAlias = Callable[[Any, Any, Any, int, Headers | None, bool], None]


def is_cached(context: NodeContext, store: str) -> bool:
    """Tell whether changes of this store go through the record cache.

    The cache must always be told what was stored: it skips a key that came and went between two
    flushes.  An uncached operator sends the initial aggregate as the old value of a new row, and
    no old value at all unless it is asked to.
    """
    caches = getattr(context, "caches", None)
    return caches is not None and bool(caches(store))


def at_final_flush(context: NodeContext, callback: Callable[[], None]) -> None:
    """Call back when stream time goes to infinity at the end of a bounded run, if the task does that."""
    register = getattr(context, "on_final_flush", None)
    if register is not None:
        register(callback)
