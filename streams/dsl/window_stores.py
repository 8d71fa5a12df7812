"""Stores and keys of windowed tables, by kind of window.  Imports stores and serde variables."""

from collections.abc import Mapping
from typing import Any

from streams.core.windows import SessionWindows, SlidingWindows, Windows
from streams.dsl.logical import LogicalGraph
from streams.dsl.materialized import Materialized, windowed
from streams.dsl.serde_variables import SerdeVariable, session_windowed_variable, time_windowed_variable
from streams.state import SESSION, TIMESTAMPED_WINDOW


def window_store(
    graph: LogicalGraph,
    windows: Windows,
    wanted: str | None,
    prefix: str,
    key: SerdeVariable,
    value: SerdeVariable,
    options: Mapping[str, Any],
    *,
    emits_on_close: bool = False,
) -> Materialized:
    """Return the store of a windowed aggregation.

    Sliding and session windows that are emitted on close have no cache, which would only change the
    order of results.

    Raises:
        TopologyError: the retention is shorter than the window size plus the grace period.
    """
    kind = TIMESTAMPED_WINDOW
    if isinstance(windows, SessionWindows):
        kind, needed_ms, size_ms = SESSION, windows.gap_ms + windows.grace_ms, -1
    elif isinstance(windows, SlidingWindows):
        needed_ms, size_ms = 2 * windows.difference_ms + windows.grace_ms, windows.difference_ms
    else:
        needed_ms, size_ms = windows.size_ms + windows.grace_ms, windows.size_ms
    kept = windowed(graph, wanted, prefix, kind, key, value, options, needed_ms=needed_ms, size_ms=size_ms)
    if emits_on_close and isinstance(windows, SlidingWindows | SessionWindows):
        kept.has_caching = False
    return kept


def windowed_key(windows: Windows, key: SerdeVariable) -> SerdeVariable:
    """Return the serde variable for the keys of a windowed table."""
    if isinstance(windows, SessionWindows):
        return session_windowed_variable(key)
    return time_windowed_variable(key, windows.size_ms)


def closing_ms(windows: Windows) -> int:
    """Return the time in ms between the end of a window and its closing, for ``suppress``.

    A session also stays open for the inactivity gap.
    """
    if isinstance(windows, SessionWindows):
        return windows.gap_ms + windows.grace_ms
    return windows.grace_ms
