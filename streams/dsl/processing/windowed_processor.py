"""Aggregates over windows with fixed bounds: tumbling and hopping time windows, calendars, and unlimited windows.

A record updates each of its open windows.  A window is open while its end is after stream time minus the
grace period.  Results are emitted with every update, or once when the window closes.  A value of None is
aggregated like any other value; a result of None deletes the window (KIP-328, KIP-825).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import frozen

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.loops import windowed
from streams.core.blocks.records import NO_TIMESTAMP, Headers
from streams.core.event_time.calendar import windows_of
from streams.core.event_time.windows import CalendarWindows, FixedWindows, SlidingWindows, TimeWindows
from streams.core.inlining import inlined
from streams.core.metrics import DropReason
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.emission import emit_nothing, table_emit
from streams.dsl.processing.finals import measured, restored_emitted_time
from streams.dsl.processing.folds import Fold
from streams.dsl.processing.sliding_processor import SlidingAggregate
from streams.dsl.processing.window_objects import WindowMemo
from streams.state import TimestampedWindowStore
from streams.topology import Lost, NodeContext, Process, StreamTime, TableForward
from streams.topology.columns.forms import Aggregation, FoldState


@frozen
class WindowAggregate:
    """The operator that folds the values of each key and time window."""

    store: str
    windows: FixedWindows
    fold: Fold
    send_old: bool = False
    emit_on_close: bool = False

    @property
    def keeps_back_ms(self) -> int:
        """The maximum time in milliseconds by which the timestamp of a result may lag stream time."""
        return self.windows.size_ms + self.windows.grace_ms if self.emit_on_close else 0

    @property
    def columns(self) -> Aggregation | None:
        """What columns do instead, for tumbling and hopping windows."""
        windows = self.windows
        if not isinstance(windows, TimeWindows) or self.fold.starts_with_none:
            return None
        refusal = "its windows have an offset" if windows.offset_ms else ""
        refusal = "old values of its results are used" if self.send_old else refusal
        sizes = windows.size_ms, windows.advance_ms, windows.grace_ms
        return Aggregation(
            self.fold.initializer, self.fold.aggregator, sizes, self.store, refusal, partial(_column_state, self)
        )

    @property
    def ignores_values(self) -> bool:
        """Whether the aggregate is independent of the values of records, as for ``count``."""
        return self.fold.ignores_values

    def bind(self, context: NodeContext) -> Process:
        windows = self.windows
        on_close = self.emit_on_close
        size_ms = windows.size_ms
        starts_of = _starts(windows)
        is_tumbling = isinstance(windows, TimeWindows) and (windows.advance_ms, windows.offset_ms) == (size_ms, 0)
        drop = dropper(context)
        time = context.clock.stream_time()
        # The retention, measured from the end of the window that starts with a record.
        kept_ms = context.stores[self.store].spec.retention_ms - size_ms
        emitted = restored_emitted_time(context.clock, self.store, time, windows.grace_ms) if on_close else StreamTime()
        emit_closed = _closer(context, self, time, emitted)
        update = self._updater(context, time, drop)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None:
                drop(DropReason.NULL_KEY, key, value, timestamp_ms, headers)
                return
            if timestamp_ms > time.ms:
                time.ms = timestamp_ms
            if on_close and timestamp_ms - kept_ms >= emitted.ms:
                # Storing this record would expire closed windows that are not emitted yet, so they are emitted first.
                emit_closed(headers)
            if is_tumbling:
                update(key, value, timestamp_ms, timestamp_ms - timestamp_ms % size_ms, headers)
            else:
                starts = starts_of(timestamp_ms)
                if not starts:
                    drop(DropReason.NO_WINDOW, key, value, timestamp_ms, headers)
                for start_ms in starts:
                    update(key, value, timestamp_ms, start_ms, headers)
            if on_close:
                emit_closed(headers)

        return process

    def _updater(
        self, context: NodeContext, time: StreamTime, drop: Lost
    ) -> Callable[[Any, Any, int, int, Headers | None], None]:
        """Return a function that adds a value to one window and takes (key, value, timestamp_ms, start_ms, headers)."""
        store = context.stores[self.store]
        fetch = store.fetch_pair
        put = store.put_pair
        find, replace = store.in_place()
        on_close = self.emit_on_close
        memo = WindowMemo(self.windows.end_of)
        grace_ms = self.windows.grace_ms
        initializer, aggregator = self.fold.initializer, self.fold.aggregator
        is_cached = context.stores.caches(self.store) and not on_close
        send_old = self.send_old
        hold: TableForward = emit_nothing
        hold_slot: TableForward = emit_nothing
        emit: TableForward = emit_nothing
        if is_cached:
            # The cache is keyed by (key, window start); a windowed key is built when an entry is flushed or evicted.
            section = context.output.cached(self.store, send_old=send_old, window_of=memo.__getitem__)
            hold, hold_slot = section.hold, section.hold_slot
        elif not on_close:
            emit, _ = table_emit(context, self.store, send_old)

        @inlined
        def update(key: Any, value: Any, timestamp_ms: int, start_ms: int, headers: Headers | None) -> None:
            # A record with the latest timestamp is in no closed window.
            if timestamp_ms < time.ms and memo[start_ms][1] <= time.ms - grace_ms:
                closed_ms = memo[start_ms][1] + grace_ms
                drop(DropReason.LATE, key, value, timestamp_ms, headers, memo[start_ms], closed_ms, time.ms)
                return
            slot = (key, start_ms)
            pair = find(slot, key, start_ms)
            if pair is not None and pair[0] is not None:
                is_in_place = True
                old, changed_ms = pair
            else:
                is_in_place = False
                pair = fetch(key, start_ms)
                if pair is None:
                    old = initializer()
                    changed_ms = timestamp_ms
                else:
                    old, changed_ms = pair
            new = aggregator(key, value, old)
            if changed_ms < timestamp_ms or (is_cached and new is None):
                changed_ms = timestamp_ms
            if is_in_place:
                replace(slot, key, new, changed_ms, start_ms)
                if is_cached:
                    hold_slot(slot, new, old, changed_ms, headers, True)
            else:
                put(key, new, changed_ms, start_ms)
                if is_cached:
                    hold(slot, new, None if pair is None else old, changed_ms, headers, True)
            if not (is_cached or on_close):
                emit(windowed(key, memo[start_ms]), new, old if send_old else None, changed_ms, headers, True)

        return update


def _column_state(operator: WindowAggregate, context: NodeContext) -> FoldState | None:
    """Return the state of a task's windows for columns; None if each record must be seen by others."""
    windows = operator.windows
    store = context.stores[operator.store]
    if type(store) is not TimestampedWindowStore or context.output.side_output() is not None:
        return None
    time = context.clock.stream_time()

    def late(late_ms: list[int]) -> None:
        context.metrics.drop(DropReason.LATE, len(late_ms))
        for each in late_ms:
            context.metrics.late(each)

    def late_count() -> int:
        return context.metrics.tally(DropReason.LATE).value

    emitted = context.clock.emitted_time(operator.store)
    wait_ms = windows.size_ms + windows.grace_ms
    bounds = store.bounds

    def end_ms() -> int:
        # A window that is not late may have expired only if the store is ahead.
        if bounds.observed_ms > time.ms:
            return NO_TIMESTAMP
        # The first window that is still open closes.
        return max(0, windows.open_from(emitted.ms)) + wait_ms if operator.emit_on_close else MAX_TIME_MS

    if operator.emit_on_close:
        return FoldState(time, store.fetch_pair, store.put_pair, late, late_count, end_ms, None)
    if context.stores.caches(operator.store):
        return None
    forward, _ = table_emit(context, operator.store, send_old=False)
    memo = WindowMemo(windows.end_of)

    def emit(key: Any, value: Any, timestamp_ms: int, start_ms: int) -> None:
        forward(windowed(key, memo[start_ms]), value, None, timestamp_ms, None, True)

    return FoldState(time, store.fetch_pair, store.put_pair, late, late_count, end_ms, emit)


