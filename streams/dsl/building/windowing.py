"""The windows of an aggregation, which determine its store, its keys and its operator.

Grouped streams and cogroups use this module.  The module imports only ``core``, ``state`` and ``topology`` from outside
``dsl``.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen

from streams.core.blocks.records import Window
from streams.core.errors import TopologyError
from streams.core.event_time.windower import Windower
from streams.core.event_time.windows import (
    CalendarWindows,
    CountWindows,
    FixedWindows,
    SessionWindows,
    SlidingWindows,
    UnlimitedWindows,
    Windows,
)
from streams.dsl.functions import check_function
from streams.dsl.logical import LogicalGraph
from streams.dsl.materialized import Materialized, key_value, to_ms, windowed
from streams.dsl.processing import (
    CountWindowAggregate,
    EarlyEvery,
    Fold,
    SessionAggregate,
    StreamAggregate,
    WindowerAggregate,
    numbers_spec,
    on_copies,
    window_aggregate,
)
from streams.dsl.serde_variables import (
    SerdeVariable,
    count_windowed_variable,
    session_windowed_variable,
    time_windowed_variable,
)
from streams.dsl.table_state import SourceState
from streams.state import SESSION, TIMESTAMPED_WINDOW
from streams.topology import Operator

#: The methods of a windower and their arguments.
_WINDOWER_METHODS: Final = {
    "assign": "(key, value, timestamp_ms, windows)",
    "merge": "(windows)",
    "close": "(window)",
}


@frozen
class Windowing:
    """The windows of an aggregation; without windows, there is one aggregate per key."""

    windows: Windows | Windower[Any, Any] | None = None
    emits_on_close: bool = False
    #: The interval of early results, or None if there are no early results.
    early: EarlyEvery | None = None

    @property
    def closing_ms(self) -> int | None:
        """The time in ms from the end of a window until it closes; None for count windows, a windower or no windows.

        For sessions, the time includes the inactivity gap.
        """
        if isinstance(self.windows, SessionWindows):
            return self.windows.gap_ms + self.windows.grace_ms
        return getattr(self.windows, "grace_ms", None)

    @property
    def window_ms(self) -> int:
        """The longest size of fixed or sliding windows in ms; 0 for other windows and without windows."""
        windows = self.windows
        if isinstance(windows, SlidingWindows):
            return windows.difference_ms
        return windows.size_ms if isinstance(windows, FixedWindows) else 0

    @property
    def has_merges(self) -> bool:
        """Whether a record may merge windows of its key into one."""
        return isinstance(self.windows, SessionWindows | Windower)

    def store(
        self,
        graph: LogicalGraph,
        explicit_name: str | None,
        prefix: str,
        key: SerdeVariable,
        value: SerdeVariable,
        options: Mapping[str, Any],
    ) -> Materialized:
        """Return the store of the aggregates.

        Sliding and session windows that are emitted on close have no record cache, because a cache would only change
        the order of results.  With early results there is no record cache either, because the interval counts updates.

        Raises:
            TopologyError: the retention is shorter than the window size plus the grace period, or is given for count
                windows.
        """
        windows = self.windows
        kind = TIMESTAMPED_WINDOW
        if windows is None:
            return key_value(graph, explicit_name, prefix, key, value, options, can_expire=True)
        if isinstance(windows, CountWindows):
            if refused := options.keys() & {"retention", "history", "ttl"}:
                raise TopologyError(
                    f"{min(refused)}= of count windows: their store keeps the open windows of each key, and the one "
                    "that closed last"
                )
            materialized = key_value(graph, explicit_name, prefix, self.table_key(key), value, options)
            materialized.second = lambda spec: numbers_spec(spec, key.resolve())
            if self.early or self.emits_on_close:
                materialized.has_caching = False
            return materialized
        if isinstance(windows, SessionWindows):
            kind = SESSION
            needed_ms = windows.gap_ms + windows.grace_ms
            size_ms = -1
        elif isinstance(windows, Windower):
            kind = SESSION
            needed_ms = _retention_ms(windows)
            size_ms = -1
        elif isinstance(windows, SlidingWindows):
            needed_ms = 2 * windows.difference_ms + windows.grace_ms
            size_ms = windows.difference_ms
        else:
            needed_ms = windows.size_ms + windows.grace_ms
            size_ms = windows.size_ms
        materialized = windowed(graph, explicit_name, prefix, kind, key, value, options, needed_ms)
        materialized.window_size_ms = size_ms
        materialized.calendar = getattr(windows, "calendar", None)
        if self.early or (self.emits_on_close and isinstance(windows, SlidingWindows | SessionWindows | Windower)):
            materialized.has_caching = False
        return materialized

    def table_key(self, key: SerdeVariable) -> SerdeVariable:
        """Return the serde variable for the keys of the result, given the variable for the grouping keys."""
        if self.windows is None:
            return key
        if isinstance(self.windows, SessionWindows | Windower):
            return session_windowed_variable(key)
        if isinstance(self.windows, CountWindows):
            return count_windowed_variable(key, self.windows.size)
        if isinstance(self.windows, CalendarWindows):
            return session_windowed_variable(key, self.windows.calendar)
        return time_windowed_variable(key, self.windows.size_ms)

    def numbers(self, store: str) -> str | None:
        """Return the name of the store of record counts by key, given the aggregate store, or None."""
        return f"{store}-numbers" if isinstance(self.windows, CountWindows) else None

    def closes(self) -> Callable[[Window], int] | None:
        """Return a function that maps a window to the stream time in ms at which it closes.

        Return None for count windows, which close with their last record.
        """
        if isinstance(self.windows, Windower):
            return self.windows.close
        if self.closing_ms is None:
            return None
        # The ends of sliding windows and sessions are inclusive.
        wait_ms = self.closing_ms + isinstance(self.windows, SlidingWindows | SessionWindows)
        return lambda window: window[1] + wait_ms

    @property
    def final_behind_ms(self) -> int:
        """The time in ms by which the final result of a window may be behind stream time; 0 for unlimited windows."""
        if isinstance(self.windows, Windower):
            return _retention_ms(self.windows)
        if self.closing_ms is None or isinstance(self.windows, UnlimitedWindows):
            return 0
        return self.window_ms + self.closing_ms + 1

    def operator(self, state: SourceState, fold: Fold) -> Operator:
        """Return the operator that folds records into the store of the state; called when the graph is complete."""
        store = state.materialized.store
        send_old = state.send_old
        # An aggregate of a sliding window is the start of the next window, too.
        if send_old or isinstance(self.windows, SlidingWindows):
            fold = on_copies(fold, state.materialized.value.resolve())
        if self.windows is None:
            return StreamAggregate(store, fold, send_old)
        if isinstance(self.windows, SessionWindows):
            return SessionAggregate(store, self.windows, fold, send_old, self.emits_on_close)
        if isinstance(self.windows, Windower):
            kept_ms = _retention_ms(self.windows)
            return WindowerAggregate(store, self.windows, kept_ms, fold, send_old, self.emits_on_close)
        if isinstance(self.windows, CountWindows):
            return CountWindowAggregate(store, f"{store}-numbers", self.windows, fold, send_old, self.emits_on_close)
        return window_aggregate(store, self.windows, fold, send_old, self.emits_on_close)


#: One aggregate per key.
UNWINDOWED = Windowing()


def check_windows(owner: object, windows: Any) -> None:
    """Check the argument of ``windowed_by``.

    Raises:
        TopologyError: the argument is not a window definition, or a windower lacks a method or ``retention``.
    """
    if isinstance(windows, Windower) and not isinstance(windows, type):
        _check_windower(windows, f"windowed_by of {owner!r}")
        return
    if not isinstance(windows, Windows):
        instance = f"; give an instance, such as {windows.__name__}()" if _is_windower_class(windows) else ""
        raise TopologyError(
            f"windowed_by of {owner!r} needs TimeWindows, SlidingWindows, SessionWindows, UnlimitedWindows, "
            f"CountWindows, CalendarWindows or a Windower, got {windows!r}{instance}"
        )


def _is_windower_class(windows: Any) -> bool:
    return isinstance(windows, type) and all(hasattr(windows, name) for name in _WINDOWER_METHODS)


def _check_windower(windower: Windower[Any, Any], owner: str) -> None:
    for name, form in _WINDOWER_METHODS.items():
        method = getattr(windower, name)
        what = f"{owner}: {name} of {type(windower).__qualname__}"
        # A class that derives from the protocol has its methods, which return nothing; only that of ``merge`` is used.
        if name != "merge" and getattr(method, "__func__", None) is getattr(Windower, name):
            raise TopologyError(f"{what} is not defined; a Windower needs the method {name}{form}")
        check_function(method, what, form, may_yield=name != "close")
    if not hasattr(windower, "retention"):
        raise TopologyError(
            f"{owner}: {type(windower).__qualname__} has no retention; set it to the time for which windows are "
            "stored, such as retention = timedelta(days=1)"
        )
    _retention_ms(windower)


def _retention_ms(windower: Windower[Any, Any]) -> int:
    """Return the retention of a windower, in milliseconds.

    Raises:
        TopologyError: the retention is not a positive ``timedelta``.
    """
    retention_ms = to_ms(windower.retention, f"retention of {windower!r}")
    if retention_ms < 1:
        raise TopologyError(f"retention of {windower!r} must be at least 1 ms, not {windower.retention}")
    return retention_ms
