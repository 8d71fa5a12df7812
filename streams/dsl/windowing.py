"""The windows of an aggregation, which determine its store, its keys and its operator.

Grouped streams and cogroups use this module.  Imports operators, stores and serde variables.
"""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from streams.core.errors import TopologyError
from streams.core.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from streams.dsl.logical import LogicalGraph
from streams.dsl.materialized import Materialized, key_value, windowed
from streams.dsl.operators import Fold, SessionAggregate, StreamAggregate, window_aggregate
from streams.dsl.serde_variables import SerdeVariable, session_windowed_variable, time_windowed_variable
from streams.state import SESSION, TIMESTAMPED_WINDOW
from streams.topology import Operator


@frozen
class Windowing:
    """The windows of an aggregation, or None for one aggregate per key."""

    windows: TimeWindows | SlidingWindows | UnlimitedWindows | SessionWindows | None = None
    emits_on_close: bool = False

    @property
    def closing_ms(self) -> int | None:
        """Time in ms between the end of a window and its closing, for ``suppress``; None without windows.

        A session also stays open for the inactivity gap.
        """
        if isinstance(self.windows, SessionWindows):
            return self.windows.gap_ms + self.windows.grace_ms
        return None if self.windows is None else self.windows.grace_ms

    def store(
        self,
        graph: LogicalGraph,
        wanted: str | None,
        prefix: str,
        key: SerdeVariable,
        value: SerdeVariable,
        options: Mapping[str, Any],
    ) -> Materialized:
        """Return the store of the aggregates.

        Sliding and session windows that are emitted on close have no cache, which would only change the
        order of results.

        Raises:
            TopologyError: the retention is shorter than the window size plus the grace period.
        """
        windows, kind = self.windows, TIMESTAMPED_WINDOW
        if windows is None:
            return key_value(graph, wanted, prefix, key, value, options)
        if isinstance(windows, SessionWindows):
            kind, needed_ms, size_ms = SESSION, windows.gap_ms + windows.grace_ms, -1
        elif isinstance(windows, SlidingWindows):
            needed_ms, size_ms = 2 * windows.difference_ms + windows.grace_ms, windows.difference_ms
        else:
            needed_ms, size_ms = windows.size_ms + windows.grace_ms, windows.size_ms
        kept = windowed(graph, wanted, prefix, kind, key, value, options, needed_ms=needed_ms, size_ms=size_ms)
        if self.emits_on_close and isinstance(windows, SlidingWindows | SessionWindows):
            kept.has_caching = False
        return kept

    def table_key(self, key: SerdeVariable) -> SerdeVariable:
        """Return the serde variable for the keys of the result."""
        if self.windows is None:
            return key
        if isinstance(self.windows, SessionWindows):
            return session_windowed_variable(key)
        return time_windowed_variable(key, self.windows.size_ms)

    def operator(self, store: str, fold: Fold, send_old: bool) -> Operator:
        """Return the operator that folds records into the store."""
        if self.windows is None:
            return StreamAggregate(store, fold, send_old)
        if isinstance(self.windows, SessionWindows):
            return SessionAggregate(store, self.windows, fold, send_old, self.emits_on_close)
        return window_aggregate(store, self.windows, fold, send_old, self.emits_on_close)


#: One aggregate per key.
UNWINDOWED = Windowing()


def check_windows(owner: object, windows: Any) -> None:
    """Check the argument of ``windowed_by``.

    Raises:
        TopologyError: the argument is not a window definition.
    """
    if not isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows | SessionWindows):
        raise TopologyError(
            f"windowed_by of {owner!r} needs TimeWindows, SlidingWindows, SessionWindows or UnlimitedWindows, "
            f"got {windows!r}"
        )