def window_aggregate(
    store: str, windows: FixedWindows | SlidingWindows, fold: Fold, send_old: bool, emit_on_close: bool = False
) -> "WindowAggregate | SlidingAggregate":
    """Return the aggregate operator for time windows or sliding windows."""
    if isinstance(windows, SlidingWindows):
        return SlidingAggregate(store, windows, fold, send_old, emit_on_close)
    return WindowAggregate(store, windows, fold, send_old, emit_on_close)


def _starts(windows: FixedWindows) -> Callable[[int], Any]:
    """Return the function that maps a time to the starts of its windows, in ascending order."""
    if isinstance(windows, CalendarWindows):
        return _calendar_starts(windows)
    if not isinstance(windows, TimeWindows):
        return windows.windows_for
    advance_ms, offset_ms = windows.advance_ms, windows.offset_ms
    reach_ms = advance_ms - windows.size_ms - offset_ms

    def starts(timestamp_ms: int) -> range:
        first_ms = timestamp_ms + reach_ms
        first_ms = first_ms - first_ms % advance_ms if first_ms > 0 else 0
        return range(first_ms + offset_ms, timestamp_ms + 1, advance_ms)

    return starts


def _calendar_starts(windows: CalendarWindows) -> Callable[[int], Sequence[int]]:
    """Return ``windows_for``, which remembers the window of the record before."""
    window_of = windows_of(windows.calendar).window_of
    starts: Sequence[int] = ()
    start_ms = end_ms = 0

    def starts_of(timestamp_ms: int) -> Sequence[int]:
        nonlocal starts, start_ms, end_ms
        if not start_ms <= timestamp_ms < end_ms:
            window = window_of(timestamp_ms)
            start_ms, end_ms = window or (0, 0)
            starts = () if window is None else (start_ms,)
        return starts

    return starts_of


