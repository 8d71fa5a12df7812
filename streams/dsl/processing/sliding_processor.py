"""Aggregates over sliding windows: one window for every distinct set of records close in time.

A record at t belongs to all windows that contain t, and creates up to three windows: its left window, which ends at t,
its right window, which starts after t and contains later records, and the right window of the previous record.  The
timestamp of a window is that of its latest record.  Windows that would start before time 0 are combined into one window
that starts at 0 (KIP-450).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from attrs import frozen

from streams.core.arguments import MAX_TIME_MS
from streams.core.blocks.loops import windowed
from streams.core.blocks.records import Headers, Window
from streams.core.event_time.windows import SlidingWindows
from streams.core.metrics import DropReason
from streams.dsl.processing.drops import dropper
from streams.dsl.processing.emission import table_emit
from streams.dsl.processing.finals import measured, restored_emitted_time
from streams.dsl.processing.folds import Fold
from streams.dsl.processing.window_objects import WindowMemo
from streams.topology import NodeContext, Process, StreamTime, TableForward

#: The aggregate of a window, and the timestamp of its latest record.
_Pair: TypeAlias = tuple[Any, int]
#: Updates a window: (key, value, record time, headers, start, pair to update, stored pair).
_Update: TypeAlias = Callable[[Any, Any, int, Headers | None, int, _Pair | None, _Pair | None], None]
#: Creates a window from a pair: (key, headers, start, pair).
_Create: TypeAlias = Callable[[Any, Headers | None, int, _Pair], None]


@frozen
class SlidingAggregate:
    """The operator that folds the values of each key and sliding window."""

    store: str
    windows: SlidingWindows
    fold: Fold
    send_old: bool = False
    emit_on_close: bool = False

    @property
    def keeps_back_ms(self) -> int:
        """The maximum time in milliseconds by which the timestamp of a result may lag stream time."""
        return self.windows.difference_ms + self.windows.grace_ms + 1 if self.emit_on_close else 0

    def bind(self, context: NodeContext) -> Process:
        store = context.stores[self.store]
        drop = dropper(context)
        time = context.clock.stream_time()
        difference_ms, grace_ms = self.windows.difference_ms, self.windows.grace_ms
        update, create = _writers(context, self, store)
        find = store.pairs_in_range
        early = _early(find, difference_ms, self.fold.initializer, update, create)
        usual = _usual(find, difference_ms, self.fold.initializer, update, create)
        emit_closed, emitted = _closer(context, self, time) if self.emit_on_close else (None, time)
        # The retention, measured from the start of the right window of a record.
        kept_ms = store.spec.retention_ms - difference_ms - 1

        def advance(stream_time_ms: int) -> bool:
            time.ms = max(time.ms, stream_time_ms)
            return emit_closed is not None and emit_closed(time.ms - grace_ms, None)

        context.clock.on_idle(advance)

        def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
            if key is None or value is None:
                reason = DropReason.NULL_KEY if key is None else DropReason.NULL_VALUE
                drop(reason, key, value, timestamp_ms, headers)
                return
            if timestamp_ms > time.ms:
                time.ms = timestamp_ms
            if timestamp_ms + difference_ms < time.ms - grace_ms:
                # The last window that contains the record starts at its timestamp.
                window = Window(timestamp_ms, timestamp_ms + difference_ms)
                drop(DropReason.LATE, key, value, timestamp_ms, headers, window, window[1] + grace_ms, time.ms)
                return
            if timestamp_ms < difference_ms:
                early(key, value, timestamp_ms, headers)
                return
            if emit_closed is None:
                usual(key, value, timestamp_ms, headers)
                return
            if timestamp_ms - kept_ms >= emitted.ms:
                emit_closed(time.ms - grace_ms, headers)
            usual(key, value, timestamp_ms, headers)
            emit_closed(time.ms - grace_ms, headers)

        return process


def _writers(context: NodeContext, operator: SlidingAggregate, store: Any) -> tuple[_Update, _Create]:
    """Return two functions: one adds a record to a window, the other creates a window from (aggregate, timestamp)."""
    put = store.put_pair
    drop = dropper(context)
    time = context.clock.stream_time()
    difference_ms, grace_ms = operator.windows.difference_ms, operator.windows.grace_ms
    aggregator = operator.fold.aggregator
    emit: TableForward | None = None
    is_cached = False
    if not operator.emit_on_close:
        emit, is_cached = table_emit(context, operator.store, operator.send_old)
    send_old = operator.send_old or is_cached
    memo = WindowMemo(difference_ms.__add__)

    def update(
        key: Any,
        value: Any,
        timestamp_ms: int,
        headers: Headers | None,
        start_ms: int,
        pair: _Pair | None,
        stored: _Pair | None,
    ) -> None:
        if start_ms + difference_ms < time.ms - grace_ms:
            window = memo[start_ms]
            drop(DropReason.LATE, key, value, timestamp_ms, headers, window, window[1] + grace_ms, time.ms)
            return
        old = None if pair is None else pair[0]
        new = aggregator(key, value, old)
        if old is not None and pair is not None and pair[1] > timestamp_ms and not (new is None and is_cached):
            timestamp_ms = pair[1]
        put(key, new, timestamp_ms, start_ms)
        if emit is not None:
            if is_cached:
                old = None if stored is None else stored[0]
            emit(windowed(key, memo[start_ms]), new, old if send_old else None, timestamp_ms, headers, True)

    def create(key: Any, headers: Headers | None, start_ms: int, pair: _Pair) -> None:
        put(key, pair[0], pair[1], start_ms)
        if emit is not None:
            emit(windowed(key, memo[start_ms]), pair[0], None, pair[1], headers, True)

    return update, create


def _usual(
    find: Callable[[Any, int, int], list[tuple[int, _Pair]]],
    difference_ms: int,
    initializer: Callable[[], Any],
    update: _Update,
    create: _Create,
) -> Process:
    """Return the function that processes records whose left window starts at 0 or later."""

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        left: _Pair | None = None
        right: _Pair | None = None
        has_left = has_right = False
        previous_ms: int | None = None
        # The windows that contain the record or the previous record, latest first.
        windows = find(key, max(0, timestamp_ms - 2 * difference_ms), timestamp_ms + 1)
        starts = set()
        for start_ms, pair in reversed(windows):
            starts.add(start_ms)
            end_ms = start_ms + difference_ms
            if start_ms == timestamp_ms + 1:
                has_right = True
            elif end_ms > timestamp_ms:
                if right is None:
                    right = pair
                update(key, value, timestamp_ms, headers, start_ms, pair, pair)
            elif end_ms == timestamp_ms:
                has_left = True
                update(key, value, timestamp_ms, headers, start_ms, pair, pair)
                if pair[1] >= timestamp_ms:
                    # An earlier record has this timestamp, so all windows exist.
                    return
                previous_ms = pair[1]
            else:
                left = pair
                previous_ms = pair[1]
                break
        if previous_ms is not None:
            start_ms = previous_ms + 1
            if start_ms not in starts and start_ms + difference_ms >= timestamp_ms:
                update(key, value, timestamp_ms, headers, start_ms, _started(initializer, timestamp_ms), None)
        if not has_left:
            if left is not None and previous_ms is not None and timestamp_ms - difference_ms <= previous_ms:
                base: _Pair | None = (left[0], timestamp_ms)
            else:
                base = _started(initializer, timestamp_ms)
            update(key, value, timestamp_ms, headers, timestamp_ms - difference_ms, base, None)
        if not has_right and right is not None and right[1] > timestamp_ms:
            create(key, headers, timestamp_ms + 1, right)

    return process


def _early(
    find: Callable[[Any, int, int], list[tuple[int, _Pair]]],
    difference_ms: int,
    initializer: Callable[[], Any],
    update: _Update,
    create: _Create,
) -> Process:
    """Return the function that processes records before ``difference_ms``, which share the window that starts at 0."""

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers | None) -> None:
        combined: _Pair | None = None
        right: _Pair | None = None
        has_right = False
        previous_ms: int | None = None
        starts = set()
        for start_ms, pair in find(key, 0, timestamp_ms + 1):
            starts.add(start_ms)
            if start_ms == 0:
                combined = pair
                if pair[1] < timestamp_ms:
                    previous_ms = pair[1]
            elif start_ms <= timestamp_ms:
                right = pair
                update(key, value, timestamp_ms, headers, start_ms, pair, pair)
            else:
                has_right = True
        if right is None and combined is not None and combined[1] > timestamp_ms:
            right = combined
        if not has_right and right is not None and right[1] > timestamp_ms:
            create(key, headers, timestamp_ms + 1, right)
        if previous_ms is not None and previous_ms + 1 not in starts:
            update(key, value, timestamp_ms, headers, previous_ms + 1, _started(initializer, timestamp_ms), None)
        base = _started(initializer, timestamp_ms) if combined is None else combined
        update(key, value, timestamp_ms, headers, 0, base, combined)

    return process


def _started(initializer: Callable[[], Any], timestamp_ms: int) -> _Pair | None:
    """Return (initial aggregate, timestamp) for a new window, or None if the initial aggregate is None."""
    initial = initializer()
    return None if initial is None else (initial, timestamp_ms)


def _closer(
    context: NodeContext, operator: SlidingAggregate, time: StreamTime
) -> tuple[Callable[[int, Headers | None], bool], StreamTime]:
    """Return a function that emits the windows that end before a given time, and the time up to which it has emitted.

    The function returns whether any window was emitted.
    """
    forward = context.output.forward
    store = context.stores[operator.store]
    difference_ms = operator.windows.difference_ms
    emitted = restored_emitted_time(context.clock, operator.store, time, operator.windows.grace_ms)
    memo = WindowMemo(difference_ms.__add__)

    def emit_closed(close_ms: int, headers: Headers | None) -> bool:
        if close_ms <= emitted.ms or close_ms <= difference_ms:
            return False
        has_emitted = emit_until(close_ms - difference_ms - 1, headers)
        emitted.ms = close_ms
        return has_emitted

    def emit_windows(last_ms: int, headers: Headers | None) -> int:
        count = 0
        for start_ms, key, pair in store.windows_between(max(0, emitted.ms - difference_ms), last_ms):
            count += 1
            forward(windowed(key, memo[start_ms]), (pair[0], None, True), pair[1], headers)
        return count

    emit_until = measured(context.metrics, emit_windows)

    # ``emitted`` is unchanged: if the application continues, these windows are emitted again when they close.
    context.output.on_final_flush(partial(emit_until, MAX_TIME_MS, None))
    return emit_closed, emitted