def _closer(
    context: NodeContext, operator: WindowAggregate, time: StreamTime, emitted: StreamTime
) -> Callable[[Headers | None], bool]:
    """Return a function that emits the windows closed since its last call, and returns whether there were any.

    Windows that end at or before ``emitted`` have been emitted; ``emitted`` is restored after a restart.
    """
    forward = context.output.forward
    store = context.stores[operator.store]
    windows = operator.windows
    grace_ms = windows.grace_ms
    open_from = windows.open_from
    memo = WindowMemo(windows.end_of)

    def emit_closed(headers: Headers | None) -> bool:
        close_ms = time.ms - grace_ms
        open_ms = open_from(close_ms)
        if open_ms <= 0 or open_ms <= open_from(emitted.ms):
            return False
        has_emitted = emit_until(open_ms - 1, headers)
        emitted.ms = close_ms
        return has_emitted

    def emit_windows(last_ms: int, headers: Headers | None) -> int:
        count = 0
        for start_ms, key, pair in store.windows_between(max(0, open_from(emitted.ms)), last_ms):
            count += 1
            forward(windowed(key, memo[start_ms]), (pair[0], None, True), pair[1], headers)
        return count

    emit_until = measured(context.metrics, emit_windows, emits_on_close=operator.emit_on_close)

    def advance(stream_time_ms: int) -> bool:
        time.ms = max(time.ms, stream_time_ms)
        return operator.emit_on_close and emit_closed(None)

    context.clock.on_idle(advance)
    if operator.emit_on_close:
        # ``emitted`` is unchanged: if the application continues, these windows are emitted again when they close.
        context.output.on_final_flush(partial(emit_until, MAX_TIME_MS, None))
    return emit_closed
